"""Smooth local alignment of pairs of sequences, one pair in each lane: the score and, if wanted, its gradient.

With w = exp(s / T) and gap factors g (a further gap) and o (the first of a run), the weights of all alignments that end
in cell (i, j) add up to

    M = w (1 + A[i-1, j-1]),  X = o (M + Y)[i-1, j] + g X[i-1, j],  Y = o (M + X)[i, j-1] + g Y[i, j-1],  A = M + X + Y

where M ends in a match and X and Y in gaps (linear gaps: o = g, and X + Y = g (A[i-1, j] + A[i, j-1])). Z is the sum of
all A, the score T log Z. Backwards, the weights of all continuations, the empty one among them, are

    C = 1 + w BM [i+1, j+1],   BM = C + o BX[i+1, j] + o BY[i, j+1],   BX = C + g BX + o BY,   BY = C + o BX + g BY

and the expected alignment is M BM / Z. A row of cells follows another in place; what the backward pass needs of the
cells of a block of rows is kept, and all blocks but the last are computed once more, from the row before them.

How numbers stay in range is the matter of `tridiag.kernels.alignment.shared_exponents`, where neighbours share an
exponent, and of `tridiag.kernels.alignment.exponent_a_cell`, where each has its own. The former is tried first; where
its condition does not hold, the group is done again by the latter, and so are at once the groups that follow; where a
temperature is too low even for that, by the lowest that is not (`tridiag.kernels.alignment.state.cool`).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tridiag.kernels.access.load_store import load_row, store_row
from tridiag.kernels.access.operands import bytes_of_real, lanes_of, operand_at, size_of_operand
from tridiag.kernels.alignment import exponent_a_cell, shared_exponents
from tridiag.kernels.alignment.exponents import RUN
from tridiag.kernels.alignment.groups import (
    ARRAYS,
    allocate,
    bind_group,
    give_back,
    logarithms,
    longest,
    spread_group,
    write_results,
)
from tridiag.kernels.alignment.shared_exponents import lines_of_run, shared_exponents_suffice
from tridiag.kernels.alignment.state import (
    LEAST_,
    RECORD,
    begin,
    conclude,
    cool,
    put,
    settle,
)
from tridiag.kernels.jobs.words.alignment import USUAL, Alignment, Kind
from tridiag.kernels.runtime.system import ask_for_huge_pages
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.runtime.workspace import aligned
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library
from tridiag.kernels.simd.interrupts import stopping, stopping_at
from tridiag.kernels.simd.memory import (
    c_function,
    variable,
)
from tridiag.kernels.simd.powers import nothing
from tridiag.kernels.simd.records import RecordAt, address_of
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

JOB = RecordAt(Alignment)


def clear(code: Code, address: Value, count: Value) -> None:
    """Numbers that are nothing."""

    def number(k: Value, state: Any) -> Any:
        put(code, address + k * (2 * LINE), 0, nothing(code))
        return state

    code.fori(0, count, number)


def blank(code: Code, address: Value, count: Value) -> None:
    """Rows of zeros."""

    def row(k: Value, state: Any) -> Any:
        code.store(address + k * LINE, code.zero())
        return state

    code.fori(0, count, row)


def copy(code: Code, source: Value, target: Value, count: Value) -> None:
    def row(k: Value, state: Any) -> Any:
        code.store(target + k * LINE, code.load(source + k * LINE))
        return state

    code.fori(0, count, row)


WAVES = Library("waves")


def added(how: Any, kind: Kind) -> list[Any]:
    """The forward and the backward pass over a row, of a kind."""
    name, cells = how.__name__.rpartition(".")[2], how.recursion(kind)
    passes = how.forward, how.backward
    return [WAVES.add(f"{f.__name__}_{name}_{kind.name}", functools.partial(f, cells)) for f in passes]


BEGIN, SETTLE, CONCLUDE = WAVES.add("begin", begin), WAVES.add("settle", settle), WAVES.add("conclude", conclude)
CLEAR, BLANK, COPY, SUFFICE, COOL = (
    WAVES.add(f.__name__, f) for f in (clear, blank, copy, shared_exponents_suffice, cool)
)


@functools.cache
def task(kind: Kind) -> Any:
    """What every thread of a job does, under one kind of gaps."""
    go, back = added(exponent_a_cell, kind)
    run_go, run_back = added(shared_exponents, kind._replace(rules=USUAL))
    here = exponent_a_cell.recursion(kind)
    in_state, in_back, in_kept = 2 * here.STATE * LINE, 2 * here.BACK * LINE, here.kept * LINE
    needs_scores = here.parameters  # on the way back
    in_run = lines_of_run(shared_exponents.recursion(kind)) * LINE

    @compiled
    def whole(columns):
        """Columns of whole runs."""
        return (columns + RUN - 1) // RUN * RUN

    @compiled
    def kept_of_row(job, shared):
        """The bytes that a row keeps for the backward pass."""
        columns = whole(job.shape[1])
        return columns // RUN * in_run if shared else columns * in_kept

    @compiled
    def rows_forward(zero, job, worker, first, last, width, shared):
        """The rows of a block; what they keep goes to the block, or without a gradient always to one place."""
        record, scores, line, state, kept = (
            worker.group,
            operand_at(worker.scores),
            worker.line,
            worker.state,
            worker.kept,
        )
        step = kept_of_row(job, shared) if job.gradient != 0 else 0
        for i in range(first, last):
            if stopping_at(i, 64):
                return
            start = i * job.shape[1]
            load_row(zero, scores, start, start + width, line)
            if shared:
                run_go(zero, (record, line, state, kept + (i - first) * step, i, whole(width), scores, start))
            else:
                go(zero, (record, line, state, kept + (i - first) * step, i, width, scores, start))

    @compiled
    def allocate_workspace(zero, job):
        columns, operand = whole(job.shape[1]), aligned(size_of_operand(zero, ()))
        return allocate(
            ARRAYS(
                group=RECORD * LINE,
                scores=operand,
                target=operand,
                line=columns * LINE,
                state=columns * in_state,
                kept=job.block * max(kept_of_row(job, False), kept_of_row(job, True)),
                state_back=columns * in_back,
                states=(job.shape[0] + job.block - 1) // job.block * columns * in_state,
            )
        )

    @compiled
    def start_of_rows(zero, address, width, in_column, shared):
        """No cells above, or below."""
        if shared:
            BLANK(zero, (address, whole(width) * in_column // LINE))
        else:
            CLEAR(zero, (address, width * in_column // (2 * LINE)))

    @compiled
    def gradient(zero, job, worker, top, width, shared):
        """The backward pass over all blocks, the last of which is kept already."""
        record, scores, line, state, kept = (
            worker.group,
            operand_at(worker.scores),
            worker.line,
            worker.state,
            worker.kept,
        )
        state_back, states, target = worker.state_back, worker.states, operand_at(worker.target)
        columns, block, step = job.shape[1], job.block, kept_of_row(job, shared)
        start_of_rows(zero, state_back, width, in_back, shared)
        BLANK(zero, (line, columns))
        for i in range(top, job.shape[0]):
            store_row(zero, target, i * columns, (i + 1) * columns, line)
        last = top
        while last > 0 and not stopping():
            first = (last - 1) // block * block
            if last < top:
                size = whole(width) * in_state // LINE
                COPY(zero, (states + first // block * whole(columns) * in_state, state, size))
                rows_forward(zero, job, worker, first, last, width, shared)
            for i in range(last - 1, first - 1, -1):
                if stopping_at(i, 64):
                    break
                start, keep = i * columns, kept + (i - first) * step
                if needs_scores or not shared:
                    load_row(zero, scores, start, start + width, line)
                if shared:
                    run_back(zero, (record, line, state_back, keep, i, whole(width), scores, start, target))
                else:
                    back(zero, (record, line, state_back, keep, i, width, scores, start, target))
                store_row(zero, target, start, start + columns, line)
            last = first

    @compiled
    def score(zero, job, worker, first, shared):
        """The forward pass over all blocks of a group; its largest lengths."""
        record, state, states = worker.group, worker.state, worker.states
        spread_group(zero, job, record, first)
        top, width = longest(zero, record, 0), longest(zero, record, 1)
        block, size = job.block, whole(width) * in_state // LINE
        BEGIN(zero, (record,))
        start_of_rows(zero, state, width, in_state, shared)
        for start in range(0, top, block):
            if stopping():
                break
            if job.gradient != 0:
                COPY(zero, (state, states + start // block * whole(job.shape[1]) * in_state, size))
            rows_forward(zero, job, worker, start, min(top, start + block), width, shared)
        return top, width

    @compiled
    def align(zero, job, worker, first):
        """A group of pairs."""
        record, scores, target = worker.group, operand_at(worker.scores), operand_at(worker.target)
        bind_group(zero, job, scores, job.scores, first, False)
        shared, again = job.cell_exponents == 0, False
        BLANK(zero, (record + LEAST_ * LINE, variable(1)))
        top, width = score(zero, job, worker, first, shared)
        if shared and SUFFICE(zero, (record,)) == 0:
            job.cell_exponents = 1
            shared, again = False, True
        if not shared and COOL(zero, (record, job.shape[0] + job.shape[1] + 2)) != 0:
            again = True
        if again:
            score(zero, job, worker, first, shared)
        logarithms(zero, record)
        SETTLE(zero, (record,))
        if job.gradient != 0:
            bind_group(zero, job, scores, job.scores, first, True)
            bind_group(zero, job, target, job.gradient, first, True)
            gradient(zero, job, worker, top, width, shared)
            CONCLUDE(zero, (record,))
        write_results(zero, job, record, first)

    @compiled
    def work(job, zero):
        """Claim groups until none is left; called by every thread of a job."""
        worker = allocate_workspace(zero, job)
        if address_of(worker) == 0:
            return
        for group in items(job):
            align(zero, job, worker, group * lanes_of(zero, ()))
        give_back(worker)

    return c_function(work, f"tridiag_align_{kind.name}", first=JOB)


@compiled
def prepare(job, zero):
    """Ask for huge pages where the gradient is fresh memory."""
    if job.gradient != 0 and job.fresh != 0:
        size = job.pairs * job.shape[0] * job.shape[1] * bytes_of_real(zero, ())
        ask_for_huge_pages(job.gradient, size)


def build(dtype: str, kind: str):
    """The C function void run(job, helpers) of a kind of gaps for a dtype."""
    return runner(
        np.zeros((), dtype)[()], task(Kind.named(kind)), c_function(prepare, "tridiag_prepare_alignment", first=JOB)
    )
