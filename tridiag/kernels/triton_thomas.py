"""Many systems in Triton: what `tridiag.backends.triton_thomas` launches.

First a lane for each system, as in `tridiag.kernels.scalar_thomas`: an operand is where the systems of the lanes begin
in it, and the step from row to row. Then a chunk of rows for each lane, as in `tridiag/kernels/chunks.cu`. Below and
above are a and c, or c and a with ``shift`` = 1 for the transpose. Loads are masked, so that nothing is read that does
not exist. The elimination is that of `tridiag.elimination`.
"""

import triton
import triton.language as tl

from tridiag import elimination

SHRINK = tl.constexpr(1 / elimination.GROWTH)
CANCELLATION = tl.constexpr(elimination.CANCELLATION)
REFINE_ABOVE = tl.constexpr(elimination.REFINE_ABOVE)
REFINE_STEPS = tl.constexpr(elimination.REFINE_STEPS)
LEAVE_BELOW = tl.constexpr(elimination.LEAVE_BELOW)
VANISHED = tl.constexpr(elimination.VANISHED)
CLOSING = tl.constexpr(elimination.CLOSING)
ROWS = tl.constexpr(8)  # of a chunk


@triton.jit
def divide(x, y):
    """Rounded to nearest, which `/` is in float64 only."""
    if x.dtype == tl.float32:
        return tl.div_rn(x, y)
    else:
        return x / y


@triton.jit
def either(x, y):
    return x | y


@triton.jit
def read_row(matrix, i, n, shift, there, MASKED: tl.constexpr):
    """The entries of row i that exist, else zeros; those of the identity where it is taken out; and where it is not."""
    below, diagonal, above, where = matrix
    at = tl.full(there.shape, 0, tl.int64) + i  # for each lane: Triton's interpreter has no masks of scalars
    keep, before, after = there, there & (at > 0), there & (at + 1 < n)
    if MASKED:
        keep = keep & (tl.load(where[0] + i * where[1], there, other=0) != 0)
        before = before & keep & (tl.load(where[0] + (i - 1) * where[1], before, other=0) != 0)
        after = after & keep & (tl.load(where[0] + (i + 1) * where[1], after, other=0) != 0)
    a = tl.load(below[0] + (i - shift) * below[1], before, other=0.0)
    b = tl.load(diagonal[0] + i * diagonal[1], keep, other=1.0)
    c = tl.load(above[0] + (i + shift) * above[1], after, other=0.0)
    return a, b, c, keep


@triton.jit
def certifies(grown, pivot, diagonal, EPS: tl.constexpr, TINY: tl.constexpr):
    """Whether plain elimination of a row was harmless; ``grown`` was taken from its diagonal."""
    size, own = tl.abs(pivot), tl.abs(diagonal)
    return ((tl.abs(grown) + size) * SHRINK <= own) & (size > CANCELLATION * EPS * own) & (size > TINY)


@triton.jit
def eliminate_rows(
    matrix, right, x, kept, n, shift, there, EPS: tl.constexpr, TINY: tl.constexpr, MASKED: tl.constexpr
):
    """Thomas. Which systems have their certificate, and 0 or 1 + the row of the first zero pivot, where x is NaN."""
    zero = tl.full(there.shape, 0.0, x[0].dtype.element_ty)
    certified, status, ratio, y = zero == 0, zero.to(tl.int64), zero, zero
    for i in range(n):
        a, b, c, keep = read_row(matrix, i, n, shift, there, MASKED)
        d = tl.load(right[0] + i * right[1], keep, other=0.0)
        grown = a * ratio
        pivot = b - grown
        certified = certified & certifies(grown, pivot, b, EPS, TINY)
        status = tl.where((status == 0) & (pivot == 0), i + 1, status)
        ratio, y = divide(c, pivot), divide(d - a * y, pivot)
        tl.store(kept[0] + i * kept[1], ratio, there)
        tl.store(x[0] + i * x[1], y, there)
    tl.debug_barrier()
    y = zero
    for k in range(n):
        i = n - 1 - k
        y = tl.load(x[0] + i * x[1], there) - tl.load(kept[0] + i * kept[1], there) * y
        tl.store(x[0] + i * x[1], tl.where(status == 0, y, float("nan")), there)
    return certified, status


