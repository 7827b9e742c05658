"""Kalman filters of PyTorch tensors that need gradients.

That of a log-likelihood is one pass backwards (`tridiag.algorithms.kalman_adjoint`), by a kernel where the backend has
one, the model is constant in time, and no further derivative is wanted; that of states is what autograd makes of the
steps of `torch_scan`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from tridiag.algorithms import kalman_rows
from tridiag.backends import Backend
from tridiag.derivatives import torch_kalman_states
from tridiag.libraries.torch import Operations as ops
from tridiag.libraries.torch import differentiated, transformed
from tridiag.problems.state_space import LIKELIHOOD, Model, StateSpace, own_shapes


class Calls(NamedTuple):
    """What computes log-likelihoods, and perhaps the derivatives of each in its own model and, if wanted, in y."""

    value: Callable[..., Any]  # (verb, y, model, form)
    derivatives: Callable[..., Any] | None  # (y, model, form, in_y), of models that are constant in time


def kalman(entry: Backend, verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """The results of a verb, by a backend where no gradient is needed."""
    module = entry.module()
    if not differentiated(y, *model) and not transformed():
        return module.kalman(verb, y, model, form)
    calls = Calls(module.kalman, getattr(module, "kalman_gradient", None))
    states, known = functools.partial(torch_kalman_states.kalman, verb), functools.partial(likelihood, calls)
    if not form.diffuse:
        return known(verb, y, model, form) if verb == LIKELIHOOD else states(y, model, form)
    started = functools.partial(kalman_rows.from_diffuse, ops, verb, rest=known)
    return of_exact(started if verb == LIKELIHOOD else states, y, model, form)


def takes_kernels(tensors: list[Any]) -> bool:
    """Whether kernels for arrays in host memory serve: of plain tensors there, where no gradient is needed."""
    plain = all([type(x) in (torch.Tensor, torch.nn.Parameter) and x.device.type == "cpu" for x in tensors])
    return plain and not differentiated(*tensors) and not transformed()


def of_exact(run: Any, y: Any, model: Model, form: StateSpace) -> Any:
    """Results of a verb, and their derivatives as those of hardly any noise.

    Where a variance in R is 0, so are variances of states, whose quotients have limits, but no derivatives.
    """
    none = torch.diagonal(model.R.detach(), dim1=-2, dim2=-1) == 0
    if not bool(none.any()):
        return run(y, model, form)
    with torch.no_grad():
        found = run(y, model, form)
    noise = torch.diag_embed(none.to(y.dtype) * ops.limits(y)[1] ** (1 / 3))
    moved = run(y, model._replace(R=model.R + noise), form)
    if isinstance(found, tuple):
        return tuple(itertools.starmap(differentiated_as, zip(found, moved, strict=True)))
    return differentiated_as(found, moved)


def differentiated_as(x: Any, z: Any) -> Any:
    """x, with the derivatives of z where that is finite."""
    z = torch.where(torch.isfinite(z), z, torch.zeros_like(z))
    return x + (z - z.detach())


def likelihood(calls: Calls, _: str, y: Any, model: Model, form: StateSpace) -> Any:
    return LogLikelihood.apply(calls, form, y, *model)


class LogLikelihood(torch.autograd.Function):
    """The log-likelihoods of series; the pass backwards consists of operations that torch differentiates."""

    @staticmethod
    def forward(calls: Calls, form: StateSpace, y: Any, *model: Any) -> Any:
        return calls.value(LIKELIHOOD, y, Model(*model), form)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.calls, ctx.form, *arrays = inputs
        ctx.save_for_backward(*arrays)

    @staticmethod
    def backward(ctx: Any, weight: Any) -> Any:
        y, *model = ctx.saved_tensors
        if any(map(is_batched, (y, *model))):
            return None, None, *Gradient.apply(ctx.form, weight, y, *model)
        if ctx.calls.derivatives and not torch.is_grad_enabled() and is_constant(model, ctx.form):
            return None, None, *by_kernels(ctx, weight, y, model)
        of_y, of_model = kalman_rows.gradient(ops, y, Model(*model), ctx.form, weight)
        return None, None, of_y, *of_model

    @staticmethod
    def vmap(info: Any, in_dims: Any, calls: Calls, form: StateSpace, *arrays: Any) -> Any:
        return LogLikelihood.apply(calls, *widened(info.batch_size, in_dims[2:], form, arrays)), 0


def is_constant(model: Any, form: StateSpace) -> bool:
    """Whether a model does not change with time."""
    return all(x.shape[len(form.batch)] == 1 for x in model[:4])


def by_kernels(ctx: Any, weight: Any, y: Any, model: Any) -> list[Any]:
    """The gradient in y and in the model, of the sum of all log-likelihoods, each times its weight."""
    form, in_y = ctx.form, ctx.needs_input_grad[2]
    *of_y, of_model = ctx.calls.derivatives(y, Model(*model), form, in_y)
    parts = (of_model * weight[..., None]).split([math.prod(shape) for shape in own_shapes(form)], -1)
    found = [summed(part, x, form).reshape(x.shape) for part, x in zip(parts, model, strict=True)]
    return [summed(of_y[0] * weight[..., None, None], y, form) if in_y else None, *found]


def summed(x: Any, like: Any, form: StateSpace) -> Any:
    """The sum over the batch axes that an argument does not have."""
    axes = [k for k, length in enumerate(form.batch) if length != 1 and like.shape[k] == 1]
    return x.sum(axes, keepdim=True) if axes else x


class Gradient(torch.autograd.Function):
    """That of a log-likelihood inside `torch.vmap`, where nothing can be decided by values."""

    @staticmethod
    def forward(form: StateSpace, weight: Any, y: Any, *model: Any) -> Any:
        of_y, of_model = kalman_rows.gradient(ops, y, Model(*model), form, weight)
        return of_y, *of_model

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: it is not differentiated."""

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        raise RuntimeError(
            "log_likelihood is differentiable once inside torch.vmap; for further derivatives of many models give "
            "the model batch axes, or use JAX"
        )

    @staticmethod
    def vmap(info: Any, in_dims: Any, form: StateSpace, *arrays: Any) -> Any:
        results = Gradient.apply(*widened(info.batch_size, in_dims[1:], form, arrays))
        return results, (0,) * len(results)


def is_batched(x: Any) -> bool:
    """Whether a tensor is one of many, inside `torch.vmap`."""
    while torch._C._functorch.is_gradtrackingtensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    return bool(torch._C._functorch.is_batchedtensor(x))


def widened(size: int, in_dims: Any, form: StateSpace, arrays: Any) -> list[Any]:
    """The form and the arrays with the axis of `torch.vmap` in front, each of its full length: none is shared."""
    lifted = [
        x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0) for x, dim in zip(arrays, in_dims, strict=True)
    ]
    wider = form._replace(batch=(size, *form.batch), cov_batch=(size, *form.cov_batch))
    return [wider, *lifted]
