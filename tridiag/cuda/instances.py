"""Every kernel that the package may ask for: what is compiled, checked and counted without a GPU."""

from __future__ import annotations

import itertools

from tridiag.cuda.job import TYPES
from tridiag.cuda.launcher import Kernel

# The rows of a chunk, by dtype: few for short systems; as many as 128 registers a thread hold without a spill anywhere
CHUNKS = {"float32": (8, 14), "float64": (4, 8), "complex64": (4, 8), "complex128": (3,)}
CHUNK_THREADS = 512
HARD_THREADS = 128
FORMS = ("Tridiagonal", "Cyclic")


def flag(value: bool) -> str:
    return "true" if value else "false"


def chunks(dtype: str, rows: int, together: bool, certified: bool) -> Kernel:
    name = f"chunks<{TYPES[dtype]}, {rows}, {flag(together)}, {flag(certified)}>"
    return Kernel("chunks.cu", name, CHUNK_THREADS)


def pivoted(dtype: str, periodic: bool) -> Kernel:
    return Kernel("pivoted.cu", f"pivoted<{TYPES[dtype]}, {FORMS[periodic]}>", HARD_THREADS)


BOTH = (False, True)
INSTANCES = [
    *(
        chunks(dtype, rows, together, certified)
        for dtype in TYPES
        for rows, together, certified in itertools.product(CHUNKS[dtype], BOTH, BOTH)
    ),
    *(pivoted(dtype, periodic) for dtype in TYPES for periodic in BOTH),
]
