"""Matrices with many right sides, factors, and determinants."""

from __future__ import annotations

from tridiag.kernels.access.bind import bind_lanes
from tridiag.kernels.access.operands import (
    bytes_of_real,
    bytes_of_row,
    lanes_of,
    parts_of,
)
from tridiag.kernels.access.rows import ZERO
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import D_, OPERANDS, X_
from tridiag.kernels.simd.compiled import compiled, inlined
from tridiag.kernels.simd.interrupts import PIECE, stopping
from tridiag.kernels.simd.memory import load, set_byte, store, variable
from tridiag.kernels.simd.vector import LINE
from tridiag.kernels.thomas.bind import advance, bind_few_matrices, bind_matrices, read_mask, side_offsets
from tridiag.kernels.thomas.factored import factor_group, is_wide, solve_factored, substitute_wide
from tridiag.kernels.thomas.factored_loops import (
    WIDE,
)
from tridiag.kernels.thomas.interleaved import past_caches
from tridiag.kernels.thomas.refine import (
    eliminate_uncertified,
)
from tridiag.kernels.thomas.short_sides import solve_short_sides
from tridiag.kernels.thomas.stamps import (
    is_certified_alone,
    is_packed,
    kinds_of,
    pack_tile,
    stamp_group,
    tile_of,
    unpack_tile,
)
from tridiag.kernels.thomas.windows import solve_windows
from tridiag.kernels.thomas.workspace import (
    exchanges,
)


@compiled
def tell_kinds(zero, job, worker, first, used, uncertified, factors):
    """Which lanes of a group are uncertified, and its stamps, where matrices have some that lie in groups."""
    for lane in range(used):
        kind = J.UNCERTIFIED if uncertified >> lane & 1 else J.CERTIFIED
        set_byte(job.certificates + first + lane, kind)
    if job.stamps != 0 and job.shared == 0:
        stamp_group(zero, job, worker, first, used, uncertified, factors)
        if is_packed(zero, job, used):
            pack_tile(zero, job, worker, first, used)


@inlined
def solve_multiple_rhs(zero, job, worker, tile, first, used, k0, k1, follows):
    """A group of matrices, each with right sides k0 <= k < k1: to be factored, or factored before.

    ``follows``: behind the group before, of which the last of these right sides is bound. Whether it came to its end.
    """
    flags, factors, uncertified, zero_pivot = job.flags, worker.factors, 0, 0
    follows = follows and used == lanes_of(zero, ()) and job.matrix_axes == 1
    if flags & (J.FACTORED | J.FACTORING):
        factors = tile_of(zero, job, worker, tile, used)
    if flags & J.FACTORED:
        uncertified = kinds_of(job, first, used)
    anew = uncertified < 0
    if anew:
        factors = worker.factors
    elif flags & J.FACTORED and is_packed(zero, job, used):
        unpack_tile(zero, job, worker, first, used)
    if follows and flags & J.FACTORED == 0:
        advance(zero, job, worker, J.AXES, 0, D_, lanes_of(zero, ()))
    elif uncertified != 0 or flags & J.FACTORED == 0 or flags & J.MASKED:
        bind_operands(zero, job, worker, first, used, worker.no_offsets, variable(0), variable(D_))
    read_mask(zero, job, worker)
    if anew and flags & J.TRANSPOSE:
        uncertified = (1 << used) - 1  # factors made here would be those of the transposed matrix
    elif anew or flags & J.FACTORED == 0:
        uncertified = factor_group(zero, job, worker, first, used, factors)
    if flags & J.FACTORING:
        tell_kinds(zero, job, worker, first, used, uncertified, factors)
    if uncertified != 0:
        zero_pivot = eliminate_uncertified(zero, job, worker, first, uncertified)
    rows = 0
    for k in range(k0, k1):
        bind_side(zero, job, worker, first, used, k, k0, k1, follows)
        if job.flags & J.WINDOWS:
            solve_windows(zero, job, worker, factors, first)
        else:
            solve_factored(zero, job, worker, factors, None, used, uncertified, zero_pivot)
        rows += job.rows
        if rows >= PIECE:
            rows = 0
            if stopping():
                return False
    return True


