"""Where the sequences of a recurrence lie: the struct that its kernels take (`sequences.cu`: Job); pure.

Step i is in row i of every operand. Complex sequences with real coefficients are twice as many real ones.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag.cuda.record import address
from tridiag.cuda.struct import RANK, layout, steps_along
from tridiag.kernels.jobs.batches import Axis, merge
from tridiag.problems.forms import Recurrence

MOST = 4  # coefficients
Y, X, COEFFICIENT, INIT = 0, 1, 2, 2 + MOST
OPERANDS = INIT + MOST
SIXTEEN = 16  # bytes that are moved at once
SEQUENCES = layout(
    (
        ("operand", OPERANDS),
        ("kept", 1),
        ("n", 1),
        ("sequences", 1),
        ("width", 1),
        ("count", 1),
        ("chunk", 1),
        ("tiles", 1),
        ("groups", 1),
        ("lanes", 1),
        ("span", 1),
        ("given", 1),
        ("wide", 1),
        ("size", 1),
        ("row", OPERANDS),
        ("entry", OPERANDS),
        ("column", 1),
        ("length", RANK),
        ("step", RANK * OPERANDS),
    ),
    ("operand", "kept"),
    OPERANDS,
)


class Sequences(NamedTuple):
    """Where sequences lie: the struct, where operands begin, the axes that the host walks through, outermost first."""

    job: np.ndarray[Any, Any]
    begin: np.ndarray[Any, Any]
    outer: tuple[Axis, ...]  # steps in bytes
    together: bool  # whether the values of x of a sequence lie side by side; where y lies changes no bit of it
    dtype: str  # in which they are computed

    @property
    def n(self) -> int:
        return int(self.job["n"])

    @property
    def total(self) -> int:
        return int(self.job["sequences"])


def operands_of(y: Any, x: Any, coefficients: Sequence[Any], init: Sequence[Any]) -> tuple[Any, ...]:
    """In the order of the struct; None: not there."""
    nothing = (None,) * MOST
    return y, x, *(*coefficients, *nothing)[:MOST], *(*init, *nothing)[:MOST]


@functools.lru_cache(1024)
def sequences_of(form: Recurrence, shapes: Any, strides: Any, dtypes: tuple[Any, Any]) -> Sequences:
    """The sequences of a call, from the shapes and the strides in bytes of its operands.

    The dtypes are those of the coefficients and of x.
    """
    dtype, right = dtypes
    in_pairs = right.kind == "c" and dtype.kind != "c"
    itemsize = (dtype if in_pairs else right).itemsize
    there = [k for k, shape in enumerate(shapes) if shape is not None]

    def steps(axis: int) -> tuple[int, ...]:
        return steps_along(axis, shapes, strides)

    axes = [k for k, length in enumerate(form.shape) if k not in form.whole and length != 1]
    axes.sort(key=lambda k: -sum(map(abs, steps(k)[: X + 1])))
    batch = [(form.shape[k], steps(k)) for k in axes]
    if in_pairs:
        values = [k for k in there if not COEFFICIENT <= k < INIT]
        batch.append((2, tuple(itemsize if k in values else 0 for k in range(OPERANDS))))
    batch = merge(batch)
    outer, inner = batch[: max(0, len(batch) - RANK)], batch[-RANK:]

    job, begin = np.zeros((), SEQUENCES.job), np.zeros(OPERANDS, np.int64)
    job["n"], job["sequences"] = form.n, math.prod(length for length, _ in inner)
    job["given"] = INIT in there
    job["length"] = 1
    for k, (length, found) in enumerate(inner, RANK - len(inner)):
        job["length"][k] = length
        job["step"].reshape(RANK, OPERANDS)[k] = [step // itemsize for step in found]
    for k, row in enumerate(steps(form.axis)):
        turned = -row if form.backward else row
        job["row"][k] = turned // itemsize
        if k in there:
            begin[k] = address(k, (form.n - 1) * row * form.backward)
            if form.transpose and COEFFICIENT <= k < INIT:  # in the row of the value that it multiplies
                begin[k] -= (k - COEFFICIENT + 1) * turned
    if form.matrices:
        entries = np.array([0 if t is None else t[len(form.shape) - 1] for t in strides])
        column = strides[COEFFICIENT][-1]
        if form.transpose:
            entries[COEFFICIENT], column = column, entries[COEFFICIENT]
        job["entry"], job["column"], job["size"] = entries // itemsize, column // itemsize, form.shape[-1]
    together = bool(form.n == 1 or abs(job["row"][X]) == 1)
    job["wide"] = wide(job, together, itemsize)
    for x in (job, begin):
        x.flags.writeable = False
    return Sequences(job, begin, tuple(outer), together, (dtype if in_pairs else right).name)


def wide(job: np.ndarray[Any, Any], together: bool, itemsize: int) -> int:
    """Which operands may be moved by 16 bytes, where they begin at a multiple of as many: bit by bit."""
    steps, some = job["step"].reshape(RANK, OPERANDS), max(1, SIXTEEN // itemsize)
    one_axis = job["length"][-1] == job["sequences"]
    beside, further = (job["row"], steps) if together else (steps[-1], job["row"])
    fit = (beside == 1) & (further % some == 0).reshape(-1, OPERANDS).all(0) & bool(together or one_axis)
    return sum(1 << k for k in range(OPERANDS) if fit[k])
