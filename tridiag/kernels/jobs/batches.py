"""How the arrays of a batch lie: axes that all operands walk through alike, neighbours in memory, rows; pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tridiag.problems.forms import Form, Shape

LINE = 64  # bytes of a row of lanes
Axis = tuple[int, tuple[int, ...]]  # length, the strides of a, b, c, where, d, x


def contiguous(shape: Shape, itemsize: int) -> Shape:
    """The strides of a C-contiguous array."""
    strides, step = [], itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


def batch_axes(form: Form, shapes: Sequence[Any], strides: Sequence[Any]) -> tuple[list[int], list[Axis], list[Axis]]:
    """The axes of the matrices and of the right sides, outermost first; stride 0 where an operand is constant."""

    def steps(k: int) -> tuple[int, ...]:
        return tuple(0 if s is None or s[k] == 1 else t[k] for s, t in zip(shapes, strides, strict=True))

    axes = [k for k, length in enumerate(form.shape) if k != form.axis and length != 1]
    order = sorted((k for k in axes if form.matrix_shape[k] != 1), key=lambda k: -sum(map(abs, steps(k)[:4])))
    sides = sorted((k for k in axes if form.matrix_shape[k] == 1), key=lambda k: -sum(map(abs, steps(k)[4:])))
    return order, merge([(form.shape[k], steps(k)) for k in order]), merge([(form.shape[k], steps(k)) for k in sides])


def merge(axes: list[Axis]) -> list[Axis]:
    merged: list[Axis] = []
    for length, steps in axes:
        if merged and all(outer == inner * length for outer, inner in zip(merged[-1][1], steps, strict=True)):
            merged[-1] = (merged[-1][0] * length, steps)
        else:
            merged.append((length, steps))
    return merged


def neighbours(matrices: list[Axis], itemsize: int, lanes: int) -> int:
    """The systems that lie side by side in memory and make up whole groups; 0: they do not."""
    length, steps = matrices[-1] if matrices else (0, ())
    return length if length >= lanes and all(steps[k] == itemsize for k in (0, 1, 2, 4, 5)) else 0


def starts_of_rows_alike(form: Form, strides: Any, axes: list[Axis]) -> bool:
    """Whether all rows of x begin at the same place of a cache line."""
    steps = [strides[5][form.axis], *(steps[5] for _, steps in axes[:-1])]
    return all(step % LINE == 0 for step in steps)


def row_stride(form: Form, shape: Any, stride: Any) -> int:
    """Bytes from row to row of an operand, 0 where it is constant or not there."""
    return 0 if shape is None or shape[form.axis] == 1 else stride[form.axis]


def packed(x: Any, axes: int, empty: bool = False) -> Any:
    """An array whose last axes lie side by side: this one, or a copy, or an ``empty`` one."""
    if is_packed(x.shape, x.strides, axes, x.itemsize):
        return x
    return np.empty(x.shape, x.dtype) if empty else np.ascontiguousarray(x)


def is_packed(shape: Shape, strides: Shape, axes: int, itemsize: int) -> bool:
    """Whether the last axes of an array lie side by side."""
    lengths, steps = shape[-axes:], contiguous(shape[-axes:], itemsize)
    return all(n == 1 or s == t for n, s, t in zip(lengths, strides[-axes:], steps, strict=True))
