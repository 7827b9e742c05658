"""Filters of more than 8 states and of many series: a series in each lane, against `numpy_scan`, which others judge."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from helpers import EPS

from tridiag import kalman
from tridiag.kernels.jobs.kalman import make_job
from tridiag.problems.state_space import StateSpace

from test_kalman import model, of_series, series  # isort: skip

from test_many_states import assert_alike, derivatives, each  # isort: skip

pytest.importorskip("numba")


def kernel_of(family: str, count: int, steps: int = 10, states: int = 9) -> str:
    """The family of the kernel that computes so many series, each of a model of its own."""
    form = StateSpace(steps, 1, states, (count,), (count,), missing=False, checked=True)
    k = (states,)
    shapes = [(count, steps, 1), *[(count, 1, *own) for own in (k * 2, (1, *k), k * 2, (1, 1))], (count, *k)]
    return str(make_job(family, "complete", form, [*shapes, (count, *k * 2)], np.dtype(float), 2).kernel[0])


def test_few_series_are_computed_one_after_another() -> None:
    """Lanes that nobody fills would take as long; of very many steps a gradient would keep too much memory."""
    for family, one, lanes in (
        ("filter", "filter_many", "filter_in_lanes"),
        ("moments", "filter_many", "filter_in_lanes"),
        ("smoother", "smoother_many", "smoother_in_lanes"),
        ("filter_gradient", "gradient_many", "gradient_in_lanes"),
    ):
        assert kernel_of(family, 1) == one
        assert kernel_of(family, 400) == lanes
    assert kernel_of("filter_gradient", 400, 10**6) == "gradient_many"
    assert kernel_of("filter", 400, 10**6) == "filter_in_lanes"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("count", [8, 17, 35])
def test_groups_that_are_full_or_not(count: int, dtype: str) -> None:
    """Own models and shared ones, constant or changing, with dependent observations of which some are missing."""
    for p, time, own in ((1, (), False), (3, (4,), False), (2, (), True), (10, (), False)):
        y, parameters = series(count, 4, p, missing=0.2), model(11, p, *((count,) if own else ()), time=time)
        y, given = y.astype(dtype), {name: x.astype(dtype) for name, x in parameters.items()}
        wanted = each(y.astype(float), {name: x.astype(float) for name, x in given.items()}, "numpy")
        assert_alike(each(y, given), wanted, 2e4 * EPS[dtype])


def doubtful(name: str) -> tuple[np.ndarray, dict[str, Any], int]:
    """Series of which one loses digits, or has none: y, models, and its number."""
    y, parameters, bad = series(19, 6, 2, missing=0.1), model(9, 2, 19), 12
    parameters["P0"] = np.broadcast_to(parameters["P0"], (19, *parameters["P0"].shape[-2:])).copy()
    if name == "diffuse":
        parameters["P0"][bad] *= 1e14
    else:
        parameters["F"][bad, 0, 1, 1] = np.nan
    return y, parameters, bad


@pytest.mark.parametrize("case", ["diffuse", "NaN"])
def test_a_doubtful_series_is_computed_again_and_no_other(case: str) -> None:
    """The others are, to the last bit, what they are where the model of that one is another one's."""
    y, parameters, bad = doubtful(case)
    usual = {name: np.where(np.arange(19).reshape(19, *[1] * (x.ndim - 1)) == bad, x[:1], x) if len(x) == 19 else x
             for name, x in parameters.items()}  # fmt: skip
    found, without = each(y, parameters), each(y, usual)
    others = np.arange(19) != bad
    for x, z in zip((*found[0], *found[1], found[2]), (*without[0], *without[1], without[2]), strict=True):
        np.testing.assert_array_equal(x[others], z[others])
    alone = each(y[bad], of_series(parameters, bad), "numpy")
    own = [type(x)(*(part[bad] for part in x)) for x in found[:2]]
    assert_alike([*own, found[2][bad]], alone, 1e-6)


