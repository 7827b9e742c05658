"""cuSPARSE's tridiagonal routines on host memory, as strict as the real ones and as rude.

They take pointers, check what cuSPARSE checks, refuse memory that no allocation of the stand-in covers, fill their
whole buffer, leave NaN in the arrays that they may destroy, and give whatever division by a zero pivot gives.
"""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import numpy as np
from cupy.cuda import memory
from cupy.cuda.device import get_cusparse_handle

Host = np.ndarray[Any, Any]
DTYPES = {"s": "float32", "d": "float64", "c": "complex64", "z": "complex128"}
LARGEST = 2**31 - 1
INVALID_VALUE = 3


class CuSparseError(RuntimeError):
    def __init__(self, status: int, told: str) -> None:
        super().__init__(f"CUSPARSE_STATUS_INVALID_VALUE: {told}")
        self.status = status


def want(fact: bool, told: str) -> None:
    if not fact:
        raise CuSparseError(INVALID_VALUE, told)


def check(handle: int, *sizes: int) -> None:
    want(handle == get_cusparse_handle(), "no handle")
    if any(size > LARGEST for size in sizes):
        raise OverflowError("value too large to convert to int")


def at(pointer: int, shape: tuple[int, ...], dtype: str) -> Host:
    """The memory at a pointer, which must be the device's."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    assert memory.covers(pointer, size), f"{size} bytes at {pointer:#x} are not within one allocation"
    return np.ndarray(shape, dtype, (ctypes.c_uint8 * size).from_address(pointer))


def use(buffer: int, size: int) -> None:
    want(buffer % 128 == 0, "the buffer is not aligned to 128 bytes")
    at(buffer, (size,), "uint8")[...] = 0xAB


def eliminate(below: Host, diagonal: Host, above: Host, right: Host, pivoting: bool) -> Host:
    """The solution; the first axis is that of the rows. Entries outside of the matrix that are not zero harm it."""
    with np.errstate(all="ignore"):
        rows, last = [], len(diagonal) - 1
        outside = np.where((below[0] == 0) & (above[last] == 0), 0, np.nan)
        p0, p1, r = diagonal[0] + outside, above[0], right[0]
        for a, b, c, d in zip(below[1:], diagonal[1:], above[1:], right[1:], strict=True):
            swap = (abs(a) > abs(p0)) & pivoting
            q0, o0 = np.where(swap, a, p0), np.where(swap, p0, a)
            q1, o1 = np.where(swap, b, p1), np.where(swap, p1, b)
            q2, o2 = np.where(swap, c, 0), np.where(swap, 0, c)
            q, o = np.where(swap, d, r), np.where(swap, r, d)
            rows.append((q0, q1, q2, q))
            p0, p1, r = o1 - o0 / q0 * q1, o2 - o0 / q0 * q2, o - o0 / q0 * q
        x = [r / p0, 0 * r]
        for q0, q1, q2, q in reversed(rows):
            x.insert(0, (q - q1 * x[0] - np.where(q2 != 0, q2 * x[1], 0)) / q0)
        return np.stack(x[:-1])


def gtsv2_size(prefix: str, handle: int, m: int, n: int, dl: int, d: int, du: int, B: int, ldb: int) -> int:
    check(handle, m, n, ldb)
    want(m >= 3 and n >= 1 and ldb >= m, f"m = {m}, n = {n}, ldb = {ldb}")
    return m * (3 + n) * np.dtype(DTYPES[prefix]).itemsize


def gtsv2(
    prefix: str, pivoting: bool, handle: int, m: int, n: int, dl: int, d: int, du: int, B: int, ldb: int, buffer: int
) -> None:
    use(buffer, gtsv2_size(prefix, handle, m, n, dl, d, du, B, ldb))
    diagonals = (at(pointer, (m, 1), DTYPES[prefix]) for pointer in (dl, d, du))
    sides = at(B, (n, ldb), DTYPES[prefix])[:, :m].T
    sides[...] = eliminate(*diagonals, sides, pivoting)


def strided_size(
    prefix: str, handle: int, m: int, dl: int, d: int, du: int, x: int, batchCount: int, batchStride: int
) -> int:
    check(handle, m, batchCount, batchStride)
    want(m >= 3 and batchCount >= 1 and batchStride >= m, f"m = {m}, {batchCount} systems {batchStride} apart")
    return m * batchCount * np.dtype(DTYPES[prefix]).itemsize


def strided(
    prefix: str, handle: int, m: int, dl: int, d: int, du: int, x: int, batchCount: int, batchStride: int, buffer: int
) -> None:
    use(buffer, strided_size(prefix, handle, m, dl, d, du, x, batchCount, batchStride))
    size = (batchCount - 1) * batchStride + m
    parts = (at(pointer, (size,), DTYPES[prefix]) for pointer in (dl, d, du, x))
    steps = np.arange(batchCount) * batchStride + np.arange(m)[:, None]
    *diagonals, right = parts
    right[steps] = eliminate(*(part[steps] for part in diagonals), right[steps], False)


def interleaved_size(
    prefix: str, handle: int, algo: int, m: int, dl: int, d: int, du: int, x: int, batchCount: int
) -> int:
    check(handle, algo, m, batchCount)
    want(algo in (0, 1, 2) and m >= 3 and batchCount >= 1, f"algorithm {algo}, m = {m}, {batchCount} systems")
    return 2 * m * batchCount * np.dtype(DTYPES[prefix]).itemsize


def interleaved(
    prefix: str, handle: int, algo: int, m: int, dl: int, d: int, du: int, x: int, batchCount: int, buffer: int
) -> None:
    use(buffer, interleaved_size(prefix, handle, algo, m, dl, d, du, x, batchCount))
    *diagonals, right = (at(pointer, (m, batchCount), DTYPES[prefix]) for pointer in (dl, d, du, x))
    right[...] = eliminate(*diagonals, right, algo > 0)
    for diagonal in diagonals:
        diagonal[...] = np.nan


def routines(prefix: str) -> dict[str, Any]:
    sizes = {
        "gtsv2": gtsv2_size,
        "gtsv2_nopivot": gtsv2_size,
        "gtsv2StridedBatch": strided_size,
        "gtsvInterleavedBatch": interleaved_size,
    }
    calls = {
        "gtsv2": partial(gtsv2, prefix, True),
        "gtsv2_nopivot": partial(gtsv2, prefix, False),
        "gtsv2StridedBatch": partial(strided, prefix),
        "gtsvInterleavedBatch": partial(interleaved, prefix),
    }
    named = {f"{prefix}{name}_bufferSizeExt": partial(size, prefix) for name, size in sizes.items()}
    return named | {f"{prefix}{name}": call for name, call in calls.items()}


for _prefix in DTYPES:
    globals().update(routines(_prefix))
