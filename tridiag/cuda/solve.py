"""Systems solved by CUDA kernels: a sweep that certifies, then what is left without a certificate, with pivoting.

Nothing waits for the device: the sweep puts systems without a certificate on a list in device memory, and the kernel
after it reads how long the list is. Scratch memory is CuPy's pool's, and is given back in the order of the stream.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import cupy
import numpy as np

from tridiag.cuda import instances
from tridiag.cuda.job import Systems, systems_of
from tridiag.cuda.launcher import launch
from tridiag.rows import Matrix
from tridiag.shapes import Form

LONGEST = min(
    threads * instances.CHUNKS[dtype][-1] for dtype, threads in instances.CHUNK_THREADS.items()
)  # in one block
LEAST_SCRATCH = 64 * 2**20  # bytes for systems without a certificate; or as many as x has
SPREAD = 32  # threads of a block where systems may be few
WORDS = {False: 5, True: 8}  # that a row's factors take, of tridiagonal and of cyclic matrices (`pivoted.cu`)
MORE_WORDS = 3  # ... and of a solution: right side, iterate, correction

Job = np.ndarray[Any, Any]
Sweep = Callable[[Job, Systems, bool], None]  # solves all systems of a job; whether with certificates


def solve(sweep: Sweep, matrix: Matrix, d: Any, form: Form, out: Any = None) -> Any:
    """The solution under the promise ``form.pivoting``, by a sweep and, where it has no certificate, by pivoting."""
    itemsize = matrix[1].dtype.itemsize
    x = cupy.empty(form.shape, d.dtype) if out is None or not counts(out, itemsize) else out
    if x.data.ptr == d.data.ptr and form.n > LONGEST:
        d = d.copy()  # long systems are written piece by piece, before it is known whether they have a certificate
    operands = *counted(matrix), d if counts(d, itemsize) else d.copy(), x
    systems = systems_of(form, *extents(operands), (matrix[1].dtype, d.dtype))
    plain = form.pivoting is False and not form.periodic
    room = None if plain else room_for(systems, WORDS[form.periodic] + MORE_WORDS)  # before anything is written over d
    for job in jobs(systems, operands):
        job["refine"] = form.pivoting == "auto"
        if room is None:
            sweep(job, systems, False)
            continue
        if not form.periodic:
            doubtful = cupy.empty(systems.total + 1, np.int64)
            doubtful[:1] = 0
            job["doubtful"] = doubtful.data.ptr
            sweep(job, systems, True)
        launch_hard(instances.pivoted(systems.dtype, form.periodic), job, room)
    return x


def counts(x: Any, itemsize: int) -> bool:
    """Whether strides are whole numbers of elements: those of a complex view of real numbers may not be."""
    return not any(step % itemsize for step in x.strides)


def counted(matrix: Matrix) -> tuple[Any, ...]:
    """The operands of a matrix, copied where a kernel could not count their strides."""
    return tuple(x if x is None or counts(x, x.itemsize) else x.copy() for x in matrix)


def extents(operands: tuple[Any, ...]) -> tuple[Any, Any]:
    """The shapes and the strides of arrays; None: not there."""
    return (
        tuple(None if x is None else x.shape for x in operands),
        tuple(None if x is None else x.strides for x in operands),
    )


def jobs(systems: Systems, operands: tuple[Any, ...]) -> Iterator[Job]:
    """The struct for every place along the axes that the host walks through, with the pointers of its operands."""
    pointers = np.array([0 if x is None else x.data.ptr for x in operands], np.int64)
    there = pointers != 0
    for place in itertools.product(*(range(length) for length, _ in systems.outer)):
        job = systems.job.copy()
        shift = sum((k * np.array(steps) for k, (_, steps) in zip(place, systems.outer, strict=True)), 0 * pointers)
        job["operand"] = pointers + there * shift
        yield job


def threads_for(systems: Systems, words: int) -> int:
    """How many systems are pivoted at a time: what scratch memory allows."""
    itemsize = np.dtype(systems.dtype).itemsize
    bytes_of_x = systems.n * systems.total * itemsize
    each = systems.n * words * itemsize
    return max(1, min(systems.total, max(LEAST_SCRATCH, bytes_of_x) // each))


class Room(NamedTuple):
    """Scratch memory for so many blocks of so many threads."""

    blocks: int
    block: int
    scratch: Any


def room_for(systems: Systems, words: int) -> Room:
    """For a thread for each system, as many as may be."""
    threads = threads_for(systems, words)
    block = SPREAD if threads >= SPREAD else 1
    blocks = threads // block
    return Room(blocks, block, cupy.empty(blocks * block * systems.n * words, systems.dtype))


def launch_hard(kernel: Any, job: Job, room: Room) -> None:
    """A kernel with a thread for each system."""
    job["kept"] = room.scratch.data.ptr
    launch(kernel, room.blocks, room.block, job)
