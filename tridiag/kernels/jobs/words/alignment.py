"""The words of an alignment job, for `tridiag.kernels.alignment.kernel`.

Scores and their gradient are contiguous, a matrix for each pair; every other array holds a number for each pair,
lengths two. An output whose address is 0 is not wanted.
"""

from tridiag.kernels.jobs.words import systems as J

# BLOCK: rows whose cells are kept for the backward pass at a time; FRESH: not zero where the gradient is fresh memory;
# WILD: not zero once a group had scores too far apart for `tridiag.kernels.alignment.shared_exponents`
PAIRS, ROWS, COLUMNS, BLOCK, FRESH, CELL_EXPONENTS = range(2, 8)
SCORES, LENGTHS, GAP, GAP_OPEN, TEMPERATURE, SCORE, GRADIENT = range(J.POINTERS, J.POINTERS + 7)
BY_GAP, BY_GAP_OPEN, BY_TEMPERATURE = range(SCORE + 2, SCORE + 5)  # the gradients of the parameters
WORDS = J.AXES

# by the bytes of a real, the highest temperature: scores so many temperatures below 0 that they count as nothing are
# finite numbers still
HOTTEST = {4: 2.0**96, 8: 2.0**960}
