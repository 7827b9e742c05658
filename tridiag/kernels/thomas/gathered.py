"""Systems of very few rows that lie evenly spaced in memory, each operand in its own way: brought to rows of lanes.

Some at a time, so that the copies stay in the first cache; from both ends, as `short_systems`. Groups without
certificate are solved as others are.
"""

from __future__ import annotations

from typing import Any

from tridiag.kernels.access.layouts import lines_of_rows, rows_of_lines
from tridiag.kernels.access.moves import in_groups
from tridiag.kernels.access.operands import bytes_of_number, bytes_of_real, lanes_of, parts_of
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import A_, B_, C_, D_, X_
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.compiled import compiled, inlined
from tridiag.kernels.simd.functions import Library, by_number
from tridiag.kernels.simd.memory import word
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code
from tridiag.kernels.thomas.short_systems import Short, settle
from tridiag.kernels.thomas.workspace import PITCH

TOGETHER = 8  # numbers that are copied at a time


class Gathered(Short):
    """Systems of n rows, the same row of neighbours side by side, and the next one PITCH bytes further.

    Imaginary parts lie behind real ones, as another row.
    """

    __slots__ = ()

    def is_asked_for(self, code: Code) -> bool:
        return self.n * code.parts <= J.MOST_GATHERED

    def place(self, code: Code, first: Value) -> Value:
        return first * code.size_of_real

    def rows(self, code: Code, address: Value) -> list[Any]:
        return load_rows(code, address, self.n)

    def put(self, code: Code, address: Value, rows: list[Any]) -> None:
        store_rows(code, address, rows)


def load_rows(code: Code, address: Value, n: int) -> list[Any]:
    """The n rows of a vector of systems that are gathered."""
    found = [code.load_as(code.vector, address + k * PITCH) for k in range(n * code.parts)]
    return rows_of_lines(code, found)


def store_rows(code: Code, address: Value, rows: list[Any]) -> None:
    """The inverse."""
    for k, line in enumerate(lines_of_rows(code, rows)):
        code.store_as(address + k * PITCH, line)


def gather(code: Code, *words: Value) -> None:
    """``words``: how many numbers, the first one, how far the next is, and where all are to lie side by side.

    As many are asked for behind them, which are gathered next.
    """
    count, source, apart, target = words

    def some(together: int, first: Value) -> None:
        at, to = source + first * apart, target + first * code.size_of_real
        for k in range(0, together, TOGETHER // 2):
            code.prefetch(at + (count + k) * apart)
        for k, x in enumerate([code.load_as(code.real, at + k * apart) for k in range(together)]):
            code.store_as(to + k * code.size_of_real, x)

    in_groups(code, count, TOGETHER, some)


def scatter(code: Code, *words: Value) -> None:
    """The inverse."""
    count, target, apart, source = words

    def some(together: int, first: Value) -> None:
        of, to = source + first * code.size_of_real, target + first * apart
        for k, x in enumerate([code.load_as(code.real, of + k * code.size_of_real) for k in range(together)]):
            code.store_as(to + k * apart, x)

    in_groups(code, count, TOGETHER, some)


LOOPS, NUMBERS = Library("gathered", short=True), range(1, J.MOST_GATHERED + 1)
UP = by_number([LOOPS.add(f"up_{n}", Gathered(n).up) for n in NUMBERS], 1)
THROUGH = by_number([LOOPS.add(f"through_{n}", Gathered(n).through) for n in NUMBERS], 1)
GATHER, SCATTER = LOOPS.add("gather", gather), LOOPS.add("scatter", scatter)


@compiled
def address(job, operand, system):
    """Of the first row of a system of an operand, and how far the next system is."""
    apart = field(job, J.AXES + 1 + operand)
    return job.pointers[operand] + system * apart, apart


@compiled
def gather_rows(zero, job, operand, first, count, target):
    """Rows of an operand of systems from ``first`` on to scratch memory."""
    (at, apart), parts, size = address(job, operand, first), parts_of(zero, ()), bytes_of_real(zero, ())
    for k in range(job.rows * parts):
        place = k // parts * job.strides[operand] + k % parts * size
        GATHER(zero, (count, at + place, apart, target + k * PITCH))


@compiled
def scatter_rows(zero, job, operand, first, count, source):
    """The inverse."""
    (at, apart), parts, size = address(job, operand, first), parts_of(zero, ()), bytes_of_real(zero, ())
    for k in range(job.rows * parts):
        place = k // parts * job.strides[operand] + k % parts * size
        SCATTER(zero, (count, at + place, apart, source + k * PITCH))


@compiled
def bring(zero, job, worker, operand, place, first, used, count):
    """Where rows of an operand of systems from ``first`` on are gathered; those behind ``used`` repeat the first."""
    target, size = worker.short_spare + place * J.MOST_GATHERED * PITCH, bytes_of_real(zero, ())
    gather_rows(zero, job, operand, first, used, target)
    for k in range(used, count):
        gather_rows(zero, job, operand, first, 1, target + k * size)
    return target


@inlined
def solve_gathered(zero, job, worker, first, last, solve_one):
    """Systems from ``first`` on, before ``last``: how many; whole vectors, or those that fill none."""
    n, lanes, size, kept, good = job.rows, lanes_of(zero, ()), bytes_of_real(zero, ()), worker.short, worker.short_good
    used = min(last - first, PITCH // size)
    if used > lanes:
        used = used // lanes * lanes
    count, every = (used + lanes - 1) // lanes * lanes, (1 << lanes) - 1
    a = bring(zero, job, worker, A_, 0, first, used, count)
    b = bring(zero, job, worker, B_, 1, first, used, count)
    c = bring(zero, job, worker, C_, 2, first, used, count)
    d = bring(zero, job, worker, D_, 3, first, used, count)
    x = worker.short_spare + 4 * J.MOST_GATHERED * PITCH
    THROUGH(zero, n, (a, b, c, d, count, kept, good, x))
    done = 0
    for k in range(0, count, lanes):
        fine = word(good + k // lanes * 8)
        if fine == every:
            continue
        scatter_rows(zero, job, X_, first + done, k - done, x + done * size)
        some = min(lanes, used - k)
        own, told = kept + k * n * bytes_of_number(zero, ()), good + k // lanes * 8
        settle(zero, job, worker, first + k, some, x + k * size, own, told, solve_one, UP)
        for lane in range(some):
            if fine >> lane & 1:
                scatter_rows(zero, job, X_, first + k + lane, 1, x + (k + lane) * size)
        done = k + some
    scatter_rows(zero, job, X_, first + done, used - done, x + done * size)
    return used
