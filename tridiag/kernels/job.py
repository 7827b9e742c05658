"""The words of a job: one block of int64 that tells a kernel everything, built in Python, read in nopython code."""

NEXT, ITEMS, ROWS, LANES, FLAGS, PROMISE, MATRICES, RIGHT_SIDES, CHUNKS, SHARED, MATRIX_AXES, RIGHT_AXES = range(12)
POINTERS = 12  # a, b, c, where, d, x
X = 17
STATUS, FACTORS, CERTIFIED, LOGARITHM = 18, 19, 20, 21
STRIDES = 22  # along the system axis, in bytes, of a, b, c, where, d, x
AXES = 28  # for each batch axis, matrices first: its length, and the six strides
AXIS_WORDS = 7

TRANSPOSE, PERIODIC, MASKED, FACTORED, FACTORING, DETERMINANT = 1, 2, 4, 8, 16, 32
PLAIN, PIVOTED, AUTO = 0, 1, 2
