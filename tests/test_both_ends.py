"""What `numba_thomas` does with few and small systems, and with long ones side by side that fill no vector."""

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
# rows at all places of a vector and of a half; systems that fill none, some, and parts of vectors
SIDE_BY_SIDE = [(n, m) for n in (1, 2, 3, 4, 5, 33, 66) for m in (2, 3, 7, 8, 9, 17)] + [(700, 3), (8000, 5), (3, 4, 5)]
ANYHOW = [(1, n) for n in (1, 2, 3, 4, 65, 700)] + [(2, 601), (18, 2), (45, 3), (9, 9), (2, 3, 5)]
# sorted in registers, and others behind them
ANYHOW += [(m, n) for n in (2, 3, 4, 5, 6, 7) for m in (16, 37)] + [(500, 7), (64, 2)]
LONG = [(33_000, 2), (60_001, 5)]  # blocks of rows
CASES = [(shape, len(shape) - 2) for shape in SIDE_BY_SIDE + LONG] + [(shape, -1) for shape in ANYHOW]
DTYPES = "float64", "float32"


def job(shape: tuple[int, ...], axis: int, dtype: str, **options: Any) -> Any:
    form = numba_thomas.Form(shape, shape, axis % len(shape), pivoting="auto", **options)
    arrays = [np.empty(shape, dtype)] * 3 + [None] + [np.empty(shape, dtype)] * 2
    return systems.make_job(form, *numba_thomas.extents(arrays), (np.dtype(dtype),) * 2, 0, systems.granted(form))


def check(x: Any, system: Any, axis: int) -> None:
    x, *system = (np.moveaxis(v, axis, -1) for v in (x, *system))
    assert long_error(x, *system, "auto") <= 8


def solve(system: Any, axis: int, **options: Any) -> Any:
    return tridiag.solve(*system, axis=axis, backend=NAME, **options)


@pytest.mark.parametrize("dtype", DTYPES)
def test_these_shapes_go_this_way(dtype: str) -> None:
    for shape, axis in CASES:
        words = J.Systems.view(job(shape, axis, dtype).words)
        systems_along_last = shape[-1] if axis >= 0 else shape[-2] if len(shape) == 2 else shape[0] * shape[1]
        assert words.abreast == systems_along_last
        assert (job(shape, axis, dtype).kernel[0] == "row_blocks") == (shape in LONG)
    for options in ({"periodic": True}, {"transpose": True}):
        assert bool(J.Systems.view(job((5, 9), 0, dtype, **options).words).abreast) == ("transpose" in options)


@pytest.mark.parametrize("dtype", DTYPES)
def test_two_pairs_of_long_systems_with_masks_go_this_way(dtype: str) -> None:
    """Three of 347 rows took twice as long as a loop, one in each lane; one without a mask each is as quick there."""
    for count, masked, abreast in ((2, True, 2), (3, True, 3), (4, True, 4), (5, True, 0), (3, False, 0)):
        form = numba_thomas.Form((count, 347), (count, 347), 1, pivoting="auto")
        x = np.empty((count, 347), dtype)
        arrays = [x, x, x, np.empty(x.shape, bool) if masked else None, x, x]
        made = systems.make_job(form, *numba_thomas.extents(arrays), (x.dtype, x.dtype), 0, 1)
        assert J.Systems.view(made.words).abreast == abreast


@pytest.mark.parametrize("dtype", DTYPES)
def test_few_right_sides_of_a_matrix_are_systems_of_their_own(dtype: str) -> None:
    """As many as fill no vector, of one matrix or of some: bits are those of systems each with its matrix."""
    lanes = systems.lanes_of(np.dtype(dtype))
    for *batch, n in [(2, 28), (lanes, 7), (lanes + 1, 7), (3, 2, 40), (2, 900)]:
        shape, matrix = (*batch, n), (*batch[:-1], 1, n)
        *bands, d = dominant(shape, dtype, -1)
        bands = [np.ascontiguousarray(x[..., :1, :]) for x in bands]
        form = numba_thomas.Form(shape, matrix, len(batch), pivoting="auto")
        arrays = [*bands, None, d, d]
        facts = form, *numba_thomas.extents(arrays), (np.dtype(dtype),) * 2, 0, systems.granted(form)
        alone = np.prod(batch) <= lanes
        assert (J.Systems.view(systems.make_job(*facts).words).right_sides == 1) == alone
        x = solve((*bands, d), -1)
        check(x, (*(np.broadcast_to(v, shape) for v in bands), d), -1)
        if alone:
            assert_same_bits(x, solve((*(np.broadcast_to(v, shape).copy() for v in bands), d), -1))


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_shape(dtype: str, transpose: bool) -> None:
    for shape, axis in CASES:
        a, b, c, d = dominant(shape, dtype, axis)
        turned = (np.roll(c, 1, axis), b, np.roll(a, -1, axis), d)
        check(solve((a, b, c, d), axis, transpose=transpose), turned if transpose else (a, b, c, d), axis)


