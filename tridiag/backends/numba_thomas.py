"""Thomas and pivoted elimination in compiled tiles of systems, O(8n) flops, with threads of its own.

The kernels are in `tridiag.kernels`. Arrays of any strides are read where they lie. A real matrix with complex right
sides is the real matrix with twice as many right sides. Stability: certificate, partial pivoting, refinement, as
`tridiag.elimination`.
"""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any, NamedTuple

import numpy as np

from tridiag.arrays import library_of
from tridiag.kernels import job as J
from tridiag.kernels.cache import Kernel, obtain
from tridiag.layout import LINE, Job, job
from tridiag.rows import Matrix
from tridiag.shapes import Form


class Factors(NamedTuple):
    """The eliminated tiles of certified systems; any other is eliminated again, which reads no more words."""

    tiles: np.ndarray[Any, Any]
    kinds: np.ndarray[Any, Any]
    status: np.ndarray[Any, Any]


def kernel_name(dtype: str, many: bool) -> str:
    return f"thomas_{'many' if many else 'own'}_{dtype}"


@functools.cache
def compiled(dtype: str, many: bool) -> Kernel:
    """The compiled kernel for a dtype."""

    def build() -> Any:
        from tridiag.kernels import thomas

        return thomas.build(dtype, many)

    return obtain(kernel_name(dtype, many), build)


@functools.cache
def kernel(dtype: str, many: bool) -> Any:
    """The kernel for a dtype as a function that is called without the GIL."""
    return ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(compiled(dtype, many).address)


def plan_for(operands: list[Any], form: Form, dtype: np.dtype[Any], flags: int) -> Job:
    shapes = tuple([None if x is None else x.shape for x in operands])  # of a list: half the time of a generator
    strides = tuple([None if x is None else x.strides for x in operands])
    return job(form, shapes, strides, dtype, flags)


def run(operands: list[Any], form: Form, dtype: np.dtype[Any], flags: int = 0, **arrays: Any) -> Job:
    """Run the kernel on a, b, c, where, d, x; ``arrays`` gives the words of other arrays by name."""
    plan = plan_for(operands, form, dtype, flags)
    words = plan.words.copy()
    words[J.POINTERS : J.POINTERS + 6] = [0 if x is None else address(x) for x in operands]
    for name, array in arrays.items():
        words[getattr(J, name)] = address(array)
    kernel(plan.dtype, plan.many)(address(words), plan.helpers)
    if words[J.NEXT] < words[J.ITEMS]:  # no thread has claimed the last item
        raise MemoryError("no memory for the rows that the elimination keeps; solve fewer or shorter systems at a time")
    return plan


HEAD = object.__basicsize__  # where a NumPy array holds the address of its memory (PyArrayObject_fields in its C API)


def address(x: np.ndarray[Any, Any]) -> int:
    """``x.ctypes.data``, in a fifth of the time, which is that of solving a small system."""
    found: int = ctypes.c_ssize_t.from_address(id(x) + HEAD).value
    return found


def split_complex(matrix: Matrix, d: Any, x: Any, form: Form) -> tuple[Matrix, Any, Any, Form]:
    """Complex right sides of a real matrix as real ones, along a new last axis."""
    if d.dtype.kind != "c" or matrix[1].dtype.kind == "c":
        return matrix, d, x, form
    a, b, c, where = (None if v is None else v[..., None] for v in matrix)
    shape, matrix_shape = (*form.shape, 2), (*form.matrix_shape, 1)
    return (a, b, c, where), real_pairs(d), real_pairs(x), form._replace(shape=shape, matrix_shape=matrix_shape)


def real_pairs(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A complex array of any strides as real numbers with a last axis of length 2, without a copy."""
    real = x.real
    shape, strides = (*x.shape, 2), (*x.strides, real.itemsize)
    return np.lib.stride_tricks.as_strided(real, shape, strides, writeable=x.flags.writeable)


def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Factors | None = None) -> tuple[Any, Any]:
    library = library_of(d)
    if library == "jax":
        from tridiag.libraries import xla

        return xla.solve(matrix, d, form), None
    if library == "torch":
        result = d.new_empty(form.shape) if out is None else out
        _, status = solve(tuple(map(view, matrix)), view(d), form, view(result), factors)
        return result, status
    x = np.empty(form.shape, d.dtype) if out is None else out
    matrix, d, y, form = split_complex(matrix, d, x, form)
    if factors is not None:
        run([*matrix, d, y], form, y.dtype, J.FACTORED, FACTORS=factors.tiles, CERTIFIED=factors.kinds)
        return x, factors.status
    status = np.zeros(form.matrices, np.int32)
    plan = run([*matrix, d, y], form, y.dtype, STATUS=status)
    status = plan.restore(status, form)
    return x, status if y is x else status.reshape(status.shape[:-1])


def view(x: Any) -> Any:
    """The memory of a torch tensor as a NumPy array, through DLPack, without a copy."""
    return x if x is None or isinstance(x, np.ndarray) else np.from_dlpack(x.detach().resolve_conj().resolve_neg())


def factor(matrix: Matrix, form: Form) -> Factors:
    matrix = tuple(map(view, matrix))
    count, dtype = form.matrices, matrix[1].dtype
    status, kinds = np.zeros(count, np.int32), np.full(count, J.HARD, np.uint8)
    plan = plan_for([*matrix, None, None], form, dtype, J.FACTORING)
    lanes = int(plan.words[J.LANES])
    shape = (count, form.n, 3) if plan.words[J.SHARED] else (-(-count // lanes), form.n, 3, lanes)
    kept = form.pivoting is not True and not form.periodic
    storage = empty_lines(shape if kept else (0,), dtype)
    plan = run([*matrix, None, None], form, dtype, J.FACTORING, FACTORS=storage, CERTIFIED=kinds, STATUS=status)
    return Factors(storage, kinds, plan.restore(status, form))


def empty_lines(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """An empty array that begins with a cache line, so that a row of lanes is one."""
    size = math.prod(shape)
    spare = LINE // dtype.itemsize
    storage = np.empty(size + spare, dtype)
    first = -address(storage) % LINE // dtype.itemsize
    return storage[first : first + size].reshape(shape)


def slogdet(matrix: Matrix, form: Form) -> tuple[Any, Any]:
    count, dtype = form.matrices, matrix[1].dtype
    sign, logarithm = np.empty(count, dtype), np.empty(count, dtype.type(0).real.dtype)
    plan = run([*matrix, None, None], form, dtype, J.DETERMINANT, X=sign, LOGARITHM=logarithm)
    return plan.restore(sign, form), plan.restore(logarithm, form)
