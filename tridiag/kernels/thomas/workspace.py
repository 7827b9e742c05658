"""The scratch memory of a worker, what it knows of the group at hand, and how it gets work."""

from __future__ import annotations

from tridiag.kernels.access.operands import bytes_of_row, lanes_of, size_of_operand
from tridiag.kernels.access.rows import NAN, PLANES, ZERO
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.record import Word, Words
from tridiag.kernels.jobs.words.systems import OPERANDS
from tridiag.kernels.runtime.workspace import Workspace, aligned, workspace
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import set_byte, set_word, word
from tridiag.kernels.simd.records import address_of
from tridiag.kernels.simd.steps import Steps
from tridiag.kernels.simd.vector import LINE
from tridiag.kernels.thomas.factored_loops import WIDE
from tridiag.kernels.thomas.steps import Bordered
from tridiag.kernels.thomas.sweeps import CARRIED, CARRIED_PIVOTED, KEPT, ROWS_PIVOTED, ROWS_PLAIN

BLOCK = 64  # rows eliminated at a time
AT_ONCE = 1024  # unknowns of systems of few rows, end to end
PITCH = 1024  # bytes of a row of systems that are gathered at a time
SPARE = J.MOST_ROWS * LINE  # bytes of an operand of a vector of them
STEPS = Steps("thomas_steps")
VERIFIED = 8  # groups side by side whose pivot rows are kept at a time, beside their bands and those of the next
# what `tridiag.kernels.cyclic` keeps, in rows of lanes: for each row, and behind all rows the last row, what is carried
# and x[n-1]
BORDERED, BORDERED_END = KEPT[Bordered], 4 + CARRIED[Bordered] + 1


class ThomasWorkspace(Workspace):
    """What a worker has: its arrays, and what it knows of the tile at hand.

    ``mask``: that of the group at hand, between those of the last row and the first; ``masks``: of groups side by side,
    of some rows of one, or of systems of few rows, end to end.
    ``kept``: what the sweep downwards keeps of each row for the one upwards, `sweeps.KEPT` rows of lanes: c' and y' of
    plain elimination, before whose first row, row ``low``, lies one of zeros; or a pivot row.
    ``carry``: what a sweep goes on with where it was left.
    ``short``: x of systems of few rows that are sorted in registers; ``short_good``: a word with the certified lanes of
    each of their groups; ``short_spare``: a, b, c, d and x of those that fill no vector, or of
    systems that are gathered.
    """

    bindings, mask, masks, buffer, carry, good, kept, tile, status, errors = (Word() for _ in range(10))
    swaps, ones, zeros, nans, offsets, no_offsets, factors = (Word() for _ in range(7))
    unsolved, unrefined, deferred_bindings, short, short_good, short_spare = (Word() for _ in range(6))
    divided = Word()
    low, high, whole = Word(), Word(), Word()  # the rows that are not taken out; whether all of those are kept
    views = Words(8)  # of each band of a block of rows: where its first row lies, and how far the next one is


ARRAYS, allocate, free_workspace = workspace(
    ThomasWorkspace, "bindings", "mask", "masks", "buffer", "carry", "good", "kept", "tile", "status", "errors",
    "swaps", "ones", "zeros", "nans", "offsets", "no_offsets", "factors", "unsolved", "unrefined", "deferred_bindings",
    "short", "short_good", "short_spare", "divided",
)  # fmt: skip


@compiled
def exchanges(job):
    """Whether all systems are solved with partial pivoting."""
    return job.promise == J.PIVOTED


@compiled
def system_of(worker, first, lane):
    """The system in a lane of a group: first + lane, or, where ``first`` is -1, one that waited for refinement."""
    return first + lane if first >= 0 else listed(worker.unrefined, lane)


@compiled
def listed(systems, lane):
    """Of those that were just taken from the end of a list, which begins with its length."""
    return word(systems + 8 * (word(systems) + 1 + lane))


