"""Where a group of systems lies: every operand of every lane, and the rows that are kept."""

from __future__ import annotations

from tridiag.kernels.access.bind import bind_lanes, offset, operand_of
from tridiag.kernels.access.moves import ADVANCE, LOAD_MASK
from tridiag.kernels.access.operands import lanes_of
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import D_, OPERANDS, WHERE_
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import set_word, variable


@compiled
def mask_view(zero, worker, i):
    """The address and the step of the mask at row i."""
    if worker.whole:
        return worker.ones, 0
    lanes = lanes_of(zero, ())
    return worker.mask + (1 + i) * lanes, lanes


@compiled
def read_mask(zero, job, worker):
    """The mask of a group: the rows that any system keeps, and whether all keep all of those."""
    n, flags = job.rows, job.flags
    low, high, whole = 0, n, True
    if flags & J.MASKED:
        target = worker.mask + lanes_of(zero, ())
        LOAD_MASK(zero, (operand_of(zero, worker.bindings, WHERE_), n, target, worker.addresses.views))
        low, high = worker.views[0], worker.views[1]
        whole = worker.views[2] == high - low
        if flags & J.PERIODIC:
            low, high, whole = 0, n, whole and low == 0 and high == n
    worker.low = min(low, high)
    worker.high = high
    worker.whole = whole


@compiled
def bind_group(zero, job, worker, first, used):
    bindings, axes = worker.bindings, job.matrix_axes
    bind_lanes(zero, job, J.AXES, axes, first, used, worker.no_offsets, bindings, 0, variable(OPERANDS))


@compiled
def advance(zero, job, worker, axis, low, high, count):
    """Move operands low <= k < high of a group by so many systems along the axis whose words begin at ``axis``."""
    for operand in range(low, high):
        step = count * field(job, axis + 1 + operand)
        ADVANCE(zero, (operand_of(zero, worker.bindings, operand), step))


@compiled
def bind_next(zero, job, worker, first, used, follows):
    """Point a group at systems; ``follows``: behind those of the tile before."""
    if follows and used == lanes_of(zero, ()) and job.matrix_axes == 1:
        advance(zero, job, worker, J.AXES, 0, OPERANDS, lanes_of(zero, ()))
    else:
        bind_group(zero, job, worker, first, used)
    read_mask(zero, job, worker)


@compiled
def side_offsets(job, k, target):
    """The offsets of all operands at right side k."""
    count, axes = job.right_axes, J.AXES + J.AXIS_WORDS * job.matrix_axes
    for operand in range(OPERANDS):
        set_word(target + 8 * operand, offset(job, axes, count, k, operand))


@compiled
def bind_few_matrices(zero, job, worker, matrix):
    """Point all lanes at one matrix; returns where the axes of its right sides are."""
    own, base, none = job.matrix_axes, worker.offsets, variable(0)
    right = J.AXES + J.AXIS_WORDS * own
    for operand in range(OPERANDS):
        set_word(base + 8 * operand, offset(job, J.AXES, own, matrix, operand))
    bind_lanes(zero, job, right, none, none, variable(1), base, worker.bindings, variable(0), variable(D_))
    read_mask(zero, job, worker)
    return right


@compiled
def bind_matrices(zero, job, worker, first, used):
    axes, bindings = job.matrix_axes, worker.bindings
    bind_lanes(zero, job, J.AXES, axes, first, used, worker.no_offsets, bindings, variable(0), variable(D_))
    read_mask(zero, job, worker)