@pytest.mark.parametrize("dtype", DTYPES)
def test_in_place_into_views_and_beside_nothing(dtype: str) -> None:
    for shape, axis in CASES:
        system = dominant(shape, dtype, axis)
        x, memory = solve(system, axis), np.full((*shape[:-1], shape[-1] + 7), 3, dtype)
        given = [np.pad(v, [(0, 0)] * (len(shape) - 1) + [(1, 2)], constant_values=np.nan)[..., 1:-2] for v in system]
        check(solve(given, axis, out=memory[..., 3:-4]), system, axis)
        assert (memory[..., :3] == 3).all() and (memory[..., -4:] == 3).all()
        d = system[3].copy()
        assert solve((*system[:3], d), axis, overwrite_d=True) is d
        check(d, system, axis)
        system[0][(slice(None),) * (axis % len(shape)) + (0,)] = np.nan
        system[2][(slice(None),) * (axis % len(shape)) + (-1,)] = np.nan
        assert_same_bits(solve(system, axis), x)


def spoil(system: Any, kind: str, k: int) -> None:
    """Make the k-th system one without certificate, or singular, or not of numbers; systems along the last axis."""
    a, b, c, d = system
    row = a.shape[-1] // 3
    if kind == "exchanges":
        for v, w in zip((a, b, c), uniform(a.shape[-1:], a.dtype.name), strict=False):
            v[k] = w
    elif kind == "singular":
        a[k, row] = b[k, row] = c[k, row] = 0
    elif kind == "slow decay":
        a[k], b[k], c[k] = -1, 2, -1
    else:
        (b if kind == "matrix" else d)[k, row] = np.nan


@pytest.mark.parametrize("kind", ["exchanges", "singular", "slow decay", "matrix", "right side"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_a_system_is_changes_no_bit_of_the_others(dtype: str, kind: str) -> None:
    """Where one of them has no certificate the kernel has them all, and the others keep what was found here."""
    cases = [((40, 3), 0), ((8000, 5), 0), ((13, 9), 0), ((2, 60), 1), ((60_001, 5), 0), ((40_000, 3), 0)]
    cases += [((m, n), 1) for m in (16, 37) for n in (2, 3, 5, 7)]
    for shape, axis in cases:
        system = dominant(shape, dtype, axis)
        wanted = np.moveaxis(solve(system, axis), axis, -1)
        k = wanted.shape[0] // 2
        spoil([np.moveaxis(v, axis, -1) for v in system], kind, k)
        found = np.moveaxis(solve(system, axis, check=False), axis, -1)
        assert_same_bits(np.delete(found, k, 0), np.delete(wanted, k, 0))
        assert np.isnan(found[k]).any() == (kind not in ("exchanges", "slow decay"))
        if kind in ("exchanges", "slow decay"):
            check(np.moveaxis(found, -1, axis), system, axis)


def test_gradients_are_those_of_the_solution_that_is_returned() -> None:
    """Also where a neighbour has no certificate, and the kernel of the gradients has solved all systems before."""
    torch = pytest.importorskip("torch")
    for shape, spoiled in (((40, 3), False), ((40, 3), True)):
        system = dominant(shape, "float64", 0)
        if spoiled:
            spoil([v.T for v in system], "exchanges", 1)
        given = [torch.tensor(v, requires_grad=True) for v in system]
        found = torch.autograd.grad(tridiag.solve(*given, axis=0, backend=NAME).sum(), given)
        wanted = torch.autograd.grad(tridiag.solve(*given, axis=0, backend="torch_thomas").sum(), given)
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)
