"""Recurrences of first order by Numba on a GPU: a thread for each sequence, or several with chunks of rows.

Many sequences that lie side by side have a thread each; others share a block, which joins what its threads make of
their chunks (`tridiag.kernels.numba_cuda.scans`). Numbers are read and written once: 3 words a value, 2 of
logcumsumexp. Of few sequences pieces go to several blocks in three phases, which read them twice: 5 words and 3. Where
products of coefficients overflow, or are too large to be trusted, a tile is computed step by step; those that underflow
are kept in range. Every array is read where it lies, unless its batch axes on one side of the system axis do not merge
into one; of it a copy is made, and so it is of an ``out`` that is not C-contiguous. Complex sequences with real
coefficients are twice as many real ones. The kernels run on CuPy's current stream.

Source: Blelloch (1990), Prefix sums and their applications.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import cupy
import numpy as np
from numba import cuda, types

from tridiag.algorithms.recurrence import Rows
from tridiag.cuda import lending_sequences
from tridiag.cuda import numba_launcher as launcher
from tridiag.kernels.numba_cuda import scans
from tridiag.kernels.numba_cuda.policies import POLICIES
from tridiag.problems.forms import Recurrence

MANY = 2**15  # sequences side by side: a thread for each keeps all multiprocessors busy
FEW = 256  # blocks: where there are fewer, sequences are cut into pieces for
ENOUGH = 512  # of them
BESIDE = 64  # bytes of a row of sequences that lie side by side, for one block


@lending_sequences(1)
def linear_recurrence(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    if x.dtype.kind == "c" and coefficients[0].dtype.kind != "c":
        return in_pairs(coefficients, x, init, form, out)
    return on_device("linear_recurrence", coefficients[0], x, init, form, out)


@lending_sequences(0)
def logcumsumexp(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
    return on_device("logcumsumexp", x, x, (), form, out)


def in_pairs(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any) -> Any:
    """Complex sequences with real coefficients as twice as many real ones, along a new last axis."""

    def pairs(v: Any) -> Any:
        return cupy.ascontiguousarray(v).view(v.real.dtype).reshape(*v.shape, 2)

    wider = form._replace(shape=(*form.shape, 2))
    y = linear_recurrence((coefficients[0][..., None],), pairs(x), tuple(map(pairs, init)), wider)
    return stored(y.reshape(*form.shape[:-1], -1).view(x.dtype), out)


def stored(y: Any, out: Any) -> Any:
    if out is None or out is y:
        return y
    out[...] = y
    return out


def on_device(verb: str, a: Any, x: Any, init: Rows, form: Recurrence, out: Any) -> Any:
    """On the device of x, which is CuPy's. Without coefficients ``a`` is anything of that dtype, and is not read."""
    shape = math.prod(form.shape[: form.axis]), form.n, math.prod(form.shape[form.axis + 1 :])
    y = out if out is not None and out.flags.c_contiguous else cupy.empty(form.shape, x.dtype)
    a, x = (cupy.broadcast_to(v, form.shape).reshape(shape) for v in (a, x))
    spread = spread_of(shape, x.strides, x.dtype.itemsize)
    with cuda.gpus[x.device.id]:
        states = states_of(verb, init, form, spread.pieces, x.dtype)
        run(verb, a, x, y.reshape(shape), states, spread, (bool(init), *rows_of(form)))
    return stored(y, out)


def rows_of(form: Recurrence) -> tuple[int, int, int]:
    """The row of the first step, the step from row to row, and how far behind it a coefficient lies."""
    return form.n - 1 if form.backward else 0, -1 if form.backward else 1, int(form.transpose)


def states_of(verb: str, init: Rows, form: Recurrence, pieces: int, dtype: Any) -> Any:
    """The states before all pieces: (pieces, numbers of a state, sequences). Those of the first are given."""
    start = POLICIES[verb](dtype.name).start
    states = cupy.empty((pieces, len(start), math.prod(form.batch)), dtype)
    for k, value in enumerate(start):
        states[0, k] = value
    if init:
        before = cupy.broadcast_to(init[0], tuple(1 if k == form.axis else m for k, m in enumerate(form.shape)))
        states[0, 0] = before.reshape(-1)
    return states


class Spread(NamedTuple):
    """How sequences are spread over blocks."""

    by_columns: bool  # a thread for each
    together: bool  # rows lie side by side in memory, not sequences
    width: int  # sequences of a block
    pieces: int  # of a sequence,
    rows: int  # of so many rows


@functools.lru_cache(1024)
def spread_of(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> Spread:
    """From the shape of all operands and the strides of x."""
    outer, n, inner = shape
    total, together = outer * inner, inner == 1 or strides[1] == itemsize
    if total >= MANY and not together:
        return Spread(True, False, 1, 1, n)
    width = scans.THREADS // min(scans.THREADS, power_of_two(-(-n // scans.CHUNK)))
    if not together:
        width = max(width, min(BESIDE // itemsize, scans.THREADS))
    width = min(width, power_of_two(total))
    tile = scans.THREADS // width * scans.CHUNK
    groups, tiles = -(-total // width), -(-n // tile)
    each = tiles if groups >= FEW else -(-tiles // max(1, ENOUGH // groups))
    return Spread(False, together, width, -(-tiles // each), each * tile)


def power_of_two(k: int) -> int:
    """The least that is not less."""
    return 1 << (k - 1).bit_length()


def run(verb: str, a: Any, x: Any, y: Any, states: Any, spread: Spread, steps: tuple[Any, ...]) -> None:
    pieces, _, total = states.shape
    launch = functools.partial(launch_kernel, verb, x.dtype.name)
    if spread.by_columns:
        launch("columns", -(-total // scans.THREADS), a, x, y, states, *steps)
        return
    words = POLICIES[verb](x.dtype.name).part_words
    parts, trusted = cupy.empty((pieces, words, total), x.dtype), cupy.ones((pieces, total), np.int32)
    blocks, layout = -(-total // spread.width) * pieces, (spread.rows, spread.width, spread.together)
    arrays = a, x, y, states, parts, trusted
    if pieces > 1:
        launch("fold", blocks, *arrays, *layout, *steps)
        launch("carry", -(-total // scans.THREADS), a, x, *arrays[3:], spread.rows, *steps)
    launch("tiles", blocks, *arrays, *layout, *steps)


def launch_kernel(verb: str, dtype: str, name: str, blocks: int, *arguments: Any) -> None:
    launcher.launch(kernel(f"{verb} {name}", dtype), blocks, scans.THREADS, *arguments)


@functools.cache
def kernel(name: str, dtype: str) -> Any:
    """Compiled for every layout at once, and for the GPU that is there: hence not on import."""
    return launcher.compiled(*source(name, dtype))


def source(name: str, dtype: str) -> tuple[Any, Any]:
    """A kernel before it is compiled, and its signature."""
    verb, which = name.split()
    real, integer, flag = getattr(types, dtype), types.int64, types.boolean
    system, kept = types.Array(real, 3, "A"), types.Array(real, 3, "C")
    trusted, steps = types.Array(types.int32, 2, "C"), (flag, integer, integer, integer)
    signatures = {
        "columns": (system, system, system, kept, *steps),
        "carry": (system, system, kept, kept, trusted, integer, *steps),
        "tiles": (system, system, system, kept, kept, trusted, integer, integer, flag, *steps),
    }
    signatures["fold"] = signatures["tiles"]
    return scans.KERNELS[which](POLICIES[verb](dtype)), types.void(*signatures[which])


KERNELS = tuple(f"{verb} {name}" for verb in POLICIES for name in scans.KERNELS)
