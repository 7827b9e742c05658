"""What series that share their model have in common, in memory of their job."""

from __future__ import annotations

from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.jobs.words.record import Word
from tridiag.kernels.many_states.records import size_of_record
from tridiag.kernels.runtime.workspace import Workspace, aligned, workspace
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.records import at


class Common(Workspace):
    """Matrices lie as a caller's, without padding."""

    moved = Word()  # 1 where the model below is in another basis of the states than the caller's, else 0
    logarithms = Word()  # a number
    records = Word()  # of all steps
    F, H, Q, M0, P0 = (Word() for _ in range(5))
    basis = Word()  # a matrix that takes the caller's states there


ARRAYS, allocate, _ = workspace(Common, "logarithms", "records", "F", "H", "Q", "M0", "P0", "basis")
common_at = at(Common)


@compiled
def allocate_common(zero, job):
    """The job frees it."""
    k, p, size = job.states, job.observed, bytes_of_real(zero, ())
    square = aligned(k * k * size)
    return allocate(ARRAYS(
        logarithms=aligned(8), records=job.steps * size_of_record(zero, job), F=square, H=aligned(p * k * size),
        Q=square, M0=aligned(k * size), P0=square, basis=square,
    ))  # fmt: skip


@compiled
def common_of(job):
    return common_at(aligned(job.owned))
