"""Groups of pairs of sequences, one in each lane: bound to memory; and the workspace of a worker."""

from __future__ import annotations

import numpy as np
from numba import types

from tridiag.kernels.access.operands import bind, bytes_of_real, lanes_of
from tridiag.kernels.alignment.state import (
    BY_GAP_,
    GAP_,
    PARAMETERS,
    ROWS_,
    SCORE_,
    Z_LOG,
    Z_M,
)
from tridiag.kernels.jobs.words.record import Word
from tridiag.kernels.runtime.workspace import Workspace, workspace
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import (
    half_word,
    load,
    set_half_word,
    store,
)
from tridiag.kernels.simd.vector import LINE


@compiled
def spread_group(zero, job, record, first):
    """The lengths and the parameters of the pairs of a group to its lanes; those beyond the last repeat it."""
    lanes, side = lanes_of(zero, ()), bytes_of_real(zero, ())
    for lane in range(lanes):
        pair = min(first + lane, job.pairs - 1)
        for axis in range(2):
            length = job.shape[axis]
            if job.lengths != 0:
                length = max(0, min(length, half_word(job.lengths + 4 * (2 * pair + axis))))
            set_half_word(record + (ROWS_ + axis) * LINE + 4 * lane, types.int32(length))
        for k in range(PARAMETERS):
            store(record + (GAP_ + k) * LINE + lane * side, load(job.parameters[k] + pair * job.apart[k], zero))


@compiled
def longest(zero, record, axis):
    """The largest length of a group, before `begin` turns lengths into reals."""
    found = 0
    for lane in range(lanes_of(zero, ())):
        found = max(found, half_word(record + (ROWS_ + axis) * LINE + 4 * lane))
    return found


@compiled
def bind_group(zero, job, operand, array, first, downwards):
    """Where the matrices of a group lie; at a cell that of the next row is asked for."""
    side, lanes = bytes_of_real(zero, ()), lanes_of(zero, ())
    size = job.shape[0] * job.shape[1] * side
    for lane in range(lanes):
        pair = min(first + lane, job.pairs - 1)
        operand.lanes[lane] = array + pair * size
    bind(zero, operand, side, side, False, downwards, lanes_of(zero, ()))
    row = job.shape[1] * side
    operand.ahead = -row if downwards else row


@compiled
def write_results(zero, job, record, first):
    """Scores, and the gradients of the parameters, of a group to their arrays."""
    lanes, side = lanes_of(zero, ()), bytes_of_real(zero, ())
    for lane in range(min(lanes, job.pairs - first)):
        at = (first + lane) * side
        store(job.score + at, load(record + SCORE_ * LINE + lane * side, zero))
        for k in range(PARAMETERS):
            if job.by_parameters[k] != 0:
                store(job.by_parameters[k] + at, load(record + (BY_GAP_ + k) * LINE + lane * side, zero))


@compiled
def logarithms(zero, record):
    """Of the mantissas of Z."""
    side = bytes_of_real(zero, ())
    for lane in range(lanes_of(zero, ())):
        at = record + lane * side
        store(at + Z_LOG * LINE, np.log(load(at + Z_M * LINE, zero)))


class AlignmentWorkspace(Workspace):
    """What a worker has: its group, the bindings of scores and of their gradient, and rows of cells."""

    group, scores, target, line = Word(), Word(), Word(), Word()
    state, kept, state_back, states = Word(), Word(), Word(), Word()  # ``states``: before each block of rows


ARRAYS, allocate, give_back = workspace(
    AlignmentWorkspace, "group", "scores", "target", "line", "state", "kept", "state_back", "states", pooled=True
)
