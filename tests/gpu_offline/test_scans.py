"""Every CUDA C kernel of a recurrence on the CPU build: sizes around boundaries, layouts, four orders of threads."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import cpu_build
import numpy as np
import planted
import pytest
from helpers import DTYPES, EPS, REAL, STANDIN, TINY, assert_same_bits, noise

import tridiag

if not STANDIN:
    pytest.skip("runs the CPU build; on a GPU the main suite runs the kernels", allow_module_level=True)
if reason := cpu_build.why_not():
    pytest.skip(reason, allow_module_level=True)

import cupy
import test_logarithms
import test_matrix_recurrence
import test_recurrences
from cupy import machine
from test_recurrences import assert_recurs

from tridiag.cuda import instances, recurrences
from tridiag.cuda.sequences import SEQUENCES, Sequences
from tridiag.cuda.struct import TYPES

ROWS = (1, 2, 3, 4, 5, 8, 9, 31, 33, 100)
BATCHES = (1, 3, 33)
SEEDS = (0, 1, 2, 3)
LAYOUTS = ("rows", "columns")


# A thread for each sequence; tiles one after another; a block for each tile, in groups as they come, or of four tiles
SCHEDULES = ("threads", "tiles", "chained", "in groups")


@pytest.fixture(autouse=True)
def order() -> Iterator[None]:
    yield
    machine.seed = 0


@pytest.fixture
def spread(schedule: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have a schedule chosen, whatever the sizes."""
    monkeypatch.setattr(recurrences, "worth_a_thread", lambda sequences: schedule == "threads")
    monkeypatch.setattr(recurrences, "FULL", 10**9 if schedule in ("chained", "in groups") else 0)
    if schedule == "in groups":
        monkeypatch.setattr(recurrences, "GROUP", 4)
    planted.decide_anew()
    yield
    planted.decide_anew()


def found(verb: str, *given: Any, seeds: Any = SEEDS, **options: Any) -> np.ndarray:
    """What a verb makes of arrays, no bit of which an order of the threads may change."""
    results = []
    for machine.seed in seeds:
        on_device = [tuple(map(cupy.asarray, x)) if isinstance(x, tuple) else cupy.asarray(x) for x in given]
        results.append(getattr(tridiag, verb)(*on_device, backend="cupy_scan", **options).get())
    for other in results[1:]:
        assert_same_bits(other, results[0])
    return results[0]


def test_integers_become_floating_point_numbers() -> None:
    """No kernel has integers."""
    y = found("linear_recurrence", np.full(3, 2), np.arange(3))
    assert y.dtype == np.float64 and y.tolist() == [0, 1, 4]


def sequences(layout: str, n: int, batch: int, dtype: str, order: int = 1) -> tuple[Any, Any, Any, int]:
    """Coefficients, x, what is before the first step, and the axis."""
    rng, shape = np.random.default_rng(n * batch), (batch, n) if layout == "rows" else (n, batch)
    a = tuple(noise(rng, shape, dtype) for _ in range(order))
    init = tuple(noise(rng, (batch,), dtype) for _ in range(order))
    return a, noise(rng, shape, dtype), init, int(layout == "rows")


in_every_way = pytest.mark.parametrize("schedule", SCHEDULES)


def places(schedule: str) -> Iterator[Any]:
    """Numbers of rows and of sequences, and whether the last row comes first."""
    yield from itertools.product(ROWS if schedule == "threads" else (*ROWS, 500, 4000), BATCHES, (False, True))


@pytest.mark.usefixtures("spread")
@in_every_way
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_first_order_in_all_sizes(dtype: str, layout: str, schedule: str) -> None:
    for n, batch, reverse in places(schedule):
        if n * batch > 40_000:
            continue
        a, x, init, axis = sequences(layout, n, batch, dtype)
        options = {"axis": axis, "reverse": reverse}
        assert_recurs(found("linear_recurrence", *a, x, **options), a, x, **options)
        assert_recurs(found("linear_recurrence", *a, x, *init, **options), a, x, init, **options)


