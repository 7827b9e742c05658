"""The words of a job: one block of int64 that tells a kernel everything, built in Python, read in nopython code."""

(
    NEXT, ITEMS, ROWS, LANES, TILES, FLAGS, PROMISE, MATRICES, RIGHT_SIDES, CHUNKS, SHARED, MATRIX_AXES, RIGHT_AXES,
    HEAD,
) = range(14)  # fmt: skip
HELPERS = 14  # threads beside the calling one
POINTERS = 15  # a, b, c, where, d, x
X = 20
STATUS, FACTORS, CERTIFIED, LOGARITHM = 21, 22, 23, 24
STRIDES = 25  # along the system axis, in bytes, of a, b, c, where, d, x
AXES = 31  # for each batch axis, matrices first: its length, and the six strides
AXIS_WORDS = 7

TRANSPOSE, PERIODIC, MASKED, FACTORED, FACTORING, DETERMINANT = 1, 2, 4, 8, 16, 32
PLAIN, PIVOTED, AUTO = 0, 1, 2
EASY, HARD, DEAD = 0, 1, 2  # of a system: certified; to be pivoted; plain elimination met a zero pivot
