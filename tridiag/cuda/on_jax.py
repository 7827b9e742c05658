"""The programs of `tridiag.cuda` inside programs of XLA for GPUs: a callback that launches on XLA's buffers and stream.

Scratch memory is a result that nobody reads. Nothing else is allocated, and every kernel is compiled when JAX traces
the call; so XLA may record what a callback launches in a CUDA graph, and then runs no Python any more. JAX cannot
divide callbacks among devices as `tridiag.xla.custom_call` does its calls: sharded arrays are gathered, but in
`shard_map`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental.buffer_callback import buffer_callback

from tridiag.algorithms.matrix_rows import Matrix
from tridiag.algorithms.recurrence import Rows
from tridiag.cuda import launcher, recurrences, solution, solvers
from tridiag.cuda.record import Program
from tridiag.cuda.sequences import COEFFICIENT, INIT, OPERANDS, Y, operands_of
from tridiag.kernels.jobs.batches import contiguous
from tridiag.libraries.jax import vary_alike
from tridiag.problems.forms import Form, Recurrence

Extents = solvers.Extents


def solve(sweep: str, matrix: Matrix, d: Any, form: Form, out: Any = None) -> Any:
    a, b, c, where = matrix
    operands = a, b, c, where, d
    shapes = (*(None if x is None else tuple(x.shape) for x in operands), form.shape)
    dtypes = np.dtype(b.dtype), np.dtype(d.dtype)
    launches, program = launching(sweep, form._replace(overwrite_d=False), shapes, dtypes)
    compile_kernels(program)
    results = jax.ShapeDtypeStruct(form.shape, d.dtype), jax.ShapeDtypeStruct((program.scratch,), np.uint8)
    aliased = form.overwrite_d and d.shape == form.shape and solvers.in_place(form)
    x, _ = callback(launches, results, operands, aliased, recorded=True)
    return x


def recurrence(verb: str, coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    operands = operands_of(None, x, coefficients, init)
    y = jax.ShapeDtypeStruct(form.shape, x.dtype)
    shapes = tuple(None if v is None else tuple(v.shape) for v in (y, *operands[1:]))
    launches, program = launching_recurrence(
        verb, form, shapes, (np.dtype((*coefficients, x)[0].dtype), np.dtype(x.dtype))
    )
    compile_kernels(program)
    results = y, jax.ShapeDtypeStruct((program.scratch,), np.uint8)
    y, _ = callback(launches, results, operands, recorded=True)
    return y


def lend(function: Callable[..., None], arrays: Sequence[Any], form: Form | Recurrence, out: Any) -> Any:
    """What a function of CuPy arrays writes, on XLA's buffers; the last of them has the dtype of the result."""
    launch = lending(function, form, tuple(x is not None for x in arrays))
    (x,) = callback(launch, (jax.ShapeDtypeStruct(form.shape, arrays[-1].dtype),), arrays)
    return x


def callback(
    function: Callable[..., None], results: Any, operands: Any, aliased: bool = False, recorded: bool = False
) -> Any:
    """The results of a function of buffers. None is no operand.

    The first result may take the place of the last operand; what is launched may be recorded in a CUDA graph.
    """
    given = [x for x in operands if x is not None]
    aliases = {len(given) - 1: 0} if aliased else None
    call = buffer_callback(function, results, input_output_aliases=aliases, command_buffer_compatible=recorded)
    return vary_alike((call(*given), given))[0]


@functools.lru_cache(1024)
def launching(sweep: str, form: Form, shapes: Extents, dtypes: tuple[Any, Any]) -> tuple[Callable[..., None], Program]:
    """The launches of a solve as a function of buffers: a, b, c, perhaps a mask, d."""
    sizes = [dtypes[0].itemsize] * 3 + [1] + [dtypes[1].itemsize] * 2
    strides = tuple(shape and contiguous(shape, size) for shape, size in zip(shapes, sizes, strict=True))
    program = solution(sweep, form, shapes, strides, dtypes)

    def launch(context: Any, results: Any, *buffers: Any) -> None:
        a, b, c, *mask, d = map(address, buffers)
        x, scratch = map(address, results)
        with here(context, x):
            launcher.run(program, [a, b, c, *(mask or [0]), d, x, scratch])

    return launch, program


@functools.lru_cache(1024)
def launching_recurrence(
    verb: str, form: Recurrence, shapes: Extents, dtypes: tuple[Any, Any]
) -> tuple[Callable[..., None], Program]:
    """The launches of a recurrence as a function of buffers: x, the coefficients, what is before the first step."""
    sizes = [dtypes[0 if COEFFICIENT <= k < INIT else 1].itemsize for k in range(OPERANDS)]
    strides = tuple(shape and contiguous(shape, size) for shape, size in zip(shapes, sizes, strict=True))
    program = recurrences.program(verb, form, shapes, strides, dtypes)
    given = [k for k, shape in enumerate(shapes) if shape is not None and k != Y]

    def launch(context: Any, results: Any, *buffers: Any) -> None:
        pointers = [0] * (OPERANDS + 1)
        for k, buffer in zip((Y, OPERANDS, *given), (*results, *buffers), strict=True):
            pointers[k] = address(buffer)
        with here(context, pointers[Y]):
            launcher.run(program, pointers)

    return launch, program


@functools.lru_cache(1024)
def lending(function: Callable[..., None], form: Form | Recurrence, given: tuple[bool, ...]) -> Callable[..., None]:
    """A function of CuPy arrays, some of which may not be given, as one of buffers."""

    def launch(context: Any, results: Any, *buffers: Any) -> None:
        import cupy

        with here(context, address(results[0])):
            lent = map(cupy.asarray, buffers)
            function(tuple(next(lent) if there else None for there in given), form, cupy.asarray(results[0]))

    return launch


def address(buffer: Any) -> int:
    """Where a buffer of XLA begins."""
    pointer: int = buffer.__cuda_array_interface__["data"][0]
    return pointer


@contextlib.contextmanager
def here(context: Any, pointer: int) -> Iterator[None]:
    """CuPy's current device is that of a pointer, its current stream XLA's."""
    import cupy

    device = cupy.cuda.runtime.pointerGetAttributes(pointer).device
    with cupy.cuda.Device(device), cupy.cuda.ExternalStream(context.stream, device):
        yield


def compile_kernels(program: Program) -> None:
    """For every GPU that JAX has here: what is recorded in a CUDA graph cannot be compiled then."""
    if jax.default_backend() != "gpu":
        return
    import cupy

    for device in jax.local_devices():
        with cupy.cuda.Device(device.local_hardware_id):
            for kernel in program.kernels:
                launcher.function(kernel, device.local_hardware_id)
