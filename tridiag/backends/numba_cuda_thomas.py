"""Thomas and pivoted elimination by Numba on a GPU, a thread for each system: the simplest kernel that there is.

Every array is read where it lies, whatever its strides, unless its batch axes on one side of the system axis do not
merge into one; of it a copy is made. Neighbouring threads read neighbouring systems: fast where the system axis is not
the last one. It moves 9 words an unknown. With "auto", the systems without certificate go on a list in the memory of
the GPU, and are solved again with pivoting and refinement. The kernels run on CuPy's current stream. Numba fuses
products with sums: a matrix that only rounded products make singular, as [[3, 3], [1, 1]], is nearly singular here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import cupy
import numpy as np
from numba import cuda, types

from tridiag.algorithms.matrix_rows import Matrix
from tridiag.cuda import lending
from tridiag.cuda import numba_launcher as launcher
from tridiag.kernels.numba_cuda import thomas
from tridiag.problems.forms import Form

THREADS = 128  # of a block
LEAST_SCRATCH = 64 * 2**20  # bytes for systems that are pivoted at a time; or as many as x has


@lending
def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Any = None) -> tuple[Any, Any]:
    with cuda.gpus[d.device.id]:
        x, status = (solve_pairs if d.dtype.kind == "c" else solve_here)(matrix, d, form)
    if out is not None:
        out[...] = x
    return (x if out is None else out), status


def solve_pairs(matrix: Matrix, d: Any, form: Form) -> tuple[Any, Any]:
    """Complex right sides of real matrices as twice as many real ones, along a new last axis."""
    rows: Any = tuple(None if v is None else v[..., None] for v in matrix)
    pairs, status = solve_here(rows, cupy.stack((d.real, d.imag), -1), form.in_pairs())
    return pairs.view(d.dtype)[..., 0], status[..., 0]


def solve_here(matrix: Matrix, d: Any, form: Form) -> tuple[Any, Any]:
    """On the current device of Numba, which is CuPy's."""
    shape = math.prod(form.shape[: form.axis]), form.n, math.prod(form.shape[form.axis + 1 :])
    x, status = cupy.empty(shape, d.dtype), cupy.zeros(shape[0] * shape[2], np.int32)
    limits = np.finfo(d.dtype)
    options = int(form.transpose), limits.eps, limits.tiny
    arrays = (*(cupy.broadcast_to(part, form.shape).reshape(shape) for part in operands(matrix, d, form)), x)
    if form.pivoting is True:
        everyone = cupy.arange(status.size), cupy.full(1, status.size, np.int64)
        exchange(arrays, everyone, thomas.PIVOTED_ROWS, status, options)
    else:
        doubtful = eliminate(arrays, status, options)
        if form.pivoting == "auto":
            exchange(arrays, doubtful, thomas.REFINED_ROWS, status, options)
    first = tuple(slice(1) if length == 1 else slice(None) for length in form.matrix_batch)
    return x.reshape(form.shape), status.reshape(form.batch)[first]


def operands(matrix: Matrix, d: Any, form: Form) -> tuple[Any, ...]:
    a, b, c, where = matrix
    below, above = (c, a) if form.transpose else (a, c)
    return below, b, above, cupy.ones((1,) * d.ndim, bool) if where is None else where, d


def eliminate(arrays: tuple[Any, ...], status: Any, options: tuple[Any, ...]) -> tuple[Any, Any]:
    """All systems without pivoting. Returns a list of those that have no certificate, and how long it is."""
    n, real = arrays[-1].shape[1], arrays[-1].dtype
    upper, doubtful = cupy.empty((n, status.size), real), (cupy.empty(status.size, np.int64), cupy.zeros(1, np.int64))
    launch("plain", status.size, *arrays, upper, *doubtful, status, *options)
    return doubtful


def exchange(
    arrays: tuple[Any, ...], listed: tuple[Any, Any], rows: int, status: Any, options: tuple[Any, ...]
) -> None:
    """The systems on a list with pivoting, and with refinement if ``rows`` has memory for it."""
    x = arrays[-1]
    each = rows * x.shape[1] * x.itemsize
    threads = max(1, min(status.size, max(LEAST_SCRATCH, x.nbytes) // each))
    kept = cupy.empty((rows, x.shape[1], threads), x.dtype)
    systems, count = listed
    for first in range(0, status.size, threads):  # of those on the list
        launch("pivoted", threads, *arrays, kept, systems[first:], count - first, status, *options)


def launch(name: str, count: int, *arguments: Any) -> None:
    """A thread for each of so many systems."""
    launcher.launch(kernel(name, arguments[0].dtype.name), -(-count // THREADS), THREADS, *arguments)


@functools.cache
def kernel(name: str, dtype: str) -> Any:
    """Compiled for every layout at once, and for the GPU that is there: hence not on import."""
    return launcher.compiled(*source(name, dtype))


def source(name: str, dtype: str) -> tuple[Any, Any]:
    """A kernel before it is compiled, and its signature."""
    function, signature = KERNELS[name]
    return function, signature(getattr(types, dtype))


def plain(below, diagonal, above, keep, d, x, upper, systems, count, status, shift, eps, tiny):  # type: ignore[no-untyped-def]
    system = cuda.grid(1)
    if system < status.shape[0]:
        o, i = system // x.shape[2], system % x.shape[2]
        certified, status[system] = thomas.plain(
            below[o, :, i], diagonal[o, :, i], above[o, :, i], keep[o, :, i], shift, d[o, :, i], x[o, :, i],
            upper[:, system], eps, tiny,
        )  # fmt: skip
        if not certified:
            systems[cuda.atomic.add(count, 0, 1)] = system


def pivoted(below, diagonal, above, keep, d, x, kept, systems, count, status, shift, eps, tiny):  # type: ignore[no-untyped-def]
    slot = cuda.grid(1)
    if slot < kept.shape[2] and slot < count[0]:
        system = systems[slot]
        o, i = system // x.shape[2], system % x.shape[2]
        rows = below[o, :, i], diagonal[o, :, i], above[o, :, i], keep[o, :, i]
        status[system] = thomas.pivoted(*rows, shift, d[o, :, i], x[o, :, i], kept[:, :, slot])
        if kept.shape[0] == thomas.REFINED_ROWS and status[system] == 0:
            thomas.refine(*rows, shift, d[o, :, i], x[o, :, i], kept[:, :, slot], eps, tiny)


def signature_of(work: int) -> Callable[[Any], Any]:
    """Of a kernel: five arrays of systems and the solution, work, a list of systems, its length, statuses, options."""

    def signature(real: Any) -> Any:
        system, mask = types.Array(real, 3, "A"), types.Array(types.boolean, 3, "A")
        arrays = (types.Array(kind, 1, "C") for kind in (types.int64, types.int64, types.int32))
        return types.void(
            *(system,) * 3, mask, *(system,) * 2, types.Array(real, work, "C"), *arrays, types.int64, real, real
        )

    return signature


KERNELS = {
    "plain": (plain, signature_of(work=2)),
    "pivoted": (pivoted, signature_of(work=3)),
}
