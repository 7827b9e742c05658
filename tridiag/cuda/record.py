"""What a device is told to do, put down before there is any memory: launches, and the scratch memory that they share.

A job is put down with addresses that say from which array they count; where the arrays are comes last. Nothing here
needs a GPU: the same program runs on arrays of CuPy and PyTorch, and inside programs of XLA.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tridiag.cuda.struct import OPERANDS, SYSTEMS, Layout
from tridiag.kernels.jobs.batches import Axis

Job = np.ndarray[Any, Any]

# the arrays from which addresses count, in the order in which a program is told where they are: the operands first,
# then scratch memory, then these of systems
STATUS, SIGN, LOGARITHM = range(OPERANDS + 1, OPERANDS + 4)
SHIFT = 56  # an address is a number of bytes below 2^55 in size, and in the bits above it the array's number, from 1
HALF = 1 << (SHIFT - 1)
ALIGNMENT = 256  # bytes of scratch memory


def address(array: int, offset: int = 0) -> int:
    """So many bytes after the beginning of an array, or before it. No address is 0, which is nowhere."""
    return ((array + 1) << SHIFT) + offset


def walk(job: Job, outer: Sequence[Axis], begin: np.ndarray[Any, Any]) -> Iterator[Job]:
    """The job for every place along axes that the host walks through, its operands counted from ``begin``; 0: none."""
    for place in itertools.product(*(range(length) for length, _ in outer)):
        placed = job.copy()
        shift = sum((k * np.array(steps) for k, (_, steps) in zip(place, outer, strict=True)), 0 * begin)
        placed["operand"] = begin + (begin != 0) * shift
        yield placed


class Kernel(NamedTuple):
    """A kernel of a source file, by its name expression; ``threads``: the most that a block may have."""

    source: str
    name: str
    threads: int


class Launch(NamedTuple):
    kernel: Kernel
    grid: int
    block: int
    shared: int  # bytes of shared memory of a block
    in_turn: bool = False  # whether fewer blocks do as well: each takes one piece of work after another


class Clear(NamedTuple):
    """Zeros, from the first address of the job on."""

    size: int


@dataclass(frozen=True, eq=False)
class Program:
    """Steps in the order of the stream, a job for each, and the bytes of scratch memory that they need."""

    steps: tuple[Launch | Clear, ...]
    jobs: Job
    arrays: np.ndarray[Any, Any]  # from which the addresses of each job count, and how many bytes
    offsets: np.ndarray[Any, Any]
    scratch: int

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(dict.fromkeys(step.kernel for step in self.steps if isinstance(step, Launch)))


class Placed:
    """The jobs of a program in memory of their own, where each run has them once more."""

    def __init__(self, program: Program) -> None:
        self.arrays, self.offsets = program.arrays, program.offsets
        jobs = program.jobs.copy()
        self.words = jobs.view(np.int64).reshape(len(jobs), -1)[:, : self.arrays.shape[1]]
        self.jobs = [jobs[k, ...] for k in range(len(jobs))]

    def place(self, pointers: Sequence[int]) -> None:
        """Count addresses from these pointers, where the arrays are."""
        np.add(np.array((0, *pointers), np.int64)[self.arrays], self.offsets, self.words)


class Recording:
    """A program while it is put down."""

    def __init__(self, layout: Layout = SYSTEMS, shared: int = 0) -> None:
        self.layout, self.shared = layout, shared  # ... the bytes of shared memory that a block may have
        self.steps: list[Launch | Clear] = []
        self.jobs: list[Job] = []
        self.used = self.scratch = 0

    def reserve(self, size: int) -> int:
        """The address of so many bytes of scratch memory."""
        found = address(self.layout.operands, self.used)
        self.used += -(-size // ALIGNMENT) * ALIGNMENT
        self.scratch = max(self.scratch, self.used)
        return found

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """What is reserved inside is free again afterwards: steps follow each other."""
        before = self.used
        yield
        self.used = before

    def clear(self, where: int, size: int) -> None:
        job = np.zeros((), self.layout.job)
        job["operand"][0] = where
        self.steps.append(Clear(size))
        self.jobs.append(job)

    def launch(self, kernel: Kernel, grid: int, block: int, job: Job, shared: int = 0, in_turn: bool = False) -> None:
        self.steps.append(Launch(kernel, grid, block, shared, in_turn))
        self.jobs.append(job.copy())

    def program(self) -> Program:
        jobs = np.array(self.jobs, self.layout.job)
        found = jobs.view(np.int64).reshape(len(jobs), -1)[:, : self.layout.pointers] + HALF
        arrays = found >> SHIFT
        return Program(tuple(self.steps), jobs, arrays, found - (arrays << SHIFT) - HALF, self.scratch)
