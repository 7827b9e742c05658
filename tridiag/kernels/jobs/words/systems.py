"""The words of a job: one block of int64 that tells a kernel everything, built in Python, read in nopython code."""

(
    NEXT, ITEMS, ROWS, LANES, TILES, FLAGS, PROMISE, MATRICES, RIGHT_SIDES, CHUNKS, SHARED, MATRIX_AXES, RIGHT_AXES,
    INTERLEAVED, STRETCHES, HEAD,
) = range(16)  # fmt: skip
HELPERS = 16  # threads beside the calling one
POINTERS = 17
A, B, C, WHERE, D, X = range(POINTERS, POINTERS + 6)
STATUS, FACTORS, CERTIFICATES, LOGARITHM = 23, 24, 25, 26
SOLUTION, GRADIENTS = 27, 28  # of `tridiag.kernels.thomas.adjoint`: x, and three outputs
AFTER = 31  # a C function f(job, first, count) that is called after every tile of systems with one right side each
STRIDES = 32  # along the system axis, in bytes, of a, b, c, where, d, x
BROKEN = 38  # not zero: elimination met a zero pivot in some system
TASK = 39  # the C function that every thread of a job calls
OWNED = 40  # memory of the job's own, to be freed at its end
CHUNK = 41  # right sides in a chunk
# of `tridiag.kernels.thomas.row_blocks`: blocks of rows, the spans of neighbours, groups of a span, rows of a chunk,
# those that it looks at beyond itself; the address of the records; whether no system agrees; a byte for each system
# that is to be solved again, and how many there are
BLOCKS, SPANS, SPAN_GROUPS, HEIGHT, OVERLAP, RECORDS, HOPELESS, DOUBTS, AGAIN = range(42, 51)
AXES = 51  # for each batch axis, matrices first: its length, and the six strides
AXIS_WORDS = 7

# Of `tridiag.kernels.logsumexp.kernel`: the operands, from POINTERS and from STRIDES on; how many bytes behind its
# pointer the first row of an operand lies (four words); the rows behind the last chunk; the states before chunks.
LOG_A, INIT, TERMS, RESULT = range(4)
START, TAIL, SLOTS = 27, 24, 25
REVERSED, WEIGHTED, GIVEN = 1, 2, 4  # flags: the last row comes first; there is log_a; there is init

TRANSPOSE, PERIODIC, MASKED, FACTORED, FACTORING, DETERMINANT = 1, 2, 4, 8, 16, 32
ADJOINT = 256  # for the kernel of `tridiag.kernels.thomas.adjoint`
LINED, LARGE = 64, 128  # all rows of x begin at the same place of a cache line; x is larger than the caches
LARGE_GRADIENTS = 512  # in place of LARGE, where x is read again and the gradients of a, b and c are not
PLAIN, PIVOTED, AUTO = 0, 1, 2
CERTIFIED, UNCERTIFIED = 0, 1  # of a system: certified; to be eliminated again, see `tridiag.kernels.thomas.refine`

A_, B_, C_, WHERE_, D_, X_ = range(6)  # the operands, in the order of a job
OPERANDS = 6
