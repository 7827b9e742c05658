"""The CUDA C kernels of Kalman filters on the CPU build: sizes, gaps, series in turn, lost digits, layouts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cpu_build
import numpy as np
import planted
import pytest
from helpers import EPS, STANDIN, assert_same_bits

if not STANDIN:
    pytest.skip("runs the CPU build; on a GPU the main suite runs the kernels", allow_module_level=True)
if reason := cpu_build.why_not():
    pytest.skip(reason, allow_module_level=True)

import cupy
from cupy import machine
from small_cases import Filters, distance
from test_kalman import model, moments, series

from tridiag import kalman
from tridiag.cuda import kalman as launches
from tridiag.problems.state_space import StateSpace

SEEDS = range(4)
VERBS = "filter", "smoother"
Given = tuple[np.ndarray, dict[str, np.ndarray]]


@pytest.fixture(autouse=True)
def order() -> Iterator[None]:
    most, room = launches.MOST, launches.ROOM
    yield
    machine.seed = 0
    planted.uproot()
    lend(most, room)


def lend(most: int, room: int) -> None:
    """So many threads at work, and so many bytes of scratch memory, at most."""
    launches.MOST, launches.ROOM = most, room
    launches.program.cache_clear()


def problem(count: int, k: int, p: int, n: int = 4, dtype: str = "float64", vague: bool = False) -> Given:
    """Series with gaps, whose models differ in F and m0; some have a vague start, if any has, and lose digits by it.

    Observed values are correlated where there are two, and otherwise where there are more.
    """
    given = model(k, p, seed=k + p)
    rng = np.random.default_rng(count)
    given["F"] = given["F"] * rng.uniform(0.5, 1.0, (count, 1, 1, 1))
    given["m0"] = rng.normal(size=(count, k))
    if p != 2:
        given["R"] = np.diag(np.diag(given["R"]))
    if vague:
        given["P0"] = given["P0"] * np.where(np.arange(count) % 3 == 1, 1e10, 1)[:, None, None]
    y = series(count, n, p, missing=0.2, seed=n)
    return y.astype(dtype), {name: x.astype(dtype) for name, x in given.items()}


def found(verb: str, given: Given, seeds: Any = (0,)) -> list[np.ndarray]:
    """The results, no bit of which an order of the threads may change."""
    y, parameters = given
    arrays = {name: cupy.asarray(x) for name, x in parameters.items()}
    results: list[list[np.ndarray]] = []
    for machine.seed in seeds:
        one = getattr(kalman, verb)(cupy.asarray(y), **arrays, backend="cupy_scan")
        results.append([x.get() for x in (one if isinstance(one, tuple) else (one,))])
        for x, first in zip(results[-1], results[0], strict=True):
            assert_same_bits(x, first)
    return results[0]


def assert_right(verb: str, results: list[np.ndarray], given: Given) -> None:
    """Against the loop over rows in double precision; errors are counted in those of the largest number."""
    y, parameters = given
    right = getattr(kalman, verb)(
        y.astype(float), **{name: x.astype(float) for name, x in parameters.items()}, backend="numpy_scan"
    )
    right = right if isinstance(right, tuple) else (right,)
    limit = 1000 * EPS[y.dtype.name]
    for k, (x, z) in enumerate(zip(results, right, strict=True)):
        for i in range(len(y)):
            scale = np.abs(z[i]).max(initial=1e-3)
            np.testing.assert_allclose(x[i] / scale, z[i] / scale, rtol=0, atol=limit, err_msg=f"{verb} {k} {i}")


@pytest.mark.parametrize(("k", "dtype"), [(2, "float32"), (8, "float64")])
def test_sizes(k: int, dtype: str) -> None:
    """Loops over rows that are written out and that are not; more series than a block has threads, some by roots."""
    for count, p, n, vague in ((3, 1, 1, False), (70, 2, 3, True), (5, 3, 3, False)):
        given = problem(count, k, p, n, dtype, vague)
        for verb in VERBS:
            assert_right(verb, found(verb, given, SEEDS[:2]), given)


def test_what_a_warp_writes_lies_side_by_side() -> None:
    """Series are last in memory, behind steps and the entries of a step, whatever batch axes there are."""
    y, parameters = problem(6, 2, 1, n=5)
    arrays = {name: cupy.asarray(x) for name, x in parameters.items()}
    arrays |= {name: arrays[name].reshape(2, 3, *arrays[name].shape[1:]) for name in ("F", "m0")}
    states = kalman.smoother(cupy.asarray(y).reshape(2, 3, 5, 1), **arrays, backend="cupy_scan")
    right = found("smoother", (y, parameters))
    assert states.mean.strides == (24, 8, 96, 48) and states.cov.strides == (24, 8, 192, 96, 48)
    for x, z in zip(states, right, strict=True):
        assert_same_bits(x.get().reshape(z.shape), z)


@pytest.mark.smoke
def test_one_size() -> None:
    given = problem(5, 2, 1)
    assert_right("log_likelihood", found("log_likelihood", given, (2,)), given)


def test_conditioning_of_the_joint_distribution() -> None:
    """The definition, by dense matrices: independent of every filter."""
    y, parameters = problem(2, 2, 2)
    results = found("smoother", (y, parameters)), found("filter", (y, parameters))
    for i in range(2):
        own = {name: x[i, 0] if x.ndim == 4 else x[i] if name == "m0" else x for name, x in parameters.items()}
        for (mean, cov, *_, likelihood), ahead in zip(results, (lambda t: len(y[0]), lambda t: t + 1), strict=True):
            wanted = moments(y[i], own, ahead)
            for x, z in zip((mean[i], cov[i], likelihood[i]), wanted, strict=True):
                np.testing.assert_allclose(x, z, rtol=1e-11, atol=1e-11)


@pytest.mark.usefixtures("fused")
def test_products_that_are_fused() -> None:
    given = problem(9, 2, 2, vague=True)
    assert_right("filter", found("filter", given), given)


def test_series_take_threads_and_scratch_memory_in_turn() -> None:
    """Threads for one warp, and memory for fewer: all other series wait, and find nothing of those before."""
    given = problem(150, 2, 2, 3, vague=True)
    right = [found(verb, given) for verb in VERBS]
    lend(64, 1)
    for verb, results in zip(VERBS, right, strict=True):
        for x, z in zip(found(verb, given, SEEDS[:3]), results, strict=True):
            assert_same_bits(x, z)
        assert all(grid <= 2 for _, grid, _, _ in machine.launches[-4:])


def test_no_more_scratch_memory_than_threads_at_work_need() -> None:
    for count, n, k, p in ((10**6, 100, 8, 8), (10**6, 100, 1, 1), (3, 1000, 8, 2)):
        form = StateSpace(n, p, k, (count,), (1,), None, False)
        shapes = ((count, n, p), *[(1, 1, k, k)] * 4, (1, k), (1, k, k))
        results = ((count, n, k), (count, n, k, k), (count,))
        operands = launches.operands_of(shapes, results)
        strides = tuple(None if x is None else (0,) * len(x) for x in operands)
        program = launches.program(form, operands, strides, "float64")
        assert program.scratch <= launches.ROOM + 16 * count + 2**16
        assert len(program.steps) == 5


def with_bad_series() -> tuple[Given, Given]:
    """40 series, and the same but for number 3, with NaN in F, 7, an infinite variance, and 11, which loses digits."""
    y, parameters = problem(40, 2, 1)
    y = np.nan_to_num(y, nan=0.5)
    parameters["R"] = np.broadcast_to(parameters["R"], (40, 1, 1, 1))
    parameters["P0"] = np.broadcast_to(parameters["P0"], (40, 2, 2))
    bad = {name: x.copy() for name, x in parameters.items()}
    bad["F"][3], bad["R"][7], bad["P0"][11] = np.nan, np.inf, 1e12 * np.eye(2)
    return (y, parameters), (y, bad)


def test_a_bad_series_is_no_neighbours_concern() -> None:
    """NaN in a model, a variance that is 0, an infinite one, and one that loses digits: each alone."""
    given, (y, parameters) = with_bad_series()
    usual = {verb: found(verb, given) for verb in VERBS}
    parameters["R"][20], parameters["P0"][20], parameters["F"][20] = 0, 0, 0
    for verb in VERBS:
        results = found(verb, (y, parameters), SEEDS[:2])
        assert np.isnan(results[-1]).tolist() == [i in (3, 7) for i in range(40)] or np.isnan(results[-1][20])
        for x, z in zip(results, usual[verb], strict=True):
            assert_same_bits(*(np.delete(v, (3, 7, 11, 20), 0) for v in (x, z)))


def test_arrays_that_lie_anyhow() -> None:
    """Time first in memory, matrices transposed or repeated, along more axes than a kernel walks through."""
    y, parameters = problem(6, 2, 2)
    right = found("filter", (y, parameters))
    arrays = {name: cupy.asarray(x) for name, x in parameters.items()}
    turned = cupy.asarray(np.ascontiguousarray(y.transpose(1, 2, 0))).transpose(2, 0, 1)
    arrays["F"] = cupy.asarray(np.ascontiguousarray(parameters["F"].swapaxes(-1, -2))).swapaxes(-1, -2)
    arrays["Q"] = cupy.broadcast_to(arrays["Q"], (6, 4, 2, 2))
    for x, z in zip(kalman.filter(turned, **arrays, backend="cupy_scan"), right, strict=True):
        assert_same_bits(x.get(), z)
    many = np.broadcast_to(y[:2, None, None, None, None], (2, 3, 2, 2, 2, *y.shape[1:]))[:, ::-1, :, ::-1]
    wide = cupy.asarray(np.ascontiguousarray(many.swapaxes(0, 3))).swapaxes(0, 3)
    own = (slice(None), *[None] * 4)
    arrays |= {"Q": cupy.asarray(parameters["Q"])} | {name: arrays[name][:2][own] for name in ("F", "m0")}
    for x, z in zip(kalman.filter(wide, **arrays, backend="cupy_scan"), right, strict=True):
        assert_same_bits(x.get(), np.broadcast_to(z[:2][own], x.shape))


@pytest.mark.parametrize("count", [5, 7, 8, 9])
def test_smoothed_covariances_of_a_vague_start(count: int) -> None:
    """A variance of 1e10 among others in single precision: weighted Gram-Schmidt loses up to three digits more."""
    y, parameters = Filters("cupy_scan", "kalman.smoother", (count, 4, 8, 3), "float32").arrays(True)
    _, cov, _ = found("smoother", (y, parameters))
    _, right, _ = kalman.smoother(y.astype(float), **{name: x.astype(float) for name, x in parameters.items()})
    assert max(distance(x, z) for x, z in zip(cov, right, strict=True)) < 1e-5


# ------------------------------------------------------------------------------------------------- planted mistakes

# that warps have places of their own is not among them: without a barrier the model runs a thread to its end
MISTAKES = {  # and the verb that shows it
    "a missing value": ("filter", "if (!observations.is_there(j)) continue;\n    Seen", "Seen"),
    "noise that is correlated": ("filter", "if (correlated) observations.separate();", ""),
    "digits that are lost": ("filter", "else if (lost) {", "else if (false) {"),
    "the place of another series": (
        "filter",
        "k += Index(gridDim.x) * blockDim.x",
        "k += Index(gridDim.x) * blockDim.x + 1",
    ),
    "the last transition": ("smoother", "if (t + 1 < job.n) ahead.carry_back", "ahead.carry_back"),
    "the state behind": ("smoother", "(weights, joined, root);", "(weights, joined, gain);"),
    "the weight that is left": ("smoother", "rest[m] = Roots", "Roots"),
    "the turns of observations": ("smoother", "back.turn(turns.from(j * Seen<T, M>::TURN));", ";"),
}


def is_wrong(verb: str) -> bool:
    lend(64, 1)
    y, parameters = problem(130, 2, 2, 3, vague=True)
    parameters["F"] = np.broadcast_to(parameters["F"], (130, 3, 2, 2)).copy()
    right = y, parameters | {"F": parameters["F"].copy()}
    right[1]["F"][:, -1] = 1
    parameters["F"][:, -1] = np.nan
    try:
        assert_right(verb, found(verb, (y, parameters), (2,)), right)
    except (cpu_build.LaunchError, AssertionError):
        return True
    return False


@pytest.mark.parametrize("name", ["nothing", *MISTAKES])
def test_a_mistake_shows(name: str) -> None:
    verb, *change = MISTAKES.get(name, ("smoother",))
    if change:
        planted.plant({f"{verb}.cu": planted.replacing(*change)})
    assert is_wrong(verb) == (name in MISTAKES)
