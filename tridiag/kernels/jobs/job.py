"""What a kernel is called with."""

from __future__ import annotations

from typing import Any, NamedTuple


class Job(NamedTuple):
    """Which kernel is called, and all that it is told but the addresses of arrays."""

    kernel: tuple[Any, ...]  # a family of `tridiag.kernels.table.KERNELS`, a dtype, and what else names one of it
    words: Any  # those of `tridiag.kernels.jobs.words`; pointers are still zero
    helpers: int  # threads beside the calling one
    unknowns: int
    order: tuple[int, ...] = ()  # of systems: the batch axes of the matrices, as the kernel counts them
