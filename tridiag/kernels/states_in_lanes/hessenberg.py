"""Models in another basis of their states, as `tridiag.kernels.many_states.hessenberg` has it: a model in each lane."""

from __future__ import annotations

from typing import Any

from tridiag.kernels.many_states.hessenberg import DENSE
from tridiag.kernels.many_states.rows import each
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code
from tridiag.kernels.states_in_lanes.copies import joined_below, mirror, pick_out, profile_of
from tridiag.kernels.states_in_lanes.matrices import library
from tridiag.kernels.states_in_lanes.steps import load_motion, load_sight
from tridiag.kernels.states_in_lanes.workspace import LOSS


def scale(code: Code, worker: At, size: Value, observed: Value) -> None:
    """States in units of the standard deviations that they begin with, or have a step later.

    A lane in which one of those is 0 or infinite is to be computed again, otherwise.
    """
    units, inverse, most = worker.scratch, worker.older, worker.now

    def variance(matrix: Value, i: Value) -> Value:
        return code.load(matrix + i * (size + 1) * LINE)

    def begin(i: Value) -> None:
        code.store(most + i * LINE, code.maximum(variance(worker.cov, i), variance(worker.Q, i)))

    def unit(i: Value, state: Any) -> Any:
        def term(j: Value, sums: Any) -> Any:
            entry = code.load(worker.F + (i * size + j) * LINE)
            return (sums[0] + entry * code.load(most + j * LINE) * entry,)

        moved = code.fori(0, size, term, (code.zero(),))[0]
        own = code.call("sqrt", code.maximum(code.load(most + i * LINE), moved))
        usable = (own > 0.0) & (own < float("inf"))
        own = code.where(usable, own, code.one())
        code.store(units + i * LINE, own)
        code.store(inverse + i * LINE, 1.0 / own)
        return (code.where(usable, state[0], code.one()),)

    def row(i: Value) -> None:
        left, right = code.load(units + i * LINE), code.load(inverse + i * LINE)
        multiply(code, worker.mean + i * LINE, right)

        def entry(j: Value) -> None:
            at, other = (i * size + j) * LINE, code.load(inverse + j * LINE)
            multiply(code, worker.F + at, right * code.load(units + j * LINE))
            for matrix in (worker.Q, worker.cov):
                multiply(code, matrix + at, right * other)

        each(code, 0, size, entry)
        each(code, 0, observed, lambda q: multiply(code, worker.H + (q * size + i) * LINE, left))

    each(code, 0, size, begin)
    loss = worker.sums + LOSS * LINE
    code.store(loss, code.fori(0, size, unit, (code.load(loss),))[0])
    each(code, 0, size, row)


def multiply(code: Code, at: Value, factor: Value) -> None:
    code.store(at, code.load(at) * factor)


def reflector(code: Code, worker: At, size: Value, column: Value) -> None:
    """v and b, where (1 - b v v^T) takes the entries of a column of F below the diagonal to the first of them.

    b is 0 where they are there already. v goes to ``moved``, and b to ``now``.
    """
    first = worker.F + ((column + 1) * size + column) * LINE
    count, step = size - column - 1, size * LINE
    least = code.tiny / code.eps**2

    def square(i: Value, sums: Any) -> Any:
        x = code.load(first + i * step)
        code.store(worker.moved + i * LINE, x)
        return (sums[0] + x * x,)

    rest = code.fori(1, count, square, (code.zero(),))[0]
    own = code.load(first)
    length = code.call("sqrt", own * own + rest)
    there = rest < least
    signed = code.where(own < 0.0, -length, length)
    code.store(worker.moved, own + signed)
    code.store(worker.now, code.where(there, code.zero(), 1.0 / (length * (length + code.magnitude(own)))))
    code.store(first, code.where(there, own, -signed))
    each(code, 1, count, lambda i: code.store(first + i * step, code.zero()))


def reflect(code: Code, worker: At, matrix: Value, line: Value, step: Value, count: Value, lines: Value) -> None:
    """x - b v (v^T x) for each line x of a matrix: ``line`` and ``step`` are the bytes to the next line, and entry."""
    factor = code.load(worker.now)

    def one(i: Value) -> None:
        own = matrix + i * line

        def term(j: Value, sums: Any) -> Any:
            return (sums[0] + code.load(own + j * step) * code.load(worker.moved + j * LINE),)

        by = factor * code.fori(0, count, term, (code.zero(),))[0]

        def entry(j: Value) -> None:
            at = own + j * step
            code.store(at, code.load(at) - by * code.load(worker.moved + j * LINE))

        each(code, 0, count, entry)

    each(code, 0, lines, one)


scale_states, reflector_of, reflected = (
    library.add(name, body) for name, body in (("scale_states", scale), ("reflector", reflector), ("reflect", reflect))
)


@compiled
def change_basis(zero, job, worker):
    """The model of a group, and the states that it begins with, where F is dense."""
    k, p, row = job.states, job.observed, job.states * LINE
    load_motion(zero, job, worker, 0)
    load_sight(zero, job, worker, 0)
    worker.held = 1
    if DENSE[1] * profile_of(zero, (worker.profile, worker.F, k)) < DENSE[0] * k * k:
        return
    mirror(zero, (worker.Q, k))
    scale_states(zero, (worker, k, p))
    for column in range(k - 2):
        at, count = (column + 1) * LINE, k - column - 1
        reflector_of(zero, (worker, k, column))
        below = worker.F + at * k
        reflected(zero, (worker, below + at, LINE, row, count, count))
        reflected(zero, (worker, worker.F + at, row, LINE, count, k))
        for matrix in (worker.Q, worker.cov):
            reflected(zero, (worker, matrix + at * k, LINE, row, count, k))
            reflected(zero, (worker, matrix + at, row, LINE, count, k))
        reflected(zero, (worker, worker.H + at, row, LINE, count, p))
        reflected(zero, (worker, worker.mean + at, row, LINE, count, 1))
    mirror(zero, (worker.cov, k))
    for target in (worker.before, worker.spread):
        pick_out(zero, (target, worker.cov, row + LINE, k))
    profile_of(zero, (worker.profile, worker.F, k))
    joined_below(zero, (worker.below, worker.profile, k))
