"""Recurrences by CUDA kernels: which is launched, and how sequences are spread over blocks and threads; pure."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from tridiag.cuda import instances
from tridiag.cuda.record import Job, Kernel, Program, Recording, walk
from tridiag.cuda.sequences import COEFFICIENT, INIT, SEQUENCES, Sequences, sequences_of
from tridiag.cuda.spread_systems import MANY, WARP, parts, power_of_two
from tridiag.problems.forms import Recurrence

WORDS = {  # numbers, and what else a part has
    "linear_recurrence": ((2, 1), 8),
    "logcumsumexp": ((6, 6), 0),
    "log_linear_recurrence": ((8, 6), 0),
}
FULL = 512  # blocks: enough for all multiprocessors, so that none need wait for another


@functools.lru_cache(1024)
def program(verb: str, form: Recurrence, shapes: Any, strides: Any, dtypes: tuple[Any, Any]) -> Program:
    """y of a verb, from the shapes and the strides in bytes of its operands (`tridiag.cuda.sequences.operands_of`).

    The dtypes are those of the coefficients and of x.
    """
    sequences, recording = sequences_of(form, shapes, strides, dtypes), Recording(SEQUENCES)
    order = sum(shape is not None for shape in shapes[COEFFICIENT:INIT])
    kernel = kernel_of(verb, form, sequences, order)
    in_tiles = verb in instances.SCANS and order <= 1 and not worth_a_thread(sequences)
    for job in walk(sequences.job, sequences.outer, sequences.begin):
        with recording.passing():
            if in_tiles:
                by_tiles(recording, job, sequences, verb)
            else:
                by_columns(recording, kernel, job, sequences)
    return recording.program()


def kernel_of(verb: str, form: Recurrence, sequences: Sequences, order: int) -> Kernel:
    """With a thread for each sequence."""
    if form.matrices:
        return instances.matrices(sequences.dtype, next(m for m in instances.MATRICES if m >= form.shape[-1]))
    if verb == "linear_recurrence":
        return instances.linear(sequences.dtype, order)
    return instances.logarithmic(sequences.dtype, order > 0)


def worth_a_thread(sequences: Sequences) -> bool:
    """Whether sequences lie side by side, and there are threads enough if each of them has one."""
    return not sequences.together and sequences.total >= MANY


def by_columns(recording: Recording, kernel: Kernel, job: Job, sequences: Sequences) -> None:
    """A thread for each sequence; where they are few, spread over as many multiprocessors as there may be."""
    block = kernel.threads if sequences.total >= MANY else WARP
    recording.launch(kernel, parts(sequences.total, block), block, job)


def by_tiles(recording: Recording, job: Job, sequences: Sequences, verb: str) -> None:
    """Several threads for each sequence; where there are few blocks, one for each tile of rows."""
    rows = instances.TILES[sequences.dtype]
    width, count = spread(sequences, rows)
    groups, tiles = parts(sequences.total, width), parts(sequences.n, count * rows)
    chained = tiles > 1 and groups < FULL
    job["width"], job["count"] = width, count
    if chained:
        told = 16 + 16 * parts(sequences.total * tiles, 4)
        job["kept"] = recording.reserve(told + sequences.total * tiles * sum(part_bytes(sequences, verb)))
        recording.clear(int(job["kept"]), told)
    kernel = instances.tiles(sequences.dtype, verb, sequences.together, chained)
    shared = shared_bytes(sequences, width, count, rows, verb)
    recording.launch(kernel, groups * tiles if chained else groups, width * count, job, shared)


def spread(sequences: Sequences, rows: int) -> tuple[int, int]:
    """The sequences of a block, and the threads of each: powers of two."""
    wanted = power_of_two(2 * parts(sequences.n, rows) - 1)
    if sequences.together:
        count = min(wanted, instances.TILE_THREADS)
        return max(WARP // count, min(instances.TILE_THREADS // count, power_of_two(2 * sequences.total - 1))), count
    width = min(WARP, power_of_two(2 * sequences.total - 1))
    return width, max(WARP // width, min(wanted, instances.TILE_THREADS // width))


def part_bytes(sequences: Sequences, verb: str) -> tuple[int, int]:
    """Of what some steps make of the value before them, and of such a value (`stretches.cu`: Part, State)."""
    words, more = WORDS[verb]
    part, state = (k * np.dtype(sequences.dtype).itemsize for k in words)
    return part + more, state


def shared_bytes(sequences: Sequences, width: int, count: int, rows: int, verb: str) -> int:
    """Offsets, what warps make, the states before the tile, the tile, marks (`scans.cu`)."""
    part, state = part_bytes(sequences, verb)
    lanes = min(count, WARP) if sequences.together else WARP // min(width, WARP)
    tile = width * count * rows * np.dtype(sequences.dtype).itemsize if sequences.together else 0
    return 24 * width + part * parts(count, lanes) * width + state * width + tile + 4 * (width + 1)
