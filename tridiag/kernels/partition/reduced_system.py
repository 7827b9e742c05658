"""The small systems that the chunks of a long one leave: in their ends and the rows of no chunk.

Plain elimination leaves the separators, a tridiagonal system; pivoting leaves two rows of every chunk, in its first and
its last unknown and the two beside it. Both are eliminated row by row. What they leave is kept: each pivot row,
divided, and the unknown.
"""

from __future__ import annotations

from tridiag.algorithms.elimination import LOST, RETURN_AFTER, VANISHED, ZEROS_AFTER
from tridiag.kernels.access.operands import lanes_of
from tridiag.kernels.partition import state as P
from tridiag.kernels.partition.gtsv import column, row_of
from tridiag.kernels.partition.state import (
    STEPS,
    block_record,
    bytes_of,
    chunk_count,
    cut,
    get,
    limits,
    put,
    quotient,
    row_residual,
    set_solution,
    size,
    solution,
)
from tridiag.kernels.simd.compiled import compiled, inlined
from tridiag.kernels.simd.functions import emitted
from tridiag.kernels.simd.memory import load, store
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.scalars import unit
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code

KEPT = 5  # numbers for each unknown: three of its pivot row, its right side, the unknown
ROUNDING = 8.0  # eps: of a row that a chunk leaves


@emitted
def unknown(code: Code, plan: At, i: Value) -> Value:
    """The address of what is kept for an unknown."""
    return plan.reduced + i * (KEPT * code.parts * code.size_of_real)


@compiled
def value_of(zero, plan, i):
    return load(unknown(zero, (plan, i)) + (KEPT - 1) * bytes_of(zero, ()), zero)


@compiled
def keep_row(zero, plan, i, pivot, q1, q2, q3, q):
    """The pivot row of an unknown, divided."""
    at, side, inverse = unknown(zero, (plan, i)), bytes_of(zero, ()), quotient(unit(zero), pivot)
    store(at, q1 * inverse)
    store(at + side, q2 * inverse)
    store(at + 2 * side, q3 * inverse)
    store(at + 3 * side, q * inverse)


@compiled
def substituted(zero, plan, i, x1, x2, x3):
    at, side = unknown(zero, (plan, i)), bytes_of(zero, ())
    q1, q2, q3, q = load(at, zero), load(at + side, zero), load(at + 2 * side, zero), load(at + 3 * side, zero)
    x = q - q1 * x1 - q2 * x2 - q3 * x3
    store(at + (KEPT - 1) * side, x)
    return x


@compiled
def doubtful(zero, pivot, operands, error=0.0):
    """Whether a pivot is so little beside the numbers that it is the difference of that the matrix may be singular.

    Or beside the rounding ``error`` that it may have: where no coupling decays, that of all chunks before adds up.
    """
    return not pivot > max(operands * limits(zero)[3], error)


@compiled
def rounding(zero, row):
    """What may be rounding in the entries of a row that a chunk has left."""
    return (size(row[0]) + size(row[1]) + size(row[2]) + size(row[3])) * (ROUNDING * limits(zero)[0])


@emitted
def lone_row(code: Code, plan: At, i: Value) -> Value:
    """The row of the system that is the i-th of those in no chunk: the first, then the last ones."""
    return code.pick(i == 0, i, plan.blocks * code.lanes * plan.height + i)


# ------------------------------------------------------------------------------------------------ plain


@compiled
def separator_row(zero, plan, i):
    """Row i of the system of the separators: a, b, c, d, and how x before and behind depend on separators.

    x before is l0 + l1 z[i-1] + l2 z[i], x behind is f0 + f1 z[i] + f2 z[i+1].
    """
    count, one = chunk_count(zero, (plan,)), unit(zero)
    below, above = (zero, one, zero), (zero, zero, one)
    if 0 < i <= count:
        k = i - 1
        a, b = get(zero, plan, P.SEPARATOR, k), get(zero, plan, P.SEPARATOR + 1, k)
        c, d = get(zero, plan, P.SEPARATOR + 2, k), get(zero, plan, P.SEPARATOR + 3, k)
        below = get(zero, plan, P.LAST, k), get(zero, plan, P.LAST_BEFORE, k), -get(zero, plan, P.LAST_OWN, k)
    else:
        row = lone_row(zero, (plan, max(0, i - count)))
        a, b, c = row_of(zero, plan, row)
        d = cut(zero, plan, P.D, row)
    if i < count:
        above = get(zero, plan, P.FIRST, i), get(zero, plan, P.FIRST_BEFORE, i), get(zero, plan, P.FIRST_OWN, i)
    return a, b, c, d, below, above


