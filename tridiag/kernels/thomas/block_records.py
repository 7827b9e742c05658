"""Blocks of rows of systems that lie side by side: which systems and rows, and what is recorded of each."""

from __future__ import annotations

from tridiag.kernels.access.operands import bytes_of_real, bytes_of_row, lanes_of, parts_of
from tridiag.kernels.runtime.workspace import aligned
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import set_word, word
from tridiag.kernels.thomas.workspace import exchanges

# a record of a block: the lanes that are good; the state before its first row, as guessed, and behind its last; x
# behind its last row, as guessed, and x of its first row
START, END, GUESS, FOUND = range(4)


@compiled
def depth(job):
    """Rows of lanes that are kept for a row of a group; its state has as many."""
    return 4 if exchanges(job) else 2


@compiled
def carried(job):
    """Rows of lanes that substitution carries for a group."""
    return 4 if exchanges(job) else 1


@compiled
def record_of(zero, job, item):
    groups, row = job.span_groups, bytes_of_row(zero, ())
    return job.records + item * (aligned(8 * groups) + 2 * (depth(job) + carried(job)) * groups * row)


@compiled
def part_of(zero, job, item, part):
    """The address of a part of a record."""
    groups, row = job.span_groups, bytes_of_row(zero, ())
    rows = min(part, GUESS) * depth(job) + max(0, part - GUESS) * carried(job)
    return record_of(zero, job, item) + aligned(8 * groups) + rows * groups * row


@compiled
def systems_of(job, item):
    """The first system of a block, and how many there are."""
    spans, blocks, interleaved = job.spans, job.blocks, job.interleaved
    span = item // blocks % spans
    first = span * interleaved // spans
    return item // (spans * blocks) * interleaved + first, (span + 1) * interleaved // spans - first


@compiled
def rows_of(job, item):
    """The rows first <= i < last of a block."""
    n, blocks = job.rows, job.blocks
    block = item % blocks
    return block * n // blocks, (block + 1) * n // blocks


@compiled
def groups_of(zero, count):
    """The groups of so many systems, and the place of the last one, which may lie over the one before it."""
    lanes = lanes_of(zero, ())
    return (count + lanes - 1) // lanes, (count - lanes) * bytes_of_real(zero, ()) * parts_of(zero, ())


@compiled
def is_narrow(zero, groups):
    """Whether systems are one group, which may not fill a vector."""
    return groups == 1 and parts_of(zero, ()) == 1


@compiled
def copy(source, target, size):
    for k in range(0, size, 8):
        set_word(target + k, word(source + k))