def hard(case: str, n: int, dtype: str) -> Any:
    """Coefficients and x of three sequences, of which the middle one is hard."""
    rng = np.random.default_rng(1)
    a, x = (rng.uniform(-1, 1, (3, n)) for _ in range(2))
    if case == "cancelling":
        a[1], x[1] = 16, -15
        x[1, 0] = 1
    elif case == "nearly vanishing":
        a[1], x[1] = 1e-3, 0
        x[1, ::23] = 1e30
    elif case == "an infinity":
        a[:], x[1, n // 2] = abs(a), np.inf
    else:
        a[1] = test_recurrences.COEFFICIENTS[case](rng, test_recurrences.LONG[dtype])[:n]
    return a.astype(dtype), x.astype(dtype)


@pytest.mark.usefixtures("spread")
@pytest.mark.parametrize("schedule", SCHEDULES[1:])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", [*test_recurrences.COEFFICIENTS, "cancelling", "nearly vanishing", "an infinity"])
def test_stretches_that_tell_little(case: str, dtype: str, layout: str, schedule: str) -> None:
    """Products of coefficients overflow, vanish, or hide what is left: such tiles are computed step by step."""
    n = 9001
    a, x = hard(case, n, dtype)
    axis = int(layout == "rows")
    y = found("linear_recurrence", *(np.ascontiguousarray(v if axis else v.T) for v in (a, x)), axis=axis)
    y = y if axis else y.T
    for k in range(3):
        with np.errstate(all="ignore"):
            right, size = (
                test_recurrences.step_by_step(of_a.astype(np.longdouble), of_x.astype(np.longdouble))
                for of_a, of_x in ((a[k], x[k]), (abs(a[k]), abs(x[k])))
            )
            kept = np.isfinite(right.astype(dtype))
            bound = 500 * EPS[dtype] * size + 4 * TINY[dtype]
            assert (abs(y[k] - right)[kept] <= bound[kept]).all()
        np.testing.assert_array_equal(np.isfinite(y[k]), kept)
        if case == "cancelling" and k == 1:
            np.testing.assert_array_equal(y[k], np.ones(n))
        if case == "nearly vanishing" and k == 1:
            np.testing.assert_allclose(y[k], right.astype(float), rtol=100 * EPS[dtype], atol=4 * TINY[dtype])


@pytest.mark.usefixtures("spread")
@in_every_way
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [name for name in test_logarithms.LADDERS if name != "1e300"])
def test_errors_of_sums_do_not_pile_up(name: str, dtype: str, schedule: str) -> None:
    n = 2009
    x, right = test_logarithms.ladder(name, dtype, n), test_logarithms.exactly(name, dtype, n)
    assert test_logarithms.units(found("logcumsumexp", x, seeds=(2,)), right) <= 2
    beside = np.repeat(x[:, None], 3, axis=1)
    assert test_logarithms.units(found("logcumsumexp", beside, axis=0, seeds=(3,))[:, 2], right) <= 2


@pytest.mark.usefixtures("spread")
@in_every_way
@pytest.mark.parametrize("x", test_logarithms.EXTREMES, ids=str)
def test_infinities_in_sums(x: list[float], schedule: str) -> None:
    many = np.zeros((3, 900))
    many[1, 400:403] = x
    y = found("logcumsumexp", many, seeds=(0, 2))
    np.testing.assert_allclose(y, test_logarithms.oracle(many).astype(float), rtol=1e-14, atol=3e-16)


@pytest.mark.usefixtures("spread")
@in_every_way
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_stretches_of_nothing_in_sums(dtype: str, schedule: str) -> None:
    """What is minus infinity has no exponent; what comes before the first number is minus infinity."""
    many = np.random.default_rng(0).normal(size=(6, 900)).astype(dtype)
    many[5, 400:460], many[5, 460:] = -np.inf, 2000  # what was before stays, beside what is beyond its range
    many[0, :500] = many[1, 300:700] = many[2] = many[3, 1::2] = many[4, ::2] = -np.inf
    for axis in (-1, 0):
        x = many if axis else np.ascontiguousarray(many.T)
        y, right = found("logcumsumexp", x, axis=axis, seeds=(0, 2)), test_logarithms.oracle(x, axis=axis)
        kept = np.isfinite(right)
        np.testing.assert_array_equal(y[~kept], right[~kept].astype(dtype))
        test_logarithms.assert_close(y[kept], right[kept])


