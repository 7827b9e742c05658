"""Products of tridiagonal matrices with NumPy arrays, a block at a time: every operand is read once from memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tridiag.problems.forms import Form

BLOCK = 2**15  # entries; what is computed in between stays in cache

Array = np.ndarray[Any, Any]


def multiply(a: Array, b: Array, c: Array, x: Array, form: Form) -> Array:
    """A x or A^T x; the terms of a row are added in the order of `matrix_rows.multiply`."""
    y = np.empty(form.shape, np.result_type(a, b, c, x))
    for axis, first, last in blocks(form):
        if axis == form.axis:
            add_rows(a, b, c, x, y, form, first, last)
        else:
            of_a, of_b, of_c, of_x, of_y = (part(v, axis, first, last) for v in (a, b, c, x, y))
            add_rows(of_a, of_b, of_c, of_x, of_y, form, 0, form.n)
    return y


def blocks(form: Form) -> Iterator[tuple[int, int, int]]:
    """An axis, and what is taken of it at a time: the longest one of the batch, or the rows of few systems."""
    axis = max(range(len(form.shape)), key=lambda k: (k != form.axis) * form.shape[k])
    if form.shape[axis] < form.n // BLOCK:
        axis = form.axis
    length = form.shape[axis]
    step = max(1, BLOCK * length // math.prod(form.shape))
    return ((axis, first, min(first + step, length)) for first in range(0, length, step))


def part(x: Array, axis: int, first: int, last: int) -> Array:
    """Some of an axis; all of one along which x is constant."""
    return x if x.shape[axis] == 1 else x[(slice(None),) * axis + (slice(first, last),)]


def add_rows(a: Array, b: Array, c: Array, x: Array, y: Array, form: Form, first: int, last: int) -> None:
    """Rows first <= i < last of y."""
    n, axis = form.n, form.axis
    below, above = (c, a) if form.transpose else (a, c)

    def add(band: Array, i: int, j: int, by: int) -> None:
        """The terms of rows i <= k < j with x[k + by]; of a transposed matrix they come from the rows of these."""
        if i < j:
            target, turned = part(y, axis, i, j), by * form.transpose
            target += part(band, axis, i + turned, j + turned) * part(x, axis, i + by, j + by)

    np.multiply(part(b, axis, first, last), part(x, axis, first, last), out=part(y, axis, first, last))
    if form.periodic and first == 0:
        add(below, 0, 1, n - 1)
    add(below, max(first, 1), last, -1)
    add(above, first, min(last, n - 1), 1)
    if form.periodic and last == n:
        add(above, n - 1, n, 1 - n)
