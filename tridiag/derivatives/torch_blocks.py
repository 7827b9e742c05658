"""The derivative rule of block tridiagonal systems for PyTorch."""

from __future__ import annotations

from typing import Any

import torch

from tridiag.algorithms import block_elimination
from tridiag.algorithms.matrix_rows import shift
from tridiag.backends import Backend
from tridiag.calls.plan import Call
from tridiag.derivatives.torch_systems import Options, operators
from tridiag.libraries.torch import Operations as ops
from tridiag.libraries.torch import differentiated, transformed
from tridiag.problems.forms import Blocks


def solve_block(call: Call, backend: Backend) -> Any:
    if call.traced or transformed() or differentiated(*call.matrix, call.d):
        return SolveBlock.apply(*call.matrix, call.d, Options(call.form, backend, traced=call.traced))
    return backend.module().solve_block(call.matrix, call.d, call.form)


class SolveBlock(torch.autograd.Function):
    @staticmethod
    def forward(a: Any, b: Any, c: Any, d: Any, options: Options) -> Any:
        if options.traced:
            return operators().block_node((a, b, c), d, options)
        return options.backend.module().solve_block((a, b, c), d, options.form)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        *matrix, d, options = inputs
        ctx.options, ctx.d_shape = options, d.shape
        ctx.save_for_backward(*matrix, output)
        ctx.save_for_forward(*matrix, output)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        *matrix, x = ctx.saved_tensors
        form: Blocks = ctx.options.form
        turned = ctx.options._replace(form=form._replace(transpose=not form.transpose))
        w = SolveBlock.apply(*matrix, g.conj(), turned).conj()
        left, right = (x.conj(), w) if form.transpose else (w, x.conj())
        grads = [
            block_cotangent(entry, left, shift(ops, right, form.axis, by, False) if by else right) if needed else None
            for entry, by, needed in zip(matrix, (1, 0, -1), ctx.needs_input_grad, strict=False)
        ]
        return *grads, w.sum_to_size(ctx.d_shape) if ctx.needs_input_grad[3] else None, None

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        *matrix, x = ctx.saved_tensors
        *dots, d_dot = tangents[:4]
        changes = tuple(torch.zeros_like(v) if dot is None else dot for v, dot in zip(matrix, dots, strict=True))
        change = block_elimination.multiply(ops, changes, x, ctx.options.form)
        right = -change if d_dot is None else d_dot - change
        return SolveBlock.apply(*matrix, right, ctx.options)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        *arrays, options = arguments
        lifted = [x.unsqueeze(0) if dim is None else x.movedim(dim, 0) for x, dim in zip(arrays, in_dims, strict=False)]
        wider = options.form._replace(shape=(info.batch_size, *options.form.shape))
        return SolveBlock.apply(*lifted, options._replace(form=wider)), 0


def block_cotangent(entry: Any, left: Any, right: Any) -> Any:
    """The rule, summed over right sides and the axes along which a block is shared; the real part for a real one."""
    grad = -(left[..., :, None, :] * right[..., None, :, :]).sum(-1)
    grad = grad.real if grad.is_complex() and not entry.is_complex() else grad
    return grad.sum_to_size(entry.shape)
