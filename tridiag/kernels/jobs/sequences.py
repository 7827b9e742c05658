"""How the axes of the sequences of a recurrence are walked, and the words of a job that tell it; pure."""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.kernels.jobs.batches import Axis, merge
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.problems.forms import Recurrence


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


def leading_axes(rows: Recurrence, shapes: Any, strides: Any) -> Axes:
    """Without those of a vector or a matrix in each step."""
    heads = ([tuple(s[: len(rows.shape)]) for s in some] for some in (shapes, strides))
    return axes_of(rows, *heads)


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
