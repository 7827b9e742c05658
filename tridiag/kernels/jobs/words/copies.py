"""The job of copies of the diagonals of matrices: whether each row shows that its matrix is regular.

The operands, in the order of their pointers: a, b and c, which lie alike and without gaps, the storage, or none where
the rows are only looked at, and perhaps an int32 that is not zero then where some row does not show it.
"""

from __future__ import annotations

from tridiag.kernels.jobs.words.job import Job
from tridiag.kernels.jobs.words.record import Word, Words

A, B, C, STORAGE, DOUBTFUL = range(5)


class Copies(Job):
    """``edge`` entries make up a row of neighbours, and all their rows ``cycle`` entries."""

    pointers = Words(5)
    places = Words(3)  # where the copies begin, in bytes behind the first cache line of the storage
    entries, edge, cycle = Word(), Word(), Word()
    block = Word()  # entries of an item
    large = Word()  # whether the copies are larger than the caches
