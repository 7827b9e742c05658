"""The job of a recurrence, and of block tridiagonal systems.

The operands, in the order of their pointers: the result, x, the coefficients, and the values before the first step.
"""

from __future__ import annotations

from tridiag.kernels.jobs.batches import LINE
from tridiag.kernels.jobs.words.job import Job
from tridiag.kernels.jobs.words.record import Word, Words

Y, X, A = range(3)
MOST = 8  # the highest order: all pointers have a place


# of a vector of the result, of x, and of what is before; of a column and of a row of a matrix
NUMBERS = OF_Y, OF_X, OF_INIT, OF_COLUMN, OF_ROW = range(5)


def operands(order: int) -> int:
    return 2 + 2 * order


class Recurrences(Job):
    """Behind it, in bytes: for each operand its stride along the axis, in the order of the steps; for each, the offset
    of its first step; for each batch axis its length, and the strides of all operands.
    """

    pointers = Words(operands(MOST))
    steps, sequences, kind, run, flags = Word(), Word(), Word(), Word(), Word()
    length, stretch, stretches, axes = Word(), Word(), Word(), Word()
    blocks, chunk = Word(), Word()  # of each sequence, where it is cut, and the steps of each lane in a block
    sides = Word()  # right sides of a block tridiagonal matrix
    group = Word()  # sequences of a selective scan that a thread takes at a time
    numbers = Words(len(NUMBERS))  # STRIDED: the bytes from number to number, by the constants above


TABLE = Recurrences.words

SCALAR, ROWS, INTERLEAVED, SPREAD, LONG, STREAM, STRIDED = range(7)
# SCALAR: one sequence after another. ROWS: sequences contiguous in memory, one a lane. INTERLEAVED: sequences side by
# side in memory; SPREAD: the same with coefficients that all of them share. LONG: few sequences, cut into blocks of
# lanes. STREAM: sequences that lie end to end, a vector of steps at a time. STRIDED: as SCALAR, of vectors and matrices
# whose numbers lie anywhere.
STARTED, TRANSPOSED, BACKWARD = 1, 2, 4
LARGE = 8  # the result is larger than the caches, past which it is written
FAR = 16  # the operands do not fit in the second level: they are asked for ahead of use
END_TO_END = 32  # with constant coefficients: sequences are read as one, which begins in memory where another ends
APART = 64  # steps are joined as those of a contiguous result, in scratch memory, and copied to where the result lies
WRITTEN_OUT = 8  # the rows of the largest matrices whose products are written out, and no loop
MANY, FEWEST, MOST = 32, 2, 4  # sequences, at least two vectors, and steps of those that are sorted in registers
NARROW = 64  # bytes: matrices with shorter rows lie in a few vectors, which takes less than to bring them into lanes
ABREAST = 4  # sequences of small vectors that are computed together, each in vectors of its own


def narrow(m: int, itemsize: int) -> bool:
    """Whether recurrences of vectors of m such numbers are computed one sequence after another."""
    return m <= WRITTEN_OUT and m * itemsize < NARROW


def size_of_factors(lanes: int, order: int) -> int:
    """Bytes of what steps hand on to a vector: a cache line for each half of lanes, and each of its last steps."""
    return LINE * sum(min(2**k, order) for k in range(lanes.bit_length()))
