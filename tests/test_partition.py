"""What `numba_partition` does with systems long enough to be cut into chunks; all backends' tests have short ones."""

import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import (
    GENERATORS,
    assert_same_bits,
    dominant,
    long_error,
    noise,
    uniform,
    zero_diagonal,
)
from processes import run_program

from guarded.memory import Rooms, plain  # isort: skip

import tridiag
from tridiag.kernels.jobs import systems

NAME = "numba_partition"
DTYPES = ("float32", "float64", "complex64", "complex128")
SHORTEST = 514  # rows from which on every dtype is cut
LENGTHS = (258, 259, 386, SHORTEST, 2 * SHORTEST - 3, 20_000, 33_333)


def check(system: Any, **options: Any) -> np.ndarray:
    x = tridiag.solve(*system, backend=NAME, **options)
    assert x.shape == np.broadcast_shapes(*(np.shape(v) for v in system))
    assert long_error(x, *system, options.get("pivoting", "auto")) <= 8
    return x


def laplacian(shape: Any, dtype: str) -> list[np.ndarray]:
    """Couplings that do not decay."""
    return [np.full(shape, v, dtype) for v in (-1, 2, -1)] + [noise(np.random.default_rng(0), shape, dtype)]


def shifted(shape: Any, dtype: str) -> list[np.ndarray]:
    """Indefinite, couplings that do not decay."""
    a, b, c, d = laplacian(shape, dtype)
    return [a, b - np.asarray(1.9, dtype), c, d]


