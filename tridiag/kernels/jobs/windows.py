"""One long system as many short ones, windows of its rows that overlap; pure.

Where couplings decay, the rows in the middle of a window do not depend on what lies before and behind it. So each of
them is eliminated for itself, one in each lane, and the rows that lie between the overlaps are those of the solution.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.systems import WORTH_A_THREAD, lanes_of, make_job
from tridiag.kernels.jobs.words import systems as J
from tridiag.problems.forms import Form

OVERLAPS = 24, 40, 64  # rows
LONGEST = 1024  # rows of a window, about: what is kept of a vector of them stays in a core's caches
FEWEST = 1000  # rows of a system


class Windows(NamedTuple):
    """A number of windows of so many rows, each of which begins some rows behind the one before it."""

    number: int
    rows: int
    step: int
    overlap: int

    @property
    def form(self) -> Form:
        """Of the systems that they are."""
        shape = self.number, self.rows
        return Form(shape, shape, 1)

    def strides(self, itemsize: int) -> tuple[int, int]:
        """Of the rows of a system that lie side by side."""
        return self.step * itemsize, itemsize


def all_windows(n: int, dtype: np.dtype[Any]) -> Iterator[Windows]:
    """Of a system of n rows: the ones whose overlaps are short first; none where it is too short, or worth threads."""
    if dtype.kind != "f" or not FEWEST <= n < WORTH_A_THREAD:
        return
    lanes = lanes_of(dtype)
    count = lanes * -(-n // (lanes * LONGEST))
    for overlap in OVERLAPS:
        step = (n - 2 * overlap) // count
        if step > overlap:
            yield Windows(count, n - (count - 1) * step, step, overlap)


def make_windows_job(windows: Windows, dtype: np.dtype[Any]) -> Job:
    """The job of a solve of a whole system, which is contiguous, from the factors of its windows."""
    form, strides = windows.form, windows.strides(dtype.itemsize)
    shapes, steps = ((x, x, x, None, x, x) for x in (form.shape, strides))
    job = make_job(form, shapes, steps, (dtype, dtype), J.FACTORED, 1)
    words = job.words.copy()
    words[: J.Systems.words] |= J.Systems.filled(height=windows.step, overlap=windows.overlap)
    words[J.Systems.flags.word] |= J.WINDOWS
    words.flags.writeable = False
    return job._replace(words=words, unknowns=windows.number * windows.step)
