"""The job of a solve, and of what else is done with tridiagonal matrices."""

from __future__ import annotations

from tridiag.kernels.jobs.words.job import Job
from tridiag.kernels.jobs.words.record import Word, Words

A_, B_, C_, WHERE_, D_, X_ = range(6)  # the operands, in the order of a job
OPERANDS = 6


class Systems(Job):
    """Behind it, for each batch axis, matrices first: its length, and the strides of all operands."""

    pointers = Words(OPERANDS)
    status, factors, certificates, logarithm = Word(), Word(), Word(), Word()
    # of `tridiag.kernels.thomas.adjoint`: x, and three outputs, which `tridiag.kernels.thomas.inverse_entries` has too
    solution, gradients = Word(), Words(3)
    relations = Word()  # of `tridiag.kernels.parts`: what is told of parts, or what they are finished with
    stamps = Word()  # of `tridiag.kernels.thomas.stamps`: a word for each matrix, or 0
    strides = Words(OPERANDS)  # along the system axis, in bytes
    rows, lanes, tiles, flags, promise = Word(), Word(), Word(), Word(), Word()
    matrices, right_sides, chunks, shared, matrix_axes, right_axes = Word(), Word(), Word(), Word(), Word(), Word()
    interleaved, stretches, chunk = Word(), Word(), Word()  # ``chunk``: right sides in a chunk
    # of `tridiag.kernels.thomas.row_blocks`: blocks of rows, the spans of neighbours, groups of a span, rows of a
    # chunk, those that it looks at beyond itself; the address of the records; whether no system agrees; 0, or the
    # address of a byte for each system, zero where it is solved; how many are not
    # of `tridiag.kernels.thomas.windows`, the last two: rows of a window that it alone stores, and those before them
    blocks, spans, span_groups, height, overlap = Word(), Word(), Word(), Word(), Word()
    records, hopeless, doubts, again = Word(), Word(), Word(), Word()
    # of `tridiag.kernels.thomas.both_ends`: systems along the last axis, or 0; what is kept of certified ones. The
    # former also of `tridiag.kernels.thomas.few_sides`: all of them
    abreast, ends = Word(), Word()
    # the address of a word with that of the kernel to which systems without certificate are left, or 0; how many more
    # threads it may have; a byte for each system, not zero where it is left, or 0, and whether any is
    hard, hard_helpers, marks, marked = Word(), Word(), Word(), Word()
    # of `tridiag.kernels.thomas.both_ends`: where words with the good lanes of groups are, or 0; how many; the systems
    # of a group
    good, good_words, group = Word(), Word(), Word()
    # of STORED: the bytes of a, b and c; where in the storage copies of these begin, then factors, certificates and
    # status, which so many bytes hold; the address of the storage's first cache line; whether it is larger than caches
    sizes, places, bytes_of_status, storage, large = Words(3), Words(6), Word(), Word(), Word()


AXES = Systems.words
AXIS_WORDS = 1 + OPERANDS

TRANSPOSE, PERIODIC, MASKED, FACTORED, FACTORING, DETERMINANT = 1, 2, 4, 8, 16, 32
ADJOINT = 256  # for the kernel of `tridiag.kernels.thomas.adjoint`
LINED, LARGE = 64, 128  # all rows of x begin at the same place of a cache line; x is larger than the caches
SIDE_BY_SIDE, END_TO_END = 1024, 2048  # so systems lie in memory; the former with ``abreast``, the latter of few rows
FEWEST_ROWS, MOST_ROWS = 2, 7  # of real numbers that are sorted in registers where systems lie end to end
# systems of so few rows lie evenly spaced, each operand in a way of its own; a complex number takes the place of two
GATHERED, MOST_GATHERED = 4096, 8
WINDOWS = 16384  # FACTORED: the systems are windows of the rows of one (`tridiag.kernels.thomas.windows`)
ENTRIES = 32768  # for the kernel of `tridiag.kernels.thomas.inverse_entries`
STORED = 8192  # FACTORING, to a storage, whose address is the pointer to factors
LARGE_GRADIENTS = 512  # in place of LARGE, where x is read again and the gradients of a, b and c are not
PLAIN, PIVOTED, AUTO = 0, 1, 2
# of a system: certified; to be eliminated again, see `tridiag.kernels.thomas.refine`; certified from both ends too, of
# which there are factors behind the others
CERTIFIED, UNCERTIFIED, FROM_BOTH_ENDS = 0, 1, 2
