"""JAX's spelling of the array operations."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tridiag.libraries import foreign
from tridiag.libraries import place as place
from tridiag.libraries.arrays import Entry, Taken, check_sequence, name_in_words, refuse_dtype

FEW_ROWS = 8  # that are sliced out of an array one by one: XLA's gather takes long
FEW_TERMS = 4  # of a matrix product that are added up without a loop
MOST_TERMS = 8  # that are added up one by one


@jax.custom_jvp
def reciprocal(x: Any) -> Any:
    """1 / x, whose derivative needs no square of x: that may underflow where x does not, and what is multiplied too."""
    return 1 / x


@reciprocal.defjvp
def derivative_of_reciprocal(primals: Any, tangents: Any) -> tuple[Any, Any]:
    found = reciprocal(*primals)
    return found, -(tangents[0] * found) * found


@jax.custom_jvp
def product(x: Any, y: Any) -> Any:
    """That of matrices whose rows and columns lie before all other axes, term by term."""
    if x.shape[1] <= FEW_TERMS:
        return lax.optimization_barrier((x[:, :, None] * y[None]).sum(1))

    def more(j: Any, total: Any) -> Any:
        column, row = lax.dynamic_index_in_dim(x, j, 1), lax.dynamic_index_in_dim(y, j, 0)
        return total + column * row

    shape = len(x), *jnp.broadcast_shapes(x[0, :1].shape, y[0].shape)
    return lax.fori_loop(0, len(y), more, vary_alike((jnp.zeros(shape, x.dtype), x, y))[0])


@product.defjvp
def change_of_product(primals: Any, tangents: Any) -> Any:
    (x, y), (dx, dy) = primals, tangents
    return product(x, y), (dx[:, :, None] * y[None] + x[:, :, None] * dy[None]).sum(1)


class Operations:
    where = staticmethod(jnp.where)
    zero = staticmethod(jnp.zeros_like)
    one = staticmethod(jnp.ones_like)
    broadcast = staticmethod(jnp.broadcast_to)
    all = staticmethod(jnp.all)
    any = staticmethod(jnp.any)
    sign = staticmethod(jnp.sign)
    unsqueeze = staticmethod(jnp.expand_dims)
    transpose = staticmethod(jnp.transpose)
    reshape = staticmethod(jnp.reshape)
    copy = staticmethod(jnp.asarray)  # what is never written needs no copy
    exp = staticmethod(jnp.exp)
    log = staticmethod(jnp.log)
    cos = staticmethod(jnp.cos)
    sin = staticmethod(jnp.sin)
    rint = staticmethod(jnp.rint)
    larger = staticmethod(jnp.maximum)
    clip = staticmethod(jnp.clip)

    @staticmethod
    def repeat(count: int, function: Any, state: Any) -> Any:
        """The state after ``state = function(k, state)`` for all k below a count."""
        return lax.fori_loop(0, count, function, state)

    @staticmethod
    def each(count: int, function: Any, state: Any) -> tuple[Any, Any]:
        """The state after ``state, found = function(state, k)`` for all k below a count; what was found, stacked."""
        if count == 1:
            state, one = function(state, 0)
            return state, jax.tree.map(lambda x: x[None], one)
        found: tuple[Any, Any] = lax.scan(function, state, jnp.arange(count, dtype=jnp.int32))
        return found

    @staticmethod
    def converted(x: Any, like: Any) -> Any:
        """x in the dtype of another array."""
        return x.astype(like.dtype)

    @staticmethod
    def exponent_of(x: Any) -> Any:
        """e with x = m 2**e, m from 1/2 to 1, in the dtype of x; 0 of 0."""
        return jnp.frexp(x)[1].astype(x.dtype)

    @staticmethod
    def parts_of(x: Any) -> tuple[Any, Any]:
        """m and e with x = m 2**e, m from 3/4 to 3/2, for normal positive x; some numbers for others."""
        kind, digits, middle = (
            (jnp.int64, 52, 0x3FE8 << 48) if x.dtype == jnp.float64 else (jnp.int32, 23, 0x3F40 << 16)
        )
        bits = jax.lax.bitcast_convert_type(x, kind)
        exponent = (bits - middle) >> digits
        return jax.lax.bitcast_convert_type(bits - (exponent << digits), x.dtype), exponent.astype(x.dtype)

    @staticmethod
    def power_of_two(exponent: Any) -> Any:
        """2**exponent for integers in the range of normal numbers, by the bits: `jnp.exp2` rounds."""
        info = jnp.finfo(exponent.dtype)
        bits = (exponent + (info.maxexp - 1)).astype(f"int{info.bits}") << info.nmant
        return jax.lax.bitcast_convert_type(bits, exponent.dtype)

    @staticmethod
    def size(x: Any) -> Any:
        """|Re x| + |Im x|, LAPACK's measure of a pivot."""
        return jnp.abs(x.real) + jnp.abs(x.imag) if jnp.iscomplexobj(x) else jnp.abs(x)

    @staticmethod
    def quotient(x: Any, y: Any) -> Any:
        """x / y; XLA takes subnormal divisors for 0."""
        return x / y

    @staticmethod
    def running_maximum(x: Any, axis: int, reverse: bool) -> Any:
        """The largest value up to each, from one end of the axis or the other."""
        return lax.cummax(x, axis=axis, reverse=reverse)

    @staticmethod
    def log_abs(x: Any) -> Any:
        return jnp.log(jnp.abs(x))

    @staticmethod
    def row(x: Any, i: Any, axis: int) -> Any:
        return lax.dynamic_index_in_dim(x, i if x.shape[axis] != 1 else 0, axis, keepdims=False)

    @staticmethod
    def slice(x: Any, part: slice, axis: int) -> Any:
        return lax.slice_in_dim(whole_along(x, axis), part.start, part.stop, axis=axis)

    @staticmethod
    def concatenate(parts: Any, axis: int) -> Any:
        return jnp.concatenate([whole_along(x, axis) for x in parts], axis=axis)

    @classmethod
    def moved(cls, x: Any, first: Any, axis: int, backward: bool) -> Any:
        """The rows of x moved to make room for the ``first`` ones, towards the end of the axis or its beginning.

        Pads, which XLA knows how to move between devices, where it would gather arrays that are to be concatenated.
        """
        n, count = x.shape[axis], first.shape[axis]
        ahead, behind = (-count, n - count) if backward else (count, 0)
        own, others = ([(0, 0, 0)] * x.ndim for _ in range(2))
        own[axis], others[axis] = (ahead, -ahead, 0), (behind, n - count - behind, 0)
        nothing, at = jnp.zeros((), x.dtype), cls.positions(n, x.ndim, axis, x)
        before = at >= n - count if backward else at < count
        return jnp.where(before, lax.pad(first, nothing, others), lax.pad(x, nothing, own))

    @staticmethod
    def take(x: Any, rows: Sequence[int], axis: int) -> Any:
        if len(rows) <= FEW_ROWS:
            return jnp.concatenate([lax.slice_in_dim(x, k, k + 1, axis=axis) for k in rows], axis)
        return jnp.take(x, np.array(rows, np.int32), axis, mode="clip")

    @staticmethod
    def stretch(x: Any, n: int, axis: int) -> Any:
        return jnp.broadcast_to(x, (*x.shape[:axis], n, *x.shape[axis + 1 :]))

    @staticmethod
    def positions(n: int, rank: int, axis: int, like: Any) -> Any:
        return lax.broadcasted_iota(jnp.int32, (1,) * axis + (n,) + (1,) * (rank - 1 - axis), axis)

    @staticmethod
    def at_most(x: Any, y: Any) -> Any:
        return x <= y

    @staticmethod
    def maximum(x: Any, axis: int) -> Any:
        """NaN where there is one, which XLA's own maximum may lose on CPU."""
        return jnp.where(jnp.any(x != x, axis=axis), jnp.nan, jnp.max(x, axis=axis))

    @staticmethod
    def limits(x: Any) -> tuple[float, float]:
        info = jnp.finfo(x.dtype)
        return float(info.eps), float(info.tiny)

    @staticmethod
    def solved(matrix: Any, right: Any) -> Any:
        """matrix^-1 right, of one dense matrix and one vector."""
        return jnp.linalg.solve(matrix, right)

    @staticmethod
    def placed(x: Any, like: Any) -> Any:
        """A NumPy array as JAX takes it."""
        return jnp.asarray(x)

    @staticmethod
    def full(shape: Any, value: int, like: Any) -> Any:
        return jnp.full(shape, value, like.dtype)

    @staticmethod
    def nan(x: Any) -> Any:
        return jnp.full((), jnp.nan, x.dtype)

    # the rest is of matrices whose rows and columns lie before all other axes

    @staticmethod
    def vanished(x: Any) -> Any:
        """0, with the derivative of x."""
        x = jnp.where(jnp.isfinite(x), x, 0)
        return x - lax.stop_gradient(x)

    reciprocal = staticmethod(reciprocal)

    @staticmethod
    def product(x: Any, y: Any) -> Any:
        """Term by term, as a loop over the batch; a matrix that the batch shares is one factor of a large product."""
        shared = [math.prod(z.shape[2:]) == 1 for z in (x, y)]
        if x.shape[1] > MOST_TERMS or shared[0] != shared[1]:
            return jnp.einsum("ij...,jk...->ik...", x, y, precision="highest")
        return product(x, y)

    @staticmethod
    def contracted(x: Any, y: Any) -> Any:
        """x y^T, of matrices alone."""
        return jnp.einsum("ib,jb->ij", x, y, precision="highest")

    # what many loops read: XLA would compute it again in each of them
    keep = staticmethod(lax.optimization_barrier)
    one_by_one = False

    @staticmethod
    def stack(rows: Any) -> Any:
        return jnp.stack(jnp.broadcast_arrays(*rows))

    @staticmethod
    def join(x: Any, y: Any) -> Any:
        """Along the first axis; all others broadcast."""
        shape = jnp.broadcast_shapes(x.shape[1:], y.shape[1:])
        return jnp.concatenate([jnp.broadcast_to(part, (len(part), *shape)) for part in (x, y)])

    @staticmethod
    def identity(like: Any) -> Any:
        return jnp.eye(len(like), dtype=like.dtype).reshape(*like.shape[:2], *(1,) * (like.ndim - 2))

    @staticmethod
    def symmetric(x: Any) -> Any:
        return (x + x.swapaxes(0, 1)) / 2

    @staticmethod
    def zero_status(x: Any) -> Any:
        return jnp.zeros(x.shape, jnp.int32)


