"""What `jax.vmap` makes of a backend's call: one call with another batch axis in front.

`jax.vmap` of a `lax.scan`, a loop or a custom call batches every operation of it, or refuses; a backend solves a batch
as it is. So every call of a backend has this rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp


def batched(call: Callable[..., Any], wider: Callable[..., Any]) -> Any:
    """``call(*arrays)``; under `jax.vmap` ``wider(length, is_batched, *arrays)``, with the new axis in front.

    It is the first axis of the results, and of those arrays of which ``is_batched`` says so; the others are shared.
    """
    function = jax.custom_batching.custom_vmap(call)

    @function.def_vmap
    def rule(length: int, is_batched: Sequence[bool], *arrays: Any) -> Any:
        results = wider(length, is_batched, *arrays)
        return results, jax.tree.map(lambda _: True, results)

    return function


def lifted(is_batched: Sequence[bool], arrays: Sequence[Any]) -> list[Any]:
    """All arrays with the new axis in front, of length 1 where an array is shared."""
    return [x if b else jnp.expand_dims(x, 0) for x, b in zip(arrays, is_batched, strict=True)]
