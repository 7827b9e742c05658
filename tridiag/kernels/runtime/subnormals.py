"""Subnormal numbers: threads of XLA take them for 0, and kernels that they call do not.

Refinement stands still where the residuals that it would correct are flushed. Threads that are started inherit how
their parent counts, so the helpers of a call do as its caller.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tridiag.kernels.simd.memory import I64

I32, BYTES = ir.IntType(32), ir.IntType(8).as_pointer()
FLUSH_X86 = 0x8040  # in MXCSR: results, and operands
FLUSH_ARM = 1 << 24 | 1 << 19  # in FPCR: of all sizes, and of halves


def machine(module: ir.Module) -> str:
    """For which a module is compiled."""
    return module.triple.partition("-")[0]


def get(builder, module):
    """The control word of this thread; 0 where nothing is known of the processor."""
    if machine(module) == "x86_64":
        place = builder.alloca(I32)
        builder.call(outside(module, "llvm.x86.sse.stmxcsr"), [builder.bitcast(place, BYTES)])
        return builder.zext(builder.load(place), I64)
    if machine(module) in ("aarch64", "arm64"):
        return builder.asm(ir.FunctionType(I64, []), "mrs $0, fpcr", "=r", [], True)
    return ir.Constant(I64, 0)


def put(builder, module, value):
    if machine(module) == "x86_64":
        place = builder.alloca(I32)
        builder.store(builder.trunc(value, I32), place)
        builder.call(outside(module, "llvm.x86.sse.ldmxcsr"), [builder.bitcast(place, BYTES)])
    elif machine(module) in ("aarch64", "arm64"):
        builder.asm(ir.FunctionType(ir.VoidType(), [I64]), "msr fpcr, $0", "r", [value], True)


def outside(module, name):
    found = module.globals.get(name)
    return found if found is not None else ir.Function(module, ir.FunctionType(ir.VoidType(), [BYTES]), name)


@intrinsic
def keep_subnormals(typing):
    """From now on this thread takes no number for 0; how it has counted before."""

    def generate(context, builder, signature, args):
        before = get(builder, builder.module)
        flush = FLUSH_X86 if machine(builder.module) == "x86_64" else FLUSH_ARM
        put(builder, builder.module, builder.and_(before, ir.Constant(I64, ~flush)))
        return before

    return types.int64(), generate


@intrinsic
def count_as(typing, before):
    """As before `keep_subnormals`, which has returned that."""

    def generate(context, builder, signature, args):
        put(builder, builder.module, args[0])
        return context.get_dummy_value()

    return types.void(types.int64), generate
