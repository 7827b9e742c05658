"""The CUDA C kernel of the gradients of log-likelihoods on the CPU build: sizes, gaps, parts, lost digits, layouts."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import cpu_build
import exact_gradients
import loop_gradients
import numpy as np
import planted
import pytest
from helpers import EPS, STANDIN, assert_same_bits
from loop_gradients import is_vague, lifted

if not STANDIN:
    pytest.skip("runs the CPU build; on a GPU the main suite runs the kernels", allow_module_level=True)
if reason := cpu_build.why_not():
    pytest.skip(reason, allow_module_level=True)

import cupy
from cupy import machine
from test_filter_kernels import Given, problem, with_bad_series

from tridiag.backends import cupy_scan
from tridiag.cuda import kalman as launches
from tridiag.problems.state_space import PARAMETERS, Model, StateSpace, derivatives_of, entries, own_shapes

SEEDS = range(4)


@pytest.fixture(autouse=True)
def order() -> Iterator[None]:
    most, room, whole = launches.MOST, launches.ROOM_OF_GRADIENT, launches.WHOLE
    yield
    machine.seed = 0
    planted.uproot()
    lend(most, room)
    divide(whole)


def lend(most: int, room: int) -> None:
    """So many threads at work, and so many bytes of scratch memory, at most."""
    launches.MOST, launches.ROOM_OF_GRADIENT = most, room
    launches.gradient.cache_clear()


def divide(whole: int) -> None:
    """Series of more steps than that have parts."""
    launches.WHOLE = whole
    launches.gradient.cache_clear()


def found(given: Given, seeds: Any = (0,), in_y: bool = True) -> list[np.ndarray]:
    """In y and in the model, no bit of which an order of the threads may change."""
    y, model, form = lifted(*given)
    results: list[list[np.ndarray]] = []
    for machine.seed in seeds:
        of = cupy_scan.kalman_gradient(cupy.asarray(y), Model(*map(cupy.asarray, model)), form, in_y)
        results.append([x.get() for x in of])
        for x, first in zip(results[-1], results[0], strict=True):
            assert_same_bits(x, first)
    return results[0]


def assert_right(results: list[np.ndarray], given: Given) -> None:
    """Errors are counted in those of the largest number of a parameter; in m0 and P0 of a vague start of more."""
    y, model, form = lifted(*given)
    limit, ends = 1000 * EPS[y.dtype.name], np.cumsum([math.prod(shape) for shape in own_shapes(form)])[:-1]
    everything = zip(is_vague(model, form), *results, *loop_gradients.derivatives(y, model, form), strict=True)
    for i, (vague, of_y, of, right_in_y, right) in enumerate(everything):
        pairs = [(of_y, right_in_y), *zip(np.split(of, ends), np.split(right, ends), strict=True)]
        for name, (x, z) in zip(("y", *PARAMETERS), pairs, strict=True):
            scale = max(np.abs(z).max(initial=1e-3), 1.0 if vague and name in ("m0", "P0") else 0)
            np.testing.assert_allclose(x / scale, z / scale, rtol=0, atol=limit, err_msg=f"{name} {i}")


@pytest.mark.parametrize(("k", "dtype"), [(2, "float32"), (8, "float64")])
def test_sizes(k: int, dtype: str) -> None:
    """Loops over rows that are written out and that are not; more series than a block has threads, some by roots."""
    for count, p, n, vague in ((3, 1, 1, False), (70, 2, 3, True), (5, 3, 5, False)):
        given = problem(count, k, p, n, dtype, vague)
        assert_right(found(given, SEEDS[:2]), given)


@pytest.mark.smoke
def test_one_size() -> None:
    given = problem(5, 2, 1)
    assert_right(found(given, (2,)), given)


@pytest.mark.parametrize("whole", [1, 6, 20])
def test_parts_of_series(whole: int) -> None:
    """Of one step, of unequal lengths, and series that are one part: the same to the last bit."""
    given = problem(40, 2, 2, 17, vague=True)
    right = found(given)
    assert_right(right, given)
    divide(whole)
    for x, z in zip(found(given, SEEDS[:2]), right, strict=True):
        assert_same_bits(x, z)


@pytest.mark.parametrize("vague", [1, 1e10])
@pytest.mark.parametrize("p", [1, 2])
def test_differences_in_extended_precision(p: int, vague: float) -> None:
    """With covariances as they stand and by roots; m0 and P0 of a vague start matter as little as they are large."""
    y, parameters = problem(3, 2, p)
    parameters = {name: x[0].squeeze() if name in ("F", "m0") else x for name, x in parameters.items()}
    parameters["P0"] = parameters["P0"] * vague
    of = found((y, parameters | {"P0": np.stack([parameters["P0"]] * 3)}), in_y=False)[0]
    ends = np.cumsum([x.size for x in parameters.values()])[:-1]
    for i in range(3):
        right = exact_gradients.derivatives(y[i], parameters)
        for (name, z), x in zip(right.items(), np.split(of[i], ends), strict=True):
            scale = max(np.abs(z).max(), 1.0 if vague > 1 and name in ("m0", "P0") else 0)
            np.testing.assert_allclose(x.reshape(z.shape) / scale, z / scale, rtol=0, atol=1e-13, err_msg=name)


@pytest.mark.usefixtures("fused")
def test_products_that_are_fused() -> None:
    given = problem(9, 2, 2, vague=True)
    assert_right(found(given), given)


def test_series_take_threads_and_scratch_memory_in_turn() -> None:
    """Threads for one warp, and memory for fewer: all other series wait, and find nothing of those before."""
    given = problem(150, 2, 2, 3, vague=True)
    right = found(given)
    lend(64, 1)
    for x, z in zip(found(given, SEEDS[:3]), right, strict=True):
        assert_same_bits(x, z)
    assert all(grid <= 2 for _, grid, _, _ in machine.launches[-2:])


def test_no_more_scratch_memory_than_threads_at_work_need() -> None:
    """Long series keep states of parts of them."""
    for count, n, k, p in ((10**6, 100, 8, 8), (10**6, 100, 1, 1), (3, 10**6, 8, 2)):
        form = StateSpace(n, p, k, (count,), (count,), None, True)
        shapes = ((count, n, p), (1, 1, k, k), (1, 1, p, k), (1, 1, k, k), (1, 1, p, p), (1, k), (1, k, k))
        operands = launches.operands_of(shapes, derivatives_of(form, True))
        strides = tuple(None if x is None else (0,) * len(x) for x in operands)
        program = launches.gradient(form, operands, strides, "float64")
        assert program.scratch <= launches.ROOM_OF_GRADIENT + 16 * count + 2**16
        assert len(program.steps) == 3


def test_a_bad_series_is_no_neighbours_concern() -> None:
    """NaN in a model, an infinite variance, and one that loses digits: each alone."""
    given, bad = with_bad_series()
    usual, results = found(given), found(bad, SEEDS[:2])
    assert np.isnan(results[-1]).any(-1).tolist() == [i in (3, 7) for i in range(40)]
    for x, z in zip(results, usual, strict=True):
        assert_same_bits(*(np.delete(v, (3, 7, 11), 0) for v in (x, z)))


def test_a_single_step_reads_no_transition() -> None:
    """F and Q of the last step are not read, and count nothing."""
    y, parameters = problem(3, 2, 1, 1, vague=True)
    right = found((y, parameters))
    parameters = parameters | {name: np.full_like(parameters[name], np.nan) for name in ("F", "Q")}
    for x, z in zip(found((y, parameters)), right, strict=True):
        assert_same_bits(x, z)
    assert not right[1][:, :4].any() and not right[1][:, 6:10].any()


def test_arrays_that_lie_anyhow() -> None:
    """Time first in memory, matrices transposed or repeated; none is written to."""
    y, model, form = lifted(*problem(6, 2, 2))
    right = found(problem(6, 2, 2))
    turned = cupy.asarray(np.ascontiguousarray(y.transpose(1, 2, 0))).transpose(2, 0, 1)
    F = cupy.asarray(np.ascontiguousarray(model.F.swapaxes(-1, -2))).swapaxes(-1, -2)
    P0 = cupy.broadcast_to(cupy.asarray(model.P0), (6, 2, 2))
    given = Model(*map(cupy.asarray, model))._replace(F=F, P0=P0)
    before = [x.get() for x in (turned, *given)]
    for x, z in zip(cupy_scan.kalman_gradient(turned, given, form, True), right, strict=True):
        assert_same_bits(x.get(), z)
    for x, z in zip((turned, *given), before, strict=True):
        assert_same_bits(x.get(), z)
    assert right[1].shape == (6, entries(form))


# ------------------------------------------------------------------------------------------------- planted mistakes

MISTAKES = {
    "what is told of a value before": ("across[i * M + l] = across[i * M + l] + load[l] * found;", ";"),
    "noise that is correlated": ("if (correlated) sums.rejoin(observations);", ""),
    "a missing value": ("if (of_y) of_y[i] = is_there ? -u[i] : T(0);", "if (of_y) of_y[i] = -u[i];"),
    "digits that are lost": ("if (gradient.filter(part, state)) {", "if (gradient.filter(part, state) && false) {"),
    "the state that a part begins with": ("state.recall(sums.state(stretch + left));", ""),
    "the sums of the series before": ("  sums.clear();", "  if (series < 64) sums.clear();"),
    "the covariance behind, by roots": ("shared[j * M + l] = found = own[M]", "found = own[M]"),
    "the last transition": ("const bool is_last = t + 1 == job.n;", "const bool is_last = false;"),
}


def is_wrong() -> bool:
    lend(64, 1)
    divide(3)
    y, parameters = problem(130, 2, 2, 7, vague=True)
    y[:, -1] = np.nan_to_num(y[:, -1], nan=0.5)
    given = y, parameters | {"Q": 5 * parameters["Q"]}
    try:
        assert_right(found(given, (2,)), given)
    except (cpu_build.LaunchError, AssertionError):
        return True
    return False


@pytest.mark.parametrize("name", ["nothing", *MISTAKES])
def test_a_mistake_shows(name: str) -> None:
    there_is_one = planted.plant_one("gradient.cu", MISTAKES, name)
    assert is_wrong() == there_is_one
