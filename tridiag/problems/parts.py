"""How parts of systems are cut into chunks, which are parts themselves.

Where systems are too few to fill the lanes of vectors, or so long that what is kept of them leaves the caches.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

LONGEST = 8192  # rows of a chunk: c' and y' of a vector of them are 1 MiB
SHORTEST = 256  # rows of a chunk, where systems are cut for the lanes alone
VECTORS = 4  # of chunks, at least, where they can be filled
LINE = 64  # bytes of a vector
ONE_SET = 4096  # bytes: lanes that far apart share a set of the innermost cache


class Chunks(NamedTuple):
    """How many chunks a part is cut into, and their rows; the last rows are in none."""

    number: int
    rows: int


def chunks_of(n: int, systems: int, dtype: np.dtype[Any]) -> Chunks:
    """Enough chunks for the lanes, few enough to be short themselves."""
    wanted = VECTORS * (LINE // dtype.type(0).real.itemsize) / max(1, systems)
    return alike(n, max(math.ceil(n / LONGEST), min(math.ceil(wanted), n // SHORTEST), 1), dtype)


def alike(n: int, count: int, dtype: np.dtype[Any]) -> Chunks:
    """So many chunks of rows, none of which lies in the set of the innermost cache that the one before lies in."""
    rows = n // count
    if count > 1 and rows * dtype.itemsize % ONE_SET == 0:
        rows -= 4
    return Chunks(count, rows)
