"""Hard systems wait until they fill a vector: what few lanes of a group need is not done for all of them.

What becomes of a system depends on its numbers alone, not on its neighbours: it is pivoted as in
`tridiag.kernels.thomas.sweeps`; should that not be good enough, it waits for the divisions and the refinement of
`tridiag.kernels.thomas.refine`. In jobs that have no use for the former, all hard systems wait for the latter.
"""

from __future__ import annotations

from tridiag.kernels.access.bind import offset, operand_of
from tridiag.kernels.access.operands import bind, bytes_of_real, bytes_of_row, lanes_of, parts_of
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import A_, B_, C_, D_, OPERANDS, X_
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import set_byte, set_word, word
from tridiag.kernels.simd.vector import LINE
from tridiag.kernels.thomas.bind import read_mask
from tridiag.kernels.thomas.pivoted_vector import EXCHANGE_VERIFIED
from tridiag.kernels.thomas.refine import FINISH_GROUP
from tridiag.kernels.thomas.sweeps import ROWS_PIVOTED
from tridiag.kernels.thomas.workspace import (
    STEPS,
    listed,
)


@compiled
def may_wait(job):
    """Whether systems may be put off: their right sides stay as they are."""
    return job.promise == J.AUTO and job.pointers[D_] != job.pointers[X_]


@compiled
def some_wait(worker):
    return word(worker.unsolved) | word(worker.unrefined) != 0


@compiled
def verifiable(zero, job):
    """Whether hard systems are pivoted and verified: all lie side by side, or contiguous and longer than a line."""
    n, entry, contiguous = job.rows, bytes_of_real(zero, ()) * parts_of(zero, ()), True
    for k in (A_, B_, C_, D_, X_):
        contiguous = contiguous and job.strides[k] == entry
    laid = n > 1 if job.interleaved else contiguous and n * entry > LINE
    return laid and job.flags & J.MASKED == 0


@compiled
def put_off(systems, first, lanes):
    """Some lanes of a group of systems first, first + 1, ... to a list."""
    lane = 0
    while lanes >> lane:
        if lanes >> lane & 1:
            append(systems, first + lane)
        lane += 1


@compiled
def mark(job, first, lanes):
    """Mark some lanes of a group of systems first, first + 1, ... for another kernel."""
    lane = 0
    while lanes >> lane:
        if lanes >> lane & 1:
            set_byte(job.marks + first + lane, 1)
        lane += 1
    job.marked = 1


@compiled
def take_back(systems, before, first, lanes):
    """From a list that had ``before`` systems those that lie in some lanes of the group from ``first`` on."""
    kept = before
    for k in range(before, word(systems)):
        system = word(systems + 8 * (k + 1))
        if not lanes >> (system - first) & 1:
            kept += 1
            set_word(systems + 8 * kept, system)
    set_word(systems, kept)


@compiled
def append(systems, system):
    count = word(systems) + 1
    set_word(systems + 8 * count, system)
    set_word(systems, count)


@compiled
def take(zero, systems):
    """How many of the last ones of a list are taken from it: a vector, or all."""
    used = min(lanes_of(zero, ()), word(systems))
    set_word(systems, word(systems) - used)
    return used


@compiled
def catch_up(zero, job, worker, fewest):
    """Solve systems that wait, until no list has as many as ``fewest``."""
    bindings, unsolved, unrefined = worker.bindings, worker.unsolved, worker.unrefined
    worker.bindings = worker.deferred_bindings
    while word(unsolved) >= fewest:
        used = take(zero, unsolved)
        bind_listed(zero, job, worker, unsolved, used)
        fine = EXCHANGE_VERIFIED(zero, (job, worker, used))
        for lane in range(used):
            if not fine >> lane & 1:
                append(unrefined, listed(unsolved, lane))
    while word(unrefined) >= fewest:
        used = take(zero, unrefined)
        bind_listed(zero, job, worker, unrefined, used)
        refine_listed(zero, job, worker, used)
    worker.bindings = bindings


CATCH_UP = STEPS.add_step(catch_up)


@compiled
def refine_listed(zero, job, worker, used):
    """Refine systems just taken from the list of those that wait for it."""
    uncertified, nothing = worker.no_offsets, worker.zeros
    FINISH_GROUP(zero, (job, worker, -1, used, uncertified, nothing, 0))


@compiled
def refine_in_cache(zero, job, worker, fewest, poor, first, solution, step):
    """Refine the last ``poor`` of the systems that wait, while they are as many as ``fewest``.

    Their solutions are in pivot rows, ``step`` bytes from row to row, that of system ``first`` from ``solution`` on.
    """
    lanes, row, entry = lanes_of(zero, ()), bytes_of_row(zero, ()), bytes_of_real(zero, ()) * parts_of(zero, ())
    bindings, unrefined = worker.bindings, worker.unrefined
    worker.bindings = worker.deferred_bindings
    while poor >= fewest:
        used = min(poor, lanes)
        poor -= used
        set_word(unrefined, word(unrefined) - used)
        bind_listed(zero, job, worker, unrefined, used)
        target = operand_of(zero, worker.bindings, X_)
        for lane in range(lanes):
            system = listed(unrefined, lane if lane < used else 0) - first
            target.lanes[lane] = solution + system // lanes * (ROWS_PIVOTED * row) + system % lanes * entry
        bind(zero, target, entry, step, used == 1, True, used)
        target.ahead = 0
        refine_listed(zero, job, worker, used)
    worker.bindings = bindings


@compiled
def bind_listed(zero, job, worker, systems, used):
    """Point a group at systems just taken from a list; lanes that are not used repeat the first."""
    lanes, axes, bindings = lanes_of(zero, ()), job.matrix_axes, worker.bindings
    itemsize = bytes_of_real(zero, ()) * parts_of(zero, ())
    for operand in range(OPERANDS):
        target, pointer = operand_of(zero, bindings, operand), job.pointers[operand]
        for lane in range(lanes):
            system = listed(systems, lane if lane < used else 0)
            target.lanes[lane] = pointer + offset(job, J.AXES, axes, system, operand)
        bind(zero, target, itemsize, job.strides[operand], used == 1, operand == X_, used)
        target.ahead = 0  # the next group is anywhere
    read_mask(zero, job, worker)
