"""The programs of `tridiag.cuda` on PyTorch tensors, on their device and PyTorch's current stream there.

Scratch memory is PyTorch's, which knows it as of that stream; so a solve may be captured in a CUDA graph, once its
kernels have been compiled by a call before.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cupy
import numpy as np
import torch

from tridiag.algorithms.matrix_rows import Matrix
from tridiag.algorithms.recurrence import Rows
from tridiag.cuda import blocks, kalman, launcher, pairs, recurrences, solution, solvers
from tridiag.cuda.record import Program
from tridiag.cuda.sequences import operands_of
from tridiag.kernels.jobs.batches import is_packed
from tridiag.kernels.jobs.words.alignment import Rules
from tridiag.libraries.arrays import dtype_name
from tridiag.libraries.torch import settled
from tridiag.problems.forms import Blocks, Form, Recurrence
from tridiag.problems.state_space import Model, StateSpace, derivatives_of, results_of


def solve(sweep: str, matrix: Matrix, d: Any, form: Form, out: Any = None) -> Any:
    matrix, d = tuple(map(settled, matrix)), settled(d)
    x = d.new_empty(form.shape) if out is None else out
    if x.data_ptr() == d.data_ptr() and not solvers.in_place(form):
        d = d.clone()
    operands = *matrix, d, x
    run(solution(sweep, form, *extents(operands), dtypes_of(matrix[1], d)), operands, x)
    return x


def recurrence(verb: str, coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    coefficients, x, init = tuple(map(settled, coefficients)), settled(x), tuple(map(settled, init))
    y = x.new_empty(form.shape) if out is None else out
    operands = operands_of(y, x, coefficients, init)
    run(recurrences.program(verb, form, *extents(operands), dtypes_of((*coefficients, x)[0], x)), operands, y)
    return y


def determinants(matrix: Matrix, form: Form, values: bool) -> tuple[Any, Any, Any]:
    """As `tridiag.cuda.on_cupy.determinants`."""
    matrix = tuple(map(settled, matrix))
    operands, b = (*matrix, None, None), matrix[1]
    results = [b.new_empty(form.matrix_batch, dtype=kind) for kind in (torch.int32, b.dtype, b.dtype.to_real())]
    run(solvers.determinants(form, *extents(operands), *dtypes_of(b), values), operands, b, results)
    status, sign, logarithm = results
    return status, sign, logarithm


def solve_block(matrix: tuple[Any, Any, Any], d: Any, form: Blocks) -> Any:
    dtype = functools.reduce(torch.promote_types, [v.dtype for v in (*matrix, d)])
    given = [settled(v).to(dtype) for v in (d, *matrix)]
    x = given[0].new_empty(form.shape)
    run(blocks.program(form, *extents((x, *given)), *dtypes_of(x)), (x, *given), x)
    return x


def smith_waterman(scores: Any, lengths: Any, parameters: Rows, derivatives: int, rules: Rules) -> Rows:
    one_for_all, dtype = tuple([not any(x.stride()) for x in parameters]), dtype_name(scores.dtype)
    call = pairs.alignment(tuple(scores.shape), dtype, rules, derivatives, lengths is not None, one_for_all)
    given = [scores, *[lengths] * (lengths is not None)]
    given += [x.flatten()[:1] if one else x for x, one in zip(parameters, one_for_all, strict=True)]
    results = [scores.new_empty(shape) for shape in call.shapes]
    run(call.program, call.operands([settled(x).contiguous() for x in given], results), scores)
    return tuple(results)


def filtered(verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """What a verb of `tridiag.kalman` finds."""
    given = settled(y), *map(packed, model, kalman.RANKS)
    lying = [kalman.side_by_side(shape, len(form.batch)) for shape in results_of(verb, form)]
    results = [y.new_empty(one.shape).permute(one.axes) for one in lying]
    operands = kalman.operands_of(given, results)
    run(kalman.program(form, *extents(operands), dtype_name(y.dtype)), operands, y)
    return tuple(results) if len(results) > 1 else results[0]


def derivatives(y: Any, model: Model, form: StateSpace, in_y: bool) -> Any:
    """As `tridiag.cuda.on_cupy.derivatives`."""
    given = settled(y), *map(packed, model, kalman.RANKS)
    results = [y.new_empty(shape) for shape in derivatives_of(form, in_y)]
    operands = kalman.operands_of(given, results)
    run(kalman.gradient(form, *extents(operands), dtype_name(y.dtype)), operands, y)
    return tuple(results)


def packed(x: Any, rank: int) -> Any:
    """A tensor that is contiguous along so many last axes; a copy is none of what is repeated along others."""
    x, strides = settled(x), x.stride()
    return x if is_packed(x.shape, strides, rank, 1) else x[kalman.unrepeated(strides, rank)].contiguous()


def run(program: Program, operands: Sequence[Any], like: Any, results: Sequence[Any] = ()) -> None:
    """On the device of a tensor."""
    given = (None if v is None else v.data_ptr() for v in operands)
    run_at(program, like.device, *given, results=[v.data_ptr() for v in results])


def run_at(program: Program, device: torch.device, *operands: int | None, results: Sequence[int] = ()) -> bool:
    """Where the operands and the results are, on a device; whether some system is singular is not known."""
    scratch = torch.empty(program.scratch, dtype=torch.uint8, device=device)
    with here(scratch):
        launcher.run(program, [address or 0 for address in (*operands, scratch.data_ptr(), *results)])
    return True


def dtypes_of(*tensors: Any) -> tuple[Any, ...]:
    return tuple(np.dtype(dtype_name(v.dtype)) for v in tensors)


def lend(function: Callable[..., None], arrays: Sequence[Any], form: Form | Recurrence, out: Any) -> Any:
    """What a function of CuPy arrays writes, on memory of tensors; the last of them has the dtype of the result."""
    x = settled(arrays[-1]).new_empty(form.shape) if out is None else out
    with here(x):
        function(tuple(map(lent, arrays)), form, lent(x))
    return x


def lent(x: Any) -> Any:
    """A tensor's memory as a CuPy array, through DLPack."""
    if x is None:
        return None
    x = settled(x)
    # of booleans CuPy takes the bytes
    return cupy.from_dlpack(x.view(torch.uint8)).view(cupy.bool_) if x.dtype == torch.bool else cupy.from_dlpack(x)


def here(x: Any) -> contextlib.AbstractContextManager[None]:
    """CuPy's current device and stream are those of PyTorch for a tensor, as they often are already."""
    device, stream = x.device.index, torch.cuda.current_stream(x.device).cuda_stream
    if cupy.cuda.device.get_device_id() == device and cupy.cuda.get_current_stream().ptr == stream:
        return contextlib.nullcontext()
    return elsewhere(device, stream)


@contextlib.contextmanager
def elsewhere(device: int, stream: int) -> Iterator[None]:
    """CuPy's current device and stream are these."""
    with cupy.cuda.Device(device), cupy.cuda.ExternalStream(stream, device):
        yield


def extents(operands: Sequence[Any]) -> tuple[Any, Any]:
    """The shapes and the strides in bytes; None: not there."""
    return (
        tuple(None if x is None else tuple(x.shape) for x in operands),
        tuple(None if x is None else tuple(step * x.element_size() for step in x.stride()) for x in operands),
    )
