"""Factors of a group of matrices, and right sides solved from them."""

from __future__ import annotations

from tridiag.kernels.access.bind import operand_of
from tridiag.kernels.access.load_store import store_rows
from tridiag.kernels.access.operands import (
    CONTIGUOUS,
    INTERLEAVED,
    NEXT_GROUP,
    QUAD,
    bytes_of_real,
    bytes_of_row,
    lanes_of,
    parts_of,
)
from tridiag.kernels.access.rows import RIGHT, ZERO
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import D_, X_
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.compiled import compiled, inlined
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import set_word, word
from tridiag.kernels.simd.vector import LINE
from tridiag.kernels.thomas.bands import right_side, view, views_of_block
from tridiag.kernels.thomas.bind import mask_view
from tridiag.kernels.thomas.factored_loops import (
    BACKWARD,
    BACKWARD_CONTIGUOUS,
    BACKWARD_CONTIGUOUS_SHARED,
    BACKWARD_SHARED,
    BACKWARD_TRANSPOSED,
    BACKWARD_TRANSPOSED_SHARED,
    BACKWARD_WIDE,
    FACTOR,
    FACTOR_PAST_CACHES,
    FORWARD,
    FORWARD_CONTIGUOUS,
    FORWARD_CONTIGUOUS_SHARED,
    FORWARD_SHARED,
    FORWARD_TRANSPOSED,
    FORWARD_TRANSPOSED_SHARED,
    FORWARD_WIDE,
    STREAM_WIDE,
    WIDE,
)
from tridiag.kernels.thomas.interleaved import past_caches
from tridiag.kernels.thomas.refine import (
    merge_uncertified,
    store_solution,
    substitute_tile,
    substitute_uncertified,
    try_scales,
    uncertified_lanes,
)
from tridiag.kernels.thomas.workspace import (
    BLOCK,
    exchanges,
)

WIDE_ROWS_AHEAD = 32  # prefetch distance of `substitute_wide`


@compiled
def factor_block(zero, job, worker, i0, i1, factors):
    """The same without a right side, to factors."""
    views, (mask, mask_step) = views_of_block(zero, job, worker, i0, i1, 3), mask_view(zero, worker, i0)
    n, row = job.rows, bytes_of_row(zero, ())
    places = pairs_at(factors, row, i0), above_at(factors, row, n, i0), worker.carry, worker.good
    words = (*views[:6], mask, mask_step, worker.bindings, i0, *places, i1 - i0)
    if job.flags & J.STORED and job.large and factors != worker.factors:
        FACTOR_PAST_CACHES(zero, words)
    else:
        FACTOR(zero, words)


@compiled
def pairs_at(factors, part, i):
    """Where factors hold (a / pivot, 1 / pivot) of row i; ``part``: bytes of an entry."""
    return factors + 2 * i * part


@compiled
def above_at(factors, part, n, i):
    """Where they hold c' of row i: behind the pairs, last row first, as the sweeps read them."""
    return factors + (3 * n - 1 - i) * part


@compiled
def factors_alone(zero, job, k):
    """Where pairs, and c', of the k-th of few matrices are, each of which has its factors for itself."""
    n, part = job.rows, bytes_of_real(zero, ())
    factors = job.factors + k * (3 * n * part)
    return pairs_at(factors, part, 0), above_at(factors, part, n, 0)


