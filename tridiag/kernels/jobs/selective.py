"""The job of a selective scan from shapes and strides alone; pure."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from tridiag.kernels.jobs.batches import contiguous
from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.sequences import Axes, axes_of, filled
from tridiag.kernels.jobs.systems import ITEM, ITEMS_EACH, WORTH_STARTING, lanes_of
from tridiag.kernels.jobs.words import selective as S
from tridiag.problems.forms import Recurrence, Shape
from tridiag.problems.selective import SelectiveScan

# what they cost, in unknowns of tridiagonal systems: a vector of states in a step of a sequence, one of sequences in a
# step of a state, without sizes of steps and with them; each sequence by itself; and a step of sequences that are
# gathered into a vector
VECTOR_OF_STATES, VECTOR_OF_SEQUENCES, SEQUENCE, GATHERED = (2.5, 11.0), (1.0, 8.0), 25, 8


def make_job(form: SelectiveScan, shapes: Any, strides: Any, dtype: np.dtype[Any], workers: int) -> Job:
    """From the shapes and the strides in bytes of all operands, None where one is not given.

    Those of y have no axis of states; the states of a sequence lie side by side.
    """
    axes, count, unknowns = (
        axes_of_scan(form, shapes, strides),
        math.prod(form.batch),
        math.prod(form.shape) * form.states,
    )
    kind = kind_of(axes, form, dtype, shapes[S.STEP] is not None, workers)
    stretch = count if kind == S.STATES else axes.batch[-1][0]
    group = shared_out(count, workers, lanes_of(dtype)) if kind == S.STATES else lanes_of(dtype)
    groups = count // stretch * -(-stretch // group)
    run = max(1, min(ITEM, unknowns // (ITEMS_EACH * workers)) * groups // unknowns)
    words = filled(
        axes, S.OPERANDS, S.OPERANDS, flags=flags_of(form, shapes), length=form.states, kind=kind,
        small=work_of(form, shapes, strides, dtype) < WORTH_STARTING, items=-(-groups // run), run=run, steps=form.n,
        sequences=count, stretch=stretch, group=group,
    )  # fmt: skip
    return Job(("selective", dtype.name), words, min(workers, -(-groups // run)) - 1, unknowns)


def shared_out(count: int, workers: int, most: int) -> int:
    """Sequences of a group, at most so many, of which all workers have as many."""
    rounds = -(-count // (most * workers))
    return max(1, -(-count // (rounds * workers))) if rounds else most


def kind_of(axes: Axes, form: SelectiveScan, dtype: np.dtype[Any], sizes: bool, workers: int) -> int:
    """Whether lanes are filled with states or with sequences, whichever takes so many workers less.

    Those of sequences need not lie side by side, but share what multiplies inputs and what reads states.
    """
    length, steps = axes.batch[-1] if axes.batch else (1, ())
    if not steps or steps[S.B] or steps[S.READ] or (steps[S.A] and axes.strides[S.A]):
        return S.STATES
    own = S.Y, S.X, *((S.STEP,) if sizes else ())
    kind = S.SIDE_BY_SIDE if all(steps[k] == dtype.itemsize for k in own) else S.APART
    rows = math.prod(form.batch) // length
    groups = {kind: rows * -(-length // lanes_of(dtype)), S.STATES: rows * length}

    def time(one: int) -> float:
        cost = rows * cost_of_row(one, length, form, dtype, sizes, bool(steps[S.A]))
        return cost / max(1, groups[one]) * -(-groups[one] // workers)

    return min(groups, key=time)


def cost_of_row(kind: int, length: int, form: SelectiveScan, dtype: np.dtype[Any], sizes: bool, own: bool) -> float:
    """What so many sequences along the last axis of the batch cost, in unknowns of tridiagonal systems.

    ``own``: whether each has coefficients of its own.
    """
    lanes = lanes_of(dtype)
    if kind == S.STATES:
        return length * (form.n * -(-form.states // lanes) * VECTOR_OF_STATES[sizes] + SEQUENCE)
    step = form.states * VECTOR_OF_SEQUENCES[sizes] + (GATHERED if kind == S.APART else 0)
    return -(-length // lanes) * form.n * step + own * length * form.states


def axes_of_scan(form: SelectiveScan, shapes: Any, strides: Any) -> Axes:
    """How all operands are walked, but for their states."""
    missing = (1,) * len(form.shape)
    heads = [[missing if one is None else tuple(one[: len(form.shape)]) for one in some] for some in (shapes, strides)]
    return axes_of(Recurrence(form.shape, form.axis, form.reverse), *heads)


@functools.lru_cache(4096)
def work_of(form: SelectiveScan, shapes: Any, strides: Any, dtype: np.dtype[Any]) -> float:
    """What a scan costs, in unknowns of tridiagonal systems."""
    sizes, axes = shapes[S.STEP] is not None, axes_of_scan(form, shapes, strides)
    kind, (length, steps) = kind_of(axes, form, dtype, sizes, 1), axes.batch[-1] if axes.batch else (1, ())
    own = bool(steps) and bool(steps[S.A])
    return math.prod(form.batch) // length * cost_of_row(kind, length, form, dtype, sizes, own)


def flags_of(form: SelectiveScan, shapes: Any) -> int:
    """What is given, and what is the same for all of several states."""
    flags = S.STARTED * (shapes[S.INIT] is not None)
    for k in (S.A, S.B, S.READ, S.INIT):
        if form.states > 1 and shapes[k] is not None and shapes[k][-1] == 1:
            flags |= S.SAME << k
    return flags


class Sums(NamedTuple):
    """The sums over groups of sequences that make the gradient of an operand."""

    shape: Shape  # (sequences but for the last axis of the batch, groups or sequences along that, steps or 1, states)
    shared: bool  # whether all sequences along that axis share the operand


def sums_of(form: SelectiveScan, shape: Shape, dtype: np.dtype[Any]) -> Sums:
    """Those of an operand of a shape, which has the rank of the states of all steps."""
    length, lengths = last_of(form.batch), shape[: form.axis] + shape[form.axis + 1 : -1]
    shared = last_of(lengths) == 1
    count = -(-length // lanes_of(dtype)) if shared else length
    return Sums((math.prod(form.batch) // length, count, shape[form.axis], form.states), shared)


def last_of(batch: Shape) -> int:
    return batch[-1] if batch else 1


def make_adjoint_job(form: SelectiveScan, shapes: Any, strides: Any, dtype: np.dtype[Any], workers: int) -> Job:
    """The same for gradients: the operands of the scan, and then those of x and the sizes of steps, which lie as y does
    in all of its axes, the `Sums` of a, B and C, and the cotangents of the states before the first step.
    """
    steps, size = [], dtype.itemsize
    for shape, stride in zip(shapes[: S.OF_A], strides[: S.OF_A], strict=True):
        given = zip(shape or (1,) * len(form.shape), stride or (0,) * len(form.shape), strict=False)
        steps.append([0 if n == 1 else t for n, t in given][: len(form.shape)])
    own = [contiguous(shape, size) for shape in shapes[S.OF_A : S.OF_INIT]]
    shared = [sums_of(form, shapes[k], dtype).shared for k in (S.A, S.B, S.READ)]
    init = contiguous((*form.batch, form.states), size)
    lengths = form.batch or (1,)
    batch = []
    for k, length in enumerate(lengths):
        at = k + (k >= form.axis) if form.batch else 0
        along = [step[at] if form.batch else 0 for step in steps]
        following = math.prod(lengths[k + 1 : -1])
        for strides_of, same in zip(own, shared, strict=True):
            along.append((0 if same else strides_of[1]) if k == len(lengths) - 1 else strides_of[0] * following)
        batch.append((length, (*along, init[k] if form.batch else 0)))
    rows = [step[form.axis] for step in steps]
    rows += [
        0 if shape[2] == 1 else strides_of[2] for shape, strides_of in zip(shapes[S.OF_A : S.OF_INIT], own, strict=True)
    ]
    sign, last = (-1, form.n - 1) if form.reverse else (1, 0)
    axes = Axes((*(sign * row for row in rows), 0), (*(last * row for row in rows), 0), batch)
    length = lengths[-1]
    items = math.prod(lengths) // length * -(-length // lanes_of(dtype))
    words = filled(
        axes, S.ADJOINT_OPERANDS, S.ADJOINT_OPERANDS, flags=flags_of(form, shapes), length=form.states, steps=form.n,
        sequences=math.prod(lengths), stretch=length, items=items,
    )  # fmt: skip
    words = np.concatenate(
        (words, [strides_of[1] if same else 0 for strides_of, same in zip(own, shared, strict=True)])
    )
    unknowns = math.prod(form.shape) * form.states
    return Job(("selective_adjoint", dtype.name), words, min(workers, items) - 1, unknowns)