@triton.jit
def exchange(matrix, right, x, kept, n, shift, there, MASKED: tl.constexpr):
    """Elimination with partial pivoting, as LAPACK's xGTSV. 0, or 1 + the row of the first zero pivot, where x is NaN.

    ``kept`` takes the rows (q0, q1, q2) of U.
    """
    zero = tl.full(there.shape, 0.0, x[0].dtype.element_ty)
    status = zero.to(tl.int64)
    a, p0, p1, keep = read_row(matrix, 0, n, shift, there, MASKED)
    r = tl.load(right[0], keep, other=0.0)
    for i in range(1, n):
        a, b, c, keep = read_row(matrix, i, n, shift, there, MASKED)
        d = tl.load(right[0] + i * right[1], keep, other=0.0)
        swap = tl.abs(a) > tl.abs(p0)
        q0, q1, q = tl.where(swap, a, p0), tl.where(swap, b, p1), tl.where(swap, d, r)
        o0, o1, o = tl.where(swap, p0, a), tl.where(swap, p1, b), tl.where(swap, r, d)
        store_pivot(kept, i - 1, q0, q1, tl.where(swap, c, zero), there)
        tl.store(x[0] + (i - 1) * x[1], q, there)
        status = tl.where((status == 0) & (q0 == 0), i, status)
        multiplier = divide(o0, q0)
        p0 = tl.where(keep, o1 - multiplier * q1, 1.0)
        p1 = tl.where(keep, tl.where(swap, -(multiplier * c), c), 0.0)
        r = tl.where(keep, o - multiplier * q, 0.0)
    store_pivot(kept, n - 1, p0, p1, zero, there)
    tl.store(x[0] + (n - 1) * x[1], r, there)
    status = tl.where((status == 0) & (p0 == 0), n, status)
    tl.debug_barrier()
    x1, x2 = zero, zero
    for k in range(n):
        i = n - 1 - k
        place = kept[0] + i * kept[1]
        q2 = tl.load(place + 2 * kept[2], there)
        y = tl.load(x[0] + i * x[1], there) - tl.load(place + kept[2], there) * x1
        y = divide(tl.where(q2 == 0, y, y - q2 * x2), tl.load(place, there, other=1.0))
        if MASKED:
            where = matrix[3]
            y = tl.where(tl.load(where[0] + i * where[1], there, other=0) != 0, y, 0.0)
        x2 = x1
        x1 = y
        tl.store(x[0] + i * x[1], tl.where(status == 0, y, float("nan")), there)
    tl.debug_barrier()
    return status


@triton.jit
def store_pivot(kept, i, q0, q1, q2, there):
    place = kept[0] + i * kept[1]
    tl.store(place, q0, there)
    tl.store(place + kept[2], q1, there)
    tl.store(place + 2 * kept[2], q2, there)


@triton.jit
def residual(matrix, right, x, rest, n, shift, there, EPS: tl.constexpr, TINY: tl.constexpr, MASKED: tl.constexpr):
    """The componentwise backward error, or NaN. ``rest``: d - A x where it is more than rounding (`rows.residual`)."""
    before = tl.full(there.shape, 0.0, x[0].dtype.element_ty)
    worst, own = before, tl.load(x[0], there)
    for i in range(n):
        a, b, c, keep = read_row(matrix, i, n, shift, there, MASKED)
        d = tl.load(right[0] + i * right[1], keep, other=0.0)
        at = tl.full(there.shape, 0, tl.int64) + i
        after = tl.load(x[0] + (i + 1) * x[1], there & (at + 1 < n), other=0.0)
        difference = d - (a * before + b * own + c * after)
        size = tl.abs(a * before) + tl.abs(b * own) + tl.abs(c * after) + tl.abs(d)
        error = divide(tl.abs(difference), tl.maximum(size, 4 * TINY / EPS))
        worst = tl.where((error > worst) | (error != error), error, worst)
        tl.store(rest[0] + i * rest[1], tl.where(error > LEAVE_BELOW * EPS, difference, 0.0), there)
        before = own
        own = after
    tl.debug_barrier()
    return worst


