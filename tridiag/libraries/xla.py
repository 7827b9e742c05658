"""`numba_thomas` for JAX arrays on CPU: one XLA custom call, no copy, no Python at run time."""

from __future__ import annotations

import math
import sys
import threading
from typing import Any

import jax
import numpy as np

from tridiag.backends.numba_thomas import compiled, kernel_name
from tridiag.kernels import source_hash
from tridiag.kernels.cache import Kernel, obtain
from tridiag.layout import job
from tridiag.rows import Matrix
from tridiag.shapes import Form

Shape = tuple[int, ...]


_alive: dict[str, Any] = {}  # the handlers registered with XLA
_lock = threading.Lock()


def handler(dtype: str, many: bool) -> Kernel:
    """The compiled handler for a dtype; the kernel that it calls is there before it."""
    compiled(dtype, many)
    name = kernel_name(dtype, many)

    def build() -> Any:
        from tridiag.kernels import ffi

        return ffi.build(name)

    return obtain(f"xla_{name}", build)


def target(dtype: str, many: bool) -> str:
    """The name of the FFI handler for a dtype, registered at its first use."""
    # a compiled program kept on disk must not meet another layout of the job
    name = f"tridiag_thomas_{'many' if many else 'own'}_{dtype}_{source_hash():x}"
    with _lock:
        if name not in _alive:
            _alive[name] = handler(dtype, many)
            capsule = jax.ffi.pycapsule(_alive[name].address)
            jax.ffi.register_ffi_target(name, capsule, platform="cpu", api_version=1)
    return name


def contiguous(shape: Shape, itemsize: int) -> Shape:
    """The strides of a C-contiguous array."""
    strides, step = [], itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))


def solve(matrix: Matrix, d: Any, form: Form) -> Any:
    """The custom call. Complex right sides of a real matrix are real pairs along a last axis, which costs no copy."""
    dtype, where = np.dtype(matrix[1].dtype), matrix[3]
    shapes: list[Any] = [x if x is None else tuple(x.shape) for x in (*matrix, d)] + [form.shape]
    alias = form.overwrite_d and d.shape == form.shape
    view = form
    if np.dtype(d.dtype).kind != dtype.kind:
        shapes = [s and (*s, 1) for s in shapes[:4]] + [(*s, 2) for s in shapes[4:]]
        view = form._replace(shape=(*form.shape, 2), matrix_shape=(*form.matrix_shape, 1))
    sizes = [dtype.itemsize] * 3 + [1] + [dtype.itemsize] * 2
    strides = [s and contiguous(s, size) for s, size in zip(shapes, sizes, strict=True)]
    plan = job(view._replace(overwrite_d=False), tuple(shapes), tuple(strides), dtype)
    call = jax.ffi.ffi_call(
        target(dtype.name, plan.many),
        jax.ShapeDtypeStruct(form.shape, d.dtype),
        input_output_aliases={3: 0} if alias else None,
    )
    operands = (*matrix[:3], d) if where is None else (*matrix[:3], d, where)
    fresh = 0 if alias or sys.platform != "linux" else math.prod(form.shape) * np.dtype(d.dtype).itemsize
    return call(*operands, job=np.append(plan.words, [plan.helpers, fresh]))