def test_the_gradient_of_a_doubtful_series_is_that_of_it_alone() -> None:
    y, parameters, bad = doubtful("diffuse")
    found, alone = derivatives(y, parameters), derivatives(y[bad], of_series(parameters, bad))
    for name, x in alone.items():
        z = found[name] if name == "m0" and found[name].ndim == 1 else found[name][bad]
        if z is not found[name]:  # of what is shared the sum over series is found
            np.testing.assert_allclose(z.reshape(x.shape), x, rtol=1e-9, atol=1e-9 * abs(x).max(), err_msg=name)


# ------------------------------------------------------------------------------------------------------- the form of F

STATES, STEPS = 11, 50  # enough of both for states to be changed


def formed(name: str, rng: np.random.Generator) -> dict[str, Any]:
    """A model of its own for each of 9 series, whose F is dense, or is not."""
    k, noise = STATES, rng.normal(size=(9, 1, STATES, STATES))
    F = 0.9 * np.linalg.qr(noise)[0]
    units = 10.0 ** rng.integers(-7, 8, k) if name == "units" else np.ones(k)
    if name == "season":
        F = np.eye(k, k=-1) + np.zeros((9, 1, 1, 1))
        F[..., 0, :] = -1
    elif name == "apart":  # neighbours of which neither knows of the other, in units far apart
        F, noise = (x * ((np.arange(k)[:, None] + np.arange(k)) % 2 == 0) for x in (F, noise))
        units = np.where(np.arange(k) % 2, 1e8, 1e-3)
    Q = noise @ noise.swapaxes(-1, -2) / k
    if name == "one noise":
        Q[..., 1:, :] = Q[..., :, 1:] = 0
    turned = {"F": units[:, None] * F / units, "Q": units[:, None] * Q * units}
    given = {"H": rng.normal(size=(9, 1, 2, k)) / units, "R": np.full((9, 1, 2, 2), 0.1) + np.eye(2)}
    return turned | given | {"m0": units * rng.normal(size=(9, k)), "P0": np.diag(units**2) * (name != "one noise")}


@pytest.mark.parametrize("name", ["dense", "units", "apart", "one noise", "season"])
def test_log_likelihoods_are_those_of_states_as_they_stand(name: str) -> None:
    """Of a dense F others are taken, so that half of it is zeros; however far apart the units of states are."""
    from tridiag.kernels.many_states import hessenberg

    assert hessenberg.STEPS <= STEPS
    rng = np.random.default_rng(3)
    y, given = rng.normal(size=(9, STEPS, 2)), formed(name, rng)
    y[rng.random(y.shape) < 0.1] = np.nan
    found, wanted = (kalman.log_likelihood(y, backend=backend, **given) for backend in ("numba", "numpy"))
    np.testing.assert_allclose(found, wanted, rtol=1e-13)
    np.testing.assert_allclose(kalman.filter(y, **given).log_likelihood, wanted, rtol=1e-13)


@pytest.mark.parametrize("observed", [1, 2])
@pytest.mark.parametrize("name", ["dense", "units", "apart", "one noise", "season", "diffuse", "certain"])
def test_those_of_series_that_share_a_model(name: str, observed: int) -> None:
    """The same, of states that each series begins with; where digits would be lost, of the states as they stand."""
    rng = np.random.default_rng(4)
    given = {key: x[0, 0] if x.ndim == 4 else x for key, x in formed(name, rng).items()}
    given |= {"H": given["H"][:observed], "R": given["R"][:observed, :observed]}
    y, limit = rng.normal(size=(9, STEPS, observed)), 1e-13
    if name == "diffuse":
        given, limit = given | {"P0": 1e13 * given["P0"], "R": 1e-4 * given["R"]}, 1e-10
    elif name == "certain":
        given |= {key: 0 * given[key] for key in ("P0", "Q")}
    found, wanted = (kalman.log_likelihood(y, backend=backend, **given) for backend in ("numba", "numpy"))
    np.testing.assert_allclose(found, wanted, rtol=limit)


# ------------------------------------------------------------------------------------------------------- products


