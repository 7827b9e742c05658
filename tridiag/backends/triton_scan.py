"""Recurrences of first order in Triton, for torch tensors on a GPU.

Many sequences that lie side by side have a lane each; of others a lane has a chunk of rows, and the lanes of a sequence
join what their chunks make (`tridiag.kernels.triton.scans`). Numbers are read and written once: 3 words a value, 2 of
logcumsumexp. Of few sequences pieces go to several programs in three phases, which read them twice: 5 words and 3.
Where products of coefficients overflow, or are too large to be trusted, the chunks of a tile go one after another;
those that underflow are kept in range. Tensors are read where they lie, unless their batch axes on one side of the
system axis do not merge into one; of those a copy is made. The kernels run on torch's current stream.

Source: Blelloch (1990), Prefix sums and their applications.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
import triton

from tridiag.algorithms import logsumexp
from tridiag.algorithms import selective_scan as selective
from tridiag.algorithms.recurrence import Rows
from tridiag.kernels.triton import loader
from tridiag.libraries.torch import Operations as ops
from tridiag.libraries.torch import settled
from tridiag.problems.forms import Recurrence
from tridiag.problems.selective import Operands, SelectiveScan

INTERPRET = False  # whether the kernels run in Triton's interpreter, on tensors in host memory
LANES = 128  # of a program
LOGARITHMIC_CHUNKS = 32  # of a sequence in a tile of sums of exponentials, at most: for more, registers are too few
MOST_REGISTERS = 255  # of a lane; left to itself, the assembler spills
ROWS = 8  # of a chunk
MANY = 2**15  # sequences side by side: a lane for each keeps all multiprocessors busy
FEW = 256  # programs: where there are fewer, sequences are cut into pieces for
ENOUGH = 512  # of them
BESIDE = 64  # bytes of a row of sequences that lie side by side, for one program
KERNELS = (
    "tridiag.kernels.triton.scans",
    tuple(f"tridiag.kernels.triton.{name}" for name in ("rows", "chunks", "logarithms", "parts")),
)


def linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    return on_device(False, coefficients[0], x, init, form, out)


def logcumsumexp(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    return on_device(True, x, x, (), form, out)


def selective_scan(operands: Operands, form: SelectiveScan, out: Any = None) -> tuple[Any, Any]:
    """The states of about sqrt(n) steps are stored at a time."""
    return selective.run(ops, linear_recurrence, operands, form, out)


def on_device(logarithmic: bool, a: Any, x: Any, init: Rows, form: Recurrence, out: Any) -> Any:
    """On the device of x. Without coefficients ``a`` is anything of that dtype, and is not read."""
    shape = math.prod(form.shape[: form.axis]), form.n, math.prod(form.shape[form.axis + 1 :])
    with torch.cuda.device_of(x):
        y = out if out is not None and out.is_contiguous() else x.new_empty(form.shape)
        tensors = *(settled(v).expand(form.shape).reshape(shape) for v in (a, x)), y.view(shape)
        place = Place(form.n - 1 if form.backward else 0, -1 if form.backward else 1, tensors)
        spread = spread_of(place, logarithmic)
        states = states_of(logarithmic, init, form, spread.pieces, x)
        Job(logarithmic, place, spread, states, bool(init), int(form.transpose)).run()
    return y if out is None or y is out else out.copy_(y)


def states_of(logarithmic: bool, init: Rows, form: Recurrence, pieces: int, x: Any) -> Any:
    """The states before all pieces: (pieces, numbers of a state, sequences). Those of the first are given."""
    start = logsumexp.nowhere(logsumexp.far(torch.finfo(x.dtype).eps)) if logarithmic else (0.0,)
    states = x.new_empty((pieces, len(start), math.prod(form.batch)))
    for k, value in enumerate(start):
        states[0, k] = value
    if init:
        states[0, 0] = init[0].expand([1 if k == form.axis else m for k, m in enumerate(form.shape)]).reshape(-1)
    return states


class Place(NamedTuple):
    """Where sequences lie: a, x and y as (outer, n, inner), the row of the first step, and the step from row to row."""

    first: int
    turn: int
    tensors: tuple[Any, Any, Any]

    @property
    def axes(self) -> tuple[int, int]:
        """That of the places, and that of the sequences of a place, which neighbouring lanes have."""
        return (2, 0) if self.tensors[1].shape[2] == 1 else (0, 2)

    @property
    def lengths(self) -> tuple[int, int]:
        return self.tensors[1].shape[self.axes[0]], self.tensors[1].shape[self.axes[1]]

    def steps(self, axis: int) -> list[int]:
        """Of each tensor, 0 where it has one element."""
        return [0 if v.shape[axis] == 1 else v.stride(axis) for v in self.tensors]

    def rows(self) -> list[int]:
        return [self.turn * step for step in self.steps(1)]

    @property
    def together(self) -> bool:
        """Whether rows lie side by side in memory, not sequences."""
        return self.tensors[1].shape[2] == 1 or abs(self.rows()[1]) == 1

    def unit(self) -> bool:
        """Whether rows of all tensors, or else their sequences, lie side by side."""
        return all(step == 1 for step in (self.rows() if self.together else self.steps(self.axes[1])))

    def reach(self, systems: int, chunks: int) -> int:
        """How far apart numbers of a tile may lie."""
        both = zip(self.steps(self.axes[1]), self.rows(), strict=True)
        return max(systems * abs(step) + chunks * ROWS * abs(row) for step, row in both)

    def begin(self) -> list[Any]:
        """What begins with the first row of each tensor."""
        return [v.as_strided((1,), (1,), v.storage_offset() + self.first * v.stride(1)) for v in self.tensors]

    def numbers(self) -> list[int]:
        """What kernels are told: the steps of each tensor, and the lengths of the batch axes."""
        outer, inner = self.axes
        steps = zip(self.steps(outer), self.steps(inner), self.rows(), strict=True)
        return [*(step for each in steps for step in each), *self.lengths]


class Spread(NamedTuple):
    """How sequences are spread over programs: (sequences, chunks) of a tile, and pieces of so many rows."""

    systems: int
    chunks: int  # 1: a lane has a whole sequence
    pieces: int
    rows: int


def spread_of(place: Place, logarithmic: bool) -> Spread:
    outer, inner = place.lengths
    n, total = place.tensors[1].shape[1], outer * inner
    most = min(LANES, LOGARITHMIC_CHUNKS) if logarithmic else LANES
    chunks = min(most, max(2, triton.next_power_of_2(triton.cdiv(n, ROWS))))
    if not place.together:
        chunks = min(chunks, max(2, LANES * place.tensors[1].element_size() // BESIDE))
    systems = LANES // chunks
    if (total >= MANY and not place.together) or place.reach(systems, chunks) >= 2**31:
        return Spread(LANES, 1, 1, n)
    tile, programs = chunks * ROWS, outer * triton.cdiv(inner, systems)
    tiles = triton.cdiv(n, tile)
    each = tiles if programs >= FEW else triton.cdiv(tiles, max(1, ENOUGH // programs))
    return Spread(systems, chunks, triton.cdiv(tiles, each), each * tile)


class Job(NamedTuple):
    """The sequences of a call."""

    logarithmic: bool
    place: Place
    spread: Spread
    states: Any
    given: bool
    shift: int

    def run(self) -> None:
        pieces, words, total = self.states.shape
        words = words if self.logarithmic else 3
        parts = self.states.new_empty((pieces, words, total))
        trusted = torch.empty((pieces, total), dtype=torch.int32, device=parts.device)
        if self.spread.chunks == 1:
            self.launch("columns", parts, trusted)
            return
        if pieces > 1:
            self.launch("fold", parts, trusted)
            self.launch("carry", parts, trusted)
        self.launch("tiles", parts, trusted)

    def launch(self, kernel: str, parts: Any, trusted: Any) -> None:
        place, spread, total = self.place, self.spread, self.states.shape[2]
        in_tiles = kernel in ("fold", "tiles")
        systems, chunks = (spread.systems, spread.chunks) if in_tiles else (LANES, 1)
        outer, inner = place.lengths
        programs = outer * triton.cdiv(inner, systems) * spread.pieces if in_tiles else triton.cdiv(total, LANES)
        with np.errstate(all="ignore"):  # in which the interpreter computes
            kernels(INTERPRET).run[(programs,)](
                *place.begin(), self.states, parts, trusted, *place.numbers(),
                place.tensors[1].shape[1], spread.rows, spread.pieces, int(self.given), self.shift, total,
                KERNEL=kernel, LOGARITHMIC=self.logarithmic, SYSTEMS=systems, CHUNKS=chunks,
                TOGETHER=in_tiles and place.together, UNIT=in_tiles and place.unit(),
                num_warps=systems * chunks // 32, maxnreg=MOST_REGISTERS,
            )  # fmt: skip


def kernels(interpreted: bool) -> ModuleType:
    return loader.load(*KERNELS, interpreted)
