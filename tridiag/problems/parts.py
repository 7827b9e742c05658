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


ENDS = 32, 256  # rows at the ends of a chunk, at least and at most, in which couplings may decay
FEWEST_ENDS = 4  # times as many rows has a chunk of which the ends alone are looked at


class Chunks(NamedTuple):
    """How many chunks a part is cut into, and their rows; the last rows are in none."""

    number: int
    rows: int
    ends: int = 0  # so many rows at either end of each are meant, and not the rows between; 0: all rows are

    @property
    def lengths(self) -> tuple[int, ...]:
        """Of the axes that stand for that of rows."""
        return (self.number, 2, self.ends) if self.ends else (self.number, self.rows)

    @property
    def steps(self) -> tuple[int, ...]:
        """The rows from one entry of these axes to the next."""
        return (self.rows, self.rows - self.ends, 1) if self.ends else (self.rows, 1)


def chunks_of(n: int, systems: int, dtype: np.dtype[Any]) -> Chunks:
    """Enough chunks for the lanes, few enough to be short themselves."""
    wanted = VECTORS * (LINE // dtype.type(0).real.itemsize) / max(1, systems)
    return alike(n, max(math.ceil(n / LONGEST), min(math.ceil(wanted), n // SHORTEST), 1), dtype)


def with_ends(n: int, systems: int, dtype: np.dtype[Any]) -> Chunks | None:
    """Chunks of all rows, so long that their ends are few of these; None where there are no such."""
    least = chunks_of(n, systems, dtype).number
    for count in range(least, 2 * least + 1):
        chunks = alike(n, count, dtype)
        ends = max(ENDS[0], min(ENDS[1], chunks.rows // ENDS[0]))
        if count * chunks.rows == n and chunks.rows >= FEWEST_ENDS * ends:
            return chunks._replace(ends=ends)
    return None


def alike(n: int, count: int, dtype: np.dtype[Any]) -> Chunks:
    """So many chunks of rows, none of which lies in the set of the innermost cache that the one before lies in."""
    rows = n // count
    if count > 1 and rows * dtype.itemsize % ONE_SET == 0:
        rows -= 4
    return Chunks(count, rows)
