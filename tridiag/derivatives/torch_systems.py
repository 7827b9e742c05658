"""The derivative rule for PyTorch: one `autograd.Function`, made of itself in every direction.

torch's cotangents are conjugated: w = A^-H g;   d: w,   b_i: -w_i conj(x_i),   a_i: -w_i conj(x_{i-1}),   c_i: -w_i
conj(x_{i+1}). A recurrence is such a system, y_t - a_t y_{t-1} = x_t.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any, NamedTuple

import torch

from tridiag.algorithms import condition, inverse_entries, perturbation
from tridiag.algorithms.matrix_rows import Matrix, multiply, shift
from tridiag.algorithms.row_loop import whole_bands
from tridiag.backends import BACKENDS, Backend
from tridiag.calls.plan import Call
from tridiag.calls.singular import raise_if_singular, settle_status
from tridiag.libraries.torch import Operations as ops
from tridiag.libraries.torch import differentiated, transformed
from tridiag.problems.forms import Form

DIFFERENTIABLE = BACKENDS["torch_thomas"]  # its determinants are made of operations that torch differentiates


class Options(NamedTuple):
    form: Any  # a `Form` or a `Blocks`
    backend: Backend
    check: bool = False
    factors: Any = None
    traced: bool = False  # what a backend computes is an operator of a graph (`tridiag.derivatives.torch_operators`)


def operators() -> ModuleType:
    """They are of no use outside `torch.compile` and `torch.export`."""
    return importlib.import_module("tridiag.derivatives.torch_operators")


def solve(call: Call, backend: Backend, check: bool, out: Any, factors: Any) -> Any:
    options = Options(call.form, backend, check, factors, call.traced)
    if differentiated(*call.matrix[:3], call.d) or (out is None and (call.traced or transformed())):
        return Solve.apply(*call.matrix[:3], call.d, call.matrix[3], options)
    if out is None:
        return forward(call.matrix, call.d, options)
    lazy = out.is_conj() or out.is_neg()  # the memory does not hold the values as they read
    direct = out if out.dtype == call.d.dtype and not lazy else None
    if direct is not None:
        torch.autograd.graph.increment_version(direct)  # so that a gradient that needs the old values raises
    return forward(call.matrix, call.d, options, direct)


def forward(matrix: Matrix, d: Any, options: Options, out: Any = None) -> Any:
    if options.traced:
        return operators().solve_node(matrix, d, options)
    x, status = options.backend.module().solve(matrix, d, options.form, out, options.factors)
    if options.check:
        raise_if_singular(x, status, matrix, options.form)
    return x


def solve_perturbed(call: Call, backend: Backend, eps: float) -> Any:
    """Where values can be read all systems are solved again if one asks for it, else in any case."""
    options = Options(call.form, backend, traced=call.traced)
    (a, b, c, where), d = call.matrix, call.d
    detached = *(x.detach() for x in (a, b, c, d)), where
    if call.traced:
        shift = operators().shift_node(detached, eps, options)
    elif transformed():
        shift = Shift.apply(*detached, eps, options)
    else:
        x = solve(call, backend, False, None, None)
        found = find_shift(detached, eps, options, x.detach())
        if found is None:
            return x
        shift = found
    return Solve.apply(a, b + shift, c, d, where, options)


def find_shift(arrays: Any, eps: float, options: Options, x: Any = None) -> Any:
    """What is added to the diagonals for finite solutions; None where that is nothing."""

    def again(matrix: Matrix) -> Any:
        return options.backend.module().solve(matrix, d, options.form)[0]

    a, b, c, d, where = arrays
    matrix = a, b, c, where
    found = perturbation.perturb(ops, again, matrix, d, again(matrix) if x is None else x, options.form, eps)
    return None if found is None else found[0]


def shift_shape(form: Form) -> tuple[int, ...]:
    return (*form.matrix_shape[: form.axis], 1, *form.matrix_shape[form.axis + 1 :])


def whole_shift(a: Any, b: Any, c: Any, d: Any, where: Any, eps: float, options: Options) -> Any:
    """The same, 0 where it is nothing."""
    shift = find_shift((a, b, c, d, where), eps, options)
    zero = b.real.new_zeros(shift_shape(options.form))
    return zero if shift is None else zero + shift


class Shift(torch.autograd.Function):
    """What is added to the diagonals, of which nobody asks a derivative."""

    @staticmethod
    def forward(a: Any, b: Any, c: Any, d: Any, where: Any, eps: float, options: Options) -> Any:
        return whole_shift(a, b, c, d, where, eps, options)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        *arrays, eps, options = arguments
        lifted, wider = widened(info.batch_size, in_dims, arrays, options)
        return Shift.apply(*lifted, eps, wider), 0


class Solve(torch.autograd.Function):
    @staticmethod
    def forward(a: Any, b: Any, c: Any, d: Any, where: Any, options: Options) -> Any:
        return forward((a, b, c, where), d, options)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        a, b, c, d, where, options = inputs
        ctx.options, ctx.masked, ctx.d_shape = options, where is not None, d.shape
        saved = (a, b, c, output) if where is None else (a, b, c, output, where)
        ctx.save_for_backward(*saved)
        ctx.save_for_forward(*saved)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        a, b, c, x, *rest = ctx.saved_tensors
        matrix = a, b, c, rest[0] if rest else None
        w, *grads = cotangents(matrix, x, g, ctx.options, ctx.needs_input_grad)
        return *grads, w.sum_to_size(ctx.d_shape) if ctx.needs_input_grad[3] else None, None, None

    @staticmethod
    def jvp(ctx: Any, a_dot: Any, b_dot: Any, c_dot: Any, d_dot: Any, *_: Any) -> Any:
        a, b, c, x, *rest = ctx.saved_tensors
        where, options = (rest[0] if rest else None), ctx.options
        change = tangent_product((a_dot, b_dot, c_dot, where), x, options.form)
        right = -change if d_dot is None else d_dot - change
        return Solve.apply(a, b, c, right.expand(options.form.shape), where, options._replace(check=False))

    @staticmethod
    def vmap(info: Any, in_dims: Any, a: Any, b: Any, c: Any, d: Any, where: Any, options: Options) -> Any:
        lifted, wider = widened(info.batch_size, in_dims, (a, b, c, d, where), options)
        return Solve.apply(*lifted, wider), 0


def widened(size: int, in_dims: Any, arrays: Any, options: Options) -> tuple[list[Any], Options]:
    """a, b, c, d and a mask with the axis of `torch.vmap` in front, and their options."""
    form = options.form
    lifted = [
        None if x is None else (x.unsqueeze(0) if dim is None else x.movedim(dim, 0))
        for x, dim in zip(arrays, in_dims, strict=False)
    ]
    shared = all(in_dims[k] is None for k in (0, 1, 2, 4))
    wider = form._replace(
        shape=(size, *form.shape), matrix_shape=(1 if shared else size, *form.matrix_shape), axis=form.axis + 1
    )
    return lifted, options._replace(form=wider)


def cotangents(matrix: Matrix, x: Any, g: Any, options: Options, needed: Any) -> Any:
    """w, and what is needed of the cotangents of a, b and c."""
    a, b, c, where = matrix
    if wanted_at_once((a, b, c), g, options, needed):
        return tuple(v.conj() for v in Adjoint.apply(a, b, c, g.conj(), x, where, options))
    adjoint = options._replace(form=options.form._replace(transpose=not options.form.transpose), check=False)
    w = Solve.apply(a, b, c, g.conj(), where, adjoint).conj()
    return w, *matrix_cotangents(matrix, x, w, options.form, needed)


def wanted_at_once(entries: Any, g: Any, options: Options, needed: Any) -> bool:
    """Whether the backend computes the whole rule in one pass, all of it is asked for, and nobody differentiates it."""
    alike = all(v.shape == options.form.shape and v.dtype == g.dtype for v in entries)
    able = options.factors is None and hasattr(options.backend.module(), "adjoint")
    return able and alike and all(needed[:3]) and not torch.is_grad_enabled()


class Adjoint(torch.autograd.Function):
    """A^-T g and its products with x: the rule of a real matrix, as no entry is shared."""

    @staticmethod
    def forward(a: Any, b: Any, c: Any, g: Any, x: Any, where: Any, options: Options) -> Any:
        if options.traced:
            return operators().adjoint_node((a, b, c, where), g, x, options)
        return options.backend.module().adjoint((a, b, c, where), g, x, options.form)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: it is not differentiated."""

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        *arrays, options = arguments
        shape = (info.batch_size, *options.form.shape)
        full = [
            None if x is None else (x if dim is None else x.movedim(dim, 0)).expand(shape)
            for x, dim in zip(arrays, in_dims, strict=False)
        ]
        wider = options.form._replace(shape=shape, matrix_shape=shape, axis=options.form.axis + 1)
        return Adjoint.apply(*full, options._replace(form=wider)), (0, 0, 0, 0)


