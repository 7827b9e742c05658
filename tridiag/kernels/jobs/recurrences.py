"""The job of a recurrence of numbers from shapes and strides alone: by which loops it is computed; pure."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tridiag.kernels.jobs.batches import LINE, contiguous
from tridiag.kernels.jobs.caches import room_for_results
from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.sequences import Axes, axes_of, filled
from tridiag.kernels.jobs.systems import CACHES, ITEM, ITEMS_EACH, WORTH_A_THREAD, lanes_of
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.problems.forms import Recurrence

HEIGHT = 8  # steps that are transposed at a time (`tridiag.kernels.recurrence.loops`)
BLOCK = 128 * 1024  # bytes of an operand in a block of a long sequence: two blocks of two operands fit in a cache
FEWEST_STEPS = {8: 48, 4: 24}  # of sequences in lanes, by the bytes of a number; plain loops are quicker with fewer
FROM_MEMORY = 64  # of evenly spaced ones past the caches, below which plain loops are quicker than lanes
EVEN_STEPS = 256  # of more, memory is asked for ahead of use, from the next sequences too
FEWEST_BLOCKS = 2  # of such a sequence, where there are enough of them to fill the lanes
FEW_VECTORS = 64  # of values: with no more, to find where each sequence lies takes longer than to join steps
MOST_IN_VECTORS, FEWEST_IN_VECTORS = 4, 2  # the highest order, and the fewest steps, of `constant`
MANY_IN_VECTORS = 16  # sequences: with fewer, to find the factors of all steps takes longer than it saves
FACTORS = 16 * 1024  # bytes of these factors at most, in the first level of the caches
SHORTEST_CHUNK = 4  # times the lanes: steps of a lane, where there are not
SECOND_LEVEL = 1024 * 1024  # bytes of the operands that a core's own cache holds at least
WORTH_STARTING = 120_000  # steps, as `tridiag.kernels.jobs.systems` counts unknowns
SHARED = 4096  # bytes of a row for each thread, of those that share it, in results that caches hold
STRETCH, LONG_STRETCH = 4096, 16_384  # bytes of a row of sequences side by side: it is read again in the next step
STREAMS, IN_REGISTERS = 4, 256  # so few rows are walked as many bytes at a time, see `recurrence.interleaved.NARROW`


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
    if even and kind == C.ROWS and (n < FROM_MEMORY or n * count * dtype.itemsize <= room_for_results()):
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
    large = size > (room_for_results() if kind in (C.ROWS, C.SCALAR) else CACHES)
    return flags | C.LARGE * large | C.FAR * (3 * size > SECOND_LEVEL)
