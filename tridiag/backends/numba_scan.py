"""Recurrences in compiled loops with threads of their own; linear ones take 2 flops a coefficient and value.

The kernels are in `tridiag.kernels.recurrence.kernel`; which one runs depends on how x and the result lie in memory.
Sequences side by side, sequences that are contiguous, and long ones of first order are computed in the lanes of
vectors; complex ones, and those that lie in any other way, one by one. Every value comes from those before it, as in a
plain loop; of few sequences, or of constant coefficients, neighbours in a vector of steps are joined first.

Those of small vectors are in `tridiag.kernels.recurrence.matrices`: one sequence in each lane, in any place, real or
complex; a single one fills no more than a lane.

Those of logarithms are in `tridiag.kernels.logsumexp.kernel`: exponentials and logarithms by polynomials, in the lanes
of vectors, arrays of any strides read where they lie; few long sequences are cut into chunks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tridiag.algorithms import complex_sums
from tridiag.algorithms.recurrence import Rows
from tridiag.backends import LOGARITHMS, numpy_scan
from tridiag.backends.numba_thomas import Checked, Threaded, checked, extents, view
from tridiag.kernels import filter_gradients, first_steps
from tridiag.kernels.jobs import logsumexp
from tridiag.kernels.jobs.batches import contiguous, is_packed, packed
from tridiag.kernels.jobs.kalman import expected, is_soon_checked, kind_of, workers_for
from tridiag.kernels.jobs.kalman import make_job as make_filter_job
from tridiag.kernels.jobs.matrices import make_matrix_job, reads_in_place
from tridiag.kernels.jobs.recurrences import make_job
from tridiag.kernels.jobs.selective import make_adjoint_job, sums_of, work_of
from tridiag.kernels.jobs.selective import make_job as make_selective_job
from tridiag.kernels.jobs.systems import WORTH_A_THREAD, granted, threads, worth_threads
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.runtime.call_table import Guard
from tridiag.kernels.runtime.python_call import check
from tridiag.kernels.table import Call, call_of, kernel
from tridiag.libraries.arrays import dtype_name, library_of, module_of
from tridiag.libraries.numpy import Operations
from tridiag.problems.forms import Recurrence, Shape
from tridiag.problems.selective import Operands, SelectiveScan
from tridiag.problems.state_space import LIKELIHOOD, SMOOTHER, Model, StateSpace, results_of


def linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    if library_of(x) == "jax":
        from tridiag.xla import recurrences

        return recurrences.linear_recurrence(coefficients, x, init, form)
    return in_memory(run_linear, coefficients, x, init, form, out)


def run_linear(coefficients: Rows, x: Any, init: Rows, form: Recurrence, y: Any) -> None:
    order, operands = len(coefficients), (y, x, *(a.astype(x.dtype, copy=False) for a in coefficients), *init)
    check(call_of(make_job, form, order, *extents(operands), x.dtype, granted(form)).run(*operands))


def bound_recurrence(
    verb: str, form: Recurrence, order: int, shapes: Sequence[Any], strides: Sequence[Any], dtype: np.dtype[Any]
) -> tuple[Callable[..., bool], tuple[int, ...]] | None:
    """A recurrence as a function of its operands, and which they are; None where some are to be brought side by side.

    0: the result; from 1 on the coefficients, x and what is before, of these shapes and strides; -1: none.
    """
    count, logarithms = len(shapes) - 2 - order, verb in LOGARITHMS
    coefficients, x, init = (*range(1, order + 1),), order + 1, (*range(order + 2, order + 2 + count),)
    operands = (*(coefficients or (-1,)), *(init or (-1,)), x, 0) if logarithms else (0, x, *coefficients, *init)
    if is_copy(form, init) and logarithms:
        logarithms, order, operands = False, 1, (0, x, x)
    taken = [tuple([None if k < 0 else extents[k] for k in operands]) for extents in (shapes, strides)]
    facts: tuple[Any, ...] = make_job, form, order, *taken, dtype
    if logarithms:
        if logsumexp.sorted_elsewhere(form, taken[0], taken[1], dtype):
            return None
        facts = logsumexp.make_job, form, *taken, dtype
    elif form.matrices:
        if form.shape[-1] == 1 or not reads_in_place(taken[0], taken[1], dtype.itemsize):
            return None
        facts = make_matrix_job, form, *taken, dtype
    weight = logsumexp.WEIGHTED if logarithms and coefficients else 1
    return checked(form, lambda: call_of(*facts, granted(form, weight)).run, worth_threads(form, weight)), operands


def in_memory(
    run: Callable[..., None], coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None
) -> Any:
    """What ``run`` makes of NumPy arrays, or of the memory of torch tensors: ``out``, or a new result."""
    if library_of(x) == "torch":
        y = x.new_empty(form.shape) if out is None else out
        run(tuple(map(view, coefficients)), view(x), tuple(map(view, init)), form, view(y))
    else:
        y = np.empty(form.shape, x.dtype) if out is None else out
        run(coefficients, x, init, form, y)
    return y


# ------------------------------------------------------------------------------------------------------- matrices


def matrix_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    """2 m**2 flops a step, for m**2 numbers that are read: memory decides."""
    if form.shape[-1] == 1:
        plain = form._replace(shape=form.shape[:-1], matrices=False)
        numbers = tuple(a[..., 0, 0] for a in coefficients), x[..., 0], tuple(value[..., 0] for value in init)
        y = linear_recurrence(*numbers, plain, None if out is None else out[..., 0])
        return y[..., None] if out is None else out
    if library_of(x) == "jax":
        from tridiag.xla import recurrences

        return recurrences.matrix_recurrence(coefficients, x, init, form)
    return in_memory(run_matrices, coefficients, x, init, form, out)


def run_matrices(coefficients: Rows, x: Any, init: Rows, form: Recurrence, y: Any) -> None:
    matrices = tuple([a.astype(x.dtype, copy=False) for a in coefficients])
    result, operands = y, (y, x, *matrices, *init)
    if not reads_in_place(*extents(operands), x.dtype.itemsize):
        result = packed(y, 1, empty=True)
        operands = result, packed(x, 1), *(packed(a, 2) for a in matrices), *(packed(v, 1) for v in init)
    check(call_of(make_matrix_job, form, *extents(operands), x.dtype, granted(form)).run(*operands))
    if result is not y:
        y[...] = result


# ----------------------------------------------------------------------------------------------------- logarithms


def log_linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    if library_of(x) == "jax":
        from tridiag.xla import custom_call, recurrences

        if is_copy(form, init):
            return custom_call.jax.numpy.broadcast_to(x, form.shape)
        return recurrences.log_linear_recurrence(coefficients, x, init, form)
    return in_memory(run_logarithms, coefficients, x, init, form, out)


def is_copy(form: Recurrence, init: Any) -> bool:
    """One step with nothing before it: y is x, as in a linear recurrence, whose coefficient is not read either."""
    return form.steps == 1 and not init


def run_logarithms(coefficients: Rows, x: Any, init: Rows, form: Recurrence, y: Any) -> None:
    if is_copy(form, init):
        run_linear((x,), x, (), form, y)
        return
    operands = *(coefficients or (None,)), *(init or (None,)), x, y
    if logsumexp.sorted_elsewhere(form, *extents(operands), x.dtype):
        result = np.empty(form.shape, x.dtype)
        run_logarithms(coefficients, x, init, form, result)
        y[...] = result
        return
    workers = granted(form, logsumexp.WEIGHTED if coefficients else 1)
    check(call_of(logsumexp.make_job, form, *extents(operands), x.dtype, workers).run(*operands))


def logcumsumexp(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    if not dtype_name(x.dtype).startswith("complex"):
        return log_linear_recurrence(coefficients, x, init, form, out)
    if library_of(x) == "jax":
        return complex_sums.logcumsumexp(module_of("jax").Operations, linear_recurrence, x, form)
    return in_memory(run_complex_sums, coefficients, x, init, form, out)


def run_complex_sums(coefficients: Rows, x: Any, init: Rows, form: Recurrence, y: Any) -> None:
    with np.errstate(all="ignore"):
        y[...] = complex_sums.logcumsumexp(Operations, linear_recurrence, x, form)


# ------------------------------------------------------------------------------------------------ selective scans


def selective_scan(operands: Operands, form: SelectiveScan, out: Any = None) -> tuple[Any, Any]:
    """About 5 flops a step and state, and 25 more where steps have sizes; the states of each step are not stored."""
    ops = module_of(library_of(operands.x) or "numpy").Operations
    y = ops.empty(form.shape, operands.x) if out is None else out
    last = ops.empty((*form.batch, form.states), operands.x)
    run_selective(Operands(*map(view, operands)), form, view(y), view(last))
    return y, last


def run_selective(operands: Operands, form: SelectiveScan, y: Any, last: Any) -> None:
    a, x, B, C, step, init = operands
    a, B, C, init = map(side_by_side, (a, B, C, init))
    given = y, x, a, B, C, step, init, np.expand_dims(last, form.axis)
    check(selective_call(form, *extents(given), x.dtype).run(*given))


def selective_call(form: SelectiveScan, shapes: Any, strides: Any, dtype: np.dtype[Any]) -> Call:
    """Of the result, x, a, B, C, the sizes of steps, the states before the first step, and the last states."""
    workers = threads() if work_of(form, shapes, strides, dtype) >= WORTH_A_THREAD else 1
    return call_of(make_selective_job, form, shapes, strides, dtype, workers)


def bound_selective(
    form: SelectiveScan, y: tuple[Shape, Shape], given: Operands, dtype: np.dtype[Any], final: bool
) -> Callable[..., bool] | None:
    """A scan as a function of such arrays, the last states or None behind them; None where states are to be copied.

    Shapes and strides are those of the result and of the operands.
    """
    a, x, B, C, step, init = given
    if not all(one is None or is_packed(one[0], one[1], 1, dtype.itemsize) for one in (a, B, C, init)):
        return None
    last = tuple([*form.shape, form.states])
    last = (*last[: form.axis], 1, *last[form.axis + 1 :])
    operands = y, x, a, B, C, step, init, (last, contiguous(last, dtype.itemsize)) if final else None
    shapes, strides = (tuple([one and one[k] for one in operands]) for k in range(2))
    threaded = work_of(form, shapes, strides, dtype) >= WORTH_A_THREAD
    return checked(form.recurrence, lambda: selective_call(form, shapes, strides, dtype).run, threaded)


def selective_scan_adjoint(operands: Operands, form: SelectiveScan, g: Any, of_last: Any) -> Operands:
    """The cotangents of all operands from those of the result and of the last states; about 4 times the work."""
    ops, like = module_of(library_of(operands.x) or "numpy").Operations, operands.x
    a, x, B, C, step, init = map(view, operands)
    a, B, C = (packed(v, 1) for v in (a, B, C))
    init = None if init is None else packed(init, 1)
    of_x, of_init = np.zeros(form.shape, x.dtype), np.empty((*form.batch, form.states), x.dtype)
    of_step = None if step is None else np.zeros(form.shape, x.dtype)
    sums = [np.zeros(sums_of(form, v.shape, x.dtype).shape, x.dtype) for v in (a, B, C)]
    last = np.expand_dims(packed(view(of_last), 1), form.axis)
    given = view(g), x, a, B, C, step, init, last, of_x, of_step, *sums, of_init
    check(call_of(make_adjoint_job, form, *extents(given), x.dtype, granted(form.recurrence)).run(*given))
    found = [gradient_of(form, each) for each in sums]
    rows = [None if v is None else v[..., None] for v in (of_x, of_step)]
    cotangents = Operands(found[0], rows[0], found[1], found[2], rows[1], np.expand_dims(of_init, form.axis))
    return Operands(
        *(
            None if v is None else ops.placed(summed(w, v.shape), like)
            for v, w in zip(operands, cotangents, strict=True)
        )
    )


def gradient_of(form: SelectiveScan, sums: Any) -> Any:
    """The sums of groups of sequences together, of the rank of the states of all steps."""
    length = form.batch[-1] if form.batch else 1
    sums = sums if sums.shape[1] == length else sums.sum(1, keepdims=True)
    lengths = (*form.batch[:-1], sums.shape[1]) if form.batch else ()
    return np.moveaxis(sums.reshape(*lengths, *sums.shape[2:]), -2, form.axis)


def summed(x: Any, shape: Shape) -> Any:
    """Summed along the axes along which an operand of a shape is constant."""
    return x.sum(tuple(k for k, n in enumerate(shape) if n == 1 != x.shape[k]), keepdims=True)


def side_by_side(x: Any) -> Any:
    """An array whose states lie side by side; a copy is none of what is repeated."""
    if x is None or is_packed(x.shape, x.strides, 1, x.itemsize):
        return x
    return np.ascontiguousarray(x[tuple(slice(None if step else 1) for step in x.strides)])


# ------------------------------------------------------------------------------------------------- Kalman filters


def kalman(verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """About 3 k**3 multiplications a step and series, 9 k**3 for a smoother.

    k**2 for the log-likelihood of series that share their covariances. Steps whose states are unknown, as `numpy_scan`.
    """
    if library_of(y) == "jax":
        from tridiag.derivatives import jax_kalman

        return jax_kalman.log_likelihood(y, model, form)
    if library_of(y) == "torch":
        found = filtered(verb, view(y), Model(*map(view, model)), form)
        cast = functools.partial(module_of("torch").cast, dtype=dtype_name(y.dtype))
        return cast(found) if verb == LIKELIHOOD else tuple(map(cast, found))
    return filtered(verb, y, model, form)


def kalman_gradient(y: Any, model: Model, form: StateSpace, in_y: bool) -> Any:
    """Of tensors: forwards, which keeps the states of all steps, and backwards, in one call of a kernel."""
    found = filter_gradients.derivatives(view(y), Model(*map(view, model)), form, in_y)
    return [module_of("torch").cast(x, dtype=dtype_name(y.dtype)) for x in found if x is not None]


def filtered(verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """Of NumPy arrays, by kernels."""
    begin = first_steps.begin if first_steps.is_worth_it(form) else None
    return numpy_scan.kalman_with(compiled, verb, y, model, form, begin, first_steps.smooth)


def compiled(verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """Of NumPy arrays, by one call of a kernel."""
    operands = [np.ascontiguousarray(x) for x in (y, *model)]
    *states, likelihood = (np.empty(shape, y.dtype) for shape in results_of(verb, form))
    nothing = [None] * (K.OPERANDS - K.INPUTS - len(states))
    call = filter_call(verb, form, tuple([x.shape for x in operands]), y.dtype)
    check(call.run(*operands, *states, *nothing, likelihood))
    return (*states, likelihood) if states else likelihood


def filter_call(verb: str, form: StateSpace, shapes: tuple[Shape, ...], dtype: np.dtype[Any]) -> Call:
    """Of contiguous arrays: y and the model, which have these shapes, the states or None, and the log-likelihood."""
    family = {LIKELIHOOD: "filter", SMOOTHER: "smoother"}.get(verb, "moments")
    kind = kind_of(form, bool(form.missing), verb != LIKELIHOOD)
    shapes = (*shapes, *results_of(verb, form)[:-1])
    return call_of(make_filter_job, family, kind, form, shapes, dtype, workers_for(kind, form))


def bound_kalman(
    verb: str, form: StateSpace, shapes: tuple[Shape, ...], dtype: np.dtype[Any]
) -> tuple[Callable[..., bool], Guard, list[Shape]] | None:
    """A filter as a function of such arrays, with what looks at their values, and the shapes of its results.

    None where that would take long.
    """
    values = expected(form, shapes)
    if not is_soon_checked(values):
        return None
    guard = Guard(kernel("filter_guard", dtype.name).address, values)
    found = filter_call(verb, form, shapes, dtype)
    threaded = found.job.unknowns >= WORTH_A_THREAD
    call = Threaded(lambda: filter_call(verb, form, shapes, dtype).run) if threaded else Checked(found.run)
    return call, guard, results_of(verb, form)
