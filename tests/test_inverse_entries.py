"""Entries of inverse matrices where the matrices have their bands: what determinants are differentiated with."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tridiag
from tridiag.algorithms.inverse_entries import row_by_row
from tridiag.backends import numba_thomas, numpy_thomas
from tridiag.problems.forms import Form

pytest.importorskip("numba")
FAR = {"float64": 290, "float32": 35}  # decades within which all entries are
DTYPES = ("float64", *(pytest.param(x, marks=pytest.mark.slow) for x in ("float32", "complex64", "complex128")))


def drawn(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Of any layout."""
    order = rng.permutation(len(shape))
    x = rng.standard_normal([shape[k] for k in order])
    if dtype.startswith("complex"):
        x = x + 1j * rng.standard_normal(x.shape)
    if rng.random() < 0.3:
        room = np.zeros([2 * k for k in x.shape], x.dtype)
        room[tuple(slice(None, None, 2) for _ in shape)] = x
        x = room.astype(dtype)[tuple(slice(None, None, 2) for _ in shape)]
    return x.astype(dtype, copy=False)[tuple(slice(None, None, int(rng.choice([1, 1, -1]))) for _ in shape)].transpose(
        np.argsort(order)
    )


def dense(a: np.ndarray, b: np.ndarray, c: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """Matrices whose rows lie along the last axis, with rows taken out."""
    n = b.shape[-1]
    whole, at = np.zeros((*b.shape, n), np.result_type(b, float)), np.arange(n)
    whole[..., at, at] = np.where(keep, b, 1)
    both = keep[..., 1:] & keep[..., :-1]
    whole[..., at[1:], at[:-1]] = np.where(both, a[..., 1:], 0)
    whole[..., at[:-1], at[1:]] = np.where(both, c[..., :-1], 0)
    return whole


def check(entries: Any, matrix: Any, where: Any, axis: int, dtype: str) -> int:
    """Each within what its condition may do; returns how many matrices were regular enough to tell."""
    a, b, c = (np.moveaxis(x, axis, -1) for x in matrix)
    keep = np.ones(b.shape, bool) if where is None else np.moveaxis(where, axis, -1)
    whole, found, told = dense(a, b, c, keep), np.moveaxis(np.asarray(entries), axis + 1, -1), 0
    for k in np.ndindex(b.shape[:-1]):
        condition = np.linalg.cond(whole[k])
        if not condition * np.finfo(dtype).eps < 1e-3:
            continue
        inverse = np.linalg.inv(whole[k]).T
        wanted = np.zeros((3, b.shape[-1]), whole.dtype)
        wanted[1] = np.where(keep[k], np.diag(inverse), 0)
        wanted[0][1:], wanted[2][:-1] = np.diag(inverse, -1), np.diag(inverse, 1)
        assert abs(found[:, *k] - wanted).max() <= 20 * condition * np.finfo(dtype).eps * abs(inverse).max(), (k, axis)
        told += 1
    return told


@pytest.mark.parametrize("dtype", DTYPES)
def test_any_shape_and_layout(dtype: str) -> None:
    """Few rows, more than a block of them, rows taken out, zeros on the diagonal, constant bands."""
    rng, told = np.random.default_rng(3), 0
    for case in range(60):
        rank = int(rng.integers(1, 4))
        shape, axis = [int(k) for k in rng.integers(1, 14, rank)], int(rng.integers(rank))
        if case % 6 == 0:
            shape[axis] = int(rng.integers(60, 200))
        a, b, c = (drawn(rng, dtype, tuple(shape)) for _ in range(3))
        b = b * 0 if case % 5 == 0 else b + 1
        if case % 7 == 0:
            a = np.broadcast_to(a[tuple(slice(0, 1) for _ in shape)], shape)
        where = None if case % 3 else rng.random(shape) < 0.8
        if case % 9 == 0 and where is not None:
            where = where & (np.arange(shape[axis]) < shape[axis] - 2).reshape(
                [-1 if k == axis else 1 for k in range(rank)]
            )
        entries, lossy = numba_thomas.inverse_entries((a, b, c, where), Form(tuple(shape), tuple(shape), axis))
        assert entries.shape == (3, *shape)
        assert lossy.shape == (*shape[:axis], *shape[axis + 1 :])
        told += check(entries, (a, b, c), where, axis, dtype)
    assert told > 100


def test_row_by_row() -> None:
    rng = np.random.default_rng(4)
    for axis, shape in ((0, (7, 5)), (1, (4, 12)), (0, (1,)), (1, (3, 2, 2))):
        a, b, c = (rng.standard_normal(shape) for _ in range(3))
        where = rng.random(shape) < 0.8
        for mask in (None, where):
            entries, lossy = row_by_row(numpy_thomas.ops, (a, b, c, mask), Form(shape, shape, axis))
            check(entries, (a, b, c), mask, axis, "float64")
            assert not lossy.any()
    entries, lossy = row_by_row(numpy_thomas.ops, (a[:, :0], b[:, :0], c[:, :0], None), Form((3, 0, 2), (3, 0, 2), 1))
    assert [x.shape for x in entries] == [(3, 0, 2)] * 3
    assert lossy.tolist() == [[False] * 2] * 3
    with np.errstate(all="ignore"):
        _, lossy = row_by_row(numpy_thomas.ops, (a, 0 * b, 0 * c, None), Form(shape, shape, axis))
    assert lossy.all()


def exact(a: Any, b: Any, c: Any) -> list[list[Fraction]] | None:
    """The entries of one inverse, by fractions; None of a singular matrix."""
    n = len(b)
    rows = [[Fraction(0)] * n + [Fraction(int(i == k)) for k in range(n)] for i in range(n)]
    for i in range(n):
        for k, x in ((i - 1, a[i]), (i, b[i]), (i + 1, c[i])):
            if 0 <= k < n:
                rows[i][k] = Fraction(float(x))
    for k in range(n):
        pivot = next((i for i in range(k, n) if rows[i][k] != 0), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for i in set(range(n)) - {k}:
            rows[i] = [x - rows[i][k] * y for x, y in zip(rows[i], rows[k], strict=True)]
    nothing = Fraction(0)
    return [
        [rows[i - 1][n + i] if i else nothing for i in range(n)],
        [rows[i][n + i] for i in range(n)],
        [rows[i + 1][n + i] if i < n - 1 else nothing for i in range(n)],
    ]


@pytest.mark.parametrize("dtype", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
def test_entries_far_apart(dtype: str) -> None:
    """Rows and columns of any size: what is not told to lack digits has them, but for what cancels."""
    rng, eps, far, told = np.random.default_rng(5), Fraction(float(np.finfo(dtype).eps)), FAR[dtype], 0
    largest, tiny = (Fraction(float(x)) for x in (np.finfo(dtype).max, np.finfo(dtype).tiny))
    for case in range(200):
        n = int(rng.integers(1, 6))
        rows, columns = (10.0 ** rng.uniform(-far / 2, far / 2, n) for _ in range(2))
        if case % 2:
            columns[:] = rows[0]
        sizes = rows * np.roll(columns, 1), rows * columns, rows * np.roll(columns, -1)
        a, b, c = ((x * rng.uniform(0.5, 1, n) * rng.choice([-1, 1], n)).astype(dtype) for x in sizes)
        b[rng.random(n) < 0.2] = 0
        entries, lossy = numba_thomas.inverse_entries((a, b, c, None), Form((n,), (n,), 0))
        wanted = exact(a, b, c)
        near = exact(*(x.astype(float) * (1 + 2.0**-30 * rng.choice([-1, 1], n)) for x in (a, b, c)))
        if lossy or wanted is None or near is None:
            continue
        for found, right, moved in zip(
            entries.reshape(-1), itertools.chain(*wanted), itertools.chain(*near), strict=True
        ):
            if abs(right) < largest:
                allowed = eps * (40 * abs(right) + 400 * 2**30 * abs(moved - right)) + 8 * tiny
                assert np.isfinite(found), case
                assert abs(Fraction(float(found)) - right) <= allowed, case
                told += 1
    assert told > 500


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_gradients_where_digits_would_be_lost(library: str) -> None:
    """Such matrices are differentiated another way, and those beside them are not."""
    pytest.importorskip(library)
    c = np.array([[1.0, 1.0, 0.0], [1e-160, 1e150, 0.0], [1.0, 2.0, 0.0]])
    b = np.array([[4.0, 4.0, 4.0], [1e160, 1e-155, 1.0], [3.0, 3.0, 3.0]])
    a = np.array([[0.0, 1.0, 1.0], [0.0, 1e150, 1e-160], [0.0, 1.0, 1.0]])
    _, lossy = numba_thomas.inverse_entries((a, b, c, None), Form((3, 3), (3, 3), 1))
    assert lossy.tolist() == [0, 1, 0]
    if library == "torch":
        import torch

        given = [torch.from_numpy(x.copy()).requires_grad_() for x in (a, b, c)]
        found = [x.numpy() for x in torch.autograd.grad(tridiag.slogdet(*given)[1].sum(), given)]
    else:
        import jax

        with jax.enable_x64(True):
            found = jax.jit(jax.grad(lambda *given: tridiag.slogdet(*given)[1].sum(), (0, 1, 2)))(a, b, c)
    for k in range(3):
        wanted = np.array([[float(x) for x in row] for row in exact(a[k], b[k], c[k]) or []])
        np.testing.assert_allclose([np.asarray(x)[k] for x in found], wanted, rtol=1e-12, atol=1e-300)
