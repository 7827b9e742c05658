"""That the job of a kernel call names every system once, and where it lies: pure functions of shapes and strides."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tridiag.kernels.jobs import caches, logsumexp, recurrences
from tridiag.kernels.jobs import systems as layout
from tridiag.kernels.jobs.batches import contiguous, merge
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.recurrences import LARGE, Recurrences
from tridiag.problems.forms import Form, Recurrence, align, broadcast, lift, normalise_axis


def plan(shape, axis, matrix_shape=None, order="C", itemsize=8, **options):
    """The job for arrays of that shape, and the arrays."""
    flags = options.pop("flags", 0)
    form = Form(shape, matrix_shape or shape, axis % len(shape), **options)
    matrix = np.empty(matrix_shape or shape, f"f{itemsize}", order)
    whole = np.empty(shape, f"f{itemsize}", order)
    arrays = [matrix, matrix, matrix, None, whole, whole]
    shapes, strides = (tuple(x if x is None else getattr(x, name) for x in arrays) for name in ("shape", "strides"))
    made = layout.make_job(form, shapes, strides, (whole.dtype, whole.dtype), flags, layout.granted(form))
    return made, form, arrays


def offsets(words: np.ndarray, operand: int) -> list[int]:
    """The byte offset of every system of an operand, by the rule that the kernel follows: last axis fastest."""
    count = int(J.Systems.view(words).matrix_axes + J.Systems.view(words).right_axes)
    axes = [words[J.AXES + J.AXIS_WORDS * k :][: J.AXIS_WORDS].tolist() for k in range(count)]
    places = itertools.product(*(range(length) for length, *_ in axes))
    return [sum(i * steps[operand] for i, (_, *steps) in zip(place, axes, strict=True)) for place in places]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize(("shape", "axis"), [((6, 5), -1), ((5, 6), 0), ((2, 5, 3), 1), ((2, 3, 4, 5), -1), ((5,), 0)])
def test_every_system_is_named_once(shape: tuple[int, ...], axis: int, order: str) -> None:
    made, form, (matrix, *_, x) = plan(shape, axis, order=order)
    for operand, array in ((0, matrix), (5, x)):
        batch = [k for k in range(len(shape)) if k != form.axis]
        wanted = {
            sum(i * array.strides[k] for i, k in zip(place, batch, strict=True)) for place in np.ndindex(form.batch)
        }
        found = offsets(made.words, operand)
        assert sorted(found) == sorted(wanted) and len(found) == len(wanted)
    assert J.Systems.view(made.words).strides[0] == matrix.strides[form.axis]
    assert J.Systems.view(made.words).matrices == np.prod(form.batch) and J.Systems.view(made.words).right_sides == 1


@pytest.mark.parametrize("order", ["C", "F"])
def test_neighbours_in_memory_are_neighbours_in_a_tile(order: str) -> None:
    first, second, *_ = offsets(plan((2, 5, 3), 1, order=order)[0].words, 0)
    assert second - first == 8


@pytest.mark.parametrize(
    ("shape", "axis", "merged"),
    [((4, 3, 5), -1, 1), ((5, 4, 3), 0, 1), ((4, 5, 3), 1, 2), ((4, 1, 3, 5), -1, 1), ((5,), 0, 0)],
)
def test_axes_that_all_operands_walk_alike_are_merged(shape: tuple[int, ...], axis: int, merged: int) -> None:
    assert J.Systems.view(plan(shape, axis)[0].words).matrix_axes == merged


def test_merge() -> None:
    assert merge([(2, (12, 0)), (3, (4, 0))]) == [(6, (4, 0))]
    assert merge([(2, (12, 1)), (3, (4, 0))]) == [(2, (12, 1)), (3, (4, 0))]
    assert merge([]) == []


def test_a_shared_matrix_has_right_sides() -> None:
    made, *_ = plan((3, 6, 5), -1, matrix_shape=(1, 6, 5))
    words = made.words
    assert (J.Systems.view(words).matrices, J.Systems.view(words).right_sides) == (6, 3)
    assert offsets(words, 0) == [40 * k for k in range(6) for _ in range(3)]
    assert offsets(words, 5) == [240 * side + 40 * k for k in range(6) for side in range(3)]
    shared = plan((30, 5), -1, matrix_shape=(1, 5))[0].words
    assert J.Systems.view(shared).shared == 1 and J.Systems.view(shared).items == J.Systems.view(shared).chunks


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_order_of_the_kernel_is_undone(order: str) -> None:
    """One value for each matrix comes back where its matrix is."""
    made, form, (matrix, *_) = plan((2, 5, 3, 4), 1, order=order)
    told = np.array(offsets(made.words, 0))
    restored = layout.restored(made, told, form)
    assert restored.shape == form.matrix_batch
    for place in np.ndindex(form.matrix_batch):
        assert restored[place] == sum(i * s for i, s in zip(place, np.delete(matrix.strides, 1), strict=True))


@pytest.mark.parametrize("itemsize", [4, 8])
def test_systems_side_by_side_make_wide_tiles_that_fit_in_cache(itemsize: int) -> None:
    group = layout.LINE // itemsize
    sizes = 2, 100, 1000, 10_000, 100_000
    widths = [int(J.Systems.view(plan((n, 4096), 0, itemsize=itemsize)[0].words).lanes) for n in sizes]
    assert widths == sorted(widths, reverse=True) and not any(w % group for w in widths)
    assert 0.75 * layout.MOST_GROUPS < widths[0] / group <= layout.MOST_GROUPS and widths[-1] == group
    assert all(2 * itemsize * n * w <= layout.SCRATCH for n, w in zip(sizes, widths, strict=True) if w > group)
    assert J.Systems.view(plan((4096, 100), -1, itemsize=itemsize)[0].words).lanes == group


@pytest.mark.parametrize("beside", [16, 17, 300, 2000, 100_000])
def test_stretches_cover_systems_that_lie_side_by_side(beside: int) -> None:
    """Wherever in a cache line the first of them is; and tiles never go on in the next row of systems."""
    job = J.Systems.view(plan((3, 50, beside), 1)[0].words)
    assert job.interleaved == beside and job.items * job.tiles >= 3 * job.stretches
    assert beside + 7 <= job.stretches * job.lanes < beside + 8 + job.stretches * 8


def test_lines_are_known_to_begin_alike_or_not() -> None:
    def lined(shape, axis):
        return bool(J.Systems.view(plan(shape, axis)[0].words).flags & J.LINED)

    assert lined((1500, 800), 0) and lined((3, 500, 800), 1)
    assert not lined((1500, 801), 0)
    assert not lined((100, 800), 0)  # nor are those of solutions in the caches looked at


def test_items_cover_all_tiles_and_are_small() -> None:
    for systems in (1, 7, 8, 1000, 100_001):
        job = J.Systems.view(plan((systems, 16), -1)[0].words)
        tiles = -(-systems // int(job.lanes))
        assert (job.items - 1) * job.tiles < tiles <= job.items * job.tiles
        assert job.tiles == 1 or job.tiles * job.lanes * 16 <= layout.ITEM


@pytest.mark.parametrize("helpers", [0, 1, 7])
@pytest.mark.parametrize(("tiles", "sides"), [(1, 1000), (1, 3), (5, 10), (1000, 10), (1, 0)])
@pytest.mark.parametrize("lanes", [1, 8])
def test_chunks_feed_every_thread_and_are_never_empty(tiles: int, sides: int, helpers: int, lanes: int) -> None:
    chunks, length = layout.chunks_of(sides, tiles, helpers, lanes)
    assert 1 <= chunks <= max(1, sides)
    assert (chunks - 1) * length < max(1, sides) <= chunks * length
    if helpers == 0:
        assert chunks == 1
    elif tiles * sides >= lanes * (helpers + 1):
        assert tiles * chunks >= helpers + 1


@pytest.mark.parametrize("helpers", [1, 15])
@pytest.mark.parametrize("sides", [1, 2, 7, 8, 9, 64])
def test_few_right_sides_in_lanes_are_not_spread_over_vectors(sides: int, helpers: int) -> None:
    """A vector takes as long with one of them as with all, and reads all factors."""
    chunks, length = layout.chunks_of(sides, 1, helpers, 8)
    assert chunks == -(-sides // 8) and length == 8


def test_chunks_of_right_sides_in_lanes_are_whole_vectors() -> None:
    assert layout.chunks_of(1000, 1, 1, 8) == (8, 128)
    assert layout.chunks_of(100, 1, 1, 8) == (7, 16)
    assert layout.chunks_of(20, 1, 1, 8) == (3, 8)


def test_small_jobs_start_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "threads", lambda: 8)
    assert plan((10, 100), -1)[0].helpers == 0
    assert plan((10_000, 100), -1)[0].helpers == 7
    assert plan((1, 1_000_000), -1)[0].helpers == 0  # one system is one item


def test_flags_and_promises() -> None:
    words = plan((6, 5), -1, periodic=True, transpose=True, pivoting=False)[0].words
    assert J.Systems.view(words).flags == J.PERIODIC | J.TRANSPOSE and J.Systems.view(words).promise == J.PLAIN
    assert J.Systems.view(plan((6, 5), -1, pivoting=True)[0].words).promise == J.PIVOTED
    assert J.Systems.view(plan((6, 5), -1)[0].words).promise == J.AUTO


def test_a_job_is_made_once_and_cannot_be_changed() -> None:
    words = plan((6, 5), -1)[0].words
    assert plan((6, 5), -1)[0].words is words
    with pytest.raises(ValueError, match="read-only"):
        words[0] = 1


# ---------------------------------------------------------------------------------------------------------- shapes


def test_lift() -> None:
    assert lift((5,), 3, 1) == (1, 5, 1)
    assert lift((5,), 3, 2) == (1, 1, 5)
    assert lift((4, 5), 3, 0) == (1, 4, 5)
    assert lift((), 2, 0) == (1, 1)


def test_align_and_broadcast() -> None:
    given = {"a": (5,), "b": (3, 5, 2), "c": (), "d": (5, 1)}
    lifted, axis = align(given, -2)
    assert axis == 1 and lifted == {"a": (1, 5, 1), "b": (3, 5, 2), "c": (1, 1, 1), "d": (1, 5, 1)}
    assert broadcast(lifted, given) == (3, 5, 2)
    assert broadcast({"a": (0, 1), "d": (1, 4)}, {}) == (0, 4)


def test_normalise_axis() -> None:
    assert [normalise_axis(k, 3) for k in (-3, -1, 0, 2)] == [0, 2, 0, 2]


def test_form_batches() -> None:
    form = Form((2, 5, 3), (1, 5, 3), 1)
    assert (form.n, form.batch, form.matrix_batch) == (5, (2, 3), (1, 3))


@pytest.mark.parametrize("weighted", [False, True])
def test_few_sequences_are_cut_where_that_is_quicker(weighted: bool) -> None:
    """By one thread where they are too short for several; a sequence of 1500 steps took longer than one of 2000."""

    def chunks(n: int, count: int, workers: int = 2) -> int:
        return logsumexp.chunks_of(n, count, 8, workers, weighted)

    assert [chunks(n, 1) for n in (50, 500, 1500, 5000)] == [1, 8, 8, 16]
    assert chunks(1500, 2) == 4 and chunks(5000, 2) == 8 and chunks(300, 1, workers=64) == 8
    assert chunks(400, 4, 1) == 1 and chunks(1500, 4) == 4  # two passes of two chunks take as long as one
    assert chunks(1500, 16) == chunks(0, 0) == 1


@pytest.mark.parametrize("shape", [(1, 900_000), (4096, 200)])
def test_devices_that_compute_at_once_share_the_caches(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """What one of them writes may stay there; what eight write is more than they hold, and goes past them."""
    monkeypatch.setattr(recurrences, "room_for_results", lambda: caches.LEAST)
    form, strides = Recurrence(shape, 1), (contiguous(shape, 8),) * 3
    for devices in (1, 8):
        job = recurrences.make_job(form, 1, (shape,) * 3, strides, np.dtype(float), 1, devices)
        words: Any = Recurrences.view(job.words.copy())
        assert bool(words.flags & LARGE) == (devices == 8)


def test_caches(tmp_path: Path) -> None:
    """A result may take a quarter of the largest; where the system tells none, or nonsense, that of 32 MiB."""
    assert caches.sizes(tmp_path) == {} and caches.room_for_results.__wrapped__(tmp_path) == 8 * 2**20
    for k, (level, size) in enumerate(((1, "48K"), (2, "2048K"), (3, "307200K"), (4, "many"), (5, ""))):
        folder = tmp_path / f"sys/devices/system/cpu/cpu0/cache/index{k}"
        folder.mkdir(parents=True)
        for name, told in {"level": level, "type": "Unified", "size": size}.items():
            (folder / name).write_text(f"{told}\n")
    (folder / "size").unlink()
    told = {"L1 unified": "48K", "L2 unified": "2048K", "L3 unified": "307200K", "L4 unified": "many"}
    assert caches.sizes(tmp_path) == told and caches.room_for_results.__wrapped__(tmp_path) == 75 * 2**20
