"""Thomas and pivoted elimination in Triton, for torch tensors on a GPU.

Tensors are read where they lie, whatever their strides; an axis along which one is constant has the stride 0. Systems
of up to LONGEST rows are read and written once: a lane has a chunk of rows, the lanes of a system exchange what is left
of them (`tridiag.kernels.triton.chunks`). Of longer ones each has a lane, which moves 9 words an unknown, and is fast
where the system axis is not the last one. With "auto", systems without certificate go on a list in the memory of the
GPU, and are solved again with pivoting and refinement, products rounded before they are added, as on a CPU: the next
kernel reads how long the list is, and nothing waits for the device. The kernels run on torch's current stream.

With pivoting=False every chunk is eliminated by itself: that is for matrices all of whose diagonal blocks can do
without pivoting, as those of dominant and of definite matrices do; of others, and of singular ones, solutions may be
large or not finite. Cyclic systems and complex matrices have no kernel here.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
import triton

from tridiag.algorithms.matrix_rows import Matrix
from tridiag.kernels.jobs.batches import Axis, merge
from tridiag.kernels.triton import loader
from tridiag.libraries.torch import settled
from tridiag.problems.forms import Form

INTERPRET = False  # whether the kernels run in Triton's interpreter, on tensors in host memory
LANES = 128  # of a program
REGISTERS = {4: 128, 8: 208}  # of a lane of a tile, by the bytes of a number; left to itself, the assembler spills
MOST_REGISTERS = 255
OPERANDS, RANK = 6, 3  # below, diagonal, above, where, right, x; the batch axes that a kernel walks through
ROWS, LONGEST = 8, 256  # rows of a chunk, and of a system that a program holds
PLAIN_ROWS, PIVOTED_ROWS, REFINED_ROWS = 1, 3, 6  # numbers kept for each row of a system
KERNELS = "tridiag.kernels.triton.launch", ("tridiag.kernels.triton.rows", "tridiag.kernels.triton.chunks")
LEAST_SCRATCH = 64 * 2**20  # bytes for systems that are pivoted at a time; or as many as x has


def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Any = None) -> tuple[Any, Any]:
    if d.is_complex():
        return solve_pairs(matrix, d, form, out)
    with torch.cuda.device_of(d):
        direct = out is not None and (form.pivoting is False or out.data_ptr() != d.data_ptr())
        x = out if direct else torch.empty(form.shape, dtype=d.dtype, device=d.device)
        status = solve_to(x, matrix, d, form)
        # with pivoting=False chunks do not know a zero pivot of the whole system: what is not finite is looked at
        return (x if out is None or direct else out.copy_(x)), None if form.pivoting is False else status


def solve_pairs(matrix: Matrix, d: Any, form: Form, out: Any) -> tuple[Any, Any]:
    """Complex right sides of real matrices as twice as many real ones, along a new last axis."""
    a, b, c, where = (None if v is None else v.unsqueeze(-1) for v in matrix)
    target = None if out is None else torch.view_as_real(out)
    x, status = solve((a, b, c, where), torch.view_as_real(d.resolve_conj()), form.in_pairs(), target)
    return (torch.view_as_complex(x) if out is None else out), None if status is None else status[..., 0]


class Tile(NamedTuple):
    """What a program has: systems, the chunks of each, and so many lanes."""

    systems: int
    chunks: int
    lanes: int


def tile_of(n: int, together: bool, itemsize: int) -> Tile:
    """Where rows do not lie side by side, neighbouring systems for 64 bytes of memory."""
    chunks = max(2, triton.next_power_of_2(triton.cdiv(n, ROWS)))
    systems = max(LANES // chunks, 1 if together else 64 // itemsize)
    return Tile(systems, chunks, systems * chunks)


class Place(NamedTuple):
    """Where systems lie: the batch axes in the order in which the kernels count systems, and merged; the row steps."""

    order: tuple[int, ...]
    outer: tuple[Axis, ...]  # those that the host walks through
    inner: tuple[Axis, ...]  # the last RANK
    rows: tuple[int, ...]

    @property
    def systems(self) -> int:
        return math.prod(length for length, _ in self.inner)

    @property
    def together(self) -> bool:
        """Whether the rows of a solution lie side by side."""
        return self.rows[-1] == 1

    def unit(self) -> bool:
        """Whether rows of all operands, or else their systems, lie side by side."""
        steps = self.rows if self.together else self.inner[-1][1]
        return all(step == 1 for step in steps)

    def reach(self, tile: Tile) -> int:
        """How far apart numbers of a program may lie."""
        return max(
            abs(step) * tile.systems + abs(row) * ROWS * tile.chunks
            for step, row in zip(self.inner[-1][1], self.rows, strict=True)
        )

    def numbers(self) -> Iterator[int]:
        """What the kernels are told: three steps and the row step of each operand, and the lengths of two axes."""
        for k, row in enumerate(self.rows):
            yield from (steps[k] for _, steps in self.inner)
            yield row
        yield from (length for length, _ in self.inner[1:])


@functools.lru_cache(1024)
def place_of(form: Form, shapes: Any, strides: Any) -> Place:
    """From the shapes and the strides of the operands."""

    def steps(k: int) -> tuple[int, ...]:
        return tuple(0 if s[k] == 1 else t[k] for s, t in zip(shapes, strides, strict=True))

    batch = [k for k in range(len(form.shape)) if k != form.axis]
    order = sorted(batch, key=lambda k: -sum(map(abs, steps(k)[4:])))
    axes = merge([(form.shape[k], steps(k)) for k in order if form.shape[k] != 1])
    inner = [(1, (0,) * OPERANDS)] * (RANK - len(axes)) + axes[-RANK:]
    return Place(tuple(order), tuple(axes[:-RANK]), tuple(inner), steps(form.axis))


def solve_to(x: Any, matrix: Matrix, d: Any, form: Form) -> Any:
    """Write the solution to x. Returns the status of every matrix."""
    a, b, c, where = matrix
    mask = b if where is None else where.view(torch.uint8)  # without a mask anything, which is not read
    below, above = (c, a) if form.transpose else (a, c)
    operands = [settled(v) for v in (below, b, above, mask, d, x)]
    place = place_of(form, tuple(v.shape for v in operands), tuple(v.stride() for v in operands))
    status = torch.zeros(math.prod(form.batch), dtype=torch.int32, device=x.device)
    for k, at in enumerate(itertools.product(*(range(length) for length, _ in place.outer))):
        parts = [narrowed(v, j, at, place) for j, v in enumerate(operands)]
        Job(parts, where is not None, status[k * place.systems :], place, form).run()
    first = tuple(slice(1) if length == 1 else slice(None) for length in form.matrix_batch)
    lengths, back = [form.shape[k] for k in place.order], [place.order.index(k) for k in sorted(place.order)]
    return status.reshape(lengths).permute(back)[first]


def narrowed(x: Any, operand: int, at: tuple[int, ...], place: Place) -> Any:
    """What begins with the first system in that place along the axes that the host walks through."""
    shift = sum(k * steps[operand] for k, (_, steps) in zip(at, place.outer, strict=True))
    return x.as_strided((1,), (1,), x.storage_offset() + shift)


class Job(NamedTuple):
    """The systems of one walk of the kernels."""

    operands: list[Any]
    masked: bool
    status: Any
    place: Place
    form: Form

    def run(self) -> None:
        if self.form.pivoting is True:
            self.exchange(PIVOTED_ROWS)
            return
        listed = torch.empty(self.place.systems, dtype=torch.int64, device=self.status.device)
        count = torch.zeros(1, dtype=torch.int64, device=self.status.device)
        self.eliminate((listed, count))
        if self.form.pivoting == "auto":
            self.exchange(REFINED_ROWS, (listed, count))

    def eliminate(self, doubtful: Any) -> None:
        """All systems without pivoting; those that have no certificate go on the list."""
        tile = tile_of(self.form.n, self.place.together, self.operands[-1].element_size())
        if self.form.n <= LONGEST and self.place.reach(tile) < 2**31:
            inner = self.place.inner[-1][0]
            programs = self.place.systems // inner * triton.cdiv(inner, tile.systems)
            self.launch("chunks", programs, tile, doubtful)
        else:
            self.launch_lanes("rows", self.scratch(PLAIN_ROWS, self.place.systems), doubtful)

    def exchange(self, rows: int, listed: Any = None) -> None:
        """All systems, or those on a list, with pivoting; with a list, refined."""
        x = self.operands[-1]
        each = rows * self.form.n * x.element_size()
        bytes_of_x = self.place.systems * self.form.n * x.element_size()
        slots = max(1, min(self.place.systems, max(LEAST_SCRATCH, bytes_of_x) // each))
        self.launch_lanes("pivoted", self.scratch(rows, slots), listed)

    def scratch(self, rows: int, slots: int) -> Any:
        x = self.operands[-1]
        return torch.empty((rows, self.form.n, slots), dtype=x.dtype, device=x.device)

    def launch_lanes(self, kernel: str, kept: Any, listed: Any) -> None:
        """With a lane for each system, or for as many as there is memory for."""
        self.launch(kernel, triton.cdiv(kept.shape[2], LANES), Tile(LANES, 1, LANES), listed, kept)

    def launch(self, kernel: str, programs: int, tile: Tile, listed: Any, kept: Any = None) -> None:
        form, place, x = self.form, self.place, self.operands[-1]
        slots, chunks, limits = 0 if kept is None else kept.shape[2], kernel == "chunks", torch.finfo(x.dtype)
        with np.errstate(all="ignore"):  # in which the interpreter computes
            kernels(INTERPRET).run[(programs,)](
                *self.operands, kept, *(listed or (None, None)), self.status, *place.numbers(),
                form.n, int(form.transpose), int(form.pivoting is False), place.systems, slots,
                KERNEL=kernel, LISTED=kernel == "pivoted" and listed is not None, MASKED=self.masked,
                EPS=limits.eps, TINY=limits.tiny,
                SYSTEMS=tile.systems, CHUNKS=tile.chunks,
                TOGETHER=chunks and place.together, UNIT=chunks and place.unit(),
                num_warps=tile.lanes // 32, maxnreg=REGISTERS[x.element_size()] if chunks else MOST_REGISTERS,
                enable_fp_fusion=chunks,
            )  # fmt: skip


def kernels(interpreted: bool) -> ModuleType:
    return loader.load(*KERNELS, interpreted)
