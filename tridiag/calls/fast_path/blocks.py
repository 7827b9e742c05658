"""Solves of plain block tridiagonal systems whose facts are known."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tridiag.calls.blocks import cached_block_plan
from tridiag.calls.fast_path.facts import (
    Array,
    Casts,
    brought_side_by_side,
    cast,
    casts_of,
    entry_of,
    extents_of,
    facts_of_all,
    kept_call_of,
    may_be_bound,
    promotion,
    steps_in,
)
from tridiag.kernels.jobs.batches import contiguous
from tridiag.kernels.runtime.call_table import RESULT, CallTable, Keepable, Same
from tridiag.problems.forms import Shape

ORDER = 3, 0, 1, 2  # d, A, B, C among the arguments


class BoundBlocks(NamedTuple):
    """A solve that waits for its arrays."""

    call: Callable[..., bool]  # of x, d, A, B, C
    casts: Casts
    shape: Shape
    dtype: np.dtype[Any]
    kept: Keepable | None


def solve_block(A: Any, B: Any, C: Any, d: Array, backend: str) -> Array | None:
    """The solution, or None where this is not the way to it."""
    given = [A, B, C, d]
    try:
        bound = bound_blocks(facts_of_all(given), backend)
    except TypeError:  # refused, or an option that has no hash and is refused next
        return None
    if bound is None or (bound.casts and cast(given, bound.casts) is None):
        return None
    x = np.empty(bound.shape, bound.dtype)
    A, B, C, d = given
    bound.call(x, d, A, B, C)
    if bound.kept:
        BLOCK_SOLVES.keep(bound.kept)
    return x


BLOCK_SOLVES = CallTable(solve_block)  # of A, B, C, d and the backend


@functools.lru_cache(1024, typed=True)
def bound_blocks(facts: tuple[Any, ...], backend: str) -> BoundBlocks | None:
    """The solve of A, B, C, d with these facts, if their backend calls its kernel with arrays as they are."""
    if not may_be_bound(facts):
        return None
    plan = cached_block_plan("numpy", tuple(map(entry_of, facts)), promotion(facts), backend)
    module, casts, sides = plan.backend.module(), casts_of(plan, facts), plan.sides
    if casts is None or sides.shared or not hasattr(module, "bound_blocks"):
        return None
    shape, lifted = sides.shape, {k: shape for k, _, shape in plan.steps}
    given = []
    for k in ORDER:
        dtype, own, steps = extents_of(facts[k], plan, k)
        given.append((dtype, lifted.get(k, own), steps_in(own, steps, lifted.get(k, own))))
    if any(dtype != plan.out_dtype for dtype, _, _ in given):
        return None  # real blocks of complex vectors
    given, copied = brought_side_by_side(given, (1, 2, 2, 2))
    operands = [(plan.out_dtype, shape, contiguous(shape, plan.out_dtype.itemsize)), *given]
    casts = (*casts, *((ORDER[k], np.ascontiguousarray) for k in copied))
    # a vector is a matrix of one column
    shapes: Any = tuple((*own, 1) if k < 2 else own for k, (_, own, _) in enumerate(operands))
    strides: Any = tuple((*steps, 0) if k < 2 else steps for k, (_, _, steps) in enumerate(operands))
    call = module.bound_blocks(plan.form, shapes, strides, plan.out_dtype)
    if call is None:
        return None
    kept = None
    if not copied:
        kept = kept_call_of(call, (*facts, Same(backend)), casts, operands[0], (RESULT, *ORDER), RESULT, False)
    return BoundBlocks(call, casts, shape, plan.out_dtype, kept)
