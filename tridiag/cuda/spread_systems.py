"""How systems are spread over blocks and threads: by chunks of rows, by whole systems, or by pieces of long ones."""

from __future__ import annotations

import numpy as np

from tridiag.cuda import instances
from tridiag.cuda.record import Job, Kernel, Recording
from tridiag.cuda.struct import OPERANDS, Systems, systems_of
from tridiag.kernels.jobs.batches import contiguous
from tridiag.problems.forms import Form

WARP = 32
BLOCKS = (
    64,
    128,
    192,
    256,
)  # threads of a block of chunks where rows lie side by side: the first that are used well enough
USED = 0.85  # ... by so many of them
BLOCK = 256  # threads of a block of chunks where rows lie apart, or fewer, where it cannot read whole lines
FEW_CHUNKS = {True: 5, False: 3}  # systems of no more chunks than this of the shorter kind have such; by `together`
MOST_CHUNKS = 512  # of a system that one block solves, or as many as it has threads
SECTOR, HALF, LINE = 32, 64, 128  # bytes that memory hands out at a time; that are worth asking for at once
PAIRED = {"float64": 320}  # threads of a block that a multiprocessor has two of, where rows lie apart
MANY = 2**15  # systems: enough for whole blocks of threads on all multiprocessors
ENOUGH = 2**14  # long systems whose rows lie apart: enough to keep the memory busy with a thread for each
PIECE = 64  # bytes of each operand that a thread reads at a time, of a long system whose rows lie apart
TILES = 4  # a, b, c and d of a group of systems on their way
ROW_WORDS = 3  # of a separator's row: and one that is the factor which made its diagonal 1


def by_chunks(recording: Recording, job: Job, systems: Systems, certified: bool) -> None:
    """Several threads for a system, cyclic reduction among them; long systems in pieces."""
    rows, count = chunk_of(systems)
    too_many = count > min(MOST_CHUNKS, instances.CHUNK_THREADS[systems.dtype]) or reads_crumbs(systems, count)
    width = 1 if too_many else width_of(systems, count)
    while width > 1 and shared_bytes(width, count, rows, systems) > recording.shared:
        width -= 1
    threads, shared = threads_of(width, count, systems), shared_bytes(width, count, rows, systems)
    if too_many or shared > recording.shared:
        by_long = by_thomas if not systems.together and systems.total >= ENOUGH else by_pieces
        by_long(recording, job, systems, certified)
        return
    job["count"], job["width"] = count, width
    kernel = instances.chunks(systems.dtype, rows, systems.together, certified)
    recording.launch(kernel, parts(systems.total, width), threads, job, shared, in_turn=systems.together)


def chunk_of(systems: Systems) -> tuple[int, int]:
    """The rows of a chunk, and how many chunks a system has."""
    fewest, most = instances.CHUNKS[systems.dtype][0], instances.CHUNKS[systems.dtype][-1]
    rows = fewest if systems.n <= FEW_CHUNKS[systems.together] * fewest else most
    return rows, parts(systems.n, rows)


def reads_crumbs(systems: Systems, count: int) -> bool:
    """Whether so few systems side by side are all that a block can hold that it would read only parts of sectors."""
    held = instances.CHUNK_THREADS[systems.dtype] // count
    return not systems.together and held < systems.total and held * np.dtype(systems.dtype).itemsize < SECTOR


