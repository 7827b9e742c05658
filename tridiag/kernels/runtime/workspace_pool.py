"""Scratch memory that is kept between the calls of a kernel."""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tridiag.kernels.runtime.system import fresh
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import I64, free, set_word, swap, word

SHELVES, PUT_BY = 8, 4 * 1024 * 1024  # pieces of memory, and the bytes of the largest


@intrinsic
def pool(typing):
    """The address of SHELVES words, which the modules of a kernel share; zero at first."""

    def generate(context, builder, signature, args):
        kind = ir.ArrayType(I64, SHELVES)
        table = builder.module.globals.get("tridiag_shelf")
        if table is None:
            table = ir.GlobalVariable(builder.module, kind, "tridiag_shelf")
            table.linkage, table.initializer = "common", ir.Constant(kind, None)
        return builder.ptrtoint(table, I64)

    return types.int64(), generate


@compiled
def acquire(size):
    """Memory of at least that many bytes, the first word of which tells how many; 0 where there is none.

    Fresh pages cost as much as a small batch, so that memory which is not large is put by for another call.
    """
    for k in range(SHELVES):
        found = word(pool() + 8 * k)
        if found != 0 and swap(pool() + 8 * k, found, 0):
            if word(found) >= size:
                return found
            free(found)
    memory = fresh(size)
    if memory != 0:
        set_word(memory, size)
    return memory


@compiled
def release(memory):
    if word(memory) <= PUT_BY:
        for k in range(SHELVES):
            if swap(pool() + 8 * k, 0, memory):
                return
    free(memory)
