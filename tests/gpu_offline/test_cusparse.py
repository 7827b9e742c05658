"""The backends on cuSPARSE, on a stand-in for its routines that is as strict and as rude as they are."""

from typing import Any

import numpy as np
import pytest
from helpers import DTYPES, STANDIN, assert_same_bits, assert_solves, dominant, noise, uniform

from tridiag.backends import BACKENDS, Problem
from tridiag.problems.forms import Form

cupy: Any = pytest.importorskip("cupy", reason="needs the stand-in for CuPy")
if not STANDIN:
    pytest.skip("CuPy and a device are here: the stand-in is not in place", allow_module_level=True)

CASES = [
    (name, pivoting)
    for name in ("cusparse_interleaved", "cusparse_strided", "cusparse_gtsv2")
    for pivoting in BACKENDS[name].pivoting
]


def solve(name: str, a: Any, b: Any, c: Any, d: Any, axis: int = 1, where: Any = None, **options: Any) -> np.ndarray:
    """By the module itself, on arrays of one rank; none of them is changed."""
    host = a, b, c, where, d
    *matrix, right = given = [None if x is None else cupy.array(x) for x in host]
    shape = np.broadcast_shapes(*(x.shape for x in given if x is not None))
    rows = list(np.broadcast_shapes(*(x.shape for x in matrix if x is not None)))
    rows[axis] = shape[axis]
    form = Form(shape, tuple(rows), axis, **options)
    x, status = BACKENDS[name].module().solve(tuple(matrix), right, form)
    assert status is None
    for before, after in zip(host, given, strict=True):
        if before is not None:
            assert_same_bits(after.get(), before)
    return x.get()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, pytest.param(20, marks=pytest.mark.smoke)])
@pytest.mark.parametrize(("name", "pivoting"), CASES)
def test_solves(name: str, pivoting: bool, n: int, dtype: str) -> None:
    """Any axis, transposed, with rows taken out; n below the least that cuSPARSE takes. Pads are never read."""
    family = uniform if pivoting else dominant
    for axis, shape in ((1, (5, n)), (0, (n, 4)), (1, (2, n, 3))):
        system = family(shape, dtype, axis)
        system[0][(slice(None),) * axis + (0,)] = system[2][(slice(None),) * axis + (-1,)] = np.nan
        for transpose in (False, True):
            for where in (None, np.random.default_rng(1).uniform(size=shape) < 0.8):
                x = solve(name, *system, axis, where, transpose=transpose, pivoting=pivoting)
                assert_solves(x, *system, axis=axis, where=where, transpose=transpose, pivoting=pivoting)


@pytest.mark.parametrize(("name", "pivoting"), CASES)
def test_broadcasts(name: str, pivoting: bool) -> None:
    """Matrices shared along some axes, constant diagonals, and a real matrix with complex right sides."""
    a, b, c, d = dominant((4, 3, 6), axis=1)
    for system in ([a[:1, :, :1], b[:, :1, :1] * 4, c[:, :, :1], d], [a[:1], b[:1], c[:1], d], [a, b, c, d[:, :, :1]]):
        assert_solves(solve(name, *system, pivoting=pivoting), *system, axis=1, pivoting=pivoting)
    system[3] = noise(np.random.default_rng(0), d.shape, "complex128")
    assert_solves(solve(name, *system, pivoting=pivoting), *system, axis=1, pivoting=pivoting)


@pytest.mark.parametrize(("name", "pivoting"), CASES)
def test_a_singular_system_is_nan_and_harms_no_other(name: str, pivoting: bool) -> None:
    system = dominant((5, 4))
    for diagonal in system[:3]:
        diagonal[3, 2] = 0
    x = solve(name, *system, pivoting=pivoting)
    assert np.isnan(x[3]).all()
    assert_solves(np.delete(x, 3, 0), *(np.delete(v, 3, 0) for v in system), pivoting=pivoting)


@pytest.mark.parametrize(("name", "pivoting"), CASES)
def test_what_cannot_be_counted_is_refused_with_a_reason(name: str, pivoting: bool) -> None:
    facts = {"axis": 1, "pivoting": pivoting}
    shapes = {(2**20, 2**11): False, (2**20 - 1, 2**11): True, (2**30, 1): False, (2**29, 1): True}
    for shape, fits in shapes.items():
        reason = BACKENDS[name].why_not(Problem("solve", "cupy", "cuda", "float64", shape, **facts))
        assert (reason is None) == fits
        assert fits or f"counts up to {2**31 - 1} unknowns" in reason


@pytest.mark.parametrize("name", ["cusparse_interleaved", "cusparse_strided", "cusparse_gtsv2"])
def test_promises_that_cusparse_cannot_keep_are_refused(name: str) -> None:
    facts = Problem("solve", "cupy", "cuda", "float64", (4, 20), 1)
    assert "pivoting='auto'" in BACKENDS[name].why_not(facts)
    assert "periodic" in BACKENDS[name].why_not(facts._replace(pivoting=False, periodic=True))


def test_the_stand_in_refuses_what_cusparse_refuses() -> None:
    from cupy_backends.cuda.libs import cusparse

    x = cupy.zeros((4, 2))
    handle, pointers = cupy.cuda.device.get_cusparse_handle(), [x.data.ptr] * 4
    size = cusparse.dgtsvInterleavedBatch_bufferSizeExt(handle, 0, 4, *pointers, 2)
    for m, batch, error in ((2, 2, "INVALID_VALUE"), (4, 0, "INVALID_VALUE"), (4, 2**31, "too large")):
        with pytest.raises((RuntimeError, OverflowError), match=error):
            cusparse.dgtsvInterleavedBatch_bufferSizeExt(handle, 0, m, *pointers, batch)
    with pytest.raises(AssertionError, match="not within one allocation"):
        cusparse.dgtsvInterleavedBatch(handle, 0, 4, *pointers, 2, cupy.empty(size - 1, cupy.uint8).data.ptr)
    with pytest.raises(AssertionError, match="not within one allocation"):
        cusparse.dgtsvInterleavedBatch(handle, 0, 5, *pointers, 2, cupy.empty(2 * size, cupy.uint8).data.ptr)
