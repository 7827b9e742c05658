"""The job of a recurrence of numbers from shapes and strides alone: by which loops it is computed; pure."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

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
MOST_IN_VECTORS = 4  # the highest order of `constant`
FEWEST_IN_VECTORS = 16  # steps of its sequences which are not read as one; plain loops are quicker with fewer
# of higher orders it is quicker with fewer sequences than MANY_ABREAST, with more steps than MOST_ABREAST, and where it
# reads sequences as one; in double precision and of orders above JOINED_IN_DOUBLE only as long as these are few
MANY_ABREAST, MOST_ABREAST, JOINED_IN_DOUBLE, FEW_AS_ONE = 16, 4096, 2, 128
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


class Way(NamedTuple):
    """By which loops a recurrence is computed."""

    kind: int
    constant: bool = False  # by the kernel of constant coefficients
    end_to_end: bool = False  # ... which reads all sequences as one

    def joins(self) -> bool:
        """Whether some steps are joined before those behind them, else one is taken after another, always alike."""
        return self.constant or self.kind in (C.LONG, C.STREAM)


class Problem(NamedTuple):
    """What decides by which loops a recurrence is computed, beside where its operands lie."""

    form: Recurrence
    order: int
    dtype: np.dtype[Any]
    started: bool
    workers: int
    devices: int  # that compute as much at the same time

    @property
    def sequences(self) -> int:
        return math.prod(self.form.batch)

    @property
    def values(self) -> int:
        return self.form.n * self.sequences

    @property
    def size(self) -> int:
        """The bytes of a result, of all devices."""
        return self.values * self.dtype.itemsize * self.devices

    @property
    def lanes(self) -> int:
        return lanes_of(self.dtype)


def make_job(
    form: Recurrence, order: int, shapes: Any, strides: Any, dtype: np.dtype[Any], workers: int, devices: int = 1
) -> Job:
    """From the shapes and the strides in bytes of the result, x, the coefficients, and the values before, if given.

    ``devices``: how many share the caches, and compute as much at the same time.

    The bits of a result do not depend on where it lies: its steps are joined as those of a contiguous one are. Where
    the loops that join them do not write to where it lies, they write to scratch memory.
    """
    problem = Problem(form, order, dtype, len(shapes) == C.operands(order), workers, devices)
    axes, packed = axes_of(form, shapes, strides), contiguous(form.shape, dtype.itemsize)
    way = way_of(axes, problem)
    if all(n == 1 or s == t for n, s, t in zip(form.shape, strides[C.Y], packed, strict=True)):
        return job_of(axes, axes, way, problem, len(shapes))
    side_by_side = axes_of(form, shapes, (packed, *strides[1:]))
    wanted = way_of(side_by_side, problem)
    if not wanted.joins():
        return job_of(axes, axes, way_of(axes, problem, joining=False) if way.joins() else way, problem, len(shapes))
    if wanted == way:
        return job_of(axes, axes, way, problem, len(shapes))
    return job_of(side_by_side, axes_apart(form, shapes, strides, packed), wanted, problem, len(shapes))


def axes_apart(form: Recurrence, shapes: Any, strides: Any, packed: Any) -> Axes:
    """Those of a result that lies anywhere, whose sequences are counted as those of a contiguous one are."""
    found = axes_of(form, (*shapes, shapes[C.Y]), (packed, *strides[1:], strides[C.Y]))

    def own(steps: tuple[int, ...]) -> tuple[int, ...]:
        return (steps[-1], *steps[1:-1])

    return Axes(own(found.strides), own(found.offsets), [(length, own(steps)) for length, steps in found.batch])


def job_of(axes: Axes, places: Axes, way: Way, problem: Problem, given: int) -> Job:
    """``axes``: those of the result as it is computed; ``places``: where it is to lie."""
    form, order, dtype, _, workers, _ = problem
    count, lanes, n, values, kind = problem.sequences, problem.lanes, form.n, problem.values, way.kind
    even = not way.constant and kind in (C.ROWS, C.SCALAR) and evenly_spaced(axes, problem)
    if even and kind == C.ROWS and (n < FROM_MEMORY or problem.size <= room_for_results()):
        kind = C.SCALAR
    length, width, stretches, blocks, chunk, run = 1, 1, 1, 0, 0, 1
    share = ITEM if workers == 1 else max(1, min(ITEM, values // (ITEMS_EACH * workers)))  # values
    if kind in (C.INTERLEAVED, C.SPREAD):
        length = axes.batch[-1][0]
        stretches = stretches_of(length, n, values, dtype, workers)
        width = -(-length // (stretches * lanes)) * lanes
        stretches = -(-length // width)
        run = max(1, share // (n * min(width, length)))
        items = -(-count // length * stretches // run)
    elif kind == C.LONG:
        chunk = chunk_of(dtype)
        blocks = -(-(n - 1) // (lanes * chunk))  # behind the first step
        items = count * blocks
    else:
        together = lanes if kind == C.ROWS or even or way.constant else 1
        groups = max(1, share // (n * together))
        items = -(-count // (together * groups))
        run = groups if kind == C.ROWS else groups * together
    flags = flags_of(axes, problem, kind) | C.END_TO_END * way.end_to_end
    if places is not axes:
        flags |= C.APART
    words = filled(
        places,
        C.operands(order),
        given,
        small=values * max(1, order) < WORTH_STARTING,
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
    helpers = workers - 1 if values >= WORTH_A_THREAD else 0
    kernel = "constant" if way.constant else "recurrence", dtype.name, order
    return Job(kernel, words, min(helpers, items - 1), values)


def way_of(axes: Axes, problem: Problem, joining: bool = True) -> Way:
    """The quickest way; where not ``joining`` one step after another."""
    kind = kind_of(axes, problem, joining)
    if not joining or not quickest_in_vectors(kind, problem):
        return Way(kind)
    if in_vectors(axes, problem):
        as_one = not problem.started and reads_as_one(axes, problem)
        if soonest_in_vectors(problem, as_one):
            return Way(C.SCALAR, constant=True, end_to_end=as_one)
        return Way(C.SCALAR)
    return Way(kind_end_to_end(kind, problem) if end_to_end(axes, problem) else kind)


def soonest_in_vectors(problem: Problem, as_one: bool) -> bool:
    """Whether steps joined in vectors are found sooner than those of several sequences abreast by plain loops."""
    n = problem.form.n
    if problem.order == 1:
        return as_one or n >= FEWEST_IN_VECTORS
    if problem.started or problem.sequences < MANY_ABREAST or n > MOST_ABREAST:
        return True
    joined = problem.dtype.itemsize == 4 or problem.order <= JOINED_IN_DOUBLE or problem.sequences <= FEW_AS_ONE
    return as_one and joined


def kind_of(axes: Axes, problem: Problem, joining: bool) -> int:
    """Which loops can run so."""
    form, order, dtype, count, lanes = problem.form, problem.order, problem.dtype, problem.sequences, problem.lanes
    size, (length, steps) = dtype.itemsize, axes.batch[-1] if axes.batch else (0, ())
    if length > 1 and steps[C.Y] == steps[C.X] == size:
        for step, kind in ((size, C.INTERLEAVED), (0, C.SPREAD)):
            if all(steps[C.A + k] == step for k in range(order)):
                return kind
    read, step = axes.strides[: 2 + order], axes.strides[C.Y]
    if dtype.kind == "f" and abs(step) == size and all(s in (step, 0) for s in read):
        fewest = FEWEST_BLOCKS * chunk_of(dtype) if count >= lanes else SHORTEST_CHUNK * lanes
        if joining and order == 1 and count < 2 * lanes * problem.workers and form.n >= fewest * lanes:
            return C.LONG
        if count >= lanes and form.n >= (FEWEST_STEPS[size] if order == 1 else HEIGHT):
            return C.ROWS
    return C.SCALAR


def in_vectors(axes: Axes, problem: Problem) -> bool:
    """Whether `tridiag.kernels.recurrence.constant` can compute it: one coefficient for all steps of all sequences."""
    (form, order, dtype, started, *_), step = problem, axes.strides[C.Y]
    if dtype.kind != "f" or order > MOST_IN_VECTORS or form.n < 2 or (form.transpose and started):
        return False
    if abs(step) != dtype.itemsize or axes.strides[C.X] != step:
        return False
    own = slice(C.A, C.A + order)
    return not any(any(steps[own]) for steps in (axes.strides, *(steps for _, steps in axes.batch)))


def reads_as_one(axes: Axes, problem: Problem) -> bool:
    """Whether `tridiag.kernels.recurrence.constant` reads all sequences as one."""
    n, order, dtype = problem.form.n, problem.order, problem.dtype
    if len(axes.batch) != 1 or problem.sequences < MANY_IN_VECTORS:
        return False
    if n * C.size_of_factors(problem.lanes, order) > FACTORS:
        return False
    return {axes.batch[0][1][k] for k in (C.Y, C.X)} == {n * dtype.itemsize}


def end_to_end(axes: Axes, problem: Problem) -> bool:
    """Whether `tridiag.kernels.recurrence.streams` can compute it: numbers of their own, without any between them."""
    form, order, dtype, started, *_ = problem
    if order > 1 or dtype.kind != "f" or started or len(axes.batch) > 1 or form.n < 2:
        return False
    given = slice(C.Y, C.A + 1)
    along = {abs(step) for step in axes.strides[given]} | {axes.strides[C.Y] * step for step in axes.strides[given]}
    across = {step for _, steps in axes.batch for step in steps[given]}
    return along == {dtype.itemsize, dtype.itemsize**2} and across <= {form.n * dtype.itemsize}


def evenly_spaced(axes: Axes, problem: Problem) -> bool:
    """Whether `tridiag.kernels.recurrence.even_rows` computes it, with no tables of where each sequence lies."""
    form, order, dtype, started, *_ = problem
    fits = HEIGHT <= form.n < EVEN_STEPS and problem.sequences >= problem.lanes
    if not fits or order > 1 or dtype.kind != "f" or started or form.transpose or len(axes.batch) != 1:
        return False
    given, (_, steps) = slice(C.Y, C.A + 1), axes.batch[0]
    return set(axes.strides[given]) == {dtype.itemsize} and len(set(steps[given])) == 1


def quickest_in_vectors(kind: int, problem: Problem) -> bool:
    """Whether no other loops are quicker, such as those whose threads share a sequence."""
    few = problem.sequences < problem.workers and problem.values >= WORTH_A_THREAD
    return kind in (C.ROWS, C.SCALAR) or (kind == C.LONG and not few)


def stretches_of(length: int, n: int, values: int, dtype: np.dtype[Any], workers: int) -> int:
    """Into how many parts a row is cut: such as stay in a cache, and one for each thread where rows are not short.

    Threads in one short row write lines beside each other's, and ask ahead for what others write. Beyond the caches few
    rows are streams, walked a few vectors at a time, whose values stay in registers; of more, longer parts are read.
    """
    size, large = dtype.itemsize, values * dtype.itemsize > CACHES
    sharing = workers if large else max(1, min(workers, length * size // SHARED))
    stretch = STRETCH if not large else IN_REGISTERS if n <= STREAMS else LONG_STRETCH
    return -(-length // max(lanes_of(dtype), min(stretch // size, -(-length // sharing))))


def kind_end_to_end(kind: int, problem: Problem) -> int:
    """Sequences that would leave lanes empty, or be found no sooner than computed, are one stream of steps."""
    lanes, count, values = problem.lanes, problem.sequences, problem.values
    past_caches = kind in (C.ROWS, C.LONG) and values * problem.dtype.itemsize > room_for_results()
    if past_caches or (problem.form.n <= C.MOST and count >= C.MANY):
        return kind
    empty_lanes = count < lanes or 2 * (-count % lanes) > count
    return C.STREAM if kind == C.LONG or empty_lanes or values <= FEW_VECTORS * lanes else kind


def flags_of(axes: Axes, problem: Problem, kind: int) -> int:
    """That of arrays with negative strides goes the other way in memory."""
    size, started, transposed = problem.values * problem.dtype.itemsize, problem.started, problem.form.transpose
    flags = C.TRANSPOSED * transposed | C.STARTED * started | C.BACKWARD * (axes.strides[C.Y] < 0)
    large = problem.size > (room_for_results() if kind in (C.ROWS, C.SCALAR) else CACHES)
    return flags | C.LARGE * large | C.FAR * (3 * size > SECOND_LEVEL)
