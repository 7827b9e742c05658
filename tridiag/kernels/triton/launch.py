"""Many systems in Triton: what `tridiag.backends.triton_thomas` launches.

A lane has a system (`rows`) or a chunk of its rows (`chunks`). Below and above are a and c, or c and a
with ``shift`` = 1 for the transpose. Loads are masked, so that nothing is read that does not exist.
"""

import triton
import triton.language as tl

from tridiag.kernels.triton.chunks import run_chunks
from tridiag.kernels.triton.rows import append, eliminate_rows, exchange, refine

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
        run_systems(
            operands, kept, listed, count, status, middle, inner, n, shift, systems, slots,
            KERNEL, LISTED, MASKED, EPS, TINY, SYSTEMS,
        )  # fmt: skip


@triton.jit
def run_systems(
    operands, kept, listed, count, status, middle, inner, n, shift, systems, slots,
    KERNEL: tl.constexpr, LISTED: tl.constexpr, MASKED: tl.constexpr, EPS: tl.constexpr, TINY: tl.constexpr,
    SYSTEMS: tl.constexpr,
):  # fmt: skip
    """The kernels without chunks: a lane has a system, then one that is ``slots`` further on."""
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
