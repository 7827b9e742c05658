"""What JAX traces once and keeps, for each number of threads that is granted when it is called.

A kernel is told in its program how many threads it has. What JAX traced of a function it finds again by that function,
in programs that are traced later too; so there is a function for each number.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from tridiag.kernels.jobs.systems import threads


def for_threads(make: Callable[..., Any]) -> Callable[..., Any]:
    """What a function makes of facts: kept, and made anew where another number of threads is granted."""
    kept = functools.lru_cache(4096)(lambda threads, *facts: make(*facts))

    @functools.wraps(make)
    def found(*facts: Any) -> Any:
        return kept(threads(), *facts)

    return found


class Program:
    """A function that is jitted for each number of threads."""

    def __init__(self, function: Callable[..., Any], static: tuple[int, ...] = ()) -> None:
        functools.update_wrapper(self, function)
        self.jitted = for_threads(lambda: jax.jit(functools.partial(function), static_argnums=static))

    def __call__(self, *arguments: Any) -> Any:
        return self.jitted()(*arguments)


def program(*static: int) -> Callable[[Callable[..., Any]], Program]:
    """A decorator: `Program` with the places of arguments that are no arrays."""
    return functools.partial(Program, static=static)
