"""The job of a kernel call from shapes and strides alone: which batch axes are matrices, which are right sides; pure.

Axes along which the matrix is constant are right sides that share it. Adjacent axes that all operands walk through
alike are merged. The last axis is the one with the smallest stride: its systems are neighbours in memory and in a tile.
"""

from __future__ import annotations

import functools
import math
import os
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tridiag.kernels.jobs.batches import (
    LINE,
    Axis,
    batch_axes,
    neighbours,
    row_stride,
    starts_of_rows_alike,
)
from tridiag.kernels.jobs.caches import room_for_results
from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.quota import quota
from tridiag.kernels.jobs.storage import Storage
from tridiag.kernels.jobs.words import systems as J
from tridiag.problems.forms import Blocks, Form, Recurrence

SCRATCH = 2 * 1024 * 1024  # bytes of c' and y' of a tile: more would leave a core's share of the caches
MOST_GROUPS = 64
# systems so long that a tile would have fewer groups than LONG, and not be whole rows, are solved in blocks of rows
# (`tridiag.kernels.thomas.row_blocks`)
LONG = 24
SPAN, WHOLE = 64, 128  # groups of a block; at most so many where it has whole rows, which are read better
OVERLAP = 64  # rows that blocks, and the chunks of a block, look at beyond themselves: couplings should have decayed
CHUNK = 640 * 1024  # bytes of c' and y' of a chunk, and of what it looks at; or more, of at least 3 OVERLAP rows
BLOCK = 32  # times OVERLAP: the fewest rows of a block, so that little is eliminated twice
WIDE = 4  # groups of right sides of one matrix that are solved at a time (`tridiag.kernels.thomas.factored_loops`)
CACHES = 8 * 1024 * 1024  # bytes of x: beyond them rows of lanes go straight to memory, not through the caches
ITEM = 32_768  # unknowns claimed at a time, or fewer:
ITEMS_EACH = 16  # items for each of several threads, so that they end together
FEWEST_MATRICES = 8  # fewer matrices than this share their right sides' lanes
WORTH_A_THREAD = 100_000  # unknowns; fewer are not worth a helper
WORTH_STARTING = 120_000  # likewise, one that does not run yet: making it takes 25 to 50 us
BLOCK_ROW = 3  # times the rows of a block: unknowns of tridiagonal systems that one of block systems costs
# of `tridiag.kernels.thomas.both_ends`: systems side by side, of so few groups; or of so few rows of them all; other
# ones so few, of so few rows, or of so few rows of them all
FEW_GROUPS, SMALL_ROWS = 2, 512
FEW_SYSTEMS, LONGEST, SMALL = 2, 2048, 256
FEW_MASKED = 4  # likewise of systems of which rows are taken out, two of which are eliminated at a time
# of hard systems that are left to `tridiag.kernels.partition`: the fewest rows of each lane, a chunk of it; and so many
# times the square of how many systems a group has, so that one after another they take no longer than side by side; or,
# however many there are, more than stay in cache with all that is kept of a group
CHUNK_OF_HARD, ROWS_OF_HARD, LONG_HARD = 32, 8, 512
SHORT = 16_384  # unknowns of systems of few rows, end to end, that are sorted in registers: what is kept stays in cache
LONGEST_MATRIX = 2**24  # rows of determinants that are found in turn, in some hundredths of a second
PROMISES = {False: J.PLAIN, True: J.PIVOTED, "auto": J.AUTO}