@compiled
def solve_separators(zero, plan):
    """The separators, the first row and the last ones, by plain elimination."""
    count = chunk_count(zero, (plan,))
    rows, doubt, carried, y, feels, error = 1 + count + plan.tail, False, zero, zero, 0.0, 0.0
    for i in range(rows):
        a, b, c, d, below, above = separator_row(zero, plan, i)
        low, diagonal, up = a * below[1], b + a * below[2] + c * above[1], c * above[2]
        pivot, right = diagonal - low * carried, d - a * below[0] - c * above[0] - low * y
        operands = size(b) + size(a * below[2]) + size(c * above[1]) + size(low * carried)
        error = operands * (ROUNDING * limits(zero)[0]) + size(low * carried) * feels * error
        doubt = doubt or not size(pivot) > max(operands * limits(zero)[2], error)
        keep_row(zero, plan, i, pivot, up, zero, zero, right)
        inverse = quotient(unit(zero), pivot)
        carried, y, feels = up * inverse, right * inverse, size(inverse)
    x = zero
    for i in range(rows - 1, -1, -1):
        x = substituted(zero, plan, i, x, zero, zero)
        if i < count:
            put(zero, plan, P.BEFORE, i, x)
        if 0 < i <= count:
            put(zero, plan, P.OWN, i - 1, x)
        if i == 0 or i > count:
            set_solution(zero, plan, lone_row(zero, (plan, max(0, i - count))), x)
    if doubt:
        plan.doubt = 1


@inlined
def separator_error(zero, plan):
    """The largest componentwise residual of the rows that are in no chunk, and of the separators."""
    count, worst = chunk_count(zero, (plan,)), 0.0
    rows = 1 + count + plan.tail
    for i in range(rows):
        a, b, c, d, _, _ = separator_row(zero, plan, i)
        before = value_of(zero, plan, i - 1) if i > 0 else zero
        if 0 < i <= count:
            before = get(zero, plan, P.FOUND_LAST, i - 1)
        behind = get(zero, plan, P.FOUND_FIRST, i) if i < count else zero
        if count <= i < rows - 1:
            behind = value_of(zero, plan, i + 1)
        _, error = row_residual(zero, (a, b, c), d, before, value_of(zero, plan, i), behind)
        if worst == worst and not error <= worst:  # once NaN, for good
            worst = error
    return worst


# ------------------------------------------------------------------------------------------------ with pivoting

# The unknowns: the first row, the first and the last of every chunk, the last rows.


@inlined
def chunk_rows(zero, plan, chunk):
    """The two rows (x_before, x_first, x_last, x_after | right side) that the elimination of a chunk has left."""
    one = (
        get(zero, plan, P.LEFT + 2, chunk), get(zero, plan, P.LEFT + 3, chunk), get(zero, plan, P.LEFT, chunk),
        get(zero, plan, P.LEFT + 1, chunk), get(zero, plan, P.LEFT + 4, chunk),
    )  # fmt: skip
    two = (
        get(zero, plan, P.LEFT + 7, chunk), get(zero, plan, P.LEFT + 8, chunk), get(zero, plan, P.LEFT + 5, chunk),
        get(zero, plan, P.LEFT + 6, chunk), get(zero, plan, P.LEFT + 9, chunk),
    )  # fmt: skip
    if plan.refining:
        first, second = rest_of(zero, plan, chunk, two[2], two[3])
        one, two = (one[0], one[1], one[2], one[3], first), (two[0], two[1], two[2], two[3], second)
    return one, two


