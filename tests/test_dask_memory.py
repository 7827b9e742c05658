"""Systems of Dask arrays that are cut: what tasks keep until a system is known to be right, and what is made again."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from test_dask import backward_error

import tridiag

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
pytest.importorskip("numba")
EPS = np.finfo(float).eps
CUTS, ROWS, SYSTEMS = 8, 4096, 16
LENGTHS = [40, 600]  # rows of chunks that are joined, and of chunks that are solved alone


class Made:
    """Dask arrays whose blocks are made by tasks, which are counted."""

    def __init__(self) -> None:
        self.times: Counter[Any] = Counter()

    def array(self, x: Any, chunks: Any) -> Any:
        places = da.core.slices_from_chunks(da.core.normalize_chunks(chunks, x.shape))

        def block(block_info: Any = None) -> Any:
            place = tuple(slice(*pair) for pair in block_info[None]["array-location"])
            self.times[(id(x), places.index(place))] += 1
            return x[place].copy()

        return da.map_blocks(block, chunks=da.core.normalize_chunks(chunks, x.shape), dtype=x.dtype)

    @property
    def most(self) -> int:
        return max(self.times.values())


def system(shape: tuple[int, int]) -> list[Any]:
    rng = np.random.default_rng(0)
    a, c, d = (rng.uniform(-1, 1, shape) for _ in range(3))
    return [a, rng.uniform(3, 4, shape), c, d]


def computed(*lazy: Any) -> Any:
    return dask.compute(*lazy, scheduler="synchronous")[0]


def corner(x: Any) -> Any:
    return x[:1, :1].copy()


def peak(verb: Callable[..., Any], operands: Sequence[Any]) -> float:
    """What is allocated at once, in chunks, where of each chunk of a result one number is kept."""
    found = verb(*operands)
    if not isinstance(found, tuple):
        found = (found.map_blocks(corner, dtype=float, chunks=tuple((1,) * len(x) for x in found.chunks)),)
    dask.compute(*found, scheduler="synchronous")
    tracemalloc.start()
    dask.compute(*found, scheduler="synchronous")
    highest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return highest / (8 * SYSTEMS * ROWS)


def filled(value: float) -> Any:
    """An array of eight chunks along the axis of systems, and three beside it."""
    seeds = da.full((3, CUTS), value, chunks=1)
    chunks = ((SYSTEMS,) * 3, (ROWS,) * CUTS)
    return seeds.map_blocks(lambda x: np.full((SYSTEMS, ROWS), x[0, 0]), chunks=chunks, dtype=float)


def test_systems_that_decay_are_kept_once_solved_and_not_as_they_came() -> None:
    """Of five arrays one is kept, 8 chunks of it; what has begun besides is of one chunk."""
    assert peak(tridiag.solve, [filled(x) for x in (-1.0, 4.0, -1.0, 2.0)]) < CUTS + 12


@pytest.mark.parametrize(("own", "most"), [(False, 4.0), (True, 7.0)])
def test_systems_that_are_not_held_are_solved_twice(own: bool, most: float) -> None:
    """No chunk is held but for its ends: what a task has at once is what it makes, and its result."""
    b = filled(4.0) if own else np.full(CUTS * ROWS, 4.0)
    matrix = [filled(-1.0), b, filled(-1.0)] if own else [-1.0, b, -1.0]
    with dask.config.set({"tridiag.hold": "1 MiB"}):
        assert peak(tridiag.solve, [*matrix, filled(2.0)]) < most


@pytest.mark.parametrize(("hold", "times"), [(0, 2), ("1 GiB", 1), (None, 1)])
def test_what_may_be_held_is_told_by_the_configuration(hold: Any, times: int) -> None:
    arrays, made = system((6, 2400)), Made()
    with dask.config.set({"tridiag.hold": hold}):
        x = computed(tridiag.solve(*(made.array(v, (3, 600)) for v in arrays)))
    assert {*made.times.values()} == {times}
    assert (backward_error(*arrays, x) <= 8 * EPS).all()


def test_what_cannot_be_made_again_is_held() -> None:
    """In the place of an argument of its size that would have to be held."""
    arrays, made = system((6, 2400)), Made()
    lazy = [made.array(v, (3, 600)) for v in arrays]
    lazy[3] = lazy[3] - lazy[3].mean() + arrays[3].mean()
    with dask.config.set({"tridiag.hold": 0}):
        computed(tridiag.solve(*lazy))
    assert made.most == 1


def test_random_numbers_that_are_made_twice_are_told() -> None:
    rng, (a, b, c, _) = np.random.default_rng(0), system((6, 2400))
    d = da.map_blocks(lambda: rng.standard_normal((6, 600)), chunks=((6,), (600,) * 4), dtype=float)
    with dask.config.set({"tridiag.hold": 0}), pytest.raises(RuntimeError, match="persist"):
        computed(tridiag.solve(a[0], b[0], c[0], d))


def test_determinants_keep_no_rows() -> None:
    assert peak(tridiag.slogdet, [filled(x) for x in (-1.0, 4.0, -1.0)]) < 12


@pytest.mark.parametrize("length", LENGTHS)
def test_blocks_are_made_once(length: int) -> None:
    arrays, made = system((6, 4 * length)), Made()
    x = computed(tridiag.solve(*(made.array(v, (3, length)) for v in arrays)))
    assert made.most == 1
    assert (backward_error(*arrays, x) <= 8 * EPS).all()


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("periodic", [False, True])
def test_systems_whose_couplings_decay_slowly_are_kept(periodic: bool, length: int) -> None:
    """That they will be solved whole is seen before; their blocks are made once."""
    d, made = np.random.default_rng(0).standard_normal((6, 4 * length)), Made()
    b = np.full((6, 4 * length), 2 + 1e-6)
    x = computed(
        tridiag.solve(
            -1.0, *(made.array(v, (3, length)) for v in (b,)), -1.0, made.array(d, (3, length)), periodic=periodic
        )
    )
    assert made.most == 1
    assert (backward_error(-1.0, b, -1.0, d, x, periodic) <= 8 * EPS).all()


def test_blocks_of_systems_that_fail_are_made_again() -> None:
    """One of many, whose sampled neighbours decay: rows of all its chunks are made again, and others are kept."""
    arrays, made = system((70, 2400)), Made()
    rng = np.random.default_rng(1)
    for k in range(3):
        arrays[k][1] = rng.uniform(-1, 1, 2400)
    lazy = [
        *(made.array(v, (35, 600)) for v in arrays[:3]),
        da.from_array(arrays[3], chunks=(35, 600)).persist(scheduler="sync"),
    ]
    x = computed(tridiag.solve(*lazy))
    assert made.most == 2
    assert (backward_error(*arrays, x) <= 8 * EPS).all()


def test_wider_surroundings_of_cuts_are_made_again() -> None:
    """Most systems need more rows around a cut than were kept, which the sampled ones do not tell."""
    arrays, made = system((70, 2400)), Made()
    arrays[1][:, 550:650] = 2.1
    arrays[0][:, 550:650] = arrays[2][:, 550:650] = -1
    arrays[1][::8] = 9
    x = computed(tridiag.solve(*(made.array(v, (70, 600)) for v in arrays)))
    assert (backward_error(*arrays, x) <= 8 * EPS).all()


def test_systems_found_inaccurate_late_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short chunks are kept only where some system could not be joined."""
    from tridiag.chunked.parts import Chunk

    arrays, made = system((6, 160)), Made()
    monkeypatch.setattr(Chunk, "late", lambda self, solved, joined: np.arange(len(joined.unsolved)) == 1)
    x = computed(tridiag.solve(*(made.array(v, (3, 40)) for v in arrays)))
    assert made.most == 2
    np.testing.assert_allclose(x, tridiag.solve(*arrays), rtol=1e-12)


