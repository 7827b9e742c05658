"""One system row by row, as LAPACK's xGTSV: what `tridiag.kernels.partition.kernel` cannot cut or keep its promise for.

The elimination is not stored. Its state is kept every so many rows, from where it is repeated when the solution is
substituted back: any number of rows in little memory, and the solution may replace the right side. Refinement, which
few systems need, takes memory for two more right sides.
"""

from __future__ import annotations

from tridiag.algorithms.elimination import (
    CANCELLATION,
    ENOUGH,
    GROWTH,
    LEAVE_BELOW,
    LEAVE_LATE,
    LOST,
    REFINE_ABOVE,
    REFINE_STEPS,
    RETURN_AFTER,
    VANISHED,
    ZEROS_AFTER,
)  # fmt: skip
from tridiag.kernels.access.operands import parts_of
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.partition import state as P
from tridiag.kernels.partition.scales import (
    exchange_bands,
    find_scales,
    is_wide,
    memory_of_scales,
    restore,
    scale_right,
    scaled_bands,
)
from tridiag.kernels.partition.state import (
    STEPS,
    bytes_of,
    cut,
    entry_of,
    is_kept,
    limits,
    not_a_number,
    quotient,
    row_residual,
    set_solution,
    size,
    solution,
)
from tridiag.kernels.runtime.system import fresh
from tridiag.kernels.simd.compiled import compiled, inlined
from tridiag.kernels.simd.interrupts import PIECE, stopping, stopping_at
from tridiag.kernels.simd.memory import free, load, store
from tridiag.kernels.simd.scalars import unit

KEPT_EVERY = 512  # rows
KEPT = 4  # numbers: the carried row, its right side, the right side of the next row
NO_MEMORY, UNSURE = -1, -2  # for a status


@compiled
def row_of(zero, plan, i):
    if plan.masked == 0:
        below = entry_of(zero, plan, P.A, i) if i > 0 else zero
        above = entry_of(zero, plan, P.C, i) if i < plan.rows - 1 else zero
        return below, entry_of(zero, plan, P.B, i), above
    return cut(zero, plan, P.A, i), cut(zero, plan, P.B, i), cut(zero, plan, P.C, i)


@compiled
def right_of(zero, plan, source, stride, i):
    return load(source + i * stride, zero) if is_kept(plan, i) else zero


@compiled
def column(zero, plan, carried, i, right, pivoting):
    """Eliminate column i - 1 with row i: the new carried row and the pivot row (q0, q1, q2 | q)."""
    p0, p1, r = carried
    a, b, c = row_of(zero, plan, i)
    swap = pivoting and size(a) > size(p0)
    pivot, upper, second, side = (a, b, c, right) if swap else (p0, p1, zero, r)
    other, diagonal, rest = (p0, p1, r) if swap else (a, b, right)
    multiplier = quotient(other, pivot)  # by selects: which row it is nothing foretells
    carried = diagonal - multiplier * upper, -(multiplier * c) if swap else c, rest - multiplier * side
    row = pivot, upper, second, side
    if not is_kept(plan, i):
        carried = unit(zero), zero, zero
    if pivoting and b - b == 0 and carried[0] - carried[0] != 0:  # it overflowed
        carried = not_a_number(zero), carried[1], carried[2]
    return carried, row


@inlined
def certified(zero, pivot, b, a, before):
    """`tridiag.algorithms.elimination.certify`; the quotient is that of a and the pivot ``before``."""
    eps, tiny, _, _ = limits(zero)
    if a != zero and size(a) < tiny * size(before):
        return False
    grown = size(b - pivot) + size(pivot)
    return grown * (1 / GROWTH) <= size(b) and size(pivot) > max(CANCELLATION * eps * size(b), tiny)


@compiled
def forward(zero, plan, source, stride, kept, pivoting, certify):
    """The state every so many rows, to ``kept`` unless that is 0. Returns 0, or 1 + the row of the first zero pivot.

    ``certify``: or UNSURE at the first row without certificate.
    """
    n, side = plan.rows, bytes_of(zero, ())
    carried = cut(zero, plan, P.B, 0 * n), cut(zero, plan, P.C, 0 * n), right_of(zero, plan, source, stride, 0 * n)
    for i in range(1, n + 1):
        if stopping_at(i, PIECE):
            return 0
        right = right_of(zero, plan, source, stride, i) if i < n else zero
        if kept != 0 and (i - 1) % KEPT_EVERY == 0:
            at = kept + (i - 1) // KEPT_EVERY * KEPT * side
            for k in range(3):
                store(at + k * side, carried[k])
            store(at + 3 * side, right_of(zero, plan, source, stride, i - 1))
        if i == n:
            break
        carried, row = column(zero, plan, carried, i, right, pivoting)
        if row[0] == zero:
            return i
        if certify and not certified(zero, carried[0], cut(zero, plan, P.B, i), cut(zero, plan, P.A, i), row[0]):
            return UNSURE
    return n if carried[0] == zero else 0


