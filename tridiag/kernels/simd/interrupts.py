"""How the threads of a call learn that it is to end: a handler of a signal, Ctrl-C say, has raised in Python.

Every module of a kernel has one word, the address of `tridiag.kernels.runtime.python_entry.attend`, or 0 until a call
has brought it. Loops over many rows ask it after each PIECE of them, and whoever claims work, before that. In Python's
main thread it runs the handlers of signals from time to time; to all threads that work for the same job it says when
one has raised. They then leave their loops wherever they are, give all memory back, and the call raises. What they
compute meanwhile is thrown away: values may be anything, but no address and no count may follow from what was not
finished.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import I64, call, word

POLL, TEAM, NOBODY = range(3)  # asked: is this thread to stop; for which job does it work? Told: it works for none.
# ... or told the address of a job: it works for that one.
PIECE = 4096  # rows
ABOVE = 2**12  # the number of helpers that a kernel is called with is less; times that the address of `attend`, or 0


def watch_of(module: Any) -> Any:
    """The word with the address of `attend`, which the modules of a kernel share."""
    watch = module.globals.get("tridiag_watch")
    if watch is None:
        watch = ir.GlobalVariable(module, I64, "tridiag_watch")
        watch.linkage, watch.initializer = "common", ir.Constant(I64, 0)
    return watch


@intrinsic
def watch(typing):
    """Its address."""

    def generate(context, builder, signature, args):
        return builder.ptrtoint(watch_of(builder.module), I64)

    return types.int64(), generate


@compiled
def ask(order):
    """What `attend` answers, 0 where there is none."""
    attend = word(watch())
    return call(attend, (order,)) if attend != 0 else 0


@compiled
def stopping():
    """Whether the job that this thread works for is to end."""
    return ask(POLL) != 0


@compiled
def stopping_at(i, every):
    """The same, asked at every so many i."""
    return i % every == every - 1 and ask(POLL) != 0


def leave_or_go_on(builder: Any, leave: Any, go_on: Any) -> None:
    """Write a branch to the block ``leave`` where the thread is to stop, else to the other one."""
    attend = builder.load(watch_of(builder.module))
    asking = builder.function.append_basic_block("rows.ask")
    builder.cbranch(builder.icmp_unsigned("==", attend, ir.Constant(I64, 0)), go_on, asking)
    builder.position_at_end(asking)
    function = builder.inttoptr(attend, ir.FunctionType(I64, [I64]).as_pointer())
    answer = builder.call(function, [ir.Constant(I64, POLL)])
    builder.cbranch(builder.icmp_unsigned("==", answer, ir.Constant(I64, 0)), go_on, leave)