def point_load(shape: Any, dtype: str) -> list[np.ndarray]:
    """Almost all of the solution is far smaller than its largest entries."""
    a, b, c, d = dominant(shape, dtype)
    d[...] = 0
    d[..., d.shape[-1] // 3] = 1
    return [a, b, c, d]


SYSTEMS = GENERATORS | {"laplacian": laplacian, "shifted": shifted, "point load": point_load}
PLAIN = {"dominant", "positive", "laplacian", "point load"}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("pivoting", [False, True, "auto"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_lengths(system: str, pivoting: bool | str, dtype: str) -> None:
    if pivoting is False and system not in PLAIN:
        pytest.skip("needs pivoting")
    for n in LENGTHS:
        even = n if n % 2 == 0 or system != "zero_diagonal" else n + 1
        check(SYSTEMS[system]((even,), dtype), pivoting=pivoting)


@pytest.mark.parametrize("rows", range(2100, 2132))
def test_chunks_of_every_length_with_a_zero_diagonal(rows: int) -> None:
    """An odd chunk is singular by itself."""
    check(zero_diagonal((2 * (rows // 2),)))
    check(zero_diagonal((2 * (rows // 2),)), pivoting=True)


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("pivoting", [False, True])
def test_copies_read_no_row_that_is_none(pivoting: bool, masked: bool, behind: bool) -> None:
    """Of a transpose a begins with its second entry, c ends with its last but one: beside them nothing is read."""
    a, b, c, d = dominant((20_001,))
    where = np.arange(20_001) % 7 != 3 if masked else None
    rooms = Rooms()
    held = [rooms.copy(x, plain(1, behind)._replace(every=2)) for x in (a, b, c, d)]
    for x in held:
        x.lock()
    options: dict[str, Any] = {"backend": NAME, "transpose": True, "pivoting": pivoting, "where": where}
    found = tridiag.solve(*(x.array for x in held), **options)
    rooms.give_back()
    np.testing.assert_allclose(found, tridiag.solve(a, b, c, d, **options), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("pivoting", [False, True, "auto"])
def test_transposed(pivoting: bool | str) -> None:
    a, b, c, d = (dominant if pivoting is False else uniform)((20_001,))
    a[0] = c[-1] = np.nan
    x = tridiag.solve(a, b, c, d, backend=NAME, transpose=True, pivoting=pivoting)
    assert long_error(x, np.roll(c, 1), b, np.roll(a, -1), d) <= 8


@pytest.mark.parametrize("system", [dominant, uniform])
def test_masked(system: Callable[..., Any]) -> None:
    a, b, c, d = system((3, 5000))
    keep = np.random.default_rng(1).random((3, 5000)) > 0.1
    keep[1] = False
    keep[2, :700] = keep[2, 4000:] = False
    for v in (a, b, c, d):
        v[~keep] = np.nan
    x = tridiag.solve(a, b, c, d, where=keep, backend=NAME)
    assert not x[~keep].any()
    left, right = keep & np.roll(keep, 1, -1), keep & np.roll(keep, -1, -1)
    cut = np.where(left, a, 0), np.where(keep, b, 1), np.where(right, c, 0), np.where(keep, d, 0)
    assert long_error(x, *cut) <= 8


MASKS: dict[str, Callable[..., Any]] = {
    "in C order": lambda keep: keep,
    "in Fortran order": np.asfortranarray,
    "backwards": lambda keep: np.ascontiguousarray(keep[:, ::-1])[:, ::-1],
    "the same in all": lambda keep: np.broadcast_to(keep[:1], keep.shape),
    "systems in or out": lambda keep: np.broadcast_to(keep[:, 77:78], keep.shape),
}


def masked(shape: tuple[int, int], layout: str, system: list[Any]) -> tuple[list[Any], np.ndarray]:
    """A system with a mask, and NaN in all that it takes out."""
    keep = np.random.default_rng(1).random(shape) > 0.1
    keep[-1, : shape[1] // 7] = keep[-1, shape[1] // 2 :] = False
    keep = MASKS[layout](keep)
    before, behind = np.zeros_like(keep), np.zeros_like(keep)
    before[:, 1:], behind[:, :-1] = keep[:, :-1], keep[:, 1:]
    read = keep & before, keep, keep & behind, keep
    return [np.where(where, x, np.nan).astype(x.dtype) for x, where in zip(system, read, strict=True)], keep


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", MASKS)
@pytest.mark.parametrize("pivoting", [False, True, "auto"])
def test_masks_of_every_layout(pivoting: bool | str, layout: str, dtype: str) -> None:
    for rows in (386, 1029, 5003):
        system = (dominant if pivoting is False else uniform)((3, rows), dtype)
        given, keep = masked((3, rows), layout, system)
        x = tridiag.solve(*given, where=keep, backend=NAME, pivoting=pivoting)
        assert not x[~keep].any()
        some, gone = keep.any(-1), [np.asarray(y, dtype) for y in (0, 1, 0, 0)]
        cut = [np.where(np.isnan(y), z, y)[some] for y, z in zip(given, gone, strict=True)]
        assert long_error(x[some], *cut, pivoting) <= 8


@pytest.mark.parametrize("pivoting", [False, True, "auto"])
def test_operands_of_masked_systems_may_be_one_number_or_lie_anyhow(pivoting: bool | str) -> None:
    (_, b, _, d), options = dominant((3, 5003)), {"backend": NAME, "pivoting": pivoting}
    keep = np.random.default_rng(1).random(d.shape) > 0.01
    b, one = 3 + abs(b), np.ones_like(d)
    wanted = tridiag.solve(one, b, -one, d, where=keep, **options)
    before, behind = np.zeros_like(keep), np.zeros_like(keep)
    before[:, 1:], behind[:, :-1] = keep[:, :-1], keep[:, 1:]
    assert not wanted[~keep].any()
    cut = one * (keep & before), np.where(keep, b, 1), -one * (keep & behind), d * keep
    assert long_error(wanted, *cut, pivoting) <= 8
    assert_same_bits(tridiag.solve(1.0, b, -1.0, d, where=keep, **options), wanted)
    apart = [np.repeat(x, 2, -1)[:, ::2] for x in (b, d, keep)]
    assert_same_bits(tridiag.solve(1.0, apart[0], -1.0, apart[1], where=apart[2], **options), wanted)
    upright = [np.ascontiguousarray(x.T) for x in (one, b, -one, d, keep)]
    assert_same_bits(tridiag.solve(*upright[:4], where=upright[4], axis=0, **options).T, wanted)
    assert_same_bits(tridiag.solve(-1.0, b, 1.0, d, where=keep, transpose=True, **options), wanted)
    assert_same_bits(tridiag.solve(1.0, b, -1.0, d.copy(), where=keep, overwrite_d=True, **options), wanted)


@pytest.mark.parametrize("pivoting", [False, True, "auto"])
def test_what_is_not_finite_stays_out_of_rows_that_are_taken_out(pivoting: bool | str) -> None:
    a, b, c, d = dominant((20_000,))
    keep = np.ones(20_000, bool)
    keep[[4000, 9000, 15_000]] = False
    d[6000], d[12_000] = np.nan, np.inf
    x = tridiag.solve(a, b, c, d, where=keep, backend=NAME, pivoting=pivoting)
    assert not x[~keep].any()
    assert not np.isfinite(x[[6000, 12_000]]).any()
    if pivoting is False:
        assert np.isfinite(x[:4000]).all()
        assert np.isfinite(x[15_000:]).all()


def test_a_singular_masked_system_is_found() -> None:
    a, b, c, d = dominant((20_000,))
    keep = np.ones(20_000, bool)
    keep[[4999, 5001]], b[5000] = False, 0
    with pytest.raises(tridiag.SingularSystemError):
        tridiag.solve(a, b, c, d, where=keep, backend=NAME)
    keep[5000] = False
    assert np.isfinite(tridiag.solve(a, b, c, d, where=keep, backend=NAME)).all()


@pytest.mark.parametrize("pivoting", [False, True, "auto"])
def test_ways_in_memory(pivoting: bool | str) -> None:
    """Strides of any sign, one number for all rows, matrices of many right sides, real ones of complex right sides."""
    a, b, c, d = dominant((3000, 3))
    options: Any = {"backend": NAME, "pivoting": pivoting}
    wanted = tridiag.solve(*(np.ascontiguousarray(v.T) for v in (a, b, c, d)), **options).T
    assert_same_bits(tridiag.solve(a, b, c, d, axis=0, **options), wanted)
    backwards = [np.ascontiguousarray(v[::-1])[::-1] for v in (a, b, c, d)]
    assert_same_bits(tridiag.solve(*backwards, axis=0, **options), wanted)
    out = np.empty((3000, 6))[:, ::2]
    assert tridiag.solve(a, b, c, d, axis=0, out=out, **options) is out
    assert_same_bits(out, wanted)
    check([1.0, 4.0, -1.0, d.T], pivoting=pivoting)
    check([a[:, 0], b[:, 0], 0.5, d.T + 1j * d.T[::-1]], pivoting=pivoting)


@pytest.mark.parametrize("system", [dominant, uniform])
@pytest.mark.parametrize("pivoting", [False, True, "auto"])
def test_in_place(system: Callable[..., Any], pivoting: bool | str) -> None:
    a, b, c, d = system((20_000,))
    wanted = tridiag.solve(a, b, c, d, backend=NAME, pivoting=pivoting)
    assert tridiag.solve(a, b, c, d, backend=NAME, pivoting=pivoting, overwrite_d=True) is d
    assert_same_bits(d, wanted)


@pytest.mark.parametrize("system", [dominant, uniform, point_load, shifted])
@pytest.mark.parametrize("shape", [(1, 200_000), (40, 5000)])
def test_the_number_of_threads_changes_no_bit(
    system: Callable[..., Any], shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    given, found = system(shape, "float64"), []
    for count in (1, 2, 7):
        monkeypatch.setattr(systems, "threads", lambda count=count: count)
        found.append(tridiag.solve(*given, backend=NAME))
    assert_same_bits(found[1], found[0])
    assert_same_bits(found[2], found[0])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("place", [0, 1, 500, 2500, 9999])
def test_a_singular_system_is_told_with_its_row(dtype: str, place: int) -> None:
    a, b, c, d = uniform((4, 10_000), dtype)
    a[2, place] = b[2, place] = c[2, place] = 0
    for pivoting in (True, "auto"):
        with pytest.raises(tridiag.SingularSystemError) as caught:
            tridiag.solve(a, b, c, d, backend=NAME, pivoting=pivoting)
        np.testing.assert_array_equal(caught.value.indices, [[2]])
        assert np.isnan(caught.value.x[2]).all() and np.isfinite(caught.value.x[[0, 1, 3]]).all()


@pytest.mark.parametrize("pivoting", [True, "auto"])
def test_a_long_singular_system_is_told_at_once(pivoting: bool | str) -> None:
    """Which system is singular is asked again after the solve; not in a loop over rows in Python."""
    b = np.full((2, 3_000_000), 2.0)
    b[1, 0] = b[1, -1] = 1
    with pytest.raises(tridiag.SingularSystemError) as caught:
        tridiag.solve(-1.0, b, -1.0, np.ones(3_000_000), pivoting=pivoting)
    np.testing.assert_array_equal(caught.value.indices, [[1]])


@pytest.mark.parametrize("pivoting", [True, "auto"])
@pytest.mark.parametrize("first, last", [(0, 999_999), (123_456, 900_001)])
def test_a_singular_matrix_in_which_no_coupling_decays(first: int, last: int, pivoting: bool | str) -> None:
    """The rounding of a thousand chunks adds up: in single precision the last pivot is far from zero."""
    a, c = np.full((2, 1_000_000), -1, np.float32)
    b, d = np.full_like(a, 2), np.zeros_like(a)
    a[first] = c[last] = c[first - 1] = a[(last + 1) % a.size] = 0
    b[[first, last]] = 1
    d[[first, last]] = 1, -1
    with pytest.raises(tridiag.SingularSystemError):
        tridiag.solve(a, b, c, d, backend="numba_partition", pivoting=pivoting)


@pytest.mark.parametrize("apart", [False, True], ids=["", "apart"])
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_a_zero_row_anywhere_is_singular(dtype: str, apart: bool) -> None:
    """Also where separators do not feel it: they are far away, or couplings between them and it are zero."""
    for n in (758, 5000, 100_000):
        for row in (0, 1, 87 * n // 100, n // 2, n - 1):
            a, b, c, d = dominant((n,), dtype)
            a[row] = b[row] = c[row] = 0
            if apart and 20 < row < n - 20:
                a[row - 20] = c[row - 21] = c[row + 20] = a[row + 21] = 0
            for pivoting in (False, True, "auto"):
                x = tridiag.solve(a, b, c, d, backend=NAME, pivoting=pivoting, check=False)
                assert np.isnan(x).all(), (n, row, pivoting)


def test_an_odd_zero_diagonal_is_singular() -> None:
    with pytest.raises(tridiag.SingularSystemError):
        tridiag.solve(*zero_diagonal((10_001,)), backend=NAME)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("which", range(4))
def test_what_is_not_finite_is_not_singular(which: int, value: float) -> None:
    system = uniform((10_000,))
    system[which][5000] = value
    x = tridiag.solve(*system, backend=NAME)
    wanted = tridiag.solve(*system, backend="numpy_thomas")
    assert np.isnan(x).any() == np.isnan(wanted).any()


SHORT_OF_MEMORY = """
import resource, numpy as np, tridiag
b, keep = np.full(8_000_000, 4.0)[::STEP][:4_000_000], np.ones(4_000_000, bool)
out = np.empty_like(b)
def call(n):
    return tridiag.solve(1.0, b[:n], 1.0, b[:n], where=keep[:n], backend="numba_partition", out=out[:n], **OPTIONS)
call(100)
used = 4096 * int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (used + 2**25, -1))
try:
    call(4_000_000)
except MemoryError as error:
    print(str(error)[:9])
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
print(abs(call(4_000_000)[50:-50] - 2 / 3).max() < 1e-9)
"""


@pytest.mark.skipif(not pathlib.Path("/proc/self/statm").exists(), reason="needs a limit of memory, as Linux has")
@pytest.mark.parametrize(("step", "options"), [(1, {"pivoting": True}), (2, {})])
def test_memory_for_copies_that_runs_out(step: int, options: dict[str, Any]) -> None:
    program = SHORT_OF_MEMORY.replace("STEP", str(step)).replace("OPTIONS", repr(options))
    assert run_program(program) == "no memory\nTrue"


def test_auto_takes_it_for_long_systems() -> None:
    def chosen(shape: tuple[int, ...], axis: int = -1, **options: Any) -> str:
        return tridiag.explain("solve", 1.0, 4.0, 1.0, np.broadcast_to(1.0, shape), axis=axis, **options).backend

    assert {chosen((20_000,)), chosen((2, 20_000)), chosen((1_000_000,)), chosen((1_000_000, 1), 0)} == {NAME}
    others = {chosen((200,)), chosen((1_000, 1_000)), chosen((100_000, 100)), chosen((40_000, 100), 0)}
    others |= {chosen((0, 9), 0), chosen((40_000,), periodic=True), chosen((40_000,), backend="numba", periodic=True)}
    assert others == {"numba_thomas"}
    assert chosen((40_000,), backend="numba") == NAME
