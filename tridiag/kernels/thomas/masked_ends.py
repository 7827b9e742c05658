"""Few or small systems of which rows are taken out: as `tridiag.kernels.thomas.both_ends`, two at a time.

Those of few rows that lie end to end are sorted in registers, as there.
"""

from __future__ import annotations

from numba import types

from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.jobs.words.record import Word
from tridiag.kernels.jobs.words.systems import WHERE_, Systems
from tridiag.kernels.runtime.work_items import report
from tridiag.kernels.runtime.workspace import Workspace, aligned, workspace
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import c_function
from tridiag.kernels.simd.records import RecordAt, at
from tridiag.kernels.thomas.both_ends import (
    band_words,
    eliminate_neighbours,
    of_both,
    substitute_neighbours,
    trial,
)
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


@compiled
def sizes_of(zero, job):
    """The bytes that are kept of neighbours but those in vectors, and of their good systems."""
    pairs = (job.abreast - in_vectors(zero, job) + PAIR - 1) // PAIR
    return pairs * (job.rows // 2 + 2) * ROWS_PLAIN * 2 * PAIR * bytes_of_real(zero, ()), 8 * pairs


@compiled
def pair(zero, job):
    return PAIR


@compiled
def masks_of_pairs(zero, job, first):
    return band_words(zero, job, WHERE_, 0, first, 1)


@compiled
def allocate_ends(zero, job, kept, good):
    vectors = in_vectors(zero, job)
    masks = aligned(vectors * job.rows) if vectors != 0 and not masks_end_to_end(job) else 0
    return allocate(ARRAYS(kept=kept, good=good, masks=masks))


@compiled
def eliminate_all(zero, job, ends):
    """ALL, SOME or 0 of the systems have certificates."""
    vectors, sizes = in_vectors(zero, job), sizes_of(zero, job)
    found = eliminate_neighbours(zero, job, ends, 1, sizes, ELIMINATE_PAIRS, masks_of_pairs)
    if vectors != 0:
        eliminate_short_masked(zero, job, vectors, ends.kept, ends.good, ends.addresses.found, ends.masks)
    return of_both(zero, job, ends, found)


@compiled
def substitute_both_ways(job, zero):
    """The solution of the certified systems."""
    ends, vectors = ends_at(job.ends), in_vectors(zero, job)
    substitute_neighbours(zero, job, ends, 1, sizes_of(zero, job), SUBSTITUTE_PAIRS, masks_of_pairs)
    if vectors != 0:
        put_short(zero, job, vectors, ends.kept, ends.good)
    give_back(ends)
    report(job, 0, job.matrices)


FROM_BOTH_ENDS = trial(sizes_of, pair, allocate_ends, give_back, eliminate_all, substitute_both_ways)
MASKED_ENDS = c_function(FROM_BOTH_ENDS, "tridiag_masked_ends", result=types.int64, first=JOB)
SUBSTITUTE_MASKED_ENDS = c_function(substitute_both_ways, "tridiag_substitute_masked_ends", first=JOB)
