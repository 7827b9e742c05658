"""The compiled sweeps over parts of systems for NumPy arrays of any strides."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tridiag.algorithms.parts import Bands, Known, Relations
from tridiag.kernels.jobs.parts import in_chunks, make_part_job
from tridiag.kernels.jobs.systems import granted, in_kernel_order, restored
from tridiag.kernels.jobs.words.systems import Systems
from tridiag.kernels.parts.words import RELATIONS
from tridiag.kernels.runtime.python_call import check
from tridiag.kernels.table import Call, call_of
from tridiag.libraries.numpy import Operations
from tridiag.problems.forms import Form
from tridiag.problems.parts import Chunks

Array = np.ndarray[Any, Any]
BEFORE, BEHIND = (  # pointers between x and what is told, beside that of the judged
    (None,) * (Systems.certificates.word - Systems.status.word),
    (None,) * (Systems.relations.word - Systems.certificates.word - 1),
)
UNUSED = (*BEFORE, None, *BEHIND)


class Kernels:
    """`tridiag.algorithms.parts.Sweeps` for NumPy arrays."""

    ops = Operations

    @staticmethod
    def dtype(d: Array) -> Any:
        return d.dtype

    @staticmethod
    def reduce(form: Form, chunks: Chunks, bands: Bands, d: Array) -> Relations:
        small, like = in_chunks(form, chunks), np.broadcast_to(d[(slice(0, 1),) * d.ndim], form.shape)
        call = call_for("reduce", form, chunks, (*bands, d, like))
        told = np.empty((RELATIONS, *planes(small, d)), d.real.dtype)
        check(call.run(*bands, None, d, None, *UNUSED, told))
        return Relations(*(restored(call.job, x, small) for x in whole(told, d)))

    @staticmethod
    def finish(form: Form, chunks: Chunks, bands: Bands, d: Array, e: Array, last: Array) -> Array:
        x = np.empty(form.shape, d.dtype)
        call, told = ready_to_finish(form, chunks, (*bands, d, x), (e, last))
        check(call.run(*bands, None, d, x, *UNUSED, told))
        return x

    @staticmethod
    def finish_judged(form: Form, chunks: Chunks, bands: Bands, d: Array, known: Known) -> tuple[Array, Array]:
        x = np.empty(form.shape, d.dtype)
        call, told = ready_to_finish(form, chunks, (*bands, d, x), (known.e, known.last, known.f, known.first))
        good = np.empty(told.shape[-1], told.dtype)
        check(call.run(*bands, None, d, x, *BEFORE, good, *BEHIND, told))
        return x, restored(call.job, good, in_chunks(form, chunks)) > 0

    @staticmethod
    def put(x: Array, rows: Array, first: int, axis: int) -> Array:
        x[(slice(None),) * axis + (slice(first, first + rows.shape[axis]),)] = rows
        return x


def ready_to_finish(form: Form, chunks: Chunks, arrays: Any, values: tuple[Array, ...]) -> tuple[Call, Array]:
    """The kernel, and its words about what is known: real numbers of each."""
    small, d = in_chunks(form, chunks), arrays[3]
    call = call_for("finish", form, chunks, arrays)
    told = np.empty((len(values), *planes(small, d)), d.real.dtype)
    for target, value in zip(told, values, strict=True):
        found = in_kernel_order(call.job, np.broadcast_to(value, small.batch), small)
        target[0], target[-1] = found.real, found.imag if d.dtype.kind == "c" else found
    return call, told


def call_for(kind: str, form: Form, chunks: Chunks, arrays: tuple[Array, ...]) -> Call:
    """The kernel for the chunks of a, b, c, d and x."""
    shapes, strides = tuple(x.shape for x in arrays), tuple(x.strides for x in arrays)
    return call_of(make_part_job, kind, form, chunks, shapes, strides, arrays[3].dtype, granted(form))


def planes(small: Form, d: Array) -> tuple[int, int]:
    """Real numbers of a number, and chunks."""
    return 1 + (d.dtype.kind == "c"), math.prod(small.batch)


def whole(told: Array, d: Array) -> Array:
    """Numbers of parts from real ones."""
    return told[:, 0] if d.dtype.kind != "c" else told.transpose(0, 2, 1).copy().view(d.dtype)[..., 0]
