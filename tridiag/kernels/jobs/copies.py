"""The job of copies of the diagonals of matrices; pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.storage import Storage
from tridiag.kernels.jobs.systems import CACHES, WORTH_STARTING
from tridiag.kernels.jobs.words.copies import Copies
from tridiag.problems.forms import Form, Shape

BLOCK = 4096  # entries that are looked at again where one of them shows nothing: they stay in cache


def suits(form: Form, matrix: Sequence[tuple[np.dtype[Any], Shape]]) -> bool:
    """Whether the kernel can tell anything of matrices whose diagonals have such dtypes and shapes."""
    dtype = matrix[1][0]
    return dtype.kind == "f" and not form.periodic and all(array == (dtype, form.matrix_shape) for array in matrix)


def make_job(form: Form, storage: Storage, workers: int) -> Job:
    """Of matrices that suit the kernel."""
    dtype, _ = storage.arrays[1]
    entries, edge = math.prod(form.matrix_shape), math.prod(form.matrix_shape[form.axis + 1 :])
    items = -(-entries // BLOCK)
    words = Copies.filled(
        small=entries < WORTH_STARTING, items=items, places=storage.places[:3], entries=entries, edge=edge,
        cycle=edge * form.n, block=BLOCK, large=3 * entries * dtype.itemsize > CACHES,
    )  # fmt: skip
    words.flags.writeable = False
    return Job(("copies", dtype.name), words, max(0, min(workers, items) - 1), entries)
