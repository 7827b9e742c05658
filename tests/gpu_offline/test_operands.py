"""What the operands of the CUDA C kernels may hold, and how they may lie in memory."""

from __future__ import annotations

from typing import Any

import cpu_build
import numpy as np
import pytest
from helpers import DTYPES, STANDIN, assert_solves, dense, dominant

import tridiag
from tridiag.cuda import solvers
from tridiag.cuda.record import Launch
from tridiag.problems.forms import Form

cupy: Any = pytest.importorskip("cupy", reason="needs CuPy, or the stand-in for it")
if STANDIN and (reason := cpu_build.why_not()):
    pytest.skip(reason, allow_module_level=True)

KERNELS = "cupy_pcr", "cupy_thomas"


def odd_view(x: np.ndarray) -> Any:
    """Complex numbers on the device, in rows that begin after an odd number of real ones."""
    reals = cupy.zeros((len(x), 2 * x.shape[1] + 1), x.real.dtype)
    view = reals[:, :-1].view(x.dtype)
    view[...] = cupy.asarray(x)
    assert view.strides[0] % view.itemsize
    return view


@pytest.mark.parametrize("name", KERNELS)
def test_strides_that_are_no_whole_number_of_elements(name: str) -> None:
    """Kernels count in elements: whole complex numbers."""
    system = dominant((5, 9), "complex128")
    a, b, c, d = map(odd_view, system)
    assert_solves(tridiag.solve(a, b, c, d, backend=name).get(), *system)
    real = system[0].real, system[1].real + 9, system[2].real
    assert_solves(tridiag.solve(*map(cupy.asarray, real), d, backend=name).get(), *real, system[3])
    out = odd_view(np.zeros((5, 9), complex))
    assert tridiag.solve(a, b, c, d, backend=name, out=out) is out
    assert_solves(out.get(), *system)
    assert tridiag.solve(a, b, c, d, backend=name, overwrite_d=True) is d
    assert_solves(d.get(), *system)
    sign, logarithm = tridiag.slogdet(a, b, c, backend=name)
    determinants = np.linalg.slogdet(dense(*system[:3]).astype(complex))
    np.testing.assert_allclose(sign.get(), determinants[0], rtol=1e-12)
    np.testing.assert_allclose(logarithm.get(), determinants[1], rtol=1e-12)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(
    ("name", "pivoting"), [*(("cupy_thomas", promise) for promise in (False, True, "auto")), ("cupy_pcr", "auto")]
)
def test_no_number_crosses_a_row_that_is_taken_out(name: str, pivoting: Any, axis: int) -> None:
    """Not even NaN, which is left of 0 times NaN."""
    for n in (9, 70):  # rows in registers, and in scratch memory
        for operand in (1, 3):
            for row in (1, n - 2):
                given, keep = dominant((3, n)), np.ones(n, bool)
                keep[n // 2], given[operand][1, row] = False, np.nan
                turned = [cupy.asarray(x if axis else np.ascontiguousarray(x.T)) for x in given]
                options = {"axis": axis, "where": cupy.asarray(keep), "backend": name, "pivoting": pivoting}
                x = np.moveaxis(tridiag.solve(*turned, **options).get(), axis, 1)
                other = slice(n // 2, n) if row == 1 else slice(0, n // 2 + 1)
                assert np.isnan(x[1, row]) and np.isfinite(x[1, other]).all() and np.isfinite(x[::2]).all()


@pytest.mark.parametrize("axis", [0, 1])
def test_a_singular_system_is_nan_throughout_without_pivoting(axis: int) -> None:
    """In one row, in the rows that are taken out, and beyond them."""
    for n in (1, 9, 70):
        given, keep = dominant((3, n)), np.ones(n, bool)
        if n > 1:
            keep[n // 2] = False
        for x in given[:3]:
            x[1, 0] = 0
        turned = [cupy.asarray(x if axis else np.ascontiguousarray(x.T)) for x in given]
        options = {"axis": axis, "where": cupy.asarray(keep), "backend": "cupy_thomas", "pivoting": False}
        x = np.moveaxis(tridiag.solve(*turned, **options).get(), axis, 1)
        assert np.isnan(x[1]).all() and np.isfinite(x[::2]).all()


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", KERNELS)
def test_pivots_whose_reciprocals_are_out_of_range(name: str, axis: int) -> None:
    """Below the smallest normal number: NaN throughout without pivoting, else pivoted; their neighbours are solved."""
    for n, dtype in ((9, "float64"), (70, "float64"), (70, "float32"), (4500, "float64")):
        given = [x.copy() for x in dominant((3, n), dtype)]
        for x in given:
            x[1] *= np.finfo(dtype).tiny / 64
        turned = [cupy.asarray(x if axis else np.ascontiguousarray(x.T)) for x in given]
        for pivoting in (False, "auto"):
            x = np.moveaxis(tridiag.solve(*turned, axis=axis, backend=name, pivoting=pivoting).get(), axis, 1)
            assert np.isfinite(x[::2]).all()
            assert np.isfinite(x[1]).all() if pivoting else np.isnan(x[1]).all(), (n, dtype)


@pytest.mark.parametrize("shared", [2**16, 99 * 2**10, 227 * 2**10])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_block_has_more_threads_or_shared_memory_than_it_may(dtype: str, together: bool, shared: int) -> None:
    """What a device gives differs; where it is little longer systems are solved in pieces."""
    kinds, itemsize, in_pieces = (np.dtype(dtype), np.dtype(dtype)), np.dtype(dtype).itemsize, []
    for n in (*range(1, 100), *range(100, 8000, 61)):
        shape = (600, n) if together else (n, 600)
        strides = (itemsize * shape[1], itemsize)
        form = Form(shape, shape, int(together), pivoting=False)
        extents = (*[shape] * 3, None, *[shape] * 2), (*[strides] * 3, None, *[strides] * 2)
        steps = solvers.solution("chunks", form, *extents, kinds, shared).steps
        for step in steps:
            if isinstance(step, Launch):
                assert step.shared <= shared and step.block <= step.kernel.threads
        in_pieces.append(len(steps) > 1)
        assert not in_pieces[-1] or n > solvers.LONGEST  # else a solution may not take the place of right sides
    assert any(in_pieces) and not all(in_pieces)