def missing(form: Form, where: Any, like: Any) -> tuple[Any, Any]:
    """Where a and where c are cut: pads, and couplings to rows that are taken out."""
    n, axis = form.n, form.axis
    i = ops.positions(n, len(form.shape), axis, like)
    no_a, no_c = (i < 0, i < 0) if form.periodic else (i == 0, i == n - 1)
    if where is not None:
        out = ~ops.stretch(where, n, axis)
        no_a = no_a | out | shift(ops, out, axis, 1, True)
        no_c = no_c | out | shift(ops, out, axis, -1, True)
    return no_a, no_c


def matrix_cotangents(matrix: Matrix, x: Any, w: Any, form: Form, needed: Any) -> list[Any]:
    """The rule, summed over the axes along which an entry is shared; the real part for a real entry."""
    if not any(needed[:3]):
        return [None] * 3
    where, x = matrix[3], x.conj()
    no_a, no_c = missing(form, where, x)
    results: list[Any] = []
    for k, (entry, by, cut) in enumerate(zip(matrix[:3], (1, 0, -1), (no_a, None, no_c), strict=True)):
        if not needed[k]:
            results.append(None)
            continue
        left, right = (shift(ops, w, form.axis, by, form.periodic), x) if form.transpose else (w, x)
        if by != 0 and not form.transpose:
            right = shift(ops, x, form.axis, by, form.periodic)
        if by == 0:
            left = w
        grad = -(left * right)
        removed = cut if cut is not None else (None if where is None else ~where)
        if removed is not None:
            grad = torch.where(removed, torch.zeros_like(grad), grad)
        if grad.is_complex() and not entry.is_complex():
            grad = grad.real
        results.append(grad.sum_to_size(entry.shape))
    return results


