"""A system cut into parts of rows: what each tells of its ends, the system that joins them, and each part finished.

Of a part of rows 0 .. m-1, with e = a[0] x[-1] and f = c[m-1] x[m] what it is coupled to,

    x[m-1] = last + last_before e + last_behind f,      x[0] = first + first_before e + first_last x[m-1].

Put together, the parts of a system are a tridiagonal system of their last unknowns (H. H. Wang 1981; the two-level
scheme of PaScaL_TDMA, Kim et al. 2021): six numbers of each part are all that has to be known elsewhere. Once its last
unknown and e are known, a part is finished by plain Thomas.

Stability: the elimination inside of parts carries the certificate of `tridiag.algorithms.elimination`; what joins them
fills, so the rows at the ends of parts are judged by their residuals.

All is elementwise over arrays that have an axis of parts in place of that of rows; ``ops`` is their library.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Array = Any


class Relations(NamedTuple):
    """What is told of parts; NaN of those without certificate."""

    last: Array
    last_before: Array
    last_behind: Array
    first: Array
    first_before: Array
    first_last: Array


class Chain(NamedTuple):
    """The tridiagonal system of the last unknowns of parts."""

    a: Array
    b: Array
    c: Array
    d: Array


def chain(ops: Any, relations: Relations, before: Array, behind: Array, axis: int, periodic: bool = False) -> Chain:
    """What joins parts along an axis, whose entries a[0] are ``before`` and whose entries c[m-1] ``behind``.

    The first row's a multiplies what is before all parts, and the last row's c what is behind them; unless ``periodic``
    the latter is no last unknown but f over that entry.
    """
    after = [following(ops, x, axis) for x in (before, relations.first, relations.first_before, relations.first_last)]
    n = relations.last.shape[axis]
    own = behind * relations.last_behind
    a, b, c = -(relations.last_before * before), -(own * after[2] * after[0]), -(own * after[3])
    d = own * after[1]
    if not periodic:  # what follows the last part is none of these
        at_end = ops.positions(n, relations.last.ndim, axis, relations.last) == n - 1
        zero = ops.zero(b)
        b, c, d = ops.where(at_end, zero, b), ops.where(at_end, -own, c), ops.where(at_end, zero, d)
    return Chain(a, ops.one(b) + b, c, relations.last + d)


def following(ops: Any, x: Array, axis: int) -> Array:
    """The entry of the next part, that of the first one behind the last."""
    n = x.shape[axis]
    return ops.concatenate([ops.slice(x, slice(1, n), axis), ops.slice(x, slice(0, 1), axis)], axis)


def preceding(ops: Any, x: Array, axis: int) -> Array:
    """The entry of the part before, that of the last one before the first."""
    n = x.shape[axis]
    return ops.concatenate([ops.slice(x, slice(n - 1, n), axis), ops.slice(x, slice(0, n - 1), axis)], axis)


def joined(whole: Relations, first: Relations, start: Array, end: Array) -> Relations:
    """The relations of all parts together, from those of their chain and of the first part.

    ``start``: what multiplies e in the chain's first row, ``end`` what multiplies f in its last.
    """
    own = first.first_last
    return Relations(
        whole.last,
        whole.last_before * start,
        whole.last_behind * end,
        first.first + own * whole.first,
        first.first_before + own * whole.first_before * start,
        own * whole.first_last,
    )