TRACED = "traced"


def taking(names: Sequence[str], kinds: Sequence[type]) -> Callable[..., Taken]:
    """How arguments of these types are taken."""
    return functools.partial(take, names)


def take(names: Sequence[str], given: list[Any], where: Any) -> Taken:
    """JAX arrays and Python scalars; NumPy arrays as JAX takes them. Promotion depends on JAX's configuration."""
    given = [convert(name, x) for name, x in zip(names, given, strict=True)]
    check_sequence("where", where, "numpy", "jax")
    where = None if where is None else jnp.asarray(where)
    mask = None if where is None else entry(where)
    settings = jax.config.jax_enable_x64, jax.config.jax_numpy_dtype_promotion, default_platform()
    return given, where, (*map(entry, given), mask), settings


def convert(name: str, x: Any) -> Any:
    if isinstance(x, jax.Array) or type(x) in (int, float, complex):
        return x
    if isinstance(x, jax.core.Tracer):
        raise TypeError(f"{name} {foreign.REFERENCE.format(kind=jax.typeof(x), name=name)}")
    if isinstance(x, np.ndarray) and x.dtype.kind not in "iufcV":
        refuse_dtype(name, name_in_words(x.dtype))
    check_sequence(name, x, "numpy", "jax")
    return jnp.asarray(x)


