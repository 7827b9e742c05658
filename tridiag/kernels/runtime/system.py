"""What compiled kernels ask of the system: threads, their turns and pauses, clocks, advice about pages.

They call functions of POSIX. Windows has none of these: a module that is compiled for it gets, by the same name, a
function that does so by those of kernel32 (`WINDOWS`), and needs no others. Those of Linux alone (`LINUX`) answer
elsewhere that they have failed. No other file names a function of the system; memory is malloc's, which every C library
has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import I64, malloc

I32, WORD, HALF = ir.IntType(32), types.int64, types.int32
HUGE_PAGE, MADV_HUGEPAGE = 2**21, 14  # bytes; what Linux is advised, and others refuse, which changes nothing
NO_THREAD = 11  # EAGAIN
SECOND = 1_000_000_000  # nanoseconds


class Body:
    """What writes the body of a function for Windows: integers, as addresses and handles are in registers."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def ask(self, name: str, result: Any, *arguments: Any) -> Any:
        """Call a function of kernel32."""
        module = self.builder.module
        found = module.globals.get(name)
        if found is None:
            found = ir.Function(module, ir.FunctionType(result, [x.type for x in arguments]), name)
        return self.builder.call(found, arguments)

    def word(self, address: Any) -> Any:
        return self.builder.load(self.builder.inttoptr(address, I64.as_pointer()))

    def set_word(self, address: Any, value: Any) -> None:
        self.builder.store(value, self.builder.inttoptr(address, I64.as_pointer()))


def take_turns(body: Body) -> Any:
    body.ask("SwitchToThread", I32)
    return I32(0)


def sleep(body: Body, microseconds: Any) -> Any:
    """Whole milliseconds, of which ticks have up to 16: less gives up no more than a turn."""
    body.ask("Sleep", ir.VoidType(), body.builder.udiv(microseconds, I32(1000)))
    return I32(0)


def tell_time(body: Body, clock: Any, at: Any) -> Any:
    """Seconds, and the rest in nanoseconds, to two words."""
    second = body.builder.add(at, I64(8))
    body.ask("QueryPerformanceCounter", I32, at)
    body.ask("QueryPerformanceFrequency", I32, second)
    ticks, each = body.word(at), body.word(second)
    rest = body.builder.mul(body.builder.srem(ticks, each), I64(SECOND))
    body.set_word(at, body.builder.sdiv(ticks, each))
    body.set_word(second, body.builder.sdiv(rest, each))
    return I32(0)


def advise(body: Body, address: Any, size: Any, advice: Any) -> Any:
    """Windows has large pages for those alone who may lock memory."""
    return I32(0)


def create_thread(body: Body, handle: Any, attributes: Any, function: Any, argument: Any) -> Any:
    """It is detached from the beginning."""
    none, half = I64(0), I32(0)
    made = body.ask("CreateThread", I64, none, none, function, argument, half, none)
    failed = body.builder.icmp_unsigned("==", made, none)
    with body.builder.if_then(body.builder.not_(failed)):
        body.ask("CloseHandle", I32, made)
    return body.builder.select(failed, I32(NO_THREAD), half)


def detach(body: Body, thread: Any) -> Any:
    return I32(0)


def this_thread(body: Body) -> Any:
    return body.builder.zext(body.ask("GetCurrentThreadId", I32), I64)


def create_key(body: Body, at: Any, destructor: Any) -> Any:
    body.set_word(at, body.builder.zext(body.ask("TlsAlloc", I32), I64))
    return I32(0)


def get(body: Body, key: Any) -> Any:
    return body.ask("TlsGetValue", I64, body.builder.trunc(key, I32))


def set_value(body: Body, key: Any, value: Any) -> Any:
    body.ask("TlsSetValue", I32, body.builder.trunc(key, I32), value)
    return I32(0)


KINDS = {types.int32: I32, types.uint32: I32, types.int64: I64, types.uint64: I64}
WINDOWS: dict[str, tuple[Any, Callable[..., Any]]] = {  # functions of POSIX: their types, and what writes them there
    "sched_yield": (HALF(), take_turns),
    "usleep": (HALF(types.uint32), sleep),
    "clock_gettime": (HALF(HALF, WORD), tell_time),
    "madvise": (HALF(WORD, types.uint64, HALF), advise),
    "pthread_create": (HALF(WORD, WORD, WORD, WORD), create_thread),
    "pthread_detach": (HALF(WORD), detach),
    "pthread_self": (WORD(), this_thread),
    "pthread_key_create": (HALF(WORD, WORD), create_key),
    "pthread_getspecific": (WORD(WORD), get),
    "pthread_setspecific": (HALF(WORD, WORD), set_value),
}