def threads() -> int:
    """The cores granted to this process, by a quota too, or fewer where OMP_NUM_THREADS says so."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    granted = int(min(cores, quota()))
    asked = os.environ.get("OMP_NUM_THREADS")
    return min(granted, threads_asked(asked) or granted) if asked else granted


def threads_granted() -> int:
    """`threads`, whatever that is when this is called: compiled code knows this function."""
    return threads()


def level_of_caller() -> int:
    """The ``stacklevel`` with which the function that asks warns about the line that called the package."""
    package, frame, level = str(Path(__file__).parents[2]), sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    return level


@functools.cache
def threads_asked(text: str) -> int | None:
    """The number that OMP_NUM_THREADS begins with; None where it is none, which is told once."""
    first = text.partition(",")[0].strip()
    if first.isdecimal() and int(first) > 0:
        return int(first)
    warnings.warn(
        f"OMP_NUM_THREADS is {text!r}, no number of threads; tridiag takes all cores that the process was granted. "
        "Unset it, or set it to 1 or more",
        RuntimeWarning,
        stacklevel=level_of_caller(),
    )
    return None


def restored(job: Job, values: Any, form: Form) -> Any:
    """One value for each matrix, from the order of the kernel to the batch shape of the matrices."""
    if len(job.order) < 2:
        return values.reshape(form.matrix_batch)
    axes = sorted(job.order)
    values = values.reshape([form.shape[k] for k in job.order])
    return values.transpose([job.order.index(k) for k in axes]).reshape(form.matrix_batch)


def in_kernel_order(job: Job, values: Any, form: Form) -> Any:
    """The inverse of `restored`, along one axis."""
    axes = sorted(job.order)
    values = values.reshape([form.shape[k] for k in axes])
    return values.transpose([axes.index(k) for k in job.order]).reshape(-1)


def lanes_of(dtype: np.dtype[Any]) -> int:
    """The systems in a group: a cache line of real numbers."""
    return LINE // dtype.type(0).real.itemsize


def split(interleaved: int, n: int, lanes: int, kept: int) -> tuple[int, int]:
    """Into how many stretches neighbours are cut, and the groups of one: as long as what is kept stays in cache.

    ``kept``: bytes of a row of a group.
    """
    groups = -(-(interleaved + lanes - 1) // lanes)  # the first may begin anywhere in a line
    stretches = -(-groups // max(1, min(MOST_GROUPS, SCRATCH // ((n + 1) * kept))))
    return stretches, -(-groups // stretches)


def blocks(interleaved: int, outer: int, n: int, lanes: int, kept: int, workers: int) -> tuple[int, int, int, int, int]:
    """Blocks of rows, the spans of neighbours that each is cut into, groups of a span, rows of a chunk, OVERLAP."""
    groups = -(-interleaved // lanes)
    spans = 1 if groups <= WHOLE else -(-groups // SPAN)
    widest = -(-interleaved // spans)
    groups = -(-widest // lanes)
    height = max(2 * OVERLAP, CHUNK // (groups * kept) - OVERLAP)
    count = min(ITEMS_EACH * workers // (spans * outer), n // (BLOCK * OVERLAP))
    return max(1, count // workers * workers), spans, groups, height, OVERLAP


def from_both_ends(
    form: Form, dtype: np.dtype, matrices: Any, shapes: Any, strides: Any, helpers: int, long: Any, masked: bool
) -> tuple[int, int]:
    """How many systems along the last axis `tridiag.kernels.thomas.both_ends` is to take, or 0, and how they lie.

    Or `masked_ends`, which takes none side by side.

    Those that fill a vector or two wait for each row otherwise, and small problems for more than all their rows. It
    also takes ``long`` ones that fill no vector, where their blocks fail.
    """
    lanes, count, last = lanes_of(dtype), math.prod(a[0] for a in matrices), matrices[-1][0] if matrices else 1
    real = dtype.kind == "f"
    if not count or not form.n or form.pivoting is True or form.periodic:
        return 0, 0
    if count >= lanes and are_end_to_end(form, dtype, matrices, shapes, strides):
        small = form.pivoting == "auto" and real and not helpers and form.n * count <= SHORT
        return last if small else 0, J.END_TO_END
    if form.pivoting != "auto":
        return 0, 0
    gathered = not masked and len(matrices) == 1 and count >= lanes and not form.transpose
    gathered = gathered and form.n <= (J.MOST_GATHERED if real else J.MOST_GATHERED // 2)
    if not real:
        return 0, J.GATHERED * (gathered and not neighbours(matrices, dtype.itemsize, 2))
    if not masked and neighbours(matrices, dtype.itemsize, 2):
        small = not long and -(-last // lanes) * (count // last) * form.n <= SMALL_ROWS
        alone = count == last and (last < lanes if long else few(form, last, lanes, helpers + 1))
        return (last, J.SIDE_BY_SIDE) if small or alone else (0, 0)
    alone = count <= (FEW_MASKED if masked else FEW_SYSTEMS) and form.n <= LONGEST
    if alone or count * form.n <= SMALL:
        return last, 0
    return 0, J.GATHERED * gathered


def are_end_to_end(form: Form, dtype: np.dtype, matrices: Any, shapes: Any, strides: Any) -> bool:
    """Whether systems of few rows are, and so can be sorted in registers."""
    most = J.MOST_ROWS if dtype.kind == "f" else J.MOST_ROWS // 2
    if len(matrices) != 1 or form.transpose or not J.FEWEST_ROWS <= form.n <= most:
        return False
    (_, steps), size = matrices[0], dtype.itemsize
    rows = [row_stride(form, *operand) for operand in zip(shapes, strides, strict=True)]
    return all(rows[k] == size and steps[k] == form.n * size for k in (0, 1, 2, 4, 5))


def one_by_one(form: Form, dtype: np.dtype[Any], matrices: list[Axis], helpers: int) -> int:
    """The matrices along the last axis where `tridiag.kernels.thomas.continuants` is to take all in turn, else 0."""
    count, last = math.prod(a[0] for a in matrices), matrices[-1][0] if matrices else 1
    few = FEW_SYSTEMS if helpers else 2 * FEW_SYSTEMS
    small = count * form.n <= SMALL // 2 or (count <= few and form.n <= LONGEST_MATRIX)
    return last if small and form.n and count and dtype.kind == "f" and not form.periodic else 0


def chunks_of(right_sides: int, tiles: int, helpers: int, lanes: int) -> tuple[int, int]:
    """Into how many chunks the right sides of a tile are split, where there are too few tiles for the threads.

    And how many right sides a chunk has: whole vectors, or stretches of vectors, of so many ``lanes``. Fewer would take
    as long, and read the factors as often.
    """
    wanted = 1 if helpers == 0 or tiles >= 4 * (helpers + 1) else -(-4 * (helpers + 1) // tiles)
    length = max(1, -(-right_sides // wanted))
    unit = WIDE * lanes if length >= WIDE * lanes else lanes
    length = -(-length // unit) * unit
    return max(1, -(-right_sides // length)), length


def worth_threads(form: Form | Recurrence | Blocks, weight: int = 1) -> bool:
    """``weight``: what an unknown costs, in those of tridiagonal systems; of block systems it is known."""
    weight = BLOCK_ROW * form.size if isinstance(form, Blocks) else weight
    return math.prod(form.shape) * weight >= WORTH_A_THREAD


def granted(form: Form | Recurrence | Blocks, weight: int = 1) -> int:
    """The threads that a problem may have."""
    return threads() if worth_threads(form, weight) else 1


def in_pairs(form: Form, shapes: Any, strides: Any, step: int) -> tuple[Form, Any, Any]:
    """`Form.in_pairs`, with the shapes and strides of the operands; ``step``: from a number of a pair to the other."""
    shapes = tuple(s and (*s, 1 if k < 4 else 2) for k, s in enumerate(shapes))
    strides = tuple(s and (*s, step) for s in strides)
    return form.in_pairs(), shapes, strides


class Grouping(NamedTuple):
    """How systems come to lanes: so many at a time, as tiles; ``interleaved`` lie side by side, in ``stretches``.

    ``long``: blocks of rows, as `tridiag.kernels.thomas.row_blocks` takes them, or None.
    """

    lanes: int
    tiles: int
    interleaved: int = 0
    stretches: int = 0
    long: tuple[int, ...] | None = None


def group(form: Form, dtype: np.dtype, matrices: Any, workers: int, masked: bool, flags: int) -> Grouping:
    """The grouping of systems with one right side each."""
    lanes, count = lanes_of(dtype), math.prod(a[0] for a in matrices)
    one_by_one = Grouping(lanes, -(-count // lanes))
    if form.periodic or flags & (J.FACTORED | J.FACTORING | J.DETERMINANT | J.ENTRIES):
        return one_by_one
    interleaved, long = neighbours(matrices, dtype.itemsize, lanes), None
    kept = (4 if form.pivoting is True else 2) * dtype.itemsize * lanes
    if masked and not interleaved:
        one_by_one = in_part_of_a_vector(form, dtype, matrices, one_by_one)
    if not interleaved:
        return one_by_one if flags else in_narrow_blocks(form, dtype, matrices, workers, one_by_one)
    stretches, groups = split(interleaved, form.n, lanes, kept)
    # the mask of several vectors, which is gathered tile by tile
    spread = masked and interleaved > lanes and matrices[-1][1][3] not in (0, 1)
    if stretches > 1 and groups < LONG and not spread and not flags and not few(form, interleaved, lanes, workers):
        long = blocks(interleaved, count // interleaved, form.n, lanes, kept, workers)
    if not long and interleaved < 2 * lanes and not (masked and dtype.kind == "f" and count == interleaved):
        return one_by_one._replace(stretches=stretches)
    return Grouping(groups * lanes, count // interleaved * stretches, interleaved, stretches, long)


def few(form: Form, systems: int, lanes: int, workers: int) -> bool:
    """Whether systems side by side are so few that one thread has all that is kept of them in its caches."""
    groups = -(-systems // lanes)
    return form.pivoting == "auto" and workers == 1 and groups <= FEW_GROUPS and groups * form.n * 2 * LINE <= SCRATCH


def in_part_of_a_vector(form: Form, dtype: np.dtype, matrices: Any, whole: Grouping) -> Grouping:
    """All systems, side by side and less than a vector, of which rows are taken out; else ``whole``."""
    systems = neighbours(matrices, dtype.itemsize, 2)
    if systems != math.prod(a[0] for a in matrices) or dtype.kind != "f" or form.pivoting is True:
        return whole
    return whole._replace(interleaved=systems, stretches=1)


def in_narrow_blocks(form: Form, dtype: np.dtype, matrices: Any, workers: int, whole: Grouping) -> Grouping:
    """Long systems side by side that fill no vector, in blocks of rows; else, and where these fail, ``whole``."""
    systems, lanes = neighbours(matrices, dtype.itemsize, 2), lanes_of(dtype)
    if not systems or dtype.kind != "f" or form.pivoting is True or form.n < 2 * BLOCK * OVERLAP:
        return whole
    if few(form, systems, lanes, workers):
        return whole
    outer = math.prod(a[0] for a in matrices) // systems
    return whole._replace(interleaved=systems, long=blocks(systems, outer, form.n, lanes, 2 * LINE, workers))


def kernel_of(
    form: Form, dtype: np.dtype, sides: int, shared: bool, grouping: Grouping, flags: int, masked: bool
) -> tuple[str, ...]:
    """The family of kernels and what it is asked with.

    Kinds of kernels: "rows" (no systems side by side), "masked_rows" (such of which rows are taken out), "interleaved",
    "pivoted" (partial pivoting throughout), "masked" and "pivoted_masked" (systems side by side of which rows are taken
    out), all but the first two also in blocks of rows,
    "multiple_rhs" (factors, and many right sides a matrix), "few_matrices" (the same, with right sides in the lanes),
    and those of periodic systems.
    """
    if form.periodic:
        return "cyclic", dtype.name
    if flags & J.DETERMINANT:
        return "determinants", dtype.name
    if flags & J.ENTRIES:
        return "inverse_entries", dtype.name
    if sides != 1 or flags & J.FACTORED:
        kind = "few_matrices" if shared else "multiple_rhs"
    else:
        kind = "pivoted" if form.pivoting is True else "interleaved" if grouping.interleaved else "rows"
        if masked and kind == "rows":
            kind = "masked_rows"
        elif masked and grouping.interleaved:
            kind = "pivoted_masked" if form.pivoting is True else "masked"
    return "row_blocks" if grouping.long else "thomas", dtype.name, kind


@functools.lru_cache(1024)
def make_job(form: Form, shapes: Any, strides: Any, dtypes: tuple[Any, Any], flags: int, workers: int) -> Job:
    """The job of a call from the shapes and the strides in bytes of a, b, c, where, d, x (None: not there).

    The dtypes are those of the matrices and of the right sides.
    """
    (dtype, right), unknowns, masked = dtypes, math.prod(form.shape), shapes[3] is not None
    if right.kind == "c" and dtype.kind != "c":
        form, shapes, strides = in_pairs(form, shapes, strides, dtype.itemsize)
    if not flags and not form.periodic and math.prod(form.batch) <= lanes_of(dtype):
        form = form._replace(matrix_shape=form.shape)  # a matrix a lane takes no longer, and its rows wait for less
    order, matrices, right_sides = batch_axes(form, shapes, strides)
    count, sides = math.prod(a[0] for a in matrices), math.prod(a[0] for a in right_sides)
    if flags & (J.FACTORING | J.DETERMINANT):
        sides = 0
    eliminated = bool(flags & (J.FACTORING | J.FACTORED)) and not form.periodic
    shared = count < FEWEST_MATRICES and (sides > 1 or eliminated)
    helpers = workers - 1 if form.n * count * max(1, sides) >= WORTH_A_THREAD else 0
    found = Grouping(lanes_of(dtype), -(-count // lanes_of(dtype)))
    if flags & J.DETERMINANT and not form.periodic and count <= helpers + 1:
        found = Grouping(1, count)  # a matrix a thread, in no lanes
    if sides == 1:
        found = group(form, dtype, matrices, helpers + 1, masked, flags)
    run, runs, chunks, chunk = items_of(form, count, sides, shared, found, helpers)
    abreast, aside = 0, 0
    if sides == 1 and not (flags & ~J.ADJOINT or (masked and found.interleaved)):
        abreast, aside = from_both_ends(form, dtype, matrices, shapes, strides, helpers, found.long, masked)
    elif flags == J.DETERMINANT and not masked:
        abreast = one_by_one(form, dtype, matrices, helpers)
    elif flags == J.FACTORED and shared and sides == 1 and dtype.kind == "f" and not masked:
        abreast = count
    flags |= aside
    long_blocks, spans, span_groups, height, overlap = found.long or (0,) * 5
    axes = [(length, *steps) for length, steps in (*matrices, *right_sides)]
    words = J.Systems.filled(
        J.AXIS_WORDS * len(axes),
        small=unknowns < WORTH_STARTING,
        items=runs * chunks, tiles=run, chunks=chunks, chunk=chunk, rows=form.n, lanes=found.lanes,
        flags=flags | flags_of(form, dtype, strides, [*matrices, *right_sides], shared and sides, found, masked),
        promise=PROMISES[form.pivoting], matrices=count, right_sides=sides, shared=shared,
        matrix_axes=len(matrices), right_axes=len(right_sides),
        interleaved=found.interleaved, stretches=found.stretches,
        strides=[row_stride(form, *operand) for operand in zip(shapes, strides, strict=True)],
        abreast=abreast, blocks=long_blocks, spans=spans, span_groups=span_groups, height=height, overlap=overlap,
    )  # fmt: skip
    words[J.AXES :] = [word for axis in axes for word in axis]
    words.flags.writeable = False
    items = long_blocks * spans * (count // found.interleaved) if found.long else runs * chunks
    kernel = kernel_of(form, dtype, sides, shared, found, flags, masked)
    job = Job(kernel, words, min(helpers, max(0, items - 1)), unknowns, tuple(order))
    return adjoint_of(job) if flags & J.ADJOINT else job


def items_of(form: Form, count: int, sides: int, shared: Any, found: Grouping, helpers: int) -> tuple[int, ...]:
    """Tiles of an item, which threads claim, items along the systems, chunks of right sides, how long those are."""
    share = found.tiles // (ITEMS_EACH * (helpers + 1)) if helpers else found.tiles
    run = 1 if shared else max(1, min(share, ITEM // (form.n * found.lanes * max(1, sides))))
    runs = count if shared else -(-found.tiles // run)
    return run, runs, *chunks_of(sides, runs, helpers, found.lanes if shared else 1)


def flags_of(form: Form, dtype: np.dtype, strides: Any, axes: Any, turned: Any, found: Grouping, masked: bool) -> int:
    """Those that follow from the problem; ``turned``: right sides lie in the lanes.

    Only solutions that go past the caches are worth groups that begin with cache lines: there is one more of them.
    """
    large = math.prod(form.shape) * dtype.itemsize > (CACHES if found.interleaved else room_for_results())
    lined = large and (found.interleaved or turned) and starts_of_rows_alike(form, strides, axes)
    options = [(lined, J.LINED), (large, J.LARGE), (masked, J.MASKED)]
    options += [(form.transpose, J.TRANSPOSE), (form.periodic, J.PERIODIC)]
    return sum(flag for option, flag in options if option)


def adjoint_of(job: Job) -> Job:
    """The job of the backward pass (`tridiag.kernels.thomas.adjoint`) of the solve of a job."""
    family, *rest = job.kernel
    return job._replace(kernel=(f"{family}_adjoint", *rest))


def leaves_hard(job: Job, form: Form, dtype: np.dtype[Any]) -> bool:
    """Whether systems of a solve without certificate are to be solved by `tridiag.kernels.partition`."""
    if job.kernel[-1] not in ("rows", "masked_rows", "interleaved") or form.pivoting != "auto":
        return False
    return few_or_long(form.n, int(J.Systems.view(job.words).matrices), dtype)


def few_or_long(n: int, systems: int, dtype: np.dtype[Any]) -> bool:
    """Whether hard systems of n rows go to chunks in lanes.

    Of few systems one in each lane would leave most lanes empty, and of long ones no cache would hold what is kept.
    """
    lanes = lanes_of(dtype)
    of_a_group = -(-systems // max(1, -(-systems // lanes)))
    return dtype.kind == "f" and n > lanes * max(CHUNK_OF_HARD, min(LONG_HARD, ROWS_OF_HARD * of_a_group**2))


def leaving_hard(job: Job, word: int, workers: int) -> Job:
    """A job whose systems without certificate are solved by the kernel whose address is in a word."""
    words = job.words.copy()
    words[J.Systems.hard.word], words[J.Systems.hard_helpers.word] = word, workers - 1 - job.helpers
    words.flags.writeable = False
    return job._replace(words=words)


def make_storing_job(
    form: Form, shapes: Any, strides: Any, dtypes: tuple[Any, Any], storage: Storage, workers: int
) -> Job:
    """The job that factors matrices, to a storage: copies of a, b and c, factors, certificates and status."""
    job = make_job(form, shapes, strides, dtypes, J.FACTORING, workers)
    words = job.words.copy()
    values = J.Systems.filled(
        sizes=[math.prod(shape) * dtype.itemsize for dtype, shape in storage.arrays[:3]], places=storage.places,
        bytes_of_status=storage.size - LINE - storage.places[-1], large=storage.size > CACHES,
    )  # fmt: skip
    words[: J.Systems.words] |= values
    words[J.Systems.flags.word] |= J.STORED
    words.flags.writeable = False
    return job._replace(words=words)


def make_partition_job(form: Form, shapes: Any, strides: Any, dtypes: tuple[Any, Any], workers: int) -> Job:
    """The same for `tridiag.kernels.partition.kernel`, which cuts systems among all threads."""
    job = make_job(form, shapes, strides, dtypes, 0, workers)
    return job._replace(kernel=("partition", job.kernel[1]), helpers=workers - 1)