def own(x: Any) -> Any:
    """What its caller cannot change: a JAX array as it is, and a copy of any other."""
    return x if x is None or np.isscalar(x) or isinstance(x, jax.Array) else jnp.array(x)


@functools.partial(jax.jit, static_argnums=1)
def finite_along(x: Any, axis: int) -> Any:
    return jnp.isfinite(x).all(axis)


def replicated(x: Any) -> Any:
    """What this process has of an array of several, once all of it is everywhere."""
    sharding = jax.sharding.NamedSharding(x.sharding.mesh, jax.sharding.PartitionSpec())
    return jax.jit(lambda x: x, out_shardings=sharding)(x).addressable_data(0)


def entry(x: Any) -> Entry:
    """dtype, shape, the dtype or Python type as which it promotes, platform."""
    if isinstance(x, jax.Array):
        platform = TRACED if isinstance(x, jax.core.Tracer) else platform_of(next(iter(x.devices())))
        return x.dtype, x.shape, type(x.dtype.type(0).item()) if weak(x) else x.dtype, platform
    return type(x), (), type(x), None


def weak(x: Any) -> bool:
    """Whether an array promotes as a Python number does; one of random keys has no such mark."""
    return bool(getattr(x, "weak_type", False))


def platforms() -> tuple[str, ...]:
    """For which JAX may compile here, the default one first."""
    return tuple(dict.fromkeys((default_platform(), platform_of(jax.devices()[0]), "cpu")))


def default_platform() -> str:
    device = jax.config.jax_default_device or jax.devices()[0]
    return device if isinstance(device, str) else platform_of(device)


@functools.lru_cache(256)
def platform_of(device: Any) -> str:
    """As the table has it: "gpu" is "cuda" or "rocm"."""
    if device.platform != "gpu":
        return str(device.platform)
    return "rocm" if "rocm" in device.client.platform_version.lower() else "cuda"


def check_dtype(name: str, entry: Entry) -> None:
    """Refuse what cannot be solved in."""
    if not isinstance(entry[0], type) and not jnp.issubdtype(entry[0], jnp.number):
        refuse_dtype(name, str(entry[0]))