def fail(body: Body, *arguments: Any) -> Any:
    return I32(-1)


LINUX: dict[str, tuple[Any, Callable[..., Any]]] = {  # on which processors a thread runs: what other systems keep
    "sched_getcpu": (HALF(), fail),
    "sched_getaffinity": (HALF(HALF, types.uint64, WORD), fail),
    "sched_setaffinity": (HALF(HALF, types.uint64, WORD), fail),
    "pthread_attr_init": (HALF(WORD), fail),
    "pthread_attr_setaffinity_np": (HALF(WORD, types.uint64, WORD), fail),
    "pthread_attr_destroy": (HALF(WORD), fail),
}
FUNCTIONS = WINDOWS | LINUX


def lacks(module: Any, name: str) -> bool:
    """Whether the system that a module is for has no such function."""
    return "linux" not in module.triple if name in LINUX else "windows" in module.triple


def function_of(module: Any, name: str, linkage: str = "internal") -> Any:
    """That function of POSIX or Linux in a module: declared, or written where its system lacks it."""
    found = module.globals.get(name)
    if found is None:
        signature, write = FUNCTIONS[name]
        kind = ir.FunctionType(KINDS[signature.return_type], [KINDS[x] for x in signature.args])
        found = ir.Function(module, kind, name)
        if lacks(module, name):
            found.linkage = linkage
            builder = ir.IRBuilder(found.append_basic_block("entry"))
            builder.ret(write(Body(builder), *found.args))
    return found


def called(name: str) -> Any:
    """That function of POSIX or Linux, for compiled code."""
    signature = FUNCTIONS[name][0]

    def generate(context, builder, signature, args):
        return builder.call(function_of(builder.module, name), args)

    def none(typing):
        return signature, generate

    def one(typing, a):
        return signature, generate

    def two(typing, a, b):
        return signature, generate

    def three(typing, a, b, c):
        return signature, generate

    def four(typing, a, b, c, d):
        return signature, generate

    return intrinsic((none, one, two, three, four)[len(signature.args)])


sched_yield, usleep, _madvise = map(called, ("sched_yield", "usleep", "madvise"))
pthread_create, pthread_detach, pthread_self = map(called, ("pthread_create", "pthread_detach", "pthread_self"))
pthread_key_create = called("pthread_key_create")
pthread_getspecific, pthread_setspecific = map(called, ("pthread_getspecific", "pthread_setspecific"))
sched_getcpu, sched_getaffinity, sched_setaffinity = map(called, tuple(LINUX)[:3])
pthread_attr_init, pthread_attr_setaffinity_np, pthread_attr_destroy = map(called, tuple(LINUX)[3:])


def line_of(module: Any) -> int:
    """Bytes of a cache line, in which words of two threads are in each other's way."""
    return 128 if "apple" in module.triple else 64


def clock_of(module: Any) -> int:
    """The number of a clock that never goes back."""
    return 6 if "apple" in module.triple else 1


@intrinsic
def line(typing):
    """`line_of` the module that is compiled."""

    def generate(context, builder, signature, args):
        return I64(line_of(builder.module))

    return types.int64(), generate


@intrinsic
def read_clock(typing, at):
    """Seconds of a clock that never goes back, and the rest in nanoseconds, to two words."""

    def generate(context, builder, signature, args):
        module = builder.module
        return builder.call(function_of(module, "clock_gettime"), [I32(clock_of(module)), args[0]])

    return types.int32(types.int64), generate


@compiled
def ask_for_huge_pages(address, size):
    """A hint before the first touch of fresh memory, whose page faults would cost more than a solve."""
    first = (address + HUGE_PAGE - 1) // HUGE_PAGE * HUGE_PAGE
    last = (address + size) // HUGE_PAGE * HUGE_PAGE
    if last > first:
        _madvise(first, types.uint64(last - first), types.int32(MADV_HUGEPAGE))


@compiled
def fresh(size):
    """Memory that nobody has touched, in large pages where it is large; 0 where there is none. `free` gives it back."""
    memory = malloc(types.uint64(size))
    if memory != 0:
        ask_for_huge_pages(memory, size)
    return memory
