"""`lax.scan` over any axis of its inputs, whose rows are read where they lie.

What is differentiated is a scan over rows that were moved to the front: the cotangents of rows are then stacked, as the
results are, and moved once. A cotangent that is written in place costs its whole array in every step of some programs,
and the derivative is quadratic in n. What a derivative needs of the rows on its way back are the moved arrays, so that
no step stacks its rows again. Without a derivative the moved rows have no use, and the compiler never makes them.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.tree_util import PyTreeDef, keystr, tree_flatten_with_path

from tridiag.calls.checks import check_axis, check_flag
from tridiag.libraries.arrays import owner
from tridiag.libraries.jax import TRACED, default_platform, entry


class Course(NamedTuple):
    """All that is static about a scan but its function; hashable."""

    tree: PyTreeDef  # of the inputs
    axes: tuple[int, ...]  # of the inputs, counted from the front
    out_tree: PyTreeDef  # a prefix of that of the results
    out_axes: tuple[int, ...]
    length: int
    reverse: bool
    unroll: int | bool


def scan(
    f: Any, init: Any, xs: Any, axis: Any, out_axis: Any, length: Any, reverse: Any, unroll: Any
) -> tuple[Any, Any]:
    """`tridiag.scan`: check the arguments, and run what they make."""
    inputs, course = course_of(f, init, xs, axis, out_axis, length, reverse, unroll)
    return compiled(f, course)(init, inputs)


def course_of(
    f: Any, init: Any, xs: Any, axis: Any, out_axis: Any, length: Any, reverse: Any, unroll: Any
) -> tuple[list[Any], Course]:
    """The inputs as JAX takes them, and what is static about their scan."""
    if not callable(f):
        raise TypeError(f"f is {f!r}; wanted a function of the carry and one row of xs")
    check_flag("reverse", reverse)
    taken("init", init)
    names, inputs, tree = taken("xs", xs)
    axes = axes_of(axis, xs, names, inputs)
    n = common_length(names, inputs, axes, length)
    if out_axis is None:
        out_axis = axis if isinstance(axis, int) else 0
    out_axes, out_tree = jax.tree.flatten(out_axis)
    out_axes = tuple(check_axis(one, "out_axis") for one in out_axes)
    return inputs, Course(tree, axes, out_tree, out_axes, n, bool(reverse), unroll)


def taken(name: str, tree: Any) -> tuple[list[str], list[Any], PyTreeDef]:
    """The arrays of a pytree as JAX takes them, and what to call them."""
    found, structure = tree_flatten_with_path(tree)
    names = [name + keystr(path) for path, _ in found]
    for label, (_, x) in zip(names, found, strict=True):
        kind: type = type(x)
        library = owner(label, kind)
        if library not in (None, "numpy", "jax"):
            raise TypeError(f"{label} is a {library} array, and scan runs in JAX: convert it")
    return names, [x if isinstance(x, jax.Array) else jnp.asarray(x) for _, x in found], structure


def facts_of(inputs: list[Any], length: int) -> tuple[str, tuple[int, ...], str]:
    """The dtype and shape of the first of the inputs, and on which platform they are; of none those of its numbers."""
    if not inputs:
        return str(jnp.result_type(float)), (length,), default_platform()
    dtype, shape, _, platform = entry(inputs[0])
    return str(dtype), shape, default_platform() if platform == TRACED else platform


def axes_of(axis: Any, xs: Any, names: list[str], inputs: list[Any]) -> tuple[int, ...]:
    """The axis of every input, from one for all or from a tree that begins as xs does."""
    try:
        axes = jax.tree.leaves(jax.tree.map(lambda one, part: jax.tree.map(lambda _: one, part), axis, xs))
    except (TypeError, ValueError):
        raise ValueError(f"axis {axis!r} does not fit xs: wanted one integer, or a tree of them as xs is one") from None
    return tuple(place("axis", one, x.shape, name) for one, x, name in zip(axes, inputs, names, strict=True))


def place(option: str, axis: Any, shape: tuple[int, ...], name: str) -> int:
    """The axis counted from the front."""
    axis = check_axis(axis, option)
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"{option} {axis} is out of range: {name} has shape {shape}")
    return axis % len(shape)


def common_length(names: list[str], inputs: list[Any], axes: tuple[int, ...], length: Any) -> int:
    lengths = [x.shape[axis] for x, axis in zip(inputs, axes, strict=True)]
    if length is not None:
        names, lengths = ["length", *names], [check_axis(length, "length"), *lengths]
    if not lengths:
        raise ValueError("xs holds no array, and length is None: one of them must say how many steps there are")
    if len({*lengths}) > 1:
        listed = ", ".join(f"{name}: {n}" for name, n in zip(names, lengths, strict=True))
        raise ValueError(f"the lengths along the axes of the scan differ: {listed}")
    if lengths[0] < 0:
        raise ValueError(f"length is {lengths[0]}; wanted no negative number")
    return lengths[0]


COMPILED: weakref.WeakKeyDictionary[Any, dict[Course, Any]] = weakref.WeakKeyDictionary()


def compiled(f: Callable[..., Any], course: Course) -> Callable[..., tuple[Any, Any]]:
    """The scan, traced once while f lives. A method or an object may change, and is traced in every call."""
    if type(f) is not types.FunctionType:
        return functools.partial(run, lambda: f, course)
    known = COMPILED.setdefault(f, {})
    if course not in known:
        known[course] = jax.jit(functools.partial(run, weakref.ref(f), course))
    return known[course]


def run(function: Callable[[], Any], course: Course, init: Any, inputs: list[Any]) -> tuple[Any, Any]:
    f = function()

    @functools.wraps(f, updated=())  # JAX names the carry in its messages as f does
    def step(carry: Any, row: Any) -> tuple[Any, Any]:
        i, rows = row
        here = [
            moved if axis == 0 else read(axis, x, i, moved)
            for x, moved, axis in zip(inputs, rows, course.axes, strict=True)
        ]
        return f(carry, jax.tree.unflatten(course.tree, here))

    steps = jnp.arange(course.length, dtype=jnp.int32)
    moved = [jnp.moveaxis(x, axis, 0) for x, axis in zip(inputs, course.axes, strict=True)]
    carry, results = lax.scan(
        step, init, (steps, moved), length=course.length, reverse=course.reverse, unroll=course.unroll
    )
    return carry, restored(results, course)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def read(axis: int, x: Any, i: Any, moved: Any) -> Any:
    """Row i of x. It is that of the moved rows too, which a derivative reads in its place."""
    if x.shape[axis] == 0:
        return moved
    return lax.dynamic_index_in_dim(x, i, axis, keepdims=False)


@read.defjvp
def read_tangent(axis: int, primals: Any, tangents: Any) -> tuple[Any, Any]:
    return primals[2], tangents[2]


def restored(results: Any, course: Course) -> Any:
    """The results with their stacked axis where it is wanted."""

    def put(axis: int, x: Any) -> Any:
        return jnp.moveaxis(x, 0, place("out_axis", axis, x.shape, "a stacked result"))

    axes = jax.tree.unflatten(course.out_tree, course.out_axes)
    try:
        wanted = jax.tree.map(lambda axis, part: jax.tree.map(lambda _: axis, part), axes, results)
    except (TypeError, ValueError):
        raise ValueError(
            f"out_axis {axes!r} does not fit the results of f: wanted one integer, or a tree of them"
        ) from None
    return jax.tree.map(put, wanted, results)