def width_of(systems: Systems, count: int) -> int:
    """The systems of a block: where rows lie side by side as many as fill a small one, else those of whole lines of
    memory, or of sectors at least."""
    most, itemsize = instances.CHUNK_THREADS[systems.dtype] // count, np.dtype(systems.dtype).itemsize
    if systems.together:
        widths = [block // count for block in BLOCKS if block >= count] or [1]
        return min(first_used(widths, count), most, systems.total)
    widths = [width for width in (LINE // itemsize, 2 * LINE // itemsize) if width <= most]
    if not widths and HALF // itemsize * count <= PAIRED.get(systems.dtype, 0):
        widths = [HALF // itemsize]
    found = first_used(widths, count) if widths else max(BLOCK // count, SECTOR // itemsize, 1)
    return power_of_two(min(found, most, systems.total))


def first_used(widths: list[int], count: int) -> int:
    """The first width that leaves few threads of its warps idle, or else the largest."""
    used = [width * count / (WARP * parts(width * count, WARP)) for width in widths]
    return next((width for width, share in zip(widths, used, strict=True) if share >= USED), max(widths))


def threads_of(width: int, count: int, systems: Systems) -> int:
    return WARP * parts(width * count, WARP) if systems.together else width * count


def shared_bytes(width: int, count: int, rows: int, systems: Systems) -> int:
    """Where the systems of a group begin, what is said of them, then two buffers of separators. Where rows pass through
    tiles, the next group's too, and tiles: for each diagonal, right-hand sides, solutions (`chunks.cu`)."""
    itemsize, threads = np.dtype(systems.dtype).itemsize, threads_of(width, count, systems)
    words, groups = (TILES * rows + max(rows, 2 * ROW_WORDS), 2) if systems.together else (2 * ROW_WORDS, 1)
    return groups * 8 * OPERANDS * width + 16 * parts(width + 2, 4) + itemsize * words * threads


def by_thomas(recording: Recording, job: Job, systems: Systems, certified: bool) -> None:
    """A thread for a system; short ones stay in its registers."""
    held = instances.REGISTERS[systems.dtype]
    kernel = instances.thomas(systems.dtype, held if systems.n <= held else 0, systems.together, certified)
    itemsize = np.dtype(systems.dtype).itemsize
    block = instances.THOMAS_THREADS if systems.total >= MANY else WARP
    if systems.n > held:
        rows = systems.n if systems.together else PIECE * parts(systems.n * itemsize, PIECE) // itemsize
        job["kept"] = recording.reserve(2 * rows * systems.total * itemsize)
    tiles = 4 * block * (SECTOR // itemsize + 1) * itemsize
    recording.launch(kernel, parts(systems.total, block), block, job, 8 * OPERANDS * block + tiles + 4 * block)


def by_pieces(recording: Recording, job: Job, systems: Systems, certified: bool) -> None:
    """Chunks of long systems spread over all blocks; their separators are systems of their own."""
    rows, itemsize = instances.RUNS[systems.dtype], np.dtype(systems.dtype).itemsize
    count, total = parts(systems.n, rows), systems.total
    width = 1 if systems.together else power_of_two(min(WARP, total))
    slots = instances.RUN_THREADS // width
    grid = parts(total, width) * parts(count, slots - 1)
    shared = itemsize * instances.RUN_THREADS * max(ROW_WORDS, rows if systems.together else 0)
    job["count"], job["width"] = count, width

    size = count * total * itemsize
    job["kept"] = recording.reserve((ROW_WORDS + 1) * size + itemsize)  # the last word is the diagonal, one
    if not job["status"]:  # else those of the systems whose separators these are
        job["status"] = recording.reserve(4 * (total + 1))
        recording.clear(int(job["status"]), 4 * (total + 1))

    def launch(kernel: Kernel) -> None:
        recording.launch(kernel, grid, instances.RUN_THREADS, job, shared)

    def solve_separators(if_any: int) -> int:
        a, c, d, _, one = (int(job["kept"]) + k * size for k in range(ROW_WORDS + 2))
        x = recording.reserve(size)
        reduced = separators(systems, count)
        again = reduced.job.copy()
        again["operand"], again["status"], again["kept"] = (a, one, c, 0, d, x), job["status"], if_any
        with recording.passing():
            by_chunks(recording, again, reduced, False)
        return x

    expand = instances.expand(systems.dtype, systems.together, certified)
    launch(instances.reduce(systems.dtype, systems.together))
    job["results"][0] = solve_separators(0)
    launch(expand)  # d becomes the residuals
    job["results"][1] = solve_separators(int(job["status"]) + 4 * total)  # if any is marked
    launch(expand)  # of the systems that need it


def separators(systems: Systems, count: int) -> Systems:
    """So many of each system, which lie as its rows do; their diagonal is one."""
    axis, dtype = int(systems.together), np.dtype(systems.dtype)
    shape = (systems.total, count) if systems.together else (count, systems.total)
    strides = contiguous(shape, dtype.itemsize)
    form = Form(shape, shape, axis, pivoting=False)
    shapes, steps = (shape, (1, 1), shape, None, shape, shape), (strides, (0, 0), strides, None, strides, strides)
    return systems_of(form, shapes, steps, (dtype, dtype))


def parts(length: int, size: int) -> int:
    """How many parts of a size make up a length."""
    return -(-length // size)


def power_of_two(most: int) -> int:
    """The largest power of two up to ``most``."""
    return 1 << (most.bit_length() - 1)