def run_of(dtype: str) -> Any:
    """Products of matrices of vectors, as a C function of the address of its arguments."""
    from numba import cfunc, types

    from tridiag.kernels.simd.compiled import compiled
    from tridiag.kernels.simd.functions import definition
    from tridiag.kernels.simd.memory import c_function, call, word
    from tridiag.kernels.simd.vector import LINE
    from tridiag.kernels.states_in_lanes.matrices import (
        Matrix,
        Profile,
        add_product,
        add_symmetric,
        add_symmetric_less,
        apply,
        subtract_symmetric,
    )

    zero = np.zeros((), dtype)[()]

    @compiled
    def work(at: int, zero: Any) -> None:
        inner, rows, columns, what = word(at + 32), word(at + 40), word(at + 48), word(at + 56)
        target, start = (Matrix(word(at), columns * LINE, LINE), Matrix(word(at + 24), columns * LINE, LINE))
        left, right = Matrix(word(at + 8), inner * LINE, LINE), Matrix(word(at + 16), inner * LINE, LINE)
        of = Profile(word(at + 64), 16)
        if what == 0:
            add_product(zero, target, left, right, start, of, inner, rows, columns)
        elif what == 1:
            add_symmetric(zero, target, left, right, start, of, inner, rows, rows)
        elif what == 2:
            subtract_symmetric(zero, target, left, right, start, of, inner, rows, rows)
        elif what == 3:
            apply(zero, target.address, left, right.address, start.address, of, inner, rows)
        else:
            add_symmetric_less(zero, target, left, right, start, of, rows, (word(at + 72), word(at + 72)), 2)

    function = c_function(work, "tridiag_test_lanes")
    define = definition(function)

    def enter(at: int) -> None:
        define(zero)
        call(function(zero), (at,))

    return cfunc(types.void(types.int64), error_model="numpy")(enter)


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
def test_products_of_all_sizes(dtype: str) -> None:
    """However sizes are cut, of rows with zeros at both ends; symmetric to the last bit; nothing else is written."""
    made = run_of(dtype)
    run, lanes = ctypes.CFUNCTYPE(None, ctypes.c_int64)(made.address), 64 // np.dtype(dtype).itemsize
    rng = np.random.default_rng(0)
    for rows, inner, what in (
        (m, m if what == 4 else k, what) for m in (1, 2, 3, 4, 5, 7, 9, 10, 17) for k in (1, 2, 9) for what in range(5)
    ):
        columns = {0: 6, 3: 1}.get(what, rows)
        left, right, taken = (rng.normal(size=(n, inner, lanes)).astype(dtype) for n in (rows, columns, 2))
        sided = left if what in (0, 3) else right
        ends = np.sort(rng.integers(0, inner + 1, (len(sided), 2))) if rows % 2 else np.array([[0, 2**40]] * len(sided))
        outside = (np.arange(inner) < ends[:, :1]) | (np.arange(inner) >= ends[:, 1:])
        sided[outside] = 0
        start = rng.normal(size=(rows, columns, lanes)).astype(dtype)
        target = np.full((rows * columns + 1, lanes), 7, dtype)
        places = [x.ctypes.data for x in (target, left, right, start)]
        words = np.array([*places, inner, rows, columns, what, ends.ctypes.data, taken.ctypes.data], np.int64)
        run(words.ctypes.data)
        sign = -1 if what == 2 else 1
        wanted = start + sign * np.einsum("ikl,jkl->ijl", left.astype(float), right.astype(float))
        if what == 4:
            wanted = wanted - np.einsum("qil,qjl->ijl", taken.astype(float), taken.astype(float))
        found = target[:-1].reshape(rows, columns, lanes)
        if what in (1, 2, 4):
            np.testing.assert_array_equal(found, found.swapaxes(0, 1))
            upper = np.triu_indices(rows)
            found, wanted = found[upper], wanted[upper]
        np.testing.assert_allclose(found, wanted, rtol=0, atol=60 * EPS[dtype])
        assert (target[-1] == 7).all()
