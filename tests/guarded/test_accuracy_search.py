"""The search for large errors: that it judges rightly, finds planted mistakes, and nothing else."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import dominant, long_error, uniform

import tridiag
from guarded import accuracy_bars as bars
from guarded import accuracy_search, accuracy_sequences
from guarded.accuracy_breeding import Breeder, Systems
from guarded.accuracy_cases import Call

pytest.importorskip("numba")
PATH = Path(accuracy_search.__file__)
SEEDS = range(40, 44)


def systems_of(arrays: list[np.ndarray]) -> Systems:
    return Systems(*arrays, np.ones(arrays[0].shape, bool))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_errors_are_those_of_the_tests(dtype: str) -> None:
    systems = systems_of(uniform((50, 9), dtype))
    x = tridiag.solve(*systems[:4], pivoting=False, backend="numpy_thomas")
    error = bars.errors(bars.acting(systems), x, dtype)
    assert error.max() == pytest.approx(long_error(x, *systems[:4]), rel=1e-6)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
def test_what_excuses_an_error(periodic: bool, transpose: bool) -> None:
    """The condition, and the error of LAPACK's algorithm, with corners and without."""
    systems = systems_of(dominant((20, 6)))
    systems.keep[::2, 2] = False
    matrix = bars.acting(systems, periodic, transpose)
    lapack, truth, condition = bars.solved_again(matrix, "float64")
    np.testing.assert_allclose(condition, np.linalg.cond(bars.dense(matrix), np.inf), rtol=1e-6)
    options = {"periodic": periodic, "transpose": transpose, "where": systems.keep}
    x = tridiag.solve(*systems[:4], backend="numpy_thomas", **options)
    for found in (lapack, x):
        np.testing.assert_allclose(found, truth.astype(float), rtol=1e-10, atol=1e-12)
    assert bars.errors(matrix, x, "float64").max() < 8


@pytest.mark.parametrize("fraction", [0.0, 1e-12])
def test_unknowns_that_vanish_in_a_chunk(fraction: float) -> None:
    """They are rounding beside the largest one of their chunk, since nothing is refined; more than that is an error."""
    a = [0, -0.2501383650732988j, 0.17861464599869933j, 7.241301893803564, -0.8012865180946698]
    b = [-4.09432505546011 - 1.1760522742678128j, 0.06533805038065686 - 0.4237467294491978j,
         -6.786114688198592 + 3.018245845210233j, -5.729416068876572 - 5.686243111554291j,
         4.592263222232869 - 1.3841877838354086j]  # fmt: skip
    c = [0.2501383650732988j, -0.17861464599869933j, 7.241301893803564, -0.8012865180946698, 0]
    x = np.array([[fraction, fraction, 0, 3j, 2j]])
    d = np.array([0, 0, 21.72390568141069j, 17.058729334662875 - 18.790821242819057j, 2.768375567671 + 6.780666890182j])
    systems = systems_of([np.array([v], complex) for v in (a, b, c, d)])
    alone = Call("numba_thomas", "complex128", 5, 64, "rows", False)
    long = Call("numba_partition", "complex128", 5, 11968, "long rows", False, masked=True)
    for call in (alone, long):
        found = call.solve(call.given(accuracy_search.surrounded(call, systems)))[:1] + x * (x.imag == 0)
        error = bars.errors(bars.acting(systems), found, "complex128", False, call.fills)
        assert (error > bars.BAR) == (fraction > 0)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_systems_are_what_they_should_be(dtype: str) -> None:
    """Finite, of the dtype, dominant where that is asked for; children too."""
    breeder = Breeder(np.random.default_rng(0), 7, dtype, masked=False, dominant=True)
    systems = breeder.fresh(2000)
    for some in (systems, breeder.bred(systems, 3000)):
        a, b, c, *_ = some
        assert all(x.dtype == dtype and np.isfinite(x).all() for x in some[:4])
        with np.errstate(under="ignore"):
            assert (abs(b) >= (abs(a) + abs(c)) * (1 - 1e-6)).all() and some.keep.all()


Solve = Callable[[Call, Systems], np.ndarray]


def without_pivoting(call: Call, systems: Systems) -> np.ndarray:
    with np.errstate(all="ignore"):
        return tridiag.solve(*systems[:4], pivoting=False, backend="numpy_thomas", check=False)


def without_refinement(call: Call, systems: Systems) -> np.ndarray:
    with np.errstate(all="ignore"):
        return tridiag.solve(*systems[:4], pivoting=True, backend="numpy_thomas", check=False)


def with_a_lost_digit(call: Call, systems: Systems) -> np.ndarray:
    """In the systems whose last right side is a power of two, and large."""
    with np.errstate(all="ignore"):
        x = tridiag.solve(*systems[:4], backend="numpy_thomas", check=False)
        last = systems.d[:, -1:].real
        return np.where((np.frexp(last)[0] == 0.5) & (last > 32), x * (1 + 1e-14), x)


@pytest.mark.parametrize("mistake", [without_pivoting, without_refinement, with_a_lost_digit])
def test_a_mistake_is_found_and_made_small(mistake: Solve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands of rows of numbers a system of few rows is left, and the program that solves it."""
    monkeypatch.setattr(Call, "solve", mistake)
    with pytest.raises(AssertionError) as caught:
        accuracy_search.searched(Call("numpy_thomas", "float64", 6, 2048, "rows"), np.random.default_rng(0))
    told = str(caught.value)
    names: dict[str, Any] = {"np": np}
    exec("\n".join(told.splitlines()[1:-1]), names)
    assert len(names["b"]) <= 4
    assert "eps" in told and "backend='numpy_thomas', pivoting='auto'" in told


def test_no_system_is_above_the_promise() -> None:
    """Some thousands of systems; the campaign has more."""
    assert sum(accuracy_search.run(seed).systems for seed in SEEDS) > 50_000


def test_no_sequence_is_above_the_promise() -> None:
    """Of the compiled kernels; the campaign has all."""
    seeds = [k for k in range(30) if accuracy_sequences.draw(np.random.default_rng(k)).backend == "numba_scan"][:4]
    assert sum(accuracy_sequences.run(seed).systems for seed in seeds) > 10_000


def test_a_mistake_in_a_recurrence_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def rounded(call: accuracy_sequences.Call, sequences: list[np.ndarray]) -> np.ndarray:
        a, x = sequences
        return tridiag.linear_recurrence(a, np.where(x > 100, x * (1 + 1e-13), x), backend="numpy_scan")

    call = accuracy_sequences.Call("linear_recurrence", "numpy_scan", "float64", 5, False, False)
    monkeypatch.setattr(accuracy_sequences, "draw", lambda *arguments: call)
    monkeypatch.setattr(accuracy_sequences, "solved", rounded)
    with pytest.raises(AssertionError, match="times the bar"):
        accuracy_sequences.run(0)


@pytest.mark.slow
def test_the_search_by_itself() -> None:
    command = [sys.executable, str(PATH), "--seconds", "5", "--seed", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stdout + done.stderr
