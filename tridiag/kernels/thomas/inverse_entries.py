"""Entries of inverse matrices where the matrices have their bands, the gradients of log |det A|, from both ends.

Elimination of the rows above row i leaves one row, p x[i-1] + q x[i] = 0, and of those below r x[i] + s x[i+1] = 0.
With row i between them three numbers of column i of the inverse follow by Cramer's rule (Meurant, A review on the
inverse of symmetric tridiagonal and block tridiagonal matrices, SIAM J. Matrix Anal. Appl. 13, 1992):

    (x[i-1], x[i], x[i+1]) = (-q s, p s, -p r) / (s (p b[i] - q a[i]) - r p c[i])

Only the ratio of p to q counts, and that of r to s. They are found without a division, from a pair times the entries of
a row, each scaled by a power of two; so no pivot is needed, none can be zero, and rows may be of any size. Where
numbers are so far apart that digits of a product are lost to underflow, that is told of the matrix.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import numpy as np
from numba import types

from tridiag.kernels.access.bind import operand_of
from tridiag.kernels.access.layouts import views_of
from tridiag.kernels.access.load_store import store_rows
from tridiag.kernels.access.moves import ADVANCE
from tridiag.kernels.access.operands import bytes_of_row
from tridiag.kernels.access.rows import SWEEPS
from tridiag.kernels.jobs.words.systems import X_, Systems
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import c_function, set_half_word, variable
from tridiag.kernels.simd.records import RecordAt, address_of
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code
from tridiag.kernels.thomas.bands import views_of_block
from tridiag.kernels.thomas.bind import bind_group, mask_view, read_mask
from tridiag.kernels.thomas.pivot_products import largest, power_of
from tridiag.kernels.thomas.workspace import BLOCK, allocate_groups, free_workspace

JOB = RecordAt(Systems)
LEAST = {4: 2.0**-120, 8: 2.0**-1000}  # by the bytes of a real: sums of products above it have all digits
PAIR, BANDS = 2, 3  # rows of lanes: of p and q, or r and s; of the entries of a row
Pair = tuple[Any, Any]


# ------------------------------------------------------------------------------------------------ rows


def begin(code: Code, *places: Value) -> None:
    """Before the first row (1, 0), behind the last (0, 1)."""
    above, below = places
    for place, pair in ((above, (code.one(), code.zero())), (below, (code.zero(), code.one()))):
        store_pair(code, place, pair)


def load_pair(code: Code, place: Value) -> Pair:
    return code.load(place), code.load(place + code.row)


def store_pair(code: Code, place: Value, pair: Pair) -> None:
    for k, x in enumerate(pair):
        code.store(place + k * code.row, x)


def downwards(code: Code, *words: Value) -> Value:
    """Keep the pair above each row of a view, and behind them that above the next; the lanes that may lose digits.

    ``words``: the view, where the first of these pairs lies, and how many rows.
    """
    *layout, pairs, count = words
    views = views_of(code, layout, BANDS)

    def row(i: Value, state: Any) -> Any:
        views.ask(i)
        (p, q), lossy = state
        row = [band[i] for band in views.bands]
        (a, b, c), _ = scaled(code, *row)
        for x, y in zip(row, (a, b, c), strict=True):
            lossy = lossy | (too_small(code, y) & ~(x == 0.0))
        diagonal, above = p * b - q * a, p * c
        lossy = lossy | lost(code, diagonal, (p, b), (q, a)) | lost(code, above, (p, c))
        pair, _ = scaled(code, diagonal, above)
        store_pair(code, pairs + (i + 1) * (PAIR * code.row), pair)
        return pair, lossy

    _, lossy = code.fori(0, count, row, (load_pair(code, pairs), no_lanes(code)))
    return code.bits(lossy)


def upwards(code: Code, *words: Value) -> Value:
    """The entries of the rows of a view, last one first, and the pair below the row before the first of them.

    It tells which lanes may lose digits. ``words``: the view, where the first of the pairs above these rows lies, where
    that below them lies, where the entries go, and how many rows.
    """
    *layout, pairs, carried, entries, count = words
    views = views_of(code, layout, BANDS)

    def row(i: Value, state: Any) -> Any:
        (a, b, c), factor = scaled(code, *(band[i] for band in views.bands))
        (p, q), ((r, s), lossy) = load_pair(code, pairs + i * (PAIR * code.row)), state
        left, right = s * a, s * b - r * c
        determinant = p * right - q * left
        inverse, keep = code.quotient(code.one(), determinant), views.keep[i]
        lossy = lossy | too_small(code, determinant)
        for k, (x, y) in enumerate(((-q, s), (p, s), (-p, r))):
            product = x * y
            lossy = lossy | lost(code, product, (x, y))
            found = code.where(keep, times(code, product * inverse, factor), code.zero())
            code.store(entries + (k * BLOCK + i) * code.row, found)
        lossy = lossy | lost(code, left, (s, a)) | lost(code, right, (s, b), (r, c))
        pair, _ = scaled(code, left, right)
        return pair, lossy

    pair, lossy = code.fori(count - 1, -1, row, (load_pair(code, carried), no_lanes(code)), step=-1)
    store_pair(code, carried, pair)
    return code.bits(lossy)


def no_lanes(code: Code) -> Value:
    return code.mask(code.integer(0))


def lost(code: Code, x: Any, *products: tuple[Any, Any]) -> Value:
    """Where x, a sum of products, is so small that it may lack digits of them: it is 0 only where all of them are."""
    some = functools.reduce(operator.or_, [~((y == 0.0) | (z == 0.0)) for y, z in products])
    return some & too_small(code, x)


def too_small(code: Code, x: Any) -> Value:
    return largest(code, x) < LEAST[code.size_of_real]


def scaled(code: Code, *numbers: Any) -> tuple[tuple[Any, ...], Value]:
    """Numbers times a power of two, so that the largest is between 1 and 2; and that power."""
    _, factor = power_of(code, functools.reduce(code.maximum, [largest(code, x) for x in numbers]))
    return tuple(times(code, x, factor) for x in numbers), factor


def times(code: Code, x: Any, factor: Value) -> Any:
    return x * factor if code.parts == 1 else type(x)(x.real * factor, x.imag * factor)


BEGIN, DOWNWARDS, UPWARDS = (
    SWEEPS.add(f"{body.__name__}_to_entries", body) for body in (begin, downwards, upwards)
)  # fmt: skip


# ------------------------------------------------------------------------------------------------ groups


@compiled
def view_words(zero, job, worker, i0, i1):
    a, a_step, b, b_step, c, c_step, _, _ = views_of_block(zero, job, worker, i0, i1, BANDS)
    mask, mask_step = mask_view(zero, worker, i0)
    return a, a_step, b, b_step, c, c_step, mask, mask_step, worker.bindings, i0


@compiled
def find_entries(zero, job, worker, used):
    """Those of a bound group; the lanes that may lack digits."""
    low, high, row = worker.low, worker.high, bytes_of_row(zero, ())
    above, entries = worker.kept, worker.kept + (high - low + 1) * PAIR * row
    lossy = 0
    BEGIN(zero, (above, worker.carry))
    for i0 in range(low, high, BLOCK):
        if stopping_at(i0 // BLOCK, 64):
            return lossy
        i1 = min(i0 + BLOCK, high)
        lossy |= DOWNWARDS(zero, (*view_words(zero, job, worker, i0, i1), above + (i0 - low) * PAIR * row, i1 - i0))
    for block in range((high - low + BLOCK - 1) // BLOCK - 1, -1, -1):
        i0 = low + block * BLOCK
        i1 = min(i0 + BLOCK, high)
        words = view_words(zero, job, worker, i0, i1)
        lossy |= UPWARDS(zero, (*words, above + (i0 - low) * PAIR * row, worker.carry, entries, i1 - i0))
        store_entries(zero, job, worker, i0, i1, entries, row, used)
    none = variable(0)
    store_entries(zero, job, worker, none, low, worker.zeros, none, used)
    store_entries(zero, job, worker, high, job.rows, worker.zeros, none, used)
    return lossy


@compiled
def store_entries(zero, job, worker, first, last, source, step, used):
    """Rows of all three bands, BLOCK rows of lanes apart, or one row for all; X_ is the result for a in the end."""
    target = operand_of(zero, worker.bindings, X_)
    for k in range(BANDS):
        store_rows(zero, target, first, last, source + k * BLOCK * step, step, used)
        ADVANCE(zero, (target, job.gradients[(k + 1) % BANDS] - job.gradients[k]))


@compiled
def work(job, zero):
    """Claim items until none is left; called by every thread of a job."""
    kept = (job.rows + 1) * PAIR + BANDS * BLOCK
    worker = allocate_groups(zero, job, 1, kept, False)
    if address_of(worker) == 0:
        return
    lanes, tiles, matrices = job.lanes, job.tiles, job.matrices
    for item in items(job):
        for first in range(item * tiles * lanes, min(matrices, (item + 1) * tiles * lanes), lanes):
            used = min(lanes, matrices - first)
            bind_group(zero, job, worker, first, used)
            read_mask(zero, job, worker)
            lossy = find_entries(zero, job, worker, used)
            for lane in range(used):
                set_half_word(job.status + 4 * (first + lane), types.int32(lossy >> lane & 1))
    free_workspace(worker)


@compiled
def prepare(job, zero):
    """The operand X_ is the first of the results."""
    job.pointers[X_] = job.gradients[0]


task = c_function(work, "tridiag_inverse_entries", first=JOB)
PREPARE = c_function(prepare, "tridiag_prepare_inverse_entries", first=JOB)


def build(dtype: str):
    """The C function void run(job, helpers) for a dtype."""
    return runner(np.zeros((), dtype)[()], task, PREPARE)