@pytest.mark.usefixtures("spread")
@pytest.mark.parametrize("schedule", SCHEDULES[1:])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_bit_depends_on_where_arrays_begin(dtype: str, layout: str, schedule: str) -> None:
    """Whether tiles are moved by 16 bytes or by numbers."""
    for shape in ((12, 16), (4, 700)):
        a, x, _, axis = sequences("rows", shape[1], shape[0], dtype)
        given = [cupy.asarray(np.ascontiguousarray(v if layout == "rows" else v.T)) for v in (*a, x)]
        axis = 1 if layout == "rows" else 0
        shifted = [cupy.zeros(x.size + 1, dtype)[1:].reshape(v.shape) for v in (*given, x if axis else x.T)]
        for to, v in zip(shifted, given, strict=False):
            to[...] = v
        y = tridiag.linear_recurrence(*given, axis=axis, backend="cupy_scan")
        for to in (None, shifted[2]):
            z = tridiag.linear_recurrence(*shifted[:2], axis=axis, backend="cupy_scan", out=to)
            assert_same_bits(z.get(), y.get())
        assert_recurs(y.get(), a if axis else (a[0].T,), x if axis else x.T, axis=axis)


WEIGHTS = {
    "of any size": lambda rng, n: 300 * rng.normal(size=n),
    "zero at times": lambda rng, n: np.where(rng.random(n) < 0.01, -np.inf, rng.normal(size=n)),
    "far": lambda rng, n: 1e17 * rng.normal(size=n),
    "huge": lambda rng, n: np.where(np.arange(n) % 34 < 17, 2.0**1019, -(2.0**1019)),
    "one is infinite": lambda rng, n: np.where(np.arange(n) == n // 2, np.inf, rng.normal(size=n)),
    "one is no number": lambda rng, n: np.where(np.arange(n) == n // 2, np.nan, rng.normal(size=n)),
    "falling": lambda rng, n: np.full(n, -1e-3),
}


@pytest.mark.usefixtures("spread")
@in_every_way
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", WEIGHTS)
def test_weights_of_any_size(case: str, layout: str, schedule: str) -> None:
    rng, n = np.random.default_rng(3), 3000
    log_a, x = (np.stack([rng.normal(size=n) for _ in range(3)]) for _ in range(2))
    log_a[1] = WEIGHTS[case](rng, n)
    axis = int(layout == "rows")
    given = [np.ascontiguousarray(v if axis else v.T) for v in (log_a, x)]
    y = found("log_linear_recurrence", *given, seeds=(0, 2, 3), axis=axis)
    with np.errstate(all="ignore"):
        right = test_logarithms.oracle(given[1], given[0], axis=axis).astype(float)
    np.testing.assert_allclose(y, right, rtol=1e-14, atol=1e-14)


@pytest.mark.usefixtures("fused", "spread")
@in_every_way
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_products_that_are_fused(dtype: str, layout: str, schedule: str) -> None:
    """Then one formula in two places may have two results; what tiles make of a value has one."""
    for n in (33, 4000):
        a, x, init, axis = sequences(layout, n, 3, dtype)
        assert_recurs(found("linear_recurrence", *a, x, *init, axis=axis, seeds=range(6)), a, x, init, axis=axis)
        if dtype not in REAL:
            given, right = (*a, x, *init), test_logarithms.oracle(x, *a, *init, axis=axis)
            test_logarithms.assert_close(found("log_linear_recurrence", *given, axis=axis, seeds=range(6)), right)
            right = test_logarithms.oracle(x, axis=axis)
            test_logarithms.assert_close(found("logcumsumexp", x, axis=axis, seeds=range(6)), right)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_no_tile_needs_more_shared_memory_than_every_device_gives(dtype: str, together: bool) -> None:
    for total, n in itertools.product((1, 2, 5, 31, 33, 1000, 10**5), (1, 2, 5, 40, 300, 2000, 10**6)):
        job = np.zeros((), SEQUENCES.job)
        job["n"], job["sequences"] = n, total
        place = Sequences(job, job["operand"], (), together, dtype)
        for verb in instances.verbs_of(dtype):
            width, count, chunk = recurrences.spread(place, verb)
            assert width * count <= instances.TILE_THREADS and width * count % 32 == 0
            assert recurrences.shared_bytes(place, width, count, chunk, verb) <= 48 * 1024


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", [2, 3, 4])
def test_linear_recurrences_of_all_sizes(order: int, dtype: str, layout: str) -> None:
    for n, batch, reverse in itertools.product(ROWS, BATCHES, (False, True)):
        a, x, init, axis = sequences(layout, n, batch, dtype, order)
        options = {"axis": axis, "reverse": reverse}
        assert_recurs(found("linear_recurrence", a, x, **options), a, x, **options)
        assert_recurs(found("linear_recurrence", a, x, init, **options), a, x, init, **options)


@pytest.mark.usefixtures("spread")
@in_every_way
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_logarithms_of_all_sizes(dtype: str, layout: str, schedule: str) -> None:
    for n, batch, reverse in places(schedule):
        if n * batch > 40_000:
            continue
        (log_a,), x, (init,), axis = sequences(layout, n, batch, dtype)
        options = {"axis": axis, "reverse": reverse}
        test_logarithms.assert_close(found("logcumsumexp", x, **options), test_logarithms.oracle(x, **options))
        y = found("log_linear_recurrence", log_a, x, init, **options)
        test_logarithms.assert_close(y, test_logarithms.oracle(x, log_a, init, **options))


@pytest.mark.parametrize("dtype", DTYPES)
def test_matrices_of_all_sizes(dtype: str) -> None:
    rng = np.random.default_rng(0)
    for m, n, batch, reverse in itertools.product(range(1, 17), (1, 2, 7), (1, 33), (False, True)):
        A, x = noise(rng, (batch, n, m, m), dtype) / m, noise(rng, (batch, n, m), dtype)
        init = noise(rng, (batch, m), dtype)
        y = found("matrix_recurrence", A, x, init, seeds=SEEDS[:2], reverse=reverse)
        test_matrix_recurrence.assert_recurs(y, A, x, init, reverse=reverse)


@pytest.mark.smoke
@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_size(layout: str) -> None:
    a, x, init, axis = sequences(layout, 65, 33, "float64")
    assert_recurs(found("linear_recurrence", a, x, init, seeds=(1,), axis=axis), a, x, init, axis=axis)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_sequences_with_real_coefficients_are_pairs(dtype: str) -> None:
    """So no word more is read."""
    for layout in LAYOUTS:
        _, x, init, axis = sequences(layout, 33, 5, dtype)
        a, _, _, _ = sequences(layout, 33, 5, REAL[dtype])
        y = found("linear_recurrence", a[0], x, init[0], axis=axis)
        assert machine.launches[-1][0].startswith(f"linear_tiles<{TYPES[REAL[dtype]]},")
        assert_recurs(y, a, x, init, axis=axis)


def test_axes_that_do_not_merge_and_strides_of_all_kinds() -> None:
    """More batch axes than a kernel walks through; arrays that lie backwards; rows apart by half a number."""
    rng = np.random.default_rng(0)
    shape = (2, 3, 2, 3, 2, 4, 7)
    a, x = (noise(rng, shape, "float64") for _ in range(2))
    wide = cupy.zeros(tuple(k + 1 for k in shape))
    inner = tuple(slice(k) for k in shape)
    given = [wide[inner] * 0 + cupy.asarray(v) for v in (a, x)]
    out = wide[inner]
    assert tridiag.linear_recurrence(*given, backend="cupy_scan", out=out) is out
    assert_recurs(out.get(), (a,), x)
    rest = wide.get()
    rest[inner] = 0
    assert not rest.any()
    backwards = [cupy.asarray(np.ascontiguousarray(v[..., ::-1, ::-1]))[..., ::-1, ::-1] for v in (a, x)]
    assert_recurs(tridiag.linear_recurrence(*backwards, backend="cupy_scan").get(), (a,), x)
    halves = cupy.zeros((5, 15))[:, :-1].view("complex128")
    values = noise(rng, (5, 7), "complex128")
    halves[...] = cupy.asarray(values)
    assert halves.strides[0] % 16
    assert_recurs(tridiag.linear_recurrence(halves, halves, backend="cupy_scan").get(), (values,), values)
    assert (
        tridiag.linear_recurrence(cupy.asarray(values), cupy.asarray(values), backend="cupy_scan", out=halves) is halves
    )
    assert_recurs(halves.get(), (values,), values)
