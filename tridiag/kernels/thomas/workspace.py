"""The scratch memory of a worker, what it knows of the group at hand, and how it gets work."""

from __future__ import annotations

from numba import njit, types

from tridiag.kernels.access.load_store import TABLE, bytes_of_row, lanes_of
from tridiag.kernels.jobs import systems as J
from tridiag.kernels.simd.interrupts import stopping
from tridiag.kernels.simd.memory import call, fetch_add, free, malloc, set_byte, set_word, word
from tridiag.kernels.simd.rows import NAN, PLANES, ZERO
from tridiag.kernels.simd.steps import Steps
from tridiag.kernels.simd.vector import LINE, OPTIONS
from tridiag.kernels.thomas.loops import WIDE

A_, B_, C_, WHERE_, D_, X_ = range(6)  # the operands, in the order of a job
OPERANDS = 6
BLOCK = 64  # rows eliminated at a time
STEPS = Steps("thomas_steps")
VERIFIED = 8  # groups side by side whose pivot rows are kept at a time, beside their bands and those of the next
# what `tridiag.kernels.cyclic.kernel` keeps, in rows of lanes: for each row, and beside all rows
CYCLIC_DEPTH, CYCLIC_STATE = 3, 11
# the words of a worker, byte offsets: the addresses of its scratch memory
(
    AIMS, MASK, BUFFER, CARRY, GOOD, Y, TILE, STATUS, ERRORS, SWAPS, ONES, ZEROS, NANS, OFFSETS, NO_OFFSETS, FACTORS,
    UNSOLVED, UNREFINED, WAITING_AIMS,
) = range(0, 152, 8)  # fmt: skip
# ... and what it knows of the tile at hand: the rows that are not taken out, whether all of those are kept, its bands
LOW, HIGH, WHOLE, MEMORY, VIEWS, WORDS = 152, 160, 168, 176, 184, 256


@njit(**OPTIONS)
def field(job, k):
    return word(job + 8 * k)


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
def reports(job):
    """Whether anybody asks for systems while they are in cache."""
    return field(job, J.AFTER) != 0


@njit(**OPTIONS)
def report(job, first, count):
    """Tell whom it concerns that the systems first, first + 1, ... are solved."""
    if reports(job) and count > 0:
        call(field(job, J.AFTER), (job, first, count))


@njit(**OPTIONS)
def aligned(count):
    """A length in bytes rounded up to whole cache lines."""
    return (count + LINE - 1) // LINE * LINE


@njit(**OPTIONS)
def hire(zero, job):
    """The scratch memory of one worker, in one piece; `dismiss` gives it back."""
    n, lanes = field(job, J.ROWS), lanes_of(zero, ())
    groups = max(1, (field(job, J.LANES) + lanes - 1) // lanes)
    kept = (n + 1) * (4 if exchanges(job) else 2) * groups
    if field(job, J.PROMISE) == J.AUTO:
        kept = max(kept, (n + 1) * 4 * min(groups, VERIFIED))
    if field(job, J.FLAGS) & J.PERIODIC:
        kept = n * CYCLIC_DEPTH + CYCLIC_STATE
    elif field(job, J.SHARED):
        kept = (n + 1) * WIDE
    return allot(zero, job, groups, kept, True)


@njit(**OPTIONS)
def allot(zero, job, groups, kept, hard):
    """The same for so many groups at a time, with so many rows of lanes kept, and room for ``hard`` systems."""
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
        PLANES * n * row if hard else 0,
        LINE,
        2 * LINE,
        aligned(n * lanes) if hard else 0,
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
def dismiss(worker):
    free(word(worker + MEMORY))


@njit(**OPTIONS)
def claim(job):
    """An item that no thread has taken, or -1, also where the job is to end.

    As many stretches of items as there are threads are walked in turn: threads that are side by side in fresh memory
    would both clear the huge page that they touch first.
    """
    stretches, items = field(job, J.HELPERS) + 1, field(job, J.ITEMS)
    length = (items + stretches - 1) // stretches
    while not stopping():
        count = fetch_add(job, 1)
        item = count % stretches * length + count // stretches
        if count >= stretches * length:
            return -1
        if item < items:
            return item
    return -1


@njit(**OPTIONS)
def part_of_item(job, item):
    """The run of an item, and its right sides k0 <= k < k1."""
    chunks, length = field(job, J.CHUNKS), field(job, J.CHUNK)
    k0 = item % chunks * length
    return item // chunks, k0, min(field(job, J.RIGHT_SIDES), k0 + length)