@triton.jit
def refine(matrix, right, x, kept, n, shift, there, EPS: tl.constexpr, TINY: tl.constexpr, MASKED: tl.constexpr):
    """x improved while its backward error exceeds REFINE_ABOVE eps; the best iterate stays."""
    begin, step, part = kept
    rest, y, correction = (begin + 3 * part, step), (begin + 4 * part, step), (begin + 5 * part, step)
    least = residual(matrix, right, x, rest, n, shift, there, EPS, TINY, MASKED)
    copy(x, y, n, there)
    for _ in range(REFINE_STEPS):
        unfit = there & (least > REFINE_ABOVE * EPS)
        if tl.reduce(unfit.to(tl.int32), 0, either) != 0:
            exchange(matrix, rest, correction, kept, n, shift, there, MASKED)
            correct(y, correction, n, there, EPS)
            error = residual(matrix, right, y, rest, n, shift, there, EPS, TINY, MASKED)
            better = unfit & (error < least)
            copy(y, x, n, better)
            least = tl.where(better, error, least)


@triton.jit
def copy(source, target, n, there):
    for i in range(n):
        tl.store(target[0] + i * target[1], tl.load(source[0] + i * source[1], there), there)
    tl.debug_barrier()


@triton.jit
def correct(y, correction, n, there, EPS: tl.constexpr):
    """y + correction; an exact zero where the two cancel."""
    for i in range(n):
        old = tl.load(y[0] + i * y[1], there)
        better = old + tl.load(correction[0] + i * correction[1], there)
        vanished = tl.abs(better) <= VANISHED * EPS * tl.abs(old)
        tl.store(y[0] + i * y[1], tl.where(vanished, 0.0, better), there)
    tl.debug_barrier()


# ---------------------------------------------------------------------------------------------------- chunks
#
# The last row of a chunk is its separator. The rows before it, its interior, are eliminated from both ends: that leaves
# a row for its first unknown (the head) and one for its last (the tail), in the separators before and after. The
# separators' system goes by cyclic reduction among the lanes of a system. Once separators are known, interiors are
# solved by plain Thomas elimination, so that the certificate of their rows holds as it does for whole systems; the rows
# of separators are judged by their residuals, and the separators corrected once.
#
# A tile is (chunks, systems), or (systems, chunks) where rows lie side by side in memory; AXIS is that of the chunks.
# What a lane has of its chunk is a tuple of ROWS tiles.


@triton.jit
def neighbour(v, p, step, AXIS: tl.constexpr):
    """What the lane ``step`` chunks further in its system has; 0 where there is none."""
    COUNT: tl.constexpr = v.shape[AXIS]
    there = (p + step >= 0) & (p + step < COUNT)
    return tl.where(there, tl.gather(v, tl.where(there, p + step, p), AXIS), 0.0)


@triton.jit
def one_over(x):
    return divide(tl.full(x.shape, 1.0, x.dtype), x)


@triton.jit
def any_of(flag, AXIS: tl.constexpr):
    """Whether any chunk of a system says so."""
    return tl.reduce(flag.to(tl.int32), AXIS, either, keep_dims=True) != 0


@triton.jit
def unpack(rows):
    """The rows of chunks as a tuple, from a tile whose last axis they are."""
    S: tl.constexpr = rows.shape[0]
    C: tl.constexpr = rows.shape[1]
    even, odd = tl.split(tl.reshape(rows, (S, C, 4, 2)))
    v04, v26 = tl.split(tl.reshape(even, (S, C, 2, 2)))
    v15, v37 = tl.split(tl.reshape(odd, (S, C, 2, 2)))
    v0, v4 = tl.split(v04)
    v2, v6 = tl.split(v26)
    v1, v5 = tl.split(v15)
    v3, v7 = tl.split(v37)
    return v0, v1, v2, v3, v4, v5, v6, v7


