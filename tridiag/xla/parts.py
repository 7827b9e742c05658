"""Parts of systems on CPU devices of JAX: the kernels of `tridiag.kernels.parts` as custom calls."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tridiag.algorithms.parts import Bands, Known, Relations
from tridiag.kernels.jobs.batches import contiguous
from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.parts import in_chunks, make_part_job
from tridiag.kernels.jobs.systems import granted, in_kernel_order, restored
from tridiag.kernels.jobs.words.job import POINTERS
from tridiag.kernels.jobs.words.systems import A_, B_, C_, D_, X_, Systems
from tridiag.kernels.parts.words import RELATIONS
from tridiag.libraries.jax import Operations
from tridiag.problems.forms import Form
from tridiag.problems.parts import Chunks
from tridiag.xla.custom_call import custom_call

PLACES = [POINTERS + k for k in (A_, B_, C_, D_)]


class CustomCalls:
    """`tridiag.algorithms.parts.Sweeps` for JAX arrays on CPU."""

    ops = Operations

    @staticmethod
    def dtype(d: Any) -> Any:
        return np.dtype(d.dtype)

    @staticmethod
    def reduce(form: Form, chunks: Chunks, bands: Bands, d: Any) -> Relations:
        job, small = job_of("reduce", form, chunks, bands, d), in_chunks(form, chunks)
        kind = jax.typeof(d).update(shape=told_shape(RELATIONS, small, d), dtype=real_of(d))
        (found,) = custom_call(job, operands(bands, d), {Systems.relations.word: kind})
        return Relations(*(from_told(x, job, small, d) for x in found))

    @staticmethod
    def finish(form: Form, chunks: Chunks, bands: Bands, d: Any, e: Any, last: Any) -> Any:
        job, given, result = ready_to_finish(form, chunks, bands, d, (e, last))
        return custom_call(job, given, result)[0]

    @staticmethod
    def finish_judged(form: Form, chunks: Chunks, bands: Bands, d: Any, known: Known) -> tuple[Any, Any]:
        values = known.e, known.last, known.f, known.first
        job, given, results = ready_to_finish(form, chunks, bands, d, values)
        kind = jax.typeof(d).update(shape=given[Systems.relations.word].shape[-1:], dtype=real_of(d))
        x, good = custom_call(job, given, results | {Systems.certificates.word: kind})
        return x, restored(job, good, in_chunks(form, chunks)) > 0

    @staticmethod
    def put(x: Any, rows: Any, first: int, axis: int) -> Any:
        return lax.dynamic_update_slice_in_dim(x, rows, first, axis)


def ready_to_finish(form: Form, chunks: Chunks, bands: Bands, d: Any, values: tuple[Any, ...]) -> tuple[Job, Any, Any]:
    """The job, its operands by their words, and what it returns first."""
    job, small = job_of("finish", form, chunks, bands, d), in_chunks(form, chunks)
    told = jnp.stack([to_told(x, job, small, d) for x in values])
    return (
        job,
        operands(bands, d) | {Systems.relations.word: told},
        {POINTERS + X_: jax.typeof(d).update(shape=form.shape)},
    )


def job_of(kind: str, form: Form, chunks: Chunks, bands: Bands, d: Any) -> Job:
    dtype, shapes = np.dtype(d.dtype), (*(tuple(x.shape) for x in (*bands, d)), form.shape)
    strides = tuple(contiguous(shape, dtype.itemsize) for shape in shapes)
    return make_part_job(kind, form, chunks, shapes, strides, dtype, granted(form))


def operands(bands: Bands, d: Any) -> dict[int, Any]:
    return dict(zip(PLACES, (*bands, d), strict=True))


def real_of(d: Any) -> Any:
    return np.dtype(d.dtype).type(0).real.dtype


def told_shape(count: int, small: Form, d: Any) -> tuple[int, ...]:
    """(count, real numbers of a number, parts)."""
    return count, 2 if np.dtype(d.dtype).kind == "c" else 1, math.prod(small.batch)


def from_told(x: Any, job: Job, small: Form, d: Any) -> Any:
    """One number of each chunk, from the order of the kernel: an axis of chunks in place of that of rows."""
    return restored(job, lax.complex(x[0], x[1]) if np.dtype(d.dtype).kind == "c" else x[0], small)


def to_told(x: Any, job: Job, small: Form, d: Any) -> Any:
    """The inverse."""
    x = in_kernel_order(job, x, small)
    return jnp.stack([x.real, x.imag]) if np.dtype(d.dtype).kind == "c" else x[None]
