"""Smooth local alignment by `lax.scan` over anti-diagonals, in logarithms; runs, and is differentiated, anywhere.

About 25 operations a cell for linear gaps and 60 for affine ones; a pass over the L1 + L2 - 1 anti-diagonals, all
cells of one at once.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def smith_waterman(scores: Any, lengths: Any, parameters: tuple[Any, ...], derivatives: int = 0) -> tuple[Any, ...]:
    score, pull = jax.vjp(lambda s, *p: align(s, lengths, p), scores, *parameters)
    if derivatives == 0:
        return (score,)
    by_scores, *others = pull(jnp.ones_like(score))[: 1 if derivatives == 1 else None]
    undefined = jnp.where(score == jnp.inf, jnp.nan, 0)
    return score, by_scores + undefined[..., None, None], *(by + undefined for by in others)


def align(scores: Any, lengths: Any, parameters: tuple[Any, ...]) -> Any:
    """The score, as a function that JAX differentiates."""
    *batch, rows, columns = scores.shape
    *gaps, t = parameters
    t = jnp.where(t > 0, t, jnp.nan)[..., None]
    none = jnp.asarray(float(jnp.finfo(scores.dtype).min) / 8, scores.dtype)  # log of nothing; twice that is finite too
    i, j = jnp.arange(rows), jnp.arange(columns)
    if lengths is None:
        has = jnp.ones((rows, columns), bool)
    else:
        has = (i[:, None] < lengths[..., :1, None]) & (j < lengths[..., 1:, None])
    infinite = (has & (scores == jnp.inf)).any((-2, -1))
    scores = jnp.where(scores == jnp.inf, 0, scores)

    def logarithm(x: Any, t: Any, given: Any = True) -> Any:
        """x / T; nothing where that is -inf, or there is no x: no gradient meets infinity."""
        given = given & (x != -jnp.inf)
        return jnp.where(given, jnp.maximum(jnp.where(given, x, 0) / t, none), none)

    weights = jnp.moveaxis(skew(logarithm(scores, t[..., None], has), none), -1, 0)
    gap, opening = (logarithm(x[..., None], t) for x in (gaps[0], gaps[-1]))

    def shift(x: Any) -> Any:
        """From row i - 1 to row i."""
        return jnp.concatenate([jnp.full_like(x[..., :1], none), x[..., :-1]], axis=-1)

    def linear(carry: Any, w: Any) -> Any:
        (before,), (last,), z = carry
        here = smax(w + smax(jnp.zeros_like(w), before), gap + smax(shift(last), last))
        return (shift(last),), (here,), here, z

    def affine(carry: Any, w: Any) -> Any:
        (before,), (m, x, y), z = carry
        match = w + smax(jnp.zeros_like(w), before)
        up_m, up_x, up_y = map(shift, (m, x, y))
        down = smax(opening + smax(up_m, up_y), gap + up_x)
        right = smax(opening + smax(m, x), gap + y)
        return (shift(smax(m, x, y)),), (match, down, right), smax(match, down, right), z

    def step(carry: Any, given: Any) -> tuple[Any, None]:
        w, kept = given
        before, last, here, z = (linear if len(gaps) == 1 else affine)(carry, w)
        last = tuple(jnp.where(kept, x, none) for x in last)
        return (before, last, smax(z, jnp.where(kept, here, none))), None

    empty = jnp.full((*batch, rows), none)
    inside = jnp.moveaxis(skew(jnp.broadcast_to(has, scores.shape), False), -1, 0)
    start = (empty,), (empty,) * (1 if len(gaps) == 1 else 3), empty
    (_, _, z), _ = lax.scan(step, start, (weights, inside))
    total = smax(*jnp.moveaxis(z, -1, 0))
    extreme = jnp.where(jnp.isnan(total), jnp.nan, -jnp.inf)
    extreme = jnp.where(infinite & ~jnp.isnan(total), jnp.inf, extreme)
    return jnp.where((total > none / 2) & ~infinite, t[..., 0] * total, extreme)


def smax(*terms: Any) -> Any:
    """log sum exp of finite numbers."""
    stacked = jnp.stack(terms)
    top = lax.stop_gradient(stacked.max(0))
    return top + jnp.log(jnp.exp(stacked - top).sum(0))


def skew(x: Any, fill: Any) -> Any:
    """Row i moved to the right by i: anti-diagonals become columns."""
    *batch, rows, columns = x.shape
    padded = jnp.concatenate([x, jnp.full((*batch, rows, rows), fill, x.dtype)], axis=-1)
    flat = padded.reshape(*batch, -1)[..., : rows * (rows + columns - 1)]
    return flat.reshape(*batch, rows, rows + columns - 1)
