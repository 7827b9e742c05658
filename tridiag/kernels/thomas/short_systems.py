"""Systems of few rows that lie end to end: from both ends, as `both_ends`, sorted in registers.

Small batches all at once, or none of them; large ones a piece at a time, of which groups without certificate are solved
as others are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from tridiag.kernels.access.end_to_end import copy, rows_from, rows_to, sorted_out
from tridiag.kernels.access.layouts import STREAM_AHEAD, lines_of_rows, rows_of_lines
from tridiag.kernels.access.masked_layouts import without
from tridiag.kernels.access.operands import bytes_of_number, lanes_of, parts_of
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import A_, B_, C_, D_, WHERE_, X_
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.compiled import compiled, inlined
from tridiag.kernels.simd.functions import Library, by_number
from tridiag.kernels.simd.memory import load, store, variable, word
from tridiag.kernels.simd.registers import narrow
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import I8, LINE, Code
from tridiag.kernels.thomas.deferred import CATCH_UP, take_back
from tridiag.kernels.thomas.rows_from_ends import ALL, SOME, join, nothing_above
from tridiag.kernels.thomas.steps import Thomas
from tridiag.kernels.thomas.workspace import AT_ONCE, SPARE

Row = tuple[Any, ...]
Piece = tuple[Code, Any, list[Any]]  # what writes for some lanes of a group, the first of them, and their rows


class Short(NamedTuple):
    """Systems of n rows."""

    n: int

    @property
    def written(self) -> int:
        """So many pieces of a group are written one after another; more of them are a loop."""
        return 2

    def is_asked_for(self, code: Code) -> bool:
        """A complex number takes the place of two."""
        return self.n * code.parts <= J.MOST_ROWS

    def place(self, code: Code, first: Value) -> Value:
        """How many bytes the system ``first`` lies behind the first of all."""
        return first * (self.n * code.parts * code.size_of_real)

    def further(self, address: Value, systems: Any) -> Value:
        """The address of a system so many behind that of another one."""
        code = address.code
        return address + self.place(code, code.like(address, systems)) if systems else address

    def rows(self, code: Code, address: Value) -> list[Any]:
        """The rows of lanes of a group."""
        return rows_of_lines(code, rows_from(code, address, self.n * code.parts))

    def put(self, code: Code, address: Value, rows: list[Any]) -> None:
        rows_to(code, address, lines_of_rows(code, rows))

    def down(self, code: Code, *words: Value) -> None:
        """``words``: where a, b, c and d begin, how many systems, whole vectors, where x of groups, their good lanes,
        and how many systems have a certificate are told.
        """
        if code.parts != 1:
            return  # of complex numbers it is never called
        *bands, count, kept, good, told = words

        def group(first: Value, state: Any) -> Any:
            found, fine = self.group(code, bands, first, good, kept)
            self.keep(code, found, kept, first)
            return state[0] & fine, state[1] | fine

        every, none = code.integer(2**code.lanes - 1), code.integer(0)
        whole, some = code.fori(0, count, group, (every, none), step=code.lanes)
        code.store_as(
            told, code.pick(whole == every, code.integer(ALL), code.pick(some == 0, none, code.integer(SOME)))
        )

    def through(self, code: Code, *words: Value) -> None:
        """x of certified groups to memory, of others to ``kept``. ``words``: x in place of the last of `down`."""
        if not self.is_asked_for(code):
            return
        *bands, count, kept, good, x = words

        def group(first: Value, state: tuple[()]) -> tuple[()]:
            at, nothing, one = self.place(code, first), code.integer(0), code.integer(1)
            for band in bands:
                for k in range(self.n * code.parts):
                    code.prefetch(band + at + STREAM_AHEAD + k * LINE, near=True)
            found, fine = self.group(code, bands, first, good, kept)
            whole = fine == 2**code.lanes - 1

            def put(_: Value, state: tuple[()]) -> tuple[()]:
                self.put_pieces(code, x + at, found or self.kept(code, kept, first))
                return state

            def keep(_: Value, state: tuple[()]) -> tuple[()]:
                self.keep(code, found, kept, first)
                return state

            code.fori(0, code.pick(whole, one, nothing), put, state)
            return code.fori(0, code.pick(whole, nothing, one), keep, state)

        code.fori(0, count, group, (), step=code.lanes)

    def group(
        self, code: Code, bands: list[Value], first: Value, good: Value, kept: Value
    ) -> tuple[list[Piece], Value]:
        """x of all rows of the group from system ``first`` on, and its certified lanes, which are told too.

        Where registers are narrow it is solved in pieces, whose x goes to ``kept`` at once, and none is returned.
        """
        fine, pieces = code.integer(0), narrow(code)
        found: list[Piece] = []
        if len(pieces) > self.written:
            part, _ = pieces[0]

            def piece(lane: Value, state: Any) -> Any:
                x, sure = self.solved(part, bands, first, lane)
                self.keep(code, [(part, lane, x)], kept, first)
                return (state[0] | part.bits(sure) * code.power(lane),)

            (fine,) = code.fori(0, code.lanes, piece, (fine,), step=part.lanes)
        else:
            for part, lane in pieces:
                x, sure = self.solved(part, bands, first, lane)
                fine = fine | code.shift(part.bits(sure), lane) if lane else part.bits(sure)
                found.append((part, lane, x))
                if len(pieces) > 1:
                    self.keep(code, found, kept, first)
                    found = []
        code.store_as(good + first / code.lanes * 8, fine)
        return found, fine

    def solved(self, code: Code, bands: list[Value], first: Value, lane: Any) -> tuple[list[Any], Value]:
        """x of all rows of some lanes of the group, from one on, and those that are certified."""
        there = self.further(self.place(code, first), lane)
        return solved(code, list(zip(*(self.rows(code, band + there) for band in bands), strict=True)))

    def keep(self, code: Code, found: list[Piece], kept: Value, first: Value) -> None:
        for part, lane, rows in found:
            for i, x in enumerate(rows):
                part.store(self.row_kept(code, kept, first, i, lane), x)

    def kept(self, code: Code, kept: Value, first: Value) -> list[Piece]:
        """What `keep` has kept of a group."""
        return [
            (part, lane, [part.load(self.row_kept(code, kept, first, i, lane)) for i in range(self.n)])
            for part, lane in narrow(code)
        ]

    def row_kept(self, code: Code, kept: Value, first: Value, i: int, lane: Any) -> Value:
        place = kept + (first / code.lanes * self.n + i) * code.row
        return place + lane * code.size_of_real if lane else place

    def put_pieces(self, code: Code, address: Value, pieces: list[Piece]) -> None:
        """x of a group to memory."""
        for part, lane, rows in pieces:
            self.put(part, self.further(address, lane), rows)

    def up(self, code: Code, *words: Value) -> None:
        """The lanes that are good. ``words``: where x begins, how many systems, x of groups, their good lanes."""
        if not self.is_asked_for(code):
            return
        x, count, kept, good = words

        def group(first: Value, state: tuple[()]) -> tuple[()]:
            at, k = self.place(code, first), first / code.lanes
            pieces = self.kept(code, kept, first)
            lanes, nothing, one = code.word(good + k * 8), code.integer(0), code.integer(1)
            whole = lanes == 2**code.lanes - 1

            def put(_: Value, state: tuple[()]) -> tuple[()]:
                self.put_pieces(code, x + at, pieces)
                return state

            def blend(_: Value, state: tuple[()]) -> tuple[()]:
                for part, lane, rows in pieces:
                    place = self.further(x + at, lane)
                    there, mask = self.rows(part, place), part.mask(code.shift(lanes, -lane) if lane else lanes)
                    self.put(part, place, [part.where(mask, new, old) for new, old in zip(rows, there, strict=True)])
                return state

            code.fori(0, code.pick(whole, one, nothing), put, state)
            return code.fori(0, code.pick(whole, nothing, one), blend, state)

        code.fori(0, count, group, step=code.lanes)


class MaskedShort(Short):
    """... of which rows are taken out; behind d lies a mask, the bytes of systems end to end as well."""

    __slots__ = ()

    @property
    def written(self) -> int:
        """Masks take registers, too."""
        return 1

    def solved(self, code: Code, bands: list[Value], first: Value, lane: Any) -> tuple[list[Any], Value]:
        *bands, mask = bands
        there = self.further(self.place(code, first), lane)
        rows = list(zip(*(self.rows(code, band + there) for band in bands), strict=True))
        keep = self.kept_rows(code, mask + (first + lane) * self.n)
        around = zip([keep[0], *keep[:-1]], keep, [*keep[1:], keep[-1]], strict=True)
        return solved(code, [without(code, row, *where) for row, where in zip(rows, around, strict=True)], keep)

    def kept_rows(self, code: Code, address: Value) -> list[Value]:
        """For each row the lanes that keep it."""
        kind = ir.VectorType(I8, code.lanes)
        vectors = [code.load_as(kind, address + k * code.lanes) for k in range(self.n)]
        lanes = range(code.lanes)
        return [sorted_out(code, vectors, [lane * self.n + i for lane in lanes]) != 0 for i in range(self.n)]


def solved(code: Code, rows: list[Row], keep: list[Value] | None = None) -> tuple[list[Any], Value]:
    """x of all rows, and the certified lanes; ``keep``: the lanes that each row is in, if not in all."""
    n, every = len(rows), code.all_lanes()

    def lanes(k: int) -> Value:
        return keep[k] if keep else every

    def kept_of(k: int, x: Any) -> Any:
        return code.where(keep[k], x, code.zero()) if keep else x

    bottom = (n - 1) // 2
    top = n - 1 - bottom
    first = last = nothing_above(code)
    above, below = [], []
    for k in range(top):
        a, b, c, d = rows[k]
        first, kept = first.down(code, lanes(k), a if k else code.zero(), b, c, d)
        above.append(kept)
    for k in range(bottom):
        a, b, c, d = rows[n - 1 - k]
        last, kept = last.down(code, lanes(n - 1 - k), c if k else code.zero(), b, a, d)
        below.append(kept)
    a, b, c, d = rows[top]
    middle, sure = join(code, first, last, (a if top else code.zero(), b, c if bottom else code.zero(), d))
    head, tail = [kept_of(top, middle)], [kept_of(top, middle)]
    for k, kept in reversed([*enumerate(above)]):
        head.append(kept_of(k, Thomas.up(kept, head[-1])))
    for k, kept in reversed([*enumerate(below)]):
        tail.append(kept_of(n - 1 - k, Thomas.up(kept, tail[-1])))
    return head[::-1] + tail[1:], sure


LOOPS, NUMBERS = Library("short_systems"), range(J.FEWEST_ROWS, J.MOST_ROWS + 1)
DOWN = by_number([LOOPS.add(f"down_{n}", Short(n).down) for n in NUMBERS], J.FEWEST_ROWS)
UP = by_number([LOOPS.add(f"up_{n}", Short(n).up) for n in NUMBERS], J.FEWEST_ROWS)
COPY = LOOPS.add("copy", copy)
THROUGH = by_number([LOOPS.add(f"through_{n}", Short(n).through) for n in NUMBERS], J.FEWEST_ROWS)
DOWN_MASKED = by_number([LOOPS.add(f"down_masked_{n}", MaskedShort(n).down) for n in NUMBERS], J.FEWEST_ROWS)
THROUGH_MASKED = by_number([LOOPS.add(f"through_masked_{n}", MaskedShort(n).through) for n in NUMBERS], J.FEWEST_ROWS)


@compiled
def in_vectors(zero, job):
    """How many systems of a job are to be sorted in registers: whole vectors."""
    lanes = lanes_of(zero, ())
    return job.matrices // lanes * lanes if job.flags & J.END_TO_END else 0


@compiled
def eliminate_short(zero, job, count, kept, good, told):
    """x of the first ``count`` systems to ``kept``; how many have a certificate is told."""
    bands = job.pointers[A_], job.pointers[B_], job.pointers[C_], job.pointers[D_]
    DOWN(zero, job.rows, (*bands, count, kept, good, told))


@compiled
def masks_end_to_end(job):
    """Whether the bytes of the mask of systems lie as their rows do."""
    return job.strides[WHERE_] == 1 and field(job, J.AXES + 1 + WHERE_) == job.rows


@compiled
def masks_of(job, first, used, count, room):
    """Where the masks of systems from ``first`` on lie end to end; of ``count``, of which those behind ``used`` repeat
    the first."""
    n, step, stride = job.rows, field(job, J.AXES + 1 + WHERE_), job.strides[WHERE_]
    source = job.pointers[WHERE_] + first * step
    if used == count and masks_end_to_end(job):
        return source
    for k in range(count):
        at = source + (k if k < used else 0) * step
        for i in range(n):
            store(room + k * n + i, load(at + i * stride, types.uint8(0)))
    return room


@compiled
def eliminate_short_masked(zero, job, count, kept, good, told, room):
    """As `eliminate_short`; ``room``: for the masks, where these do not lie end to end."""
    bands = job.pointers[A_], job.pointers[B_], job.pointers[C_], job.pointers[D_]
    DOWN_MASKED(zero, job.rows, (*bands, masks_of(job, 0, count, count, room), count, kept, good, told))


@compiled
def put_short(zero, job, count, kept, good):
    UP(zero, job.rows, (job.pointers[X_], count, kept, good))


@inlined
def solve_short(zero, job, worker, first, last, solve_one, through):
    """Systems from ``first`` on, before ``last``: how many; 0, they do not lie end to end.

    Those that fill no vector are taken alone, from a copy whose other lanes repeat the first.
    """
    n, lanes, step = job.rows, lanes_of(zero, ()), job.rows * bytes_of_number(zero, ())
    if job.flags & J.END_TO_END == 0:
        return 0
    count = min(last - first, AT_ONCE // n) // lanes * lanes
    at, x, kept, good = first * step, job.pointers[X_] + first * step, worker.short, worker.short_good
    if count == 0:
        bands = copied(zero, job, worker, first, last - first)
        through(zero, job, worker, first, last - first, bands[:4], variable(1), bands[4])
        settle(zero, job, worker, first, last - first, bands[4], kept, good, solve_one, UP)
        for lane in range(last - first):
            if word(good) >> lane & 1:
                COPY(zero, (bands[4] + lane * step, x + lane * step, n * parts_of(zero, ())))
        return last - first
    bands = job.pointers[A_] + at, job.pointers[B_] + at, job.pointers[C_] + at, job.pointers[D_] + at
    through(zero, job, worker, first, count, bands, variable(0) + count, x)
    for k in range(0, count, lanes):
        settle(zero, job, worker, first + k, lanes, x + k * step, kept + k * step, good + k // lanes * 8, solve_one, UP)
    return count


@compiled
def through_whole(zero, job, worker, first, used, bands, count, x):
    """x of ``used`` systems, of ``count`` but for what fills the last vector, from bands."""
    THROUGH(zero, job.rows, (*bands, count, worker.short, worker.short_good, x))


@compiled
def through_masked(zero, job, worker, first, used, bands, count, x):
    """The same of systems of which rows are taken out."""
    lanes = lanes_of(zero, ())
    mask = masks_of(job, first, used, (used + lanes - 1) // lanes * lanes, worker.masks)
    THROUGH_MASKED(zero, job.rows, (*bands, mask, count, worker.short, worker.short_good, x))


@inlined
def settle(zero, job, worker, first, used, x, kept, good, solve_one, up):
    """A group, some lanes of which have no certificate, as others are solved; x of those that have one to ``x``.

    ``up``: what writes it there.
    """
    lanes, fine = lanes_of(zero, ()), word(good)
    if fine == (1 << lanes) - 1:
        return
    unsolved, unrefined = word(worker.unsolved), word(worker.unrefined)
    solve_one(zero, (job, worker, first, used, 0))
    take_back(worker.unsolved, unsolved, first, fine)
    take_back(worker.unrefined, unrefined, first, fine)
    if fine != 0:
        up(zero, job.rows, (x, variable(1), kept, good))
    CATCH_UP(zero, (job, worker, lanes))  # there is room for those of one group to wait


@compiled
def copied(zero, job, worker, first, used):
    """Where a copy of a, b, c and d of so many systems lies, and room for x."""
    n, parts, size, spare = job.rows, parts_of(zero, ()), bytes_of_number(zero, ()), worker.short_spare
    for k in range(4):
        source, target = job.pointers[k if k < WHERE_ else D_] + first * n * size, spare + k * SPARE
        COPY(zero, (source, target, used * n * parts))
        for lane in range(used, lanes_of(zero, ())):
            COPY(zero, (source, target + lane * n * size, n * parts))
    return spare, spare + SPARE, spare + 2 * SPARE, spare + 3 * SPARE, spare + 4 * SPARE
