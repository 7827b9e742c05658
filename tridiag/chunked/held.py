"""Whether what is solved of a system is held until all of it is known, or let go and solved again.

A result may be let go when no row that is still unknown can change it. Until then its chunks are held, which takes as
much memory as the solution of the systems of a chunk of the batch; where that is too much, and arguments can be made
again, chunks are solved twice: once to learn the rows around the cuts, and once for the result.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence

import dask.array as da
import dask.config
import numpy as np
from dask.utils import parse_bytes

from tridiag.chunked.operands import Operands

SETTING = "tridiag.hold"  # of Dask's configuration: bytes, or words as "2 GiB"
PART = 4  # of the memory of the machine, that may be held where the setting says nothing


def limit() -> float:
    """How many bytes may be held of the systems of a chunk of the batch."""
    told = dask.config.get(SETTING, None)
    if told is not None:
        return float(parse_bytes(told))
    if not hasattr(os, "sysconf"):
        return math.inf
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / PART


def is_held(operands: Operands, again: Sequence[bool]) -> bool:
    """Whether solved chunks of a system are held. ``again``: which arguments can be made again.

    They are where an argument as large as the solution would have to be held in their place.
    """
    axis = operands.axis
    shape = [sum(lengths) if k == axis else max(lengths) for k, lengths in enumerate(operands.chunks)]
    if math.prod(shape) * np.dtype(operands.plan.out_dtype).itemsize <= limit():
        return True
    every = math.prod(map(sum, operands.chunks))
    arrays = zip(operands.arrays.values(), again, strict=True)
    return any(isinstance(x, da.Array) and not made and x.size == every for x, made in arrays)
