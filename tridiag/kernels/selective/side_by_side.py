"""Selective scans of a sequence in each lane, all their states in turn.

What multiplies the input, and the states where they are read, is the same for these sequences; coefficients are too, or
hold for all steps, and are then brought into lanes once for a group. Sequences that do not lie side by side are
gathered, a piece of their steps at a time.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from tridiag.kernels.access.load_store import load_in_quads, store_in_quads
from tridiag.kernels.access.moves import LOAD_SCATTERED, STORE_SCATTERED, first_lanes
from tridiag.kernels.access.operands import QUAD, bytes_of_real, lanes_of
from tridiag.kernels.access.sequences import TABLE
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.jobs.words import selective as S
from tridiag.kernels.jobs.words.selective import PIECE
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.selective.loops import LOOPS, Place, exponential
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.explog import Lanes
from tridiag.kernels.simd.functions import by_number
from tridiag.kernels.simd.fused import fused
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import load, store, variable, word
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code


class Kind(NamedTuple):
    """Which loops advance states."""

    sizes: bool  # whether steps have sizes
    own: bool  # whether each sequence has coefficients of its own

    @property
    def name(self) -> str:
        return f"together{'_discretised' * self.sizes}{'_own' * self.own}"


def together(kind: Kind, code: Code, *words: Any) -> None:
    """Steps begin <= t < begin + count of so many sequences; before the first ``alone`` of them there are no states.

    The results, inputs and sizes of steps are where their words say: that of the first step, and how far the next is.
    """
    job, room, sequences, first_step, count, alone, y, y_step, x, x_step, size, size_step = words
    place, lanes, zero = Place(code, job, room, code.integer(0), code.integer(0)), Lanes(code), code.integer(0)
    used, width = first_lanes(code, sequences), code.size_of_real
    (a, a_step), (b, b_step), (c, c_step) = (place.row(k, first_step) for k in (S.A, S.B, S.READ))
    next_a, next_b, next_c = (
        code.pick((job.flags & (S.SAME << k)) != 0, zero, code.integer(width)) for k in (S.A, S.B, S.READ)
    )

    def step(t: Value, first: bool) -> None:
        terms = code.load_some(x + t * x_step, used)
        delta = code.load_some(size + t * size_step, used) if kind.sizes else None
        if delta is not None:
            terms = terms * delta

        def coefficient(j: Value) -> Value:
            found = code.load(room.coefficients + j * LINE) if kind.own else code.spread(a + t * a_step + j * next_a)
            return found if delta is None else exponential(lanes, delta * found)

        def one(j: Value, total: Value) -> Value:
            at = room.states + j * LINE
            h = terms * code.spread(b + t * b_step + j * next_b)
            if not first:
                h = fused(code, coefficient(j), code.load(at), h)
            code.store(at, h)
            return fused(code, code.spread(c + t * c_step + j * next_c), h, total)

        code.store_some(y + t * y_step, code.fori(0, job.length, one, code.zero()), used)

    def all_of(t: Value, state: Any, first: bool) -> Any:
        step(t, first)
        return state

    code.fori(0, alone, functools.partial(all_of, first=True))
    code.fori(alone, count, functools.partial(all_of, first=False))


KINDS = [Kind(sizes, own) for sizes in (False, True) for own in (False, True)]
advance = by_number([LOOPS.add(kind.name, functools.partial(together, kind)) for kind in KINDS], 0)


@compiled
def into_lanes(zero, job, room, operand, target):
    """The numbers of all states, of each sequence in its lane; 0 where the operand is not given."""
    size, table = bytes_of_real(zero, ()), room.addresses.lanes + TABLE * operand
    step = 0 if job.flags & (S.SAME << operand) else size
    for lane in range(lanes_of(zero, ())):
        at = word(table + 8 * lane)
        for j in range(job.length):
            value = load(at + j * step, zero) if job.pointers[operand] != 0 else zero
            store(target + j * LINE + lane * size, value)


@compiled
def side_by_side(job, room, operand, begin):
    """Where step ``begin`` of sequences that lie side by side is in an operand, and how far the next one is."""
    stride = field(job, C.TABLE + operand)
    return word(room.addresses.lanes + TABLE * operand) + begin * stride, stride


@compiled
def gathered(zero, job, room, operand, begin, steps, target):
    """So many steps of all lanes, brought to where rows of lanes are; that place, and how far the next row is."""
    table, stride = room.addresses.lanes + TABLE * operand, field(job, C.TABLE + operand)
    if stride == bytes_of_real(zero, ()) and steps >= QUAD:
        load_in_quads(zero, table, begin, begin + steps, target)
    else:
        LOAD_SCATTERED(zero, (table, stride, variable(0), begin, begin + steps, target))
    return target, LINE


@compiled
def scatter(zero, job, room, begin, steps, source):
    """The results of so many steps to all lanes; those that are left over repeat the last sequence."""
    table, stride = room.addresses.lanes + TABLE * S.Y, field(job, C.TABLE + S.Y)
    if stride == bytes_of_real(zero, ()) and steps >= QUAD:
        store_in_quads(zero, table, begin, begin + steps, source, LINE)
    else:
        STORE_SCATTERED(zero, (table, stride, begin, begin + steps, source, LINE))


@compiled
def scan_side_by_side(zero, job, room, count):
    """All steps of so many sequences, whose addresses are bound."""
    size, n, coefficients = bytes_of_real(zero, ()), job.steps, room.addresses.lanes + TABLE * S.A
    # the last lane has the last sequence, as those behind it that are left over
    own = word(coefficients) != word(coefficients + 8 * (lanes_of(zero, ()) - 1))
    apart, sizes = job.kind == S.APART, job.pointers[S.STEP] != 0
    if job.flags & S.STARTED != 0:
        into_lanes(zero, job, room, S.INIT, room.states)
    if own:
        into_lanes(zero, job, room, S.A, room.coefficients)
    kind, lanes = (2 if sizes else 0) + (1 if own else 0), lanes_of(zero, ()) if apart else count
    for begin in range(0, n, PIECE):
        if stopping_at(begin // PIECE, 16):
            return
        steps, alone = min(PIECE, n - begin), 1 if begin == 0 and job.flags & S.STARTED == 0 else 0
        if apart:
            x, x_step = gathered(zero, job, room, S.X, begin, steps, room.inputs)
            delta, delta_step = x, x_step
            if sizes:
                delta, delta_step = gathered(zero, job, room, S.STEP, begin, steps, room.sizes)
            y, y_step = room.rows, LINE
        else:
            x, x_step = side_by_side(job, room, S.X, begin)
            delta, delta_step = side_by_side(job, room, S.STEP, begin)
            y, y_step = side_by_side(job, room, S.Y, begin)
        advance(zero, kind, (job, room, lanes, begin, steps, alone, y, y_step, x, x_step, delta, delta_step))
        if apart:
            scatter(zero, job, room, begin, steps, y)
    if job.pointers[S.LAST] != 0:
        for lane in range(count):
            at = word(room.addresses.lanes + TABLE * S.LAST + 8 * lane)
            for j in range(job.length):
                store(at + j * size, load(room.states + j * LINE + lane * size, zero))