def tangent_product(tangents: Matrix, x: Any, form: Form) -> Any:
    """The change of A times x: a product with the tangents of the diagonals, cut as the diagonals are."""
    *dots, where = tangents
    no_a, no_c = missing(form, where, x)
    no_b = None if where is None else ~where
    zero = torch.zeros((1,) * x.ndim, dtype=x.dtype, device=x.device)
    cut = []
    for dot, gone in zip(dots, (no_a, no_b, no_c), strict=True):
        dot = zero if dot is None else dot
        cut.append(dot if gone is None else torch.where(gone, torch.zeros_like(dot), dot))
    a, b, c = (ops.stretch(v, form.n, form.axis) for v in cut)
    if form.transpose:
        a, c = shift(ops, c, form.axis, 1, True), shift(ops, a, form.axis, -1, True)
    return multiply(ops, (a, b, c), x, form)


def slogdet(call: Call, backend: Backend) -> Any:
    if call.traced:
        return operators().determinant_node(call.matrix, call.form, backend)
    if backend is DIFFERENTIABLE or transformed():
        return DIFFERENTIABLE.module().slogdet(call.matrix, call.form)
    if differentiated(*call.matrix[:3]):
        return Determinant.apply(*call.matrix, call.form, backend)
    return backend.module().slogdet(call.matrix, call.form)


