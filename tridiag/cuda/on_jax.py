"""The programs of `tridiag.cuda` inside programs of XLA for GPUs: custom calls that launch on XLA's buffers and stream.

Their handler is compiled code (`tridiag.cuda.custom_call`). Where there can be none a callback to Python launches, as
it does what functions of CuPy arrays do. Scratch memory is a result that nobody reads. Nothing else is allocated, and
every kernel is compiled when JAX traces the call; so XLA may record what either launches in a CUDA graph. JAX cannot
divide these calls among devices as `tridiag.xla.custom_call` does: sharded arrays are gathered, but in `shard_map`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental.buffer_callback import buffer_callback

from tridiag.algorithms.matrix_rows import Matrix
from tridiag.algorithms.recurrence import Rows
from tridiag.cuda import blocks, custom_call, kalman, launcher, pairs, recurrences, sequences, solution, solvers, struct
from tridiag.cuda.record import LOGARITHM, SIGN, STATUS, Launch, Program
from tridiag.cuda.sequences import COEFFICIENT, INIT, operands_of
from tridiag.kernels.jobs.batches import contiguous
from tridiag.kernels.jobs.words.alignment import Rules
from tridiag.libraries.jax import vary_alike
from tridiag.problems.forms import Blocks, Form, Recurrence
from tridiag.problems.state_space import Model, StateSpace, derivatives_of, results_of

Extents = solvers.Extents


class Call(NamedTuple):
    """A program, and which of its arrays each operand is, then which each result is, and scratch memory."""

    program: Program
    places: tuple[int, ...]


def solve(sweep: str, matrix: Matrix, d: Any, form: Form, out: Any = None) -> Any:
    a, b, c, where = matrix
    operands = a, b, c, where, d
    shapes = (*(None if x is None else tuple(x.shape) for x in operands), form.shape)
    call = call_of_solve(sweep, form._replace(overwrite_d=False), shapes, (np.dtype(b.dtype), np.dtype(d.dtype)))
    aliased = form.overwrite_d and d.shape == form.shape and solvers.in_place(form)
    return launched(call, operands, [jax.ShapeDtypeStruct(form.shape, d.dtype)], aliased)[0]


def recurrence(verb: str, coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    operands = operands_of(None, x, coefficients, init)
    shapes = tuple(None if v is None else tuple(v.shape) for v in operands)
    dtypes = np.dtype((*coefficients, x)[0].dtype), np.dtype(x.dtype)
    call = call_of_recurrence(verb, form, (form.shape, *shapes[1:]), dtypes)
    return launched(call, operands, [jax.ShapeDtypeStruct(form.shape, x.dtype)])[0]


def determinants(matrix: Matrix, form: Form, values: bool) -> tuple[Any, ...]:
    """As `tridiag.cuda.on_cupy.determinants`; without ``values`` the status alone."""
    dtype, shapes = np.dtype(matrix[1].dtype), tuple(None if x is None else tuple(x.shape) for x in matrix)
    kinds = (np.dtype(np.int32), dtype, np.zeros((), dtype).real.dtype)[: None if values else 1]
    results = [jax.ShapeDtypeStruct(form.matrix_batch, kind) for kind in kinds]
    return launched(call_of_determinants(form, shapes, dtype, values), matrix, results)


def solve_block(matrix: tuple[Any, Any, Any], d: Any, form: Blocks) -> Any:
    operands = [d, *(x.astype(d.dtype) for x in matrix)]
    call = call_of_blocks(form, (form.shape, *(tuple(x.shape) for x in operands)), np.dtype(d.dtype))
    return launched(call, operands, [jax.ShapeDtypeStruct(form.shape, d.dtype)])[0]


def smith_waterman(scores: Any, lengths: Any, parameters: Rows, derivatives: int, rules: Rules) -> Rows:
    facts = scores.shape, scores.dtype.name, rules, derivatives, lengths is not None
    call = pairs.alignment(*facts, (False,) * len(parameters))
    given = [scores, *[lengths] * (lengths is not None), *parameters]
    results = [jax.ShapeDtypeStruct(shape, scores.dtype) for shape in call.shapes]
    return launched(Call(call.program, (*call.given, *call.results, pairs.OPERANDS)), given, results)


def filtered(verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """What a verb of `tridiag.kalman` finds."""
    lying = tuple(kalman.side_by_side(shape, len(form.batch)) for shape in results_of(verb, form))
    found = of_series(kalman.program, lying, y, model, form)
    return found if len(found) > 1 else found[0]


def derivatives(y: Any, model: Model, form: StateSpace, in_y: bool) -> Any:
    """As `tridiag.cuda.on_cupy.derivatives`."""
    lying = tuple(kalman.as_it_is(shape) for shape in derivatives_of(form, in_y))
    return of_series(kalman.gradient, lying, y, model, form)


def of_series(
    make: Callable[..., Program], lying: tuple[kalman.Lying, ...], y: Any, model: Model, form: StateSpace
) -> Any:
    """What a program of series finds, in arrays that lie so."""
    call = call_of_series(make, form, tuple(tuple(x.shape) for x in (y, *model)), lying, np.dtype(y.dtype))
    found = launched(call, (y, *model), [jax.ShapeDtypeStruct(one.shape, y.dtype) for one in lying])
    return tuple(x.transpose(one.axes) for x, one in zip(found, lying, strict=True))


@functools.lru_cache(1024)
def call_of_solve(sweep: str, form: Form, shapes: Extents, dtypes: tuple[Any, Any]) -> Call:
    """Of a, b, c, perhaps a mask, d."""
    sizes = [dtypes[0].itemsize] * 3 + [1] + [dtypes[1].itemsize] * 2
    program = solution(sweep, form, shapes, strides_of(shapes, sizes), dtypes)
    given = [k for k, shape in enumerate(shapes[:-1]) if shape is not None]
    return Call(program, (*given, struct.OPERANDS - 1, struct.OPERANDS))


@functools.lru_cache(1024)
def call_of_determinants(form: Form, shapes: Extents, dtype: Any, values: bool) -> Call:
    """Of a, b, c, perhaps a mask."""
    strides = strides_of(shapes, [dtype.itemsize] * 3 + [1])
    program = solvers.determinants(form, (*shapes, None, None), (*strides, None, None), dtype, values)
    given = [k for k, shape in enumerate(shapes) if shape is not None]
    return Call(program, (*given, STATUS, *((SIGN, LOGARITHM) if values else ()), struct.OPERANDS))


@functools.lru_cache(1024)
def call_of_blocks(form: Blocks, shapes: Extents, dtype: Any) -> Call:
    """Of d, A, B, C."""
    program = blocks.program(form, shapes, strides_of(shapes, [dtype.itemsize] * blocks.OPERANDS), dtype)
    return Call(program, (blocks.RIGHT, blocks.BELOW, blocks.OWN, blocks.ABOVE, blocks.X, blocks.OPERANDS))


@functools.lru_cache(1024)
def call_of_recurrence(verb: str, form: Recurrence, shapes: Extents, dtypes: tuple[Any, Any]) -> Call:
    """Of x, the coefficients, what is before the first step."""
    sizes = [dtypes[0 if COEFFICIENT <= k < INIT else 1].itemsize for k in range(sequences.OPERANDS)]
    program = recurrences.program(verb, form, shapes, strides_of(shapes, sizes), dtypes)
    given = [k for k, shape in enumerate(shapes) if shape is not None and k != sequences.Y]
    return Call(program, (*given, sequences.Y, sequences.OPERANDS))


@functools.lru_cache(1024)
def call_of_series(
    make: Callable[..., Program], form: StateSpace, shapes: Extents, lying: tuple[kalman.Lying, ...], dtype: Any
) -> Call:
    """Of y and the model."""
    given = strides_of(shapes, [dtype.itemsize] * len(shapes))
    strides = kalman.operands_of(given, [one.strides(dtype.itemsize) for one in lying])
    program = make(form, kalman.operands_of(shapes, [one.result for one in lying]), strides, dtype.name)
    numbers = kalman.operands_of(range(len(shapes)), range(len(shapes), len(shapes) + len(lying)))
    places = sorted((number, k) for k, number in enumerate(numbers) if number is not None)
    return Call(program, (*(k for _, k in places), kalman.OPERANDS))


def strides_of(shapes: Extents, sizes: Sequence[int]) -> Extents:
    """As XLA lays arrays out."""
    return tuple(shape and contiguous(shape, size) for shape, size in zip(shapes, sizes, strict=True))


def launched(call: Call, operands: Sequence[Any], results: Sequence[Any], aliased: bool = False) -> tuple[Any, ...]:
    """The results of a program, the first of which may take the place of the last operand. None is no operand."""
    program = call.program
    results = (*results, jax.ShapeDtypeStruct((program.scratch,), np.uint8))
    if (target := custom_call.target()) is None:
        custom_call.load(step for step in program.steps if isinstance(step, Launch))
        return tuple(callback(launching(call), results, operands, aliased, recorded=True)[:-1])
    given = vary_alike([x for x in operands if x is not None])
    kinds = tuple(jax.typeof(given[-1]).update(shape=x.shape, dtype=x.dtype) for x in results)
    run = jax.ffi.ffi_call(target, kinds, input_output_aliases={len(given) - 1: 0} if aliased else None)
    return tuple(run(*given, program=custom_call.attribute(program, call.places, len(results)))[:-1])


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
def launching(call: Call) -> Callable[..., None]:
    """The launches of a program as a function of buffers."""

    def launch(context: Any, results: Any, *buffers: Any) -> None:
        pointers = [0] * (max(call.places) + 1)
        for k, buffer in zip(call.places, (*buffers, *results), strict=True):
            pointers[k] = address(buffer)
        with here(context, address(results[0])):
            launcher.run(call.program, pointers)

    return launch


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
