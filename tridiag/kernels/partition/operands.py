"""Where the operands of a system lie: as the caller has them, or copied, where the sweeps cannot read them there.

Copies are contiguous. Systems side by side, whose rows share lines of memory, are copied together; a masked system that
needs pivoting without its rows that are taken out.
"""

from __future__ import annotations

from tridiag.kernels.access.bind import offset
from tridiag.kernels.access.operands import lanes_of
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.partition import state as P
from tridiag.kernels.partition.gtsv import NO_MEMORY
from tridiag.kernels.partition.phases import RUN_PHASE
from tridiag.kernels.partition.state import bytes_of, line_height
from tridiag.kernels.runtime.system import fresh
from tridiag.kernels.simd.compiled import compiled, inlined
from tridiag.kernels.simd.memory import free, load, store
from tridiag.kernels.simd.vector import LINE

CONSTANTS = P.D + 1  # operands that may be one number for all rows: all before x


@compiled
def wants_copy(zero, plan, operand):
    """Whether the sweeps cannot read or write an operand, or the right side would be lost with its first solution."""
    if operand == P.D and plan.address[P.D] == plan.address[P.X]:
        return True
    if operand == P.WHERE or plan.blocks == 0:
        return False
    stride = plan.stride[operand]
    if operand == P.X:
        return stride != bytes_of(zero, ())
    return stride != 0 and stride != bytes_of(zero, ())


@compiled
def place_copies(zero, plan, memory):
    """Where copies of operands of one system, or of several neighbours, begin in some memory; their bytes."""
    at, size = memory, plan.several * plan.apart
    for operand in range(P.A, P.X + 1):
        wanted = wants_copy(zero, plan, operand)
        plan.copy[operand] = at if wanted else 0
        at += size if wanted else 0
    return at - memory


@compiled
def point_at_copies(zero, plan, k):
    """Copies in place of the operands, those of the neighbour k."""
    for operand in range(P.A, P.X + 1):
        if plan.copy[operand]:
            plan.address[operand] = plan.copy[operand] + k * plan.apart
            plan.stride[operand] = bytes_of(zero, ())


@compiled
def spare_memory(plan, size):
    """Memory for so many bytes of copies, or 0."""
    if size > plan.spare_size:
        free(plan.spare)
        plan.spare = fresh(size)
        plan.spare_size = size if plan.spare != 0 else 0
    return plan.spare


@compiled
def make_copies(zero, plan, helpers):
    """Copies of operands that are wanted so; the address of their memory, or 0."""
    size, memory = place_copies(zero, plan, 0 * plan.rows), 0
    if size > 0:
        memory = spare_memory(plan, size)
        if memory == 0:
            return NO_MEMORY
        place_copies(zero, plan, memory)
        RUN_PHASE(zero, (plan, P.GATHER, helpers))
    return memory


@compiled
def copy_operands(zero, plan, helpers):
    """Copies of operands in place of those that are wanted so; False where there is no memory."""
    if make_copies(zero, plan, helpers) == NO_MEMORY:
        return False
    point_at_copies(zero, plan, 0 * plan.rows)
    return True


@compiled
def cut_operands(zero, plan, helpers):
    """Copies of a, b, c and d without the rows that are taken out in their place; False where there is no memory."""
    size = plan.rows * bytes_of(zero, ())
    plan.cut = fresh(4 * size)
    if plan.cut == 0:
        return False
    RUN_PHASE(zero, (plan, P.CUT, helpers))
    for place in range(4):
        operand = place if place < P.WHERE else P.D
        plan.address[operand] = plan.cut + place * size
        plan.stride[operand] = bytes_of(zero, ())
    plan.masked = 0
    bind(zero, plan)
    return True


@compiled
def bind(zero, plan):
    """Tell the sweeps where operands lie. One number for all rows is written where each lane has its line."""
    side, lane = bytes_of(zero, ()), plan.height * bytes_of(zero, ())
    for k in (P.A, P.B, P.C, P.D, P.X):
        address, stride = plan.address[k], plan.stride[k]
        plan.step[k] = stride != 0
        plan.lines[k] = address + side
        if stride == 0:
            lines = plan.constants + k * (lanes_of(zero, ()) * lane + LINE)
            plan.lines[k] = lines
            for j in range(lanes_of(zero, ())):
                for i in range(line_height(zero, ())):
                    store(lines + j * lane + i * side, load(address, zero))


@inlined
def find(zero, plan, job, matrix, side):
    """Where the operands of one system lie; those of the transposed matrix come from other rows."""
    axes, right_axes = job.matrix_axes, J.AXES + J.AXIS_WORDS * job.matrix_axes
    for k in range(6):
        at = job.pointers[k] + offset(job, J.AXES, axes, matrix, k)
        at += offset(job, right_axes, job.right_axes, side, k)
        plan.address[k] = at
        plan.stride[k] = job.strides[k]
    if job.flags & J.TRANSPOSE:
        a, c = plan.address[P.A], plan.address[P.C]
        a_step, c_step = plan.stride[P.A], plan.stride[P.C]
        plan.address[P.A] = c - c_step
        plan.stride[P.A] = c_step
        plan.address[P.C] = a + a_step
        plan.stride[P.C] = a_step


@inlined
def copy_neighbours(zero, plan, job, first, some, marks, helpers):
    """Copies of the operands of marked ones of some neighbours; the address of their memory, or 0 without any."""
    find(zero, plan, job, first + 1, 0 * first)
    for k in range(6):
        plan.across[k] = plan.address[k]
    find(zero, plan, job, first, 0 * first)
    for k in range(6):
        plan.across[k] -= plan.address[k]
    plan.several, plan.marks = some, marks
    memory = make_copies(zero, plan, helpers)
    if memory != NO_MEMORY and memory != 0:
        return memory
    plan.several, plan.marks = 1, 1
    return 0 * memory
