"""Thomas elimination in Pallas, compiled by Mosaic GPU: a thread for each system, O(8n) flops, certified row by row.

Needs JAX 0.10 or newer with its CUDA plugin, absl-py, and a GPU of the Hopper generation or newer. Never run on one:
see `docs/gpu.rst`.

Arrays are (outer, n, inner), see `Job`. A block is 128 threads; rows are taken `ROWS` at a time, and while some are
eliminated the next ones are on their way from memory. What both sweeps need stays in shared memory where it fits, and
then five words move for each unknown; else it goes through memory, and nine move. Where the rows of a system lie side
by side (inner = 1), tiles of them pass through shared memory, so that the threads read what lies side by side too.
There are no masked loads: the last block begins early enough to end with the array, and solves some systems again.

"auto" and True: systems without certificate are solved by `jax_scan`, behind a `lax.cond`.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

from tridiag import elimination as el
from tridiag.backends import jax_scan
from tridiag.libraries.jax import Operations as ops
from tridiag.libraries.jax import vary_alike
from tridiag.rows import Matrix, bands
from tridiag.shapes import Form, Shape

INTERPRET = False  # True: by Pallas's interpreter of GPUs, on any device
THREADS = 128  # of a block, which is what Mosaic GPU calls a warpgroup
ROWS = 8  # that are taken at a time
SHARED_BYTES = 222 * 1024  # of the 227 KiB that a block may have; the rest is Mosaic's
NEAR = 32  # so many systems side by side are read at the speed of any more

Index = Callable[[Any], Any]
Row = tuple[Any, Any, Any, Any]  # a, b, c, d
RENAMED = inspect.signature(plgpu.kernel).parameters.keys() >= {"out_type", "scratch_types"}  # as of JAX 0.10


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


# ------------------------------------------------------------------------------------------------ in the kernel


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


class Carried(NamedTuple):
    """What the sweep down carries from row to row."""

    above: Any  # c of the row before
    scale: Any  # 1 / its pivot
    right: Any
    sound: Any  # 1 where all rows so far have a certificate, or where none is wanted no zero pivot


def product(job: Job, coupling: Any, value: Any) -> Any:
    return jnp.where(coupling == 0, 0, coupling * value) if job.cut else coupling * value


def is_sound(job: Job, grown: Any, pivot: Any, b: Any) -> Any:
    """As `tridiag.elimination.certify`; and the reciprocal of the pivot is a normal number."""
    if not job.certifies:
        return pivot != 0
    info, size, diagonal = jnp.finfo(job.dtype), abs(pivot), abs(b)
    bounded = (abs(grown) + size) * (1 / el.GROWTH) <= diagonal
    tiny = float(info.tiny)
    return bounded & (size > el.CANCELLATION * float(info.eps) * diagonal) & (size > tiny) & (size <= 1 / tiny)


def eliminate(job: Job, access: Any, carried: Carried, rows: list[Row], first: Any) -> Carried:
    """Some rows; what row k - 1 has in common with row k is known, and kept, at row k."""
    above, scale, right, sound = carried
    for j, (a, b, c, d) in enumerate(rows):
        k = first + j
        if j == 0:
            a = jnp.where(jnp.broadcast_to(k > 0, job.lanes), a, 0)  # there is none in row 0
        lower, upper = (above, a) if job.turned else (a, above)
        upper = product(job, upper, scale)
        grown = product(job, lower, upper)
        pivot = b - grown
        scale = 1 / pivot  # in float32 Mosaic takes the GPU's own, off by up to a unit in the last place
        right = (d - product(job, lower, right)) * scale
        sound = jnp.where(is_sound(job, grown, pivot, b), sound, 0)
        access.upper[access.at(max(k - 1, 0) if isinstance(k, int) else jnp.maximum(k - 1, 0))] = upper
        access.right[access.at(k)] = right
        above = c
    return Carried(above, scale, right, sound)


def substitute(job: Job, access: Any, after: Any, sound: Any, first: Any, count: int) -> Any:
    """x of some rows, from the last of them to the first; x of the first."""
    known = [(access.upper[access.at(first + j)], access.right[access.at(first + j)]) for j in range(count)]
    known = [(fixed(upper), fixed(right)) for upper, right in known]
    x = []
    for upper, right in reversed(known):
        after = right - product(job, upper, after)
        if not job.certifies:
            after = jnp.where(sound != 0, after, jnp.nan)
        x.append(after)
    access.write(x[::-1], first)
    return after


def sweeps(job: Job, access: Any) -> Any:
    """Down and up; whether each system is sound. The rest of n by `ROWS` has code of its own."""
    whole, rest = divmod(job.n, ROWS)
    last = (whole - 1) * ROWS
    zero, one = full(job, 0), full(job, 1)
    carried = Carried(zero, one, zero, full(job, 1, jnp.int32))

    def down(piece: Any, carry: Any) -> Any:
        carried, fetched = carry
        coming = access.fetch((piece + 1) * ROWS, ROWS)
        rows = access.rows(fetched, piece * ROWS, ROWS)
        return eliminate(job, access, carried, rows, piece * ROWS), coming

    def up(piece: Any, after: Any) -> Any:
        return substitute(job, access, after, sound, last - piece * ROWS, ROWS)

    tail = None if whole else access.fetch(0, rest)
    if whole:
        start = carried, access.fetch(0, ROWS)
        carried, fetched = lax.fori_loop(jnp.int32(0), jnp.int32(whole - 1), down, start)
        tail = access.fetch(whole * ROWS, rest) if rest else None
        carried = eliminate(job, access, carried, access.rows(fetched, last, ROWS), last)
    if rest:
        carried = eliminate(job, access, carried, access.rows(tail, whole * ROWS, rest), whole * ROWS)
    access.upper[access.at(job.n - 1)] = zero
    sound, after = carried.sound, zero
    if rest:
        after = substitute(job, access, after, sound, whole * ROWS, rest)
    lax.fori_loop(jnp.int32(0), jnp.int32(whole), up, after)
    return sound


def kernel(job: Job, *refs: Any) -> None:
    """One block: refs to a, b, c, d, then x and the soundness, and what both sweeps need."""
    *operands, x, told = refs[:6]
    block = lax.axis_index("block")
    outer, inner = place(block, job)
    upper, right, *staged = refs[6:]
    access: Any
    at: Index = (lambda k: (k,)) if job.on_chip else (lambda k: (block, k))
    if job.together:
        staged = [*staged, upper, right] if job.on_chip else staged
        at = (lambda k: (slice(None), pl.ds(k, 1))) if job.on_chip else at
        access = Together(job, operands, x, upper, right, at, outer, staged)
        where = pl.ds(outer, THREADS), pl.ds(0, 1)
    else:
        access = Apart(job, operands, x, upper, right, at, outer, inner)
        where = access.systems(x)
    told[where] = sweeps(job, access)


# ---------------------------------------------------------------------------------------------------- around it


def interpreter() -> Any:
    """The parameters with which JAX interprets a kernel for GPUs; public as of JAX 0.11."""
    if not INTERPRET:
        return None
    if not hasattr(plgpu, "InterpretGPUParams"):
        from jax._src.pallas.mosaic_gpu.interpret import params as plgpu_params

        return plgpu_params.InterpretGPUParams()
    return plgpu.InterpretGPUParams()


def memories(job: Job) -> tuple[list[Any], list[Any]]:
    """Results of a kernel, and its shared memory: x, the soundness; c' and d' in one of them; tiles."""
    outer, n, inner = job.shape

    def result(shape: Shape, dtype: Any = job.dtype) -> Any:
        return jax.ShapeDtypeStruct(shape, dtype)

    results = [result((outer, n) if job.together else job.shape), result((outer, inner), jnp.int32)]
    kept = (THREADS, odd(n)) if job.together else (n, *job.lanes)
    if not job.on_chip:
        results += [result((math.prod(job.grid), n, *job.lanes))] * 2
    shapes = [kept] * 2 if job.on_chip else []
    if job.together:
        shapes += [(THREADS, odd(ROWS))] * (2 if job.on_chip else 4)
    return results, [plgpu.SMEM(shape, jnp.dtype(job.dtype)) for shape in shapes]


def run(job: Job, operands: Sequence[Any]) -> tuple[Any, Any]:
    """x, and 1 for each system that is sound."""
    names = ("out_type", "scratch_types") if RENAMED else ("out_shape", "scratch_shapes")
    call = plgpu.kernel(
        functools.partial(kernel, job),
        **dict(zip(names, memories(job), strict=True)),
        grid=(math.prod(job.grid),),
        grid_names=("block",),
        compiler_params=plgpu.CompilerParams(
            unsafe_no_auto_barriers=True,  # threads share tiles only, and those behind barriers of their own
            lowering_semantics=plgpu.LoweringSemantics.Lane,  # layouts are said here; to infer them takes seconds
        ),
        interpret=interpreter(),
        kernel_name="tridiag_thomas",
    )
    x, told, *_ = call(*operands)
    return tuple(vary_alike((x, told, *operands))[:2])  # Pallas does not know of the axes of `shard_map`


def normal(x: Any, form: Form) -> Any:
    """The array as (outer, n, inner), each of full length or 1."""
    shape, axis = list(x.shape), form.axis
    for part in (slice(axis), slice(axis + 1, None)):
        if math.prod(shape[part]) != 1:
            shape[part] = form.shape[part]
    x = jnp.broadcast_to(x, shape)
    return x.reshape(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))


def fitted(x: Any, job: Job, fill: int) -> Any:
    """An operand as the kernel takes it: no fewer systems than a block has, and shared along both axes or none."""
    outer, _, inner = job.shape
    if job.outer_lanes > 1 and not job.together and (x.shape[0], x.shape[2]) != (1, 1):
        x = jnp.broadcast_to(x, (x.shape[0] if x.shape[0] > 1 else outer, x.shape[1], inner))
    if 1 < x.shape[0] < outer:
        x = jnp.pad(x, ((0, outer - x.shape[0]), (0, 0), (0, 0)), constant_values=fill)
    return x[..., 0] if job.together else x


def thomas(matrix: Matrix, d: Any, form: Form) -> tuple[Any, Any]:
    """Plain elimination: x, and which systems are sound."""
    where = matrix[3]
    *entries, turned = *matrix[:3], form.transpose
    if where is not None:
        *entries, turned = *bands(ops, matrix, form), False
        d = jnp.where(where, d, 0)
    operands = [normal(x, form) for x in (*entries, jnp.broadcast_to(d, form.shape))]
    outer, n, inner = operands[3].shape
    outer_lanes, inner_lanes = lanes_of(outer, inner)
    shape = max(outer, outer_lanes), n, inner
    job = Job(shape, outer_lanes, inner_lanes, d.dtype.name, turned, form.pivoting is not False, where is not None)
    x, told = run(job, [fitted(x, job, int(k == 1)) for k, x in enumerate(operands)])
    return x[:outer].reshape(form.shape), told[:outer].reshape(form.batch) != 0


def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Any = None) -> tuple[Any, Any]:
    x, certified = thomas(matrix, d, form)
    if form.pivoting is False:
        return x, None

    def harder(x: Any) -> Any:
        pivoted, _ = jax_scan.solve(matrix, d, form._replace(pivoting=True))
        return jnp.where(jnp.expand_dims(certified, form.axis), x, pivoted)

    return lax.cond(jnp.all(certified), lambda x: x, harder, x), None
