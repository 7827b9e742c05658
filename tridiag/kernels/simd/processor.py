"""What the processor that Numba compiles for can do: read from what LLVM makes of a small function for it."""

from __future__ import annotations

import functools
import re

import llvmlite.binding as llvm
from llvmlite import ir

LIBRARY = re.compile(r"\b_?fmaf?\b")  # a function that multiplies and adds, called number by number


@functools.cache
def multiplies_and_adds(size_of_real: int) -> bool:
    """Whether x y + z, rounded once, is one instruction."""
    from numba.core.registry import cpu_target

    module, kind = ir.Module(), ir.DoubleType() if size_of_real == 8 else ir.FloatType()
    function = ir.Function(module, ir.FunctionType(kind, [kind] * 3), "rounded_once")
    builder = ir.IRBuilder(function.append_basic_block())
    builder.ret(builder.fma(*function.args))
    assembly = cpu_target.target_context.codegen()._tm.emit_assembly(llvm.parse_assembly(str(module)))
    return LIBRARY.search(assembly) is None
