"""Elimination of block tridiagonal matrices, a block row at a time, in any array library.

The carried rows hold block column k:  [P0 P1 | r], m rows. With block row k + 1 below them they are

    [ P0  P1  0  | r ]
    [ A   B   C  | d ]

2 m rows, among which the m columns of block k are eliminated with partial pivoting: that is elimination with partial
pivoting of the whole matrix, since no other row holds these columns. m pivot rows [U0 U1 U2 | q] are kept, the other m
are carried. Behind the last block row comes one of the identity, which is never a pivot row. Then, from the end,

    U0 x[k] = q - U1 x[k+1] - U2 x[k+2].

About 9 m^3 flops a block row. Products are written out, column by column: the speed of general ones jumps with the
size.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

from tridiag.algorithms.matrix_rows import shift
from tridiag.algorithms.numbers import finite
from tridiag.problems.forms import Blocks

Matrix = tuple[Any, Any, Any]  # A, B, C


def turn(x: Any) -> Any:
    """Every block transposed."""
    return x.swapaxes(-1, -2)


def read(ops: Any, matrix: Matrix, d: Any, form: Blocks, i: Any) -> Any:
    """Block row i as [below | diagonal | above | right sides] over the batch; i = n: that of the identity."""
    n, m, axis = form.n, form.size, form.axis
    below, diagonal, above = (ops.row(x, i % n, axis) for x in matrix)
    if form.transpose:
        below, above = (ops.row(matrix[k], j % n, axis) for k, j in ((2, i - 1), (0, i + 1)))
        below, diagonal, above = turn(below), turn(diagonal), turn(above)
    right, unit = ops.row(d, i % n, axis), ops.positions(m, 2, 0, d) == ops.positions(m, 2, 1, d)
    below = ops.where((i > 0) & (i < n), below, ops.zero(below))
    above = ops.where(i < n - 1, above, ops.zero(above))
    diagonal = ops.where((i < n) | ~unit, ops.where(i < n, diagonal, ops.zero(diagonal)), ops.one(diagonal))
    right = ops.where(i < n, right, ops.zero(right))
    parts = [ops.broadcast(x, (*form.batch, m, x.shape[-1])) for x in (below, diagonal, above, right)]
    return ops.concatenate(parts, -1)


def start(ops: Any, matrix: Matrix, d: Any, form: Blocks) -> Any:
    """The first carried rows."""
    return read(ops, matrix, d, form, 0)[..., form.size :]


def eliminate(ops: Any, carried: Any, new: Any, form: Blocks) -> tuple[Any, Any, Any]:
    """One block column: the carried rows, the pivot rows, and whether a pivot was zero."""
    m, pivots, singular = form.size, [], None
    fill = ops.zero(carried[..., :m])
    carried = ops.concatenate((carried[..., : 2 * m], fill, carried[..., 2 * m :]), -1)
    rows = ops.concatenate((carried, new), -2)
    for j in range(m):
        largest = ops.size(rows[..., j]).argmax(-1)
        chosen = ops.positions(2 * m - j, 1, 0, new) == largest[..., None]
        pivot = ops.where(chosen[..., None], rows, ops.zero(rows)).sum(-2)
        others = ops.where(chosen[..., None], rows[..., :1, :], rows)[..., 1:, :]
        multipliers = others[..., j] / finite(pivot[..., j])[..., None]
        rows = others - multipliers[..., None] * pivot[..., None, :]
        pivots.append(pivot[..., None, :])
        zero = pivot[..., j] == 0
        singular = zero if singular is None else singular | zero
    return rows[..., m:], ops.concatenate(pivots, -2), singular


def backward(ops: Any, after: Any, second: Any, pivots: Any, form: Blocks) -> Any:
    """x[k] from x[k+1] and x[k+2]."""
    m = form.size
    rest = pivots[..., 3 * m :] - product(pivots[..., m : 2 * m], after) - product(pivots[..., 2 * m : 3 * m], second)
    found: list[Any] = []
    for j in reversed(range(m)):
        value = rest[..., j : j + 1, :] / finite(pivots[..., j : j + 1, j : j + 1])
        rest = rest[..., :j, :] - pivots[..., :j, j : j + 1] * value
        found.append(value)
    return ops.concatenate(found[::-1], -2)


def product(blocks: Any, x: Any) -> Any:
    """Small matrices times columns."""
    terms = (blocks[..., j : j + 1] * x[..., j : j + 1, :] for j in range(x.shape[-2]))
    return functools.reduce(operator.add, terms)


def solve(ops: Any, matrix: Matrix, d: Any, form: Blocks) -> Any:
    """A Python loop over block rows; NaN in the systems that met a zero pivot."""
    carried, kept, singular = start(ops, matrix, d, form), [], None
    for i in range(1, form.n + 1):
        carried, pivots, zero = eliminate(ops, carried, read(ops, matrix, d, form, i), form)
        singular = zero if singular is None else singular | zero
        kept.append(pivots)
    after = second = ops.zero(kept[0][..., 3 * form.size :])
    found = []
    for pivots in reversed(kept):
        after, second = backward(ops, after, second, pivots, form), after
        found.append(ops.unsqueeze(after, form.axis))
    return without_singular(ops, ops.concatenate(found[::-1], form.axis), singular)


def without_singular(ops: Any, x: Any, singular: Any) -> Any:
    return ops.where(singular[..., None, None, None], ops.nan(x), x)


def bands(ops: Any, matrix: Matrix, form: Blocks) -> Matrix:
    """All blocks of the matrix, or of its transpose, with every missing one an exact zero."""
    below, diagonal, above = matrix
    n, axis = form.n, form.axis
    if form.transpose:
        below, above = (
            turn(x if x.shape[axis] == 1 else shift(ops, x, axis, by, True)) for x, by in ((above, 1), (below, -1))
        )
        diagonal = turn(diagonal)
    i = ops.positions(n, len(form.shape), axis, diagonal)
    return ops.where(i > 0, below, ops.zero(below)), diagonal, ops.where(i < n - 1, above, ops.zero(above))


def multiply(ops: Any, matrix: Matrix, x: Any, form: Blocks) -> Any:
    """The matrix, or its transpose, times x; linear in its blocks too."""
    before, after = (shift(ops, x, form.axis, by, False) for by in (1, -1))
    terms = (
        (blocks[..., None] * v[..., None, :, :]).sum(-2)
        for blocks, v in zip(bands(ops, matrix, form), (before, x, after), strict=True)
    )
    return functools.reduce(operator.add, terms)
