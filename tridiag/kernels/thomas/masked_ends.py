"""Few or small systems of which rows are taken out: as `tridiag.kernels.thomas.both_ends`, two at a time.

Those of few rows that lie end to end are sorted in registers, as there.
"""

from __future__ import annotations

from numba import njit, types

from tridiag.kernels.access.operands import bytes_of_real, lanes_of, parts_of
from tridiag.kernels.jobs.words.record import Word
from tridiag.kernels.jobs.words.systems import B_, D_, WHERE_, X_, Systems
from tridiag.kernels.runtime.work_items import report
from tridiag.kernels.runtime.workspace import Workspace, aligned, workspace
from tridiag.kernels.simd.memory import c_function
from tridiag.kernels.simd.records import RecordAt, address_of, at
from tridiag.kernels.simd.vector import ONCE, OPTIONS
from tridiag.kernels.thomas.bands import band_of
from tridiag.kernels.thomas.both_ends import band_words
from tridiag.kernels.thomas.rows_from_ends import ALL, SOME
from tridiag.kernels.thomas.rows_in_pairs import ELIMINATE_PAIRS, PAIR, SUBSTITUTE_PAIRS
from tridiag.kernels.thomas.short_systems import eliminate_short_masked, in_vectors, masks_end_to_end, put_short
from tridiag.kernels.thomas.sweeps import ROWS_PLAIN

JOB = RecordAt(Systems)


class MaskedEnds(Workspace):
    """As `tridiag.kernels.thomas.both_ends.Ends`, with pairs in place of groups.

    ``masks``: of systems that are sorted in registers, where these do not lie end to end.
    """

    kept, good, masks, found = Word(), Word(), Word(), Word()


ARRAYS, allocate, give_back = workspace(MaskedEnds, "kept", "good", "masks")
ends_at = at(MaskedEnds)


@njit(**OPTIONS)
def sizes_of(zero, job):
    """The bytes that are kept of neighbours but those in vectors, and of their good systems."""
    pairs = (job.abreast - in_vectors(zero, job) + PAIR - 1) // PAIR
    return pairs * (job.rows // 2 + 2) * ROWS_PLAIN * 2 * PAIR * bytes_of_real(zero, ()), 8 * pairs


@njit(**OPTIONS)
def places_of(zero, job, ends, first):
    """Behind those in vectors: how many neighbours there are from ``first`` on, and what is kept of them."""
    vectors, neighbours, (size, goods) = in_vectors(zero, job), job.abreast, sizes_of(zero, job)
    kept, good = vectors * job.rows * bytes_of_real(zero, ()), vectors // lanes_of(zero, ()) * 8
    k = first // neighbours
    return min(neighbours, job.matrices - first), ends.kept + kept + k * size, ends.good + good + k * goods


@njit(**ONCE)
def eliminate_all(zero, job, ends):
    """ALL, SOME or 0 of the systems have certificates."""
    (a, a_move), (c, c_move), vectors = band_of(job, 0), band_of(job, 2), in_vectors(zero, job)
    whole, some = True, False
    for first in range(vectors, job.matrices, job.abreast):
        bands = (
            *band_words(zero, job, a, a_move, first, 1),
            *band_words(zero, job, B_, 0, first, 1),
            *band_words(zero, job, c, c_move, first, 1),
            *band_words(zero, job, D_, 0, first, 1),
            *band_words(zero, job, WHERE_, 0, first, 1),
        )
        found = ELIMINATE_PAIRS(zero, (*bands, job.rows, *places_of(zero, job, ends, first)))
        whole, some = whole and found == ALL, some or found != 0
    if vectors != 0:
        eliminate_short_masked(zero, job, vectors, ends.kept, ends.good, ends.addresses.found, ends.masks)
        whole, some = whole and ends.found == ALL, some or ends.found != 0
    return ALL if whole else SOME if some else 0


@njit(**OPTIONS)
def eliminate_from_both_ends(job, zero):
    """As that of `both_ends`."""
    if job.abreast == 0 or parts_of(zero, ()) != 1:
        return types.int64(0)
    times, (size, goods), vectors = job.matrices // job.abreast, sizes_of(zero, job), in_vectors(zero, job)
    kept, good = vectors * job.rows * bytes_of_real(zero, ()), vectors // lanes_of(zero, ()) * 8
    masks = aligned(vectors * job.rows) if vectors != 0 and not masks_end_to_end(job) else 0
    ends = allocate(ARRAYS(kept=kept + times * size, good=good + times * goods, masks=masks))
    if address_of(ends) == 0:
        return types.int64(0)
    found = eliminate_all(zero, job, ends)
    if found == 0:
        give_back(ends)
        return types.int64(0)
    job.ends = address_of(ends)
    if found == SOME:
        return types.int64(0)
    substitute_both_ways(job, zero)
    job.next = job.items
    return types.int64(1)


@njit(**OPTIONS)
def substitute_both_ways(job, zero):
    """The solution of the certified systems."""
    ends, vectors = ends_at(job.ends), in_vectors(zero, job)
    for first in range(vectors, job.matrices, job.abreast):
        words = *band_words(zero, job, X_, 0, first, 1), *band_words(zero, job, WHERE_, 0, first, 1)
        SUBSTITUTE_PAIRS(zero, (*words, job.rows, *places_of(zero, job, ends, first)))
    if vectors != 0:
        put_short(zero, job, vectors, ends.kept, ends.good)
    give_back(ends)
    report(job, 0, job.matrices)


MASKED_ENDS = c_function(eliminate_from_both_ends, "tridiag_masked_ends", result=types.int64, first=JOB)
SUBSTITUTE_MASKED_ENDS = c_function(substitute_both_ways, "tridiag_substitute_masked_ends", first=JOB)
