"""The jobs of recurrences of matrices, and of block tridiagonal systems, from shapes and strides alone; pure."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tridiag.kernels.jobs.batches import LINE, is_packed
from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.sequences import filled, leading_axes
from tridiag.kernels.jobs.systems import ITEM, ITEMS_EACH, lanes_of
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.problems.forms import Blocks, Recurrence

# bytes of the pivot rows of block systems in lanes, and how many times longer these take than pivot rows in cache
OUT_OF_CACHE = ((4 * 1024 * 1024, 1.0), (16 * 1024 * 1024, 1.2), (math.inf, 1.5))
LEAST_FASTER = 1.1  # a system alone than a vector of them, of blocks of any size
STARTING = 6  # rows of a vector of systems, for which what it takes besides its rows counts
MOST_IN_PLACE = 2**13  # numbers of a result that take less than a copy, and what it takes to make one
MOST_KEPT = 256 * 1024 * 1024  # bytes of the pivot rows of a system that is not eliminated twice


def make_matrix_job(form: Recurrence, shapes: Any, strides: Any, dtype: np.dtype[Any], workers: int) -> Job:
    """Of a recurrence of matrices; numbers of a matrix, and of a vector, lie side by side where matrices are large.

    From the shapes and the strides in bytes of the result, x, the matrices, and the vectors before, if given.
    """
    rows = form._replace(shape=form.shape[:-1])
    flags = C.TRANSPOSED * form.transpose | C.STARTED * (len(shapes) == C.operands(1))
    kernel = "matrices", dtype.name, form.shape[-1]
    grouped = in_groups(rows, form.shape[-1], dtype, workers)
    count, kind = math.prod(rows.batch), C.ROWS
    if one_after_another(form.shape[-1], count, dtype):
        kind, grouped = C.SCALAR, in_runs(rows, form.shape[-1], workers)
    if not are_side_by_side(shapes, strides, dtype.itemsize):
        kind, grouped = C.STRIDED, in_runs(rows, form.shape[-1], workers)
        of_y, of_x, of_matrix, *of_init = strides
        grouped["numbers"] = [of_y[-1], of_x[-1], *([x[-1] for x in of_init] or [0]), *of_matrix[-2:]]
    words = filled(leading_axes(rows, shapes, strides), C.operands(1), len(shapes), flags=flags, kind=kind, **grouped)
    return Job(kernel, words, min(workers, grouped["items"]) - 1, math.prod(form.shape))


def are_side_by_side(shapes: Any, strides: Any, itemsize: int) -> bool:
    """Whether the numbers of each vector, and of each matrix, of a recurrence of matrices are."""
    axes = (1, 1, 2, 1)[: len(shapes)]
    return all(is_packed(own, steps, last, itemsize) for own, steps, last in zip(shapes, strides, axes, strict=True))


def reads_in_place(shapes: Any, strides: Any, itemsize: int) -> bool:
    """Whether a recurrence takes operands as they lie, and a result; else vectors and matrices are to be packed.

    Copies of vectors, or of matrices that many sequences share, take less than many steps of one number at a time.
    """
    if are_side_by_side(shapes, strides, itemsize):
        return True
    if shapes[C.Y][-1] > C.WRITTEN_OUT:
        return False
    numbers, of_matrices = math.prod(shapes[C.Y]), math.prod(shapes[C.A])
    own = of_matrices >= numbers and not is_packed(shapes[C.A], strides[C.A], 2, itemsize)
    return numbers <= MOST_IN_PLACE or own


def make_block_job(form: Blocks, shapes: Any, strides: Any, dtype: np.dtype[Any], workers: int) -> Job:
    """Of block tridiagonal systems, from the solution, right sides, A, B and C."""
    rows, given, count = Recurrence(form.shape[:-2], form.axis), len(shapes), math.prod(form.batch)
    grouped = in_groups(rows, form.size * (form.size + form.sides), dtype, workers)
    family, flags = "blocks", C.TRANSPOSED * form.transpose
    if may_be_alone(form, count, dtype, workers):
        family, grouped = "few_blocks", {"items": count, "steps": rows.n, "sequences": count}
    axes = leading_axes(rows, shapes, strides)
    words = filled(axes, given, given, flags=flags, sides=form.sides, **grouped)
    unknowns = math.prod(form.shape) * form.size
    return Job((family, dtype.name, form.size), words, min(workers, grouped["items"]) - 1, unknowns)


def may_be_alone(form: Blocks, count: int, dtype: np.dtype[Any], workers: int) -> bool:
    """Whether so few are solved one by one, where all pivot rows are kept: `tridiag.kernels.blocks.one_system`.

    A system of its own takes less than a vector of them, one in each lane, and the larger the blocks the less; so it
    does where the pivot rows of all lanes leave the caches: `OUT_OF_CACHE`.
    """
    lanes, rows = lanes_of(dtype), form.n * form.size * LINE * (2 if dtype.kind == "c" else 1)
    if form.sides != 1 or form.size > C.WRITTEN_OUT or rows * -(-(3 * form.size + 1) // lanes) > MOST_KEPT:
        return False
    kept = rows * (3 * form.size + 1)
    times = next(times for most, times in OUT_OF_CACHE if kept <= most)
    faster = max(LEAST_FASTER, (2 * form.size - 1) / 3 * (4 / 3 if lanes > 8 else 1)) * times
    faster *= 1 + STARTING / (form.n * form.size)
    return -(-count // workers) < faster * -(-count // (lanes * workers))


def one_after_another(m: int, count: int, dtype: np.dtype[Any]) -> bool:
    """Whether no sequence of vectors of m numbers has a lane of its own: always, or as few would leave lanes empty."""
    return C.narrow(m, dtype.itemsize) or (4 * count <= 3 * lanes_of(dtype) and m <= C.WRITTEN_OUT)


def in_runs(rows: Recurrence, size: int, workers: int) -> dict[str, Any]:
    """The items of sequences that are computed one after another, some of them abreast."""
    count = math.prod(rows.batch)
    share = min(ITEM, rows.n * count * size // (ITEMS_EACH * workers)) if workers > 1 else ITEM
    run = -(-max(1, share // (rows.n * size)) // C.ABREAST) * C.ABREAST
    return {"items": -(-count // run), "steps": rows.n, "sequences": count, "run": run}


def in_groups(rows: Recurrence, size: int, dtype: np.dtype[Any], workers: int) -> dict[str, Any]:
    """The items of systems that are computed in groups of lanes, with vectors of so many numbers in each row."""
    lanes, count = lanes_of(dtype), math.prod(rows.batch)
    share = min(ITEM, rows.n * count * size // (ITEMS_EACH * workers))
    run = max(1, share // (rows.n * size * lanes))
    groups = -(-count // lanes)
    return {"items": -(-groups // run), "steps": rows.n, "sequences": count, "run": run}
