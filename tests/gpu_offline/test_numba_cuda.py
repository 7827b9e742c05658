"""Backends of Numba's CUDA without a GPU: scalar code compiled for the CPU, simulated, and assembled for a GPU."""

import functools
import importlib
import importlib.util
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_logarithms
import test_recurrences
from helpers import DTYPES, EPS, TINY, assert_same_bits, assert_solves, dominant, noise, uniform, zero_diagonal
from numba import njit, types

from tridiag.backends import installed
from tridiag.kernels.numba_cuda import policies, thomas

HERE = Path(__file__).parent
REALS = ("float32", "float64")
ROWS = {False: thomas.PLAIN_ROWS, True: thomas.PIVOTED_ROWS, "auto": thomas.REFINED_ROWS}


def needs(*modules: str) -> Any:
    absent = [name for name in modules if not installed(name)]
    return pytest.mark.skipif(bool(absent), reason=f"needs {' and '.join(absent)}, not installed")


def run(script: str, *arguments: str, **environment: str) -> str:
    """What a script of this folder prints, with the stand-in for CuPy."""
    path = os.pathsep.join(map(str, (HERE / "standin", HERE, HERE.parent, *filter(None, sys.path))))
    environment = {**os.environ, "PYTHONPATH": path} | environment
    command = [sys.executable, str(HERE / script), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
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


@functools.cache
def chunks(verb: str, dtype: str) -> Any:
    """What the threads of a tile do, one after another: from the state before all to that before each chunk."""
    policy = policies.POLICIES[verb](dtype)
    nothing, extend, join, apply, sound, known = policy[3:9]
    step, value, _, _, _, kept_state = policy[9:]

    def run_chunks(a, x, start, y, chunk):  # type: ignore[no-untyped-def]
        first = kept_state(start, 0)
        state, whole, trusted = first, nothing(), 0
        for low in range(0, len(x), chunk):
            before = apply(whole, first)
            if sound(whole) and known(before):
                state, trusted = before, trusted + 1
            own = nothing()
            for t in range(low, min(len(x), low + chunk)):
                own = extend(own, a[t], x[t])
                state = step(state, a[t], x[t])
                y[t] = value(state)
            whole = join(whole, own)
        return trusted

    return njit(run_chunks, error_model="numpy")


def in_chunks(verb: str, a: np.ndarray, x: np.ndarray, chunk: int = 9) -> tuple[np.ndarray, int]:
    """The values, and before how many chunks the state came from parts."""
    start = np.array([policies.POLICIES[verb](x.dtype.name).start], x.dtype).T
    y = np.full_like(x, np.nan)
    return y, chunks(verb, x.dtype.name)(a, x, start, y, chunk)


@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_of_linear_recurrences(dtype: str) -> None:
    """Joined from the first row on they make what the rows make, over products far below the smallest number."""
    rng = np.random.default_rng(0)
    for n in (1, 8, 9, 10, 500):
        a, x = (noise(rng, (n,), dtype) for _ in range(2))
        y, trusted = in_chunks("linear_recurrence", a, x)
        test_recurrences.assert_recurs(y, (a,), x)
        assert trusted == -(-n // 9)


def test_parts_whose_products_vanish_or_cannot_be_trusted() -> None:
    """1e300 is still there after coefficients whose product is 1e-450 or less; a sum that cancels is not joined."""
    a, x = np.full(90, 1e-150), np.where(np.arange(90) == 60, 1e300, 0.0)
    y, trusted = in_chunks("linear_recurrence", a, x, 30)
    np.testing.assert_allclose(y[60:63], [1e300, 1e150, 1], rtol=1e-14)
    y, _ = in_chunks("linear_recurrence", np.where(np.arange(90) < 4, 1e-75, 1.0), np.where(np.arange(90), 0, 1e300), 3)
    np.testing.assert_allclose(y[3:], 1e75, rtol=1e-14)
    y, trusted = in_chunks("linear_recurrence", np.full(90, 16.0), np.where(np.arange(90), -15.0, 1))
    assert (y == 1).all() and trusted == 1


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("name", [name for name in test_logarithms.LADDERS if name != "1e300"])
def test_parts_of_sums_of_exponentials(name: str, dtype: str) -> None:
    """Errors do not pile up, from row to row or from chunk to chunk."""
    n = 2009
    x, right = test_logarithms.ladder(name, dtype, n), test_logarithms.exactly(name, dtype, n)
    y, trusted = in_chunks("logcumsumexp", x, x)
    assert test_logarithms.units(y, right) <= 2 and trusted == -(-n // 9)


@pytest.mark.parametrize("x", test_logarithms.EXTREMES, ids=str)
def test_infinities_in_parts_of_sums(x: list[float]) -> None:
    given = np.array([0.0] * 20 + x + [0.0] * 20)
    y, _ = in_chunks("logcumsumexp", given, given, 2)
    np.testing.assert_allclose(y, test_logarithms.oracle(given).astype(float), rtol=1e-14, atol=3e-16)


# ---------------------------------------------------------------------------------- simulated


@needs("numba_cuda", "torch", "jax")
@pytest.mark.parametrize("what", ["systems", "sequences", "tensors", "mistakes", "texts"])
def test_simulated_backends_agree_with_the_oracle(what: str) -> None:
    """The backends themselves, kernels and host code, on a stand-in for CuPy: grids, views, masks, promises.

    Mistakes are planted, and have to be found. JAX arrays are lent through a handler that is compiled here, for there
    nothing is.
    """
    if what == "tensors":
        importlib.import_module("tridiag.cuda.custom_call").handler()
    told = run("numba_cuda_simulated.py", what, NUMBA_ENABLE_CUDASIM="1", NUMBA_DISABLE_JIT="1")
    assert told.endswith("all as wanted\n")


# ---------------------------------------------------------------------------------- assembled


@pytest.fixture(scope="module")
def assembly() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(run("numba_cuda_assembly.py"))
    return found


@needs("numba_cuda", "nvidia.cu13")
def test_kernels_for_a_gpu(assembly: dict[str, dict[str, Any]]) -> None:
    """For sm_90: no spill, no stack, no warning, and no float64 in the kernels for float32."""
    verbs = {"linear_recurrence": DTYPES, "logcumsumexp": REALS}
    wanted = {f"{name} {dtype}" for name, dtype in itertools.product(("plain", "pivoted"), REALS)}
    for (verb, dtypes), kernel in itertools.product(verbs.items(), ("columns", "carry", "fold", "tiles")):
        wanted |= {f"{verb} {kernel} {dtype}" for dtype in dtypes}
    assert set(assembly) == wanted
    for name, told in assembly.items():
        assert told["complaints"] == "", name
        assert told["bytes"] == [0, 0, 0], name
        assert told["in double precision"] == [], name
        assert told["registers"] <= (224 if "pivoted" in name else 96), name