@pytest.mark.parametrize("length", LENGTHS)
def test_tasks_that_give_other_numbers_when_they_run_again_are_told(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system that fails is not solved with numbers that its neighbours have not seen."""
    from tridiag.chunked.parts import Chunk

    rng = np.random.default_rng(0)
    a, b, c, _ = system((70, 4 * length))
    if length == LENGTHS[1]:  # a system whose neighbours are sampled
        b[1] = rng.uniform(-1, 1, 4 * length)
    else:
        monkeypatch.setattr(Chunk, "late", lambda self, solved, joined: np.arange(len(joined.unsolved)) == 1)
    d = da.map_blocks(lambda: rng.standard_normal((70, length)), chunks=((70,), (length,) * 4), dtype=float)
    with pytest.raises(RuntimeError, match="persist"):
        computed(tridiag.solve(a, b, c, d))
    kept = d.persist(scheduler="synchronous")
    assert (backward_error(a, b, c, computed(kept), computed(tridiag.solve(a, b, c, kept))) <= 8 * EPS).all()


def test_blocks_that_many_tasks_make_are_kept() -> None:
    """An array that depends on all of another one, as on its mean, is not made again for a system that fails."""
    arrays, made = system((6, 2400)), Made()
    arrays[1][1, 1200], arrays[0][1, 1200], arrays[2][1, 1200] = 1e-3, 1, 1
    lazy = [made.array(v, (3, 600)) for v in arrays]
    lazy[3] = lazy[3] - lazy[3].mean() + arrays[3].mean()
    computed(tridiag.solve(*lazy))
    of_d = id(arrays[3])
    assert {count for (array, _), count in made.times.items() if array == of_d} == {1}


def test_determinants_in_doubt_are_made_again() -> None:
    n, made = 1200, Made()
    b = np.full((2, n), 4.0)
    b[1] = np.where(np.isin(np.arange(n), (0, n - 1)), 1.0, 2.0)  # with a = c = -1 singular
    sign, logarithm = tridiag.slogdet(-1.0, made.array(b, (2, 300)), -1.0)
    found = dask.compute(sign, logarithm, scheduler="synchronous")
    assert made.most >= 2
    for x, wanted in zip(found, tridiag.slogdet(-1.0, b, -1.0), strict=True):
        np.testing.assert_allclose(x, wanted, rtol=1e-10)
