"""`cupy.random`: a generator whose numbers are NumPy's, drawn in the dtypes that CuPy's draws in."""

from __future__ import annotations

from typing import Any

import numpy as np

from cupy.arrays import made, ndarray


class Generator:
    def __init__(self, seed: int | None) -> None:
        self._random = np.random.default_rng(seed)

    def standard_normal(self, size: Any = None, dtype: Any = float) -> ndarray:
        if np.dtype(dtype) not in (np.dtype("float32"), np.dtype("float64")):
            raise TypeError("cupy.random only supports float32 and float64")
        return made(self._random.standard_normal(size, dtype))


def default_rng(seed: int | None = None) -> Generator:
    return Generator(seed)
