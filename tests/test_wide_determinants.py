"""Determinants of matrices whose entries span most of the range of numbers, on the CPU (`wide_entries`)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from helpers import DTYPES, dense, dominant, uniform
from test_determinants import exact
from wide_entries import SHARES, wide

import tridiag

BACKENDS = ("numba_thomas", "numpy_thomas")
LENGTHS = (3, 4, 5, 8, 17, 33, 100)


def in_double(*bands: Any, **options: Any) -> Any:
    """The matrices, whole."""
    return dense(*bands, **options).astype(complex if np.iscomplexobj(bands[1]) else float)


def powers(systems: list[Any], plain: list[Any]) -> Any:
    """Those of 2 by which rows and columns together multiply each diagonal entry."""
    return np.round(np.log2(abs(systems[1].astype(plain[1].dtype) / plain[1])))


def assert_determinants(found: Any, plain: list[Any], power: Any, **options: Any) -> None:
    """Those of plain matrices times powers of 2, but for changes of entries in their last bits."""
    eps, matrix = np.finfo(found[0].dtype).eps, in_double(*plain[:3], **options)
    sign, logarithm = np.linalg.slogdet(matrix)
    logarithm = logarithm + power.sum(-1) * math.log(2)
    sensitivity = (abs(np.linalg.inv(matrix).swapaxes(-1, -2)) * abs(matrix)).sum((-1, -2))
    within = 4 * eps * (sensitivity + abs(logarithm)) + 16 * np.finfo(float).eps * sensitivity
    assert (abs(np.asarray(found[0]) - sign) <= within).all()
    assert (abs(np.asarray(found[1]) - logarithm) <= within).all()


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("scaled", SHARES)
@pytest.mark.parametrize("family", [dominant, uniform])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BACKENDS)
def test_they_are_found(name: str, dtype: str, family: Any, scaled: str, periodic: bool) -> None:
    for n in LENGTHS:
        systems, plain = wide(n, dtype, scaled, family)
        found = tridiag.slogdet(*systems[:3], periodic=periodic, backend=name)
        assert_determinants(found, plain, powers(systems, plain), periodic=periodic)


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("count", [1, 3, 40])
@pytest.mark.parametrize("dtype", DTYPES)
def test_however_they_lie(dtype: str, count: int, periodic: bool) -> None:
    """Few and many, side by side and end to end, every other number of an array, and of which rows are taken out."""
    for n in (3, 8, 100):
        systems, plain = ([np.resize(x, (count, n)) for x in given] for given in wide(n, dtype, "rows", uniform))
        power, bands = powers(systems, plain), systems[:3]
        columns = [np.ascontiguousarray(x.T) for x in bands]
        apart = [np.repeat(x, 2, 1)[:, ::2] for x in bands]
        for given, axis in ((bands, 1), (columns, 0), (apart, 1)):
            found = tridiag.slogdet(*given, axis=axis, periodic=periodic, backend="numba_thomas")
            assert_determinants(found, plain, power, periodic=periodic)
        where = np.random.default_rng(n).uniform(size=(count, n)) < 0.8
        found = tridiag.slogdet(*bands, where=where, periodic=periodic, backend="numba_thomas")
        assert_determinants(found, plain, power * where, where=where, periodic=periodic)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BACKENDS)
def test_every_entry_of_its_own_size(name: str, dtype: str) -> None:
    """And rows that shrink, one after another, until none of their numbers is left."""
    rng, bits = np.random.default_rng(1), -np.log2(float(np.finfo(dtype).tiny))
    for n in (2, 5, 40, 200):
        bands = [rng.uniform(0.5, 1, (3, n)) for _ in range(3)]
        sizes = [2.0 ** np.round(rng.uniform(-0.8 * bits, 0.8 * bits, (3, n))) for _ in range(3)]
        shrinking = [1.0, 2.0**-14, 2.0**-14]
        for factors in (sizes, shrinking):
            a, b, c = ((x * factor).astype(dtype) for x, factor in zip(bands, factors, strict=True))
            signs, logarithms = tridiag.slogdet(a, b, c, backend=name)
            for k in range(3):
                sign, logarithm = exact(a[k], b[k], c[k])
                assert signs[k] == sign
                assert abs(logarithms[k] - logarithm) <= 1e3 * n * np.finfo(dtype).eps + np.spacing(logarithms[k])


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", BACKENDS)
def test_singular_ones_are_told(name: str, dtype: str, periodic: bool) -> None:
    for n in (3, 4, 33, 100):
        systems, plain = wide(n, dtype, "rows", uniform)
        power, (a, b, c, _) = powers(systems, plain), systems
        a[0, n // 2] = b[0, n // 2] = c[0, n // 2] = 0  # a row of zeros
        a[1, 0] = b[1, -1] = c[1, -2] = 0  # a column of them
        signs, logarithms = tridiag.slogdet(a, b, c, periodic=periodic, backend=name)
        assert (signs[:2] == 0).all() and (logarithms[:2] == -np.inf).all()
        others = [x[2:] for x in plain]
        assert_determinants((signs[2:], logarithms[2:]), others, power[2:], periodic=periodic)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", BACKENDS)
def test_what_is_no_number_stays_in_its_matrix(name: str, bad: float) -> None:
    for n in (3, 33):
        systems, plain = wide(n, "float64", "rows", uniform)
        power = powers(systems, plain)
        systems[1][0, n // 2] = bad
        signs, logarithms = tridiag.slogdet(*systems[:3], backend=name)
        assert not np.isfinite(logarithms[0])
        assert_determinants((signs[1:], logarithms[1:]), [x[1:] for x in plain], power[1:])


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_jax_arrays(dtype: str, periodic: bool) -> None:
    """In calls, in programs, and in programs for one matrix that are mapped over some."""
    jax = pytest.importorskip("jax")

    def determinants(*bands: Any) -> Any:
        return tridiag.slogdet(*bands, periodic=periodic)

    for n in (3, 8, 33):
        for scaled in SHARES:
            systems, plain = wide(n, dtype, scaled, uniform)
            bands = [jax.numpy.asarray(x) for x in systems[:3]]
            for function in (determinants, jax.jit(determinants), jax.jit(jax.vmap(determinants))):
                both = [np.asarray(x) for x in function(*bands)]
                assert_determinants(both, plain, powers(systems, plain), periodic=periodic)


def inverse_diagonal(plain: list[Any], **options: Any) -> tuple[Any, Any]:
    """b times its gradient of log |det A|, which powers of 2 leave as it is, and how exactly it may be known."""
    matrix = in_double(*plain[:3], **options)
    inverse = np.linalg.inv(matrix)
    found = plain[1] * inverse.diagonal(axis1=-2, axis2=-1)
    sensitivity = (abs(inverse.swapaxes(-1, -2)) * abs(matrix)).sum((-1, -2))
    return found, sensitivity[:, None] ** 2


@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tensors_and_their_gradients(dtype: str, periodic: bool) -> None:
    torch = pytest.importorskip("torch")
    for n in (3, 17):
        systems, plain = wide(n, dtype, "rows", uniform, 0.5)
        for name in ("torch_thomas", "numba_thomas"):
            a, b, c = (torch.from_numpy(x).requires_grad_() for x in systems[:3])
            found = tridiag.slogdet(a, b, c, periodic=periodic, backend=name)
            both = [x.detach().numpy() for x in found]
            assert_determinants(both, plain, powers(systems, plain), periodic=periodic)
            found[1].sum().backward()
            wanted, within = inverse_diagonal(plain, periodic=periodic)
            eps = np.finfo(dtype).eps
            assert (abs(systems[1].astype(float) * b.grad.numpy() - wanted) <= 8 * eps * within).all()
            assert all(torch.isfinite(x.grad).all() for x in (a, c))
