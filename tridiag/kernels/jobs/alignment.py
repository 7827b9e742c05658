"""The job of an alignment, from the shape of its scores; pure."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from tridiag.kernels.jobs.batches import LINE
from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.words.alignment import USUAL, Alignment, Kind, Rules

KEPT = 32 * 1024 * 1024  # bytes of the cells that a thread keeps for the backward pass, where they fit
WORTH_A_THREAD = 50_000  # cells
# rows of lanes, for each cell, by whether gaps are affine and the gradients of the parameters wanted
ROWS_KEPT = {(False, False): 3, (False, True): 4, (True, False): 3, (True, True): 6}


def kind_of(parameters: int, derivatives: int, rules: Rules = USUAL) -> str:
    """The kind of kernel for so many parameters, the temperature among them."""
    return Kind(parameters == 3, derivatives == 2, rules).name


def make_job(
    shape: tuple[int, ...], dtype: np.dtype[Any], kind: str, workers: int, shared: tuple[bool, ...] = (False,) * 3
) -> Job:
    """For scores of this shape; ``shared``: which of the three parameters are one number for all pairs."""
    *batch, rows, columns = shape
    pairs = math.prod(batch)
    groups = -(-pairs * dtype.itemsize // LINE)
    affine, gradients, rules = Kind.named(kind)
    block = max(KEPT // (columns * LINE * ROWS_KEPT[affine, gradients]), math.isqrt(rows) + 1)
    fresh = sys.platform == "linux"
    apart = [0 if one else dtype.itemsize for one in shared]
    sizes: dict[str, Any] = {"pairs": pairs, "shape": (rows, columns), "block": min(rows, block), "apart": apart}
    words = Alignment.filled(items=groups, fresh=fresh, cell_exponents=rules != USUAL, **sizes)
    words.flags.writeable = False
    helpers = min(workers, groups) - 1 if math.prod(shape) >= WORTH_A_THREAD else 0
    return Job(("alignment", dtype.name, kind), words, helpers, math.prod(shape))


def all_three(values: list[Any], missing: Any = ...) -> list[Any]:
    """For gap, gap_open and temperature: with linear gaps there is no gap_open."""
    if len(values) == 2:
        return [values[0], values[0] if missing is ... else missing, values[1]]
    return values
