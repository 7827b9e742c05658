"""What the backends on NVIDIA's cuSPARSE share: systems as it wants them, its calls through CuPy, solutions taken back.

cuSPARSE takes whole diagonals of at least three rows, whose two entries outside the matrix are exact zeros, and
replaces the right side (some routines the diagonals too) by what it computes. So everything is copied. What it gives
for a singular matrix is not finite: such a system is NaN throughout. It has neither certificate nor refinement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cupy
from cupy_backends.cuda.libs import cusparse as library

from tridiag.algorithms.matrix_rows import Matrix, bands
from tridiag.libraries.cupy import Operations as ops
from tridiag.problems.forms import Form, Shape

FEWEST = 3  # rows that the routines take
PREFIXES = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
IDENTITY = (0, 1, 0, 0)  # the entries of a row that is added: a, b, c, d


class Systems(NamedTuple):
    """At least three rows. Every array broadcasts to ``shape``, the diagonals to ``matrix_shape``."""

    diagonals: tuple[Any, Any, Any]
    right: Any
    shape: Shape
    matrix_shape: Shape
    axis: int

    @property
    def n(self) -> int:
        return self.shape[self.axis]


def solve(routine: Callable[[Systems], Any], matrix: Matrix, d: Any, form: Form, out: Any) -> tuple[Any, Any]:
    """``routine`` gives the solution of systems in their shape."""
    x = ops.slice(routine(systems(matrix, d, form)), slice(form.n), form.axis)
    x = cupy.where(cupy.isfinite(x).all(axis=form.axis, keepdims=True), x, cupy.nan)
    if matrix[3] is not None:
        x = cupy.where(matrix[3], x, 0)
    if out is not None:
        out[...] = x
    return (x if out is None else out), None


def systems(matrix: Matrix, d: Any, form: Form) -> Systems:
    """Masked, transposed, and with rows of the identity at the end where there are less than three."""
    if matrix[3] is not None:
        d = cupy.where(matrix[3], d, 0)
    missing = max(0, FEWEST - form.n)
    parts = (ops.stretch(part, form.n, form.axis) for part in (*bands(ops, matrix, form), d))
    a, b, c, d = (longer(part, missing, form.axis, value) for part, value in zip(parts, IDENTITY, strict=True))
    shape, matrix_shape = (
        (*full[: form.axis], form.n + missing, *full[form.axis + 1 :]) for full in (form.shape, form.matrix_shape)
    )
    return Systems((a, b, c), d, shape, matrix_shape, form.axis)


def longer(part: Any, rows: int, axis: int, value: int) -> Any:
    """With rows of that value at the end."""
    if rows == 0:
        return part
    shape = (*part.shape[:axis], rows, *part.shape[axis + 1 :])
    return cupy.concatenate((part, cupy.full(shape, value, part.dtype)), axis=axis)


def copied(part: Any, shape: Shape, order: Sequence[int], dtype: Any) -> Any:
    """A contiguous copy of that shape, its axes in that order."""
    copy = cupy.empty([shape[k] for k in order], dtype)
    copy[...] = cupy.transpose(part, order)
    return copy


def restored(x: Any, shape: Shape, order: Sequence[int]) -> Any:
    """The axes of a solution in the order of ``shape`` again."""
    return cupy.transpose(x.reshape([shape[k] for k in order]), sorted(range(len(order)), key=lambda k: order[k]))


def call(routine: str, before: tuple[int, ...], arrays: Sequence[Any], after: tuple[int, ...]) -> None:
    """Run a routine on CuPy's current stream: sizes, the arrays, sizes; with memory from CuPy's pool."""
    name = PREFIXES[arrays[-1].dtype.name] + routine
    handle = cupy.cuda.device.get_cusparse_handle()
    arguments = handle, *before, *(x.data.ptr for x in arrays), *after
    buffer = cupy.empty(getattr(library, f"{name}_bufferSizeExt")(*arguments), cupy.uint8)
    getattr(library, name)(*arguments, buffer.data.ptr)
