"""How far solutions are above what is promised: componentwise backward errors in a wider type, and what excuses them.

As in `benchmarks/accuracy.py`: denominators that rounding to subnormal numbers can reach are kept away from zero
(LAPACK's xGERFS); "auto" may reach 8 eps for condition numbers up to 1e-3/eps, beyond twice the error of elimination
with partial pivoting in the dtype. True may reach 8 eps, or twice that, of the normwise error. Where nothing is
refined, an entry whose quotient by another one of its row is subnormal has the error that this has (Demmel 1984,
Underflow and the reliability of numerical software). False is for dominant matrices, and where it
fills, as in chunks, its error is normwise too: an unknown is as exact as the largest one that it is found from.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from guarded.accuracy_breeding import Array, Systems

BAR, WELL_CONDITIONED = 8.0, 1e-3
WIDE = {"float32": np.float64, "complex64": np.complex128, "float64": np.longdouble, "complex128": np.clongdouble}


class Matrix(NamedTuple):
    """The bands as they act: couplings that are cut are 0, a transpose is written out, corners are in place."""

    below: Array
    diagonal: Array
    above: Array
    d: Array


def acting(systems: Systems, periodic: bool = False, transpose: bool = False) -> Matrix:
    a, b, c, d, keep = systems
    a, c = a.copy(), c.copy()
    a[~(keep & np.roll(keep, 1, 1))] = 0
    c[~(keep & np.roll(keep, -1, 1))] = 0
    if not periodic:
        a[:, 0] = c[:, -1] = 0
    if transpose:
        a, c = np.roll(c, 1, 1), np.roll(a, -1, 1)
    return Matrix(a, np.where(keep, b, 1), c, np.where(keep, d, 0))


def wide(matrix: Matrix) -> Matrix:
    kind = WIDE[matrix.diagonal.dtype.name]
    return Matrix(*(x.astype(kind) for x in matrix))


def size(x: Array) -> Array:
    """The modulus; of wide complex numbers without `hypot`, which is slow there and not needed."""
    return np.sqrt(x.real * x.real + x.imag * x.imag) if x.dtype == np.clongdouble else abs(x)


def errors(matrix: Matrix, x: Array, dtype: str, pivoting: Any = "auto", fills: bool = False) -> Array:
    """The backward error of every system in eps, inf where a result is not finite.

    Normwise under True, and under False where elimination ``fills``.
    """
    normwise = pivoting is True or (pivoting is False and fills)
    info, n = np.finfo(dtype), x.shape[1]
    kind, smallest = WIDE[dtype], 4 * np.longdouble(info.tiny) / info.eps
    real = np.float64 if kind in (np.float64, np.complex128) else np.longdouble
    x_wide, right = x.astype(kind), matrix.d.astype(kind)
    a, b, c = (band.astype(kind) for band in matrix[:3])
    sizes = [size(v).astype(real) for v in (*matrix, x)]
    if pivoting != "auto":
        least = info.tiny * np.maximum(1, sizes[0] + sizes[1] + sizes[2])
        sizes[:3] = [np.where(v > 0, np.maximum(v, least), v) for v in sizes[:3]]
    below, above = (np.arange(n) - 1) % n, (np.arange(n) + 1) % n
    with np.errstate(all="ignore"):
        residual = size(right - b * x_wide - a * x_wide[:, below] - c * x_wide[:, above])
        if normwise:
            norm = (sizes[0] + sizes[1] + sizes[2]).max(1)
            scale = norm * sizes[4].max(1) + sizes[3].max(1)
            error = residual.max(1) / np.maximum(scale, smallest * np.maximum(1, norm)) / info.eps
        else:
            scale = sizes[3] + sizes[1] * sizes[4] + sizes[0] * sizes[4][:, below] + sizes[2] * sizes[4][:, above]
            floor = smallest * np.maximum(1, sizes[0] + sizes[1] + sizes[2])
            error = (residual / np.maximum(scale, floor)).max(1) / info.eps
        error = error.astype(float)
    return np.where(np.isfinite(error) & np.isfinite(x).all(1), error, np.inf)


def dense(matrix: Matrix) -> Array:
    m, n = matrix.diagonal.shape
    made, rows = np.zeros((m, n, n), matrix.diagonal.dtype), np.arange(n)
    for band, columns in zip(matrix[:3], ((rows - 1) % n, rows, (rows + 1) % n), strict=True):
        made[:, rows, columns] += band
    return made


def eliminated_rows(matrix: Matrix, right: Array) -> Array:
    """The same for matrices without corners, right (m, n, k): as LAPACK's gtsv does it."""
    a, b, c = (x.T[..., None] for x in matrix[:3])
    right = np.ascontiguousarray(np.moveaxis(right, 1, 0))
    rows, kept, zero = [], [], np.zeros_like(b[0])
    with np.errstate(all="ignore"):
        pivot, beside, carried = b[0], c[0], right[0]
        for i in range(1, len(b)):
            swap = size(a[i]) > size(pivot)
            upper = np.where(swap, a[i], pivot), np.where(swap, b[i], beside), np.where(swap, c[i], zero)
            lower = np.where(swap, pivot, a[i]), np.where(swap, beside, b[i]), np.where(swap, zero, c[i])
            factor = lower[0] / np.where(upper[0] == 0, np.nan, upper[0])
            pivot, beside = lower[1] - factor * upper[1], lower[2] - factor * upper[2]
            first = np.where(swap, right[i], carried)
            carried = np.where(swap, carried, right[i]) - factor * first
            rows.append(upper)
            kept.append(first)
        x = np.zeros((len(b) + 2, *carried.shape), carried.dtype)
        for i, row, y in zip(
            range(len(b) - 1, -1, -1), [(pivot, zero, zero), *rows[::-1]], [carried, *kept[::-1]], strict=True
        ):
            x[i] = (y - row[1] * x[i + 1] - row[2] * x[i + 2]) / np.where(row[0] == 0, np.nan, row[0])
    return np.moveaxis(x[: len(b)], 0, 1)