def result_dtype(entries: Sequence[Entry], settings: Any) -> str:
    """JAX's promotion; integers become its default float."""
    dtype = jnp.result_type(*(promotes_as for _, _, promotes_as, _ in entries))
    return str(dtype if jnp.issubdtype(dtype, jnp.inexact) else jnp.result_type(float))


def integer_dtype(entries: Sequence[Entry], settings: Any) -> str | None:
    """That of sums of integers, as `jax.numpy.cumsum` has it; None where some arguments are none."""
    dtype = jnp.result_type(*(promotes_as for _, _, promotes_as, _ in entries))
    return str(dtype) if jnp.issubdtype(dtype, jnp.integer) else None


def normal(generator: Any, shape: Sequence[int], like: Any) -> Any:
    """Standard normal numbers, of a key of `jax.random`."""
    if not isinstance(generator, jax.Array):
        raise TypeError(f"generator is {generator!r}; JAX arrays want a key, as of jax.random.key(0)")
    return jax.random.normal(generator, tuple(shape), like.dtype)


def dtype(name: str) -> Any:
    return jnp.dtype(name)


def has_dtype(entry: Entry, name: str) -> bool:
    return not isinstance(entry[2], type) and entry[0] == jnp.dtype(name)


def cast(x: Any, dtype: str) -> Any:
    return jnp.asarray(x, dtype)


def device(entries: Sequence[Entry], settings: Any) -> str:
    """The platform of concrete arrays; inside a trace, the default one."""
    found = {platform for *_, platform in entries} - {None, TRACED} or {settings[-1]}
    if len(found) > 1:
        raise TypeError(f"the arrays are on different platforms: {', '.join(sorted(found))}; move them to one")
    return found.pop()


def traced(entries: Sequence[Entry]) -> bool:
    return any(platform == TRACED for *_, platform in entries)


def trace_at_hand() -> Any:
    """What is equal as long as one function is traced, and none that is called in it; None where JAX does not tell."""
    try:
        from jax.extend.core import get_opaque_trace_state
    except ImportError:
        return None
    return get_opaque_trace_state(convention="nnx")


def is_traced(x: Any) -> bool:
    return isinstance(x, jax.core.Tracer)


def varying(x: Any) -> frozenset[Any]:
    """The axes of `shard_map` over which an array varies."""
    kind = jax.typeof(x)
    return kind.mat.varying if hasattr(kind, "mat") else kind.vma


def vary_alike(arrays: Any) -> Any:
    """The arrays, all of them varying over the axes of `shard_map` over which any does."""
    axes = frozenset().union(*map(varying, jax.tree.leaves(arrays)))

    def cast(x: Any) -> Any:
        missing = axes - varying(x)
        return lax.pcast(x, tuple(missing), to="varying") if missing else x

    return jax.tree.map(cast, arrays)


def spread(x: Any, names: tuple[str, ...]) -> Any:
    """An array of `shard_map` that varies over some axes, also if it is alike on all devices."""
    missing = frozenset(names) - varying(x)
    return lax.pcast(x, tuple(missing), to="varying") if missing else x


def not_spread(x: Any, names: tuple[str, ...]) -> Any:
    """The inverse, over axes that have one device."""
    over = tuple(varying(x) & frozenset(names))
    return lax.psum(x, over) if over else x


def whole_along(x: Any, axis: int) -> Any:
    """An array, gathered along an axis that its type says is sharded: a part of that need not be divisible."""
    sharding = jax.typeof(x).sharding
    spec, axis = sharding.spec, axis % jax.typeof(x).ndim
    if axis >= len(spec) or spec[axis] is None:
        return x
    return jax.sharding.reshard(
        x, jax.sharding.NamedSharding(sharding.mesh, jax.sharding.PartitionSpec(*spec[:axis], None, *spec[axis + 1 :]))
    )


def left_to_compiler(function: Any, arrays: Any, summed: int | None = None, out: Any = None) -> Any:
    """The function; the axes of meshes that are part of types are the compiler's inside, as those of any other mesh.

    Its result is sharded as a sum of the arrays is, which is ``summed`` along an axis; or as ``out()`` says.
    """
    leaves = jax.tree.leaves(arrays)
    axes = {axis for x in leaves for axis in jax.typeof(x).sharding.mesh.explicit_axes}
    if not axes:
        return function
    if out is None:
        total = functools.reduce(operator.add, leaves)
        shardings = jax.typeof(total if summed is None else total.sum(summed)).sharding
    else:
        shardings = out()
    return jax.sharding.auto_axes(function, axes=tuple(axes), out_sharding=shardings)


def row(x: Any, i: int, axis: int) -> Any:
    """A row of an array whose rows may lie on several devices."""
    return left_to_compiler(functools.partial(Operations.row, i=i, axis=axis), (x,), axis)(x)
