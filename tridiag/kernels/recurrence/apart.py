"""Results that do not lie as the loops which join steps write them: made in scratch memory, and copied a piece a time.

Steps are joined as those of a contiguous result are, so that no bit depends on where a result lies.
"""

from __future__ import annotations

import functools
from typing import Any

from tridiag.kernels.access.moves import first_lanes, in_groups
from tridiag.kernels.access.operands import bytes_of_real, lanes_of
from tridiag.kernels.access.sequences import places
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.transpose import transpose_in_memory
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code

TOGETHER = 8  # sequences of which the same step is copied at a time


def copy_numbers(code: Code, *words: Value) -> None:
    """Steps of sequences, some sequences abreast.

    ``words``: sequences, steps; the target, the stride there, and how far its sequences are; the source, whose steps
    lie side by side, and how far its sequences are.
    """
    count, n, target, stride, apart, source, further = words

    def abreast(together: int, first: Value) -> None:
        to, of = ([at + (first + k) * t for k in range(together)] for at, t in ((target, apart), (source, further)))

        def step(i: Value, state: Any) -> Any:
            numbers = [code.load_as(code.real, at + i * code.size_of_real) for at in of]
            for at, x in zip(to, numbers, strict=True):
                code.store_as(at + i * stride, x)
            return state

        code.fori(0, n, step)

    in_groups(code, count, TOGETHER, abreast)


def copy_steps(code: Code, *words: Value) -> None:
    """The same for whole vectors of the steps of each sequence, and none that is left over."""
    count, n, target, stride, apart, source, further = words

    def sequence(k: Value, state: Any) -> Any:
        to, of = target + k * apart, source + k * further

        def steps(i: Value, state: Any) -> Any:
            found, at = code.load_as(code.vector, of + i * code.size_of_real), to + i * stride
            for lane in range(code.lanes):
                code.store_as(at + lane * stride, code.extract(found, lane))
            return state

        code.fori(0, n / code.lanes * code.lanes, steps, step=code.lanes)
        return state

    code.fori(0, count, sequence)


def copy_rows(backward: bool, code: Code, *words: Value) -> None:
    """The same where steps lie side by side in the target, too, or ``backward`` there."""
    count, n, target, _, apart, source, further = words
    whole, last = n / code.lanes * code.lanes, (code.lanes - 1) * code.size_of_real
    some = first_lanes(code, n - whole)
    turned = range(code.lanes - 1, -1, -1)

    def sequence(k: Value, state: Any) -> Any:
        to, of = target + k * apart, source + k * further

        def steps(mask: Value | None) -> Any:
            def step(i: Value, state: Any) -> Any:
                move = i * code.size_of_real
                at = to - move - last if backward else to + move
                x = code.load_as(code.vector, of + move) if mask is None else code.load_some(of + move, mask)
                x = code.shuffle(x, x, turned) if backward else x
                if mask is None:
                    code.store_as(at, x)
                else:
                    code.store_some(at, x, code.shuffle(mask, mask, turned) if backward else mask)
                return state

            return step

        code.fori(0, whole, steps(None), step=code.lanes)
        code.fori(whole, code.pick(n > whole, whole + 1, whole), steps(some))
        return state

    code.fori(0, count, sequence)


def copy_squares(code: Code, *words: Value) -> None:
    """The same for whole vectors of sequences, too, which lie side by side in the target."""
    count, n, target, stride, _, source, further = words

    def group(first: Value, state: Any) -> Any:
        to, of = target + first * code.size_of_real, [source + (first + k) * further for k in range(code.lanes)]

        def square(i: Value, state: Any) -> Any:
            transpose_in_memory(code, lambda k: of[k] + i * code.size_of_real, lambda k: to + (i + k) * stride)
            return state

        code.fori(0, n / code.lanes * code.lanes, square, step=code.lanes)
        return state

    code.fori(0, count / code.lanes * code.lanes, group, step=code.lanes)


def bringing(library: Library) -> Any:
    """What copies steps of neighbouring sequences: numbers that are near each other in the target, together."""
    numbers, steps, squares = (library.add(copy.__name__, copy) for copy in (copy_numbers, copy_steps, copy_squares))

    rows, rows_backward = (
        library.add(f"copy_rows{'_backward' * backward}", functools.partial(copy_rows, backward))
        for backward in (False, True)
    )

    @compiled
    def bring(zero, count, n, target, source):
        """``target``, ``source``: addresses of the first step, strides, and how far sequences are apart.

        Steps of the source lie side by side, in any direction.
        """
        (to, stride, apart), (of, step, further), size = target, source, bytes_of_real(zero, ())
        if step < 0:
            to, stride, of = to + (n - 1) * stride, -stride, of + (n - 1) * step
        lanes, done = lanes_of(zero, ()), 0
        if stride == size:
            rows(zero, (count, n, to, stride, apart, of, further))
            return
        if stride == -size:
            rows_backward(zero, (count, n, to, stride, apart, of, further))
            return
        if n >= lanes and count >= lanes and apart == size:
            done, even = n // lanes * lanes, count // lanes * lanes
            squares(zero, (count, n, to, stride, apart, of, further))
            if even < count:
                numbers(zero, (count - even, done, to + even * apart, stride, apart, of + even * further, further))
        elif n >= lanes and (count < TOGETHER or abs(stride) <= abs(apart)):
            done = n // lanes * lanes
            steps(zero, (count, n, to, stride, apart, of, further))
        if done < n:
            numbers(zero, (count, n - done, to + done * stride, stride, apart, of + done * size, further))

    return bring


def bringing_steps(library: Library, order: int) -> Any:
    """What copies successive steps of one sequence after another to where the result of a job lies."""
    bring, (stride, base) = bringing(library), places(C.operands(order))
    steps_of_axis = C.TABLE + 2 * C.operands(order) + 1

    @compiled
    def bring_steps(zero, job, index, turn, begin, count, source):
        """``count`` steps of a sequence and of those behind it, or where ``turn`` is -1 before it, from ``begin`` on.

        They lie side by side in the direction of the steps of the job, the first one at ``source``.
        """
        n, step, along = job.steps, step_of(zero, job), stride(job, C.Y)
        apart = field(job, steps_of_axis + C.Y) if job.axes == 1 else 0
        while count > 0:
            some, sequences = min(count, n - begin), 1
            if begin == 0 and some == n and job.axes == 1:
                sequences = count // n
            to = base(job, C.Y, index) + begin * along
            bring(zero, sequences, some, (to, along, turn * apart), (source, step, some * step))
            source, count = source + sequences * some * step, count - sequences * some
            index, begin = index + turn * sequences, 0

    return bring_steps


@compiled
def step_of(zero, job):
    """How far steps lie apart in scratch memory, as in a contiguous result."""
    size = bytes_of_real(zero, ())
    return -size if job.flags & C.BACKWARD else size


@compiled
def first_of(zero, job, room, count):
    """Where the first of so many steps lies in scratch memory."""
    return room + (count - 1) * bytes_of_real(zero, ()) if job.flags & C.BACKWARD else room
