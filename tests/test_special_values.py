"""That NaN, infinities, huge and tiny numbers strewn over recurrences go where the definition, step by step, has them.

A NaN reaches every later value and no earlier one, in whatever lane, block, chunk and thread; so do infinities.
"""

import functools
from typing import Any

import numpy as np
import pytest
from helpers import EPS, Subject, to_numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tridiag

INF = np.inf
NEGATIVE_NAN = np.copysign(np.nan, -1.0)  # what 0 / 0 gives on x86; a kernel that works on bits meets it as another
WITH_PAYLOAD = np.array([0x7FF8DEAD0000BEEF], np.uint64).view(np.float64)[0]
SPECIAL = (np.nan, NEGATIVE_NAN, WITH_PAYLOAD, INF, -INF, 0.0, -0.0)
SETTINGS = {
    "deadline": None,
    "derandomize": True,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}
DRAWN = st.tuples(st.integers(0, 10**6), st.booleans(), st.booleans())  # a seed, whether there is init, reverse


def strewn(rng: np.random.Generator, shape: Any, dtype: str, others: Any, size: float = 1.0) -> np.ndarray:
    """Noise, or a ramp, with some kinds of special values in few or in many places."""
    x = size * rng.normal(size=shape)
    if rng.random() < 0.3:
        x = x + np.arange(shape[-1]) * rng.choice([-1.0, 0.1, 1.0])
    few = rng.integers(1, 4) if rng.random() < 0.7 else max(1, x.size // 20)
    pool = rng.permutation([*SPECIAL, *others])[: rng.integers(1, 5)]
    with np.errstate(over="ignore"):
        x.ravel()[rng.integers(0, x.size, few)] = rng.choice(pool, few)
        return x.astype(dtype)


def in_order(x: Any, a: Any, init: Any, axis: int, reverse: bool, step: Any) -> np.ndarray:
    """y[t] = step(a[t], y[t-1], x[t]), one after another; without init y[0] = x[0]."""
    rows, coefficients = (np.moveaxis(v, axis, 0)[:: -1 if reverse else 1] for v in (x, a))
    y = np.array(rows)
    with np.errstate(all="ignore"):
        for t in range(len(y)):
            before = y[t - 1] if t else init
            if before is not None:
                y[t] = step(coefficients[t], before, rows[t])
    return np.moveaxis(y[:: -1 if reverse else 1], 0, axis)


def assert_same_kind(found: np.ndarray, right: np.ndarray, size: Any, told: str) -> None:
    """NaN, inf and -inf in the same places, and values within a rounding of ``size``; beyond that anything goes."""
    huge = float(np.finfo(found.dtype).max)
    with np.errstate(all="ignore"):
        bound = 64 * EPS[found.dtype.name] * size
        near = abs(found - right) <= bound
        same = (np.isnan(found) & np.isnan(right)) | (found == right) | (np.isfinite(right) & np.isfinite(found) & near)
        overflows = ~np.isnan(right) & (abs(right) > huge / 4) & (abs(found) > huge / 8)
        wrong = ~(same | overflows | (bound > huge / 4))
    assert not wrong.any(), (
        f"{told}: {wrong.sum()} of {wrong.size}, the first at {tuple(map(int, np.argwhere(wrong)[0]))}: "
        f"{found[wrong][0]}, not {right[wrong][0]}"
    )


SHAPES = [((40,), 0), ((3, 70), 1), ((70, 3), 0), ((5, 40, 3), 1)]
WIDE = [((6007,), 0), ((2, 3001), 1), ((3001, 3), 0), ((70, 40), 0), ((20, 130), 1), ((2, 131, 19), 1)]


def shapes(backend: Subject) -> list[Any]:
    """Long and wide ones for compiled kernels, few where each is a compilation."""
    return SHAPES + WIDE if backend.compiled and backend.library == "numpy" else SHAPES[1:3]


def examples(backend: Subject) -> int:
    return 100 if backend.compiled and backend.library == "numpy" else 8 if backend.library == "jax" else 15


def check(backend: Subject, one: Any) -> None:
    """Run a check of (seed, with init, reverse) on many of them."""
    given(DRAWN)(settings(max_examples=examples(backend), **SETTINGS)(lambda drawn: one(*drawn)))()


@functools.cache
def compiled(name: str, verb: str, axis: int, reverse: bool, last: bool) -> Any:
    """A verb of a backend for JAX as a compiled function of its arrays."""
    import jax

    options = {"axis": axis, "reverse": reverse, "backend": name, "return_final": last}
    return jax.jit(lambda *arrays: getattr(tridiag, verb)(*arrays, **options))


def run(backend: Subject, verb: str, arrays: Any, axis: int, reverse: bool) -> tuple[np.ndarray, np.ndarray]:
    """y and the last value, under jit where the arrays are JAX's."""
    arrays = [
        tuple(map(backend.array, v)) if isinstance(v, tuple) else backend.array(v) for v in arrays if v is not None
    ]
    if backend.library == "jax":
        y, last = compiled(backend.name, verb, axis, reverse, True)(*arrays)
    else:
        options = {"axis": axis, "reverse": reverse, "backend": backend.name, "return_final": True}
        y, last = getattr(tridiag, verb)(*arrays, **options)
    return to_numpy(y), to_numpy(last[0] if isinstance(last, tuple) else last)


# --------------------------------------------------------------------------------------------------------- logarithms


def logarithms(backend: Subject, seed: int, given_init: bool, reverse: bool) -> None:
    rng = np.random.default_rng(seed)
    shape, axis = shapes(backend)[rng.integers(len(shapes(backend)))]
    dtype = str(rng.choice(["float32", "float64"]))
    huge = 1e300 if dtype == "float64" else 1e37
    x = strewn(rng, shape, dtype, (huge, -huge, 1e-300, 800.0, -800.0), rng.choice([0.1, 3, 300]))
    log_a = np.zeros(shape, dtype)
    if weighted := rng.random() < 0.6:
        log_a = strewn(rng, shape, dtype, (huge, -huge, 50.0), 0.1)
    init = None
    if given_init and weighted:
        init = rng.choice([0.0, 100.0, INF, -INF, np.nan, NEGATIVE_NAN], tuple(np.delete(shape, axis))).astype(dtype)
    x_wide, a_wide, init_wide = (None if v is None else v.astype(np.longdouble) for v in (x, log_a, init))
    right = in_order(x_wide, a_wide, init_wide, axis, reverse, lambda a, y, v: np.logaddexp(a + y, v))
    with np.errstate(all="ignore"):
        sizes = [np.moveaxis(np.where(np.isfinite(v), abs(v), 0), axis, 0) for v in (right, a_wide)]
        sizes = [v[:: -1 if reverse else 1] for v in sizes]
        size = 1 + np.maximum.accumulate(sizes[0], axis=0) + np.cumsum(sizes[1], axis=0)
        if init is not None:
            size = size + np.where(np.isfinite(init), abs(init), 0)
        size = np.moveaxis(size[:: -1 if reverse else 1], 0, axis)
    if weighted and init is None:  # what is never read
        np.moveaxis(log_a, axis, 0)[-1 if reverse else 0] = rng.choice([np.nan, INF])
    told = f"seed {seed} init {given_init} reverse {reverse}: {shape} {axis} {dtype} weighted {weighted}"
    if weighted:
        y, last = run(backend, "log_linear_recurrence", (log_a, x, init), axis, reverse)
        np.testing.assert_array_equal(last, np.take(y, 0 if reverse else -1, axis), told)
    else:
        options = {"axis": axis, "reverse": reverse, "backend": backend.name}
        y = to_numpy(tridiag.logcumsumexp(backend.array(x), **options))
    assert_same_kind(y, right, size * (20 if backend.name == "jax_associative" else 1), told)


@pytest.mark.only(verb="log_linear_recurrence", library=("numpy", "torch"))
def test_logarithms(backend: Subject) -> None:
    check(backend, functools.partial(logarithms, backend))


@pytest.mark.slow
@pytest.mark.only(verb="log_linear_recurrence", library="jax")
def test_logarithms_under_jax(backend: Subject) -> None:
    check(backend, functools.partial(logarithms, backend))


def derivatives(x: Any, log_a: Any, init: Any, reverse: bool) -> tuple[np.ndarray, list[np.ndarray]]:
    """Which y are finite, and the derivatives of their sum by log_a, x and init; sequences lie along the last axis."""
    turn = slice(None, None, -1 if reverse else 1)
    wide = [None if v is None else v.astype(np.longdouble) for v in (x, log_a, init)]
    y = in_order(*wide, -1, reverse, lambda a, y, v: np.logaddexp(a + y, v))[:, turn]
    before = np.column_stack([np.full(len(y), -INF) if init is None else wide[2], y[:, :-1]])
    with np.errstate(all="ignore"):
        p, q = (np.where(np.isfinite(y), np.exp(v - y), 0) for v in (wide[1][:, turn] + before, wide[0][:, turn]))
    if init is None:
        p[:, 0] = 0
    w = np.where(np.isfinite(y), np.longdouble(1), 0)
    for t in range(y.shape[1] - 2, -1, -1):
        w[:, t] += p[:, t + 1] * w[:, t + 1]
    undefined = np.where(np.isnan(y), np.nan, 0.0)
    of_past = p * w + undefined
    if init is None:
        of_past[:, 0] = 0
    return np.isfinite(y)[:, turn], [of_past[:, turn], (q * w + undefined)[:, turn], of_past[:, 0]]


@pytest.mark.only(verb="log_linear_recurrence", library=("jax", "torch"))
@pytest.mark.parametrize(("given_init", "reverse"), [(False, False), (True, True)])
def test_gradients_of_logarithms(backend: Subject, given_init: bool, reverse: bool) -> None:
    """NaN where the result is, never a number; elsewhere those of the finite results; 0 for what is never read."""
    rng = np.random.default_rng(0)
    x, log_a, init = rng.normal(size=(40, 20)), rng.normal(size=(40, 20)), rng.normal(size=40)
    for values in (x, log_a):
        values.ravel()[rng.integers(0, values.size, 40)] = rng.choice([np.nan, NEGATIVE_NAN, INF, -INF], 40)
    init[:3] = np.nan, INF, -INF
    arrays = (log_a, x, init) if given_init else (log_a, x)
    kept, right = derivatives(x, log_a, init if given_init else None, reverse)
    options = {"reverse": reverse, "backend": backend.name}
    if backend.library == "jax":
        import jax

        found = jax.jit(
            lambda *v: jax.vjp(lambda *v: tridiag.log_linear_recurrence(*v, **options), *v)[1](kept.astype(float))
        )(*arrays)
    else:
        given_arrays = [backend.array(v).requires_grad_() for v in arrays]
        tridiag.log_linear_recurrence(*given_arrays, **options).backward(backend.array(kept.astype(float)))
        found = [v.grad for v in given_arrays]
    for name, value, wanted in zip(("log_a", "x", "init"), found, right, strict=False):
        np.testing.assert_allclose(to_numpy(value), wanted.astype(float), rtol=1e-10, atol=1e-300, err_msg=name)


# ------------------------------------------------------------------------------------------------------------- linear


def sums(x: Any, a: Any, init: Any, axis: int, reverse: bool) -> np.ndarray:
    """y[t] = sum_k a[k][t] y[t-1-k] + x[t] in long double, one after another; what would come before is not read."""
    turn = slice(None, None, -1 if reverse else 1)
    rows, *coefficients = (np.moveaxis(np.asarray(v, np.longdouble), axis, 0)[turn] for v in (x, *a))
    y = np.array(rows)
    with np.errstate(all="ignore"):
        for t in range(len(y)):
            for k, c in enumerate(coefficients, 1):
                if t >= k or init is not None:
                    y[t] = y[t] + c[t] * (y[t - k] if t >= k else init[k - 1 - t])
    return np.moveaxis(y[turn], 0, axis)


def finite(v: Any) -> np.ndarray:
    return np.where(np.isfinite(v), abs(v), 0)


def linear(backend: Subject, seed: int, given_init: bool, reverse: bool, order: int = 1) -> None:
    """Nothing grows or vanishes by itself: where that rounds to inf or 0 depends on the order of operations."""
    rng = np.random.default_rng(seed)
    shape, axis = shapes(backend)[rng.integers(len(shapes(backend)))]
    dtype = str(rng.choice(["float32", "float64"]))
    batch = tuple(np.delete(shape, axis))
    x = strewn(rng, shape, dtype, (1e-10, 1e30, -1e30))
    a = [strewn(rng, shape, dtype, (1e-10,)) for _ in range(order)]
    a = [np.where(np.isfinite(v), v.clip(-1, 1) / order, v).astype(dtype) for v in a]
    init = None
    if given_init:
        init = [rng.choice([0.0, 1.0, INF, -INF, np.nan], batch).astype(dtype) for _ in range(order)]
    right = sums(x, a, init, axis, reverse)
    size = 1 + sums(finite(x), [finite(v) for v in a], init and [finite(v) for v in init], axis, reverse)
    if init is None:  # what is never read
        for k, v in enumerate(a, 1):
            np.moveaxis(v, axis, 0)[slice(-k, None) if reverse else slice(k)] = rng.choice([np.nan, INF])
    told = f"seed {seed} init {given_init} reverse {reverse} order {order}: {shape} {axis} {dtype}"
    arrays = (*a, x, *(init or ())) if order == 1 else (tuple(a), x, *([tuple(init)] if init else []))
    y, last = run(backend, "linear_recurrence", arrays, axis, reverse)
    assert_same_kind(y, right, size, told)
    np.testing.assert_array_equal(last, np.take(y, 0 if reverse else -1, axis), told)


@pytest.mark.only(verb="linear_recurrence", library=("numpy", "torch"))
def test_linear_recurrences(backend: Subject) -> None:
    check(backend, functools.partial(linear, backend))


@pytest.mark.slow
@pytest.mark.only(verb="linear_recurrence", library="jax")
def test_linear_recurrences_under_jax(backend: Subject) -> None:
    check(backend, functools.partial(linear, backend))


third_order = functools.partial(linear, order=3)


@pytest.mark.slow
@pytest.mark.only(verb="linear_recurrence", order=3, library=("numpy", "torch"))
def test_linear_recurrences_of_third_order(backend: Subject) -> None:
    check(backend, functools.partial(third_order, backend))


@pytest.mark.slow
@pytest.mark.only(verb="linear_recurrence", order=3, library="jax")
def test_linear_recurrences_of_third_order_under_jax(backend: Subject) -> None:
    check(backend, functools.partial(third_order, backend))


def matrices(backend: Subject, seed: int, given_init: bool, reverse: bool) -> None:
    """NaN and infinities of vectors: where the sums of their products have them."""
    rng = np.random.default_rng(seed)
    m, n, batch = (2, 40, 3) if backend.library == "jax" else (2, *(int(rng.choice(k)) for k in ([5, 40], [1, 3, 20])))
    dtype = str(rng.choice(["float32", "float64"]))
    x = strewn(rng, (batch, n, m), dtype, ())
    A = strewn(rng, (batch, n, m, m), dtype, ())
    A = np.where(np.isfinite(A), A.clip(-1, 1) / m, A).astype(dtype)
    init = rng.choice([0.0, 1.0, INF, np.nan], (batch, m)).astype(dtype) if given_init else None
    y = np.array(x, np.longdouble)
    turn = slice(None, None, -1 if reverse else 1)
    size = 1 + m * np.max(finite(x)) * n
    with np.errstate(all="ignore"):
        rows, steps = y[:, turn], A[:, turn].astype(np.longdouble)
        for t in range(n):
            before = rows[:, t - 1] if t else init
            if before is not None:
                rows[:, t] += (steps[:, t] * before[:, None, :]).sum(-1)
    if init is None:
        A[:, -1 if reverse else 0] = np.nan
    arrays = [backend.array(v) for v in (A, x, init) if v is not None]
    call = functools.partial(tridiag.matrix_recurrence, reverse=reverse, backend=backend.name)
    told = f"seed {seed} init {given_init} reverse {reverse}: {x.shape} {dtype}"
    assert_same_kind(to_numpy(call(*arrays)), y, size, told)


@pytest.mark.only(verb="matrix_recurrence", library=("numpy", "torch"))
def test_matrix_recurrences(backend: Subject) -> None:
    check(backend, functools.partial(matrices, backend))


@pytest.mark.slow
@pytest.mark.only(verb="matrix_recurrence", library="jax")
def test_matrix_recurrences_under_jax(backend: Subject) -> None:
    check(backend, functools.partial(matrices, backend))
