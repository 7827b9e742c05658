"""Smooth local alignment by `lax.scan` over anti-diagonals, in logarithms; runs, and is differentiated, anywhere.

About 25 operations a cell for linear gaps and 60 for affine ones; a pass over the L1 + L2 - 1 anti-diagonals, all
cells of one at once. Scores are divided by no temperature, only their differences are: none is too low.
"""

from __future__ import annotations

import functools
import itertools
import operator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_derivatives import SymbolicZero

from tridiag.kernels.jobs.words.alignment import HOTTEST, USUAL, Rules

FAR = {4: 150.0, 8: 800.0}  # by the bytes of a number: exp(-FAR) is 0


def smith_waterman(
    scores: Any, lengths: Any, parameters: tuple[Any, ...], derivatives: int = 0, rules: Rules = USUAL
) -> tuple[Any, ...]:
    score, pull = jax.vjp(lambda s, *p: align(s, lengths, p, rules), scores, *parameters)
    if derivatives == 0:
        return (score,)
    by_scores, *others = pull(jnp.ones_like(score))[: 1 if derivatives == 1 else None]
    undefined = jnp.where(score == jnp.inf, jnp.nan, 0)
    return score, by_scores + undefined[..., None, None], *(by + undefined for by in others)


def align(scores: Any, lengths: Any, parameters: tuple[Any, ...], rules: Rules = USUAL) -> Any:
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

    def linear(last: Any, here: Number, above: Number) -> Any:
        return (), smax(t, above, here) + gap

    def affine(last: Any, here: Number, above: Number) -> Any:
        m, x, y = last
        up_m, up_x, up_y = map(shift, (m, x, y))
        down = smax(t, (up_m if rules.turns == "none" else smax(t, up_m, up_y)) + opening, up_x + gap)
        right = smax(t, (smax(t, m, x) if rules.turns == "both" else m) + opening, y + gap)
        return (down, right), smax(t, down, right)

    def step(carry: Any, given: Any) -> tuple[Any, None]:
        """An anti-diagonal; ``before``: what ends in the cell before, one down and one to the right."""
        w, kept = given
        last, here, before, z = carry
        match = smax(t, before, Number(jnp.zeros_like(w), nothing.rest)) + w
        above = shift(here)
        moved, gapped = (linear if len(gaps) == 1 else affine)(last, here, above)
        here = smax(t, match, gapped)
        ended = {"any": here, "match": match, "later_match": before + w}[rules.ends]
        counted = Number(*(jnp.where(kept, u, v) for u, v in zip(ended, nothing, strict=True)))
        return ((match, *moved) if moved else (), here, above, smax(t, z, counted)), None

    inside = jnp.moveaxis(skew(jnp.broadcast_to(has, scores.shape), False), -1, 0)
    start = () if len(gaps) == 1 else (nothing,) * 3, nothing, nothing, nothing
    (*_, z), _ = lax.scan(step, start, (weights, inside))
    best, others = total(t, z)
    known = ~jnp.isnan(others)
    score = jnp.where(known & (best == -jnp.inf), -jnp.inf, best + others)
    score = jnp.where(known & infinite, jnp.inf, score)
    defined = functools.reduce(operator.and_, (x < jnp.inf for x in (*gaps, t[..., 0])))
    return jnp.where(defined, score, jnp.nan)


class Number(NamedTuple):
    """A score in two parts: that of the best of some alignments, and what the others add to it, which may be tiny."""

    best: Any
    rest: Any

    def __add__(self, x: Any) -> Number:
        return Number(self.best + x, self.rest)


def smax(t: Any, x: Number, y: Number) -> Number:
    """T log(exp(x / T) + exp(y / T)); that of nothing and nothing is nothing."""
    best = lax.stop_gradient(jnp.where(ahead(x, y) >= 0, x.best, y.best))
    return Number(best, rest(t, x, y))


def ahead(x: Number, y: Number) -> Any:
    """x - y: no digit of what the others add is lost where the best are alike."""
    return finite(x.best) - finite(y.best) + (x.rest - y.rest)


def finite(best: Any) -> Any:
    """No gradient meets infinity."""
    return jnp.maximum(best, float(jnp.finfo(best.dtype).min) / 2)


def apart(t: Any, over: Any) -> Any:
    """abs(over) in temperatures, up to where the smaller is nothing; without a kink for who follows `over` >= 0."""
    far = FAR[t.dtype.itemsize] * t
    size = jnp.where(over >= 0, over, -over)
    return jnp.where(size > far, far, size) / t


@jax.custom_jvp
def rest(t: Any, x: Number, y: Number) -> Any:
    """What x and y together are beyond the best of the larger.

    JAX differentiates this text, not the rule below, where it differentiates a scan twice: all of a change is here too.
    """
    over = ahead(x, y)
    changes = (z.rest + (finite(z.best) - lax.stop_gradient(finite(z.best))) for z in (x, y))
    return jnp.where(over >= 0, *changes) + t * jnp.log(1 + jnp.exp(-apart(t, over)))


@functools.partial(rest.defjvp, symbolic_zeros=True)
def rest_tangent(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """The mean of the changes of x and y, and the entropy of their shares by the temperature."""
    t, x, y = primals
    t_dot, *dots = tangents
    over, value = ahead(x, y), rest(t, x, y)
    distance = apart(t, over)
    behind = jnp.exp(-distance)
    larger = 1 / (1 + behind)
    smaller = behind * larger
    shares = jnp.where(over >= 0, larger, smaller), jnp.where(over >= 0, smaller, larger)
    change = jnp.zeros_like(value)
    for share, number in zip(shares, dots, strict=True):
        known = [dot for dot in number if not isinstance(dot, SymbolicZero)]
        if known:
            change = change + share * functools.reduce(operator.add, known)
    if not isinstance(t_dot, SymbolicZero):
        change = change + (jnp.log(1 + behind) + distance * smaller) * t_dot
    return value, change


def total(t: Any, z: Number) -> Number:
    """All rows together, by halves."""
    while (rows := z.best.shape[-1]) > 1:
        ends = [0, rows // 2, rows // 2 * 2, rows]
        first, second, last = (Number(*(part[..., i:j] for part in z)) for i, j in itertools.pairwise(ends))
        pairs = smax(t, first, second)
        z = Number(*(jnp.concatenate(parts, axis=-1) for parts in zip(pairs, last, strict=True)))
    return Number(*(part[..., 0] for part in z))


def skew(x: Any, fill: Any) -> Any:
    """Row i moved to the right by i: anti-diagonals become columns."""
    *batch, rows, columns = x.shape
    padded = jnp.concatenate([x, jnp.full((*batch, rows, rows), fill, x.dtype)], axis=-1)
    flat = padded.reshape(*batch, -1)[..., : rows * (rows + columns - 1)]
    return flat.reshape(*batch, rows, rows + columns - 1)
