"""The scratch memory of a worker, what it knows of the group at hand, and how it gets work."""

from __future__ import annotations

from numba import njit, types

from tridiag.kernels.access.load_store import TABLE, bytes_of_row, lanes_of
from tridiag.kernels.access.rows import NAN, PLANES, ZERO
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import OPERANDS
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.runtime.workspace import aligned
from tridiag.kernels.simd.memory import free, malloc, set_byte, set_word, word
from tridiag.kernels.simd.steps import Steps
from tridiag.kernels.simd.vector import LINE, OPTIONS
from tridiag.kernels.thomas.loops import WIDE

BLOCK = 64  # rows eliminated at a time
STEPS = Steps("thomas_steps")
VERIFIED = 8  # groups side by side whose pivot rows are kept at a time, beside their bands and those of the next
# what `tridiag.kernels.cyclic.kernel` keeps, in rows of lanes: for each row, and beside all rows
CYCLIC_DEPTH, CYCLIC_STATE = 3, 11
# the words of a worker, byte offsets: the addresses of its scratch memory
(
    BINDINGS, MASK, BUFFER, CARRY, GOOD, Y, TILE, STATUS, ERRORS, SWAPS, ONES, ZEROS, NANS, OFFSETS, NO_OFFSETS,
    FACTORS, UNSOLVED, UNREFINED, DEFERRED_BINDINGS,
) = range(0, 152, 8)  # fmt: skip
# ... and what it knows of the tile at hand: the rows that are not taken out, whether all of those are kept, its bands
LOW, HIGH, WHOLE, MEMORY, VIEWS, WORDS = 152, 160, 168, 176, 184, 256


@njit(**OPTIONS)
def exchanges(job):
    """Whether all systems are solved with partial pivoting."""
    return field(job, J.PROMISE) == J.PIVOTED


@njit(**OPTIONS)
def system_of(worker, first, lane):
    """The system in a lane of a group: first + lane, or, where ``first`` is -1, one that waited for refinement."""
    return first + lane if first >= 0 else listed(word(worker + UNREFINED), lane)


@njit(**OPTIONS)
def listed(systems, lane):
    """Of those that were just taken from the end of a list, which begins with its length."""
    return word(systems + 8 * (word(systems) + 1 + lane))


@njit(**OPTIONS)
def allocate_workspace(zero, job):
    """The scratch memory of one worker, in one piece; `free_workspace` gives it back."""
    n, lanes = field(job, J.ROWS), lanes_of(zero, ())
    groups = max(1, (field(job, J.LANES) + lanes - 1) // lanes)
    kept = (n + 1) * (4 if exchanges(job) else 2) * groups
    if field(job, J.PROMISE) == J.AUTO:
        kept = max(kept, (n + 1) * 4 * min(groups, VERIFIED))
    if field(job, J.FLAGS) & J.PERIODIC:
        kept = n * CYCLIC_DEPTH + CYCLIC_STATE
    elif field(job, J.SHARED):
        kept = (n + 1) * WIDE
    return allocate_groups(zero, job, groups, kept, True)


@njit(**OPTIONS)
def allocate_groups(zero, job, groups, kept, uncertified):
    """The same for so many groups at a time, with so many rows of lanes kept, and room for ``uncertified`` systems."""
    n, lanes, row = field(job, J.ROWS), lanes_of(zero, ()), bytes_of_row(zero, ())
    many = field(job, J.SHARED) or field(job, J.RIGHT_SIDES) != 1 or field(job, J.FLAGS) & J.FACTORED != 0
    masked = field(job, J.FLAGS) & J.MASKED != 0
    sizes = (
        aligned(OPERANDS * (TABLE + 8 * lanes)),
        aligned((n + 2) * lanes) if masked else 0,
        4 * BLOCK * row,
        4 * groups * row,
        aligned(8 * groups),
        kept * row,
        PLANES * n * row if uncertified else 0,
        LINE,
        2 * LINE,
        aligned(n * lanes) if uncertified else 0,
        LINE,
        row,
        row,
        LINE,
        LINE,
        n * 3 * row if many else 0,
        aligned(8 * (1 + lanes * (groups + 2))),
        aligned(8 * (1 + lanes * (groups + 3))),
        aligned(OPERANDS * (TABLE + 8 * lanes)),
    )
    total = aligned(WORDS)
    for size in sizes:
        total += size
    memory = malloc(types.uint64(total + LINE))
    if memory == 0:
        return 0
    worker = aligned(memory)
    set_word(worker + MEMORY, memory)
    at = worker + aligned(WORDS)
    for k in range(len(sizes)):
        set_word(worker + 8 * k, at)
        at += sizes[k]
    for k in range(lanes):
        set_byte(word(worker + ONES) + k, 1)
    ZERO(zero, (word(worker + ZEROS), row, 1))
    NAN(zero, (word(worker + NANS), row, 1))
    set_word(word(worker + UNSOLVED), 0)
    set_word(word(worker + UNREFINED), 0)
    for operand in range(OPERANDS):
        set_word(word(worker + NO_OFFSETS) + 8 * operand, 0)
    return worker


@njit(**OPTIONS)
def free_workspace(worker):
    free(word(worker + MEMORY))
