"""What the judges of the campaign excuse, and what they do not."""

import contextlib
import os
import subprocess
import sys
import types
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")
if not sys.platform.startswith("linux"):
    pytest.skip("needs mmap, mprotect and signals as Linux has them", allow_module_level=True)

import tridiag
from guarded.alignments import bounds
from guarded.judging import (
    PROMISE,
    beyond_promise,
    check_solution,
    grows_beyond,
    ill_conditioned,
    periodic_solution,
    too_large,
    whole_matrix,
)
from guarded.oracles import EPS, backward_errors
from guarded.sequences import check
from guarded.systems import Systems

ONCE = {  # seeds of cases that were judged wrongly, each once
    "singular after rounding to whole numbers": (5024749, 5046703),
    "whole numbers and a coefficient of Python": (5010350, 5036773, 5070212),
    "singular to the reference": (5001728,),
    "a subnormal half": (131030,),
    "a single system beyond its precision": (157058, 228679),
    "singular by rounding, one zero pivot among 512, 1408": (58669, 160738),
    "infinite, and beyond the condition of any precision, but not singular": (496917,),
    "a state that is unknown at first": (9100962,),
}
LARGE = (5041248,)  # of the last kind, 160 000 systems


def system(n: int, a: float, b: float, c: float, dtype: str = "float32") -> tuple[Any, ...]:
    """The bands, the right side (1, 0, 0, ...) and some x of one system."""
    d = np.zeros((1, n), dtype)
    d[0, 0] = 1
    return tuple(np.full((1, n), v, dtype) for v in (a, b, c)), d, np.ones((1, n), dtype)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_a_singular_system_is_excused(dtype: str, periodic: bool) -> None:
    """One that the reference finds so too, and no other."""
    singular = system(3, 1, 1, 1, dtype) if periodic else system(2, 1, 1, 1, dtype)
    assert beyond_promise(*singular, (0,), 1e6, periodic)
    assert not beyond_promise(*system(3, 1, 4, 1, dtype), (0,), 9.0, periodic)


@pytest.mark.parametrize(("dtype", "n"), [("float32", 40), ("float64", 310), ("complex128", 310)])
def test_a_solution_beyond_its_precision_is_excused(dtype: str, n: int) -> None:
    """It grows tenfold from row to row; where it does not it must be finite."""
    assert too_large(*system(n, 10, 1, 0, dtype), (0,), False)
    assert not too_large(*system(n, 1, 1, 0, dtype), (0,), False)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_a_solution_that_grows_beyond_its_precision_is_not_one_of_a_zero_pivot(dtype: str) -> None:
    infinite, moderate = np.array(np.inf, dtype), np.ones(5, dtype)
    largest = np.finfo(dtype).max
    assert grows_beyond(np.array([1, 1e3, largest / 100, infinite, infinite], dtype))
    assert not grows_beyond(np.append(moderate, infinite))
    assert not grows_beyond(np.full(3, infinite))


def judge(x: Any, family: str = "uniform", periodic: bool = False, **planted: Any) -> None:
    """A solution of one system, in which NaN may have been planted."""
    rows = [np.full((1, 9), v) for v in (1.0, 12.0, 2.0, 5.0)]
    for name, at in planted.items():
        rows["abcd".index(name)][0, at] = np.nan
    none, spoilt = np.zeros(1, bool), np.full(1, bool(planted))
    systems = Systems({}, (1, 9), 1, tuple(rows), np.ones((1, 9), bool), spoilt, none, none, family)
    draw: Any = types.SimpleNamespace(finish=lambda: None)
    check_solution(draw, systems, np.array([x], float), "auto", periodic, False, "numba_thomas")


@pytest.mark.parametrize("name", ["a", "b", "c", "d"])
def test_no_row_of_a_system_with_nan_may_be_finite(name: str) -> None:
    nan = np.full(9, np.nan)
    judge(nan, **{name: 4})
    for k in (0, 3, 8):
        with pytest.raises(AssertionError, match="finite"):
            judge(np.where(np.arange(9) == k, 1.0, nan), **{name: 4})


@pytest.mark.parametrize("periodic", [False, True])
def test_a_dominant_system_of_integers_has_a_solution(periodic: bool) -> None:
    pytest.importorskip("scipy")
    with pytest.raises(AssertionError, match="not finite"):
        judge(np.full(9, np.nan), "integers", periodic)


