"""The workspace of a worker."""

from __future__ import annotations

from tridiag.kernels.access.operands import bytes_of_row, lanes_of, size_of_operand
from tridiag.kernels.jobs.words import logsumexp as J
from tridiag.kernels.jobs.words.record import Word
from tridiag.kernels.logsumexp.loops import (
    SLOT,
)
from tridiag.kernels.runtime.workspace import Workspace, aligned, workspace
from tridiag.kernels.simd.compiled import compiled

OPERANDS = 4
BLOCK, BLOCK_INTERLEAVED = 64, 8  # rows at a time of a group, and of groups that lie side by side
ABREAST = 4  # groups of short sequences at a time: their rows fit in a buffer
assert ABREAST * J.MOST <= BLOCK


class LogWorkspace(Workspace):
    """What a worker has: bindings and states of its groups, rows of three operands, offsets of an operand.

    ``spare``: short sequences that fill no vector.
    """

    bindings, slots, buffers, base, spare = Word(), Word(), Word(), Word(), Word()


ARRAYS, allocate, free_workspace = workspace(LogWorkspace, "bindings", "slots", "buffers", "base", "spare")


@compiled
def size_of_bindings(zero):
    return aligned(OPERANDS * size_of_operand(zero, ()))


@compiled
def slot_of(zero, slots, group):
    return slots + group * (SLOT * bytes_of_row(zero, ()))


@compiled
def allocate_workspace(zero, job):
    """The scratch memory of one worker, in one piece; a slot more than it has groups."""
    row, groups = bytes_of_row(zero, ()), (job.lanes + lanes_of(zero, ()) - 1) // lanes_of(zero, ())
    return allocate(
        ARRAYS(
            bindings=groups * size_of_bindings(zero),
            slots=(groups + 1) * SLOT * row,
            buffers=3 * BLOCK * row,
            base=aligned(8 * OPERANDS),
            spare=J.MOST * row,
        )
    )
