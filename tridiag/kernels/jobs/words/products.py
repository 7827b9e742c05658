"""The job of a product of tridiagonal matrices with vectors.

The operands, in the order of their pointers: the result, x, the three diagonals, and the mask or none.
"""

from __future__ import annotations

from tridiag.kernels.jobs.words.job import Job
from tridiag.kernels.jobs.words.record import Word, Words

Y, X, A, B, C, WHERE = range(6)
OPERANDS = 6


class Products(Job):
    """Behind it, for each batch axis: its length, and the strides of all operands.

    What is left of the batch is walked as units: ``length`` rows of ``width`` entries side by side. Entries may also be
    rows of their own, of width 0: then ``edge`` of them make up a row of the matrix, and a matrix ``cycle`` of them.
    """

    pointers = Words(OPERANDS)
    strides = Words(OPERANDS)  # from row to row, in bytes
    steps = Words(OPERANDS)  # from entry to entry of a row, in bytes
    length, width, edge, cycle = Word(), Word(), Word(), Word()
    period = Word()  # entries of a matrix where many are computed at a time, or 0
    room = Word()  # bytes for each source whose entries are brought side by side, or repeated
    flags, units, blocks, block, run, axes = Word(), Word(), Word(), Word(), Word(), Word()


AXES = Products.words
PIECE = 256  # entries that are brought side by side at a time
AXIS_WORDS = 1 + OPERANDS
TRANSPOSE, PERIODIC, MASKED, LARGE, END_TO_END, ONE_BY_ONE = 1, 2, 4, 8, 16, 32  # flags
# LARGE: the result is larger than the caches. END_TO_END: matrices of at least two rows lie so, as x does. ONE_BY_ONE:
# entries are, in blocks of rows, each of which has all units before the next block
