"""Kalman filters of PyTorch tensors that need gradients.

That of a log-likelihood is one pass backwards (`tridiag.algorithms.kalman_adjoint`); that of states is what autograd
makes of the steps of `torch_scan`.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from tridiag.algorithms import kalman_rows
from tridiag.backends import Backend, torch_scan
from tridiag.libraries.torch import Operations as ops
from tridiag.libraries.torch import differentiated
from tridiag.problems.state_space import LIKELIHOOD, Model, StateSpace


def kalman(entry: Backend, verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """The results of a verb, by a backend where no gradient is needed."""
    backend = entry.module().kalman
    if not differentiated(y, *model):
        return backend(verb, y, model, form)
    if verb != LIKELIHOOD:
        return torch_scan.kalman(verb, y, model, form)
    rest = functools.partial(likelihood, backend)
    return kalman_rows.from_diffuse(ops, verb, y, model, form, rest) if form.diffuse else rest(verb, y, model, form)


def likelihood(backend: Any, _: str, y: Any, model: Model, form: StateSpace) -> Any:
    return LogLikelihood.apply(backend, form, y, *model)


class LogLikelihood(torch.autograd.Function):
    """The log-likelihoods of series, without derivatives of their gradients."""

    @staticmethod
    def forward(ctx: Any, backend: Any, form: StateSpace, y: Any, *model: Any) -> Any:
        ctx.form = form
        ctx.save_for_backward(y, *model)
        return backend(LIKELIHOOD, y, Model(*model), form)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, weight: Any) -> Any:
        y, *model = ctx.saved_tensors
        of_y, of_model = kalman_rows.gradient(ops, y, Model(*model), ctx.form, weight)
        return None, None, of_y, *of_model
