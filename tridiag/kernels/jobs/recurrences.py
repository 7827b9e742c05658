"""The job of a recurrence from shapes and strides alone: how its axes are walked, and by which loops; pure."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tridiag.kernels.jobs.batches import LINE, Axis, contiguous, merge
from tridiag.kernels.jobs.caches import room_for_results
from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.systems import CACHES, ITEM, ITEMS_EACH, WORTH_A_THREAD, lanes_of
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.problems.forms import Blocks, Recurrence, Shape

HEIGHT = 8  # steps that are transposed at a time (`tridiag.kernels.recurrence.loops`)
BLOCK = 128 * 1024  # bytes of an operand in a block of a long sequence: two blocks of two operands fit in a cache
FEWEST_STEPS = {8: 48, 4: 24}  # of sequences in lanes, by the bytes of a number; plain loops are quicker with fewer
EVEN_STEPS = 256  # of more, memory is asked for ahead of use, from the next sequences too
FEWEST_BLOCKS = 2  # of such a sequence, where there are enough of them to fill the lanes
FEW_VECTORS = 64  # of values: with no more, to find where each sequence lies takes longer than to join steps
MOST_IN_VECTORS, FEWEST_IN_VECTORS = 4, 2  # the highest order, and the fewest steps, of `constant`
MANY_IN_VECTORS = 16  # sequences: with fewer, to find the factors of all steps takes longer than it saves
FACTORS = 16 * 1024  # bytes of these factors at most, in the first level of the caches
SHORTEST_CHUNK = 4  # times the lanes: steps of a lane, where there are not
SECOND_LEVEL = 1024 * 1024  # bytes of the operands that a core's own cache holds at least
# bytes of the pivot rows of block systems in lanes, and how many times longer these take than pivot rows in cache
OUT_OF_CACHE = ((8 * 1024 * 1024, 1), (20 * 1024 * 1024, 2), (math.inf, 3))
WORTH_STARTING = 120_000  # steps, as `tridiag.kernels.jobs.systems` counts unknowns
MOST_KEPT = 256 * 1024 * 1024  # bytes of the pivot rows of a system that is not eliminated twice
SHARED = 4096  # bytes of a row for each thread, of those that share it, in results that caches hold
STRETCH, LONG_STRETCH = 4096, 16_384  # bytes of a row of sequences side by side: it is read again in the next step
STREAMS, IN_REGISTERS = 4, 256  # so few rows are walked as many bytes at a time, see `recurrence.interleaved.NARROW`


class Axes(NamedTuple):
    """The stride of every operand along the axis of the recurrence, in the order of the steps; the batch axes."""

    strides: tuple[int, ...]
    offsets: tuple[int, ...]  # of the first step of the first sequence
    batch: list[Axis]


def axes_of(form: Recurrence, shapes: Any, strides: Any) -> Axes:
    """From operands that are lifted to one rank; stride 0 where one is constant.

    Sequences are counted in the order in which results lie in memory.
    """
    steps = [
        tuple(0 if n == 1 else t for n, t in zip(*pair, strict=True)) for pair in zip(shapes, strides, strict=True)
    ]
    along = tuple(step[form.axis] for step in steps)
    sign, last = (-1, form.n - 1) if form.backward else (1, 0)
    batch = [
        (length, tuple(step[k] for step in steps))
        for k, length in enumerate(form.shape)
        if k != form.axis and length > 1
    ]
    turned = [(length, step) for length, step in batch if step[C.Y] < 0]
    batch = [(length, tuple(-t for t in step) if step[C.Y] < 0 else step) for length, step in batch]
    batch.sort(key=lambda axis: -axis[1][C.Y])
    first = tuple(last * step + sum((length - 1) * t[k] for length, t in turned) for k, step in enumerate(along))
    return Axes(tuple(sign * step for step in along), first, merge(batch))


def chunk_of(dtype: np.dtype[Any]) -> int:
    """The steps of a lane in a block: whole cache lines, no power of two, or all lanes share a set of the caches."""
    return (BLOCK // lanes_of(dtype) + LINE) // dtype.itemsize


def kind_of(axes: Axes, form: Recurrence, order: int, count: int, dtype: np.dtype[Any], workers: int) -> int:
    """Which loops can run so."""
    size, lanes = dtype.itemsize, lanes_of(dtype)
    length, steps = axes.batch[-1] if axes.batch else (0, ())
    if length > 1 and steps[C.Y] == steps[C.X] == size:
        for step, kind in ((size, C.INTERLEAVED), (0, C.SPREAD)):
            if all(steps[C.A + k] == step for k in range(order)):
                return kind
    read, step = axes.strides[: 2 + order], axes.strides[C.Y]
    if dtype.kind == "f" and abs(step) == size and all(s in (step, 0) for s in read):
        fewest = FEWEST_BLOCKS * chunk_of(dtype) if count >= lanes else SHORTEST_CHUNK * lanes
        if order == 1 and count < 2 * lanes * workers and form.n >= fewest * lanes:
            return C.LONG
        if count >= lanes and form.n >= (FEWEST_STEPS[size] if order == 1 else HEIGHT):
            return C.ROWS
    return C.SCALAR


def make_job(form: Recurrence, order: int, shapes: Any, strides: Any, dtype: np.dtype[Any], workers: int) -> Job:
    """From the shapes and the strides in bytes of the result, x, the coefficients, and the values before, if given."""
    axes, count, lanes, n = axes_of(form, shapes, strides), math.prod(form.batch), lanes_of(dtype), form.n
    kind, started = kind_of(axes, form, order, count, dtype, workers), len(shapes) == C.operands(order)
    constant = in_vectors(axes, form, order, dtype, started) and quickest_in_vectors(kind, n * count, count, workers)
    if constant:
        kind = C.SCALAR
    elif end_to_end(axes, form, order, dtype, started) and quickest_in_vectors(kind, n * count, count, workers):
        kind = kind_end_to_end(kind, n, count, dtype)
    even = kind in (C.ROWS, C.SCALAR) and evenly_spaced(axes, form, order, count, dtype, started)
    if even and kind == C.ROWS and n * count * dtype.itemsize <= room_for_results():
        kind = C.SCALAR
    length, width, stretches, blocks, chunk, run = 1, 1, 1, 0, 0, 1
    share = ITEM if workers == 1 else max(1, min(ITEM, n * count // (ITEMS_EACH * workers)))  # values
    if kind in (C.INTERLEAVED, C.SPREAD):
        length = axes.batch[-1][0]
        stretches = stretches_of(length, n, n * count, dtype, workers)
        width = -(-length // (stretches * lanes)) * lanes
        stretches = -(-length // width)
        run = max(1, share // (n * min(width, length)))
        items = -(-count // length * stretches // run)
    elif kind == C.LONG:
        chunk = chunk_of(dtype)
        blocks = -(-(n - 1) // (lanes * chunk))  # behind the first step
        items = count * blocks
    else:
        together = lanes if kind == C.ROWS or even or constant else 1
        groups = max(1, share // (n * together))
        items = -(-count // (together * groups))
        run = groups if kind == C.ROWS else groups * together
    flags = flags_of(axes, form.transpose, started, n * count * dtype.itemsize, kind)
    if constant and not started and reads_as_one(axes, n, count, order, dtype):
        flags |= C.END_TO_END
    words = filled(
        axes,
        C.operands(order),
        len(shapes),
        small=n * count * max(1, order) < WORTH_STARTING,
        items=items,
        steps=n,
        sequences=count,
        kind=kind,
        run=run,
        flags=flags,
        length=length,
        stretch=width,
        stretches=stretches,
        blocks=blocks,
        chunk=chunk,
    )
    helpers = workers - 1 if n * count >= WORTH_A_THREAD else 0
    kernel = "constant" if constant else "recurrence", dtype.name, order
    return Job(kernel, words, min(helpers, items - 1), n * count)


def in_vectors(axes: Axes, form: Recurrence, order: int, dtype: np.dtype[Any], started: bool) -> bool:
    """Whether `tridiag.kernels.recurrence.constant` can compute it: one coefficient for all steps of all sequences."""
    step = axes.strides[C.Y]
    if dtype.kind != "f" or order > MOST_IN_VECTORS or form.n < FEWEST_IN_VECTORS or (form.transpose and started):
        return False
    if abs(step) != dtype.itemsize or axes.strides[C.X] != step:
        return False
    own = slice(C.A, C.A + order)
    return not any(any(steps[own]) for steps in (axes.strides, *(steps for _, steps in axes.batch)))


def reads_as_one(axes: Axes, n: int, count: int, order: int, dtype: np.dtype[Any]) -> bool:
    """Whether `tridiag.kernels.recurrence.constant` reads all sequences as one."""
    if len(axes.batch) != 1 or count < MANY_IN_VECTORS or n * C.size_of_factors(lanes_of(dtype), order) > FACTORS:
        return False
    return {axes.batch[0][1][k] for k in (C.Y, C.X)} == {n * dtype.itemsize}


def end_to_end(axes: Axes, form: Recurrence, order: int, dtype: np.dtype[Any], started: bool) -> bool:
    """Whether `tridiag.kernels.recurrence.streams` can compute it: numbers of their own, without any between them."""
    if order > 1 or dtype.kind != "f" or started or len(axes.batch) > 1 or form.n < FEWEST_IN_VECTORS:
        return False
    given = slice(C.Y, C.A + 1)
    along = {abs(step) for step in axes.strides[given]} | {axes.strides[C.Y] * step for step in axes.strides[given]}
    across = {step for _, steps in axes.batch for step in steps[given]}
    return along == {dtype.itemsize, dtype.itemsize**2} and across <= {form.n * dtype.itemsize}


def evenly_spaced(axes: Axes, form: Recurrence, order: int, count: int, dtype: np.dtype[Any], started: bool) -> bool:
    """Whether `tridiag.kernels.recurrence.even_rows` computes it, with no tables of where each sequence lies."""
    size, fits = dtype.itemsize, HEIGHT <= form.n < EVEN_STEPS and count >= lanes_of(dtype)
    if not fits or order > 1 or dtype.kind != "f" or started or form.transpose or len(axes.batch) != 1:
        return False
    given, (_, steps) = slice(C.Y, C.A + 1), axes.batch[0]
    return set(axes.strides[given]) == {size} and len(set(steps[given])) == 1


def quickest_in_vectors(kind: int, values: int, count: int, workers: int) -> bool:
    """Whether no other loops are quicker, such as those whose threads share a sequence."""
    return kind in (C.ROWS, C.SCALAR) or (kind == C.LONG and (count >= workers or values < WORTH_A_THREAD))


def stretches_of(length: int, n: int, values: int, dtype: np.dtype[Any], workers: int) -> int:
    """Into how many parts a row is cut: such as stay in a cache, and one for each thread where rows are not short.

    Threads in one short row write lines beside each other's, and ask ahead for what others write. Beyond the caches few
    rows are streams, walked a few vectors at a time, whose values stay in registers; of more, longer parts are read.
    """
    size, large = dtype.itemsize, values * dtype.itemsize > CACHES
    sharing = workers if large else max(1, min(workers, length * size // SHARED))
    stretch = STRETCH if not large else IN_REGISTERS if n <= STREAMS else LONG_STRETCH
    return -(-length // max(lanes_of(dtype), min(stretch // size, -(-length // sharing))))


def kind_end_to_end(kind: int, n: int, count: int, dtype: np.dtype[Any]) -> int:
    """Sequences that would leave lanes empty, or be found no sooner than computed, are one stream of steps."""
    lanes, values = lanes_of(dtype), n * count
    past_caches = kind in (C.ROWS, C.LONG) and values * dtype.itemsize > room_for_results()
    if past_caches or (n <= C.MOST and count >= C.MANY):
        return kind
    empty_lanes = count < lanes or 2 * (-count % lanes) > count
    return C.STREAM if kind == C.LONG or empty_lanes or values <= FEW_VECTORS * lanes else kind


def joined_elsewhere(form: Recurrence, order: int, shapes: Any, strides: Any, dtype: np.dtype[Any]) -> bool:
    """Whether steps are joined in another way if the result is contiguous, which this one is not.

    The bits of a result do not depend on where it lies.
    """
    side_by_side = contiguous(form.shape, dtype.itemsize)
    if all(n == 1 or s == t for n, s, t in zip(form.shape, strides[C.Y], side_by_side, strict=True)):
        return False
    here, there = (make_job(form, order, shapes, (own, *strides[1:]), dtype, 1) for own in (strides[C.Y], side_by_side))
    return joins(here) != joins(there)


def joins(job: Job) -> tuple[Any, int, int]:
    """The kernel and those of its loops that do not take one step after another."""
    words = C.Recurrences.view(job.words)
    kind, flags = int(words.kind), int(words.flags)
    return job.kernel, kind if kind in (C.LONG, C.STREAM) else C.SCALAR, flags & C.END_TO_END


def flags_of(axes: Axes, transposed: bool, started: bool, size: int, kind: int) -> int:
    """``size``: the bytes of the result; that of arrays with negative strides goes the other way in memory."""
    flags = C.TRANSPOSED * transposed | C.STARTED * started | C.BACKWARD * (axes.strides[C.Y] < 0)
    large = size > (room_for_results() if kind == C.ROWS else CACHES)
    return flags | C.LARGE * large | C.FAR * (3 * size > SECOND_LEVEL)


def filled(axes: Axes, operands: int, given: int, **values: Any) -> Any:
    """The words of a job, with where its operands lie behind them; the last operands may not be ``given``."""
    missing = [0] * (operands - given)
    table = [*axes.strides, *missing, *axes.offsets, *missing]
    for length, steps in axes.batch:
        table += [length, *steps, *missing]
    words = C.Recurrences.filled(len(table), axes=len(axes.batch), **values)
    words[C.TABLE :] = table
    words.flags.writeable = False
    return words


def make_matrix_job(form: Recurrence, shapes: Any, strides: Any, dtype: np.dtype[Any], workers: int) -> Job:
    """The same for a recurrence of matrices; numbers of a matrix, and of a vector, lie side by side."""
    rows = form._replace(shape=form.shape[:-1])
    flags = C.TRANSPOSED * form.transpose | C.STARTED * (len(shapes) == C.operands(1))
    kernel = "matrices", dtype.name, form.shape[-1]
    grouped = in_groups(rows, form.shape[-1], dtype, workers)
    count, kind = math.prod(rows.batch), C.ROWS
    if one_after_another(form.shape[-1], count, dtype):
        kind, grouped = C.SCALAR, in_runs(rows, form.shape[-1], workers)
    words = filled(leading_axes(rows, shapes, strides), C.operands(1), len(shapes), flags=flags, kind=kind, **grouped)
    return Job(kernel, words, min(workers, grouped["items"]) - 1, math.prod(form.shape))


def make_block_job(form: Blocks, shapes: Any, strides: Any, dtype: np.dtype[Any], workers: int) -> Job:
    """The same for block tridiagonal systems, from the solution, right sides, A, B and C."""
    rows, given, count = Recurrence(form.shape[:-2], form.axis), len(shapes), math.prod(form.batch)
    grouped = in_groups(rows, form.size * (form.size + form.sides), dtype, workers)
    family, flags = "blocks", C.TRANSPOSED * form.transpose
    if may_be_alone(form, count, dtype, workers):
        family, grouped = "few_blocks", {"items": count, "steps": rows.n, "sequences": count}
    axes = leading_axes(rows, shapes, strides)
    words = filled(axes, given, given, flags=flags, sides=form.sides, **grouped)
    unknowns = math.prod(form.shape) * form.size
    return Job((family, dtype.name, form.size), words, min(workers, grouped["items"]) - 1, unknowns)


def may_be_alone(form: Blocks, count: int, dtype: np.dtype[Any], workers: int) -> bool:
    """Whether so few are solved one by one, where all pivot rows are kept: `tridiag.kernels.blocks.one_system`.

    Against one in each lane, a system of its own is as much faster as its blocks are larger, and more where the pivot
    rows of all lanes leave the caches: `OUT_OF_CACHE`.
    """
    lanes, rows = lanes_of(dtype), form.n * form.size * LINE * (2 if dtype.kind == "c" else 1)
    if form.sides != 1 or form.size > C.WRITTEN_OUT or rows * -(-(3 * form.size + 1) // lanes) > MOST_KEPT:
        return False
    kept = rows * (3 * form.size + 1)
    faster = (form.size + 1) * lanes // 8 * next(times for most, times in OUT_OF_CACHE if kept <= most)
    return -(-count // workers) < faster * -(-count // (lanes * workers))


def leading_axes(rows: Recurrence, shapes: Any, strides: Any) -> Axes:
    """Without those of a vector or a matrix in each step."""
    heads = ([tuple(s[: len(rows.shape)]) for s in some] for some in (shapes, strides))
    return axes_of(rows, *heads)


def one_after_another(m: int, count: int, dtype: np.dtype[Any]) -> bool:
    """Whether no sequence of vectors of m numbers has a lane of its own: always, or as few would leave lanes empty."""
    return C.narrow(m, dtype.itemsize) or (4 * count <= 3 * lanes_of(dtype) and m <= C.WRITTEN_OUT)


def in_runs(rows: Recurrence, size: int, workers: int) -> dict[str, int]:
    """The items of sequences that are computed one after another, some of them abreast."""
    count = math.prod(rows.batch)
    share = min(ITEM, rows.n * count * size // (ITEMS_EACH * workers)) if workers > 1 else ITEM
    run = -(-max(1, share // (rows.n * size)) // C.ABREAST) * C.ABREAST
    return {"items": -(-count // run), "steps": rows.n, "sequences": count, "run": run}


def in_groups(rows: Recurrence, size: int, dtype: np.dtype[Any], workers: int) -> dict[str, int]:
    """The items of systems that are computed in groups of lanes, with vectors of so many numbers in each row."""
    lanes, count = lanes_of(dtype), math.prod(rows.batch)
    share = min(ITEM, rows.n * count * size // (ITEMS_EACH * workers))
    run = max(1, share // (rows.n * size * lanes))
    groups = -(-count // lanes)
    return {"items": -(-groups // run), "steps": rows.n, "sequences": count, "run": run}


def packed(x: Any, axes: int, empty: bool = False) -> Any:
    """An array whose last axes lie side by side: this one, or a copy, or an ``empty`` one."""
    if is_packed(x.shape, x.strides, axes, x.itemsize):
        return x
    return np.empty(x.shape, x.dtype) if empty else np.ascontiguousarray(x)


def is_packed(shape: Shape, strides: Shape, axes: int, itemsize: int) -> bool:
    """Whether the last axes of an array lie side by side."""
    lengths, steps = shape[-axes:], contiguous(shape[-axes:], itemsize)
    return all(n == 1 or s == t for n, s, t in zip(lengths, strides[-axes:], steps, strict=True))
