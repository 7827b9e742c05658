"""The backward pass: the kernel of every solve, called on A^T w = g, multiplies by x while a tile of w is in cache.

-w[i] x[i-1], -w[i] x[i], -w[i] x[i+1] are the gradients of a[i], b[i], c[i]; where A^T x = d was solved, and A w = g
is, w and x change places. All five arrays lie in memory alike.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from llvmlite import ir
from numba import cfunc, types

from tridiag.kernels.access.bind import offset
from tridiag.kernels.access.operands import LINES_AHEAD, NEXT_GROUP, ROWS_AHEAD, bytes_of_real, parts_of
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.symbols import PREFIX
from tridiag.kernels.jobs.words.systems import WHERE_, X_, Systems
from tridiag.kernels.runtime.work_items import field
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import Library, definition
from tridiag.kernels.simd.interrupts import PIECE, stopping_at
from tridiag.kernels.simd.memory import c_function, call, load, store
from tridiag.kernels.simd.records import RecordAt
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

JOB = RecordAt(Systems)


def times(code: Code, x: Value, y: Value) -> Value:
    """The product of numbers as they lie in memory: complex ones as pairs."""
    if code.parts == 1:
        return x * y
    count = x.llvm.type.count
    real, imaginary = (code.shuffle(x, x, [k // 2 * 2 + part for k in range(count)]) for part in range(2))
    first, second = real * y, imaginary * code.shuffle(y, y, [k ^ 1 for k in range(count)])
    return code.shuffle(first - second, first + second, [k + k % 2 * count for k in range(count)])


def multiply(past_caches: bool, code: Code, *words: Value) -> None:
    """-x[k] y[k + move] for three moves, over runs of real numbers that are contiguous in memory.

    ``past_caches``: whole cache lines of the outputs, which begin together, go straight to memory.
    """
    x, y, outputs, moves, (count, runs, step, ahead) = words[0], words[1], words[2:5], words[5:7], words[7:]
    moves = moves[0], code.integer(0), moves[1]

    def piece(width: int, start: Value, past_caches: bool = False) -> Any:
        kind = ir.VectorType(code.real, width)

        def body(k: Value, state: Any) -> Any:
            at = start + k * code.size_of_real
            here = code.load_as(kind, x + at)
            code.prefetch(y + at + ahead)
            for output, move in zip(outputs, moves, strict=True):
                code.store_as(output + at, -times(code, here, code.load_as(kind, y + at + move)), past_caches)
                if not past_caches:
                    code.prefetch(output + at + ahead, write=True)
            return state

        return body

    def run(r: Value, state: Any) -> Any:
        head, start = code.integer(0), r * step
        if past_caches:
            head = (code.integer(0) - (outputs[0] + start) & (LINE - 1)) / code.size_of_real
            head = code.pick(head < count, head, count)
            code.fori(0, head, piece(code.parts, start), step=code.parts)
        even = head + (count - head) / code.lanes * code.lanes
        code.fori(head, even, piece(code.lanes, start, past_caches), step=code.lanes)
        code.fori(even, count, piece(code.parts, start), step=code.parts)
        return state

    code.fori(0, runs, run)


PRODUCTS = Library("products")
MULTIPLY, MULTIPLY_PAST_CACHES = (
    PRODUCTS.add("multiply", functools.partial(multiply, False)),
    PRODUCTS.add("multiply_past_caches", functools.partial(multiply, True)),
)


@compiled
def gradients(job, at):
    """The addresses of the gradients of a, b and c, ``at`` bytes on."""
    return job.gradients[0] + at, job.gradients[1] + at, job.gradients[2] + at


@compiled
def multiply_rows(zero, job, at, first, last, count, before, after):
    """The gradients of rows first <= i < last of ``count`` systems that are evenly spaced from byte ``at`` on."""
    axes, parts, stride = job.matrix_axes, parts_of(zero, ()), job.strides[X_]
    side = field(job, J.AXES + J.AXIS_WORDS * (axes - 1) + 1 + X_) if axes > 0 else 0
    entry, start, rows = bytes_of_real(zero, ()) * parts, at + first * stride, last - first
    if side == entry:
        run, runs, step, ahead, repeats = count, rows, stride, ROWS_AHEAD * stride, 1
    elif stride == entry:
        run, runs, step, ahead, repeats = rows, count, side, count * side, 1
    else:
        run, runs, step, ahead, repeats = 1, rows, stride, 0, count
    if ahead >= NEXT_GROUP:
        ahead = LINES_AHEAD * LINE
    w, x = job.pointers[X_] + start, job.solution + start
    if job.flags & J.TRANSPOSE == 0:
        w, x = x, w
    a, b, c = gradients(job, start)
    for k in range(repeats):
        move = k * side
        words = w + move, x + move, a + move, b + move, c + move, before, after, run * parts, runs, step, ahead
        if past_caches(zero, job):
            MULTIPLY_PAST_CACHES(zero, words)
        else:
            MULTIPLY(zero, words)


@compiled
def past_caches(zero, job):
    """Whether gradients go straight to memory: large, their numbers in whole entries, lines beginning together."""
    a, b, c = gradients(job, 0)
    entry = bytes_of_real(zero, ()) * parts_of(zero, ())
    large = job.flags & J.LARGE_GRADIENTS != 0
    return large and ((a ^ b) | (a ^ c)) % LINE == 0 and a % entry == 0


@compiled
def multiply_systems(zero, job, first, count):
    """All rows of systems that are evenly spaced in memory, as if none were taken out."""
    n, stride = job.rows, job.strides[X_]
    around = (n - 1) * stride if job.flags & J.PERIODIC else 0
    at = offset(job, J.AXES, job.matrix_axes, first, X_)
    multiply_rows(zero, job, at, 0, 1, count, around, stride if n > 1 else 0)
    multiply_rows(zero, job, at, 1, n - 1, count, -stride, stride)
    if n > 1:
        multiply_rows(zero, job, at, n - 1, n, count, -stride, -around)


@compiled
def cut(zero, job, system):
    """Exact zeros where a coupling does not exist."""
    n, stride, flags = job.rows, job.strides[X_], job.flags
    axes, mask_stride = job.matrix_axes, job.strides[WHERE_]
    at = offset(job, J.AXES, axes, system, X_)
    a, b, c = gradients(job, at)
    if flags & J.PERIODIC == 0:
        store(a, zero)
        store(c + (n - 1) * stride, zero)
    if flags & J.MASKED:
        mask = job.pointers[WHERE_] + offset(job, J.AXES, axes, system, WHERE_)
        byte = types.uint8(0)
        before = load(mask + (n - 1) * mask_stride, byte)
        for i in range(n):
            if stopping_at(i, PIECE):
                break
            kept = load(mask + i * mask_stride, byte)
            if not kept:
                store(b + i * stride, zero)
            if not (kept and before):
                store(a + i * stride, zero)
                store(c + (i - 1 if i > 0 else n - 1) * stride, zero)
            before = kept


@compiled
def multiply_tile(job, first, count, zero):
    """The gradients of the systems first, first + 1, ... that were just solved."""
    axes = job.matrix_axes
    length = field(job, J.AXES + J.AXIS_WORDS * (axes - 1)) if axes > 0 else 1
    last = first + count
    for system in range(first, last):
        if system == first or system % length == 0:
            multiply_systems(zero, job, system, min(last - system, length - system % length))
    for system in range(first, last):
        cut(zero, job, system)


after_tile = c_function(multiply_tile, "tridiag_after_tile", 3, first=JOB)
define = definition(after_tile)


@compiled
def prepare(job, zero):
    define(zero)
    flags = job.flags
    if flags & J.LARGE:
        job.flags = flags & ~J.LARGE | J.LARGE_GRADIENTS
    job.after = after_tile(zero)


prepared = c_function(prepare, "tridiag_prepare_adjoint", first=JOB)


def build(dtype: str, *names: str):
    """The C function void run(job, helpers) for a dtype, around a kernel: the last of the names."""
    solve, zero = names[-1], np.zeros((), dtype)[()]
    own = types.ExternalFunction(PREFIX + solve, types.void(types.int64, types.int64))

    def run(job, helpers):
        call(prepared(zero), (job,))  # as in `threads.runner`
        own(job, helpers)

    return cfunc(types.void(types.int64, types.int64), error_model="numpy")(run)