@triton.jit
def pack(v):
    """The inverse of `unpack`."""
    S: tl.constexpr = v[0].shape[0]
    C: tl.constexpr = v[0].shape[1]
    even = tl.reshape(tl.join(tl.join(v[0], v[4]), tl.join(v[2], v[6])), (S, C, 4))
    odd = tl.reshape(tl.join(tl.join(v[1], v[5]), tl.join(v[3], v[7])), (S, C, 4))
    return tl.reshape(tl.join(even, odd), (S, C, ROWS))


@triton.jit
def load(operand, i, first, last, there, otherwise, TOGETHER: tl.constexpr):
    """An operand's rows ``first`` to ``last``, as far as they belong to the chunks that begin with row i."""
    begin, step, lanes = operand
    if TOGETHER:
        row = i[:, :, None] + tl.arange(0, ROWS)[None, None, :]
        mask = there[:, :, None] & (row >= first) & (row < last)
        return unpack(tl.load(begin + (lanes[:, :, None] + row * step), mask, other=otherwise))
    else:
        values = ()
        for j in tl.static_range(ROWS):
            mask = there & (i + j >= first) & (i + j < last)
            values = values + (tl.load(begin + (lanes + (i + j) * step), mask, other=otherwise),)
        return values


@triton.jit
def store(x, i, values, n, there, TOGETHER: tl.constexpr):
    begin, step, lanes = x
    if TOGETHER:
        row = i[:, :, None] + tl.arange(0, ROWS)[None, None, :]
        tl.store(begin + (lanes[:, :, None] + row * step), pack(values), there[:, :, None] & (row < n))
    else:
        for j in tl.static_range(ROWS):
            tl.store(begin + (lanes + (i + j) * step), values[j], there & (i + j < n))


@triton.jit
def kept_rows(where, i, n, there, TOGETHER: tl.constexpr):
    """Which rows are there and not taken out: from the one before a chunk to the one after it."""
    begin, step, lanes = where
    before = tl.load(begin + (lanes + (i - 1) * step), there & (i > 0), other=0)
    after = tl.load(begin + (lanes + (i + ROWS) * step), there & (i + ROWS < n), other=0)
    inside = load(where, i, 0, n, there, 0, TOGETHER)
    keep = (before != 0,)
    for j in tl.static_range(ROWS):
        keep = keep + (inside[j] != 0,)
    return keep + (after != 0,)


@triton.jit
def select(chosen, values, otherwise):
    """Of two tuples."""
    selected = ()
    for j in tl.static_range(ROWS):
        selected = selected + (tl.where(chosen[j], values[j], otherwise),)
    return selected


@triton.jit
def both(x, y):
    """Of two tuples."""
    found = ()
    for j in tl.static_range(ROWS):
        found = found + (x[j] & y[j],)
    return found


@triton.jit
def head_of(lower, diagonal, upper, right):
    """The first unknown in terms of the separators (a, c, d), from the interior eliminated upwards."""
    scale, after, rest = one_over(diagonal[ROWS - 2]), upper[ROWS - 2], right[ROWS - 2]
    for k in tl.static_range(ROWS - 2):
        multiplier = upper[ROWS - 3 - k] * scale
        rest = right[ROWS - 3 - k] - multiplier * rest
        after = -(multiplier * after)
        scale = one_over(diagonal[ROWS - 3 - k] - multiplier * lower[ROWS - 2 - k])
    return lower[0] * scale, after * scale, rest * scale


@triton.jit
def eliminate(lower, diagonal, upper, right, EPS: tl.constexpr, TINY: tl.constexpr):
    """The interior eliminated downwards: multipliers, reciprocals of pivots, certificates of all rows, and the tail."""
    scale, before, rest = one_over(diagonal[0]), lower[0], right[0]
    certified = certifies(tl.full(scale.shape, 0.0, scale.dtype), diagonal[0], diagonal[0], EPS, TINY)
    multipliers, scales = (), (scale,)
    for j in tl.static_range(1, ROWS - 1):
        multiplier = lower[j] * scale
        grown = multiplier * upper[j - 1]
        pivot = diagonal[j] - grown
        certified = certified & certifies(grown, pivot, diagonal[j], EPS, TINY)
        scale = one_over(pivot)
        rest = right[j] - multiplier * rest
        before = -(multiplier * before)
        multipliers = multipliers + (multiplier,)
        scales = scales + (scale,)
    return multipliers, scales, certified, (before * scale, upper[ROWS - 2] * scale, rest * scale)


