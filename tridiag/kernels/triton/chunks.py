"""A chunk of rows for each lane in Triton, as in `tridiag/cuda/src/chunks.cu`.

The last row of a chunk is its separator. The rows before it, its interior, are eliminated from both ends: that leaves
a row for its first unknown (the head) and one for its last (the tail), in the separators before and after. The
separators' system goes by cyclic reduction among the lanes of a system. Once separators are known, interiors are
solved by plain Thomas elimination, so that the certificate of their rows holds as it does for whole systems; the rows
of separators are judged by their residuals, and the separators corrected once.

A tile is (chunks, systems), or (systems, chunks) where rows lie side by side in memory; AXIS is that of the chunks.
What a lane has of its chunk is a tuple of ROWS tiles.
"""

import triton
import triton.language as tl

from tridiag.algorithms import elimination
from tridiag.kernels.triton.rows import LOST, REFINE_ABOVE, append, certifies, divide, either, lossless

CLOSING = tl.constexpr(elimination.CLOSING)
ROWS = tl.constexpr(8)  # of a chunk


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
        certified = certified & certifies(grown, pivot, diagonal[j], EPS, TINY) & lossless(multiplier, lower[j], TINY)
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
        nothing = ()
        for _ in tl.static_range(ROWS - 1):
            nothing = nothing + (tl.full(rest.shape, 0.0, rest.dtype),)
        before = neighbour(change, p, -1, AXIS)
        changes = solve_interior(multipliers, scales, lower, upper, nothing, before, change) + (change,)
        found, certified = correct(x + (separator,), changes, unfit, certified)
        x, separator = found[:-1], found[ROWS - 1]
        after = neighbour(x[0], p, 1, AXIS)
        _, fits = separator_residual(a, b, c, d, x[ROWS - 2], separator, after, EPS, TINY)
    return x + (separator,), any_of((certified & sound & stands & fits) == 0, AXIS)


@triton.jit
def correct(x, changes, unfit, certified):
    """Unknowns and their corrections added, where a system is unfit; and certificates, gone where sums cancel.

    Both parts are as good as the certificate of their matrix says, but there their rounding is no longer small.
    """
    sums = ()
    for j in tl.static_range(ROWS):
        y = x[j] + changes[j]
        sums = sums + (tl.where(unfit, y, x[j]),)  # what becomes of a system is not its neighbours' business
        certified = certified & ((LOST * tl.abs(changes[j]) <= tl.abs(y)) | (unfit == 0))
    return sums, certified


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
