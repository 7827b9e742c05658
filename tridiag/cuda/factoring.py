"""Determinants and statuses of matrices, from elimination with partial pivoting by a thread for each."""

from __future__ import annotations

from typing import Any, NamedTuple

import cupy
import numpy as np

from tridiag.cuda import instances
from tridiag.cuda.job import systems_of
from tridiag.cuda.solve import WORDS, counted, extents, jobs, launch_hard, room_for
from tridiag.rows import Matrix
from tridiag.shapes import Form


def determinants(matrix: Matrix, form: Form, values: bool) -> tuple[Any, Any, Any]:
    """The status of every matrix; where asked, the sign and the logarithm of the size of its determinant."""
    a, b, c, where = counted(matrix)
    operands, dtype = (a, b, c, where, None, None), b.dtype
    real, batch = np.zeros((), dtype).real.dtype, (form.matrices,)
    status, sign, logarithm = (cupy.empty(batch, kind) for kind in (np.dtype(np.int32), dtype, real))
    shapes, strides = extents(operands)
    # a solution in C order, which is nowhere: so the matrices are walked through in the order of the results
    shapes, strides = (*shapes[:5], form.matrix_shape), (*strides[:5], steps(form, dtype.itemsize))
    systems, done = systems_of(form._replace(shape=form.matrix_shape), shapes, strides, (dtype, dtype)), 0
    room = room_for(systems, WORDS[form.periodic])
    for job in jobs(systems, operands):
        job["status"] = status[done:].data.ptr
        if values:
            job["results"] = sign[done:].data.ptr, logarithm[done:].data.ptr
        launch_hard(instances.determinants(systems.dtype, form.periodic), job, room)
        done += systems.total
    return status.reshape(form.matrix_batch), sign.reshape(form.matrix_batch), logarithm.reshape(form.matrix_batch)


def steps(form: Form, itemsize: int) -> tuple[int, ...]:
    """The strides of the batch of matrices in C order, for every axis; 0 along the systems."""
    found, step = [0] * len(form.shape), itemsize
    for k in reversed(range(len(form.shape))):
        if k != form.axis:
            found[k], step = step, step * form.matrix_shape[k]
    return tuple(found)


class Factors(NamedTuple):
    """Only what is known of the matrices: solving anew moves 5 words an unknown, as solving from factors would."""

    status: Any


def factor(matrix: Matrix, form: Form) -> Factors:
    return Factors(determinants(matrix, form, False)[0])


def slogdet(matrix: Matrix, form: Form) -> tuple[Any, Any]:
    _, sign, logarithm = determinants(matrix, form, True)
    return sign, logarithm
