"""Rows that are taken out of systems: every layout of a mask, whatever the rows hold."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import DTYPES, Subject, assert_same_bits, assert_solves, dominant, uniform

import tridiag

from guarded.memory import Rooms, plain  # isort: skip

WIDE = 300  # systems side by side, some of which fill no vector
LONG = 9000  # rows that are solved in blocks, where they are of
SOME = 3, 8, 13  # systems that fill no vector, one, or several
MASKS = "in C order", "in Fortran order", "the same rows everywhere", "systems in or out", "backwards"

pytestmark = pytest.mark.only(library="numpy", compiled=True)


def masks(layout: str, *shape: int) -> np.ndarray:
    """A mask of systems along axis 0, of some layout; the first systems and rows lose all."""
    keep = np.random.default_rng(5).uniform(size=shape) < 0.8
    keep[:, :9], keep[:2, :20] = False, False
    if layout == "in Fortran order":
        return np.asfortranarray(keep)
    if layout == "the same rows everywhere":
        return np.broadcast_to(keep[:, -1:], shape)
    if layout == "systems in or out":
        return np.broadcast_to(keep[-1:], shape)
    return np.ascontiguousarray(keep[::-1, ::-1])[::-1, ::-1] if layout == "backwards" else keep


def spoilt(system: list[np.ndarray], keep: np.ndarray) -> list[np.ndarray]:
    """The same with NaN in all that is not to be read."""
    before, behind = (np.zeros_like(keep) for _ in range(2))
    before[1:], behind[:-1] = keep[:-1], keep[1:]
    read = keep & before, keep, keep & behind, keep
    return [np.where(where, x, np.nan).astype(x.dtype) for x, where in zip(system, read, strict=True)]


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("layout", MASKS)
@pytest.mark.parametrize("rows", [1, 2, 41])
def test_systems_side_by_side(backend: Subject, pivoting: bool | str, rows: int, layout: str, transpose: bool) -> None:
    system, keep = dominant((rows, WIDE), axis=0), masks(layout, rows, WIDE)
    options = {"axis": 0, "where": keep, "pivoting": pivoting, "transpose": transpose}
    given = system if transpose else spoilt(system, keep)
    assert_solves(backend.solve(*given, **options), *system, **options)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("layout", MASKS)
@pytest.mark.parametrize("systems", SOME)
def test_few_systems(backend: Subject, pivoting: bool | str, systems: int, layout: str, transpose: bool) -> None:
    system, keep = dominant((150, 30), axis=0), masks(layout, 150, 30)
    (*bands, d), where = [np.ascontiguousarray(x[:, -systems:]) for x in system], keep[:, -systems:]
    options = {"axis": 0, "where": where, "pivoting": pivoting, "transpose": transpose}
    given = [*bands, d] if transpose else spoilt([*bands, d], where)
    assert_solves(backend.solve(*given, **options), *bands, d, **options)


@pytest.mark.only(promises=(True, "auto"))
@pytest.mark.parametrize("systems", SOME)
def test_few_systems_to_be_eliminated_again(backend: Subject, pivoting: bool | str, systems: int) -> None:
    system, keep = uniform((150, systems), axis=0), masks("in C order", 150, systems + 20)[:, 20:]
    options = {"axis": 0, "where": keep, "pivoting": pivoting}
    assert_solves(backend.solve(*spoilt(system, keep), **options), *system, **options)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("layout", MASKS)
@pytest.mark.parametrize("systems", SOME)
def test_long_systems(backend: Subject, pivoting: bool | str, systems: int, layout: str, transpose: bool) -> None:
    """The rows of a system in blocks, as those of a system whose rows are taken one after the other."""
    system, keep = dominant((LONG, 30), axis=0), masks(layout, LONG, 30)
    (*bands, d), where = [np.ascontiguousarray(x[:, -systems:]) for x in system], keep[:, -systems:]
    options = {"pivoting": pivoting, "transpose": transpose}
    given = [*bands, d] if transpose else spoilt([*bands, d], where)
    x = backend.solve(*given, axis=0, where=where, **options)
    rows = [np.ascontiguousarray(y.T) for y in (*bands, d, where)]
    np.testing.assert_allclose(x.T, tridiag.solve(*rows[:4], where=rows[4], **options), rtol=1e-11, atol=1e-13)
    assert not x[~where].any()


@pytest.mark.parametrize("outer", [1, 2])
@pytest.mark.parametrize("systems", SOME)
def test_long_systems_whose_couplings_hardly_decay(backend: Subject, systems: int, outer: int) -> None:
    """They are not solved in blocks in the end."""
    shape, rng = (outer, LONG, systems), np.random.default_rng(2)
    a, b, c, d = np.full(shape, -1.0), np.full(shape, 2.0001), np.full(shape, -1.0), rng.uniform(-1, 1, shape)
    keep = rng.uniform(size=shape) < 0.999
    x = backend.solve(a, b, c, d, axis=1, where=keep)
    rows = [np.ascontiguousarray(np.moveaxis(y, 1, -1)) for y in (a, b, c, d, keep)]
    wanted = tridiag.solve(*rows[:4], where=rows[4])
    np.testing.assert_allclose(np.moveaxis(x, 1, -1), wanted, rtol=1e-8, atol=1e-8 * abs(wanted).max())
    assert not x[~keep].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_of_any_dtype(backend: Subject, pivoting: bool | str, dtype: str) -> None:
    system, keep = dominant((41, WIDE), dtype, axis=0), masks("in C order", 41, WIDE)
    options = {"axis": 0, "where": keep, "pivoting": pivoting}
    assert_solves(backend.solve(*spoilt(system, keep), **options), *system, **options)


@pytest.mark.parametrize("layout", MASKS)
def test_systems_in_the_middle(backend: Subject, layout: str) -> None:
    system, keep = dominant((3, 30, WIDE), axis=1), masks(layout, 30, WIDE)
    options = {"axis": 1, "where": np.broadcast_to(keep, (3, 30, WIDE))}
    assert_solves(backend.solve(*system, **options), *system, **options)


@pytest.mark.only(promises=(True, "auto"))
def test_systems_to_be_eliminated_again(backend: Subject, pivoting: bool | str) -> None:
    """Some of a tile, beside others that are certified."""
    easy, hard = dominant((60, WIDE), axis=0), uniform((60, WIDE), axis=0)
    again, keep = np.random.default_rng(1).uniform(size=WIDE) < 0.1, masks("in C order", 60, WIDE)
    system = [np.where(again, x, y) for x, y in zip(hard, easy, strict=True)]
    options = {"axis": 0, "where": keep, "pivoting": pivoting}
    assert_solves(backend.solve(*spoilt(system, keep), **options), *system, **options)


@pytest.mark.parametrize("row", [0, 20, 40])
def test_what_a_system_holds_stays_in_it(backend: Subject, pivoting: bool | str, row: int) -> None:
    """NaN in a row that is kept spoils the rows that are coupled to it, and none that is taken out."""
    system, keep = dominant((41, WIDE), axis=0), masks("in C order", 41, WIDE)
    options = {"axis": 0, "where": keep, "pivoting": pivoting}
    wanted = backend.solve(*system, **options)
    keep[row, 100] = True
    if row > 2:
        keep[row - 2, 100] = False
    wanted[:, 100] = np.nan
    system[3][row, 100] = np.nan
    x = backend.solve(*system, **options)
    assert np.isnan(x[row, 100])
    assert not x[~keep].any()
    if row > 2 and pivoting is not True:
        assert np.isfinite(x[: row - 2, 100]).all()
    x[:, 100] = np.nan
    assert_same_bits(x, wanted)


def test_in_place_and_wherever_operands_begin(backend: Subject, pivoting: bool | str) -> None:
    system, keep = dominant((41, WIDE), axis=0), masks("in C order", 41, WIDE)
    wanted = backend.solve(*system, axis=0, where=keep, pivoting=pivoting)
    for shift in (0, 1, 5):
        moved = [np.zeros(x.size + shift, x.dtype)[shift:].reshape(x.shape) for x in (*system, keep)]
        for x, y in zip(moved, (*system, keep), strict=True):
            x[...] = y
        *bands, d, where = moved
        x = backend.solve(*bands, d, axis=0, where=where, pivoting=pivoting, overwrite_d=True)
        assert_same_bits(x, wanted)


@pytest.mark.only(promises=(True, "auto"))
@pytest.mark.parametrize("layout", MASKS)
@pytest.mark.parametrize("shape", [(12_003, 2), (4001, 5), (3003, 7)])
def test_many_systems_of_few_rows(backend: Subject, pivoting: bool | str, shape: tuple[int, int], layout: str) -> None:
    """Some to be eliminated again beside others that are certified, and some singular ones' neighbours."""
    easy, hard, keep = dominant(shape), uniform(shape), masks(layout, shape[1], shape[0] + 9)[:, 9:].T
    again = np.random.default_rng(1).uniform(size=(shape[0], 1)) < 0.01
    system = [np.where(again, x, y) for x, y in zip(hard, easy, strict=True)]
    given, options = [x.T for x in spoilt([x.T for x in system], keep.T)], {"pivoting": pivoting}
    assert_solves(backend.solve(*given, where=keep, **options), *system, where=keep, **options)


