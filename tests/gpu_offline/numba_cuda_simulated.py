"""Solves on the simulated GPU of Numba with arrays of the stand-in for CuPy, and compares with the oracle.

Run by `test_numba_cuda` in a process of its own, where Numba compiles nothing. The simulator cannot take over arrays
and streams of others: both are done here, for arrays from where their memory lies.
"""

import ctypes
import sys
import warnings
from typing import Any

import cupy
import numpy as np
from cupy import machine
from helpers import assert_solves, dominant, uniform
from numba import cuda

import tridiag
from tridiag.backends import numba_cuda_thomas as backend
from tridiag.problems.forms import Form, broadcast


def take_over(x: Any, sync: bool = True) -> np.ndarray:
    """A NumPy view of the memory that an array says is its own."""
    told = x.__cuda_array_interface__
    pointer, dtype = told["data"][0], np.dtype(told["typestr"])
    strides = told["strides"] or np.empty(told["shape"], dtype).strides
    reach = sum((length - 1) * step for length, step in zip(told["shape"], strides, strict=True))
    memory = (ctypes.c_uint8 * (reach + dtype.itemsize)).from_address(pointer)
    return np.ndarray(told["shape"], dtype, memory, 0, strides)


def solve(
    a: Any, b: Any, c: Any, d: Any, axis: int, where: Any = None, **options: Any
) -> tuple[np.ndarray, np.ndarray]:
    """On arrays of one rank."""
    matrix = [None if x is None else cupy.array(x) for x in (a, b, c, where)]
    shapes = {name: x.shape for name, x in zip("abcw", matrix, strict=True) if x is not None}
    shape = broadcast(shapes | {"d": d.shape}, shapes)
    rows = [shape[k] if k == axis else length for k, length in enumerate(broadcast(shapes, shapes))]
    x, status = backend.solve(tuple(matrix), cupy.array(d), Form(shape, tuple(rows), axis, **options))
    return x.get(), status.get()


def main() -> None:
    warnings.simplefilter("ignore")
    cuda.as_cuda_array, cuda.external_stream = take_over, lambda pointer: 0
    backend.THREADS, backend.FEWEST_BLOCKS = 32, 1

    for dtype in ("float32", "float64"):
        for pivoting, family in ((False, dominant), (True, uniform), ("auto", uniform)):
            for transpose in (False, True):
                backend.LEAST_SCRATCH = 1 if transpose else 2**26  # pivoted a sixth at a time, or all at once
                for axis, shape in ((1, (35, 33)), (0, (33, 3)), (1, (2, 5, 3))):
                    system = family(shape, dtype, axis)
                    x, status = solve(*system, axis, transpose=transpose, pivoting=pivoting)
                    assert not status.any() and status.shape == shape[:axis] + shape[axis + 1 :]
                    assert_solves(x, *system, pivoting=pivoting, transpose=transpose, axis=axis)

    a, b, c, d = dominant((4, 3, 6), axis=1)
    where = np.random.default_rng(0).uniform(size=(4, 3, 1)) < 0.7
    shared = [a[:1, :, :1], b[:, :1, :1] * 4, c[:, :, :1], d[..., ::-1]]
    for pivoting in (False, True, "auto"):
        x, status = solve(*shared, 1, where, pivoting=pivoting)
        assert status.shape == (4, 1) and not status.any()
        assert_solves(x, *shared, where=where, axis=1, pivoting=pivoting)

    singular = dominant((5, 4))
    for diagonal in singular[:3]:
        diagonal[3, 2] = 0
    for pivoting in (False, True, "auto"):
        x, status = solve(*singular, 1, pivoting=pivoting)
        assert status.nonzero()[0].tolist() == [3] and np.isnan(x[3]).all()
        assert_solves(np.delete(x, 3, 0), *(np.delete(v, 3, 0) for v in singular), pivoting=pivoting)

    arrays = [cupy.array(x) for x in singular]
    waits = machine.synchronised
    tridiag.solve(*arrays, backend="numba_cuda_thomas")
    assert machine.synchronised == waits
    try:
        tridiag.solve(*arrays, backend="numba_cuda_thomas", check=True)
    except tridiag.SingularSystemError as error:
        assert error.indices.tolist() == [[3]]
        np.testing.assert_array_equal(error.x.get(), x)
    else:
        raise AssertionError("a singular system raised nothing")
    sys.stdout.write("all solved\n")


main()