def test_nan_among_logarithms_is_no_infinity() -> None:
    x = np.array([[0, np.nan, 1, 2]])
    for rest, right in ((np.nan, True), (np.inf, False), (3.0, False)):
        with contextlib.nullcontext() if right else pytest.raises(AssertionError):
            check("logcumsumexp", np.array([[0, rest, rest, rest]]), [], [x], [], 1, False, 1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scores_at_low_temperatures(dtype: str) -> None:
    """A temperature that is too low may count as the lowest that is not; nothing else is excused."""
    scores = np.random.default_rng(0).normal(size=(20, 33, 70)).astype(dtype)
    for temperature in (1e-6 if dtype == "float32" else 1e-15, 1.0):
        found = tridiag.smith_waterman(scores, gap=-0.5, temperature=temperature)
        rounded = float(np.dtype(dtype).type(temperature))
        for score, x in zip(scores.astype(float), found.astype(float), strict=True):
            lowest, highest = bounds(score, 33, 70, -0.5, -0.5, rounded, EPS[dtype])
            assert lowest <= x <= highest
            assert highest - lowest < 4000 * EPS[dtype] * x


@pytest.mark.parametrize("seeds", [sum(ONCE.values(), ()), pytest.param(LARGE, marks=pytest.mark.slow)])
def test_cases_that_were_judged_wrongly(seeds: tuple[int, ...]) -> None:
    run = f"from guarded import cases; cases.start(); [cases.run(k) for k in {seeds}]"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", run], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("n", [3, 4, 9, 500])
def test_the_oracle_of_periodic_systems(n: int) -> None:
    pytest.importorskip("scipy")
    rng = np.random.default_rng(n)
    below, diagonal, above, d = rng.normal(size=(4, n)) + 1j * rng.normal(size=(4, n))
    x = periodic_solution(below, diagonal, above, d)
    np.testing.assert_allclose(below * np.roll(x, 1) + diagonal * x + above * np.roll(x, -1), d, atol=1e-9)
    assert np.isnan(periodic_solution(below * 0, diagonal * 0, above * 0, d)).all()


def test_singular_systems_of_integers_are_excused() -> None:
    """Also where one side or another lies in the range of the matrix."""
    pytest.importorskip("scipy")
    rows = ([2, 2, 2], [3, -1, 2], [-2, 2, -1])  # a side of ones is a sum of the columns
    assert ill_conditioned(tuple(np.array([row], "f4") for row in rows), (0,), np.dtype("f4"), True)
    rng, found = np.random.default_rng(0), 0
    for n in (3, 4, 5, 6) * 500:
        matrix = tuple(rng.integers(-3, 4, (3, 1, n)).astype("f4"))
        if abs(np.linalg.det(whole_matrix([v[0] for v in matrix]))) < 1e-3:
            assert ill_conditioned(matrix, (0,), np.dtype("f4"), True)
            found += 1
    assert found > 50


def test_a_system_that_rounding_makes_singular_is_excused() -> None:
    """Long random ones with one band that does not vary, in single precision; and no other."""
    (a, _, c), _, _ = system(1408, -0.99, 0.5, -0.99)
    a, b = np.random.default_rng(3).uniform(-1, 1, (2, 1, 1408)).astype("float32")
    assert ill_conditioned((a, b, c), (0,), a.dtype, False)
    for periodic in (False, True):
        assert not ill_conditioned((a, np.sign(b) * (2.1 + abs(b)), c), (0,), a.dtype, periodic)


@pytest.mark.parametrize("size", [1.0, 1e-7])
def test_halves_are_given_half_a_unit(size: float) -> None:
    """Solutions of ordinary size and subnormal ones; a whole unit is too much."""
    rng = np.random.default_rng(0)
    diagonal, x = rng.uniform(1, 2, (2, 100, 1)).astype("float32")
    matrix, x = (diagonal * 0, diagonal, diagonal * 0), (x * np.float32(size)).astype("float16")
    d = (diagonal * x).astype("float32")
    for units, fits in ((0.5, True), (1.0, False)):
        error, _ = backward_errors(x, matrix, d + diagonal * units * np.spacing(x).astype("float32"))
        assert ((error <= PROMISE) == fits).mean() > 0.9
