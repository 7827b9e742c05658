"""Few or small systems: plain elimination from both ends of each, down and up at the same time, to a row in the middle.

A row waits for the one before it, a division and three more operations long. The rows at the two ends do not wait for
each other, so two of them are eliminated in the time of one. It is the elimination of a matrix whose rows and columns
are in another order: what the certificate says is the same. Nothing is bound, claimed or copied, so that a small call
costs little beside its arithmetic. Where some system has no certificate the kernel solves them all, and the others are
then given what they have found here: what a system is does not depend on its neighbours. Or these are solved here and
the hard ones are left to another kernel, which has chunks of them in its lanes where one system each would leave most
lanes empty.
"""

from __future__ import annotations

from typing import Any

from numba import types

from tridiag.kernels.access.bind import offset
from tridiag.kernels.access.operands import bytes_of_real, bytes_of_row, lanes_of, parts_of
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.record import Word
from tridiag.kernels.jobs.words.systems import B_, D_, X_, Systems
from tridiag.kernels.runtime.work_items import field, report
from tridiag.kernels.runtime.workspace import Workspace, workspace
from tridiag.kernels.simd.compiled import compiled, inlined
from tridiag.kernels.simd.memory import c_function, load, set_word, word
from tridiag.kernels.simd.records import RecordAt, address_of, at
from tridiag.kernels.thomas.bands import band_of
from tridiag.kernels.thomas.rows_from_ends import (
    ALL,
    ELIMINATE,
    ELIMINATE_ONE,
    SOME,
    SUBSTITUTE,
    SUBSTITUTE_ONE,
)
from tridiag.kernels.thomas.short_systems import eliminate_short, in_vectors, put_short
from tridiag.kernels.thomas.sweeps import ROWS_PLAIN

JOB = RecordAt(Systems)
UNSOLVED, SOLVED, LEFT = range(3)  # what a trial says of a job; LEFT: hard systems are left to another kernel


class Ends(Workspace):
    """``kept``: for each group c' and y' of its rows, those from the top behind a place for x in the middle.

    ``good``: for each group a word with its certified lanes. ``found``: whether ALL, SOME or none of vectors that were
    sorted in registers are certified.
    """

    kept, good, found = Word(), Word(), Word()


ARRAYS, allocate, give_back = workspace(Ends, "kept", "good")
ends_at = at(Ends)


@compiled
def band_words(zero, job, operand, move, first, width):
    """Where an operand of groups of ``width`` systems begins, at the system ``first``, as a `Band`."""
    axes = job.matrix_axes
    step = field(job, J.AXES + J.AXIS_WORDS * (axes - 1) + 1 + operand) if axes > 0 else 0
    at = job.pointers[operand] + offset(job, J.AXES, axes, first, operand)
    return at, job.strides[operand], step * width, move


@compiled
def width_of(zero, job):
    """The systems of a group."""
    return lanes_of(zero, ()) if job.flags & J.SIDE_BY_SIDE else 1


@compiled
def sizes_of(zero, job):
    """The bytes that are kept of neighbours but those in vectors, and of their good lanes."""
    width, row = width_of(zero, job), bytes_of_row(zero, ())
    groups = (job.abreast - in_vectors(zero, job) + width - 1) // width
    return groups * (job.rows + 1) * ROWS_PLAIN * (row if width > 1 else bytes_of_real(zero, ())), 8 * groups


@compiled
def begin_of_neighbours(zero, job):
    """Where what is kept of those in vectors ends, in bytes, and the words of their good lanes."""
    vectors = in_vectors(zero, job)
    return vectors * job.rows * bytes_of_real(zero, ()), vectors // lanes_of(zero, ()) * 8


@compiled
def places_behind(zero, job, ends, first, sizes):
    """Behind those in vectors: how many neighbours there are from ``first`` on, and what is kept of them."""
    neighbours, (kept, good), (size, goods) = job.abreast, begin_of_neighbours(zero, job), sizes
    k = first // neighbours
    return min(neighbours, job.matrices - first), ends.kept + kept + k * size, ends.good + good + k * goods


@compiled
def of_both(zero, job, ends, found):
    """What is found of neighbours, and of those in vectors: ALL, SOME or 0 of all systems have certificates."""
    vectors = in_vectors(zero, job)
    if vectors == 0:
        return found
    return ends.found if vectors == job.matrices or found == ends.found else SOME


