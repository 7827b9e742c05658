"""Factorizations as trees of JAX arrays: arguments of jitted functions, constants of loops, what `vmap` maps."""

from __future__ import annotations

import functools
import threading
import weakref
from typing import Any

import jax

from tridiag.factorization import Factorization


class Static:
    """What factorizations have beside arrays; one object for all that is equal, as `static_of` makes it.

    A compiled program compares it in every call.
    """

    __slots__ = ("__weakref__", "facts")

    def __init__(self, facts: Any) -> None:
        self.facts = facts

    def __repr__(self) -> str:
        return f"Static{self.facts}"


statics: weakref.WeakValueDictionary[Any, Static] = weakref.WeakValueDictionary()
one_at_a_time = threading.Lock()


def static_of(*facts: Any) -> Static:
    with one_at_a_time:
        return statics.setdefault(facts, Static(facts))


def flatten(x: Factorization) -> Any:
    """Its arrays in one row, which a program finds in less time among its arguments than arrays in several tuples."""
    if x._flat is None:
        factors = x._factors
        inline = type(factors) if hasattr(factors, "tiles") else None
        rest = (factors,) if inline is None else factors
        facts = tuple(x._options.items()), x._name, x._kind, x._free, inline
        x._flat = (*x._matrix, x._status, *rest), static_of(*facts)
    return x._flat


def unflatten(static: Static, children: Any) -> Factorization:
    (options, name, kind, free, inline), (a, b, c, where, status, *rest) = static.facts, children
    factors = rest[0] if inline is None else inline(*rest)
    return Factorization((a, b, c, where), dict(options), name, kind, factors, status, free)


@functools.cache
def register() -> None:
    """Tell JAX how a factorization is a tree."""
    jax.tree_util.register_pytree_node(Factorization, flatten, unflatten)
