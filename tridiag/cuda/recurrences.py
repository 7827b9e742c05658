"""Recurrences by CUDA kernels: which is launched, and how sequences are spread over blocks and threads; pure."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from tridiag.cuda import instances
from tridiag.cuda.record import Job, Kernel, Program, Recording, walk
from tridiag.cuda.sequences import COEFFICIENT, INIT, SEQUENCES, SIXTEEN, Sequences, operands_of, sequences_of
from tridiag.cuda.spread_systems import MANY, WARP, parts, power_of_two
from tridiag.problems.forms import Recurrence

WORDS = {  # numbers, and what else a part has
    "linear_recurrence": ((2, 1), 8),
    "logcumsumexp": ((6, 6), 0),
    "log_linear_recurrence": ((8, 6), 0),
}
FULL = 512  # blocks: enough for all multiprocessors, so that none need wait for another
FEW = 512  # blocks: so many at least, if sequences are long enough for chunks of
LEAST = 5  # rows
IN_TURN = 72  # bytes of each operand that a thread has of a tile, of linear recurrences whose tiles follow each other
GROUP = 32  # tiles that are folded before a value is known, at most
BESIDE = 64  # bytes of a row of sequences that lie side by side, for one block
SHARED = 48 * 1024  # bytes that every device gives a block


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


def program_of_call(
    verb: str, form: Recurrence, order: int, shapes: Sequence[Any], strides: Sequence[Any], dtypes: tuple[Any, Any]
) -> tuple[Program, tuple[int, ...]]:
    """The program of a verb, and which are its operands: 0, the result, an argument, from 1 on, or -1, nothing.

    The shapes and the strides are those of the result, ``order`` coefficients, x, and what is before.
    """
    places = operands_of(0, order + 1, range(1, order + 1), range(order + 2, len(shapes)))
    given = [tuple([None if k is None else values[k] for k in places]) for values in (shapes, strides)]
    return program(verb, form, *given, dtypes), tuple([-1 if k is None else k for k in places])


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
    width, count, chunk = spread(sequences, verb)
    groups, tiles = parts(sequences.total, width), parts(sequences.n, count * chunk)
    chained = tiles > 1 and groups < FULL
    job["width"], job["count"], job["chunk"], job["tiles"], job["groups"] = width, count, chunk, tiles, groups
    job["lanes"] = lanes = max(
        8, WARP // parts(width, width * count // WARP)
    )  # a warp looks back for some of the sequences
    job["span"] = min(lanes, GROUP)
    if chained:
        told = sequences.total * (tiles + parts(tiles, int(job["span"])))
        job["kept"] = recording.reserve(16 + 16 * parts(told, 4) + told * sum(part_bytes(sequences, verb)))
        recording.clear(int(job["kept"]), 16 + 16 * parts(told, 4))
    kernel = instances.tiles(sequences.dtype, verb, sequences.together, chained)
    shared = shared_bytes(sequences, width, count, chunk, verb)
    recording.launch(kernel, groups * tiles if chained else groups, width * count, job, shared)


def spread(sequences: Sequences, verb: str) -> tuple[int, int, int]:
    """The sequences of a block and the threads of each, which are powers of two; the rows of a thread, which are odd.

    So no two lanes of a warp take words of the same bank.
    """
    threads, total, n = instances.TILE_THREADS, sequences.total, sequences.n
    chunk = min(max(LEAST, total * n // (FEW * threads)), instances.TILES[sequences.dtype])
    wanted = power_of_two(2 * parts(n, chunk) - 1)
    if sequences.together:
        count = min(max(wanted, SIXTEEN // np.dtype(sequences.dtype).itemsize), threads)
        width = max(WARP // count, min(threads // count, power_of_two(2 * total - 1)))
    else:
        width = min(BESIDE // np.dtype(sequences.dtype).itemsize, power_of_two(2 * total - 1))
        count = max(WARP // width, min(wanted, threads // width))
    tiles = parts(n, count * chunk)
    if tiles > 1 and parts(total, width) >= FULL and verb == "linear_recurrence":
        chunk = min(chunk, IN_TURN // np.dtype(sequences.dtype).itemsize | 1)
        tiles = parts(n, count * chunk)
    chunk = parts(n, tiles * count) | 1
    while shared_bytes(sequences, width, count, chunk, verb) > SHARED and width * count > WARP:
        width //= 2
    return width, count, chunk


def part_bytes(sequences: Sequences, verb: str) -> tuple[int, int]:
    """Of what some steps make of the value before them, and of such a value (`stretches.cu`: Part, State)."""
    words, more = WORDS[verb]
    part, state = (k * np.dtype(sequences.dtype).itemsize for k in words)
    return part + more, state


def shared_bytes(sequences: Sequences, width: int, count: int, chunk: int, verb: str) -> int:
    """Offsets, what warps make, the states before the tile, two tiles, marks (`scans.cu`)."""
    part, state = part_bytes(sequences, verb)
    lanes = min(count, WARP) if sequences.together else WARP // min(width, WARP)
    tile = width * count * chunk * np.dtype(sequences.dtype).itemsize
    return 24 * width + part * parts(count, lanes) * width + state * width + SIXTEEN + 2 * tile + 4 * (width + 1)