@compiled
def backward(zero, plan, source, stride, kept, pivoting, target, target_stride):
    """x from the states kept; it may replace the right side. False where there is no memory."""
    n, side = plan.rows, bytes_of(zero, ())
    rows = fresh(KEPT_EVERY * KEPT * side)
    if rows == 0:
        return False
    x1, x2 = zero, zero
    for part in range((n - 1) // KEPT_EVERY, -1, -1):
        if stopping_at(part, 8):
            break
        first, last = part * KEPT_EVERY, min((part + 1) * KEPT_EVERY, n)
        at = kept + part * KEPT * side
        carried = load(at, zero), load(at + side, zero), load(at + 2 * side, zero)
        for i in range(first + 1, last + 1):
            row = carried[0], zero, zero, carried[2]
            if i < n:
                # the last right side has been replaced by the part behind, which kept it
                right = right_of(zero, plan, source, stride, i) if i < last else load(at + (KEPT + 3) * side, zero)
                carried, row = column(zero, plan, carried, i, right, pivoting)
            for k in range(4):
                store(rows + ((i - 1 - first) * KEPT + k) * side, row[k])
        for i in range(last - 1, first - 1, -1):
            at = rows + (i - first) * KEPT * side
            q = load(at + 3 * side, zero) - load(at + side, zero) * x1
            if load(at + 2 * side, zero) != zero:
                q -= load(at + 2 * side, zero) * x2
            x1, x2 = (quotient(q, load(at, zero)) if is_kept(plan, i) else zero), x1
            store(target + i * target_stride, x1)
    free(rows)
    return True


@compiled
def copy(zero, n, source, stride, target, target_stride):
    for i in range(n):
        if stopping_at(i, PIECE):
            return
        store(target + i * target_stride, load(source + i * stride, zero))


@compiled
def fill_nan(zero, plan):
    for i in range(plan.rows):
        set_solution(zero, plan, i, not_a_number(zero))


@compiled
def residual(zero, plan, rest, number):
    """d - A x where it is more than rounding, to ``rest``; the componentwise backward error."""
    n, side, worst = plan.rows, bytes_of(zero, ()), 0.0
    leave = (LEAVE_LATE if number >= ZEROS_AFTER else LEAVE_BELOW) * parts_of(zero, ()) * limits(zero)[0]
    before, here = zero, solution(zero, plan, 0 * n)
    for i in range(n):
        if stopping_at(i, PIECE):
            break
        after = solution(zero, plan, i + 1) if i < n - 1 else zero
        r, error = row_residual(zero, row_of(zero, plan, i), cut(zero, plan, P.D, i), before, here, after)
        store(rest + i * side, zero if error <= leave else r)
        if error > worst or error != error:
            worst = error
        before, here = here, after
    return worst


@compiled
def solve_scaled(zero, plan, kept, scales, right):
    """The solution in place of a right side, by the scaled system; whether that meets no zero pivot."""
    side, divided = bytes_of(zero, ()), scale_right(zero, plan, scales, right)
    bands = exchange_bands(plan, scaled_bands(zero, plan, scales))
    status = forward(zero, plan, right, side, kept, J.PIVOTED, J.PLAIN)
    done = status == 0 and backward(zero, plan, right, side, kept, J.PIVOTED, right, side)
    exchange_bands(plan, bands)
    if done:
        restore(zero, plan, scales, right, divided)
    return done


FIND_SCALES, SOLVE_SCALED = STEPS.add_step(find_scales), STEPS.add_step(solve_scaled)


@compiled
def improve(zero, plan, kept, scales, rest, best, least, first):
    """x corrected from step ``first`` on while its componentwise residual exceeds the bar; the error of the best one.

    By the system itself, or its scaled one.
    """
    n, side, x, step = plan.rows, bytes_of(zero, ()), plan.address[P.X], plan.stride[P.X]
    eps, tiny, _, _ = limits(zero)
    bar, vanished = REFINE_ABOVE * eps, VANISHED * eps
    for number in range(first, REFINE_STEPS + 1):
        if not least > bar or (number == ENOUGH + 1 and least * least <= eps) or stopping():
            break
        if scales != 0:
            SOLVE_SCALED(zero, (plan, kept, scales, rest))
        else:
            forward(zero, plan, rest, side, kept, J.PIVOTED, J.PLAIN)
            backward(zero, plan, rest, side, kept, J.PIVOTED, rest, side)
        for i in range(n):  # `tridiag.algorithms.elimination.correct`
            old, correction = solution(zero, plan, i), load(rest + i * side, zero)
            new, bound = old + correction, vanished * size(old)
            if number > ZEROS_AFTER and (number <= RETURN_AFTER or old != zero):
                bound = max(bound, LOST * size(correction), tiny / eps)
            set_solution(zero, plan, i, zero if size(new) <= bound else new)
        error = residual(zero, plan, rest, number)
        if error < least:
            copy(zero, n, x, step, best, side)
            least = error
    return least


@compiled
def refine(zero, plan, kept):
    """x improved while it is not as good as is promised, with scales where entries are wide apart; the best one."""
    n, side, x, step, eps = plan.rows, bytes_of(zero, ()), plan.address[P.X], plan.stride[P.X], limits(zero)[0]
    rest = fresh(2 * n * side)
    if rest == 0:
        return False
    best, least = rest + n * side, residual(zero, plan, rest, 0)
    copy(zero, n, x, step, best, side)
    scales, first = 0 * n, 0 * n + 1
    while True:
        least = improve(zero, plan, kept, scales, rest, best, least, first)
        if scales != 0 or least <= REFINE_ABOVE * eps or not is_wide(zero, plan):
            break
        scales = fresh(memory_of_scales(zero, n))
        if scales == 0:
            break
        FIND_SCALES(zero, (plan, scales))
        for i in range(n):
            store(rest + i * side, cut(zero, plan, P.D, i))
        if not SOLVE_SCALED(zero, (plan, kept, scales, rest)):
            break
        copy(zero, n, rest, side, x, step)
        least, error, first = least if least < 1 / eps else eps**0.5, residual(zero, plan, rest, 1), 0 * n + 2
        if error < least:
            copy(zero, n, x, step, best, side)
            least = error
    if scales != 0:
        free(scales)
    copy(zero, n, best, side, x, step)
    free(rest)
    return True


@compiled
def solve_sequentially(zero, plan):
    """One system under any promise, whose right side is not the solution's memory under "auto". Returns its status."""
    n, side, promise = plan.rows, bytes_of(zero, ()), plan.promise
    right, right_step = plan.address[P.D], plan.stride[P.D]
    x, step = plan.address[P.X], plan.stride[P.X]
    kept = fresh(((n - 1) // KEPT_EVERY + 1) * KEPT * side)
    if kept == 0:
        return NO_MEMORY
    sure = promise == J.AUTO and forward(zero, plan, right, right_step, kept, J.PLAIN, J.AUTO) == 0
    pivoting = J.PLAIN if sure else promise
    status = 0 if sure else forward(zero, plan, right, right_step, kept, pivoting, J.PLAIN)
    if status != 0:
        fill_nan(zero, plan)
        if promise == J.AUTO and not refine(zero, plan, kept):
            status = NO_MEMORY
        elif solution(zero, plan, 0 * n) == solution(zero, plan, 0 * n):
            status = 0
    else:
        done = backward(zero, plan, right, right_step, kept, pivoting, x, step)
        if done and promise == J.AUTO and not sure:
            done = refine(zero, plan, kept)
        status = 0 if done else NO_MEMORY
    free(kept)
    return status


@compiled
def find_zero_pivot(zero, plan):
    """0, or 1 + the row of the first zero pivot of elimination with partial pivoting."""
    n = plan.rows
    return forward(zero, plan, plan.address[P.X], plan.stride[P.X], 0 * n, J.PIVOTED, J.PLAIN)


SOLVE_SEQUENTIALLY, FIND_ZERO_PIVOT = STEPS.add_step(solve_sequentially), STEPS.add_step(find_zero_pivot)