@triton.jit
def reduce_cyclically(a, c, d, p, EPS: tl.constexpr, AXIS: tl.constexpr):
    """x of a[p] x[p-1] + x[p] + c[p] x[p+1] = d[p], and whether every pivot stands out."""
    COUNT: tl.constexpr = a.shape[AXIS]
    sound, step = a == a, 1
    while step < COUNT:
        a0, c0, d0 = neighbour(a, p, -step, AXIS), neighbour(c, p, -step, AXIS), neighbour(d, p, -step, AXIS)
        a1, c1, d1 = neighbour(a, p, step, AXIS), neighbour(c, p, step, AXIS), neighbour(d, p, step, AXIS)
        pivot = 1.0 - a * c0 - c * a1
        sound = sound & (tl.abs(pivot) > CLOSING * EPS)
        scale = one_over(pivot)
        d = (d - a * d0 - c * d1) * scale
        a = -(a * a0 * scale)
        c = -(c * c1 * scale)
        step = 2 * step
    return d, sound


@triton.jit
def solve_interior(multipliers, scales, lower, upper, right, before, separator):
    """The unknowns of the interior."""
    y = right[0] - lower[0] * before
    ys = (y,)
    for j in tl.static_range(1, ROWS - 1):
        y = right[j] - multipliers[j - 1] * y
        ys = ys + (y,)
    x = (y - upper[ROWS - 2] * separator) * scales[ROWS - 2]
    found = (x,)
    for k in tl.static_range(ROWS - 2):
        x = (ys[ROWS - 3 - k] - upper[ROWS - 3 - k] * x) * scales[ROWS - 3 - k]
        found = (x,) + found
    return found


@triton.jit
def separator_residual(a, b, c, d, before, own, after, EPS: tl.constexpr, TINY: tl.constexpr):
    """The residual of a separator's row, and whether it is as small as a certificate promises."""
    rest = d - a * before - b * own - c * after
    size = tl.abs(a * before) + tl.abs(b * own) + tl.abs(c * after) + tl.abs(d)
    return rest, tl.abs(rest) <= REFINE_ABOVE * EPS * tl.maximum(size, 4 * TINY / EPS)


@triton.jit
def solve_chunks(lower, diagonal, upper, right, p, EPS: tl.constexpr, TINY: tl.constexpr, AXIS: tl.constexpr):
    """The solution of all rows of the chunks, and which systems have no certificate."""
    head = head_of(lower, diagonal, upper, right)
    multipliers, scales, certified, tail = eliminate(lower, diagonal, upper, right, EPS, TINY)
    a, b, c, d = lower[ROWS - 1], diagonal[ROWS - 1], upper[ROWS - 1], right[ROWS - 1]
    next_a, next_c = neighbour(head[0], p, 1, AXIS), neighbour(head[1], p, 1, AXIS)
    next_d = neighbour(head[2], p, 1, AXIS)
    pivot = b - a * tail[1] - c * next_a
    sound = tl.abs(pivot) > CLOSING * EPS * tl.abs(b)
    scale = one_over(pivot)
    row_a, row_c = -(a * tail[0] * scale), -(c * next_c * scale)
    separator, stands = reduce_cyclically(row_a, row_c, (d - a * tail[2] - c * next_d) * scale, p, EPS, AXIS)
    x = solve_interior(multipliers, scales, lower, upper, right, neighbour(separator, p, -1, AXIS), separator)
    after = neighbour(x[0], p, 1, AXIS)
    rest, fits = separator_residual(a, b, c, d, x[ROWS - 2], separator, after, EPS, TINY)
    unfit = any_of(fits == 0, AXIS)
    if tl.reduce(tl.reduce(unfit.to(tl.int32), 0, either), 0, either) != 0:
        change, _ = reduce_cyclically(row_a, row_c, rest * scale, p, EPS, AXIS)
        change = tl.where(unfit, change, 0.0)  # what becomes of a system is not its neighbours' business
        nothing = (tl.full(rest.shape, 0.0, rest.dtype),) * (ROWS - 1)
        before = neighbour(change, p, -1, AXIS)
        x = add(x, solve_interior(multipliers, scales, lower, upper, nothing, before, change))
        separator = separator + change
        after = neighbour(x[0], p, 1, AXIS)
        _, fits = separator_residual(a, b, c, d, x[ROWS - 2], separator, after, EPS, TINY)
    return x + (separator,), any_of((certified & sound & stands & fits) == 0, AXIS)


