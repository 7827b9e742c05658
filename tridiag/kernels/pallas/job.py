"""What a kernel of `tridiag.backends.jax_pallas` is compiled for: the systems of a block, what its memory holds."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from tridiag.problems.forms import Shape

THREADS = 128  # of a block, which is what Mosaic GPU calls a warpgroup
ROWS = 8  # that are taken at a time
SHARED_BYTES = 222 * 1024  # of the 227 KiB that a block may have; the rest is Mosaic's
NEAR = 32  # so many systems side by side are read at the speed of any more


class Job(NamedTuple):
    """What a kernel is compiled for; systems in a block are (outer_lanes, inner_lanes), 128 of them."""

    shape: Shape  # (outer, n, inner)
    outer_lanes: int
    inner_lanes: int
    dtype: str
    turned: bool  # the transpose of the matrix
    certifies: bool  # else singular systems become NaN
    cut: bool  # rows are taken out, and what is behind a coupling of zero is not read

    @property
    def n(self) -> int:
        return self.shape[1]

    @property
    def together(self) -> bool:
        """Whether the rows of a system lie side by side."""
        return self.shape[2] == 1

    @property
    def lanes(self) -> Shape:
        """The shape of what has one value for each thread."""
        if self.together:
            return THREADS, 1
        return (self.outer_lanes, self.inner_lanes) if self.outer_lanes > 1 else (THREADS,)

    @property
    def grid(self) -> tuple[int, int]:
        return -(-self.shape[0] // self.outer_lanes), -(-self.shape[2] // self.inner_lanes)

    @property
    def on_chip(self) -> bool:
        """Whether both sweeps fit into shared memory."""
        words = 2 * odd(self.n) + 2 * odd(ROWS) if self.together else 2 * self.n
        return words * THREADS * jnp.dtype(self.dtype).itemsize <= SHARED_BYTES


def odd(n: int) -> int:
    """The stride at which threads that read a column of a tile use every bank of shared memory."""
    return n | 1


def lanes_of(outer: int, inner: int) -> tuple[int, int]:
    """How many systems of a block lie along outer and inner: those with the fewest systems that are solved twice."""
    if inner == 1:
        return THREADS, 1
    widest = min(THREADS, 1 << (inner.bit_length() - 1))
    widths = [w for w in (THREADS >> k for k in range(8)) if min(NEAR, widest) <= w <= widest]
    lanes = [(THREADS // w, w) for w in widths]
    return min(lanes, key=lambda k: -(-outer // k[0]) * -(-inner // k[1]))


def place(block: Any, job: Job) -> tuple[Any, Any]:
    """The first system of a block; the last blocks begin early enough to end with the array."""
    columns = job.grid[1]
    outer, inner = lax.div(block, jnp.int32(columns)), lax.rem(block, jnp.int32(columns))
    return (
        jnp.minimum(outer * job.outer_lanes, job.shape[0] - job.outer_lanes),
        jnp.minimum(inner * job.inner_lanes, job.shape[2] - job.inner_lanes),
    )
