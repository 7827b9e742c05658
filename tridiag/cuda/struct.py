"""The struct that every kernel takes (`systems.cu`: Job) as 64-bit words, from shapes and strides alone; pure.

All batch axes are alike to a kernel: where the matrix is shared its strides are 0, and its rows come from the caches.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag.kernels.jobs.batches import Axis, merge
from tridiag.kernels.jobs.systems import in_pairs
from tridiag.problems.forms import Form

OPERANDS, WHERE = 6, 3  # a, b, c, where, d, x
RANK = 4  # the batch axes that a kernel walks through, after neighbours have been merged
FIELDS = (
    ("operand", OPERANDS),
    ("kept", 1),
    ("doubtful", 1),
    ("status", 1),
    ("results", 2),
    ("n", 1),
    ("systems", 1),
    ("width", 1),
    ("count", 1),
    ("magic", 1),
    ("transpose", 1),
    ("periodic", 1),
    ("refine", 1),
    ("stretch", 1),
    ("row", OPERANDS),
    ("length", RANK),
    ("step", RANK * OPERANDS),
)
TYPES = {"float32": "float", "float64": "double", "complex64": "Complex<float>", "complex128": "Complex<double>"}


class Layout(NamedTuple):
    """Of a struct: its words, how many of them are pointers, which come first, and how many arrays are its operands."""

    job: np.dtype[Any]
    pointers: int
    operands: int


def layout(fields: Sequence[tuple[str, int]], pointers: Sequence[str], operands: int) -> Layout:
    """From the fields in their order, so many words each, and the names of the pointers."""
    counts = dict(fields)
    job = np.dtype([(name, np.int64, () if count == 1 else (count,)) for name, count in fields])
    return Layout(job, sum(counts[name] for name in pointers), operands)


SYSTEMS = layout(FIELDS, ("operand", "kept", "doubtful", "status", "results"), OPERANDS)


class Systems(NamedTuple):
    """Where systems lie: the struct, its pointers zero; the axes that the host walks through, outermost first."""

    job: np.ndarray[Any, Any]
    outer: tuple[Axis, ...]  # steps in bytes
    together: bool  # whether the rows of a system lie side by side
    dtype: str  # of the matrix, and of right sides but for complex ones of real matrices, which are pairs

    @property
    def n(self) -> int:
        return int(self.job["n"])

    @property
    def total(self) -> int:
        return int(self.job["systems"])


@functools.lru_cache(1024)
def systems_of(form: Form, shapes: Any, strides: Any, dtypes: tuple[Any, Any]) -> Systems:
    """The systems of a call, from the shapes and the strides in bytes of a, b, c, where, d, x (None: not there).

    The dtypes are those of the matrices and of the right sides.
    """
    dtype, right = dtypes
    if right.kind == "c" and dtype.kind != "c":
        form, shapes, strides = in_pairs(form, shapes, strides, dtype.itemsize)
    sizes = [1 if k == 3 else dtype.itemsize for k in range(OPERANDS)]
    axes = batch_axes(form, shapes, strides)
    outer, inner = axes[: max(0, len(axes) - RANK)], axes[-RANK:]
    job = np.zeros((), SYSTEMS.job)
    job["n"], job["systems"] = form.n, math.prod(length for length, _ in inner)
    job["transpose"], job["periodic"] = form.transpose, form.periodic
    job["magic"] = 2**32 // form.n + 1
    for k, (shape, stride) in enumerate(zip(shapes, strides, strict=True)):
        job["row"][k] = 0 if shape is None or shape[form.axis] == 1 else stride[form.axis] // sizes[k]
    job["length"] = 1
    for k, (length, steps) in enumerate(inner, RANK - len(inner)):
        job["length"][k] = length
        job["step"].reshape(RANK, OPERANDS)[k] = [step // size for step, size in zip(steps, sizes, strict=True)]
    job["stretch"] = is_stretch(job)
    job.flags.writeable = False
    return Systems(job, tuple(outer), bool(form.n == 1 or abs(job["row"][5]) == 1), dtype.name)


def is_stretch(job: np.ndarray[Any, Any]) -> bool:
    """Whether all operands but the mask are one stretch of memory each, one system after the other."""
    numbers = [k for k in range(OPERANDS) if k != WHERE]
    steps = job["step"].reshape(RANK, OPERANDS)[-1, numbers]
    one_axis = job["length"][-1] == job["systems"] and bool((steps == job["n"]).all())
    return bool((job["row"][numbers] == 1).all()) and (one_axis or job["systems"] == 1)


def steps_along(axis: int, shapes: Sequence[Any], strides: Sequence[Any]) -> tuple[int, ...]:
    """The strides of operands along an axis: 0 where they are constant, or not there."""
    return tuple(0 if s is None or s[axis] == 1 else t[axis] for s, t in zip(shapes, strides, strict=True))


def batch_axes(form: Form, shapes: Sequence[Any], strides: Sequence[Any]) -> list[Axis]:
    """The batch axes, merged where they can be; the systems of the last one lie closest to each other."""

    def steps(k: int) -> tuple[int, ...]:
        return steps_along(k, shapes, strides)

    axes = [k for k, length in enumerate(form.shape) if k != form.axis and length != 1]
    return merge([(form.shape[k], steps(k)) for k in sorted(axes, key=lambda k: -sum(map(abs, steps(k)[4:])))])
