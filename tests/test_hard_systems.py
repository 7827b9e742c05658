"""Few or long systems that need pivoting, from NumPy: `numba_thomas` leaves them to the kernel of `numba_partition`."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from helpers import assert_same_bits, dominant, long_error, uniform

import tridiag
from tridiag.backends import numba_thomas
from tridiag.kernels import on_demand
from tridiag.kernels.jobs import systems
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.runtime.python_call import check, function
from tridiag.kernels.table import kernel
from tridiag.problems.forms import Form

NAME = "numba_thomas"
DTYPES = "float64", "float32"
# rows and systems, along the first axis: from both ends, in blocks of rows that fill no vector, and one and more
SIDE_BY_SIDE = [(258, 2), (700, 3), (1500, 4), (8000, 5), (9000, 9), (33_000, 2), (40_000, 19)]
ANYHOW = [(1, 258), (1, 1000), (2, 600), (3, 1200), (5, 9000), (11, 9000)]
CASES = [(shape, 0) for shape in SIDE_BY_SIDE] + [(shape, -1) for shape in ANYHOW]


def call_of(shape: tuple[int, ...], axis: int, dtype: str, pivoting: bool | str = "auto") -> Any:
    form, arrays = Form(shape, shape, axis % len(shape), pivoting=pivoting), [np.empty(shape, dtype)] * 5
    return numba_thomas.call_for(form, *numba_thomas.extents([*arrays[:3], None, *arrays[3:]]), (np.dtype(dtype),) * 2)


def leaves(shape: tuple[int, ...], axis: int, dtype: str, **options: Any) -> bool:
    return bool(J.Systems.view(call_of(shape, axis, dtype, **options).job.words).hard)


def mixed(shape: tuple[int, ...], axis: int, dtype: str, hard: Any, seed: int = 0) -> list[np.ndarray]:
    """Dominant systems, and some in their places that need pivoting."""
    easy, poor = dominant(shape, dtype, axis), uniform(shape, dtype, axis, seed)
    return [np.where(np.expand_dims(hard, axis), x, y) for x, y in zip(poor, easy, strict=True)]


def solve(system: Any, axis: int, **options: Any) -> np.ndarray:
    return tridiag.solve(*system, axis=axis, backend=NAME, **options)


def worst(x: np.ndarray, system: Any, axis: int) -> float:
    return long_error(*(np.moveaxis(v, axis, -1) for v in (x, *system)))


def several_mixes(count: int) -> list[np.ndarray]:
    """Which of some systems are hard: all ways of few, some of more."""
    if count < 4:
        return [np.array(mix) for mix in itertools.product((False, True), repeat=count)]
    places = np.arange(count)
    return [places >= 0, places == count - 1, places % 3 == 0, places % 3 != 1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_which_are_left(dtype: str) -> None:
    for shape, axis in CASES:
        n, count = (shape[axis], np.prod(shape) // shape[axis])
        if dtype == "float64":
            assert leaves(shape, axis, dtype)
        assert not leaves(shape, axis, dtype, pivoting=True) and not leaves(shape, axis, dtype, pivoting=False)
        assert leaves(shape, axis, dtype) == systems.few_or_long(n, int(count), np.dtype(dtype))
    assert not leaves((256, 2), 0, dtype) and not leaves((7, 400), -1, dtype) and not leaves((64, 500), 0, dtype)
    assert not leaves((1, 1000), -1, "complex128")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_hard_systems_beside_others(shape: tuple[int, int], axis: int, dtype: str) -> None:
    """All are as exact as is promised, and no bit of any depends on its neighbours."""
    count = shape[1 + axis]
    every = [solve(mixed(shape, axis, dtype, np.full(count, hard)), axis) for hard in (False, True)]
    for hard in several_mixes(count):
        system = mixed(shape, axis, dtype, hard)
        x = solve(system, axis)
        assert worst(x, system, axis) <= 8
        assert_same_bits(x, np.where(np.expand_dims(hard, axis), every[1], every[0]))


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_in_place_transposed_and_into_given_memory(shape: tuple[int, int], axis: int, transpose: bool) -> None:
    system = mixed(shape, axis, "float64", np.arange(shape[1 + axis]) % 2 == 0)
    a, b, c, d = system
    turned = (np.roll(c, 1, axis), b, np.roll(a, -1, axis), d) if transpose else system
    x, out = solve(system, axis, transpose=transpose), np.full(shape, np.nan)
    assert worst(x, turned, axis) <= 8
    assert_same_bits(solve(system, axis, transpose=transpose, out=out), x)
    found = solve((a, b, c, d.copy()), axis, transpose=transpose, overwrite_d=True)
    assert worst(found, turned, axis) <= 8


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 700), (2, 1000), (3, 1200), (5, 9000)])
def test_rows_that_are_taken_out(shape: tuple[int, int], dtype: str) -> None:
    """As systems without these rows, and no bit depends on neighbours."""
    keep = np.random.default_rng(1).random(shape) < 0.9
    left, right = keep & np.roll(keep, 1, -1), keep & np.roll(keep, -1, -1)
    every = [solve(mixed(shape, -1, dtype, np.full(len(keep), hard)), -1, where=keep) for hard in (False, True)]
    for hard in several_mixes(len(keep)):
        a, b, c, d = mixed(shape, -1, dtype, hard)
        x = solve((a, b, c, d), -1, where=keep)
        assert_same_bits(x, np.where(hard[:, None], every[1], every[0]))
        assert not x[~keep].any()
        cut = np.where(left, a, 0), np.where(keep, b, 1), np.where(right, c, 0), np.where(keep, d, 0)
        assert worst(x, cut, -1) <= 8
        found = solve((a, b, c, d.copy()), -1, where=keep, overwrite_d=True)
        assert worst(found, cut, -1) <= 8


def test_right_sides_of_one_matrix_and_bands_that_are_numbers() -> None:
    a, b, c, d = uniform((3, 1000))
    wanted = [np.broadcast_to(x[:1], (3, 1000)).copy() for x in (a, b, c)]
    assert_same_bits(solve((a[:1], b[:1], c[:1], d), -1), solve((*wanted, d), -1))
    x = solve((-1.0, 1.1, -1.0, d[:2].T.copy()), 0)
    assert long_error(x.T, -1.0, 1.1, -1.0, d[:2]) <= 8


@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_singular_and_bad_systems_stay_where_they_are(shape: tuple[int, int], axis: int) -> None:
    count = shape[1 + axis]
    system = mixed(shape, axis, "float64", np.full(count, True))
    wanted, place = solve(system, axis), count - 1
    a, b, c, d = (np.moveaxis(x, axis, -1) for x in system)
    a[place, 77] = b[place, 77] = c[place, 77] = 0
    with pytest.raises(tridiag.SingularSystemError) as caught:
        solve(system, axis)
    np.testing.assert_array_equal(caught.value.indices, [[place]])
    x = np.moveaxis(solve(system, axis, check=False), axis, -1)
    assert np.isnan(x[place]).all()
    assert_same_bits(x[:place], np.moveaxis(wanted, axis, -1)[:place])
    b[place, 77], d[place, 70] = 1, np.nan
    x = np.moveaxis(solve(system, axis), axis, -1)
    assert np.isnan(x[place, 70])
    assert_same_bits(x[:place], np.moveaxis(wanted, axis, -1)[:place])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", range(1, 18))
def test_neighbours_copied_together_are_solved_as_rows_are(count: int, dtype: str) -> None:
    system = uniform((2, 900, count), dtype, 1)
    rows = [np.ascontiguousarray(np.moveaxis(x, 1, -1)) for x in system]
    for pivoting in (True, "auto"):
        options = {"backend": "numba_partition", "pivoting": pivoting}
        x, wanted = tridiag.solve(*system, axis=1, **options), tridiag.solve(*rows, **options)
        assert_same_bits(np.moveaxis(x, 1, -1), wanted)
        d = system[3].copy()
        assert_same_bits(tridiag.solve(*system[:3], d, axis=1, overwrite_d=True, **options), x)


@pytest.mark.parametrize("n", [1000, 10_000])
def test_what_is_raised_while_a_kernel_is_obtained_is_raised_by_the_call(
    n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while it is compiled, say; the next call tries again. Of the longer call other Python threads run."""
    shape, word = (2, n), on_demand.word_of.__wrapped__("partition", "float64")
    job = systems.leaving_hard(call_of(shape, -1, "float64").job, word, 1)
    run = function(kernel(*job.kernel).address, job.words, job.helpers, job.unknowns)
    *bands, d = mixed(shape, -1, "float64", np.array([True, False]))
    x, before = np.empty(shape), d.copy()

    def interrupted(*named: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(on_demand, "kernel", interrupted)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                check(run(*bands, None, d, x))
            if n < systems.LONGEST:  # longer ones are not left in place
                with pytest.raises(KeyboardInterrupt):
                    check(run(*bands, None, d, d))
            np.testing.assert_array_equal(d, before)
    assert not check(run(*bands, None, d, x)) and not check(run(*bands, None, d, d))
    assert long_error(x, *bands, before) <= 8 and long_error(d, *bands, before) <= 8


def test_explain_tells_of_them() -> None:
    few, many, narrow = np.ones((1, 1000)), np.ones((50, 300)), np.ones((2, 1000, 2))
    told = tridiag.explain("solve", few, few, few, few)
    assert told.hard == "systems without certificate: by the kernel of numba_partition" and told.hard in repr(told)
    assert tridiag.explain("solve", few, few, few, few, where=few > 0).hard == told.hard
    for x, options in (
        (many, {}),
        (few, {"pivoting": True}),
        (narrow, {"axis": 1, "where": narrow > 0}),
        (few.astype(complex), {}),
    ):
        assert tridiag.explain("solve", x, x, x, x, backend=NAME, **options).hard is None