@pytest.mark.parametrize("rows", range(1, 12))
def test_few_small_systems(backend: Subject, pivoting: bool | str, rows: int) -> None:
    """Of an even and of an odd number of rows, alone or beside others, however they lie."""
    for systems in (1, 2, 3, 4, 7):
        system = dominant((systems, rows))
        keep = np.random.default_rng(rows).uniform(size=(systems, rows)) < 0.7
        options = {"where": keep, "pivoting": pivoting}
        wanted = backend.solve(*system, **options)
        assert_solves(wanted, *system, **options)
        reversed_systems = backend.solve(*(x[::-1] for x in system), where=keep[::-1], pivoting=pivoting)
        assert_solves(reversed_systems[::-1], *system, **options)
        apart = [lying(x, "every other one") for x in (*system, keep)]
        assert_solves(backend.solve(*apart[:4], where=apart[4], pivoting=pivoting), *system, **options)


WAYS_OF_ROWS = "contiguous", "of a longer array", "every other one", "backwards", "one number", "of Fortran"


def lying(x: np.ndarray, way: str) -> np.ndarray:
    """The same rows of systems along the last axis, in one of these ways in memory."""
    if way == "of Fortran":
        return np.asfortranarray(x)
    if way == "of a longer array":
        return np.pad(x, ((0, 0), (1, 3)))[:, 1:-3]
    if way == "every other one":
        return np.repeat(x, 2, -1)[:, ::2]
    return np.ascontiguousarray(x[:, ::-1])[:, ::-1] if way == "backwards" else x


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("layout", MASKS)
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 7, 8, 9, 17, 41, 130])
def test_systems_along_rows(backend: Subject, pivoting: bool | str, rows: int, layout: str, transpose: bool) -> None:
    """Of so few rows that they are sorted in registers, and more; systems that fill no vector, one, or several."""
    for systems in (1, 2, 3, 4, 5, 8, 16, 41):
        system, keep = dominant((systems, rows)), masks(layout, rows, systems + 9)[:, 9:].T
        options = {"where": keep, "pivoting": pivoting, "transpose": transpose}
        given = system if transpose else [x.T for x in spoilt([x.T for x in system], keep.T)]
        for contiguous in (keep, np.ascontiguousarray(keep)):
            assert_solves(backend.solve(*given, **options | {"where": contiguous}), *system, **options)


