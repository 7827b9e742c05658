"""Results that do not lie as the loops which join steps write them: made in scratch memory, and copied a piece a time.

Steps are joined as those of a contiguous result are, so that no bit depends on where a result lies.
"""

from __future__ import annotations

from typing import Any

from numba import njit

from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.access.sequences import places
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import OPTIONS, Code

TOGETHER = 8  # numbers that are copied at a time


def copy_numbers(code: Code, *words: Value) -> None:
    """Steps of sequences, some sequences abreast.

    ``words``: sequences, steps; of the target and of the source the address, the stride, and how far sequences are.
    """
    (count, n), (target, source) = words[:2], (words[2:5], words[5:])

    def abreast(together: int) -> Any:
        def group(first: Value, state: Any) -> Any:
            to, of = ([at + (first + k) * apart for k in range(together)] for at, _, apart in (target, source))

            def step(i: Value, state: Any) -> Any:
                numbers = [code.load_as(code.real, at + i * source[1]) for at in of]
                for at, x in zip(to, numbers, strict=True):
                    code.store_as(at + i * target[1], x)
                return state

            code.fori(0, n, step)
            return state

        return group

    even = count / TOGETHER * TOGETHER
    code.fori(0, even, abreast(TOGETHER), step=TOGETHER)
    code.fori(even, count, abreast(1))


def bringing(library: Library) -> Any:
    """What copies steps of neighbouring sequences: numbers that are near each other in the target, together."""
    copy = library.add("copy_numbers", copy_numbers)

    @njit(**OPTIONS)
    def bring(zero, count, n, target, source):
        """``target``, ``source``: as the words of `copy_numbers`."""
        (to, stride, apart), (of, step, further), done = target, source, 0
        if n >= TOGETHER and (count < TOGETHER or abs(stride) <= abs(apart)):
            done = n // TOGETHER * TOGETHER
            for k in range(count):
                here = to + k * apart, TOGETHER * stride, stride, of + k * further, TOGETHER * step, step
                copy(zero, (TOGETHER, n // TOGETHER, *here))
        if done < n:
            copy(zero, (count, n - done, to + done * stride, stride, apart, of + done * step, step, further))

    return bring


def bringing_steps(library: Library, order: int) -> Any:
    """What copies successive steps of one sequence after another to where the result of a job lies."""
    bring, (stride, base) = bringing(library), places(C.operands(order))
    steps_of_axis = C.TABLE + 2 * C.operands(order) + 1

    @njit(**OPTIONS)
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


@njit(**OPTIONS)
def step_of(zero, job):
    """How far steps lie apart in scratch memory, as in a contiguous result."""
    size = bytes_of_real(zero, ())
    return -size if job.flags & C.BACKWARD else size


@njit(**OPTIONS)
def first_of(zero, job, room, count):
    """Where the first of so many steps lies in scratch memory."""
    return room + (count - 1) * bytes_of_real(zero, ()) if job.flags & C.BACKWARD else room
