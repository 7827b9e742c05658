"""How the threads of a block read and write rows in Pallas: systems side by side, or the rows of each system."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tridiag.kernels.pallas.job import THREADS, Job

INTERPRET = False  # True: by Pallas's interpreter of GPUs, on any device

Index = Callable[[Any], Any]
Row = tuple[Any, Any, Any, Any]  # a, b, c, d


def fixed(x: Any) -> Any:
    """The value in the layout in which thread k has entry k, k + 128, ..., counted in the order of memory."""
    return x if INTERPRET else plgpu.layout_cast(x, plgpu.Layout.WG_STRIDED(x.shape, vec_size=1))


def full(job: Job, value: Any, dtype: Any = None) -> Any:
    return fixed(jnp.full(job.lanes, value, dtype or job.dtype))


def spread(job: Job, value: Any) -> Any:
    """One value for all threads."""
    return fixed(jnp.broadcast_to(value, job.lanes))


class Apart(NamedTuple):
    """Operands and results of which a row of all systems lies side by side: each thread reads and writes its own."""

    job: Job
    operands: Sequence[Any]
    x: Any
    upper: Any
    right: Any
    at: Index  # of row k in `upper` and `right`
    outer: Any
    inner: Any

    def systems(self, ref: Any) -> tuple[Any, Any]:
        outer = 0 if ref.shape[0] == 1 else self.outer
        if self.job.outer_lanes > 1 and ref.shape[0] > 1:
            outer = pl.ds(outer, self.job.outer_lanes)
        return outer, 0 if ref.shape[-1] == 1 else pl.ds(self.inner, self.job.inner_lanes)

    def fetch(self, first: Any, count: int) -> Any:
        return [tuple(self.read(ref, first + j) for ref in self.operands) for j in range(count)]

    def read(self, ref: Any, k: Any) -> Any:
        outer, inner = self.systems(ref)
        value = ref[outer, 0 if ref.shape[1] == 1 else k, inner]
        return fixed(value) if value.shape else spread(self.job, value)

    def rows(self, fetched: Any, first: Any, count: int) -> list[Row]:
        return fetched

    def write(self, x: Sequence[Any], first: Any) -> None:
        outer, inner = self.systems(self.x)
        for j, value in enumerate(x):
            self.x[outer, first + j, inner] = value


class Tile(NamedTuple):
    """An entry for each thread: some rows of some systems. Mosaic would take more than one in vectors."""

    system: int
    systems: int
    row: int
    rows: int

    def at(self, system: Any, row: Any) -> tuple[Any, Any]:
        return pl.ds(system + self.system, self.systems), pl.ds(row + self.row, self.rows)


@functools.cache
def tiles(count: int) -> list[Tile]:
    """Those that make up so many rows of all systems of a block."""
    found, row = [], 0
    while row < count:
        rows = 1 << ((count - row).bit_length() - 1)
        found += [Tile(k, THREADS // rows, row, rows) for k in range(0, THREADS, THREADS // rows)]
        row += rows
    return found


class Together(NamedTuple):
    """Those of which the rows of a system lie side by side: (systems, rows), in tiles."""

    job: Job
    operands: Sequence[Any]
    x: Any
    upper: Any
    right: Any
    at: Index
    outer: Any
    staged: Sequence[Any]  # room for a, b, c and d; on chip that of c and d is `upper` and `right`, of all rows

    def fetch(self, first: Any, count: int) -> Any:
        return [
            self.tiles(ref, first, count) if self.tiled(ref) else self.few(ref, first, count) for ref in self.operands
        ]

    def tiled(self, ref: Any) -> bool:
        return ref.shape[0] > 1 and ref.shape[1] == self.job.n

    def tiles(self, ref: Any, first: Any, count: int) -> Any:
        return [fixed(ref[tile.at(self.outer, first)]) for tile in tiles(count)]

    def few(self, ref: Any, first: Any, count: int) -> Any:
        """Rows of what systems share, or of what is constant along a system."""
        if ref.shape[0] == 1:
            return [spread(self.job, ref[0, 0 if ref.shape[1] == 1 else first + j]) for j in range(count)]
        return [fixed(ref[pl.ds(self.outer, THREADS), pl.ds(0, 1)])] * count

    def column(self, k: int, first: Any) -> Any:
        return first if self.job.on_chip and k >= 2 else 0

    def rows(self, fetched: Any, first: Any, count: int) -> list[Row]:
        plgpu.commit_smem()  # all threads are through with what was there
        tiled = [k for k, ref in enumerate(self.operands) if self.tiled(ref)]
        for k in tiled:
            for tile, values in zip(tiles(count), fetched[k], strict=True):
                self.staged[k][tile.at(0, self.column(k, first))] = values
        plgpu.commit_smem()
        columns = list(fetched)
        for k in tiled:
            own = self.column(k, first)
            columns[k] = [fixed(self.staged[k][:, pl.ds(own + j, 1)]) for j in range(count)]
        return list(zip(*columns, strict=True))

    def write(self, x: Sequence[Any], first: Any) -> None:
        staged, own = self.staged[3], self.column(3, first)
        if not self.job.on_chip:
            plgpu.commit_smem()
        for j, value in enumerate(x):
            staged[:, pl.ds(own + j, 1)] = value
        plgpu.commit_smem()
        for tile in tiles(len(x)):
            self.x[tile.at(self.outer, first)] = fixed(staged[tile.at(0, own)])