@inlined
def rest_of(zero, plan, chunk, last, after):
    """The residuals of the two rows. Where ends were read alone the second is (x_last, x_after), at another scale."""
    c0, c1, first = (
        get(zero, plan, P.REST, chunk),
        get(zero, plan, P.REST + 1, chunk),
        get(zero, plan, P.REST + 2, chunk),
    )
    e0, e1, second = (
        get(zero, plan, P.REST + 3, chunk),
        get(zero, plan, P.REST + 4, chunk),
        get(zero, plan, P.REST + 5, chunk),
    )
    if not block_record(zero, (plan, chunk // lanes_of(zero, ()))).near:
        return first, second
    if size(c0) + size(c1) > size(e0) + size(e1):
        first, second, e0, e1 = second, first, c0, c1
    factor = quotient(last, e0) if size(e0) > size(e1) else quotient(after, e1)
    return first, second * factor


@compiled
def without(row, multiplier, pivot):
    """A row less a multiple of the pivot row, from the second column on."""
    return (
        row[1] - multiplier * pivot[1], row[2] - multiplier * pivot[2], row[3] - multiplier * pivot[3],
        row[4] - multiplier * pivot[4],
    )  # fmt: skip


@inlined
def eliminate_chunk(zero, plan, chunk, carried, error):
    """The columns of x_before and x_first.

    Returns the row carried on, in x_last and x_after, what may be rounding in it, and whether there is doubt.
    """
    pivot = carried[0], carried[1], zero, zero, carried[2]
    one, two = chunk_rows(zero, plan, chunk)
    of_one, of_two = rounding(zero, one), rounding(zero, two)
    if size(one[0]) > size(pivot[0]):
        pivot, one, error, of_one = one, pivot, of_one, error
    if size(two[0]) > size(pivot[0]):
        pivot, two, error, of_two = two, pivot, of_two, error
    keep_row(zero, plan, 2 * chunk, pivot[0], pivot[1], pivot[2], pivot[3], pivot[4])
    factor, factor2 = quotient(one[0], pivot[0]), quotient(two[0], pivot[0])
    operands = max(size(one[1]) + size(factor * pivot[1]), size(two[1]) + size(factor2 * pivot[1]))
    first, second = without(one, factor, pivot), without(two, factor2, pivot)
    of_one, of_two = of_one + size(factor) * error, of_two + size(factor2) * error
    if size(second[0]) > size(first[0]):
        first, second, of_one, of_two = second, first, of_two, of_one
    doubt = doubtful(zero, size(first[0]), operands, of_one)
    keep_row(zero, plan, 2 * chunk + 1, first[0], first[1], first[2], zero, first[3])
    factor = quotient(second[0], first[0])
    x, y = second[1] - factor * first[1], second[2] - factor * first[2]
    operands = size(second[1]) + size(second[2]) + size(factor * first[1]) + size(factor * first[2])
    doubt = doubt or doubtful(zero, size(x) + size(y), operands)
    return (x, y, second[3] - factor * first[3]), of_two + size(factor) * of_one, doubt


@compiled
def lone_residual(zero, plan, i):
    """r of a row in no chunk, and its componentwise residual."""
    row = lone_row(zero, (plan, i))
    before = solution(zero, plan, row - 1) if row > 0 else zero
    after = solution(zero, plan, row + 1) if row < plan.rows - 1 else zero
    right = cut(zero, plan, P.D, row)
    return row_residual(zero, row_of(zero, plan, row), right, before, solution(zero, plan, row), after)


@compiled
def lone_right(zero, plan, i):
    """The right side of a row in no chunk, or its residual."""
    return lone_residual(zero, plan, i)[0] if plan.refining else cut(zero, plan, P.D, lone_row(zero, (plan, i)))


@compiled
def solve_ends(zero, plan):
    """The ends of all chunks and the rows in none, or their corrections; whether all are finite."""
    count, tail, doubt = chunk_count(zero, (plan,)), plan.tail, False
    _, b, c = row_of(zero, plan, 0 * tail)
    carried, error = (b, c, lone_right(zero, plan, 0 * tail)), 0.0
    for chunk in range(count):
        carried, error, found = eliminate_chunk(zero, plan, chunk, carried, error)
        doubt = doubt or found
    for i in range(1, tail + 1):
        row = lone_row(zero, (plan, i))
        a, b, c = row_of(zero, plan, row)
        carried, pivot = column(zero, plan, carried, row, lone_right(zero, plan, i), plan.promise)
        error += (size(carried[0]) + size(carried[1])) * limits(zero)[0]
        doubt = doubt or doubtful(zero, size(carried[0]) + size(carried[1]), size(a) + size(b) + size(c))
        keep_row(zero, plan, 2 * count + i - 1, pivot[0], pivot[1], pivot[2], zero, pivot[3])
    keep_row(zero, plan, 2 * count + tail, carried[0], zero, zero, zero, carried[2])
    if doubt or doubtful(zero, size(carried[0]), zero.real, error):
        plan.doubt = 1
    return substitute_ends(zero, plan)


@inlined
def substitute_ends(zero, plan):
    x1, x2, x3, finite = zero, zero, zero, True
    count, (eps, tiny, _, _) = chunk_count(zero, (plan,)), limits(zero)
    bar, least = VANISHED * eps, tiny / eps
    for i in range(2 * count + plan.tail, -1, -1):
        x1, x2, x3 = substituted(zero, plan, i, x1, x2, x3), x1, x2
        finite = finite and x1 - x1 == zero
        tell_chunks(zero, plan, i, x1)
        if i == 0 or i > 2 * count:
            row, x = lone_row(zero, (plan, max(0, i - 2 * count))), x1
            if plan.refining:
                old = solution(zero, plan, row)  # `tridiag.algorithms.elimination.correct`
                bound = bar * size(old)
                late = plan.refining
                if late > ZEROS_AFTER and (late <= RETURN_AFTER or old != zero):
                    bound = max(bound, LOST * size(x1), least)
                x = zero if size(old + x1) <= bound else old + x1
            set_solution(zero, plan, row, x)
    return finite


@inlined
def tell_chunks(zero, plan, i, x):
    """An unknown to the chunks that it is in or beside."""
    count, chunk = chunk_count(zero, (plan,)), (i - 1) // 2
    inside, interleaved, neighbour = (P.TOP, P.BELOW, chunk - 1) if i % 2 else (P.BOTTOM, P.ABOVE, chunk + 1)
    if 0 < i <= 2 * count:
        put(zero, plan, inside, chunk, x)
    if i <= 2 * count + 1 and 0 <= neighbour < count:
        put(zero, plan, interleaved, neighbour, x)


SOLVE_SEPARATORS, SOLVE_ENDS = STEPS.add_step(solve_separators), STEPS.add_step(solve_ends)
