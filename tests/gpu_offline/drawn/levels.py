"""Matrices whose rows and columns are multiplied by powers of 2, so that their entries are of one size."""

from __future__ import annotations

import numpy as np
from guarded.accuracy_bars import Matrix

from drawn import Array

SWEEPS = 64


def beside(columns: Array) -> tuple[Array, ...]:
    """What the three entries of a row are multiplied by where columns are."""
    return np.roll(columns, 1, -1), columns, np.roll(columns, -1, -1)


def levels(matrix: Matrix) -> tuple[Array, Array]:
    """The powers for rows and for columns: the best of each in turn, in the sense of least squares; columns about 0."""
    sizes = np.array([abs(v) for v in matrix[:3]])
    there, powers = (sizes > 0) & np.isfinite(sizes), np.frexp(sizes)[1]
    columns = np.zeros(matrix.diagonal.shape, int)
    for _ in range(SWEEPS):
        rows = -mean(powers + np.array(beside(columns)), there)
        columns = -mean(by_columns(powers + rows), by_columns(there))
    middle = (columns.max(1, keepdims=True) + columns.min(1, keepdims=True)) // 2
    return rows + middle, columns - middle


def by_columns(entries: Array) -> Array:
    """Those that lie in the column of an unknown."""
    return np.array([np.roll(v, k, -1) for k, v in zip((-1, 0, 1), entries, strict=True)])


def mean(powers: Array, there: Array) -> Array:
    """Of those that count, along the first axis, rounded."""
    return np.rint((powers * there).sum(0) / np.maximum(there.sum(0), 1)).astype(int)


def times(x: Array, power: Array) -> Array:
    """x times a power of 2."""
    if x.dtype.kind == "c":
        return (np.ldexp(x.real, power) + 1j * np.ldexp(x.imag, power)).astype(x.dtype)
    return np.ldexp(x, power)


def levelled(matrix: Matrix, x: Array) -> tuple[Matrix, Array]:
    """The same systems, and solutions."""
    rows, columns = levels(matrix)
    bands = [times(v, rows + k) for v, k in zip(matrix[:3], beside(columns), strict=True)]
    right = times(matrix.d, rows)
    size = np.frexp(abs(right).max(1, keepdims=True))[1]
    return Matrix(*bands, times(right, -size)), times(x, -columns - size)
