"""Every kernel that the package may ask for: what is compiled, checked and counted without a GPU."""

from __future__ import annotations

import itertools

from tridiag.cuda.record import Kernel
from tridiag.cuda.sequences import MOST
from tridiag.cuda.struct import TYPES

# The rows of a chunk, odd: few for short systems; as many as the registers of a block hold without a spill
CHUNKS = {"float32": (7, 13), "float64": (3, 7), "complex64": (3, 7), "complex128": (3, 5)}
RUNS = {"float32": 13, "float64": 7, "complex64": 7, "complex128": 5}  # ... of a long system
# ... of a recurrence, at most: a tile takes the shared memory that every device gives a block
TILES = {"float32": 41, "float64": 21, "complex64": 21, "complex128": 9}
REGISTERS = {"float32": 64, "float64": 32, "complex64": 32, "complex128": 16}  # the rows that a thread holds by itself
CHUNK_THREADS = {"float32": 512, "float64": 512, "complex64": 512, "complex128": 256}
RUN_THREADS, THOMAS_THREADS, HARD_THREADS, CHUNKED_THREADS = 256, 128, 128, 256
REALS = tuple(dtype for dtype in TYPES if not dtype.startswith("complex"))
# the rows of a pair that a thread has, by the derivatives that are wanted
ALIGNED_ROWS = {
    (dtype, wanted): 4 if (dtype, wanted) == ("float32", 0) else 2 for dtype in REALS for wanted in range(3)
}
COLUMN_THREADS, LOGARITHM_THREADS, MATRIX_THREADS, TILE_THREADS, ALIGNMENT_THREADS = 256, 128, 128, 128, 256
SCANS = {  # of first order
    "linear_recurrence": "linear_tiles",
    "logcumsumexp": "logarithmic_tiles",
    "log_linear_recurrence": "weighted_tiles",
}
MATRICES = (2, 4, 8, 16)  # the most rows of the matrices of one
# the lanes of a block tridiagonal system, by the rows of its blocks: for few right sides, and for many
WIDTHS = {1: (8, 32), 2: (8, 32), 3: (16, 32), 4: (16, 32), 5: (16, 32), 6: (32,), 7: (32,), 8: (32,)}
BLOCK_THREADS = 128
STATES = 8  # at most, of the models of series that are filtered, and values observed in a step
FILTER_THREADS, ROOT_THREADS = 64, 32  # of a filter; with square roots a thread has more in shared memory
FORMS = ("Tridiagonal", "Cyclic")


def named(source: str, template: str, threads: int, dtype: str, *arguments: bool | int | str) -> Kernel:
    names = [str(x).lower() if isinstance(x, bool) else str(x) for x in arguments]
    return Kernel(source, f"{template}<{', '.join((TYPES[dtype], *names))}>", threads)


def chunks(dtype: str, rows: int, together: bool, certified: bool) -> Kernel:
    return named("chunks.cu", "chunks", CHUNK_THREADS[dtype], dtype, rows, together, certified)


def reduce(dtype: str, together: bool) -> Kernel:
    return named("partition.cu", "reduce", RUN_THREADS, dtype, RUNS[dtype], together)


def expand(dtype: str, together: bool, certified: bool) -> Kernel:
    return named("partition.cu", "expand", RUN_THREADS, dtype, RUNS[dtype], together, certified)


def thomas(dtype: str, rows: int, together: bool, certified: bool) -> Kernel:
    return named("thomas.cu", "thomas", THOMAS_THREADS, dtype, rows, together, certified)


def pivoted(dtype: str, periodic: bool) -> Kernel:
    return named("pivoted.cu", "pivoted", HARD_THREADS, dtype, FORMS[periodic])


def pivoted_chunks(dtype: str) -> Kernel:
    return named("pivoted_chunks.cu", "pivoted_chunks", CHUNKED_THREADS, dtype)


def determinants(dtype: str, periodic: bool) -> Kernel:
    return named("pivoted.cu", "determinants", HARD_THREADS, dtype, FORMS[periodic])


def linear(dtype: str, order: int) -> Kernel:
    return named("recurrences.cu", "linear", COLUMN_THREADS, dtype, order)


def logarithmic(dtype: str, weighted: bool) -> Kernel:
    return named("recurrences.cu", "logarithmic", LOGARITHM_THREADS, dtype, weighted)


def tiles(dtype: str, verb: str, together: bool, chained: bool) -> Kernel:
    return named("scans.cu", SCANS[verb], TILE_THREADS, dtype, together, chained)


def matrices(dtype: str, rows: int) -> Kernel:
    return named("recurrences.cu", "matrices", MATRIX_THREADS, dtype, rows)


def blocks(dtype: str, rows: int, width: int) -> Kernel:
    return named("blocks.cu", "blocks", BLOCK_THREADS, dtype, rows, width)


def alignment(dtype: str, is_affine: bool, derivatives: int) -> Kernel:
    rows = ALIGNED_ROWS[dtype, derivatives]
    return named("alignment.cu", "alignment", ALIGNMENT_THREADS, dtype, is_affine, derivatives, rows)


def kalman(dtype: str, states: int, backwards: bool, by_roots: bool) -> Kernel:
    """The pass forwards of a filter, or the one backwards of a smoother."""
    threads = ROOT_THREADS if by_roots else FILTER_THREADS
    verb = "smoother" if backwards else "filter"
    return named(f"{verb}.cu", verb, threads, dtype, states, by_roots)


def gradient(dtype: str, states: int, by_roots: bool) -> Kernel:
    """Of log-likelihoods."""
    return named("gradient.cu", "gradient", ROOT_THREADS if by_roots else FILTER_THREADS, dtype, states, by_roots)


def verbs_of(dtype: str) -> tuple[str, ...]:
    """Those of first order; logarithms are real."""
    return tuple(SCANS)[: 1 if dtype.startswith("complex") else None]


BOTH = (False, True)
INSTANCES = [
    kernel
    for dtype in TYPES
    for kernel in (
        *(chunks(dtype, *facts) for facts in itertools.product(CHUNKS[dtype], BOTH, BOTH)),
        *(reduce(dtype, together) for together in BOTH),
        *(expand(dtype, *facts) for facts in itertools.product(BOTH, BOTH)),
        *(thomas(dtype, *facts) for facts in itertools.product((0, REGISTERS[dtype]), BOTH, BOTH)),
        *(pivoted(dtype, periodic) for periodic in BOTH),
        pivoted_chunks(dtype),
        *(determinants(dtype, periodic) for periodic in BOTH),
        *(linear(dtype, order) for order in range(1, MOST + 1)),
        *(matrices(dtype, rows) for rows in MATRICES),
        *(tiles(dtype, *facts) for facts in itertools.product(verbs_of(dtype), BOTH, BOTH)),
        *(logarithmic(dtype, weighted) for weighted in BOTH if dtype in REALS),
        *(blocks(dtype, rows, width) for rows, widths in WIDTHS.items() for width in widths),
        *(alignment(dtype, *facts) for facts in itertools.product(BOTH, range(3)) if dtype in REALS),
        *(kalman(dtype, *facts) for facts in itertools.product(range(1, STATES + 1), BOTH, BOTH) if dtype in REALS),
        *(gradient(dtype, *facts) for facts in itertools.product(range(1, STATES + 1), BOTH) if dtype in REALS),
    )
]
