"""A stream that stores past the caches: the machine's real limit.

A processor fetches each cache line of what a plain loop is going to overwrite, a word more than is asked for. Stores
past the caches, of whole lines, save it.
"""

from __future__ import annotations

import os

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tridiag.benchmarking.errors import Array, relative_error
from tridiag.benchmarking.race import Contestant
from tridiag.benchmarking.streams import mixture
from tridiag.kernels.jobs.systems import threads

LINE, BLOCK = 64, 64  # bytes of a cache line; lines between fences
ROUNDING = 4.0  # eps for each source beyond the first


@intrinsic
def put_sum(context, sources, target, shift, like):  # type: ignore[no-untyped-def]
    """The sum of a line of each source to an aligned one, all ``shift`` bytes from their addresses.

    ``like`` is a number of their dtype.
    """
    size = like.bitwidth // 8

    def build(context, builder, signature, words):  # type: ignore[no-untyped-def]
        packed, target, shift, _ = words
        kind = ir.VectorType(context.get_value_type(like), LINE // size).as_pointer()

        def at(address):  # type: ignore[no-untyped-def]
            return builder.inttoptr(builder.add(address, shift), kind)

        total = None
        for k in range(len(sources)):
            line = builder.load(at(builder.extract_value(packed, k)), align=size)
            total = line if total is None else builder.fadd(total, line)
        done = builder.store(total, at(target), align=LINE)
        done.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
        return context.get_dummy_value()

    return types.void(sources, target, shift, like), build


@intrinsic
def fence(context):  # type: ignore[no-untyped-def]
    """What a thread has stored past the caches is seen by all before what follows."""

    def build(context, builder, signature, words):  # type: ignore[no-untyped-def]
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), build


@numba.njit(parallel=True)
def add_lines(sources, target, lines, like):  # type: ignore[no-untyped-def]
    for block in numba.prange((lines + BLOCK - 1) // BLOCK):
        for i in range(block * BLOCK, min(lines, (block + 1) * BLOCK)):
            put_sum(sources, target, i * LINE, like)
        fence()


def stream_past_caches(*sources: Array) -> Contestant:
    """Writes the sum of arrays of one shape and dtype, with as many threads as `tridiag` takes, or as Numba has."""
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # else its threads spin on into the next contestant
    numba.set_num_threads(min(threads(), numba.config.NUMBA_NUM_THREADS))
    flat = [x.reshape(-1).view(x.real.dtype) for x in sources]
    out = aligned(flat[0].size, flat[0].dtype)
    lines, like = out.nbytes // LINE, out.dtype.type(0)
    rest = slice(lines * LINE // out.itemsize, None)
    target, addresses = out.ctypes.data, tuple(x.ctypes.data for x in flat)

    def call() -> Array:
        add_lines(addresses, target, lines, like)
        if lines * LINE < out.nbytes:
            out[rest] = sum(x[rest] for x in flat)
        return out

    return Contestant(call, lambda found: relative_error(found, sum(flat)), ROUNDING * (len(flat) - 1))


def mixture_past_caches(reads: int, writes: int, dtype: str) -> Contestant:
    """The words of `tridiag.benchmarking.streams.stream`."""
    inputs, size = mixture(reads, writes)
    return stream_past_caches(*(np.ones(size, dtype) for _ in range(inputs)))


def aligned(size: int, dtype: np.dtype) -> Array:
    """An array of NaN that begins where a cache line does."""
    whole = np.full(size + LINE // dtype.itemsize, np.nan, dtype)
    first = -whole.ctypes.data % LINE // dtype.itemsize
    return whole[first : first + size]
