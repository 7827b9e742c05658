"""Recurrences whose coefficients are the same everywhere, which compiled code computes a vector of steps at a time."""

import itertools
from typing import Any

import numpy as np
import pytest

import tridiag

pytest.importorskip("numba")

COEFFICIENTS = (0.9, -0.3, 0.2, -0.1)
STEPS = (2, 3, 7, 8, 9, 15, 16, 17, 33, 100, 5000)  # around the lanes of a vector, and more than are walked at a time
ORDERS = [("float64", 2), ("float32", 1), *(  # kernels of other tests, too
    pytest.param(dtype, order, marks=pytest.mark.slow)
    for dtype, order in itertools.product(("float32", "float64"), (1, 2, 3, 4))
    if (dtype, order) not in (("float64", 2), ("float32", 1))
)]  # fmt: skip


def step_by_step(a: Any, x: np.ndarray, init: Any = None, reverse: bool = False) -> np.ndarray:
    """In extended precision."""
    x = x.astype(np.longdouble)[..., :: -1 if reverse else 1]
    before = [np.zeros(x.shape[:-1], np.longdouble)] * len(a) if init is None else [*np.moveaxis(init, -1, 0)]
    y = np.empty_like(x)
    for t in range(x.shape[-1]):
        y[..., t] = x[..., t] + sum(np.longdouble(w) * v for w, v in zip(a, before, strict=True))
        before = [y[..., t], *before[:-1]]
    return y[..., :: -1 if reverse else 1]


def recurrence(a: Any, x: np.ndarray, init: Any = None, **options: Any) -> np.ndarray:
    if init is not None:
        options["init"] = tuple(np.moveaxis(init, -1, 0)) if len(a) > 1 else init[..., 0]
    return tridiag.linear_recurrence(tuple(a) if len(a) > 1 else a[0], x, **options)


@pytest.mark.parametrize(("dtype", "order"), ORDERS)
def test_any_number_of_steps_and_sequences(dtype: str, order: int) -> None:
    """End to end, with room between them, backwards, and from given values."""
    rng, eps = np.random.default_rng(order), np.finfo(dtype).eps
    a = [np.dtype(dtype).type(w) for w in COEFFICIENTS[:order]]
    for n, count in itertools.product(STEPS, (1, 2, 19, 37)):  # the last ones in halves, where they lie end to end
        room = rng.standard_normal((count, n + 3)).astype(dtype)
        init = rng.standard_normal((count, order)).astype(dtype)
        for x, start, reverse in itertools.product((room[:, :n].copy(), room[:, :n]), (None, init), (False, True)):
            kept = room.copy()
            y, wanted = recurrence(a, x, start, reverse=reverse), step_by_step(a, x, start, reverse)
            assert abs(y - wanted).max() <= 8 * eps * abs(wanted).max(), (n, count, start is None, reverse)
            np.testing.assert_array_equal(room, kept)


def test_cumulative_sums_of_integers_are_exact() -> None:
    x = np.random.default_rng(0).integers(-1000, 1000, (7, 4999)).astype(np.float64)
    np.testing.assert_array_equal(tridiag.linear_recurrence(1.0, x), np.cumsum(x, -1))
    np.testing.assert_array_equal(tridiag.linear_recurrence(1.0, x[:, :13].copy()), np.cumsum(x[:, :13], -1))


def test_short_cumulative_sums_are_those_of_a_loop() -> None:
    """To the last bit, in both directions, for any number of sequences, and with nothing written between them."""
    rng = np.random.default_rng(1)
    for n, count, reverse in itertools.product((4, 5, 13, 31, 64), (6, 7, 9, 40), (False, True)):
        room = rng.standard_normal((count, n + 3))
        room[0, n // 2], room[-1, 0] = np.inf, -0.0
        turn = -1 if reverse else 1
        for x, out in ((room[:, :n].copy(), np.empty((count, n))), (room[:, :n], np.zeros((count, n + 2))[:, 1:-1])):
            y = tridiag.linear_recurrence(1.0, x, reverse=reverse, out=out)
            assert y.tobytes() == np.cumsum(x[:, ::turn], -1)[:, ::turn].tobytes(), (n, count, reverse)
            assert out.base is None or not out.base[:, [0, -1]].any()


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_sequence(bad: float) -> None:
    """And is what it is step by step: an infinity, or NaN from where two of them meet."""
    for n in (6, 100):
        x = np.random.default_rng(1).standard_normal((5, n))
        x[2, n // 3] = bad
        for w in (1.0, 0.5, 0.0, -1.0):
            wanted = step_by_step((w,), x).astype(float)
            np.testing.assert_allclose(tridiag.linear_recurrence(w, x), wanted, rtol=1e-12, atol=1e-14)
        x[2, n // 3 + 1] = -bad
        wanted = step_by_step((1.0,), x).astype(float)
        np.testing.assert_allclose(tridiag.linear_recurrence(1.0, x), wanted, rtol=1e-12, atol=1e-14)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("row", [0, 15, 16, 31, 32, 39])
def test_what_is_not_finite_in_one_of_many_sequences(bad: float, row: int) -> None:
    """In each half of those that are computed abreast, and behind both."""
    x = np.random.default_rng(1).standard_normal((40, 6))
    x[row, 2] = bad
    for a in ((0.5, 0.25), (0.0, 0.0)):
        wanted = step_by_step(a, x).astype(float)
        np.testing.assert_allclose(tridiag.linear_recurrence(a, x), wanted, rtol=1e-12, atol=1e-14)


def test_coefficients_that_grow() -> None:
    """Beyond the largest factor, and to an overflow, which comes where it comes step by step."""
    x = np.random.default_rng(2).uniform(0.5, 1, (3, 300))
    for w in (1.5, 2.5, 1e10, -1e300):
        wanted = np.empty_like(x)
        before = np.zeros(3)
        with np.errstate(over="ignore", invalid="ignore"):
            for t in range(300):
                wanted[:, t] = before = w * before + x[:, t]
        y = tridiag.linear_recurrence(w, x)
        np.testing.assert_array_equal(np.isfinite(y), np.isfinite(wanted))
        np.testing.assert_allclose(y, wanted, rtol=1e-12)  # infinities and NaN in their places, too


@pytest.mark.parametrize(("dtype", "order"), ORDERS)
def test_values_that_nearly_vanish_keep_their_digits(dtype: str, order: int) -> None:
    """Factors between the steps of a vector are subnormal, and values so large that the products with them are not."""
    rng, limits = np.random.default_rng(order), np.finfo(dtype)
    for n, count, every in itertools.product((3, 9, 40, 300), (1, 3, 19), (5, 31)):
        for w in (limits.tiny * 3, limits.tiny**0.5, limits.tiny**0.1, limits.tiny**0.04):
            x = np.zeros((count, n), dtype)
            x[:, ::every] = limits.max**0.8 * rng.uniform(0.5, 1, x[:, ::every].shape)
            for a in ([w] * order, [0.0] * (order - 1) + [w], [w] + [0.0] * (order - 1)):
                a = [np.dtype(dtype).type(number) for number in a]
                y, wanted = recurrence(a, x), step_by_step(a, x)
                assert (abs(y - wanted) <= 100 * limits.eps * wanted + limits.tiny).all(), (n, count, every, a)


def test_many_sequences_on_all_threads() -> None:
    rng = np.random.default_rng(3)
    for shape in ((60_000, 7), (3, 200_000), (500, 1001)):
        x = rng.standard_normal(shape)
        np.testing.assert_allclose(tridiag.linear_recurrence(1.0, x), np.cumsum(x, -1), rtol=1e-11, atol=1e-10)