class Determinant(torch.autograd.Function):
    """Sign and logarithm.

    Derivatives that are to be differentiated again, and those of periodic matrices, are those of an elimination that
    consists of operations of torch.
    """

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, c: Any, where: Any, form: Form, backend: Backend) -> Any:
        sign, logarithm = backend.module().slogdet((a, b, c, where), form)
        ctx.form, ctx.backend = form, backend
        ctx.save_for_backward(a, b, c, where, sign)
        return sign, logarithm

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        *entries, where, sign = ctx.saved_tensors
        again = torch.is_grad_enabled()
        if not (again or ctx.form.periodic):
            grads = determinant_cotangents((*entries, where), sign, cotangents, ctx.form, ctx.backend)
            return *[g if x.requires_grad else None for g, x in zip(grads, entries, strict=True)], None, None, None
        with torch.enable_grad():
            given = entries if again else [x.detach().requires_grad_(x.requires_grad) for x in entries]
            results = DIFFERENTIABLE.module().slogdet((*given, where), ctx.form)
            parts = [k for k, x in enumerate(results) if x.requires_grad]
            wanted = [x for x in given if x.requires_grad]
            outputs, right = [results[k] for k in parts], [cotangents[k] for k in parts]
            found = iter(torch.autograd.grad(outputs, wanted, right, create_graph=again, allow_unused=True))
        return *[next(found) if x.requires_grad else None for x in given], None, None, None


def determinant_cotangents(matrix: Matrix, sign: Any, cotangents: Any, form: Form, backend: Backend) -> list[Any]:
    """Those of a, b and c; d log det A = tr(A^-1 dA), whose imaginary part turns the sign."""
    of_sign, factor = cotangents
    if sign.is_complex():
        factor = torch.complex(factor, (of_sign * sign.conj()).imag)
    factor, module = factor.unsqueeze(form.axis), backend.module()
    detached = *(x.detach() for x in matrix[:3]), matrix[3]
    if hasattr(module, "inverse_entries"):
        entries, lossy = module.inverse_entries(detached, form)
    else:
        entries, lossy = inverse_entries.row_by_row(ops, detached, form)
    if lossy.any():
        replace_entries(detached, form, lossy != 0, entries)
    return [x.conj_physical_().mul_(factor).sum_to_size(y.shape) for x, y in zip(entries, matrix[:3], strict=True)]


def replace_entries(matrix: Matrix, form: Form, chosen: Any, entries: Any) -> None:
    """Those of chosen matrices, of numbers with exponents apart."""
    bands = [x.movedim(form.axis, 0)[:, chosen] for x in whole_bands(ops, matrix, form)]
    rows = inverse_entries.with_exponents(ops, inverse_entries.in_a_loop, list(zip(*bands, strict=True)), bands[1][0])
    for entry, found in zip(entries, zip(*rows, strict=True), strict=True):
        entry.movedim(form.axis, 0)[:, chosen] = torch.stack(found)
        if matrix[3] is not None:
            entry.masked_fill_(~matrix[3], 0)


def reciprocal_condition(call: Call, backend: Backend, status: Any) -> Any:
    *given, where = call.matrix
    form = call.form
    *given, where = condition.near_one(ops, call.matrix, form, (*(x.detach() for x in given), where))
    constant = [x.detach() for x in given]

    def solve(d: Any, transpose: bool) -> Any:
        return Solve.apply(*constant, d, where, Options(form._replace(transpose=transpose), backend))

    def again(d: Any) -> Any:
        return Solve.apply(*given, d.detach(), where, Options(form, backend))

    wanted = differentiated(*given) or transformed()
    return condition.reciprocal(ops, solve, (*given, where), form, status, again if wanted else None)


def factor(call: Call, backend: Backend) -> tuple[Any, Any]:
    """Inside a transformation of `torch.func` nothing is kept: solves are of the matrices, and so differentiate."""
    if transformed():
        return None, None
    with torch.no_grad():
        factors = backend.module().factor(call.matrix, call.form)
    if getattr(factors, "pivoted", False):
        return factors, factors.status
    return factors, torch.as_tensor(settle_status(factors.status, call), device=call.matrix[1].device)


def find_zero_pivots(call: Call) -> Any:
    """The status of a factorization, by operations of torch alone."""
    with torch.no_grad():
        return DIFFERENTIABLE.module().factor(call.matrix, call.form._replace(pivoting=True)).status