@pytest.mark.parametrize("way", WAYS_OF_ROWS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_any_dtype_that_lie_anyhow(backend: Subject, pivoting: bool | str, dtype: str, way: str) -> None:
    for shape in ((37, 3), (37, 6), (3, 41), (21, 41)):
        system, keep = dominant(shape, dtype), masks("in C order", shape[1], shape[0] + 9)[:, 9:].T
        options = {"where": lying(keep, way), "pivoting": pivoting}
        system[0] = np.full_like(system[0], 0.25) if way == "one number" else system[0]
        given = [x.T for x in spoilt([x.T for x in system], keep.T)]
        given = [
            np.asarray(0.25, dtype) if k == 0 and way == "one number" else lying(x, way) for k, x in enumerate(given)
        ]
        assert_solves(backend.solve(*given, **options), *system, **options)


@pytest.mark.only(promises=(True, "auto"))
@pytest.mark.parametrize("shape", [(2, 30), (1, 150), (3, 41), (41, 3), (41, 6), (41, 60)])
def test_systems_along_rows_to_be_eliminated_again(
    backend: Subject, pivoting: bool | str, shape: tuple[int, int]
) -> None:
    """All, or some beside others that are certified."""
    keep = masks("in C order", shape[1], shape[0] + 9)[:, 9:].T
    for share in (1.0, 0.3):
        easy, hard = dominant(shape), uniform(shape)
        again = np.random.default_rng(1).uniform(size=(shape[0], 1)) < share
        system = [np.where(again, x, y) for x, y in zip(hard, easy, strict=True)]
        given = [x.T for x in spoilt([x.T for x in system], keep.T)]
        options = {"where": keep, "pivoting": pivoting}
        assert_solves(backend.solve(*given, **options), *system, **options)


@pytest.mark.parametrize("shape", [(1, 41), (2, 41), (41, 5), (41, 41)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_a_row_holds_stays_in_what_it_is_coupled_to(
    backend: Subject, pivoting: bool | str, shape: tuple[int, int], value: float
) -> None:
    system, keep, row = dominant(shape), np.ones(shape, bool), shape[1] // 2
    keep[0, [row - 1, row + 1]] = False
    options = {"where": keep, "pivoting": pivoting}
    wanted = backend.solve(*system, **options)
    system[3][0, row] = value
    x = backend.solve(*system, **options)
    assert not np.isfinite(x[0, row])
    assert not x[~keep].any()
    if pivoting is not True:
        assert np.isfinite(np.delete(x[0], row)).all()
    assert_same_bits(x[1:], wanted[1:])


@pytest.mark.parametrize("singular", [False, True])
@pytest.mark.parametrize("shape", [(1, 41), (2, 5), (2, 41), (41, 5), (41, 41)])
def test_singular_rows(backend: Subject, pivoting: bool | str, shape: tuple[int, int], singular: bool) -> None:
    """A row without a diagonal between two that are taken out, or taken out itself."""
    (*bands, d), keep, row = dominant(shape), np.ones(shape, bool), shape[1] // 2
    keep[0, [row - 1, row + 1]] = False
    bands[1][0, row] = 0
    keep[0, row] = singular
    options = {"where": keep, "pivoting": pivoting}
    if singular and pivoting is not False:
        with pytest.raises(tridiag.SingularSystemError):
            backend.solve(*bands, d, **options)
    elif not singular:
        assert_solves(backend.solve(*bands, d, **options), *bands, d, **options)


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("shape", [(41, 3), (41, 8), (41, WIDE), (LONG, 3), (LONG, 8), (LONG, 13)])
@pytest.mark.parametrize("constant", [(), (0,), (1,)])
def test_no_memory_beside_operands_is_touched(
    backend: Subject, pivoting: bool | str, shape: tuple[int, int], constant: tuple[int, ...], behind: bool
) -> None:
    """Of masks least of all, of which rows are read in whole vectors."""
    system, keep = dominant(shape, axis=0), masks("in C order", 2 * shape[0], 20 + shape[1])[-shape[0] :, -shape[1] :]
    keep = keep[tuple(slice(1) if k in constant else slice(None) for k in range(2))]
    rooms = Rooms()
    held = [rooms.copy(x, plain(2, behind)) for x in (*system, keep)]
    out = rooms.hold(shape, "float64", plain(2, behind))
    for x in held:
        x.lock()
    *given, where = [x.array for x in held]
    backend.solve(*given, axis=0, where=where, pivoting=pivoting, out=out.array)
    found, beside = out.array.copy(), out.written_beside()
    rooms.give_back()
    assert_same_bits(found, backend.solve(*system, axis=0, where=np.array(keep), pivoting=pivoting))
    assert beside == 0


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("shape", [(1, 41), (2, 41), (3, 5), (41, 3), (41, 7), (41, 8), (41, 41), (1, 900), (2, LONG)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_no_memory_beside_rows_is_touched(
    backend: Subject, pivoting: bool | str, shape: tuple[int, int], dtype: str, behind: bool
) -> None:
    system, keep = dominant(shape, dtype), np.random.default_rng(5).uniform(size=shape) < 0.8
    rooms = Rooms()
    held = [rooms.copy(x, plain(2, behind)) for x in (*system, keep)]
    out = rooms.hold(shape, dtype, plain(2, behind))
    for x in held:
        x.lock()
    *given, where = [x.array for x in held]
    backend.solve(*given, where=where, pivoting=pivoting, out=out.array)
    found, beside = out.array.copy(), out.written_beside()
    rooms.give_back()
    assert_same_bits(found, backend.solve(*system, where=keep, pivoting=pivoting))
    assert beside == 0
