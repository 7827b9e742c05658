"""Thomas elimination in Pallas, compiled by Mosaic GPU: a thread for each system, O(8n) flops, certified row by row.

Needs JAX 0.10 or newer with its CUDA plugin, absl-py, and a GPU of the Hopper generation or newer.

Arrays are (outer, n, inner), see `Job`. A block is 128 threads; rows are taken `ROWS` at a time, and while some are
eliminated the next ones are on their way from memory. What both sweeps need stays in shared memory where it fits, and
then five words move for each unknown; else it goes through memory, and nine move. Where the rows of a system lie side
by side (inner = 1), tiles of them pass through shared memory, so that the threads read what lies side by side too.
There are no masked loads: the last block begins early enough to end with the array, and solves some systems again.

"auto" and True: systems without certificate are solved by `jax_scan`, behind a `lax.cond`.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental.pallas import mosaic_gpu as plgpu

from tridiag.algorithms.matrix_rows import Matrix, bands
from tridiag.backends import jax_scan
from tridiag.kernels.pallas import access
from tridiag.kernels.pallas.job import ROWS, THREADS, Job, lanes_of, odd
from tridiag.kernels.pallas.thomas import kernel
from tridiag.libraries.jax import Operations as ops
from tridiag.libraries.jax import vary_alike
from tridiag.problems.forms import Form, Shape

RENAMED = inspect.signature(plgpu.kernel).parameters.keys() >= {"out_type", "scratch_types"}  # as of JAX 0.10


def interpreter() -> Any:
    """The parameters with which JAX interprets a kernel for GPUs; public as of JAX 0.11."""
    if not access.INTERPRET:
        return None
    if not hasattr(plgpu, "InterpretGPUParams"):
        from jax._src.pallas.mosaic_gpu.interpret import params as plgpu_params

        return plgpu_params.InterpretGPUParams()
    return plgpu.InterpretGPUParams()


def memories(job: Job) -> tuple[list[Any], list[Any]]:
    """Results of a kernel, and its shared memory: x, the soundness; c' and d' in one of them; tiles."""
    outer, n, inner = job.shape

    def result(shape: Shape, dtype: Any = job.dtype) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype)

    results = [result((outer, n) if job.together else job.shape), result((outer, inner), jnp.int32)]
    kept = (THREADS, odd(n)) if job.together else (n, *job.lanes)
    if not job.on_chip:
        results += [result((math.prod(job.grid), n, *job.lanes))] * 2
    shapes = [kept] * 2 if job.on_chip else []
    if job.together:
        shapes += [(THREADS, odd(ROWS))] * (2 if job.on_chip else 4)
    return results, [plgpu.SMEM(shape, jnp.dtype(job.dtype)) for shape in shapes]


def run(job: Job, operands: Sequence[Any]) -> tuple[Any, Any]:
    """x, and 1 for each system that is sound."""
    names = ("out_type", "scratch_types") if RENAMED else ("out_shape", "scratch_shapes")
    call = plgpu.kernel(
        functools.partial(kernel, job),
        **dict(zip(names, memories(job), strict=True)),
        grid=(math.prod(job.grid),),
        grid_names=("block",),
        compiler_params=plgpu.CompilerParams(
            unsafe_no_auto_barriers=True,  # threads share tiles only, and those behind barriers of their own
            lowering_semantics=plgpu.LoweringSemantics.Lane,  # layouts are said here; to infer them takes seconds
        ),
        interpret=interpreter(),
        kernel_name="tridiag_thomas",
    )
    x, status, *_ = call(*operands)
    return tuple(vary_alike((x, status, *operands))[:2])  # Pallas does not know of the axes of `shard_map`


def normal(x: Any, form: Form) -> Any:
    """The array as (outer, n, inner), each of full length or 1."""
    shape, axis = list(x.shape), form.axis
    for part in (slice(axis), slice(axis + 1, None)):
        if math.prod(shape[part]) != 1:
            shape[part] = form.shape[part]
    x = jnp.broadcast_to(x, shape)
    return x.reshape(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))


def fitted(x: Any, job: Job, fill: int) -> Any:
    """An operand as the kernel takes it: no fewer systems than a block has, and shared along both axes or none."""
    outer, _, inner = job.shape
    if job.outer_lanes > 1 and not job.together and (x.shape[0], x.shape[2]) != (1, 1):
        x = jnp.broadcast_to(x, (x.shape[0] if x.shape[0] > 1 else outer, x.shape[1], inner))
    if 1 < x.shape[0] < outer:
        x = jnp.pad(x, ((0, outer - x.shape[0]), (0, 0), (0, 0)), constant_values=fill)
    return x[..., 0] if job.together else x


def thomas(matrix: Matrix, d: Any, form: Form) -> tuple[Any, Any]:
    """Plain elimination: x, and which systems are sound."""
    where = matrix[3]
    *entries, turned = *matrix[:3], form.transpose
    if where is not None:
        *entries, turned = *bands(ops, matrix, form), False
        d = jnp.where(where, d, 0)
    operands = [normal(x, form) for x in (*entries, jnp.broadcast_to(d, form.shape))]
    outer, n, inner = operands[3].shape
    outer_lanes, inner_lanes = lanes_of(outer, inner)
    shape = max(outer, outer_lanes), n, inner
    job = Job(shape, outer_lanes, inner_lanes, d.dtype.name, turned, form.pivoting is not False, where is not None)
    x, status = run(job, [fitted(x, job, int(k == 1)) for k, x in enumerate(operands)])
    return x[:outer].reshape(form.shape), status[:outer].reshape(form.batch) != 0


def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Any = None) -> tuple[Any, Any]:
    x, certified = thomas(matrix, d, form)
    if form.pivoting is False:
        return x, None

    def harder(x: Any) -> Any:
        pivoted, _ = jax_scan.solve(matrix, d, form._replace(pivoting=True))
        return jnp.where(jnp.expand_dims(certified, form.axis), x, pivoted)

    return lax.cond(jnp.all(certified), lambda x: x, harder, x), None
