"""Totals of sequences: what some rows make of the state before them, in a few numbers, in range wherever values are."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

from tridiag.kernels.jobs.batches import contiguous
from tridiag.kernels.jobs.totals import chunks_of, make_job
from tridiag.kernels.table import call_of
from tridiag.kernels.totals.words import numbers
from tridiag.problems.forms import Recurrence

from guarded.memory import Rooms, plain  # isort: skip

SHAPES = [((7,), 0), ((3, 150), 1), ((19, 70), 1), ((70, 19), 0), ((2, 65, 3), 1), ((2, 30, 41), 1), ((3, 1, 4), 1)]
DTYPES = ("float32", "float64", "complex64", "complex128")


def totals(kind: str, form: Recurrence, a: Any, x: Any, first: int = 0) -> Any:
    """What the kernel tells of each sequence, by number, from the ``first`` row on."""
    given = [v if v is None else np.ascontiguousarray(v) for v in (a, x)]
    shapes = tuple(v if v is None else v.shape for v in given)
    strides = tuple(s and contiguous(s, x.itemsize) for s in shapes)
    result = np.full((numbers(kind, 2 if x.dtype.kind == "c" else 1), math.prod(form.batch)), np.nan, x.real.dtype)
    assert call_of(make_job, kind, form, shapes, strides, x.dtype, 2, first).run(given[0], None, given[1], result) == 0
    return result.reshape(-1, *form.batch)


def linear(form: Recurrence, a: Any, x: Any) -> tuple[Any, Any]:
    """The value behind all rows, from 0, and the product as a number in higher precision."""
    found = totals("transposed" if form.transpose else "linear", form, a, x)
    if x.dtype.kind == "c":
        found = [found[0] + 1j * found[1].astype(x.dtype), found[2] + 1j * found[3].astype(x.dtype), found[4]]
    value, mantissa, exponent = found
    assert (((abs(mantissa) > 0.7) & (abs(mantissa) < 2.1)) | (mantissa == 0)).all()
    return value, mantissa.astype(wide(x)) * np.exp2(exponent.astype(np.longdouble))


def wide(x: Any) -> Any:
    return np.clongdouble if np.iscomplexobj(x) else np.longdouble


def in_order(form: Recurrence, *arrays: Any) -> Any:
    """Rows one after another, in the order of the recurrence, in higher precision."""
    rows = [np.moveaxis(np.broadcast_to(v, form.shape).astype(wide(v)), form.axis, 0) for v in arrays]
    return zip(*(v[::-1] if form.backward else v for v in rows), strict=True)


def expected(form: Recurrence, a: Any, x: Any) -> tuple[Any, Any]:
    value, product = np.zeros(form.batch, wide(x)), np.ones(form.batch, wide(x))
    for factor, term in in_order(form, a, x):
        value = factor * (value + term) if form.transpose else factor * value + term
        product = product * factor
    return value, product


def random(rng: Any, shape: tuple[int, ...], dtype: str) -> Any:
    x = rng.uniform(-1, 1, shape)
    if np.dtype(dtype).kind == "c":
        x = x * np.exp(2j * np.pi * rng.uniform(size=shape))
    return x.astype(dtype)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_linear_totals(dtype: str, reverse: bool, transpose: bool) -> None:
    """Of sequences however they lie, and coefficients that are constant along an axis or two."""
    rng, eps = np.random.default_rng(0), np.finfo(dtype).eps
    for shape, axis in SHAPES:
        form = Recurrence(shape, axis, reverse, transpose)
        x, a = random(rng, shape, dtype), random(rng, shape, dtype)
        for coefficients in (a, a.take([0], axis), a.take([0], 0), a.take([-1], -1)):
            value, product = linear(form, coefficients, x)
            right, whole = expected(form, coefficients, x)
            np.testing.assert_allclose(value, right, rtol=32 * eps, atol=32 * eps)
            np.testing.assert_allclose(product / whole, 1, rtol=0, atol=8 * eps * form.n)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_products_leave_no_range(dtype: str) -> None:
    """Of coefficients that grow or vanish over many rows, the largest, the smallest and subnormal ones, zeros."""
    limits, n = np.finfo(dtype), 15
    rows = [np.full(n, 10.0), np.full(n, 1e-9), np.tile([limits.max, limits.tiny], n)[:n]]
    rows += [np.tile([limits.smallest_subnormal * 3, 2, 1e30], n)[:n], np.full(n, -limits.max / 3)]
    a = np.array(rows, dtype)
    x = np.zeros_like(a)
    value, product = linear(Recurrence(a.shape, 1), a, x)
    assert not value.any()
    np.testing.assert_allclose(product / expected(Recurrence(a.shape, 1), a, x)[1], 1, rtol=0, atol=4 * n * limits.eps)
    a[2, 10], a[3, 7] = 0, np.inf
    *_, mantissa, _ = totals("linear", Recurrence(a.shape, 1), a, x)
    if np.dtype(dtype).kind == "f":
        assert mantissa[2] == 0 and mantissa[3] == np.inf and (mantissa[:2] >= 1).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_several_rows_at_once_leave_no_range(dtype: str) -> None:
    """Of coefficients that are alike in all lanes, of every size up to that of which a pair is out of range."""
    limits, n = np.finfo(dtype), 16
    for power in range(-limits.maxexp // 2, limits.maxexp // 2, limits.maxexp // 64):
        a = np.full((9, n), 1.25 * 2.0**power, dtype) * (np.exp(0.7j).astype(dtype) if dtype[0] == "c" else 1)
        form = Recurrence(a.shape, 1)
        value, product = linear(form, a, np.zeros_like(a))
        assert not value.any()
        np.testing.assert_allclose(product / expected(form, a, a)[1], 1, rtol=0, atol=8 * n * limits.eps)


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_operands_between_guard_pages(dtype: str, behind: bool) -> None:
    """Groups that follow one another, and a last one whose lanes are not all used, read nothing but their rows."""
    rng, eps, rooms = np.random.default_rng(3), np.finfo(dtype).eps, Rooms()
    for (count, n), reverse in itertools.product([(3, 21), (53, 21), (150, 70)], (False, True)):
        a, x = (rooms.copy(random(rng, (count, n), dtype), plain(2, behind)).array for _ in range(2))
        form = Recurrence(a.shape, 1, reverse)
        value, product = linear(form, a, x)
        right, whole = expected(form, a, x)
        np.testing.assert_allclose(value, right, rtol=32 * eps, atol=32 * eps)
        np.testing.assert_allclose(product / whole, 1, rtol=0, atol=8 * eps * n)
        assert (totals("last_linear", form, a, x)[-1] >= min(n, 64)).all()
        rooms.give_back()


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_last_rows(dtype: str, reverse: bool, transpose: bool) -> None:
    """As many as it takes for products to be too small to count, of some rows of arrays that have more."""
    rng, eps, first, n = np.random.default_rng(2), np.finfo(dtype).eps, 3, 203
    kind, complex_numbers = "last_transposed" if transpose else "last_linear", np.dtype(dtype).kind == "c"
    for shape, axis in (((n + 5,), 0), ((11, n + 5), 1), ((n + 5, 70), 0), ((2, n + 5, 41), 1)):
        form = Recurrence((*shape[:axis], n, *shape[axis + 1 :]), axis, reverse, transpose)
        x, a = random(rng, shape, dtype), random(rng, shape, dtype)
        found = totals(kind, form, a, x, first)
        if complex_numbers:
            found = [found[0] + 1j * found[1], found[2] + 1j * found[3], *found[4:]]
        value, mantissa, exponent, rows = found
        assert {*rows.reshape(-1)} <= {64, 128} and (exponent < np.log2(eps)).all()
        for count in {*rows.reshape(-1).astype(int)}:
            some = slice(first, first + count) if form.backward else slice(first + n - count, first + n)
            kept = (slice(None),) * axis + (some,)
            short = form._replace(shape=(*shape[:axis], count, *shape[axis + 1 :]))
            right, whole = expected(short, a[kept], x[kept])
            those = rows == count
            np.testing.assert_allclose(value[those], right[those], rtol=32 * eps, atol=32 * eps)
            told = mantissa[those].astype(wide(x)) * np.exp2(exponent[those].astype(np.longdouble))
            np.testing.assert_allclose(told / whole[those], 1, rtol=0, atol=8 * eps * count)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_last_rows_whose_products_do_not_decay(dtype: str) -> None:
    """All are taken; neither products nor values leave the range of numbers on the way. Nor do those of zeros decay."""
    limits = np.finfo(dtype)
    size, n = float(limits.max) ** 0.2, 100
    a = np.array([np.ones(n), np.full(n, 2.0), [1.0] * (n - 8) + [size] * 8, np.ones(n)], dtype)
    x = np.array([np.ones(n), np.full(n, -1.0), [size**-4] + [0.0] * (n - 1), np.zeros(n)], dtype)
    for reverse in (False, True):
        a, x, form = a[:, ::-1], x[:, ::-1], Recurrence(a.shape, 1, not reverse)
        value, mantissa, exponent, rows = totals("last_linear", form, a, x)
        right, whole = expected(form, a, x)
        assert (rows == n).all()
        np.testing.assert_allclose(value, right, rtol=64 * limits.eps)
        np.testing.assert_allclose(mantissa * np.exp2(exponent.astype(np.longdouble)), whole, rtol=64 * limits.eps)


def test_the_coefficient_of_the_first_row_is_in_the_product_alone() -> None:
    """What it would multiply is not there: 0 times it is not taken for 0."""
    for reverse in (False, True):
        a, x = np.full((2, 90), 0.5), np.ones((2, 90))
        a[0, -1 if reverse else 0] = np.nan
        value, mantissa, _ = totals("linear", Recurrence(a.shape, 1, reverse), a, x)
        assert value[0] == value[1] and np.isnan(mantissa[0]) and mantissa[1] == 1


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_totals_of_logarithms(dtype: str, reverse: bool) -> None:
    """With coefficients, of which the first row's is in the sum alone, and without."""
    rng, eps = np.random.default_rng(1), np.finfo(dtype).eps
    for shape, axis in SHAPES:
        form = Recurrence(shape, axis, reverse)
        x, a = ((5 * random(rng, shape, dtype)).astype(dtype) for _ in range(2))
        (found,) = totals("logarithms", form, None, x)
        np.testing.assert_allclose(found, np.logaddexp.reduce(x.astype(float), axis), rtol=4 * eps, atol=4 * eps)
        for coefficients in (a, a.take([0], axis), a.take([0], 0)):
            value, total, rest = totals("weighted", form, coefficients, x)
            right, whole = np.full(form.batch, -np.inf), np.zeros(form.batch)
            for factor, term in in_order(form, coefficients, x):
                right, whole = np.logaddexp(factor + right, term), whole + factor
            np.testing.assert_allclose(value, right.astype(float), rtol=8 * eps, atol=8 * eps)
            np.testing.assert_allclose(total + rest, whole.astype(float), rtol=4 * eps, atol=32 * eps)
    x, a = np.zeros((2, 9), dtype), np.zeros((2, 9), dtype)
    a[:, -1 if reverse else 0] = np.nan, np.inf
    value, total, _ = totals("weighted", Recurrence(x.shape, 1, reverse), a, x)
    np.testing.assert_allclose(value, np.log(9), rtol=4 * eps)
    assert np.isnan(total[0]) and total[1] == np.inf


def test_few_sequences_are_cut() -> None:
    """Into as many chunks as fill the lanes, of rows that do not share a set of the caches; short ones are not."""
    kind = np.dtype("float64")
    assert chunks_of(100, 1, kind, 1).number == 1 and chunks_of(10_000, 64, kind, 1) == (1, 10_000, 0)
    count, rows, _ = chunks_of(2**20, 1, kind, 1)
    assert count == 8 and rows * 8 % 4096 != 0 and 0 <= 2**20 - count * rows < 64