@compiled
def bind_side(zero, job, worker, first, used, k, k0, k1, follows):
    """Point a group at right side k: from k - 1, or the last one of the group before, on where one step leads there."""
    sides, right = job.right_axes, J.AXES + J.AXIS_WORDS * job.matrix_axes
    if sides > 1 or (k == k0 and not follows):
        side_offsets(job, k, worker.offsets)
        bind_operands(zero, job, worker, first, used, worker.offsets, variable(D_), variable(OPERANDS))
        return
    if k == k0:
        advance(zero, job, worker, J.AXES, D_, OPERANDS, lanes_of(zero, ()))
    if sides == 1:
        advance(zero, job, worker, right, D_, OPERANDS, 1 if k > k0 else k0 + 1 - k1)


@compiled
def bind_operands(zero, job, worker, first, used, base, low, high):
    bind_lanes(zero, job, J.AXES, job.matrix_axes, first, used, base, worker.bindings, low, high)


@inlined
def solve_few_matrices(zero, job, worker, matrix, k0, k1):
    """Right sides k0 <= k < k1 of one factored matrix, one in each lane."""
    lanes, count, right = lanes_of(zero, ()), job.right_axes, bind_few_matrices(zero, job, worker, matrix)
    bindings, base, one = worker.bindings, worker.offsets, variable(1)
    uncertified, zero_pivot = 0, 0
    if not is_certified_alone(job, matrix):
        uncertified = (1 << lanes) - 1
    if uncertified != 0 and eliminate_uncertified(zero, job, worker, matrix, one):
        zero_pivot = (1 << lanes) - 1
    side = bytes_of_real(zero, ()) * parts_of(zero, ())
    factors = job.factors + matrix * job.rows * 3 * side
    shift = job.pointers[X_] % LINE // side if past_caches(zero, job) else 0
    k, end = max(0, k0 - shift), k1 if k1 == job.right_sides else k1 - shift
    turned = job.flags & (J.FACTORED | J.TRANSPOSE) == J.FACTORED | J.TRANSPOSE
    if uncertified | zero_pivot == 0 and not turned:
        k += solve_short_sides(zero, job, worker, factors, k, end)
    rows, moved = 0, 0
    while k < end:
        rows += job.rows
        if rows >= PIECE:
            rows = 0
            if stopping():
                return
        used = min(lanes if k > 0 else lanes - shift, end - k)
        if moved > 0 and used == lanes:
            advance(zero, job, worker, right, D_, OPERANDS, moved)
        else:
            bind_lanes(zero, job, right, count, k, used, base, bindings, variable(D_), variable(OPERANDS))
        if uncertified | zero_pivot == 0 and used == lanes and is_wide(zero, job, worker, k, end):
            substitute_wide(zero, job, worker, factors)
            moved = WIDE * lanes
        else:
            every = (1 << used) - 1
            solve_factored(zero, job, worker, factors, True, used, uncertified & every, zero_pivot & every)
            moved = used
        k += moved
        if count != 1 or used < lanes:
            moved = 0


@inlined
def factor_few_matrices(zero, job, worker):
    """The few matrices of a job, one in each lane, to factors of one number each."""
    matrices, n, row, first = job.matrices, job.rows, bytes_of_row(zero, ()), variable(0)
    bind_matrices(zero, job, worker, first, matrices)
    factors = worker.factors
    ZERO(zero, (factors, row, 3 * n))
    uncertified = factor_group(zero, job, worker, first, matrices, factors)
    tell_kinds(zero, job, worker, first, matrices, uncertified, factors)
    if uncertified != 0 and job.flags & J.FACTORING:
        eliminate_uncertified(zero, job, worker, first, uncertified)
    if exchanges(job):
        return
    side = bytes_of_real(zero, ())
    for matrix in range(matrices):
        target = job.factors + matrix * n * 3 * side * parts_of(zero, ())
        for k in range(3 * n):
            for part in range(parts_of(zero, ())):
                value = load(factors + k * row + part * LINE + matrix * side, zero.real)
                store(target + (k * parts_of(zero, ()) + part) * side, value)
