"""`numba_cuda_thomas` without a GPU: its scalar code compiled for the CPU, simulated, and assembled for a GPU."""

import functools
import importlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import EPS, TINY, assert_same_bits, assert_solves, dominant, uniform, zero_diagonal
from numba import njit, types

from tridiag.backends import installed
from tridiag.kernels.numba_cuda import thomas

HERE = Path(__file__).parent
REALS = ("float32", "float64")
ROWS = {False: thomas.PLAIN_ROWS, True: thomas.PIVOTED_ROWS, "auto": thomas.REFINED_ROWS}


def needs(*modules: str) -> Any:
    absent = [name for name in modules if not installed(name)]
    return pytest.mark.skipif(bool(absent), reason=f"needs {' and '.join(absent)}, not installed")


def run(script: str, **environment: str) -> str:
    """What a script of this folder prints, with the stand-in for CuPy."""
    path = os.pathsep.join(map(str, (HERE / "standin", HERE, HERE.parent, *filter(None, sys.path))))
    environment = {**os.environ, "PYTHONPATH": path} | environment
    done = subprocess.run([sys.executable, str(HERE / script)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


# ---------------------------------------------------------------------------------- compiled for the CPU


@functools.cache
def threads() -> Any:
    """`run_threads` for systems of any stride: compiled once for each dtype."""
    real = [types.Array(getattr(types, dtype), 2, "A") for dtype in REALS]
    kept = [types.Array(kind.dtype, 2, "C") for kind in real]
    mask = types.Array(types.boolean, 2, "A")
    signatures = [
        types.int64[:](*(x,) * 3, mask, types.int64, x, x, work, types.int64, x.dtype, x.dtype)
        for x, work in zip(real, kept, strict=True)
    ]
    return njit(signatures, error_model="numpy")(run_threads)


def run_threads(below, diagonal, above, keep, shift, d, x, kept, promise, eps, tiny):  # type: ignore[no-untyped-def]
    """One after another, what the threads of the backend's kernels do; promise: 0, 1, or 2 for "auto"."""
    statuses = np.zeros(len(x), np.int64)
    for k in range(len(x)):
        rows = below[k], diagonal[k], above[k], keep[k]
        certified = False
        if promise != 1:
            certified, status = thomas.plain(*rows, shift, d[k], x[k], kept[0], eps, tiny)
        if promise == 1 or (promise == 2 and not certified):
            status = thomas.pivoted(*rows, shift, d[k], x[k], kept)
            if promise == 2 and status == 0:
                thomas.refine(*rows, shift, d[k], x[k], kept, eps, tiny)
        statuses[k] = status
    return statuses


def solve(
    a: Any, b: Any, c: Any, d: Any, pivoting: bool | str, where: Any = None, transpose: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    real, x = d.dtype.type, np.empty_like(d)
    keep = np.ones(d.shape, bool) if where is None else where
    below, above = (c, a) if transpose else (a, c)
    kept = np.full((ROWS[pivoting], d.shape[1]), np.nan, d.dtype)
    status = threads()(
        below, b, above, keep, int(transpose), d, x, kept, [False, True, "auto"].index(pivoting),
        real(EPS[d.dtype.name]), real(TINY[d.dtype.name]),
    )  # fmt: skip
    return x, status


FAMILIES = [(False, dominant), (True, uniform), ("auto", dominant), ("auto", uniform), ("auto", zero_diagonal)]


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize(("pivoting", "family"), FAMILIES)
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 130])
def test_the_scalar_code_solves(pivoting: bool | str, family: Any, dtype: str, transpose: bool, n: int) -> None:
    """Every promise and option, in both layouts."""
    if family is zero_diagonal and n % 2:
        return
    for system in (family((40, n), dtype), [x.T for x in family((n, 40), dtype, axis=0)]):
        for where in (None, np.random.default_rng(1).uniform(size=(40, n)) < 0.8):
            if where is not None and family is zero_diagonal:
                continue
            x, status = solve(*system, pivoting, where, transpose)
            assert not status.any()
            assert_solves(x, *system, pivoting=pivoting, where=where, transpose=transpose)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("pivoting", [True, "auto"])
def test_hard_matrices_keep_the_promise(pivoting: bool | str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every kind of matrix and of right side of `benchmarks/accuracy.py`, under its bars."""
    pytest.importorskip("scipy")
    monkeypatch.syspath_prepend(HERE.parents[1] / "benchmarks")
    accuracy = importlib.import_module("accuracy")
    solved = []
    for n, count in ((3, 20), (60, 60)):
        systems = accuracy.make(n, count, dtype)
        x = np.stack([solve(*systems.matrix, d, pivoting)[0] for d in systems.d])
        solved.append((systems, x))
    rows = list(accuracy.judge(solved, ("numba_cuda_thomas", "numpy", dtype), pivoting))
    assert {row.case for row in rows} == set(accuracy.CASES)
    assert [row for row in rows if not row.passed] == []


@pytest.mark.parametrize("pivoting", [False, True, "auto"])
def test_nothing_is_read_from_pads_masked_rows_and_cut_couplings(pivoting: bool | str) -> None:
    a, b, c, d = dominant((20, 9), seed=3)
    where = np.random.default_rng(2).uniform(size=b.shape) < 0.7
    dead = [~where | ~np.roll(where, 1, 1), ~where, ~where | ~np.roll(where, -1, 1), ~where]
    dead[0][:, 0] = dead[2][:, -1] = True
    results = [
        solve(*(np.where(cut, bad, x) for cut, x in zip(dead, (a, b, c, d), strict=True)), pivoting, where)[0]
        for bad in (0.0, np.nan, np.inf)
    ]
    assert_same_bits(results[0], results[1])
    assert_same_bits(results[0], results[2])


@pytest.mark.parametrize("pivoting", [True, "auto"])
def test_singular_systems_are_nan_and_told_with_their_row(pivoting: bool | str) -> None:
    a, b, c, d = zero_diagonal((4, 7))
    b[2:] = dominant((2, 7))[1] * 9
    x, status = solve(a, b, c, d, pivoting)
    assert status.tolist() == [7, 7, 0, 0]
    assert np.isnan(x[:2]).all()
    assert_solves(x[2:], a[2:], b[2:], c[2:], d[2:])


def test_a_zero_pivot_without_exchanges_is_told() -> None:
    a, b, c, d = dominant((2, 5))
    b[1, 0] = 0
    x, status = solve(a, b, c, d, False)
    assert status.tolist() == [0, 1]
    assert np.isnan(x[1]).all()
    assert_solves(x[:1], a[:1], b[:1], c[:1], d[:1])


# ---------------------------------------------------------------------------------- simulated


@needs("numba_cuda")
def test_the_simulated_backend_agrees_with_the_oracle() -> None:
    """The backend itself, kernels and host code, on a stand-in for CuPy: grids, views, masks, promises."""
    told = run("numba_cuda_simulated.py", NUMBA_ENABLE_CUDASIM="1", NUMBA_DISABLE_JIT="1")
    assert told.endswith("all solved\n")


# ---------------------------------------------------------------------------------- assembled


@pytest.fixture(scope="module")
def assembly() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(run("numba_cuda_assembly.py"))
    return found


@needs("numba_cuda", "nvidia.cu13")
@pytest.mark.parametrize("kernel", [f"{name} {dtype}" for name in ("plain", "pivoted") for dtype in REALS])
def test_kernels_for_a_gpu(assembly: dict[str, dict[str, Any]], kernel: str) -> None:
    """For sm_90: no spill, no stack, no warning, and no float64 in the kernels for float32."""
    told = assembly[kernel]
    assert told["complaints"] == ""
    assert told["bytes"] == [0, 0, 0]
    assert told["in double precision"] == []
    assert told["registers"] <= 224
