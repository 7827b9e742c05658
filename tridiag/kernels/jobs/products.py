"""The job of a product from shapes and strides alone: how its axes are walked; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag.kernels.jobs.batches import LINE, Axis, contiguous, is_packed, merge
from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.systems import CACHES, ITEM, ITEMS_EACH
from tridiag.kernels.jobs.words import products as P
from tridiag.problems.forms import Form

WORTH_A_THREAD = 384 * 1024  # bytes of the result; less is not worth a helper
WORTH_STARTING = 1024 * 1024  # likewise, one that does not run yet: making it takes 25 to 50 us
FEW, MANY = 16, 4096  # entries side by side, and in all
SHORT_ROW, SHORT_COLUMNS = 240, 28  # real numbers side by side in a row, or of a row of columns: fewer go one by one
FEW_ROWS, MANY_ROWS = 32, 2048  # of these in a block, where the next unit is nearer than the next row, or is not
SHORT = 2**20  # entries of matrices, up to which many are computed at a time


def worth_threads(form: Form, dtype: np.dtype[Any]) -> bool:
    return math.prod(form.shape) * dtype.itemsize >= WORTH_A_THREAD


def suits(form: Form, shapes: Sequence[Any], strides: Sequence[Any], dtype: np.dtype[Any]) -> bool:
    """Whether the kernel can write such a result, and takes no longer than NumPy."""
    walk = walk_of(form, shapes, strides, dtype)
    if walk.one_by_one:
        return True
    rows = walk.steps[P.Y] == dtype.itemsize or is_packed(shapes[P.Y], strides[P.Y], len(form.shape), dtype.itemsize)
    return rows and not is_choppy(walk, form, shapes)


def is_choppy(walk: Walk, form: Form, shapes: Sequence[Any]) -> bool:
    """Whether there are so few entries in a row that NumPy takes less time, as it walks whole columns."""
    together = walk.width or walk.cycle // 3  # the first row, the last one, and those between
    return shapes[P.WHERE] is None and not walk.period and together < FEW and math.prod(form.shape) > MANY


class Walk(NamedTuple):
    """Units of rows of entries, as `Products` tells them."""

    length: int
    width: int
    edge: int
    cycle: int
    period: int
    strides: tuple[int, ...]
    steps: tuple[int, ...]
    batch: list[Axis]
    one_by_one: bool = False


def make_job(form: Form, shapes: Sequence[Any], strides: Sequence[Any], dtype: np.dtype[Any], workers: int) -> Job:
    """From the shapes and the strides in bytes of the result, x, a, b, c and where (None: not there)."""
    walk = walk_of(form, shapes, strides, dtype)
    count, units = math.prod(form.shape), math.prod(length for length, _ in walk.batch)
    helpers = workers - 1 if worth_threads(form, dtype) else 0
    entries = walk.length * max(1, walk.width)
    share = max(1, min(ITEM, -(-count // (ITEMS_EACH * (helpers + 1))))) if helpers else count
    block = block_of(walk) if walk.one_by_one else min(walk.length, max(1, share // max(1, walk.width)))
    blocks = -(-walk.length // block)
    run = max(1, share // block) if walk.one_by_one else max(1, share // entries) if blocks == 1 else 1
    items = -(-units * blocks // run)
    options = [(form.transpose, P.TRANSPOSE), (form.periodic, P.PERIODIC), (shapes[P.WHERE] is not None, P.MASKED)]
    options += [(end_to_end(walk, shapes, dtype), P.END_TO_END), (walk.one_by_one, P.ONE_BY_ONE)]
    options += [(count * dtype.itemsize > CACHES and not walk.one_by_one, P.LARGE)]
    words = P.Products.filled(
        P.AXIS_WORDS * len(walk.batch),
        small=count * dtype.itemsize < WORTH_STARTING,
        items=items, strides=walk.strides, steps=walk.steps, length=walk.length, width=walk.width, edge=walk.edge,
        cycle=walk.cycle, period=walk.period, room=room_of(walk, dtype),
        flags=sum(flag for option, flag in options if option), units=units,
        blocks=blocks, block=block, run=run, axes=len(walk.batch),
    )  # fmt: skip
    words[P.AXES :] = [word for length, steps in walk.batch for word in (length, *steps)]
    words.flags.writeable = False
    return Job(("products", dtype.name), words, max(0, min(helpers, items - 1)), count)


def end_to_end(walk: Walk, shapes: Sequence[Any], dtype: np.dtype[Any]) -> bool:
    """Whether nothing is to be told of a row but whether it is the first or the last one of a matrix."""
    dense = all(step == dtype.itemsize for step in walk.steps[: P.WHERE])
    return dense and dtype.kind == "f" and walk.period > 1 and walk.edge == 1 and shapes[P.WHERE] is None


def room_of(walk: Walk, dtype: np.dtype[Any]) -> int:
    """The bytes for a source: a PIECE of entries where those of some operand lie neither side by side nor are one."""
    wanted = [(1 if k == P.WHERE else dtype.itemsize, 0) for k in range(P.OPERANDS)]
    scattered = any(step not in sides for step, sides in zip(walk.steps[P.X :], wanted[P.X :], strict=True))
    return P.PIECE * dtype.itemsize if scattered else LINE * (2 if dtype.kind == "c" else 1)


def walk_of(form: Form, shapes: Sequence[Any], strides: Sequence[Any], dtype: np.dtype[Any]) -> Walk:
    """All entries in one go where all operands lie as the result does, or are constant; else rows or columns."""
    axes = [(form.shape[k], steps_along(k, shapes, strides)) for k in range(len(form.shape))]
    rows, inner = axes[form.axis], math.prod(form.shape[form.axis + 1 :])
    size = dtype.itemsize
    wholly = [lies_whole(k, form, shapes[k], strides[k], size) for k in range(P.OPERANDS)]
    if all(step is not None for step in wholly):
        steps: Any = tuple(wholly)
        cycle, total = form.n * inner, math.prod(form.shape)
        if form.periodic or cycle > SHORT:
            return Walk(total, 0, inner, cycle, 0, steps, steps, [])
        return Walk(total, 0, inner, total, cycle, steps, steps, [])
    batch = merge([axis for k, axis in enumerate(axes) if k != form.axis and axis[0] != 1])
    walk = Walk(form.n, 0, 1, form.n, 0, rows[1], rows[1], batch)
    if inner > 1:
        walk = walk._replace(width=batch[-1][0], steps=batch[-1][1], batch=batch[:-1])
    if dtype.kind == "f" and shapes[P.WHERE] is None and is_scattered(walk, size):
        return Walk(form.n, 0, 1, form.n, 0, rows[1], rows[1], batch, one_by_one=True)
    return walk


def is_scattered(walk: Walk, size: int) -> bool:
    """Whether entries are not side by side, or not for long."""
    stretch = walk.width or walk.length
    apart = walk.steps[P.Y] != size or any(step not in (size, 0) for step in walk.steps[: P.WHERE])
    return apart or stretch < (SHORT_COLUMNS if walk.width else SHORT_ROW)


def block_of(walk: Walk) -> int:
    """The rows of a unit that are multiplied before those of the next one, which may be nearer in memory."""
    _, steps = walk.batch[-1] if walk.batch else (0, (0,) * P.OPERANDS)
    nearer = [abs(step) < abs(row) for step, row in zip(steps, walk.strides, strict=True) if step or row]
    return min(walk.length, FEW_ROWS if 2 * sum(nearer) > len(nearer) else MANY_ROWS)


def steps_along(k: int, shapes: Sequence[Any], strides: Sequence[Any]) -> tuple[int, ...]:
    """The strides of all operands along an axis; 0 where one is constant."""
    return tuple(0 if s is None or s[k] == 1 else t[k] for s, t in zip(shapes, strides, strict=True))


def lies_whole(k: int, form: Form, shape: Any, strides: Any, size: int) -> int | None:
    """The step from entry to entry of an operand that lies as the result does, or is constant; else None."""
    if shape is None or all(length == 1 for length in shape):
        return 0
    step = 1 if k == P.WHERE else size
    wanted = contiguous(form.shape, step)
    alike = all(n == 1 or s == t for n, s, t in zip(form.shape, strides, wanted, strict=True))
    return step if shape == form.shape and alike else None
