"""Smooth local alignment by `lax.scan` over anti-diagonals, in logarithms; runs, and is differentiated, anywhere.

About 25 operations a cell for linear gaps and 60 for affine ones; a pass over the L1 + L2 - 1 anti-diagonals, all
cells of one at once. Scores are divided by no temperature, only their differences are: none is too low.
"""

from __future__ import annotations

import functools
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

from tridiag.kernels.pairs import HOTTEST

FAR = {4: 150.0, 8: 800.0}  # by the bytes of a number: exp(-FAR) is 0


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
    t = jnp.where((t > 0) & (t <= HOTTEST[t.dtype.itemsize]), t, jnp.nan)[..., None]
    i, j = jnp.arange(rows), jnp.arange(columns)
    if lengths is None:
        has = jnp.ones((rows, columns), bool)
    else:
        has = (i[:, None] < lengths[..., :1, None]) & (j < lengths[..., 1:, None])
    infinite = (has & (scores == jnp.inf)).any((-2, -1))
    scores = jnp.where(has, jnp.where(scores == jnp.inf, 0, scores), -jnp.inf)
    weights = jnp.moveaxis(skew(scores, -jnp.inf), -1, 0)
    gap, opening = (x[..., None] for x in (gaps[0], gaps[-1]))
    empty = jnp.full((*batch, rows), -jnp.inf, scores.dtype)
    nothing = Number(empty, jnp.zeros_like(empty))

    def shift(x: Number) -> Number:
        """From row i - 1 to row i."""
        return Number(*(jnp.concatenate([y[..., :1], x[..., :-1]], axis=-1) for x, y in zip(x, nothing, strict=True)))

    def linear(carry: Any, w: Any) -> Any:
        (before,), (last,), z = carry
        here = smax(t, Number(w, nothing.rest), before + w, shift(last) + gap, last + gap)
        return (shift(last),), (here,), here, z

    def affine(carry: Any, w: Any) -> Any:
        (before,), (m, x, y), z = carry
        match = smax(t, Number(w, nothing.rest), before + w)
        up_m, up_x, up_y = map(shift, (m, x, y))
        down = smax(t, up_m + opening, up_y + opening, up_x + gap)
        right = smax(t, m + opening, x + opening, y + gap)
        return (shift(smax(t, m, x, y)),), (match, down, right), smax(t, match, down, right), z

    def step(carry: Any, given: Any) -> tuple[Any, None]:
        w, kept = given
        before, last, here, z = (linear if len(gaps) == 1 else affine)(carry, w)
        last, here = tuple(kept_of(kept, x, nothing) for x in last), kept_of(kept, here, nothing)
        return (before, last, smax(t, z, here)), None

    inside = jnp.moveaxis(skew(jnp.broadcast_to(has, scores.shape), False), -1, 0)
    start = (nothing,), (nothing,) * (1 if len(gaps) == 1 else 3), nothing
    (_, _, z), _ = lax.scan(step, start, (weights, inside))
    total = smax(t[..., 0], *map(Number, *(jnp.moveaxis(x, -1, 0) for x in z)))
    score = jnp.where(infinite & ~jnp.isnan(total.rest), jnp.inf, total.best + total.rest)
    defined = functools.reduce(operator.and_, (x < jnp.inf for x in (*gaps, t[..., 0])))
    return jnp.where(defined, score, jnp.nan)


class Number(NamedTuple):
    """A score in two parts: that of the best of some alignments, and what the others add to it, which may be tiny."""

    best: Any
    rest: Any

    def __add__(self, x: Any) -> Number:
        return Number(self.best + x, self.rest)


def kept_of(kept: Any, x: Number, y: Number) -> Number:
    return Number(*(jnp.where(kept, u, v) for u, v in zip(x, y, strict=True)))


def smax(t: Any, *terms: Number) -> Number:
    """T log sum exp(. / T)."""
    best, rest = (jnp.stack(parts) for parts in zip(*terms, strict=True))
    return Number(lax.stop_gradient(best.max(0)), added(t, best, rest))


def shares(t: Any, best: Any, rest: Any) -> tuple[Any, Any, Any, Any]:
    """Of terms along the first axis, from the largest on: that, the others in temperatures, their weights and sum.

    Where all are nothing so are the weights, and 1 takes the place of their sum.
    """
    top, far = lax.stop_gradient(best.max(0)), FAR[best.dtype.itemsize] * t  # so far below, a term adds nothing
    over = best - jnp.where(top == -jnp.inf, 0, top) + rest
    high = lax.stop_gradient(over.max(0))
    high = jnp.where(high == -jnp.inf, 0, high)
    over = jnp.maximum(over - high, -far) / t
    weights = jnp.exp(over)
    return high, over, weights, jnp.where(top == -jnp.inf, 1, weights.sum(0))


@jax.custom_jvp
def added(t: Any, best: Any, rest: Any) -> Any:
    """What the terms are beyond the largest ``best``."""
    high, _, _, total = shares(t, best, rest)
    return high + t * jnp.log(total)


@functools.partial(added.defjvp, symbolic_zeros=True)
def added_tangent(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """The mean of the changes of the terms, and their entropy by the temperature."""
    _, over, weights, total = shares(*primals)
    weights = weights / total
    value = added(*primals)
    change = jnp.zeros_like(value)
    for dot in tangents[1:]:
        if not isinstance(dot, SymbolicZero):
            change = change + (weights * dot).sum(0)
    if not isinstance(tangents[0], SymbolicZero):
        change = change + (weights.sum(0) * jnp.log(total) - (weights * over).sum(0)) * tangents[0]
    return value, change


def skew(x: Any, fill: Any) -> Any:
    """Row i moved to the right by i: anti-diagonals become columns."""
    *batch, rows, columns = x.shape
    padded = jnp.concatenate([x, jnp.full((*batch, rows, rows), fill, x.dtype)], axis=-1)
    flat = padded.reshape(*batch, -1)[..., : rows * (rows + columns - 1)]
    return flat.reshape(*batch, rows, rows + columns - 1)
