"""The job of an alignment, for `tridiag.kernels.alignment.kernel`."""

from __future__ import annotations

from tridiag.kernels.jobs.words.job import Job
from tridiag.kernels.jobs.words.record import Word, Words


class Alignment(Job):
    """Scores and their gradient are contiguous, a matrix a pair; other arrays hold a number for each, lengths two.

    A parameter may be one number for all. An output whose address is 0 is not wanted.
    """

    scores, lengths = Word(), Word()
    parameters = Words(3)  # gap, gap_open, temperature
    score, gradient = Word(), Word()
    by_parameters = Words(3)  # the gradients of these
    pairs, shape = Word(), Words(2)  # ``shape``: rows and columns
    block = Word()  # rows whose cells are kept for the backward pass at a time
    fresh = Word()  # not zero where the gradient is fresh memory
    # not zero once a group had scores too far apart for `tridiag.kernels.alignment.shared_exponents`
    cell_exponents = Word()
    apart = Words(3)  # bytes from the parameter of a pair to that of the next; 0: one for all


# by the bytes of a real, the highest temperature: scores so many temperatures below 0 that they count as nothing are
# finite numbers still
HOTTEST = {4: 2.0**96, 8: 2.0**960}
