"""The derivatives of smooth alignment for PyTorch: computed with the score, kept for the backward pass; first order."""

from __future__ import annotations

from typing import Any

import torch

from tridiag.backends import Backend
from tridiag.backends.numba_thomas import view
from tridiag.calls.pairs import Pairs, check_values
from tridiag.kernels.jobs.words.alignment import Rules


def run(pairs: Pairs, backend: Backend) -> Any:
    arguments = pairs.scores, *pairs.parameters
    wanted = 0
    if torch.is_grad_enabled():
        wanted = 2 if any(x.requires_grad for x in pairs.parameters) else int(pairs.scores.requires_grad)
    return Alignment.apply(backend, wanted, pairs.rules, pairs.lengths, *arguments)[0]


def short(lengths: Any) -> Any:
    """As 32-bit integers; what is out of their range, which only goes unseen on a GPU, is out of that of lengths."""
    most = torch.iinfo(torch.int32).max
    return lengths.to(torch.int64).clamp(-1, most).to(torch.int32)


class Alignment(torch.autograd.Function):
    """The score and, for the backward pass, its derivatives."""

    @staticmethod
    def forward(backend: Backend, wanted: int, rules: Rules, lengths: Any, scores: Any, *parameters: Any) -> Any:
        if scores.device.type == "cpu":
            check_values(tuple(scores.shape), view(lengths), view(parameters[-1]))
        lengths = None if lengths is None else short(lengths)
        return backend.module().smith_waterman(scores, lengths, parameters, wanted, rules)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*output[1:])

    @staticmethod
    def backward(ctx: Any, g: Any, *of_derivatives: Any) -> Any:
        """The derivatives are results, so that a derivative of them comes here and is refused: it is not known."""
        if any(x is not None for x in of_derivatives):
            raise RuntimeError("smith_waterman is differentiable once in PyTorch; further derivatives: JAX")
        if g is None:
            return (None,) * len(ctx.needs_input_grad)
        by_scores, *by_parameters = ctx.saved_tensors
        needed = ctx.needs_input_grad[4:]
        grads = [g[..., None, None] * by_scores, *(g * by for by in by_parameters)]
        grads += [None] * (len(needed) - len(grads))
        return None, None, None, None, *(grad if need else None for grad, need in zip(grads, needed, strict=True))

    @staticmethod
    def vmap(info: Any, in_dims: Any, backend: Backend, wanted: int, rules: Rules, *arrays: Any) -> Any:
        lifted = [
            None if x is None else x.expand(info.batch_size, *x.shape) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(arrays, in_dims[3:], strict=True)
        ]
        results = Alignment.apply(backend, wanted, rules, *lifted)
        return results, (0,) * len(results)