@triton.jit
def add(x, y):
    """The sums of two tuples."""
    sums = ()
    for j in tl.static_range(ROWS - 1):
        sums = sums + (x[j] + y[j],)
    return sums


@triton.jit
def run_chunks(
    operands, listed, count, middle, inner, n, shift, every, MASKED: tl.constexpr, EPS: tl.constexpr,
    TINY: tl.constexpr, SYSTEMS: tl.constexpr, CHUNKS: tl.constexpr, TOGETHER: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """A tile of systems along the inner axis. Those without a certificate are not written unless ``every`` is 1."""
    lane, p = tl.arange(0, SYSTEMS), tl.arange(0, CHUNKS)
    if TOGETHER:
        lane, p = lane[:, None] + 0 * p, p + 0 * lane[:, None]
    else:
        lane, p = lane + 0 * p[:, None], p[:, None] + 0 * lane
    tiles, rows = ((inner + SYSTEMS - 1) // SYSTEMS).to(tl.int32), middle.to(tl.int32)
    outer = tl.program_id(0) // tiles
    k = (tl.program_id(0) % tiles).to(tl.int64) * SYSTEMS
    j, i = (outer % rows).to(tl.int64), (outer // rows).to(tl.int64)
    there, system = lane < inner - k, (i * middle + j) * inner + k + lane
    row, n = p * ROWS, n.to(tl.int32)
    below, diagonal = (
        near(operands[0], i, j, k, lane, -shift, TOGETHER, UNIT),
        near(operands[1], i, j, k, lane, 0, TOGETHER, UNIT),
    )
    above, right = (
        near(operands[2], i, j, k, lane, shift, TOGETHER, UNIT),
        near(operands[4], i, j, k, lane, 0, TOGETHER, UNIT),
    )
    lower = load(below, row, 1, n, there, 0.0, TOGETHER)
    own = load(diagonal, row, 0, n, there, 1.0, TOGETHER)
    upper = load(above, row, 0, n - 1, there, 0.0, TOGETHER)
    d = load(right, row, 0, n, there, 0.0, TOGETHER)
    if MASKED:  # by selects, whatever the rows hold
        keep = kept_rows(near(operands[3], i, j, k, lane, 0, TOGETHER, UNIT), row, n, there, TOGETHER)
        kept = keep[1:-1]
        lower, upper = select(both(kept, keep[:-2]), lower, 0.0), select(both(kept, keep[2:]), upper, 0.0)
        own, d = select(kept, own, 1.0), select(kept, d, 0.0)
    found, doubtful = solve_chunks(lower, own, upper, d, p, EPS, TINY, 1 if TOGETHER else 0)
    if MASKED:
        found = select(kept, found, 0.0)
    x = near(operands[5], i, j, k, lane, 0, TOGETHER, UNIT)
    store(x, row, found, n, there & ((doubtful == 0) | (every + 0 * p != 0)), TOGETHER)
    append(listed, count, system, there & doubtful & (p == 0))


@triton.jit
def near(operand, i, j, k, lane, shift, TOGETHER: tl.constexpr, UNIT: tl.constexpr):
    """An operand of `load` and `store`: where system k begins, ``shift`` rows on; the row step; lanes from there.

    With UNIT the smaller of the two steps is 1, and the compiler, which chooses who reads what, is told.
    """
    begin, outer, middle, inner, row = operand
    begin = begin + i * outer + j * middle + k * inner + shift * row
    if UNIT and TOGETHER:
        return begin, 1, lane * inner.to(tl.int32)
    elif UNIT:
        return begin, row.to(tl.int32), lane
    else:
        return begin, row.to(tl.int32), lane * inner.to(tl.int32)


# ---------------------------------------------------------------------------------------------------- all

ARRAYS, NUMBERS = range(10), range(10, 41)  # the parameters of `run`: one kernel for any layout


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=ARRAYS)
def run(
    below, diagonal, above, where, right, x, kept, listed, count, status,
    below_outer: tl.int64, below_middle: tl.int64, below_inner: tl.int64, below_row: tl.int64,
    diagonal_outer: tl.int64, diagonal_middle: tl.int64, diagonal_inner: tl.int64, diagonal_row: tl.int64,
    above_outer: tl.int64, above_middle: tl.int64, above_inner: tl.int64, above_row: tl.int64,
    where_outer: tl.int64, where_middle: tl.int64, where_inner: tl.int64, where_row: tl.int64,
    right_outer: tl.int64, right_middle: tl.int64, right_inner: tl.int64, right_row: tl.int64,
    x_outer: tl.int64, x_middle: tl.int64, x_inner: tl.int64, x_row: tl.int64,
    middle: tl.int64, inner: tl.int64, n: tl.int64, shift: tl.int64,
    every: tl.int64, systems: tl.int64, slots: tl.int64,
    KERNEL: tl.constexpr, LISTED: tl.constexpr, MASKED: tl.constexpr, EPS: tl.constexpr, TINY: tl.constexpr,
    SYSTEMS: tl.constexpr, CHUNKS: tl.constexpr, TOGETHER: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """KERNEL is "chunks" or "rows", which put systems that have no certificate on the list, or "pivoted".

    That is for all systems or, with LISTED, for those on the list, which it refines. ``kept``, of all but chunks, is
    (numbers, n, slots). An operand has steps along three batch axes; the last two are ``middle`` and ``inner`` long.
    """
    operands = (
        (below, below_outer, below_middle, below_inner, below_row),
        (diagonal, diagonal_outer, diagonal_middle, diagonal_inner, diagonal_row),
        (above, above_outer, above_middle, above_inner, above_row),
        (where, where_outer, where_middle, where_inner, where_row),
        (right, right_outer, right_middle, right_inner, right_row),
        (x, x_outer, x_middle, x_inner, x_row),
    )
    if KERNEL == "chunks":
        run_chunks(
            operands, listed, count, middle, inner, n, shift, every,
            MASKED, EPS, TINY, SYSTEMS, CHUNKS, TOGETHER, UNIT,
        )  # fmt: skip
    else:
        first = tl.program_id(0).to(tl.int64) * SYSTEMS
        last = tl.load(count) if LISTED else systems
        slot = first + tl.arange(0, SYSTEMS)
        for begin in range(first, last, slots):
            system, there = begin + tl.arange(0, SYSTEMS), (slot < slots) & (begin - first + slot < last)
            if LISTED:
                system = tl.load(listed + system, there, other=0)
            i, j, k = system // inner // middle, system // inner % middle, system % inner
            bands = far(operands[0], i, j, k), far(operands[1], i, j, k), far(operands[2], i, j, k)
            matrix = bands + (far(operands[3], i, j, k),)
            source, target, work = far(operands[4], i, j, k), far(operands[5], i, j, k), (kept + slot, slots, n * slots)
            if KERNEL == "rows":
                certified, found = eliminate_rows(matrix, source, target, work, n, shift, there, EPS, TINY, MASKED)
                append(listed, count, system, there & (certified == 0))
            else:
                found = exchange(matrix, source, target, work, n, shift, there, MASKED)
                if LISTED:
                    refine(matrix, source, target, work, n, shift, there & (found == 0), EPS, TINY, MASKED)
            tl.store(status + system, found, there)


@triton.jit
def far(operand, i, j, k):
    """An operand of the kernels without chunks: where systems begin, and the row step."""
    begin, outer, middle, inner, row = operand
    return begin + i * outer + j * middle + k * inner, row


@triton.jit
def append(listed, count, system, doubtful):
    """Put systems on a list."""
    place = tl.atomic_add(count + 0 * system, 1, doubtful)
    tl.store(listed + place, system, doubtful)