@inlined
def eliminate_neighbours(zero, job, ends, width, sizes, down, more):
    """Systems that are not in vectors, ``job.abreast`` neighbours after the other; ALL, SOME or 0 have certificates.

    ``more``: bands of groups beside those of the systems.
    """
    (a, a_move), (c, c_move), whole, some = band_of(job, 0), band_of(job, 2), True, False
    for first in range(in_vectors(zero, job), job.matrices, job.abreast):
        bands = (
            *band_words(zero, job, a, a_move, first, width),
            *band_words(zero, job, B_, 0, first, width),
            *band_words(zero, job, c, c_move, first, width),
            *band_words(zero, job, D_, 0, first, width),
            *more(zero, job, first),
        )
        found = down(zero, (*bands, job.rows, *places_behind(zero, job, ends, first, sizes)))
        whole, some = whole and found == ALL, some or found != 0
    return ALL if whole else SOME if some else 0


@inlined
def substitute_neighbours(zero, job, ends, width, sizes, up, more):
    for first in range(in_vectors(zero, job), job.matrices, job.abreast):
        bands = *band_words(zero, job, X_, 0, first, width), *more(zero, job, first)
        up(zero, (*bands, job.rows, *places_behind(zero, job, ends, first, sizes)))


def trial(sizes_of: Any, width_of: Any, allocate: Any, give_back: Any, eliminate: Any, substitute: Any) -> Any:
    """(job, zero): SOLVED where this was the job of a schedule; else LEFT or UNSOLVED, and certified systems wait.

    ``allocate`` (zero, job, bytes kept, bytes of good lanes), ``eliminate`` (zero, job, ends) -> ALL, SOME or 0;
    ``width_of`` (zero, job): the systems of which a word of good lanes is.
    """

    @compiled
    def eliminate_from_both_ends(job, zero):
        if job.abreast == 0 or parts_of(zero, ()) != 1:
            return types.int64(UNSOLVED)
        times = job.matrices // job.abreast
        (size, goods), (kept, good) = sizes_of(zero, job), begin_of_neighbours(zero, job)
        ends = allocate(zero, job, kept + times * size, good + times * goods)
        if address_of(ends) == 0:
            return types.int64(UNSOLVED)
        found = eliminate(zero, job, ends)
        if found == 0:
            give_back(ends)
            return types.int64(LEFT if job.hard != 0 else UNSOLVED)
        job.ends = address_of(ends)
        if found == SOME:
            job.good, job.good_words, job.group = ends.good, (good + times * goods) // 8, width_of(zero, job)
            return types.int64(LEFT if job.hard != 0 else UNSOLVED)
        substitute(job, zero)
        job.next = job.items
        return types.int64(SOLVED)

    return eliminate_from_both_ends


@compiled
def nothing_more(zero, job, first):
    return ()


@compiled
def allocate_ends(zero, job, kept, good):
    return allocate(ARRAYS(kept=kept, good=good))


@compiled
def eliminate_all(zero, job, ends):
    """ALL, SOME or 0 of the systems have certificates."""
    width, sizes = width_of(zero, job), sizes_of(zero, job)
    if width > 1:
        return eliminate_neighbours(zero, job, ends, width, sizes, ELIMINATE, nothing_more)
    found = eliminate_neighbours(zero, job, ends, width, sizes, ELIMINATE_ONE, nothing_more)
    vectors = in_vectors(zero, job)
    if vectors != 0:
        eliminate_short(zero, job, vectors, ends.kept, ends.good, ends.addresses.found)
    return of_both(zero, job, ends, found)


@compiled
def substitute_both_ways(job, zero):
    """The solution of the certified systems, of those that are to be solved again if blocks of rows were solved."""
    ends, vectors = ends_at(job.ends), in_vectors(zero, job)
    if job.doubts != 0:
        leave_out(zero, job, ends)
    width, sizes = width_of(zero, job), sizes_of(zero, job)
    if width > 1:
        substitute_neighbours(zero, job, ends, width, sizes, SUBSTITUTE, nothing_more)
    else:
        substitute_neighbours(zero, job, ends, width, sizes, SUBSTITUTE_ONE, nothing_more)
    if vectors != 0:
        put_short(zero, job, vectors, ends.kept, ends.good)
    give_back(ends)
    report(job, 0, job.matrices)


@compiled
def leave_out(zero, job, ends):
    """Systems that are solved are good in no lane; all of them lie side by side."""
    width = width_of(zero, job)
    for k in range(job.matrices):
        if load(job.doubts + k, types.uint8(0)) == 0:
            place = ends.good + k // width * 8
            set_word(place, word(place) & ~(1 << k % width))


FROM_BOTH_ENDS = trial(sizes_of, width_of, allocate_ends, give_back, eliminate_all, substitute_both_ways)
BOTH_ENDS = c_function(FROM_BOTH_ENDS, "tridiag_both_ends", result=types.int64, first=JOB)
SUBSTITUTE_ENDS = c_function(substitute_both_ways, "tridiag_substitute_ends", first=JOB)
