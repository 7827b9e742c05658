"""Few, long systems: each is cut into chunks, one in each lane, and split over threads; two passes, little memory.

Plain elimination: the last row of a chunk is its separator. The first pass finds how the unknowns beside the
separators depend on them, a tridiagonal system of the separators alone follows, and the second pass solves the chunks
between known separators. Where couplings decay the first pass reads only the ends of the chunks (H. H. Wang 1981;
SPIKE).

With pivoting: of a chunk only the columns between its first and its last are eliminated, each among all rows that hold
it, so that no chunk is singular by itself, whatever its length. Two rows a chunk remain.

Of systems of which rows are taken out a byte tells what is left of each row, which plain elimination reads beside it;
with pivoting operands are copied without such rows (`tridiag.kernels.partition.chunk_masks`).

The certificate of plain elimination and the residuals are looked at while a block of chunks is in cache, and the few
rows of no chunk, the first and some last ones, afterwards. What fails is solved again with pivoting, and at last row by
row, which also has the say where a matrix may be singular (`tridiag.kernels.partition.gtsv`).
"""

from __future__ import annotations

import numpy as np
from numba import cfunc, types

from tridiag.kernels.access.operands import bytes_of_row, lanes_of, parts_of
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import Systems
from tridiag.kernels.partition import state as P
from tridiag.kernels.partition.gtsv import FIND_ZERO_PIVOT, NO_MEMORY, SOLVE_SEQUENTIALLY, fill_nan
from tridiag.kernels.partition.operands import (
    CONSTANTS,
    bind,
    copy_neighbours,
    copy_operands,
    cut_operands,
    find,
    place_copies,
    point_at_copies,
)
from tridiag.kernels.partition.phases import RUN_PHASE, SOLVE_PLAINLY, SOLVE_WITH_PIVOTING, room_size
from tridiag.kernels.partition.reduced_system import KEPT
from tridiag.kernels.partition.state import (
    STEPS,
    bytes_of,
    line_height,
)
from tridiag.kernels.runtime.threads import beginning, finish, start
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.compiled import compiled, inlined
from tridiag.kernels.simd.functions import definition
from tridiag.kernels.simd.interrupts import PIECE, stopping, stopping_at
from tridiag.kernels.simd.memory import (
    c_function,
    call,
    fetch_add,
    free,
    load,
    set_half_word,
    word,
)
from tridiag.kernels.simd.records import RecordAt, address_of
from tridiag.kernels.simd.vector import LINE

MOST_ROWS, FEWEST_ROWS = 1016, 32  # of a chunk: with all fields of the former a block of lanes fits in a core's L2
ENOUGH_ROWS, BLOCKS_AT_LEAST = 256, 16  # longer chunks only where there are so many blocks
ROWS_OF_A_BLOCK = 64  # which, one by one, take as long as a block's separators
RUNS = 8  # of blocks that a thread claims: a block that follows another finds its lines asked for
STOP = -(2**40)  # the counter of a job that cannot go on
ALIASED = 1024  # chunks of a multiple of so many bytes would begin in few sets of the cache

JOB = RecordAt(Systems)


# ------------------------------------------------------------------------------------------------ one system


@inlined
def solve_in_chunks(zero, plan, helpers):
    """One system whose operands the sweeps can read; returns its status."""
    promise, solved = plan.promise, False
    bind(zero, plan)
    plan.doubt = 0
    if promise != J.PIVOTED:
        solved = SOLVE_PLAINLY(zero, (plan, helpers)) != 0
    if not solved and promise != J.PLAIN:
        if plan.masked and not cut_operands(zero, plan, helpers):
            return NO_MEMORY
        solved = SOLVE_WITH_PIVOTING(zero, (plan, helpers)) != 0
    if not solved:
        return SOLVE_SEQUENTIALLY(zero, (plan,))
    status = 0
    if promise != J.PLAIN and plan.doubt:
        status = FIND_ZERO_PIVOT(zero, (plan,))
        if status != 0 and promise == J.AUTO:
            status = SOLVE_SEQUENTIALLY(zero, (plan,))  # which scales matrices whose entries are wide apart
        elif status != 0:
            fill_nan(zero, plan)
    return status


@compiled
def fill_zero(zero, plan):
    for i in range(plan.rows):
        if stopping_at(i, PIECE):
            return
        P.set_solution(zero, plan, i, zero)