@compiled
def allocate_workspace(zero, job):
    """The scratch memory of one worker, in one piece; `free_workspace` gives it back."""
    n, lanes = job.rows, lanes_of(zero, ())
    groups = max(1, (job.lanes + lanes - 1) // lanes)
    kept = (n + 1) * (ROWS_PIVOTED if exchanges(job) else ROWS_PLAIN) * groups
    if job.promise == J.AUTO:
        kept = max(kept, (n + 1) * ROWS_PIVOTED * min(groups, VERIFIED))
    if job.flags & J.PERIODIC:
        kept = n * BORDERED + BORDERED_END
    elif job.shared:
        kept = (n + 1) * WIDE
    return allocate_groups(zero, job, groups, kept, True)


@compiled
def rows_of_masks(job, groups, tiles):
    """Rows of lanes of masks that are gathered: those of ``tiles``; else of a block of rows, and what it looks at."""
    return job.rows * groups if tiles else job.rows // max(1, job.blocks) + 2 * job.overlap + 3


@compiled
def allocate_groups(zero, job, groups, kept, uncertified):
    """The same for so many groups at a time, with so many rows of lanes kept, and room for ``uncertified`` systems."""
    n, lanes, row = job.rows, lanes_of(zero, ()), bytes_of_row(zero, ())
    many, masked = job.shared or job.right_sides != 1 or job.flags & J.FACTORED != 0, job.flags & J.MASKED != 0
    many = many and job.flags & J.DETERMINANT == 0
    bindings, lists = aligned(OPERANDS * size_of_operand(zero, ())), 8 * (1 + lanes * (groups + 2))
    mask = aligned((n + 2) * lanes) if masked else 0
    masks = aligned(rows_of_masks(job, groups, uncertified) * lanes) if masked and job.interleaved != 0 else 0
    if masked and job.flags & J.END_TO_END != 0:
        masks = AT_ONCE
    tile, swaps = (PLANES * n * row, aligned(n * lanes)) if uncertified else (0, 0)
    factors = n * 3 * row if many else 0
    short, short_good, spare = 0, 0, 0
    if job.flags & J.END_TO_END != 0:
        short, short_good = AT_ONCE // lanes * row, aligned(8 * (AT_ONCE // lanes // J.FEWEST_ROWS))
        spare = 5 * SPARE
    elif job.flags & J.GATHERED != 0:
        short, short_good = J.MOST_GATHERED * PITCH, aligned(8 * (PITCH // LINE))
        spare = 5 * J.MOST_GATHERED * PITCH
    elif job.flags & J.FACTORED != 0 and n <= J.MOST_ROWS:
        spare = 2 * J.MOST_ROWS * PITCH
    arrays = ARRAYS(
        bindings=bindings,
        mask=mask,
        masks=masks,
        buffer=4 * BLOCK * row,
        carry=CARRIED_PIVOTED * groups * row,
        good=aligned(8 * groups),
        kept=kept * row,
        tile=tile,
        status=LINE,
        errors=2 * LINE,
        swaps=swaps,
        ones=LINE,
        zeros=row,
        nans=row,
        offsets=LINE,
        no_offsets=LINE,
        factors=factors,
        unsolved=aligned(lists),
        unrefined=aligned(lists + 8 * lanes),
        deferred_bindings=bindings,
        short=short,
        short_good=short_good,
        short_spare=spare,
        divided=LINE,
    )
    worker = allocate(arrays)
    if address_of(worker) == 0:
        return worker
    for k in range(lanes):
        set_byte(worker.ones + k, 1)
    ZERO(zero, (worker.zeros, row, 1))
    NAN(zero, (worker.nans, row, 1))
    set_word(worker.unsolved, 0)
    set_word(worker.unrefined, 0)
    for operand in range(OPERANDS):
        set_word(worker.no_offsets + 8 * operand, 0)
    return worker
