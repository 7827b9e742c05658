"""Sequences of few steps that lie end to end (`tridiag.kernels.access.end_to_end`), some vectors of them at a time."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tridiag.algorithms import logsumexp
from tridiag.algorithms.logsumexp import State
from tridiag.kernels.access.end_to_end import copy, rows_from, rows_to
from tridiag.kernels.access.operands import bytes_of_real, bytes_of_row, lanes_of
from tridiag.kernels.jobs.words import logsumexp as J
from tridiag.kernels.logsumexp.groups import turned
from tridiag.kernels.logsumexp.workspace import ABREAST, BLOCK
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.explog import Lanes
from tridiag.kernels.simd.functions import Library, by_number
from tridiag.kernels.simd.registers import lanes_of_register, narrow
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code


class Sorted(NamedTuple):
    """Groups of sequences of ``n`` steps as rows of lanes, each of ABREAST groups side by side."""

    n: int

    def read(self, code: Code, *words: Value) -> None:
        """``words``: the address of the first sequence, how many groups, the address of the rows."""
        address, groups, rows = words

        def group(k: Value, state: Any) -> Any:
            for i, x in enumerate(rows_from(code, address + k * (self.n * code.row), self.n)):
                code.store(rows + (k + i * ABREAST) * code.row, x)
            return state

        code.fori(0, groups, group)

    def write(self, code: Code, *words: Value) -> None:
        """The inverse."""
        address, groups, rows = words

        def group(k: Value, state: Any) -> Any:
            found = [code.load(rows + (k + i * ABREAST) * code.row) for i in range(self.n)]
            rows_to(code, address + k * (self.n * code.row), found)
            return state

        code.fori(0, groups, group)


class Steps(NamedTuple):
    """All steps of some groups abreast, with log_a or without; the first result is its term."""

    groups: int
    weighted: bool

    def write(self, code: Code, *words: Value) -> None:
        """``words``: the rows of log_a, which are not read where there is none, of x and y; how far apart; how many."""
        a, x, y, step, rows = words
        whole = code.of_lanes(self.groups * code.lanes)
        for some, first in narrow(whole, 4 * lanes_of_register(code)):
            self.run(some, [place + first * code.size_of_real for place in (a, x, y)], step, rows)

    def run(self, code: Code, places: list[Value], step: Value, rows: Value) -> None:
        """Those of some lanes."""
        a, x, y = places
        ops, first = Lanes(code), code.load(x)
        code.store(y, first)

        def row(t: Value, carried: Any) -> Any:
            log_a = code.load(a + t * step) if self.weighted else None
            state = logsumexp.step(ops, State(*carried), code.load(x + t * step), log_a)
            code.store(y + t * step, logsumexp.result(ops, state, self.weighted))
            return state

        code.fori(1, rows, row, self.begin(ops, first))

    def begin(self, ops: Lanes, x: Value) -> State:
        """The state behind the first term."""
        (m, k), zero = ops.exponential(x), ops.full(x, 0.0)
        return State(k, m, zero, logsumexp.larger(ops, x, ops.full(x, -math.inf)), zero, zero)


SHORT = Library("short_logarithms", short=True)
COPY = SHORT.add("copy", copy)
LENGTHS = [Sorted(n) for n in range(J.FEWEST, J.MOST + 1)]
READ = by_number([SHORT.add(f"read_{some.n}", some.read) for some in LENGTHS], J.FEWEST)
WRITE = by_number([SHORT.add(f"write_{some.n}", some.write) for some in LENGTHS], J.FEWEST)
PLAIN, PLAIN_ABREAST = (SHORT.add(f"plain_{k}", Steps(k, False).write) for k in (1, ABREAST))
WEIGHTED, WEIGHTED_ABREAST = (SHORT.add(f"weighted_{k}", Steps(k, True).write) for k in (1, ABREAST))


@compiled
def read(zero, job, worker, operand, first, count):
    """Sequences of an operand as rows of lanes; those that fill no vector are read from a copy. Returns where."""
    n, lanes, row = job.rows, lanes_of(zero, ()), bytes_of_row(zero, ())
    address, rows = place(zero, job, operand, first), rows_of(zero, worker, operand)
    whole = count // lanes
    READ(zero, n, (address, whole, rows))
    if whole * lanes < count:
        COPY(zero, (address + whole * n * row, worker.spare, (count - whole * lanes) * n))
        READ(zero, n, (worker.spare, 1, rows + whole * row))
    return rows


@compiled
def write(zero, job, worker, first, count):
    """The inverse, of results."""
    n, lanes, row = job.rows, lanes_of(zero, ()), bytes_of_row(zero, ())
    address, rows = place(zero, job, J.RESULT, first), rows_of(zero, worker, J.RESULT)
    whole = count // lanes
    WRITE(zero, n, (address, whole, rows))
    if whole * lanes < count:
        WRITE(zero, n, (worker.spare, 1, rows + whole * row))
        COPY(zero, (worker.spare, address + whole * n * row, (count - whole * lanes) * n))


@compiled
def place(zero, job, operand, sequence):
    return job.pointers[operand] + sequence * job.rows * bytes_of_real(zero, ())


@compiled
def rows_of(zero, worker, operand):
    """Where an operand lies as rows of lanes: log_a, terms and results have a buffer each."""
    return worker.buffers + max(0, operand - J.INIT) * BLOCK * bytes_of_row(zero, ())


@compiled
def run_short(zero, job, worker, first, count):
    """Sequences first, first + 1, ...; no lane has to be bound."""
    lanes, step = lanes_of(zero, ()), ABREAST * bytes_of_row(zero, ())
    for at in range(first, first + count, ABREAST * lanes):
        used = min(ABREAST * lanes, first + count - at)
        weighted = job.flags & J.WEIGHTED
        x = read(zero, job, worker, J.TERMS, at, used)
        a = read(zero, job, worker, J.LOG_A, at, used) if weighted else x
        y = rows_of(zero, worker, J.RESULT)
        y, turn = turned(job, y, step, job.rows)
        words = turned(job, a, step, job.rows)[0], turned(job, x, step, job.rows)[0], y, turn, job.rows
        if weighted:
            if used > lanes:
                WEIGHTED_ABREAST(zero, words)
            else:
                WEIGHTED(zero, words)
        elif used > lanes:
            PLAIN_ABREAST(zero, words)
        else:
            PLAIN(zero, words)
        write(zero, job, worker, at, used)
