"""The inner loops of the gradients of selective scans: the states of a piece of steps, and their cotangents."""

from __future__ import annotations

from typing import Any

from tridiag.kernels.jobs.words import selective as S
from tridiag.kernels.selective.loops import Place, begin, exponential, total
from tridiag.kernels.simd.explog import Lanes
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.fused import fused
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code

ADJOINT = Library("selective_adjoint", short=True)


def advance(sizes: bool, code: Code, *words: Any) -> None:
    """The state before a piece of steps is kept, and that of the next found.

    ``alone``, one or none: the steps before which there are no states.
    """
    job, room, lane, first, first_step, count, alone, kept = words
    place, lanes = Place(code, job, room, lane, first), Lanes(code)
    state = code.load(place.state)
    code.store(kept, state)
    step = one_step(code, place, lanes, first_step, sizes)

    def body(t: Value, h: Value) -> Value:
        return step(t, h, False)[0]

    state = code.fori(0, alone, lambda t, h: step(t, h, True)[0], state)
    code.store(place.state, code.fori(alone, count, body, state))


def one_step(code: Code, place: Place, lanes: Lanes, first_step: Value, sizes: bool) -> Any:
    """A function: the states after a step from those before it, and their coefficients."""
    a, b = (place.operand(k, first_step) for k in (S.A, S.B))
    (x, x_step), (size, size_step) = (place.row(k, first_step) for k in (S.X, S.STEP))

    def step(t: Value, h: Value, first: bool) -> tuple[Value, Value]:
        terms = code.spread(x + t * x_step)
        delta = code.spread(size + t * size_step) if sizes else None
        if delta is not None:
            terms = terms * delta
        if first:
            return terms * b.read(t), code.zero()
        decay = a.read(t) if delta is None else exponential(lanes, delta * a.read(t))
        return fused(code, decay, h, terms * b.read(t)), decay

    return step


def back(sizes: bool, code: Code, *words: Any) -> None:
    """The cotangents of a piece of steps, last step first; that of the states before it is left in place of ``carry``.

    ``rows``: room for two vectors a step.
    """
    job, room, lane, first, first_step, count, alone, kept, rows, carry = words
    place, lanes = Place(code, job, room, lane, first), Lanes(code)
    step, used = one_step(code, place, lanes, first_step, sizes), place.used

    def keep(t: Value, h: Value, first: bool) -> Value:
        code.store(rows + t * (2 * code.row), h)
        h, decay = step(t, h, first)
        code.store(rows + t * (2 * code.row) + code.row, decay)
        return h

    start = code.load(kept)
    start = code.fori(0, alone, lambda t, h: keep(t, h, True), start)
    last = code.fori(alone, count, lambda t, h: keep(t, h, False), start)

    a, b, c = (place.operand(k, first_step) for k in (S.A, S.B, S.READ))
    (g, g_step), (x, x_step), (size, size_step) = (place.row(k, first_step) for k in (S.Y, S.X, S.STEP))
    (of_x, of_x_step), (of_size, of_size_step) = (place.row(k, first_step) for k in (S.OF_X, S.OF_STEP))
    sums = [place.row(k, first_step) for k in S.SUMMED]
    offset = place.first * code.size_of_real

    def add(operand: int, t: Value, value: Value) -> None:
        base, stride = sums[operand]
        at = base + t * stride + offset
        code.store_some(at, code.load_some(at, used) + value, used)

    def add_one(at: Value, value: Value) -> None:
        code.store_as(at, code.load_as(code.real, at) + value)

    def all_of(value: Value) -> Value:
        return total(code, code.where(used, value, code.zero()))

    def step_back(k: Value, state: Any) -> Any:
        carried, after = state
        t = count - 1 - k
        before, decay = code.load(rows + t * (2 * code.row)), code.load(rows + t * (2 * code.row) + code.row)
        of_y, x_t, b_t = code.spread(g + t * g_step), code.spread(x + t * x_step), b.read(t)
        w = fused(code, c.read(t), of_y, carried)
        add(2, t, of_y * after)
        through, products = all_of(w * b_t), w * before
        if sizes:
            delta, a_t = code.spread(size + t * size_step), a.read(t)
            products = products * decay
            add(0, t, products * delta)
            add(1, t, w * (x_t * delta))
            single = code.extract(delta, 0)
            add_one(of_size + t * of_size_step, code.extract(x_t, 0) * through + all_of(products * a_t))
            add_one(of_x + t * of_x_step, single * through)
        else:
            add(0, t, products)
            add(1, t, w * x_t)
            add_one(of_x + t * of_x_step, through)
        return decay * w, before

    def first_back(k: Value, state: Any) -> Any:
        """Of the step before which there are no states, whose coefficient is not read."""
        carried, after = state
        of_y, x_t = code.spread(g), code.spread(x)
        w = fused(code, c.read(code.integer(0)), of_y, carried)
        add(2, code.integer(0), of_y * after)
        through = all_of(w * b.read(code.integer(0)))
        if sizes:
            delta = code.spread(size)
            add(1, code.integer(0), w * (x_t * delta))
            add_one(of_size, code.extract(x_t, 0) * through)
            add_one(of_x, code.extract(delta, 0) * through)
        else:
            add(1, code.integer(0), w * x_t)
            add_one(of_x, through)
        return carried, after

    state = code.load(carry), last
    state = code.fori(0, count - alone, step_back, state)
    carried, _ = code.fori(0, alone, first_back, state)
    code.store(carry, carried)


def begin_back(code: Code, *words: Any) -> None:
    """The cotangent of the last states, or 0."""
    job, room, lane, first, carry = words
    place = Place(code, job, room, lane, first)
    given = code.pick(job.pointers[S.LAST] != 0, code.integer(1), code.integer(0))
    target, _ = place.row(S.LAST)

    def load(_: Value, state: Any) -> Value:
        return code.load_some(target + place.first * code.size_of_real, place.used)

    code.store(carry, code.fori(0, given, load, code.zero()))


def finish_back(code: Code, *words: Any) -> None:
    """The cotangent of the states before the first step goes to the caller."""
    job, room, lane, first, carry = words
    place = Place(code, job, room, lane, first)
    target, _ = place.row(S.OF_INIT)
    code.store_some(target + place.first * code.size_of_real, code.load(carry), place.used)


def plain(function: Any) -> Any:
    return ADJOINT.add(f"{function.__name__}_plain", lambda code, *words: function(False, code, *words))


def discretised(function: Any) -> Any:
    return ADJOINT.add(f"{function.__name__}_discretised", lambda code, *words: function(True, code, *words))


ADVANCE, BACK = (plain(function) for function in (advance, back))
ADVANCE_DISCRETISED, BACK_DISCRETISED = (discretised(function) for function in (advance, back))
BEGIN, BEGIN_BACK, FINISH_BACK = (
    ADJOINT.add(function.__name__, function) for function in (begin, begin_back, finish_back)
)  # which know the memory of a worker
