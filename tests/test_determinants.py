"""What `numba_thomas` says of determinants without an elimination, against exact ones, and what it leaves to one."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from helpers import dominant, uniform

import tridiag

NAME = "numba_thomas"
# one by one; sorted in registers; a vector and a part of one; rows that fill a block of them and some more
SHAPES = [(1, 1), (1, 2), (2, 3), (1, 67), (40, 7), (90, 2), (67, 5), (50, 8), (9, 40), (17, 70)]
DTYPES = "float64", "float32"
FAR = {"float64": 290, "float32": 36}  # powers of two within which all entries are
FARTHEST = {"float64": 990, "float32": 110}


def exact(a: Any, b: Any, c: Any) -> tuple[float, float]:
    """Sign and logarithm of one determinant, from integers."""
    a, b, c = ([Fraction(float(x)) for x in band] for band in (a, b, c))
    last, before = Fraction(1), Fraction(0)
    for i in range(len(b)):
        last, before = b[i] * last - (a[i] * c[i - 1] * before if i else 0), last
    if last == 0:
        return 0.0, -math.inf
    power = last.numerator.bit_length() - last.denominator.bit_length()
    return (1.0 if last > 0 else -1.0), math.log(abs(last / Fraction(2) ** power)) + power * math.log(2)


def check(a: Any, b: Any, c: Any, bound: float = 1.0) -> None:
    """Of dominant matrices the logarithm has an error of an eps a row, and of its own size."""
    signs, logarithms = tridiag.slogdet(a, b, c, backend=NAME)
    for k in range(len(b)):
        sign, logarithm = exact(a[k], b[k], c[k])
        assert signs[k] == sign
        if sign:
            eps = np.finfo(b.dtype).eps
            assert abs(logarithms[k] - logarithm) <= bound * eps * (b.shape[1] + abs(logarithm))
        else:
            assert logarithms[k] == logarithm


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["as they are", "rows far apart", "a steep matrix", "tiny", "huge"])
def test_at_all_places_of_the_range(kind: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    for shape in SHAPES:
        a, b, c, _ = dominant(shape, "float64")
        far, farthest = FAR[dtype], FARTHEST[dtype]
        powers = {
            "as they are": np.zeros(shape, int),
            "rows far apart": rng.integers(-far, far, shape),
            "a steep matrix": np.broadcast_to(np.linspace(-far, far, shape[1]).astype(int), shape),
            "tiny": np.full(shape, -farthest),
            "huge": np.full(shape, farthest),
        }[kind]
        check(*(np.ldexp(x, powers).astype(dtype) for x in (a, b, c)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_signs_where_leading_blocks_are_singular(dtype: str) -> None:
    """D of some leading block is an exact zero, or one up to rounding; that of the matrix is none."""
    for shape in SHAPES[1:]:
        a, b, c, _ = (x.astype(dtype) for x in uniform(shape, "float64"))
        b[:, 0] = 0
        if shape[1] > 3:
            b[::2, 1:3], a[::2, 1:3], c[::2, 0:2] = [0.3, 0.1], [0.7, 0.3], [0.1, 0.3]
        check(a, b, c, bound=2e3)


@pytest.mark.parametrize("dtype", DTYPES)
def test_singular_matrices_are(dtype: str) -> None:
    for shape in SHAPES[1:]:
        a, b, c, _ = (np.round(4 * x).astype(dtype) for x in dominant(shape, "float64"))
        row = shape[1] // 2
        a[0, row] = b[0, row] = c[0, row] = 0  # a row of zeros
        a[-1], b[-1], c[-1] = -1, 2, -1
        b[-1, [0, -1]] = 1  # rows that add up to zero
        signs, logarithms = tridiag.slogdet(a, b, c, backend=NAME)
        assert signs[0] == signs[-1] == 0 and logarithms[0] == logarithms[-1] == -np.inf


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf, 1e-38, 3e38])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_a_matrix_is_changes_no_bit_of_the_others(dtype: str, bad: float) -> None:
    for shape in [(2, 50), (40, 7), (100, 3), (9, 40), (60, 70), (5, 20)]:
        a, b, c, _ = dominant(shape, dtype)
        wanted, k = tridiag.slogdet(a, b, c, backend=NAME), shape[0] // 2
        b[k, shape[1] // 2] = bad
        a[:, 0] = c[:, -1] = np.nan  # which are never read
        for x, y in zip(tridiag.slogdet(a, b, c, backend=NAME), wanted, strict=True):
            np.testing.assert_array_equal(np.delete(x, k), np.delete(y, k))


@pytest.mark.parametrize("dtype", DTYPES)
def test_masked_strided_and_side_by_side(dtype: str) -> None:
    where = np.random.default_rng(1).uniform(size=(17, 70)) < 0.8
    for shape in [(17, 70), (2, 70)]:
        a, b, c, _ = dominant(shape, dtype)
        kept = where[: shape[0]]
        cut = [a * (kept & np.roll(kept, 1, 1)), np.where(kept, b, 1), c * (kept & np.roll(kept, -1, 1))]
        wanted = tridiag.slogdet(*cut, backend=NAME)
        masked = tridiag.slogdet(a, b, c, where=kept, backend=NAME)
        apart = [np.repeat(x, 2, 1)[:, ::2] for x in cut]
        columns = [np.ascontiguousarray(x.T) for x in cut]
        found = masked, tridiag.slogdet(*apart, backend=NAME), tridiag.slogdet(*columns, axis=0, backend=NAME)
        for signs, logarithms in found:
            np.testing.assert_array_equal(signs, wanted[0])
            np.testing.assert_allclose(logarithms, wanted[1], rtol=0, atol=200 * np.finfo(dtype).eps)
