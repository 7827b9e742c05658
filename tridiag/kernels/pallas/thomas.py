"""Thomas elimination in Pallas, a thread for each system: what `tridiag.backends.jax_pallas` runs."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from tridiag.algorithms import elimination as el
from tridiag.kernels.pallas.access import Apart, Index, Row, Together, fixed, full
from tridiag.kernels.pallas.job import ROWS, THREADS, Job, place


class Carried(NamedTuple):
    """What the sweep down carries from row to row."""

    above: Any  # c of the row before
    scale: Any  # 1 / its pivot
    right: Any
    sound: Any  # 1 where all rows so far have a certificate, or where none is wanted no zero pivot


def product(job: Job, coupling: Any, value: Any) -> Any:
    return jnp.where(coupling == 0, 0, coupling * value) if job.cut else coupling * value


def is_sound(job: Job, grown: Any, pivot: Any, b: Any) -> Any:
    """As `tridiag.algorithms.elimination.certify`; and the reciprocal of the pivot is a normal number."""
    if not job.certifies:
        return pivot != 0
    info, size, diagonal = jnp.finfo(job.dtype), abs(pivot), abs(b)
    bounded = (abs(grown) + size) * (1 / el.GROWTH) <= diagonal
    tiny = float(info.tiny)
    return bounded & (size > el.CANCELLATION * float(info.eps) * diagonal) & (size > tiny) & (size <= 1 / tiny)


def eliminate(job: Job, access: Any, carried: Carried, rows: list[Row], first: Any) -> Carried:
    """Some rows; what row k - 1 has in common with row k is known, and kept, at row k."""
    above, scale, right, sound = carried
    for j, (a, b, c, d) in enumerate(rows):
        k = first + j
        if j == 0:
            a = jnp.where(jnp.broadcast_to(k > 0, job.lanes), a, 0)  # there is none in row 0
        lower, upper = (above, a) if job.turned else (a, above)
        upper = product(job, upper, scale)
        if job.certifies:  # else digits of the quotient are lost to underflow
            whole = (abs(upper) >= float(jnp.finfo(job.dtype).tiny)) | ((lower if job.turned else above) == 0)
            sound = jnp.where(whole, sound, 0)
        grown = product(job, lower, upper)
        pivot = b - grown
        scale = 1 / pivot  # in float32 Mosaic takes the GPU's own, off by up to a unit in the last place
        right = (d - product(job, lower, right)) * scale
        sound = jnp.where(is_sound(job, grown, pivot, b), sound, 0)
        access.upper[access.at(max(k - 1, 0) if isinstance(k, int) else jnp.maximum(k - 1, 0))] = upper
        access.right[access.at(k)] = right
        above = c
    return Carried(above, scale, right, sound)


def substitute(job: Job, access: Any, after: Any, sound: Any, first: Any, count: int) -> Any:
    """x of some rows, from the last of them to the first; x of the first."""
    known = [(access.upper[access.at(first + j)], access.right[access.at(first + j)]) for j in range(count)]
    known = [(fixed(upper), fixed(right)) for upper, right in known]
    x = []
    for upper, right in reversed(known):
        after = right - product(job, upper, after)
        if not job.certifies:
            after = jnp.where(sound != 0, after, jnp.nan)
        x.append(after)
    access.write(x[::-1], first)
    return after


def sweeps(job: Job, access: Any) -> Any:
    """Down and up; whether each system is sound. The rest of n by `ROWS` has code of its own."""
    whole, rest = divmod(job.n, ROWS)
    last = (whole - 1) * ROWS
    zero, one = full(job, 0), full(job, 1)
    carried = Carried(zero, one, zero, full(job, 1, jnp.int32))

    def down(piece: Any, carry: Any) -> Any:
        carried, fetched = carry
        coming = access.fetch((piece + 1) * ROWS, ROWS)
        rows = access.rows(fetched, piece * ROWS, ROWS)
        return eliminate(job, access, carried, rows, piece * ROWS), coming

    def up(piece: Any, after: Any) -> Any:
        return substitute(job, access, after, sound, last - piece * ROWS, ROWS)

    tail = None if whole else access.fetch(0, rest)
    if whole:
        start = carried, access.fetch(0, ROWS)
        carried, fetched = lax.fori_loop(jnp.int32(0), jnp.int32(whole - 1), down, start)
        tail = access.fetch(whole * ROWS, rest) if rest else None
        carried = eliminate(job, access, carried, access.rows(fetched, last, ROWS), last)
    if rest:
        carried = eliminate(job, access, carried, access.rows(tail, whole * ROWS, rest), whole * ROWS)
    access.upper[access.at(job.n - 1)] = zero
    sound, after = carried.sound, zero
    if rest:
        after = substitute(job, access, after, sound, whole * ROWS, rest)
    lax.fori_loop(jnp.int32(0), jnp.int32(whole), up, after)
    return sound


def kernel(job: Job, *refs: Any) -> None:
    """One block: refs to a, b, c, d, then x and the soundness, and what both sweeps need."""
    *operands, x, status = refs[:6]
    block = lax.axis_index("block")
    outer, inner = place(block, job)
    upper, right, *staged = refs[6:]
    access: Any
    at: Index = (lambda k: (k,)) if job.on_chip else (lambda k: (block, k))
    if job.together:
        staged = [*staged, upper, right] if job.on_chip else staged
        at = (lambda k: (slice(None), pl.ds(k, 1))) if job.on_chip else at
        access = Together(job, operands, x, upper, right, at, outer, staged)
        where = pl.ds(outer, THREADS), pl.ds(0, 1)
    else:
        access = Apart(job, operands, x, upper, right, at, outer, inner)
        where = access.systems(x)
    status[where] = sweeps(job, access)
