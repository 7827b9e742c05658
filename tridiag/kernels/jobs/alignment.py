"""The job of an alignment, from the shape of its scores; pure."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from tridiag.kernels.jobs.batches import LINE
from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.words.alignment import Alignment

KEPT = 32 * 1024 * 1024  # bytes of the cells that a thread keeps for the backward pass, where they fit
WORTH_A_THREAD = 50_000  # cells
ROWS_KEPT = {"linear": 3, "linear_parameters": 4, "affine": 3, "affine_parameters": 6}  # of lanes, for each cell


def kind_of(parameters: int, derivatives: int) -> str:
    """The kind of kernel for so many parameters, the temperature among them."""
    return ("linear", "affine")[parameters - 2] + ("_parameters" if derivatives == 2 else "")


def make_job(
    shape: tuple[int, ...], dtype: np.dtype[Any], kind: str, workers: int, shared: tuple[bool, ...] = (False,) * 3
) -> Job:
    """For scores of this shape; ``shared``: which of the three parameters are one number for all pairs."""
    *batch, rows, columns = shape
    pairs = math.prod(batch)
    groups = -(-pairs * dtype.itemsize // LINE)
    block = max(KEPT // (columns * LINE * ROWS_KEPT[kind]), math.isqrt(rows) + 1)
    fresh = sys.platform == "linux"
    apart = [0 if one else dtype.itemsize for one in shared]
    sizes: dict[str, Any] = {"pairs": pairs, "shape": (rows, columns), "block": min(rows, block), "apart": apart}
    words = Alignment.filled(items=groups, fresh=fresh, **sizes)
    words.flags.writeable = False
    helpers = min(workers, groups) - 1 if math.prod(shape) >= WORTH_A_THREAD else 0
    return Job(("alignment", dtype.name, kind), words, helpers, math.prod(shape))


def all_three(values: list[Any], missing: Any = ...) -> list[Any]:
    """For gap, gap_open and temperature: with linear gaps there is no gap_open."""
    if len(values) == 2:
        return [values[0], values[0] if missing is ... else missing, values[1]]
    return values
