"""JAX's spelling of the array operations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tridiag.arrays import refuse_dtype


class Operations:
    where = staticmethod(jnp.where)
    zero = staticmethod(jnp.zeros_like)
    one = staticmethod(jnp.ones_like)
    broadcast = staticmethod(jnp.broadcast_to)
    all = staticmethod(jnp.all)
    any = staticmethod(jnp.any)
    sign = staticmethod(jnp.sign)
    unsqueeze = staticmethod(jnp.expand_dims)
    reshape = staticmethod(jnp.reshape)

    @staticmethod
    def size(x: Any) -> Any:
        """|Re x| + |Im x|, LAPACK's measure of a pivot."""
        return jnp.abs(x.real) + jnp.abs(x.imag) if jnp.iscomplexobj(x) else jnp.abs(x)

    @staticmethod
    def log_abs(x: Any) -> Any:
        return jnp.log(jnp.abs(x))

    @staticmethod
    def row(x: Any, i: Any, axis: int) -> Any:
        return lax.dynamic_index_in_dim(x, i if x.shape[axis] != 1 else 0, axis, keepdims=False)

    @staticmethod
    def slice(x: Any, part: slice, axis: int) -> Any:
        return lax.slice_in_dim(x, part.start, part.stop, axis=axis)

    @staticmethod
    def concatenate(parts: Any, axis: int) -> Any:
        return jnp.concatenate(parts, axis=axis)

    @staticmethod
    def stretch(x: Any, n: int, axis: int) -> Any:
        return jnp.broadcast_to(x, (*x.shape[:axis], n, *x.shape[axis + 1 :]))

    @staticmethod
    def positions(n: int, rank: int, axis: int, like: Any) -> Any:
        return lax.broadcasted_iota(jnp.int32, (1,) * axis + (n,) + (1,) * (rank - 1 - axis), axis)

    @staticmethod
    def maximum(x: Any, axis: int) -> Any:
        return jnp.max(x, axis=axis)

    @staticmethod
    def limits(x: Any) -> tuple[float, float]:
        info = jnp.finfo(x.dtype)
        return float(info.eps), float(info.tiny)

    @staticmethod
    def full(shape: Any, value: int, like: Any) -> Any:
        return jnp.full(shape, value, like.dtype)

    @staticmethod
    def nan(x: Any) -> Any:
        return jnp.full((), jnp.nan, x.dtype)

    @staticmethod
    def zero_status(x: Any) -> Any:
        return jnp.zeros(x.shape, jnp.int32)


def convert(name: str, x: Any) -> Any:
    """A JAX array or a Python scalar of a dtype that can be solved in; NumPy arrays as JAX takes them."""
    if not isinstance(x, int | float | complex) or isinstance(x, bool):
        if isinstance(x, np.ndarray) and x.dtype.kind not in "iufcV":
            refuse_dtype(name, x.dtype.name)
        x = jnp.asarray(x)
        if not jnp.issubdtype(x.dtype, jnp.number):
            refuse_dtype(name, str(x.dtype))
    return x


def result_dtype(arguments: Any) -> str:
    """JAX's promotion; integers become its default float."""
    dtype = jnp.result_type(*arguments)
    return str(dtype if jnp.issubdtype(dtype, jnp.inexact) else jnp.result_type(float))


def cast(x: Any, dtype: str) -> Any:
    return jnp.asarray(x, dtype)


def boolean(x: Any) -> Any:
    return jnp.asarray(x)


def device(arguments: Any) -> str:
    """The platform of concrete arrays; inside a trace, the default one."""
    concrete = [x for x in arguments if isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)]
    found = {d.platform for x in concrete for d in x.devices()} or {jax.default_backend()}
    if len(found) > 1:
        raise TypeError(f"the arrays are on different platforms: {', '.join(sorted(found))}; move them to one")
    return found.pop().replace("gpu", "cuda")


def traced(arguments: Any) -> bool:
    return any(isinstance(x, jax.core.Tracer) for x in arguments)
