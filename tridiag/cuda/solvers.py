"""Systems solved by CUDA kernels: a sweep that certifies, then what is left without a certificate, with pivoting.

Nothing waits for the device: the sweep puts systems without a certificate on a list in device memory, and the kernel
after it reads how long the list is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag.cuda import instances, spread_systems
from tridiag.cuda.record import LOGARITHM, SIGN, STATUS, Job, Kernel, Program, Recording, address, walk
from tridiag.cuda.struct import Systems, systems_of
from tridiag.problems.forms import Form

LONGEST = min(  # of systems that one block solves, wherever their rows lie (`spread_systems.reads_crumbs`)
    threads * instances.CHUNKS[dtype][-1] * np.dtype(dtype).itemsize // spread_systems.SECTOR
    for dtype, threads in instances.CHUNK_THREADS.items()
)
LEAST_SCRATCH = 64 * 2**20  # bytes for systems without a certificate; or as many as x has
MOST_BLOCKS = 2**30
SPREAD = 32  # threads of a block where systems may be few
WORDS = {False: 5, True: 8}  # that a row's factors take, of tridiagonal and of cyclic matrices (`pivoted.cu`)
SCALE_WORDS = 1  # ... and the scales of a row and of a column, where entries are wide apart (`scales.cu`)
MORE_WORDS = 3  # ... and of a solution: right side, iterate, correction
JOINT_WORDS = 39  # that each chunk of a long system takes besides (`joints.cu`)
CHUNK_ROWS = 16  # of such a chunk, at least
LONG = 1024  # rows of systems that are pivoted in chunks, a block for each
FEW = 2048  # ... if the square of how many there are is no more than this many times their rows

Extents = tuple[tuple[int, ...] | None, ...]  # the shapes, or the strides in bytes, of a, b, c, where, d, x
Sweep = Callable[[Recording, Job, Systems, bool], None]  # solves all systems of a job; whether with certificates
SWEEPS: dict[str, Sweep] = {"chunks": spread_systems.by_chunks, "thomas": spread_systems.by_thomas}


def in_place(form: Form) -> bool:
    """Whether the solution may take the place of right sides: long systems are written piece by piece, before it is
    known whether they have a certificate."""
    return form.n <= LONGEST


@functools.lru_cache(1024)
def solution(
    sweep: str, form: Form, shapes: Extents, strides: Extents, dtypes: tuple[Any, Any], shared: int
) -> Program:
    """x under the promise ``form.pivoting``, by a sweep and, where it has no certificate, by pivoting.

    The dtypes are those of the matrices and of the right sides; a block may have ``shared`` bytes of shared memory.
    """
    systems, recording = systems_of(form, shapes, strides, dtypes), Recording(shared=shared)
    plain = form.pivoting is False and not form.periodic
    lists = [] if plain else [recording.reserve(8 * (systems.total + 1)) for _ in range(lists_of(systems, form))]
    for job in jobs(systems, [shape is not None for shape in shapes]):
        job["refine"] = form.pivoting == "auto"
        if lists:
            recording.clear(lists[0], lists[-1] - lists[0] + 8)  # how long they are
        if not form.periodic:
            job["doubtful"] = 0 if plain else lists[0]
            with recording.passing():
                SWEEPS[sweep](recording, job, systems, not plain)
        if not plain:
            launch_pivoting(recording, job, systems, form, lists)
    return recording.program()


@functools.lru_cache(1024)
def determinants(form: Form, shapes: Extents, strides: Extents, dtype: Any, values: bool) -> Program:
    """The status of every matrix; where asked, the sign and the logarithm of the size of its determinant."""
    # a solution in C order, which is nowhere: so the matrices are walked through in the order of the results
    shapes, strides = (*shapes[:5], form.matrix_shape), (*strides[:5], steps(form, dtype.itemsize))
    systems = systems_of(form._replace(shape=form.matrix_shape), shapes, strides, (dtype, dtype))
    recording, done, real = Recording(), 0, np.zeros((), dtype).real.itemsize
    room = room_for(recording, systems, WORDS[True]) if form.periodic else room_for_all(systems.total)
    for job in jobs(systems, [shape is not None for shape in shapes[:5]] + [False]):
        job["status"] = address(STATUS, 4 * done)
        if values:
            job["results"] = address(SIGN, dtype.itemsize * done), address(LOGARITHM, real * done)
        launch_hard(recording, instances.determinants(systems.dtype, form.periodic), job, room)
        done += systems.total
    return recording.program()


def steps(form: Form, itemsize: int) -> tuple[int, ...]:
    """The strides of the batch of matrices in C order, for every axis; 0 along the systems."""
    found, step = [0] * len(form.shape), itemsize
    for k in reversed(range(len(form.shape))):
        if k != form.axis:
            found[k], step = step, step * form.matrix_shape[k]
    return tuple(found)


def jobs(systems: Systems, there: Sequence[bool]) -> Iterator[Job]:
    """The struct for every place along the axes that the host walks through; which operands there are."""
    begin = np.array([address(k) if given else 0 for k, given in enumerate(there)], np.int64)
    return walk(systems.job, systems.outer, begin)


class Room(NamedTuple):
    """Scratch memory for so many blocks of so many threads."""

    blocks: int
    block: int
    scratch: int


def room_for(recording: Recording, systems: Systems, words: int) -> Room:
    """For a thread for each system, as many as scratch memory allows; ``words`` of it for each row."""
    itemsize = np.dtype(systems.dtype).itemsize
    each = systems.n * words * itemsize
    threads = max(1, min(systems.total, max(LEAST_SCRATCH, systems.n * systems.total * itemsize) // each))
    block = SPREAD if threads >= SPREAD else 1
    blocks = threads // block
    return Room(blocks, block, recording.reserve(blocks * block * each))


def is_chunked(systems: Systems) -> bool:
    """Whether systems are pivoted in chunks: they are long, and so few that a thread for each would take longer."""
    return systems.n >= LONG and systems.total**2 <= FEW * systems.n


def lists_of(systems: Systems, form: Form) -> int:
    """How many lists of systems there are: those without a certificate, and those that chunks do not solve."""
    return int(not form.periodic) + int(is_chunked(systems))


def launch_pivoting(recording: Recording, job: Job, systems: Systems, form: Form, lists: Sequence[int]) -> None:
    """The systems on the first list, or all; what chunks do not solve is on the last one."""
    if is_chunked(systems):
        with recording.passing():
            launch_chunks(recording, job, systems, lists[-1])
        job["doubtful"] = lists[-1]
    with recording.passing():
        room = room_for(recording, systems, WORDS[form.periodic] + SCALE_WORDS + MORE_WORDS)
        launch_hard(recording, instances.pivoted(systems.dtype, form.periodic), job, room)


def launch_chunks(recording: Recording, job: Job, systems: Systems, rest: int) -> None:
    """A kernel with a block for each system, a thread for each of its chunks; what it does not solve goes on a list."""
    itemsize, n = np.dtype(systems.dtype).itemsize, systems.n
    threads = min(instances.CHUNKED_THREADS, n // CHUNK_ROWS)
    each = threads * (-(-n // threads) * (WORDS[True] + MORE_WORDS) + JOINT_WORDS) * itemsize
    blocks = max(1, min(systems.total, max(LEAST_SCRATCH, n * systems.total * itemsize) // each))
    job["kept"], job["results"][0] = recording.reserve(blocks * each), rest
    recording.launch(instances.pivoted_chunks(systems.dtype), blocks, threads, job)


def room_for_all(systems: int) -> Room:
    """A thread for each system, none of which needs scratch memory."""
    return Room(min(-(-systems // SPREAD), MOST_BLOCKS), SPREAD, 0)


def launch_hard(recording: Recording, kernel: Kernel, job: Job, room: Room) -> None:
    """A kernel with a thread for each system."""
    job["kept"] = room.scratch
    recording.launch(kernel, room.blocks, room.block, job)
