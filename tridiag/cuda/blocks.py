"""Block tridiagonal systems by a CUDA kernel: what is launched, and where the blocks lie; pure."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from tridiag.cuda import instances
from tridiag.cuda.record import Program, Recording, address, walk
from tridiag.cuda.spread_systems import MANY, WARP, parts
from tridiag.cuda.struct import RANK, layout, steps_along
from tridiag.kernels.jobs.batches import merge
from tridiag.problems.forms import Blocks

X, RIGHT, BELOW, OWN, ABOVE = range(5)
OPERANDS = 5
ROOM = 2**30  # bytes of pivot rows that many systems may take together
BLOCKS = layout(
    (
        ("operand", OPERANDS),
        ("kept", 1),
        ("n", 1),
        ("systems", 1),
        ("sides", 1),
        ("parts", 1),
        ("shift", 1),
        ("row", OPERANDS),
        ("down", OPERANDS),
        ("along", OPERANDS),
        ("length", RANK),
        ("step", RANK * OPERANDS),
    ),
    ("operand", "kept"),
    OPERANDS,
)


@functools.lru_cache(1024)
def program(form: Blocks, shapes: Any, strides: Any, dtype: Any) -> Program:
    """The solution, from the shapes and the strides in bytes of x, d, A, B, C, all of one dtype."""
    turned = (ABOVE, OWN, BELOW) if form.transpose else (BELOW, OWN, ABOVE)
    order = (X, RIGHT, *turned)
    shapes, strides = ([values[k] for k in order] for values in (shapes, strides))
    axes = [k for k in range(form.axis) if form.shape[k] != 1]
    axes.sort(key=lambda k: -sum(map(abs, steps_along(k, shapes, strides)[:BELOW])))
    batch = merge([(form.shape[k], steps_along(k, shapes, strides)) for k in axes])
    outer, inner = batch[: max(0, len(batch) - RANK)], batch[-RANK:]
    width = width_of(form)
    job = np.zeros((), BLOCKS.job)
    job["n"], job["systems"] = form.n, math.prod(length for length, _ in inner)
    job["sides"], job["parts"] = form.sides, parts(form.sides, width - 3 * form.size)
    job["shift"] = form.transpose
    for name, k in (("row", form.axis), ("down", form.axis + 1), ("along", form.axis + 2)):
        job[name] = np.array(steps_along(k, shapes, strides)) // dtype.itemsize
    if form.transpose:
        job["down"][BELOW:], job["along"][BELOW:] = job["along"][BELOW:].copy(), job["down"][BELOW:].copy()
    job["length"] = 1
    for k, (length, found) in enumerate(inner, RANK - len(inner)):
        job["length"][k] = length
        job["step"].reshape(RANK, OPERANDS)[k] = [step // dtype.itemsize for step in found]
    recording, begin = Recording(BLOCKS), np.array([address(k) for k in order], np.int64)
    kernel = instances.blocks(dtype.name, form.size, width)
    blocks, threads, size = room_for(job, form, width, dtype.itemsize)
    job["kept"] = recording.reserve(size)
    for placed in walk(job, outer, begin):
        recording.launch(kernel, blocks, threads, placed)
    return recording.program()


def width_of(form: Blocks) -> int:
    """The lanes of a system: one for each column of three blocks and for right sides, all where these are many."""
    widths = instances.WIDTHS[form.size]
    return widths[0] if form.sides <= widths[0] - 3 * form.size else widths[-1]


def room_for(job: Any, form: Blocks, width: int, itemsize: int) -> tuple[int, int, int]:
    """Blocks, threads of each, and bytes of scratch memory for the pivot rows: of all systems, or of those at work."""
    tasks, each = int(job["systems"] * job["parts"]), form.n * form.size * width * itemsize
    groups = min(tasks, max(1, ROOM // each))
    threads = instances.BLOCK_THREADS if groups * width >= MANY else WARP
    blocks = parts(groups, threads // width)
    return blocks, threads, blocks * (threads // width) * each
