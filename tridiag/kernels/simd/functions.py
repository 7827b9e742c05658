"""Functions in the language of `tridiag.kernels.simd.vector`: in place, or called through variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import I64, Code


def emitted(body: Callable[..., Any], kind: Any = types.int64) -> Any:
    """An intrinsic f(zero, integers) in whose place stands the code that ``body(code, *integers)`` writes.

    It is written for the dtype of ``zero``, and returns the integer that the body returns, or 0; as an address of a
    record where that is its ``kind``.
    """

    @intrinsic
    def inline(typing: Any, zero: Any, integers: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            given = [builder.extract_value(args[1], k) for k in range(len(integers))]
            return write(body, builder, zero, given, tuple(integers))

        return kind(zero, integers), generate

    return inline


def write(
    body: Callable[..., Any], builder: Any, zero: Any, given: Sequence[Any], kinds: Sequence[Any], short: bool = False
) -> Any:
    """What a body writes for arguments of such kinds: integers, or addresses of records."""
    code = Code(builder, str(zero))
    code.depth = 1 if short else 0
    makers = (getattr(kind, "value", Value) for kind in kinds)
    result = body(code, *(make(code, x) for make, x in zip(makers, given, strict=True)))
    return ir.Constant(I64, 0) if result is None else result.llvm


def by_number(functions: Sequence[Any], first: int) -> Any:
    """For compiled code: (zero, k, integers) calls that function of libraries whose number is k, from ``first`` on."""
    head, *others = functions
    if not others:

        @compiled
        def only(zero, k, integers):
            head(zero, integers)

        return only
    more = by_number(others, first + 1)

    @compiled
    def choose(zero, k, integers):
        if k == first:
            head(zero, integers)
        else:
            more(zero, k, integers)

    return choose


class Library:
    """Functions of this language that a kernel calls through variables, and defines once.

    Numba compiles every function together with all that it calls, again at every level of calls: code that is written
    in place would be compiled a dozen times. A call through a variable weighs nothing; `definition`, in the outermost
    function of a kernel, writes the bodies of those that the kernel calls and fills the variables. Where they are
    ``short``, of the rows of a block, their loops never end early: who calls them for many blocks asks.
    """

    def __init__(self, name: str, short: bool = False) -> None:
        self.name, self.short = name, short
        self.bodies: dict[str, Callable[..., Any]] = {}
        self.kinds: dict[str, tuple[Any, ...]] = {}  # of the arguments: integers, or addresses of records
        _libraries[name] = self

    def add(self, name: str, body: Callable[..., Any]) -> Any:
        """The function as an intrinsic f(zero, integers)."""
        self.bodies[name] = body

        @intrinsic
        def call(typing: Any, zero: Any, integers: Any) -> Any:
            before = self.kinds.get(name, tuple(integers))
            self.kinds[name] = tuple(
                new if old == types.int64 else old for old, new in zip(before, integers, strict=True)
            )

            def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                address = builder.load(self.variable(builder.module, name, zero))
                function = builder.inttoptr(address, self.kind(name).as_pointer())
                return builder.call(function, [builder.extract_value(args[1], k) for k in range(len(integers))])

            return types.int64(zero, integers), generate

        return call

    def kind(self, name: str) -> Any:
        return ir.FunctionType(I64, [I64] * len(self.kinds[name]))

    def variable(self, module: Any, name: str, zero: Any) -> Any:
        """That of the address of a function, which all modules of a process share."""
        symbol = f"{CALLED}{self.name}.{name}.{zero}"
        found = module.globals.get(symbol)
        if found is None:
            found = ir.GlobalVariable(module, I64, symbol)
            found.linkage, found.initializer = "common", ir.Constant(I64, 0)
        return found

    def compiled(self, name: str, zero: Any) -> Any:
        """A function that was compiled alone, and may call others; None: it is written into the kernel."""
        return None

    def function(self, context: Any, module: Any, name: str, zero: Any, compiled: Any) -> Any:
        """The function in the module of a kernel."""
        function = ir.Function(module, self.kind(name), f"tridiag_{self.name}_{name}_{zero}")
        function.linkage = "internal"
        builder = ir.IRBuilder(function.append_basic_block("entry"))
        builder.ret(write(self.bodies[name], builder, zero, function.args, self.kinds[name], self.short))
        return function


CALLED = "tridiag.called."  # what the names of variables begin with
_libraries: dict[str, Library] = {}


def called_by(compiled: Any) -> set[tuple[str, str]]:
    """The functions of libraries, as the names of both, that the code of a compiled function calls."""
    symbols = [variable.name for variable in compiled.library._final_module.global_variables]
    named = [symbol.removeprefix(CALLED).split(".")[:2] for symbol in symbols if symbol.startswith(CALLED)]
    return {(library, name) for library, name in named}


def definition(*roots: Any) -> Any:
    """An intrinsic define(zero), for the outermost function of a kernel: what its C functions call can be called.

    ``roots`` are all the C functions (`memory.c_function`) that a kernel begins with. Which functions of libraries they
    call is read from their code, so that a kernel has these and no others, whatever was compiled before it.
    """

    @intrinsic
    def define(typing: Any, zero: Any) -> Any:
        wanted: dict[tuple[str, str], Any] = {}
        pending = set().union(*(called_by(root.compiled(zero)) for root in roots))
        while pending:
            for library, name in sorted(pending):
                wanted[library, name] = _libraries[library].compiled(name, zero)
            alone = [known for known in wanted.values() if known is not None]
            pending = set().union(*map(called_by, alone)) - wanted.keys()

        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            module = builder.module
            fill = ir.Function(module, ir.FunctionType(ir.VoidType(), []), f"tridiag_fill_{zero}")
            fill.linkage = "internal"
            fill.attributes.add("noinline")  # the outermost function is so short that it becomes part of its C function
            inner = ir.IRBuilder(fill.append_basic_block("entry"))
            for (library, name), known in sorted(wanted.items(), key=lambda item: item[0]):
                owner = _libraries[library]
                function = owner.function(context, module, name, zero, known)
                inner.store(inner.ptrtoint(function, I64), owner.variable(module, name, zero))
            inner.ret_void()
            builder.call(fill, [])
            return context.get_dummy_value()

        return types.void(zero), generate

    return define
