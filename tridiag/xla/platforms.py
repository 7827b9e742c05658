"""What JAX does on each platform for which a program may be compiled, decided when it is compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import mlir

from tridiag.xla.programs import for_threads

Name = str | tuple[tuple[str, str], ...]  # of a backend, or of one for each platform, first for the one here


def on_platform(name: Name, function: Callable[..., Any], static: tuple[Any, ...], *arrays: Any) -> Any:
    """``function(*static, name, *arrays)`` with the name for the platform for which JAX compiles it."""
    if isinstance(name, str):
        return function(*static, name, *arrays)
    here = name[0][1]
    result = jax.make_jaxpr(branch(function, static, here), return_shape=True)(*arrays)
    branches = {
        platform: branch(function, static, each) if each == here else later(function, static, each, result)
        for platform, each in name
    }
    return lax.platform_dependent(*arrays, **branches)


@for_threads
def branch(function: Callable[..., Any], static: tuple[Any, ...], name: str) -> Callable[..., Any]:
    """Jitted, so that JAX traces it once."""
    return jax.jit(functools.partial(function, *static, name))


def later(function: Callable[..., Any], static: tuple[Any, ...], name: str, result: Any) -> Callable[..., Any]:
    """The branch of another platform, traced if it is compiled for it, which it hardly ever is."""
    jaxpr, shapes = result

    def call(*arrays: Any) -> Any:
        leaves, tree = jax.tree.flatten(arrays)
        traced = Later(branch(function, static, name), tree)
        found = later_p.bind(*leaves, branch=traced, avals=tuple(jaxpr.out_avals))
        return jax.tree.unflatten(jax.tree.structure(shapes), found)

    return call


class Later(NamedTuple):
    """A function of flat arrays."""

    function: Callable[..., Any]
    tree: Any

    def __call__(self, *leaves: Any) -> list[Any]:
        return jax.tree.leaves(self.function(*jax.tree.unflatten(self.tree, leaves)))


later_p = Primitive("traced_when_compiled")
later_p.multiple_results = True
later_p.def_abstract_eval(lambda *leaves, branch, avals: avals)


def lower_later(context: Any, *leaves: Any, branch: Later, avals: Any) -> Any:
    return mlir.lower_fun(branch, multiple_results=True)(context, *leaves)


mlir.register_lowering(later_p, lower_later)