@compiled
def factor_group(zero, job, worker, first, used, factors):
    """The factors of all rows of a group; returns its hard lanes."""
    lanes, low, high = lanes_of(zero, ()), worker.low, worker.high
    if exchanges(job):
        return (1 << used) - 1
    set_word(worker.good, (1 << 2 * lanes) - 1)
    ZERO(zero, (worker.carry, bytes_of_row(zero, ()), 1))
    for i0 in range(low, high, BLOCK):
        if stopping_at(i0 // BLOCK, 64):
            break
        factor_block(zero, job, worker, i0, min(i0 + BLOCK, high), factors)
    return uncertified_lanes(zero, job, word(worker.good), used)


@compiled
def solve_factored(zero, job, worker, factors, shared, used, uncertified, zero_pivot):
    """The right side that a group is bound to, from factors: one number each if ``shared``, or a row of lanes.

    ``shared`` is None, not False, where they are not: of `is None` Numba compiles one side only.
    """
    row, rows = bytes_of_row(zero, ()), worker.high - worker.low
    y, flags, every = worker.kept + row, job.flags, (1 << used) - 1
    if uncertified != every and flags & J.FACTORED and flags & J.TRANSPOSE:
        substitute_turned(zero, job, worker, factors, shared, y)
    elif uncertified != every and substitute_certified(
        zero, job, worker, factors, shared, y, used, uncertified | zero_pivot
    ):
        return
    if uncertified != 0 and rows > 0:
        solution = substitute_uncertified(zero, job, worker, uncertified, substitute_tile, try_scales)
        y, row = merge_uncertified(zero, y, row, solution, uncertified, every, rows)
    store_solution(zero, job, worker, y, row, used, zero_pivot)


@compiled
def part_of(zero, shared):
    """Bytes of an entry of factors."""
    if shared is None:
        return bytes_of_row(zero, ())
    return bytes_of_real(zero, ()) * parts_of(zero, ())


@compiled
def substitute_turned(zero, job, worker, factors, shared, y):
    """The solution for the transposed matrix, to ``y``."""
    n, row, low, high = job.rows, bytes_of_row(zero, ()), worker.low, worker.high
    if low == high:
        return
    part = part_of(zero, shared)
    pairs, above = pairs_at(factors, part, low), above_at(factors, part, n, low)
    mask, mask_step = mask_view(zero, worker, low)
    words = (pairs, above, mask, mask_step, y, row, high - low)
    right_side(zero, job, worker, low, high, y, mask, mask_step)
    if shared is None:
        FORWARD_TRANSPOSED(zero, words)
        BACKWARD_TRANSPOSED(zero, words)
    else:
        FORWARD_TRANSPOSED_SHARED(zero, words)
        BACKWARD_TRANSPOSED_SHARED(zero, words)


@compiled
def substitute_certified(zero, job, worker, factors, shared, y, used, bad):
    """The solution, to memory at once if no lane needs more, which is the result; else in place of y'."""
    n, row, low, high = job.rows, bytes_of_row(zero, ()), worker.low, worker.high
    bindings, carry, lanes = worker.bindings, worker.carry, lanes_of(zero, ())
    d, x = operand_of(zero, bindings, D_), operand_of(zero, bindings, X_)
    height, straight = QUAD // parts_of(zero, ()), 0
    if bad == 0 and used == lanes and worker.whole and d.kind == CONTIGUOUS == x.kind:
        straight = (high - low) // height * height
    part = part_of(zero, shared)
    ZERO(zero, (y - row, row, 1))
    ZERO(zero, (carry, row, 1))
    if straight == 0:
        if low < high:
            forward_blocks(zero, job, worker, factors, shared, y, low, high)
            backward_factored(zero, job, worker, factors, shared, y, low, high)
        return False
    last = low + straight
    forward_straight(zero, factors, shared, d, y, low, low, last)
    if last < high:  # the rows that fill no tile, with those before them once more
        forward_straight(zero, factors, shared, d, y, low, high - height, high)
    words = above_at(factors, part, n, low), y, x, carry, low, last, high - last
    if shared is None:
        BACKWARD_CONTIGUOUS(zero, words)
    else:
        BACKWARD_CONTIGUOUS_SHARED(zero, words)
    store_rows(zero, x, 0, low, worker.zeros, 0, used)
    store_rows(zero, x, high, n, worker.zeros, 0, used)
    return True


@compiled
def forward_straight(zero, factors, shared, d, y, low, first, last):
    """y' of rows first <= i < last, whole tiles of contiguous ones, from factors; that of row ``low`` lies at ``y``."""
    words = pairs_at(factors, part_of(zero, shared), first), d, y + (first - low) * bytes_of_row(zero, ()), first, last
    if shared is None:
        FORWARD_CONTIGUOUS(zero, words)
    else:
        FORWARD_CONTIGUOUS_SHARED(zero, words)


@compiled
def forward_blocks(zero, job, worker, factors, shared, y, first, last):
    """y' of rows first <= i < last from factors."""
    row, low, part = bytes_of_row(zero, ()), worker.low, part_of(zero, shared)
    asked = operand_of(zero, worker.bindings, D_)
    for i0 in range(first, last, BLOCK):
        if stopping_at(i0 // BLOCK, 64):
            break
        i1 = min(i0 + BLOCK, last)
        view(zero, job, worker, RIGHT, i0, i1, False)
        mask, mask_step = mask_view(zero, worker, i0)
        pairs, to = pairs_at(factors, part, i0), y + (i0 - low) * row
        words = (
            pairs,
            worker.views[2 * RIGHT],
            worker.views[2 * RIGHT + 1],
            mask,
            mask_step,
            to,
            row,
            i1 - i0,
            asked,
            i0,
        )
        if shared is None:
            FORWARD(zero, words)
        else:
            FORWARD_SHARED(zero, words)


@compiled
def backward_factored(zero, job, worker, factors, shared, y, first, last):
    """x of rows first <= i < last in place of y'."""
    n, row, part = job.rows, bytes_of_row(zero, ()), part_of(zero, shared)
    mask, mask_step = mask_view(zero, worker, first)
    x, at = operand_of(zero, worker.bindings, X_), y + (first - worker.low) * row
    above, carry = above_at(factors, part, n, first), worker.carry
    words = above, at, mask, mask_step, carry, last - first, x, first
    if shared is None:
        BACKWARD(zero, words)
    else:
        BACKWARD_SHARED(zero, words)


@compiled
def is_wide(zero, job, worker, k, end):
    """Whether some groups from right side k on lie side by side, and all rows are kept."""
    count, stretch, bindings = job.right_axes, WIDE * lanes_of(zero, ()), worker.bindings
    turned = job.flags & (J.FACTORED | J.TRANSPOSE) == J.FACTORED | J.TRANSPOSE
    if turned or job.flags & J.MASKED or k + stretch > end or count == 0:
        return False
    length = field(job, J.AXES + J.AXIS_WORDS * (job.matrix_axes + count - 1))
    d, x = operand_of(zero, bindings, D_), operand_of(zero, bindings, X_)
    return k % length + stretch <= length and d.kind == INTERLEAVED and x.kind == INTERLEAVED


@inlined
def substitute_wide(zero, job, worker, factors):
    """Some groups of right sides, of which the first is bound, row by row through all of them."""
    n, part, y, bindings = job.rows, part_of(zero, True), worker.kept, worker.bindings
    d, x, step = operand_of(zero, bindings, D_), operand_of(zero, bindings, X_), WIDE * bytes_of_row(zero, ())
    d_ahead, x_ahead = WIDE_ROWS_AHEAD * d.stride, -WIDE_ROWS_AHEAD * x.stride
    if n * step < NEXT_GROUP:
        d_ahead, x_ahead = step, step
    FORWARD_WIDE(zero, (pairs_at(factors, part, 0), d.lanes[0], d.stride, d_ahead, y, n))
    words = above_at(factors, part, n, 0), y, x.lanes[0], x.stride, x_ahead, n
    if past_caches(zero, job) and x.lanes[0] % LINE == 0:
        STREAM_WIDE(zero, words)
    else:
        BACKWARD_WIDE(zero, words)