def eliminated(left: Array, right: Array) -> Array:
    """left^-1 right by Gauss with partial pivoting, all systems at once in their own type; NaN where singular."""
    n = left.shape[1]
    work = np.concatenate((left, right), 2)
    with np.errstate(all="ignore"):
        for k in range(n):
            chosen = k + size(work[:, k:, k]).argmax(1)[:, None, None]
            row = np.take_along_axis(work, chosen, 1)
            np.put_along_axis(work, chosen, work[:, k : k + 1], 1)
            work[:, k : k + 1] = row
            factor = work[:, k + 1 :, k : k + 1] / np.where(row[..., k : k + 1] == 0, np.nan, row[..., k : k + 1])
            work[:, k + 1 :, k:] -= factor * row[..., k:]
        x = work[..., n:]
        for k in range(n - 1, -1, -1):
            pivot = work[:, k, k, None]
            x[:, k] /= np.where(pivot == 0, np.nan, pivot)
            x[:, :k] -= work[:, :k, k, None] * x[:, k : k + 1]
    return x


class Verdict(NamedTuple):
    """Of every system: its error over the bar that it has (0 where it is excused), the condition, LAPACK's error."""

    excess: Array
    condition: Array
    reference: Array


def judged(matrix: Matrix, x: Array, error: Array, dtype: str, pivoting: Any, flushes: bool = False) -> Verdict:
    """Closer than `errors`, for some systems only: it inverts. ``flushes``: subnormal numbers are taken for 0."""
    info = np.finfo(dtype)
    lapack, truth, condition = solved_again(matrix, dtype)
    reference = errors(matrix, lapack, dtype, pivoting)
    well = condition <= WELL_CONDITIONED / float(info.eps)
    bar = np.where(well & (pivoting == "auto"), BAR, np.maximum(BAR, 2 * reference))
    if pivoting is False:  # on matrices that are dominant in rows
        bar = np.full(len(x), BAR)
    most = np.longdouble(info.max) / 4
    with np.errstate(all="ignore"):
        reach = np.maximum(size(matrix.d.astype(truth.dtype)).max(1), size(truth).max(1))
        for band in matrix[:3]:
            reach = np.maximum(reach, size(band.astype(truth.dtype)).max(1) * size(truth).max(1))
        held = np.isfinite(condition) & (condition < 0.1 / info.eps) & (reach < most)
        if pivoting is False:
            held &= dominant(matrix, dtype)
        if flushes:
            held &= corrections_are_normal(matrix, truth, dtype)
        excess = np.where(held, np.where(np.isfinite(bar), error / bar, 0), 0)
    return Verdict(excess, condition, reference)


def corrections_are_normal(matrix: Matrix, truth: Array, dtype: str) -> Array:
    """Systems where what is missing in the last digit of an unknown is no subnormal number, beside any entry."""
    info = np.finfo(dtype)
    entries, unknowns = np.concatenate([size(band) for band in wide(matrix)[:3]], 1), size(truth)
    least, small = (np.where(v > 0, v, np.inf).min(1) for v in (entries, unknowns))
    return info.eps * small * (least / entries.max(1)) > info.tiny


def dominant(matrix: Matrix, dtype: str) -> Array:
    """Matrices whose rows, or whose columns, are dominant."""
    below, diagonal, above, _ = (size(band) for band in wide(matrix))
    rounded = diagonal * (1 + 8 * np.finfo(dtype).eps)
    rows, columns = below + above, np.roll(above, 1, 1) + np.roll(below, -1, 1)
    return (rows <= rounded).all(1) | (columns <= rounded).all(1)


def solved_again(matrix: Matrix, dtype: str) -> tuple[Array, Array, Array]:
    """x by partial pivoting in the dtype, x in the wider type, and the condition in the maximum norm."""
    right, long = matrix.d[..., None], wide(matrix)
    m, n = matrix.d.shape
    both = np.concatenate((long.d[..., None], np.broadcast_to(np.eye(n, dtype=long.d.dtype), (m, n, n))), 2)
    if matrix.below[:, 0].any() or matrix.above[:, -1].any():
        lapack, found = eliminated(dense(matrix), right)[..., 0], eliminated(dense(long), both)
    else:
        lapack, found = eliminated_rows(matrix, right)[..., 0], eliminated_rows(long, both)
    with np.errstate(all="ignore"):
        norm = (size(long.below) + size(long.diagonal) + size(long.above)).max(1)
        condition = norm * size(found[..., 1:]).sum(2).max(1)
    return lapack, found[..., 0], np.where(np.isfinite(condition), condition, np.inf)
