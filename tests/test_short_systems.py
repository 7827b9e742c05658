"""Many systems of few rows that lie end to end, in `numba_thomas`: sorted in registers, a piece at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers import assert_same_bits, dominant, long_error, uniform

import tridiag
from tridiag.backends import numba_thomas
from tridiag.kernels.jobs import systems
from tridiag.kernels.jobs.words import systems as J

NAME = "numba_thomas"
DTYPES = ["float64", "float32", "complex128", pytest.param("complex64", marks=pytest.mark.slow)]
REAL, COMPLEX = range(J.FEWEST_ROWS, J.MOST_ROWS + 1), range(J.FEWEST_ROWS, J.MOST_ROWS // 2 + 1)


def shapes(dtype: str) -> list[tuple[int, int]]:
    """More unknowns than a small batch has; whole vectors and a part of one; for one thread and for two."""
    rows = COMPLEX if dtype.startswith("complex") else REAL
    return [(systems.SHORT // n + 5 * n, n) for n in rows] + [(systems.WORTH_A_THREAD // 2 + 1, 3)]


def solve(system: Any, **options: Any) -> Any:
    return tridiag.solve(*system, backend=NAME, **options)


@pytest.mark.parametrize("dtype", DTYPES)
def test_these_shapes_go_this_way(dtype: str) -> None:
    for shape in shapes(dtype):
        form = numba_thomas.Form(shape, shape, 1, pivoting="auto")
        arrays = [np.empty(shape, dtype)] * 3 + [None] + [np.empty(shape, dtype)] * 2
        facts = form, *numba_thomas.extents(arrays), (np.dtype(dtype),) * 2, 0, systems.granted(form)
        words = J.Systems.view(systems.make_job(*facts).words)
        assert words.flags & J.END_TO_END
        assert words.abreast == 0


@pytest.mark.parametrize("pivoting", ["auto", False])
@pytest.mark.parametrize("dtype", DTYPES)
def test_certified_systems(dtype: str, pivoting: Any) -> None:
    for shape in shapes(dtype):
        system = dominant(shape, dtype, 1)
        x = solve(system, pivoting=pivoting)
        assert long_error(x, *system, pivoting) <= 8
        for v, pad in ((system[0], 0), (system[2], -1)):
            v[:, pad] = np.nan
        memory = np.full(x.size + 2, 3, dtype)
        assert_same_bits(solve(system, pivoting=pivoting, out=memory[1:-1].reshape(shape)), x)
        assert memory[0] == memory[-1] == 3
        assert_same_bits(solve((*system[:3], system[3].copy()), pivoting=pivoting, overwrite_d=True), x)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_systems_that_need_pivoting(dtype: str, in_place: bool) -> None:
    """All of them, more than a worker has room for to wait; and every other one, which changes no bit of the others."""
    for shape in shapes(dtype):
        system = uniform(shape, dtype)
        x = solve((*system[:3], system[3].copy()), overwrite_d=in_place, check=False)
        fine = np.isfinite(x).all(1)
        assert fine.mean() > 0.99
        assert long_error(x[fine], *(v[fine] for v in system), "auto") <= 8
        easy = dominant(shape, dtype, 1)
        wanted = solve(easy)
        for v, w in zip(easy[:3], system[:3], strict=True):
            v[::2] = w[::2]
        found = solve((*easy[:3], easy[3].copy()), overwrite_d=in_place, check=False)
        assert_same_bits(found[1::2], wanted[1::2])


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_neighbours_and_places_change_no_bit(dtype: str, transpose: bool) -> None:
    """Of systems that are certified from both ends, from the top, or not at all; in place, elsewhere, and alone."""
    rng = np.random.default_rng(1)
    for m, n in shapes(dtype):
        a, b, c, d = uniform((m, n), dtype)
        b *= rng.uniform(0, 3, (m, 1)).astype(b.real.dtype)
        wanted = solve((a, b, c, d), check=False, transpose=transpose)
        in_place = solve((a, b, c, d.copy()), check=False, transpose=transpose, overwrite_d=True)
        assert_same_bits(in_place, wanted)
        order = rng.permutation(m)
        moved = solve([x[order] for x in (a, b, c, d)], check=False, transpose=transpose)
        assert_same_bits(moved, wanted[order])
        fewer = solve([x[: m - 3] for x in (a, b, c, d)], check=False, transpose=transpose)
        assert_same_bits(fewer, wanted[: m - 3])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_singular_system_harms_no_neighbour(dtype: str) -> None:
    shape = systems.SHORT, 5
    a, b, c, d = system = dominant(shape, dtype, 1)
    wanted = solve(system)
    k = shape[0] // 2 + 1
    a[k, 2] = b[k, 2] = c[k, 2] = 0
    d[k + 20, 1] = np.nan
    with pytest.raises(tridiag.SingularSystemError) as caught:
        solve(system)
    np.testing.assert_array_equal(caught.value.indices, [[k]])
    assert np.isnan(caught.value.x[k]).all()
    assert np.isnan(caught.value.x[k + 20]).any()
    assert_same_bits(np.delete(caught.value.x, [k, k + 20], 0), np.delete(wanted, [k, k + 20], 0))
