"""The words of the job of a recurrence; those that any kernel has are as in `tridiag.kernels.jobs.words.systems`.

The operands, in the order of their pointers: the result, x, the coefficients, and the values before the first step.
"""

from __future__ import annotations

from tridiag.kernels.jobs.words import systems as J

STEPS, SEQUENCES, KIND, RUN, FLAGS, LENGTH, STRETCH, STRETCHES, AXES = range(2, 11)
BLOCKS = J.CHUNK  # of each sequence, where it is cut,
CHUNK = 11  # ... and the steps of each lane in a block
SIDES = 12  # right sides of a block tridiagonal matrix
TABLE = 42  # for each operand its stride along the axis, in the order of the steps, and the offset of its first step;
# for each batch axis its length, and the strides of all operands; in bytes

SCALAR, ROWS, INTERLEAVED, SPREAD, LONG = range(5)
# SCALAR: one sequence after another. ROWS: sequences contiguous in memory, one a lane. BESIDE: sequences side by side
# in memory; SPREAD: the same with coefficients that all of them share. LONG: few sequences, cut into blocks of lanes.
STARTED, TRANSPOSED, BACKWARD = 1, 2, 4
LARGE = 8  # the result is larger than the caches, past which it is written

Y, X, A = range(3)
MOST = 8  # the highest order: all pointers have a place


def operands(order: int) -> int:
    return 2 + 2 * order
