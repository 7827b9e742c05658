"""Solves of plain tensors whose facts are known."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

import torch

from tridiag.calls.fast_path.factored import Known, solver_of
from tridiag.calls.fast_path.facts import fits
from tridiag.calls.fast_path.tensors import (
    Casts,
    Reaches,
    addresses_of,
    call_of,
    casts_of,
    convert,
    disturbed,
    entry_of,
    extents_of,
    facts_of_all,
    is_dense,
    may_be_bound,
    needs_gradient,
    reaches_of,
    take_result,
)
from tridiag.calls.plan import UNASKED, cached_plan, wants_check
from tridiag.calls.singular import raise_if_singular
from tridiag.derivatives.torch_systems import Options, cotangents, matrix_cotangents
from tridiag.kernels.jobs.batches import contiguous
from tridiag.libraries.arrays import is_real
from tridiag.problems.forms import Form, lift


class BoundAdjoint(NamedTuple):
    """A backward pass that waits for its tensors, or its solve alone."""

    call: Callable[..., bool]  # of a, b, c, where, g, w; and of x and the gradients of a, b, c, or perhaps of factors
    reaches: Reaches


class BoundSolve(NamedTuple):
    """A solve that waits for its tensors."""

    call: Callable[..., bool]  # of a, b, c, where, d, x; tells whether some system may be singular
    casts: Casts
    options: Options
    shapes: tuple[Any, ...]  # of a, b, c, where, d in the form
    reaches: Reaches  # of a, b, c, d, where and out
    in_place: bool
    # the call that computes all cotangents at once, from the facts of a, b, c, where, g and x; None if there is none
    adjoint: Callable[..., BoundAdjoint | None] | None
    # the solve with the transposed matrix, likewise from the facts of a, b, c, where and g
    transposed: Callable[..., BoundAdjoint | None] | None
    factored: bool = False  # whether the call takes None and the arrays of factors too


def solve(*arguments: Any, factors: Any = None) -> Any:
    """The solution, or None where this is not the way to it."""
    try:
        return attempt(*arguments, factors=factors)
    except (TypeError, RuntimeError):  # refused, or an option that has no hash, or memory that cannot be lent as it is
        return None


def attempt(a: Any, b: Any, c: Any, d: Any, where: Any, out: Any, axis: Any, *options: Any, factors: Any) -> Any:
    """The same, or an exception."""
    if type(axis) is not int or disturbed():
        return None
    given = [a, b, c, d, where, out]
    bound = bound_solve(*facts_of_all(given), torch.get_default_dtype(), axis, *options)
    addresses = None if bound is None else addresses_of(given, bound.reaches)
    if bound is None or addresses is None:
        return None
    if factors is not None:
        bound = factors.bind(bound, d, options)
    differentiated = needs_gradient(given)
    if bound.in_place:
        given[5], addresses[5] = d, addresses[3]
    if given[5] is not None and (differentiated or not to_be_written(bound, given[5], addresses)):
        return None
    if bound.casts:
        convert(given, addresses, bound.casts)
    return Solve.apply(*given[:5], bound, addresses) if differentiated else solution(bound, given, addresses)


def to_be_written(bound: BoundSolve, out: Any, addresses: list[Any]) -> bool:
    """Whether the solution can go there, which is d or beside all arguments."""
    others = [*addresses[:3], None if bound.in_place else addresses[3], addresses[4]]
    return take_result(out, bound.reaches[3 if bound.in_place else 5][0], others, bound.reaches[:5])


def solution(bound: BoundSolve, given: list[Any], addresses: list[Any]) -> Any:
    """The solution, in the place for it if there is one."""
    a, b, c, d, mask, address = addresses
    x = given[5]
    if x is None:
        x = given[3].new_empty(bound.options.form.shape)
        address = x.data_ptr()
    if bound.call(a, b, c, mask, d, address, *arrays_of(bound.options.factors)) and bound.options.check:
        raise_if_singular(x, None, in_form(bound, (*given[:3], given[4])), bound.options.form)
    return x


def arrays_of(factors: Any) -> tuple[Any, ...]:
    """What a call takes of factors."""
    return () if factors is None else (None, factors.tiles, factors.kinds)


def in_form(bound: BoundSolve, matrix: tuple[Any, ...]) -> tuple[Any, ...]:
    """The matrix, each part of the rank of the form."""
    return tuple(y if y is None else y.reshape(shape) for y, shape in zip(matrix, bound.shapes, strict=False))


@functools.lru_cache(1024, typed=True)
def bound_solve(
    a: Any,
    b: Any,
    c: Any,
    d: Any,
    where: Any,
    out: Any,
    default: torch.dtype,
    axis: int,
    backend: str | Known,
    pivoting: bool | str,
    periodic: bool,
    transpose: bool,
    check: bool | None,
    overwrite_d: bool,
) -> BoundSolve | None:
    """The solve of arguments with these facts, if their backend calls its kernel with arrays as they are.

    ``backend``: its name, or what is known of matrices that it eliminated.
    """
    facts = a, b, c, d
    if not may_be_bound(facts, (where, out)):
        return None
    entries, asked = (*map(entry_of, facts), entry_of(where)), UNASKED if isinstance(backend, Known) else backend
    plan = cached_plan("solve", "torch", entries, default, axis, pivoting, periodic, transpose, overwrite_d, asked)
    found = solver_of(plan, backend) if isinstance(backend, Known) else (plan.backend, False)
    if found is None:
        return None
    (entry, factored), form, casts = found, plan.form, casts_of(plan, facts)
    module = entry.module()
    if casts is None or not (hasattr(module, "bound_solve") or hasattr(module, "program_of_solve")):
        return None
    wanted = dict(casts)
    *matrix, right = (extents_of(fact, wanted.get(k)) for k, fact in enumerate(facts))
    dtype = right[0]
    result = dtype, form.shape, contiguous(form.shape, dtype.itemsize)
    if out is not None and not fits(extents_of(out), result):
        return None
    in_place = out is None and bool(overwrite_d) and 3 not in wanted and fits(right, result)
    place, mask = right if in_place else out and extents_of(out), where and extents_of(where)
    shapes, strides = lifted((*matrix, mask, right, place or result), form)
    extents = form, shapes, strides, (matrix[1][0], dtype)
    if hasattr(module, "bound_solve"):
        call = module.bound_factored_solve(*extents) if factored else module.bound_solve(*extents)
    elif (program := module.program_of_solve(*extents, in_place)) is not None:
        call = call_of(program, d[2])
    else:
        return None
    adjoint = transposed = None
    if hasattr(module, "bound_adjoint") and is_real(dtype.name):
        transposed = functools.lru_cache(8)(functools.partial(bound_transposed, module, form, factored))
        if all(x[1] == form.shape for x in (*matrix, right)):
            adjoint = functools.lru_cache(8)(functools.partial(bound_adjoint, module, form))
    options, reaches = Options(form, entry, wants_check(plan, check)), reaches_of(*facts, where, out)
    return BoundSolve(call, casts, options, shapes[:5], reaches, in_place, adjoint, transposed, factored)


def bound_transposed(module: ModuleType, form: Form, factored: bool, *facts: Any) -> BoundAdjoint | None:
    """The solve with the transposed matrix, of a, b, c, where and g with these facts."""
    if not all(is_dense(fact) for fact in facts if fact is not None):
        return None
    operands = [fact and extents_of(fact) for fact in facts]
    dtype = operands[4][0]
    if any(operands[k][0] != dtype for k in range(3)):
        return None
    solving = form._replace(transpose=not form.transpose)
    extents = *lifted((*operands, (dtype, form.shape, contiguous(form.shape, dtype.itemsize))), form), (dtype, dtype)
    bind = module.bound_factored_solve if factored else module.bound_solve
    return BoundAdjoint(bind(solving, *extents), reaches_of(*facts))


def bound_adjoint(module: ModuleType, form: Form, *facts: Any) -> BoundAdjoint | None:
    """The backward pass of a, b, c, where, g and x with these facts."""
    if not all(is_dense(fact) for fact in facts if fact is not None):
        return None
    operands = [fact and extents_of(fact) for fact in facts]
    dtype, *extents = operands[5]
    if extents != [form.shape, contiguous(form.shape, dtype.itemsize)]:
        return None
    if any(operands[k][0] != dtype for k in (0, 1, 2, 4)):
        return None
    return BoundAdjoint(module.bound_adjoint(form, *lifted(operands, form), dtype), reaches_of(*facts))


def lifted(operands: Sequence[Any], form: Form) -> tuple[Any, Any]:
    """The shapes and the strides of operands, with ones put in."""
    rank = len(form.shape)
    shapes, strides = (tuple(x and lift(x[k], rank, form.axis) for x in operands) for k in (1, 2))
    return shapes, strides


class Solve(torch.autograd.Function):
    """The solution with its derivatives, where nothing but the gradient of it may be asked for.

    Its backward pass is that of `tridiag.derivatives.torch_systems`, to all orders, and one call of a kernel where that
    computes all of it. `apply` with a context costs a third of what it costs without.
    """

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any, c: Any, d: Any, where: Any, bound: BoundSolve, addresses: list[Any]) -> Any:
        x = solution(bound, [a, b, c, d, where, None], addresses)
        ctx.bound, ctx.d_shape = bound, d.shape
        ctx.save_for_backward(a, b, c, where, x)
        return x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        a, b, c, where, x = ctx.saved_tensors
        bound, needed = ctx.bound, ctx.needs_input_grad
        found = cotangents_at_once(bound, a, b, c, where, g, x) if all(needed[:4]) else None
        if found is not None:
            return *found, None, None, None
        matrix, w = in_form(bound, (a, b, c, where)), solved_transposed(bound, a, b, c, where, g)
        if w is None:
            w, *grads = cotangents(matrix, x, g, bound.options, needed)
        else:
            grads = matrix_cotangents(matrix, x, w, bound.options.form, needed)
        grads = [None if y is None else y.reshape(like.shape) for y, like in zip(grads, (a, b, c), strict=True)]
        of_d = w.sum_to_size(bound.shapes[4]).reshape(ctx.d_shape) if needed[3] else None
        return *grads, of_d, None, None, None


def cotangents_at_once(bound: BoundSolve, *given: Any) -> tuple[Any, ...] | None:
    """The cotangents of a, b, c and d from a, b, c, where, g and x; None if a tensor is more than its entries."""
    found, addresses = ready(bound.adjoint, given)
    if found is None:
        return None
    results = [torch.empty_like(given[5]) for _ in range(4)]
    of_d, *gradients = [y.data_ptr() for y in results]
    found.call(*addresses[:5], of_d, addresses[5], *gradients)
    return *results[1:], results[0]


def solved_transposed(bound: BoundSolve, *given: Any) -> Any:
    """The solution for right sides g of the transposed matrix, from a, b, c, where and g; None likewise."""
    found, addresses = ready(bound.transposed, given)
    if found is None:
        return None
    w = given[4].new_empty(bound.options.form.shape)
    found.call(*addresses, w.data_ptr(), *arrays_of(bound.options.factors))
    return w


def ready(bind: Callable[..., BoundAdjoint | None] | None, given: tuple[Any, ...]) -> Any:
    """A backward pass for some tensors and their addresses; Nones where it is differentiated, or there is none."""
    if bind is None or torch.is_grad_enabled() or disturbed():
        return None, None
    try:
        found = bind(*facts_of_all(given))
        addresses = None if found is None else addresses_of(given, found.reaches)
    except (TypeError, RuntimeError):
        return None, None
    return (None, None) if addresses is None else (found, addresses)
