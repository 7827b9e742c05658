"""Singular systems: found after the solve, where values can be read, among solutions that are not finite."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from tridiag.algorithms import elimination as el
from tridiag.algorithms.matrix_rows import Matrix
from tridiag.backends import BACKENDS
from tridiag.calls.plan import Call
from tridiag.errors import SingularSystemError
from tridiag.libraries.arrays import library_of, module_of
from tridiag.problems.forms import Form, Shape

PERTURBED = 'for a huge finite solution solve(..., singular="perturb")'
LONG, LONG_CYCLE = 10_000, 1_000  # rows; beyond, a loop over them in Python would take too long


def raise_if_singular(x: Any, status: Any, matrix: Matrix, form: Form) -> None:
    """Raise `SingularSystemError` where elimination with partial pivoting meets an exactly zero pivot."""
    suspects = find_suspects(x, status, form)
    if suspects is None or not suspects.any():
        return
    status = np.zeros(form.batch, np.int64)
    status[suspects] = exact_status(suspects, matrix, form)
    if status.any():
        indices = np.argwhere(status)
        column = int(status[tuple(indices[0])]) - 1
        raise SingularSystemError(message(indices, column, form.batch, form.periodic), indices, x, column)


def message(
    indices: np.ndarray[Any, Any],
    column: int | None,
    batch: Shape,
    periodic: bool,
    part: bool = False,
    more: str = f", {PERTURBED}",
) -> str:
    """What is said of singular systems; the column of the first one's zero pivot.

    ``part``: other devices have other systems. ``more``: what else can be done.
    """
    told = f"column {column}"
    if periodic and column == 0:
        told += ", the last one of a periodic system: its columns depend on each other"
    if not batch:
        return (
            f"the system is singular: elimination with partial pivoting met a zero pivot in {told}; "
            f"to go on with NaN pass check=False{more}"
        )
    first = ", ".join(map(str, indices[0].tolist()))
    count, place = f"{int(np.prod(batch))} systems", f"batch index ({first})"
    if part:
        count, place = f"{count} on this device", f"{place} of the whole"
    return (
        f"{len(indices)} of {count} are singular (the first at {place}, {told}): elimination with partial pivoting met "
        "a zero pivot; .x holds the solution, NaN in these systems; to go on with NaN pass check=False, to take a row "
        f"out pass where={more}"
    )


def find_suspects(x: Any, status: Any, form: Form) -> np.ndarray[Any, Any] | None:
    """The systems to look at: those with a zero pivot if the backend told, else those that are not finite."""
    if status is not None:
        status = status if isinstance(status, np.ndarray) else to_host(status)
        return np.broadcast_to(status != 0, form.batch) if np.count_nonzero(status) else None
    finite = np.isfinite(to_host(x)).all(axis=form.axis) if here(x) else all_finite(x, form.axis)
    return None if finite.all() else ~finite


def here(x: Any) -> bool:
    """Whether all of an array is in this process: JAX arrays may be spread over several."""
    return bool(getattr(x, "is_fully_addressable", True))


def all_finite(x: Any, axis: int) -> np.ndarray[Any, Any]:
    """The systems of a JAX array in several processes that are finite; all these processes call it."""
    from tridiag.libraries import jax

    return np.asarray(jax.replicated(jax.finite_along(x, axis)))


def to_host(x: Any) -> np.ndarray[Any, Any]:
    """A NumPy view of an array, or a copy of one on another device, or of one that several processes have."""
    if not here(x):
        from tridiag.libraries import jax

        x = jax.replicated(x)
    if library_of(x) == "cupy":
        return np.asarray(x.get())
    if hasattr(x, "detach"):
        x = x.detach().cpu().resolve_conj().resolve_neg()
        x = x.float() if str(x.dtype) == "torch.bfloat16" else x
        return np.asarray(x.numpy())
    return np.asarray(x)


def exact_status(suspects: np.ndarray[Any, Any], matrix: Matrix, form: Form) -> np.ndarray[Any, Any]:
    """The status of the suspect systems alone, by elimination with partial pivoting."""
    from tridiag.algorithms import row_loop

    ops = module_of("numpy").Operations
    (*parts,), gathered = gather([x if x is None else to_host(x) for x in matrix], suspects, form)
    gathered = gathered._replace(pivoting=True)
    if form.n >= (LONG_CYCLE if form.periodic else LONG) and not BACKENDS["numba_thomas"].unusable():
        from tridiag.backends import numba_partition, numba_thomas

        if form.periodic:
            return numba_thomas.factor(tuple(parts), gathered).status
        return numba_partition.find_zero_pivots(tuple(parts), gathered)
    with np.errstate(all="ignore"):
        factors = row_loop.eliminate(ops, tuple(parts), gathered, True)
        status: np.ndarray[Any, Any] = factors.status
        if form.pivoting is not False:
            status = np.where(status == 0, rounded_status(ops, factors, form), status)
    return status


def rounded_status(ops: Any, factors: Any, form: Form) -> np.ndarray[Any, Any]:
    """The status of matrices with a pivot that is rounding: a backend that rounds in another way met a zero in it."""
    eps, _ = ops.limits(factors.corner.rest if form.periodic else factors.last)
    if form.periodic:
        pivots, least = [(1, factors.corner, factors.corner.rest)], el.CLOSING * eps
    else:
        behind = [*(pivot.q0 for pivot in factors.pivots[1:]), factors.last]
        pivots, least = list(zip(range(1, form.n + 1), factors.pivots, behind, strict=True)), el.CANCELLATION * eps
    status = np.zeros(factors.status.shape, factors.status.dtype)
    for row, above, pivot in pivots:
        rounding = ops.size(pivot) < least * ops.size(above.multiplier * above.q1)
        status = np.where((status == 0) & rounding, row, status)
    return status


def gather(arrays: Any, those: Any, form: Form) -> tuple[list[Any], Form]:
    """Arrays of NumPy or CuPy for some systems of the batch alone, (systems, n), and their form."""
    parts = []
    for part in arrays:
        if part is not None:
            module = importlib.import_module(library_of(part) or "numpy")
            part = module.moveaxis(part, form.axis, -1)
            part = module.broadcast_to(part, form.batch + part.shape[-1:])[those]
        parts.append(part)
    shape = (int(those.sum()), form.n)
    return parts, form._replace(shape=shape, matrix_shape=shape, axis=1)


def settle_status(status: Any, call: Call) -> Any:
    """Singular is about partial pivoting: systems where plain elimination broke down are looked at again."""
    status = np.array(to_host(status))
    suspects = status != 0
    if call.form.pivoting is False and suspects.any():
        form = call.form._replace(shape=call.form.matrix_shape)
        status[suspects] = exact_status(suspects, call.matrix, form)
    return status
