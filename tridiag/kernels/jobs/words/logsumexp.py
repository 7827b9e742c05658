"""The job of `tridiag.kernels.logsumexp.kernel`."""

from __future__ import annotations

from tridiag.kernels.jobs.words.job import Job
from tridiag.kernels.jobs.words.record import Word, Words
from tridiag.kernels.jobs.words.systems import AXIS_WORDS as AXIS_WORDS

LOG_A, INIT, TERMS, RESULT = range(4)
OPERANDS = 4
REVERSED, WEIGHTED, GIVEN = 1, 2, 4  # flags: the last row comes first; there is log_a; there is init
SHORT = 8  # sequences of FEWEST to MOST steps lie end to end, in all operands
FEWEST, MOST = 2, 8


class Logsumexp(Job):
    """Behind it, for each batch axis: its length, and the strides of as many operands as systems have."""

    pointers = Words(OPERANDS)
    strides = Words(OPERANDS)  # along the axis, in bytes
    start = Words(OPERANDS)  # how many bytes behind its pointer the first row of an operand lies
    rows, lanes, flags, matrices, chunks, matrix_axes, interleaved = (Word() for _ in range(7))
    tail, slots = Word(), Word()  # the rows behind the last chunk; the states before chunks


AXES = Logsumexp.words
