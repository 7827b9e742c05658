"""The compiled sweeps over parts of systems for NumPy arrays of any strides."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tridiag.algorithms.parts import Bands, Relations
from tridiag.kernels.jobs.parts import in_chunks, make_part_job
from tridiag.kernels.jobs.systems import granted, in_kernel_order, restored
from tridiag.kernels.jobs.words.systems import Systems
from tridiag.kernels.parts.words import RELATIONS, VALUES
from tridiag.kernels.runtime.python_call import check
from tridiag.kernels.table import Call, call_of
from tridiag.libraries.numpy import Operations
from tridiag.problems.forms import Form
from tridiag.problems.parts import Chunks

Array = np.ndarray[Any, Any]
UNUSED = (None,) * (Systems.relations.word - Systems.status.word)  # pointers between x and the relations


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
        small, x = in_chunks(form, chunks), np.empty(form.shape, d.dtype)
        call = call_for("finish", form, chunks, (*bands, d, x))
        told = np.empty((VALUES, *planes(small, d)), d.real.dtype)
        for target, value in zip(told, (e, last), strict=True):
            found = in_kernel_order(call.job, np.broadcast_to(value, small.batch), small)
            target[0], target[-1] = found.real, found.imag if d.dtype.kind == "c" else found
        check(call.run(*bands, None, d, x, *UNUSED, told))
        return x

    @staticmethod
    def put(x: Array, rows: Array, axis: int) -> Array:
        x[(slice(None),) * axis + (slice(x.shape[axis] - rows.shape[axis], None),)] = rows
        return x


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
