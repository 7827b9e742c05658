"""The CUDA C kernel of block tridiagonal systems on the CPU build: sizes, right sides, layouts, orders, mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cpu_build
import numpy as np
import planted
import pytest
from helpers import DTYPES, STANDIN, assert_same_bits

if not STANDIN:
    pytest.skip("runs the CPU build; on a GPU the main suite runs the kernels", allow_module_level=True)
if reason := cpu_build.why_not():
    pytest.skip(reason, allow_module_level=True)

import cupy
from cupy import machine
from test_blocks import assert_solves, problem

from tridiag.backends import cupy_thomas
from tridiag.cuda import blocks, instances
from tridiag.problems.forms import Blocks

SEEDS = range(4)
SOURCE = "blocks.cu"
Given = tuple[np.ndarray, ...]


@pytest.fixture(autouse=True)
def order() -> Iterator[None]:
    room = blocks.ROOM
    yield
    machine.seed = 0
    planted.uproot()
    lend(room)


def lend(room: int) -> None:
    """So many bytes of scratch memory, at most, or those of one system."""
    blocks.ROOM = room
    blocks.program.cache_clear()


def drawn(batch: int, n: int, m: int, sides: int = 1, dtype: str = "float64") -> Given:
    """Matrices that need pivoting, and ``sides`` right sides of each in front."""
    A, B, C, _ = problem((batch, n), m, dtype, seed=n)
    return A, B, C, problem((sides, batch, n), m, dtype, seed=1)[3]


def turned(A: np.ndarray, B: np.ndarray, C: np.ndarray) -> Given:
    """The blocks of the transposed matrices."""
    below, above = np.roll(C, 1, -3), np.roll(A, -1, -3)
    return below.swapaxes(-1, -2), B.swapaxes(-1, -2), above.swapaxes(-1, -2)


def found(given: Given, seeds: Any = SEEDS, transpose: bool = False) -> np.ndarray:
    """The solutions, no bit of which an order of the lanes may change."""
    *matrix, d = map(cupy.asarray, given)
    batch, n, m = given[1].shape[:3]
    form, right = Blocks((batch, n, m, len(given[3])), transpose), cupy.moveaxis(d, 0, -1)
    results = []
    for machine.seed in seeds:
        x = cupy_thomas.solve_block(tuple(matrix), right, form)
        results.append(np.moveaxis(x.get(), -1, 0))
        assert_same_bits(results[-1], results[0])
    return results[0]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", instances.WIDTHS)
def test_all_sizes(m: int, dtype: str) -> None:
    """Groups of a warp and several warps; right sides that fill a group, one more, and more than one group has."""
    some = instances.WIDTHS[m][0] - 3 * m
    for batch, n, sides in ((1, 1, 1), (5, 2, some), (33, 3, 1), (2, 4, some + 1), (3, 2, 40)):
        given = drawn(batch, n, m, sides, dtype)
        assert_solves(found(given), *given)
        assert_solves(found(given, SEEDS[:1], True), *turned(*given[:3]), given[3])


@pytest.mark.smoke
def test_one_size() -> None:
    given = drawn(5, 3, 2, 3)
    assert_solves(found(given, seeds=(2,)), *given)


def test_groups_take_systems_in_turn() -> None:
    """Scratch memory for one warp's systems: all others wait for it, and find nothing of those before."""
    lend(1)
    for m in (1, 3, 6):
        given = drawn(9, 3, m, 4)
        x = found(given)
        assert_solves(x, *given)
        assert machine.launches[-1][1] == 1
        lend(2**30)
        assert_same_bits(found(given, seeds=(0,)), x)
        lend(1)


def test_no_more_scratch_memory_than_systems_at_work_need() -> None:
    for shape in ((10**6, 100, 2, 1), (10**5, 1000, 8, 1), (1, 10**6, 4, 1), (10, 10, 2, 10**5)):
        form = Blocks(shape)
        matrix = (*shape[:3], shape[2])
        strides = ((0,) * 4,) * 5
        program = blocks.program(form, (shape, shape, matrix, matrix, matrix), strides, np.dtype("float64"))
        one = int(np.prod(shape[1:3])) * 8 * 32
        assert program.scratch <= max(blocks.ROOM, one) + 4 * one
        assert len(program.steps) == 1


