"""How systems are spread over blocks and threads: by chunks of rows, by whole systems, or by pieces of long ones."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from tridiag.cuda import instances
from tridiag.cuda.job import OPERANDS, Systems, systems_of
from tridiag.cuda.launcher import launch
from tridiag.cuda.solve import Job, extents
from tridiag.shapes import Form

WARP = 32
BLOCK = 256  # threads of a block of chunks, or fewer
FEW_CHUNKS = 4  # systems of no more chunks than this of the shorter kind have such chunks
MOST_CHUNKS = 512  # of a system that one block solves, or as many as it has threads
SECTOR = 32  # bytes that memory hands out at a time
MANY = 2**15  # systems: enough for whole blocks of threads on all multiprocessors
ROW_WORDS = 3  # of a separator's row: and one that is the factor which made its diagonal 1


def by_chunks(job: Job, systems: Systems, certified: bool) -> None:
    """Several threads for a system, cyclic reduction among them; long systems in pieces."""
    rows, count = chunk_of(systems)
    if count > min(MOST_CHUNKS, instances.CHUNK_THREADS[systems.dtype]):
        by_pieces(job, systems, certified)
        return
    width = width_of(systems, count)
    threads = WARP * parts(width * count, WARP) if systems.together else width * count
    job["count"], job["width"] = count, width
    kernel = instances.chunks(systems.dtype, rows, systems.together, certified)
    launch(kernel, parts(systems.total, width), threads, job, shared_bytes(width, threads, rows, systems))


def chunk_of(systems: Systems) -> tuple[int, int]:
    """The rows of a chunk, and how many chunks a system has."""
    fewest, most = instances.CHUNKS[systems.dtype][0], instances.CHUNKS[systems.dtype][-1]
    rows = fewest if systems.n <= FEW_CHUNKS * fewest else most
    return rows, parts(systems.n, rows)


def width_of(systems: Systems, count: int) -> int:
    """The systems of a block. Where they lie side by side at least a sector's worth, if the block can have so many."""
    wanted, most = max(1, BLOCK // count), instances.CHUNK_THREADS[systems.dtype] // count
    if systems.together:
        return min(wanted, most, systems.total)
    wanted = max(wanted, SECTOR // np.dtype(systems.dtype).itemsize)
    return power_of_two(min(wanted, most, systems.total))


def shared_bytes(width: int, threads: int, rows: int, systems: Systems) -> int:
    """Offsets and flags of the systems of a block, then the tile or two buffers of separators (`chunks.cu`)."""
    itemsize = np.dtype(systems.dtype).itemsize
    tile = threads * rows if systems.together else 0
    return 8 * OPERANDS * width + 16 * parts(width + 2, 4) + itemsize * max(tile, 2 * ROW_WORDS * threads)


def by_thomas(job: Job, systems: Systems, certified: bool) -> None:
    """A thread for a system; short ones stay in its registers."""
    held = instances.REGISTERS[systems.dtype]
    kernel = instances.thomas(systems.dtype, held if systems.n <= held else 0, systems.together, certified)
    itemsize = np.dtype(systems.dtype).itemsize
    block = instances.THOMAS_THREADS if systems.total >= MANY else WARP
    if systems.n > held:
        scratch = cupy.empty(2 * systems.n * systems.total, systems.dtype)
        job["kept"] = scratch.data.ptr
    tiles = 4 * block * (SECTOR // itemsize + 1) * itemsize
    launch(kernel, parts(systems.total, block), block, job, 8 * OPERANDS * block + tiles + 4 * block)


def by_pieces(job: Job, systems: Systems, certified: bool) -> None:
    """Chunks of long systems spread over all blocks; their separators are systems of their own."""
    rows, itemsize = instances.RUNS[systems.dtype], np.dtype(systems.dtype).itemsize
    count, total = parts(systems.n, rows), systems.total
    width = 1 if systems.together else power_of_two(min(WARP, total))
    slots = instances.RUN_THREADS // width
    grid = parts(total, width) * parts(count, slots - 1)
    shared = itemsize * instances.RUN_THREADS * max(ROW_WORDS, rows if systems.together else 0)
    job["count"], job["width"] = count, width

    shape = (total, count) if systems.together else (count, total)
    a, c, d, _ = rows_of_separators = cupy.empty((ROW_WORDS + 1, *shape), systems.dtype)
    marks = None
    if not job["status"]:  # else those of the systems whose separators these are
        marks = cupy.zeros(total, np.int32)
        job["status"] = marks.data.ptr
    job["kept"] = rows_of_separators.data.ptr
    launch(instances.reduce(systems.dtype, systems.together), grid, instances.RUN_THREADS, job, shared)
    axis, expand = int(systems.together), instances.expand(systems.dtype, systems.together, certified)
    separators = solve_reduced(a, c, d, axis, job["status"])
    job["results"][0] = separators.data.ptr
    launch(expand, grid, instances.RUN_THREADS, job, shared)  # d becomes the residuals
    changes = solve_reduced(a, c, d, axis, job["status"])
    job["results"][1] = changes.data.ptr
    launch(expand, grid, instances.RUN_THREADS, job, shared)  # of the systems that need it


def solve_reduced(a: Any, c: Any, d: Any, axis: int, marks: Any) -> Any:
    """The separators, from rows whose diagonal is one; ``marks``: where to tell what is found out about a system."""
    one, x = cupy.ones((1, 1), d.dtype), cupy.empty(d.shape, d.dtype)
    operands = a, one, c, None, d, x
    form = Form(d.shape, d.shape, axis, pivoting=False)
    systems = systems_of(form, *extents(operands), (d.dtype, d.dtype))
    job = systems.job.copy()
    job["operand"] = [0 if y is None else y.data.ptr for y in operands]
    job["status"] = marks
    by_chunks(job, systems, False)
    return x


def parts(length: int, size: int) -> int:
    """How many parts of a size make up a length."""
    return -(-length // size)


def power_of_two(most: int) -> int:
    """The largest power of two up to ``most``."""
    return 1 << (most.bit_length() - 1)
