"""What the processor that Numba compiles for can do: read from what LLVM makes of a small function for it."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from tridiag.kernels.jobs import caches

LARGE = 48  # KiB of the first level of the data cache
LIBRARY = re.compile(r"\b_?fmaf?\b")  # a function that multiplies and adds, called number by number


@functools.cache
def multiplies_and_adds(size_of_real: int) -> bool:
    """Whether x y + z, rounded once, is one instruction."""
    kind = ir.DoubleType() if size_of_real == 8 else ir.FloatType()
    return LIBRARY.search(assembly(kind, 3, lambda builder, x, y, z: builder.fma(x, y, z))) is None


@functools.cache
def bytes_of_register() -> int:
    """Of the widest registers, at most 64."""
    text = assembly(ir.VectorType(ir.DoubleType(), 8), 2, lambda builder, x, y: builder.fadd(x, y))
    return 64 if "%zmm" in text else 32 if "%ymm" in text else 16


@functools.cache
def first_level_is_large() -> bool:
    """Whether the first level of the cache has room for what lanes ask for ahead of use beside what they use.

    On a Zen 4, with 32 KiB, systems in rows take 1.6 to 2.4 times as long where it is asked to; on a Zen 5, with 48,
    they took 1.36 of a stream's time with it and 1.68 without.
    Of processors that are named it is not known, nor where the system does not tell: kernels for many have the second.
    """
    size = caches.sizes().get("L1 data", "").removesuffix("K")
    return "NUMBA_CPU_NAME" not in os.environ and size.isdecimal() and int(size) >= LARGE


def assembly(kind: Any, count: int, body: Callable[..., Any]) -> str:
    """Of a function of values that lie in memory."""
    from numba.core.registry import cpu_target

    module, place = ir.Module(), kind.as_pointer()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [place] * (count + 1)), "function")
    builder = ir.IRBuilder(function.append_basic_block())
    target, *sources = function.args
    builder.store(body(builder, *map(builder.load, sources)), target)
    builder.ret_void()
    return str(cpu_target.target_context.codegen()._tm.emit_assembly(llvm.parse_assembly(str(module))))
