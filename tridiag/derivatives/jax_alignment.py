"""The derivatives of smooth alignment for JAX: a custom rule around any backend, which computes them with the score.

The score of a pair depends on its own arguments only. Derivatives of the derivatives are those of `jax_wavefront`.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero

from tridiag.backends import BACKENDS, Backend
from tridiag.backends.jax_wavefront import align
from tridiag.calls.pairs import Pairs, check_values
from tridiag.derivatives.jax_batching import batched, lifted
from tridiag.kernels.jobs.words.alignment import Rules
from tridiag.libraries.jax import vary_alike
from tridiag.xla.platforms import Name, on_platform
from tridiag.xla.programs import for_threads, program


def run(pairs: Pairs, backend: Backend) -> Any:
    if not pairs.traced and pairs.problem.device == "cpu":
        lengths = None if pairs.lengths is None else np.asarray(pairs.lengths)
        check_values(pairs.problem.shape, lengths, np.asarray(pairs.parameters[-1]))
    return compiled(backend.name, pairs.rules, *vary_alike((pairs.scores, pairs.lengths, pairs.parameters)))


@program(0, 1)
def compiled(name: Name, rules: Rules, scores: Any, lengths: Any, parameters: tuple[Any, ...]) -> Any:
    """With lengths in their range, and a temperature of which no digits are subnormal: XLA may take those for 0."""
    if lengths is not None:
        most = np.array([min(n, int(jnp.iinfo(lengths.dtype).max)) for n in scores.shape[-2:]], lengths.dtype)
        lengths = jnp.clip(lengths, 0, most).astype(jnp.int32)
    *gaps, t = parameters
    info, bits = jnp.finfo(t.dtype), lax.bitcast_convert_type(t, f"int{8 * t.dtype.itemsize}")
    least = np.asarray(info.tiny / info.eps, t.dtype)
    t = jnp.where((bits > 0) & (bits < least.view(bits.dtype)), t + lax.stop_gradient(least - t), t)
    return score(name, rules, scores, lengths, (*gaps, t))


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def score(name: Name, rules: Rules, scores: Any, lengths: Any, parameters: tuple[Any, ...]) -> Any:
    return call(name, 0, rules, scores, lengths, parameters)[0]


@functools.partial(score.defjvp, symbolic_zeros=True)
def tangent(name: Name, rules: Rules, primals: Any, tangents: Any) -> tuple[Any, Any]:
    (scores, lengths, parameters), (s_dot, _, p_dots) = primals, tangents
    wanted = 2 if any(not isinstance(p_dot, SymbolicZero) for p_dot in p_dots) else 1
    value, by_scores, *by_parameters = derivatives(name, wanted, rules, scores, lengths, parameters)
    change = jnp.zeros_like(value)
    if not isinstance(s_dot, SymbolicZero):
        change = change + (by_scores * s_dot).sum((-2, -1))
    for by, p_dot in zip(by_parameters, p_dots, strict=False):
        if not isinstance(p_dot, SymbolicZero):
            change = change + by * p_dot
    return value, change


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def derivatives(name: Name, wanted: int, rules: Rules, scores: Any, lengths: Any, parameters: tuple[Any, ...]) -> Any:
    """The score, its gradient with respect to the scores and, with ``wanted`` = 2, to the parameters."""
    return call(name, wanted, rules, scores, lengths, parameters)


@derivatives.defjvp
def second(name: Name, wanted: int, rules: Rules, primals: Any, tangents: Any) -> Any:
    (scores, lengths, parameters), (s_dot, _, p_dots) = primals, tangents

    def plain(scores: Any, parameters: Any) -> Any:
        value, pull = jax.vjp(lambda s, p: align(s, lengths, p, rules), scores, parameters)
        by_scores, by_parameters = pull(jnp.ones_like(value))
        return (value, by_scores, *by_parameters)[: 2 if wanted == 1 else None]

    change = jax.jvp(plain, (scores, parameters), (s_dot, p_dots))[1]
    return derivatives(name, wanted, rules, scores, lengths, parameters), change


def call(
    name: Name, wanted: int, rules: Rules, scores: Any, lengths: Any, parameters: tuple[Any, ...]
) -> tuple[Any, ...]:
    """The backend, without derivatives; `vmap` adds a leading axis to all arguments."""
    leaves, tree = jax.tree.flatten((scores, lengths, parameters))
    return tuple(aligning(name, wanted, rules, tree)(*leaves))


def once(
    wanted: int, rules: Rules, name: str, scores: Any, lengths: Any, parameters: tuple[Any, ...]
) -> tuple[Any, ...]:
    return tuple(BACKENDS[name].module().smith_waterman(scores, lengths, parameters, wanted, rules))


@for_threads
def aligning(name: Name, wanted: int, rules: Rules, tree: Any) -> Any:
    def align_all(*leaves: Any) -> Any:
        return on_platform(name, once, (wanted, rules), *jax.tree.unflatten(tree, leaves))

    def wider(length: int, is_batched: Any, *leaves: Any) -> Any:
        return aligning(name, wanted, rules, tree)(
            *(jnp.broadcast_to(x, (length, *x.shape[1:])) for x in lifted(is_batched, leaves))
        )

    return batched(align_all, wider)