@compiled
def solve_system(zero, plan, helpers):
    """One system; returns its status. Where one byte says of all rows whether they are kept, no mask is read."""
    if plan.masked and plan.stride[P.WHERE] == 0:
        if not P.is_kept(plan, 0 * plan.rows):
            fill_zero(zero, plan)
            return 0
        plan.masked = 0
    blocks, masked, cut_here = plan.blocks, plan.masked, False
    target, stride = plan.address[P.X], plan.stride[P.X]
    if not copy_operands(zero, plan, helpers):
        return NO_MEMORY
    if blocks == 0:
        status = SOLVE_SEQUENTIALLY(zero, (plan,))
    else:
        status = solve_in_chunks(zero, plan, helpers)
        cut_here = plan.masked != masked
        plan.masked = masked
        plan.address[P.X] = target
        plan.stride[P.X] = stride
        if plan.copy[P.X] or (cut_here and status == 0):
            RUN_PHASE(zero, (plan, P.SCATTER, helpers))
    free(plan.cut)
    return status


SOLVE_SYSTEM = STEPS.add_step(solve_system)


# ------------------------------------------------------------------------------------------------ all systems


@inlined
def chunk_rows_for(zero, n):
    """The rows of a chunk: few enough for the cache and for some blocks, and few rows left that are in no chunk."""
    lanes, height = lanes_of(zero, ()), line_height(zero, ())
    most = max(n // (BLOCKS_AT_LEAST * lanes), min(n // lanes, ENOUGH_ROWS))
    most = max(FEWEST_ROWS, min(MOST_ROWS // parts_of(zero, ()), most) // height * height)
    best, cost = most, n * ROWS_OF_A_BLOCK
    for rows in range(most, max(FEWEST_ROWS, most // 2) - 1, -height):
        blocks = (n - 2) // (rows * lanes)
        trial = n - blocks * rows * lanes + ROWS_OF_A_BLOCK * blocks
        if rows * bytes_of(zero, ()) % ALIASED != 0 and trial < cost:
            best, cost = rows, trial
    return best


@compiled
def room_for(size, blocks):
    """The bytes of an array of such a size: whole lines, and few where the system has no blocks."""
    return (size // LINE + 1) * LINE if blocks > 0 else LINE * 8


@compiled
def allocate_workspace(zero, job, helpers):
    """The plan of one system at a time, and its memory; nothing where there is none."""
    n, lanes, row, side = job.rows, lanes_of(zero, ()), bytes_of_row(zero, ()), bytes_of(zero, ())
    rows = chunk_rows_for(zero, n)
    blocks = max(0, n - 2) // (rows * lanes)
    tail, room = n - 1 - blocks * lanes * rows, room_size(zero, rows)
    plan = P.allocate(
        P.ARRAYS(
            planes=room_for(blocks * P.EACH * row + (blocks + 1) * P.RECORD_SIZE, blocks),
            reduced=room_for((1 + 2 * blocks * lanes + tail) * KEPT * side, blocks),
            windows=room_for((blocks + 1) * P.MOST_LISTED * 8, blocks),
            constants=room_for(CONSTANTS * (lanes * rows * side + LINE), blocks),
            rooms=room_for((helpers + 1) * room, blocks),
            left=room_for(blocks * lanes * rows if job.flags & J.MASKED else 0, blocks),
        )
    )
    if address_of(plan) != 0:
        plan.room_size = room
        plan.blocks, plan.height, plan.rows, plan.tail = blocks, rows, n, tail
        plan.several, plan.apart, plan.marks, plan.spare, plan.spare_size = 1, n * side, 1, 0, 0
        plan.promise, plan.run = job.promise, max(1, blocks // (RUNS * (helpers + 1)))
    return plan


@inlined
def neighbours_of(zero, job):
    """How many systems lie side by side, and how many of these are copied together, as they share lines of memory.

    Of systems that are read where they lie, and of masked ones, each is by itself.
    """
    axes, side = job.matrix_axes, bytes_of(zero, ())
    last = J.AXES + J.AXIS_WORDS * (axes - 1)
    if axes == 0 or job.right_sides != 1 or job.flags & J.MASKED or job.strides[P.X] == side:
        return 1, 1
    if field(job, last + 1 + P.X) != side or job.rows <= FEWEST_ROWS * lanes_of(zero, ()):
        return 1, 1
    return field(job, last), LINE // side


@compiled
def count_items(zero, job):
    """How many systems, or neighbours together, there are for threads to claim."""
    length, together = neighbours_of(zero, job)
    return job.matrices * job.right_sides // length * ((length + together - 1) // together)


@compiled
def is_marked(job, matrix):
    """Whether a system is to be solved here: `tridiag.kernels.thomas` has solved some, where it left others."""
    if job.good != 0:
        words, lane = (job.abreast + job.group - 1) // job.group, matrix % job.abreast
        if word(job.good + 8 * (matrix // job.abreast * words + lane // job.group)) >> lane % job.group & 1:
            return False
    if job.marks != 0 and load(job.marks + matrix, types.uint8(0)) == 0:
        return False
    return job.doubts == 0 or load(job.doubts + matrix, types.uint8(0)) != 0


@inlined
def solve_one(zero, plan, job, system, memory, k, helpers):
    """One system; with ``memory`` its copies there are those of the neighbour k of some."""
    count = job.right_sides
    plan.masked, plan.cut = job.flags & J.MASKED, 0
    find(zero, plan, job, system // count, system % count)
    if memory != 0:
        place_copies(zero, plan, memory)
        point_at_copies(zero, plan, k)
    several, marks = plan.several, plan.marks
    plan.several, plan.marks = 1, 1
    status = SOLVE_SYSTEM(zero, (plan, helpers))
    plan.several, plan.marks = several, marks
    if status == NO_MEMORY:
        job.next = STOP
    elif status != 0:
        job.broken = 1
        if job.status != 0:
            set_half_word(job.status + 4 * (system // count), types.int32(status))


@compiled
def solve_neighbours(zero, plan, job, first, some, helpers):
    """Some systems side by side, copied together if there are several to be solved."""
    marks = 0 * first
    for k in range(some):
        marks |= is_marked(job, (first + k) // job.right_sides) << k
    memory = copy_neighbours(zero, plan, job, first, some, marks, helpers) if marks & (marks - 1) else 0
    for k in range(some):
        if marks >> k & 1 and not stopping():
            solve_one(zero, plan, job, first + k, memory, k, helpers)
    if memory != 0:
        find(zero, plan, job, first, 0 * first)
        place_copies(zero, plan, memory)
        RUN_PHASE(zero, (plan, P.SCATTER, helpers))
        plan.several, plan.marks = 1, 1


@compiled
def serve(job, zero):
    """Claim systems until none is left; called by every thread of a job."""
    helpers, (length, together) = job.helpers, neighbours_of(zero, job)
    plan, parts = allocate_workspace(zero, job, helpers), (length + together - 1) // together
    while address_of(plan) != 0 and not stopping():
        item = fetch_add(job.addresses.next, 1)
        if item < 0 or item >= job.items:
            break
        place = item % parts * together
        solve_neighbours(zero, plan, job, item // parts * length + place, min(together, length - place), helpers)
    if address_of(plan) != 0:
        free(plan.spare)
        P.free_plan(plan)


serve_task = c_function(serve, "tridiag_serve_systems", first=JOB)


@compiled
def solve_all(job, zero):
    """Many systems are split among the threads, few are solved one after the other, each by all threads.

    Few are split too where they have too few blocks for all threads: the threads then pass over fewer in turn.
    """
    helpers, systems, rows = job.helpers, count_items(zero, job), chunk_rows_for(zero, job.rows)
    threads, blocks = helpers + 1, 1 + job.rows // (rows * lanes_of(zero, ()))
    split, in_turn = (systems + helpers) // threads * blocks, (blocks + helpers) // threads * systems
    outer = min(helpers, systems - 1) if systems >= 2 * threads or split < in_turn else 0
    job.next, job.items = 0, systems
    job.helpers = (helpers - outer) // (outer + 1)
    handles = start(serve_task(zero), address_of(job), outer, 0)
    call(serve_task(zero), (job,))
    finish(handles)


whole = c_function(solve_all, "tridiag_solve_all", first=JOB)
define = definition(whole)


def build(dtype: str):
    """The C function void run(job, helpers) for a dtype."""
    zero = np.zeros((), dtype)[()]

    def run(job, helpers):
        define(zero)
        call(beginning(zero), (job, helpers))
        call(whole(zero), (job,))  # as in `threads.runner`

    return cfunc(types.void(types.int64, types.int64), error_model="numpy")(run)
