"""Parts of systems of arrays in host memory: taken as `tridiag.solve` takes them, swept by compiled kernels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tridiag.algorithms import parts
from tridiag.algorithms.matrix_rows import bands as cut_bands
from tridiag.algorithms.parts import Bands, Known, Relations
from tridiag.backends import BACKENDS, numba_thomas
from tridiag.backends.numba_thomas import view
from tridiag.calls.part_sweeps import Kernels
from tridiag.calls.plan import Call, prepare
from tridiag.errors import BackendError
from tridiag.libraries.arrays import library_of
from tridiag.libraries.numpy import Operations as ops
from tridiag.problems.forms import Form

Array = Any
SUPPORTED = ("float32", "float64", "complex64", "complex128")


class Part(NamedTuple):
    """The rows of a call, as NumPy arrays of one dtype, without those that are taken out."""

    call: Call
    form: Form
    bands: Bands
    d: Array
    before: Array  # what couples the first row to the part before,
    behind: Array  # ... and the last row to the one behind


def taken(arguments: dict[str, Any], axis: int, where: Any) -> Part:
    """The part that arguments of a call are."""
    call = prepare("parts", arguments, axis=axis, where=where)
    if call.library not in ("numpy", "torch") or call.problem.device != "cpu":
        raise TypeError(
            f"the arrays are of {call.library} on {call.problem.device}; wanted NumPy arrays or tensors in host memory"
            + (
                "; tridiag.solve takes JAX arrays that are sharded along the system axis"
                if call.library == "jax"
                else ""
            )
        )
    if call.plan.empty:
        raise ValueError(f"the part has shape {call.form.shape}; wanted at least one row and one system")
    form, d = call.form._replace(matrix_shape=call.form.shape), view(call.d)
    a, b, c = (view(x).astype(d.dtype, copy=False) for x in call.matrix[:3])
    keep = view(call.matrix[3])
    before, behind = (parts.rows_of(ops, x, [k], form.axis) for x, k in ((a, 0), (c, form.n - 1)))
    if keep is None:
        return Part(call, form, (a, b, c), d, before, behind)
    cut = cut_bands(ops, (a, b, c, keep), form._replace(periodic=True))
    first, last = (parts.rows_of(ops, keep, [k], form.axis) for k in (0, form.n - 1))
    before, behind = (np.where(kept, x, 0) for kept, x in ((first, before), (last, behind)))
    return Part(call, form, cut, np.where(keep, d, 0), before, behind)


def times(x: Array, coupling: Array) -> Array:
    """Their product, 0 where x is: a coupling to what is taken out may be NaN."""
    return np.where(x == 0, 0, x * coupling)


def given_back(call: Call, x: Array) -> Array:
    """A result in the library and the dtype of the caller."""
    return call.module().cast(x if call.library == "numpy" else tensor(x), call.result_dtype)


def tensor(x: Array) -> Any:
    import torch

    return torch.from_numpy(x)


def numbers(name: str, x: Any) -> Array:
    """What `reduce` or `join` returned, as a NumPy array."""
    found = view(x) if library_of(x) == "torch" else x
    if not isinstance(found, np.ndarray) or found.dtype.name not in SUPPORTED:
        raise TypeError(
            f"{name} is a {type(x).__name__}; wanted an array of NumPy or PyTorch, as tridiag.parts returns it"
        )
    return found


def solve_small(form: Form, a: Array, b: Array, c: Array, d: Array) -> Array:
    """A tridiagonal system of parts."""
    a, b, c, d = (np.ascontiguousarray(np.broadcast_to(x, form.shape)) for x in (a, b, c, d))
    x, _ = numba_thomas.solve((a, b, c, None), d, form)
    return x


def require_kernels() -> None:
    """What parts are swept by, for which there is no other."""
    if reason := BACKENDS["numba_thomas"].unusable():
        raise BackendError(f"tridiag.parts {reason}; tridiag.solve takes whole systems")


def reduce(arguments: dict[str, Any], axis: int, where: Any) -> Array:
    """As `tridiag.parts.reduce`."""
    require_kernels()
    call, form, bands, d, before, behind = taken(arguments, axis, where)
    with np.errstate(all="ignore"):
        told = parts.coupled(parts.reduce(Kernels, form, bands, d).relations, before, behind, times)
    return given_back(call, np.stack([x.reshape(form.batch) for x in told]))


def join(ends: Any, periodic: bool) -> Array:
    """As `tridiag.parts.join`."""
    require_kernels()
    told, library = numbers("ends", ends), library_of(ends)
    if told.ndim < 2 or told.shape[1] != len(Relations._fields) or told.shape[0] == 0:
        raise ValueError(
            f"ends has shape {told.shape}; wanted (P, 6, *batch), what tridiag.parts.reduce returned for P parts, "
            "stacked along a new first axis"
        )
    count, batch = told.shape[0], told.shape[2:]
    relations = Relations(*np.moveaxis(told, 1, 0).reshape(6, count, -1))  # parts lie along axis 0
    with np.errstate(all="ignore"):
        known, _ = parts.join(ops, solve_small, relations, periodic)
    values = np.stack(known, axis=1).reshape(count, 4, *batch)
    return values if library == "numpy" else tensor(values)


def finish(arguments: dict[str, Any], values: Any, axis: int, where: Any) -> Array:
    """As `tridiag.parts.finish`."""
    require_kernels()
    call, form, bands, d, *couplings = taken(arguments, axis, where)
    known = numbers("values", values)
    if known.shape != (4, *form.batch):
        raise ValueError(f"values has shape {known.shape}; wanted {(4, *form.batch)}, one of those that join returns")
    before, first, last, behind = np.expand_dims(known.astype(d.dtype, copy=False), form.axis + 1)
    with np.errstate(all="ignore"):
        e, f = (times(x, coupling) for coupling, x in zip(couplings, (before, behind), strict=True))
        reduced = parts.to_finish(Kernels, form, bands, d)
        x, good = parts.finished(Kernels, form, bands, d, reduced, Known(e, first, last, f))
    if not good.all():
        x[np.broadcast_to(~good, x.shape)] = np.nan
    return given_back(call, x)
