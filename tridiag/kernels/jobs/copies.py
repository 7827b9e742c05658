"""The job of copies of the diagonals of matrices; pure."""

from __future__ import annotations

import math

from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.storage import Storage
from tridiag.kernels.jobs.systems import CACHES, WORTH_STARTING
from tridiag.kernels.jobs.words.copies import Copies
from tridiag.problems.forms import Form

BLOCK = 4096  # entries that are looked at again where one of them shows nothing: they stay in cache


def suits(form: Form, storage: Storage) -> bool:
    """Whether the kernel can tell anything of matrices whose diagonals are the first arrays of a storage."""
    alike = all(array == (storage.arrays[1][0], form.matrix_shape) for array in storage.arrays[:3])
    return alike and storage.arrays[1][0].kind == "f" and not form.periodic


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