def test_blocks_and_right_sides_that_lie_anyhow() -> None:
    """Backwards, transposed in memory, shared by systems or rows, along more axes than a kernel walks through."""
    A, B, C, d = drawn(6, 4, 3, 2)
    laid = A[::-1], B.swapaxes(-1, -2), C[:, ::-1], d[..., ::-1]
    assert_solves(found(laid), *laid)
    shared = A[:1], B[:, :1], C[:1, :1], d[:, :, :1]
    form = Blocks((6, 4, 3, 2))
    x = cupy_thomas.solve_block(
        tuple(map(cupy.asarray, shared[:3])), cupy.moveaxis(cupy.asarray(shared[3]), 0, -1), form
    )
    assert_solves(np.moveaxis(x.get(), -1, 0), *shared)
    many = np.random.default_rng(0).uniform(-1, 1, (2, 3, 2, 2, 3, 2, 4, 2, 2))[::-1, :, ::-1, :, ::-1]
    right = many[..., 0][:, ::-1]
    one = many[:, :1, :, :1]
    y = cupy_thomas.solve_block(
        tuple(map(cupy.asarray, (many, one, many))), cupy.asarray(right[..., None]), Blocks((*right.shape, 1))
    )
    assert_solves(y.get()[..., 0], many, one, many, right)


def test_ends_are_not_read_and_what_is_singular_is_no_neighbours_concern() -> None:
    A, B, C, d = drawn(9, 3, 2)
    x = found((A, B, C, d), seeds=(0,))
    A[:, 0], C[:, -1] = np.nan, np.inf
    A[2, 1:], B[2], C[2, :-1] = 0, [[1, 2], [2, 4]], 0
    B[5, 1, 0, 1] = np.nan
    y = found((A, B, C, d))
    assert np.isnan(y[:, [2, 5]]).all()
    assert_same_bits(np.delete(y, [2, 5], 1), np.delete(x, [2, 5], 1))


# ------------------------------------------------------------------------------------------------- planted mistakes

# that lanes wait for what others write is not among them: the model's shuffles order memory, as those of CUDA need not
MISTAKES = {
    "a pivot that is not the largest": ("larger = found > largest;", "larger = found < largest;"),
    "a pivot of another column": ("from_lane(chosen, lanes.begin + j)", "from_lane(chosen, lanes.begin)"),
    "no exchange": ("rows[r] = here ? first : rows[r];", ""),
    "multipliers of another group": ("from_lane(multiplier, lanes.begin + r)", "from_lane(multiplier, r)"),
    "a row that is left": ("rows[2 * M - 1] = T(0);", ""),
    "columns that are not moved": ("matrix && !last ? lanes.own + M : lanes.own", "lanes.own"),
    "a block that is not cleared": ("rows[r] = last ? T(0) : moved;", "rows[r] = moved;"),
    "the block row before": ("load<T, M>(rows, column, i + 1);", "load<T, M>(rows, column, i);"),
    "the block above of the last row": ("kind == 2 ? n - 1 :", "kind == 2 ? n :"),
    "a transposed block of its own row": ("int(job.shift) * (kind - 1)", "0"),
    "right sides of another group": ("* (W - 3 * M) + lanes.place", "* W + lanes.place"),
    "the block row behind the next": ("- row[2 * M + c] * second[c]", ""),
    "what is singular": ("poison = largest == Real<T>(0) ?", "poison = false ?"),
    "the next group's system": ("turn += groups", "turn += groups + 1"),
}


def is_wrong() -> bool:
    lend(1)  # every warp has several systems
    for m, sides in ((2, 3), (4, 1), (8, 9)):
        A, B, C, d = drawn(9, 3, m, sides)
        transposed = turned(A, B, C)
        A[:, 0], C[:, -1] = np.nan, np.nan
        given, singular = (A, B, C, d), tuple(x.copy() for x in (A, B, C, d))
        singular[0][4], singular[2][4] = 0, 0
        singular[1][4, -1, -1] = singular[1][4, -1, 0]  # the last pivot of all
        for seed in SEEDS:
            try:
                assert_solves(found(given, (seed,)), *given)
                assert_solves(found(given, (seed,), True), *transposed, d)
                assert np.isnan(found(singular, (seed,))[:, 4]).all()
            except (cpu_build.LaunchError, AssertionError):
                return True
    return False


@pytest.mark.parametrize("name", ["nothing", *MISTAKES])
def test_a_mistake_shows(name: str) -> None:
    there_is_one = planted.plant_one(SOURCE, MISTAKES, name)
    assert is_wrong() == there_is_one
