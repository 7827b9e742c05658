"""The programs of `tridiag.cuda` on CuPy arrays, on the current device and stream; scratch memory is CuPy's pool's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cupy
import numpy as np

from tridiag.algorithms.matrix_rows import Matrix
from tridiag.algorithms.recurrence import Rows
from tridiag.cuda import blocks, kalman, launcher, pairs, recurrences, solution, solvers
from tridiag.cuda.record import Program
from tridiag.cuda.sequences import operands_of
from tridiag.kernels.jobs.batches import is_packed
from tridiag.kernels.jobs.words.alignment import Rules
from tridiag.problems.forms import Blocks, Form, Recurrence
from tridiag.problems.state_space import Model, StateSpace, derivatives_of, results_of


def solve(sweep: str, matrix: Matrix, d: Any, form: Form, out: Any = None) -> Any:
    itemsize = matrix[1].dtype.itemsize
    x = out if out is not None and counts(out, itemsize) else cupy.empty(form.shape, d.dtype)
    if not counts(d, itemsize) or (x.data.ptr == d.data.ptr and not solvers.in_place(form)):
        d = d.copy()
    operands = *counted(matrix), d, x
    run(solution(sweep, form, *extents(operands), (matrix[1].dtype, d.dtype)), operands)
    return x


def recurrence(verb: str, coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    dtypes = coefficients[0].dtype if coefficients else x.dtype, x.dtype
    itemsize = dtypes[0].itemsize
    y = out if out is not None and counts(out, itemsize) else cupy.empty(form.shape, x.dtype)
    given = (tuple(v if counts(v, itemsize) else v.copy() for v in values) for values in ((x,), coefficients, init))
    (x,), coefficients, init = given
    operands = operands_of(y, x, coefficients, init)
    run(recurrences.program(verb, form, *extents(operands), dtypes), operands)
    return y


def smith_waterman(scores: Any, lengths: Any, parameters: Rows, derivatives: int, rules: Rules) -> Rows:
    one_for_all = tuple([not any(x.strides) for x in parameters])
    call = pairs.alignment(scores.shape, scores.dtype.name, rules, derivatives, lengths is not None, one_for_all)
    given = [scores, *([] if lengths is None else [short(lengths)])]
    given += [x.reshape(-1)[:1] if one else x for x, one in zip(parameters, one_for_all, strict=True)]
    results = [cupy.empty(shape, scores.dtype) for shape in call.shapes]
    run(call.program, call.operands([*map(cupy.ascontiguousarray, given)], results))
    return tuple(results)


def solve_block(matrix: tuple[Any, Any, Any], d: Any, form: Blocks) -> Any:
    dtype = np.result_type(*(v.dtype for v in (*matrix, d)))
    given = [v.astype(dtype, copy=not counts(v, dtype.itemsize)) for v in (d, *matrix)]
    x = cupy.empty(form.shape, dtype)
    run(blocks.program(form, *extents((x, *given)), dtype), (x, *given))
    return x


def filtered(verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """What a verb of `tridiag.kalman` finds."""
    given = y if counts(y, y.itemsize) else y.copy(), *map(packed, model, kalman.RANKS)
    lying = [kalman.side_by_side(shape, len(form.batch)) for shape in results_of(verb, form)]
    results = [cupy.empty(one.shape, y.dtype).transpose(one.axes) for one in lying]
    operands = kalman.operands_of(given, results)
    run(kalman.program(form, *extents(operands), y.dtype.name), operands)
    return tuple(results) if len(results) > 1 else results[0]


def derivatives(y: Any, model: Model, form: StateSpace, in_y: bool) -> Any:
    """Of each log-likelihood, in a model that is constant in time and perhaps in y: as `derivatives_of` lists them."""
    given = y if counts(y, y.itemsize) else y.copy(), *map(packed, model, kalman.RANKS)
    results = [cupy.empty(shape, y.dtype) for shape in derivatives_of(form, in_y)]
    operands = kalman.operands_of(given, results)
    run(kalman.gradient(form, *extents(operands), y.dtype.name), operands)
    return tuple(results)


def packed(x: Any, rank: int) -> Any:
    """An array that is contiguous along so many last axes; a copy is none of what is repeated along others."""
    if is_packed(x.shape, x.strides, rank, x.itemsize) and counts(x, x.itemsize):
        return x
    return cupy.ascontiguousarray(x[kalman.unrepeated(x.strides, rank)])


def short(lengths: Any) -> Any:
    """As 32-bit integers; what is out of their range stays out of that of lengths."""
    info = np.iinfo(lengths.dtype)
    least, most = (lengths.dtype.type(x) for x in (max(info.min, -1), min(info.max, 2**31 - 1)))
    return cupy.minimum(cupy.maximum(lengths, least), most).astype(np.int32)


def determinants(matrix: Matrix, form: Form, values: bool) -> tuple[Any, Any, Any]:
    """Of every matrix, in the order of `Form.matrix_batch`: its status, and the determinant's sign and logarithm."""
    operands, dtype = (*counted(matrix), None, None), matrix[1].dtype
    kinds = np.dtype(np.int32), dtype, np.zeros((), dtype).real.dtype
    results = [cupy.empty(form.matrix_batch, kind) for kind in kinds]
    run(solvers.determinants(form, *extents(operands), dtype, values), operands, results)
    status, sign, logarithm = results
    return status, sign, logarithm


def run(program: Program, operands: Sequence[Any], results: Sequence[Any] = ()) -> None:
    run_at(program, [0 if x is None else x.data.ptr for x in operands], [x.data.ptr for x in results])


def run_at(program: Program, operands: Sequence[int], results: Sequence[int] = ()) -> None:
    """Where the operands and the results are."""
    scratch = cupy.cuda.alloc(program.scratch)
    launcher.run(program, (*operands, scratch.ptr, *results))


def counts(x: Any, itemsize: int) -> bool:
    """Whether strides are whole numbers of elements: those of a complex view of real numbers may not be."""
    return not any(step % itemsize for step in x.strides)


def counted(matrix: Matrix) -> tuple[Any, ...]:
    """The operands of a matrix, copied where a kernel could not count their strides."""
    return tuple(x if x is None or counts(x, x.itemsize) else x.copy() for x in matrix)


def extents(operands: Sequence[Any]) -> tuple[Any, Any]:
    """The shapes and the strides of arrays; None: not there."""
    return (
        tuple(None if x is None else x.shape for x in operands),
        tuple(None if x is None else x.strides for x in operands),
    )
