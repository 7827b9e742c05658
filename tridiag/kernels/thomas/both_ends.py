"""Few or small systems: plain elimination from both ends of each, down and up at the same time, to a row in the middle.

A row waits for the one before it, a division and three more operations long. The rows at the two ends do not wait for
each other, so two of them are eliminated in the time of one. It is the elimination of a matrix whose rows and columns
are in another order: what the certificate says is the same. Nothing is bound, claimed or copied, so that a small call
costs little beside its arithmetic; nothing is written before all systems have their certificate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba import njit, types

from tridiag.algorithms import elimination as el
from tridiag.kernels.access.bind import offset
from tridiag.kernels.access.moves import first_lanes
from tridiag.kernels.access.operands import bytes_of_real, bytes_of_row, lanes_of, parts_of
from tridiag.kernels.access.rows import Rows
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.record import Word
from tridiag.kernels.jobs.words.systems import A_, B_, C_, D_, X_, Systems
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.runtime.workspace import Workspace, workspace
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.memory import c_function
from tridiag.kernels.simd.records import RecordAt, address_of
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import ONCE, OPTIONS, Code
from tridiag.kernels.thomas.bands import band_of
from tridiag.kernels.thomas.steps import Thomas, certified, invertible, lossless, no_quotient
from tridiag.kernels.thomas.sweeps import ROWS_PLAIN

EARLY = 32  # rows from each end, after which a system that has lost its certificate is given up
JOB = RecordAt(Systems)


class Ends(Workspace):
    """``kept``: for each group c' and y' of its rows, those from the top behind a place for x in the middle."""

    kept = Word()


ARRAYS, allocate, give_back = workspace(Ends, "kept")


# ------------------------------------------------------------------------------------------------ rows of a group


class Half(NamedTuple):
    """The numbers of rows that are eliminated from the bottom and from the top of ``n``, but for the one between."""

    bottom: Value
    top: Value

    @staticmethod
    def of(code: Code, n: Value) -> Half:
        bottom = code.shift(n - 1, -1)
        return Half(bottom, n - 1 - bottom)


def places(code: Code, kept: Value, half: Half) -> tuple[list[Rows], list[Rows]]:
    """What is kept of rows, counted from the top and from the bottom; before the first from the top is one place."""
    step = ROWS_PLAIN * code.row
    top = kept + step
    return tuple(  # type: ignore[return-value]
        [Rows(code, base + k * code.row, step) for k in range(ROWS_PLAIN)] for base in (top, top + half.top * step)
    )


class Band(NamedTuple):
    """A band or a right side of groups: the first row, from row to row, from group to group, by how many rows moved."""

    at: Value
    stride: Value
    step: Value
    move: Value

    def load(self, code: Code, g: Value, i: Value, used: Value) -> Value:
        place = self.at + g * self.step + (i + self.move) * self.stride
        return code.load(place) if code.lanes == 1 else code.load_some(place, used)


def lanes_used(code: Code, systems: Value, g: Value) -> Value:
    return code.all_lanes() if code.lanes == 1 else first_lanes(code, systems - g * code.lanes)


class Group:
    """Rows of one group; ``first`` and ``last``: a coupling of the first row and one of the last are not there."""

    def __init__(self, code: Code, bands: list[Band], g: Value, used: Value) -> None:
        self.code, self.bands, self.g, self.used = code, bands, g, used

    def row(self, i: Value, first: Value | None = None, last: Value | None = None) -> tuple[Any, ...]:
        a, b, c, d = self.bands
        coupling, behind = self.coupling(a, i, first), self.coupling(c, i, last)
        diagonal = self.code.where(self.used, b.load(self.code, self.g, i, self.used), self.code.one())
        return coupling, diagonal, behind, d.load(self.code, self.g, i, self.used)

    def coupling(self, band: Band, i: Value, gone: Value | None) -> Value:
        code = self.code
        if gone is None:
            return band.load(code, self.g, i, self.used)
        move = code.pick(gone, code.integer(0), band.move)
        x = band._replace(move=move).load(code, self.g, i, self.used)
        return code.where(code.everywhere(gone), code.zero(), x)


def sure_of(code: Code, state: Thomas) -> Value:
    return state.sure & state.alive & lossless(code, state.least)


def eliminate_group(code: Code, group: Group, n: Value, kept: Value) -> Value:
    """c' and y' of all rows but the middle one, and x of that; the certified lanes."""
    half, every = Half.of(code, n), code.all_lanes()
    above, below = places(code, kept, half)

    def down(k: Value, state: Thomas) -> Thomas:
        state, rows = state.down(code, every, *group.row(k, first=k == 0))
        for target, x in zip(above, rows, strict=True):
            target.store(k, x)
        return state

    def pair(k: Value, states: Any) -> Any:
        a, b, c, d = group.row(n - 1 - k, last=k == 0)
        state, rows = states[1].down(code, every, c, b, a, d)
        for target, x in zip(below, rows, strict=True):
            target.store(k, x)
        return down(k, states[0]), state

    nothing = Thomas(code.zero(), code.zero(), every, every, no_quotient(code))
    soon = code.pick(half.bottom < EARLY, half.bottom, code.integer(EARLY))
    states = code.fori(0, soon, pair, (nothing, nothing))
    fine = code.bits(sure_of(code, states[0]) & sure_of(code, states[1]) | ~group.used)
    end = code.pick(fine == 2**code.lanes - 1, half.bottom, soon)
    top, bottom = code.fori(soon, end, pair, states)
    top = code.fori(half.bottom, half.top, down, top)
    x, sure = join(code, top, bottom, group.row(half.top, first=n == 1, last=n == 1))
    Rows(code, kept, 0).store(code.integer(0), x)
    return code.bits(sure | ~group.used)


def join(code: Code, top: Thomas, bottom: Thomas, row: tuple[Any, ...]) -> tuple[Value, Value]:
    """x of the row between two that are eliminated, and where that was harmless."""
    a, b, c, d = row
    left, right = a * top.above, c * bottom.above
    pivot = b - left - right
    middle = el.Reciprocal(code.size(left) + code.size(right), pivot, code.one() / pivot, pivot)
    sure = certified(code, middle, b) & invertible(code, pivot) & sure_of(code, top) & sure_of(code, bottom)
    return (d - a * top.before - c * bottom.before) * middle.inverse, sure


def substitute_group(code: Code, band: Band, g: Value, n: Value, kept: Value, used: Value) -> None:
    """x of all rows, from the middle to both ends."""
    half, start = Half.of(code, n), code.load(kept)
    above, below = places(code, kept, half)

    def put(i: Value, x: Value) -> Value:
        place = band.at + g * band.step + i * band.stride
        if code.lanes == 1:
            code.store(place, x)
        else:
            code.store_some(place, x, used)
        return x

    def up(k: Value, x1: Value) -> Value:
        return put(k, Thomas.up([rows[k] for rows in above], x1))

    def pair(k: Value, behind: Any) -> Any:
        return up(k, behind[0]), put(n - 1 - k, Thomas.up([rows[k] for rows in below], behind[1]))

    put(half.top, start)
    top = code.fori(half.top - 1, half.bottom - 1, up, start, step=-1)
    code.fori(half.bottom - 1, -1, pair, (top, start), step=-1)


# ------------------------------------------------------------------------------------------------ groups


def bytes_kept(code: Code, n: Value) -> Value:
    return (n + 1) * (ROWS_PLAIN * code.row)


def eliminate(code: Code, *words: Value) -> Value | None:
    """All groups of some neighbours; 1 where all have their certificate. ``words``: four bands, rows, systems, kept."""
    *bands, n, systems, kept = words
    if code.parts != 1:
        return None  # of complex numbers it is never called
    four = [Band(*bands[k : k + 4]) for k in range(0, len(bands), 4)]

    def group(g: Value, state: Any) -> Any:
        rows = Group(code, four, g, lanes_used(code, systems, g))
        return (state[0] & eliminate_group(code, rows, n, kept + g * bytes_kept(code, n)),)

    every = code.integer(2**code.lanes - 1)
    (fine,) = code.fori(0, groups_in(code, systems), group, (every,))
    return code.pick(fine == every, code.integer(1), code.integer(0))


def substitute(code: Code, *words: Value) -> None:
    """``words``: the solution, as a band, rows, systems, kept."""
    *band, n, systems, kept = words
    if code.parts != 1:
        return

    def group(g: Value, state: tuple[()]) -> tuple[()]:
        place = kept + g * bytes_kept(code, n)
        substitute_group(code, Band(*band), g, n, place, lanes_used(code, systems, g))
        return state

    code.fori(0, groups_in(code, systems), group)


def groups_in(code: Code, systems: Value) -> Value:
    return (systems + (code.lanes - 1)) / code.lanes


def in_numbers(body: Any) -> Any:
    """The same of groups of one system, of which one number is kept where else is a row of lanes."""

    def write(code: Code, *words: Value) -> Any:
        one = code.of_one_lane()
        one.row = one.size_of_real
        return body(one, *(Value(one, x.llvm) for x in words))

    return write


LOOPS = Library("both_ends")
ELIMINATE, SUBSTITUTE = LOOPS.add("eliminate", eliminate), LOOPS.add("substitute", substitute)
ELIMINATE_ONE = LOOPS.add("eliminate_one", in_numbers(eliminate))
SUBSTITUTE_ONE = LOOPS.add("substitute_one", in_numbers(substitute))


# ------------------------------------------------------------------------------------------------ a job


@njit(**OPTIONS)
def band_words(zero, job, operand, move, first, width):
    """Where an operand of groups of ``width`` systems begins, at the system ``first``, as a `Band`."""
    axes = job.matrix_axes
    step = field(job, J.AXES + J.AXIS_WORDS * (axes - 1) + 1 + operand) if axes > 0 else 0
    at = job.pointers[operand] + offset(job, J.AXES, axes, first, operand)
    return at, job.strides[operand], step * width, move


@njit(**ONCE)
def solve_neighbours(zero, job, kept, size, width, down, up):
    """All systems, ``job.abreast`` neighbours along the last axis after the other; False: not all are certified."""
    matrices, neighbours, n = job.matrices, job.abreast, job.rows
    (a, a_move), (c, c_move) = band_of(job, 0), band_of(job, 2)
    for first in range(0, matrices, neighbours):
        bands = (
            *band_words(zero, job, a, a_move, first, width),
            *band_words(zero, job, B_, 0, first, width),
            *band_words(zero, job, c, c_move, first, width),
            *band_words(zero, job, D_, 0, first, width),
        )
        if down(zero, (*bands, n, neighbours, kept + first // neighbours * size)) == 0:
            return False
    for first in range(0, matrices, neighbours):
        words = n, neighbours, kept + first // neighbours * size
        up(zero, (*band_words(zero, job, X_, 0, first, width), *words))
    return True


@njit(**OPTIONS)
def solve_from_both_ends(job, zero):
    """Whether this was the job of this schedule, and all systems are solved."""
    neighbours, row, n = job.abreast, bytes_of_row(zero, ()), job.rows
    if neighbours == 0 or job.after != 0 or parts_of(zero, ()) != 1:
        return types.int64(0)
    in_lanes = job.flags & J.SIDE_BY_SIDE != 0
    width = lanes_of(zero, ()) if in_lanes else 1
    size = (neighbours + width - 1) // width * (n + 1) * ROWS_PLAIN * (row if in_lanes else bytes_of_real(zero, ()))
    memory = allocate(ARRAYS(kept=job.matrices // neighbours * size))
    if address_of(memory) == 0:
        return types.int64(0)
    if in_lanes:
        solved = solve_neighbours(zero, job, memory.kept, size, width, ELIMINATE, SUBSTITUTE)
    else:
        solved = solve_neighbours(zero, job, memory.kept, size, width, ELIMINATE_ONE, SUBSTITUTE_ONE)
    give_back(memory)
    if solved:
        job.next = job.items
    return types.int64(solved)


BOTH_ENDS = c_function(solve_from_both_ends, "tridiag_both_ends", result=types.int64, first=JOB)
