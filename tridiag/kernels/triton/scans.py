"""Recurrences of first order in Triton: what `tridiag.backends.triton_scan` launches.

Step i is in row i of every operand, whose row step may be negative; its coefficient is ``shift`` rows before. A lane
has a sequence ("columns", "carry"), or a chunk of its rows ("tiles", "fold"): lanes find what their chunks make of
a state before them, join that by a scan, and then every value comes from the one before, as in a plain loop. Where a
part cannot be trusted the chunks of a tile go one after another. Sequences that are cut into pieces go in three phases:
"fold" finds what pieces make, "carry" the states before them, "tiles" the values.

States and parts lie as (pieces, their numbers, sequences).
"""

import triton
import triton.language as tl

from tridiag.kernels.triton.chunks import ROWS, any_of, load, near, store
from tridiag.kernels.triton.parts import any_lane, apply, join, known, nothing, part_of, select, sound, step, value
from tridiag.kernels.triton.rows import either

ARRAYS, NUMBERS = range(6), range(6, 23)  # the parameters of `run`: one kernel for any layout


@triton.jit(do_not_specialize=NUMBERS, do_not_specialize_on_alignment=ARRAYS)
def run(
    a, x, y, states, parts, trusted,
    a_outer: tl.int64, a_inner: tl.int64, a_row: tl.int64,
    x_outer: tl.int64, x_inner: tl.int64, x_row: tl.int64,
    y_outer: tl.int64, y_inner: tl.int64, y_row: tl.int64,
    outer: tl.int64, inner: tl.int64, n: tl.int64, rows: tl.int64, pieces: tl.int64,
    given: tl.int64, shift: tl.int64, sequences: tl.int64,
    KERNEL: tl.constexpr, LOGARITHMIC: tl.constexpr,
    SYSTEMS: tl.constexpr, CHUNKS: tl.constexpr, TOGETHER: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """``inner`` sequences in each of ``outer`` places; pieces of ``rows`` rows, which are whole tiles."""
    operands = (a, a_outer, 0, a_inner, a_row), (x, x_outer, 0, x_inner, x_row), (y, y_outer, 0, y_inner, y_row)
    if KERNEL == "columns" or KERNEL == "carry":
        walk(operands, states, parts, trusted, inner, n, rows, pieces, given, shift, sequences, KERNEL, LOGARITHMIC,
             SYSTEMS)  # fmt: skip
    else:
        tiles(operands, states, parts, trusted, inner, n, rows, pieces, given, shift, sequences, KERNEL, LOGARITHMIC,
              SYSTEMS, CHUNKS, TOGETHER, UNIT)  # fmt: skip


@triton.jit
def read(memory, piece, sequence, sequences, there, words: tl.constexpr):
    """The numbers of a state or a part."""
    found = ()
    for j in tl.static_range(words):
        found = found + (tl.load(memory + (piece * words + j) * sequences + sequence, there, other=0.0),)
    return found


@triton.jit
def write(memory, piece, sequence, sequences, there, values):
    for j in tl.static_range(len(values)):
        place = memory + (piece * len(values) + j) * sequences + sequence
        tl.store(place, values[j].to(memory.dtype.element_ty), there)


@triton.jit
def read_part(parts, piece, sequence, sequences, there, LOGARITHMIC: tl.constexpr):
    if LOGARITHMIC:
        return read(parts, piece, sequence, sequences, there, 4)
    else:
        factor, value, times = read(parts, piece, sequence, sequences, there, 3)
        return factor, value, times.to(tl.int32)


@triton.jit
def walk(
    operands, states, parts, trusted, inner, n, rows, pieces, given, shift, sequences, KERNEL: tl.constexpr,
    LOGARITHMIC: tl.constexpr, SYSTEMS: tl.constexpr,
):  # fmt: skip
    """A lane for each sequence: values row by row, or the states before pieces."""
    sequence = tl.program_id(0).to(tl.int64) * SYSTEMS + tl.arange(0, SYSTEMS)
    there = sequence < sequences
    i, k = sequence // inner, sequence % inner
    a, x, y = far(operands[0], i, k), far(operands[1], i, k), far(operands[2], i, k)
    words: tl.constexpr = 4 if LOGARITHMIC else 1
    state = read(states, 0, sequence, sequences, there, words)
    if KERNEL == "columns":
        for row in range(n):
            state = read_step(state, a, x, row, given, shift, there, LOGARITHMIC)
            tl.store(y[0] + row * y[1], value(state, LOGARITHMIC), there)
    else:
        for piece in range(pieces - 1):
            behind = apply(read_part(parts, piece, sequence, sequences, there, LOGARITHMIC), state, LOGARITHMIC)
            good = tl.load(trusted + piece * sequences + sequence, there, other=1) != 0
            good = good & known(state, LOGARITHMIC) & known(behind, LOGARITHMIC)
            doubtful = there & (good == 0)
            if tl.reduce(doubtful.to(tl.int32), 0, either) != 0:
                slow = state
                for row in range(piece * rows, (piece + 1) * rows):
                    slow = read_step(slow, a, x, row, given, shift, doubtful, LOGARITHMIC)
                behind = select(good, behind, slow)
            state = behind
            write(states, piece + 1, sequence, sequences, there, state)


@triton.jit
def far(operand, i, k):
    """An operand of lanes that have a sequence each: where it begins, and the row step."""
    begin, outer, _, inner, row = operand
    return begin + i * outer + k * inner, row


@triton.jit
def read_step(state, a, x, row, given, shift, there, LOGARITHMIC: tl.constexpr):
    """The state behind a row."""
    term = tl.load(x[0] + row * x[1], there, other=0.0)
    if LOGARITHMIC:
        return step(state, term, term, LOGARITHMIC)
    else:
        at = tl.full(there.shape, 0, tl.int64) + row + given  # masks are of lanes, not of numbers
        factor = tl.load(a[0] + (row - shift) * a[1], there & (at > 0), other=0.0)
        return step(state, factor, term, LOGARITHMIC)


@triton.jit
def shifted(values, p, step, AXIS: tl.constexpr):
    """What the lanes ``step`` chunks before have; there have to be some."""
    found = ()
    at = tl.where(p >= step, p - step, 0)
    for j in tl.static_range(len(values)):
        found = found + (tl.gather(values[j], at, AXIS),)
    return found


@triton.jit
def of_chunk(values, p, chunk, AXIS: tl.constexpr):
    """What the lane of that chunk has, for all lanes of its sequence."""
    found = ()
    for j in tl.static_range(len(values)):
        found = found + (tl.gather(values[j], 0 * p + chunk, AXIS),)
    return found


@triton.jit
def through(state, factors, terms, LOGARITHMIC: tl.constexpr):
    """The values of the rows of a chunk, and the state behind it."""
    values = ()
    for j in tl.static_range(ROWS):
        state = step(state, factors[j], terms[j], LOGARITHMIC)
        values = values + (value(state, LOGARITHMIC),)
    return values, state


@triton.jit
def tiles(
    operands, states, parts, trusted, inner, n, rows, pieces, given, shift, sequences, KERNEL: tl.constexpr,
    LOGARITHMIC: tl.constexpr, SYSTEMS: tl.constexpr, CHUNKS: tl.constexpr, TOGETHER: tl.constexpr, UNIT: tl.constexpr,
):  # fmt: skip
    """A piece of some sequences, tile by tile: (sequences, chunks) where rows lie side by side, else the other way."""
    AXIS: tl.constexpr = 1 if TOGETHER else 0
    lane, p = tl.arange(0, SYSTEMS), tl.arange(0, CHUNKS)
    if TOGETHER:
        lane, p = lane[:, None] + 0 * p, p + 0 * lane[:, None]
    else:
        lane, p = lane + 0 * p[:, None], p[:, None] + 0 * lane
    piece = tl.program_id(0) % pieces
    program = tl.program_id(0) // pieces
    groups = (inner + SYSTEMS - 1) // SYSTEMS
    i, k = (program // groups).to(tl.int64), (program % groups).to(tl.int64) * SYSTEMS
    there, sequence = lane < inner - k, i * inner + k + lane
    coefficient = near(operands[0], i, 0, k, lane, -shift, TOGETHER, UNIT)
    term, result = (
        near(operands[1], i, 0, k, lane, 0, TOGETHER, UNIT),
        near(operands[2], i, 0, k, lane, 0, TOGETHER, UNIT),
    )
    words: tl.constexpr = 4 if LOGARITHMIC else 1
    state = read(states, piece, sequence, sequences, there, words)
    certain = there | (there == 0)
    whole = ()
    if KERNEL == "fold":
        whole = nothing(state[0], LOGARITHMIC)

    low, high = piece * rows, tl.minimum((piece + 1) * rows, n)
    for first in range(low, high, CHUNKS * ROWS):
        row = p * ROWS
        last = tl.minimum(high - first, CHUNKS * ROWS).to(tl.int32)
        absent: tl.constexpr = float("-inf") if LOGARITHMIC else 0.0
        terms = load(moved(term, first, operands[1]), row, 0, last, there, absent, TOGETHER)
        factors = terms
        if not LOGARITHMIC:
            unread = ((first == 0) & (given == 0)).to(tl.int32)
            factors = load(moved(coefficient, first, operands[0]), row, unread, last, there, 1.0, TOGETHER)
            head = tl.where((row == 0) & (unread != 0), 0.0, factors[0])
            factors = (head,) + factors[1:]

        # what the chunks make, up to each
        own = part_of(factors, terms, LOGARITHMIC)
        sure = sound(own, LOGARITHMIC)
        ahead = 1
        while ahead < CHUNKS:
            joined = join(shifted(own, p, ahead, AXIS), own, LOGARITHMIC)
            own = select(p >= ahead, joined, own)
            sure = sure & sound(own, LOGARITHMIC)
            ahead = 2 * ahead

        if KERNEL == "fold":
            whole = join(whole, of_chunk(own, p, CHUNKS - 1, AXIS), LOGARITHMIC)
            certain = certain & (any_of(sure == 0, AXIS) == 0) & sound(whole, LOGARITHMIC)
        else:
            before = select(p > 0, apply(shifted(own, p, 1, AXIS), state, LOGARITHMIC), state)
            if not LOGARITHMIC:  # of which every part can be trusted
                doubtful = any_of((sure & known(before, LOGARITHMIC)) == 0, AXIS) & there
                if any_lane(doubtful):  # chunk after chunk
                    carried = state
                    for chunk in range(CHUNKS):
                        before = select(doubtful & (p == chunk), carried, before)
                        _, behind = through(carried, factors, terms, LOGARITHMIC)
                        carried = of_chunk(behind, p, chunk, AXIS)
            values, behind = through(before, factors, terms, LOGARITHMIC)
            state = of_chunk(behind, p, CHUNKS - 1, AXIS)
            store(moved(result, first, operands[2]), row, values, last, there, TOGETHER)

    if KERNEL == "fold":
        write(parts, piece, sequence, sequences, there & (p == 0), whole)
        tl.store(trusted + piece * sequences + sequence, certain.to(tl.int32), there & (p == 0))


@triton.jit
def moved(place, first, operand):
    """An operand of `load` and `store`, so many rows on."""
    begin, step, lanes = place
    return begin + first * operand[4], step, lanes
