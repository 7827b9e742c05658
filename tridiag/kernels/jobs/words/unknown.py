"""The job of a step of a Kalman filter of which some states begin with an infinite variance.

The operands, in the order of their pointers, one series after another: F, Q, H, R and y of the step, the start, the
state that is carried on, and what is found of it.
"""

from __future__ import annotations

from tridiag.kernels.jobs.words.job import Job
from tridiag.kernels.jobs.words.record import Word, Words

F, Q, H, R, Y, M0, P0 = range(7)
MEAN, PARTS, WEIGHTS, TOLD, TOLD_WEIGHTS, A, SOURCE = range(7, 14)  # as `kalman_diffuse.Diffuse`, columns as rows
COUNTS, DEVIANCE = 14, 15  # of each series: how many columns are known, and how little was expected
TO_DO, FOUND = 16, 17  # which of the following is to be done, and behind it for each item its doubtful series; a word
# for each item: once a step was observed, whether no state is unknown; once it was predicted, and that was asked,
# whether covariances would lose no digits as they stand
COV, SCRATCH = 18, 19
OPERANDS = 20
BEGIN, PREDICT, PREDICT_AND_ASK, OBSERVE, TELL, TELL_ALL = range(6)  # TELL: COV is what is known; TELL_ALL: it is
# infinite elsewhere


class Unknown(Job):
    pointers = Words(OPERANDS)
    series, states, observed, unknown = Word(), Word(), Word(), Word()
    most = Word()  # columns: with more they are made as many as states
    share, room = Word(), Word()  # of an item: how many series it has, and the bytes of scratch memory


def room(states: int, observed: int, unknown: int, most: int) -> int:
    """The numbers of scratch memory."""
    columns = most + states + unknown
    return columns * (states + 2) + 3 * states * states + observed * (states + observed + 3) + 2 * (states + unknown)
