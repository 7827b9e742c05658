"""How Numba compiles a kernel: what the kernel calls becomes part of its code, and is optimized as such, once.

Numba optimizes every function that it compiles, with all that this one calls, and writes and loads machine code of it,
as somebody may call it. Nobody calls the functions of a kernel: their code in LLVM's language is linked into that of
the kernel as it is, which is then optimized as a whole and compiled in two thirds of the time.
"""

from __future__ import annotations

import contextlib
import gc
import operator
from collections.abc import Iterator
from typing import Any

from numba import types
from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

OPERATORS = {
    operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.and_, operator.or_,
    operator.lshift, operator.rshift, operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge,
}  # fmt: skip
CALLABLE = "cfunc."  # begins the name of what is called from outside
COLLECT_AFTER = 20_000, 10, 1000  # new objects, and collections of the younger ones, while a kernel is compiled


class Library(JITCodeLibrary):
    """Of one function: optimized, and written as machine code, if it is asked where that lies for others to call."""

    _called = False

    def get_pointer_to_function(self, name: str) -> int:
        self._called |= name.startswith(CALLABLE)
        self._ensure_finalized()
        return self.address_of(name) if self._called else 0

    def address_of(self, name: str) -> int:
        """Of a function that is called from outside."""
        return int(super().get_pointer_to_function(name))

    def _optimize_functions(self, module: Any) -> None:
        """They are optimized where they are linked."""
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        if self._called:
            super()._optimize_final_module()

    def _finalize_final_module(self) -> None:
        if self._called:
            super()._finalize_final_module()
        else:
            self._finalized = True


class Codegen(JITCPUCodegen):
    """Numba's own, with such libraries."""

    _library_class = Library

    def __init__(self, host: JITCPUCodegen) -> None:
        self.__dict__.update(host.__dict__)

    def set_env(self, name: str, environment: Any) -> None:
        """Kernels raise nothing; environments are for what does."""


@contextlib.contextmanager
def collecting_seldom() -> Iterator[None]:
    """Python looks for garbage less often: a compiler makes millions of objects, of which most are kept to its end.

    With Python's own thresholds a tenth of the time goes by in the search, more where other libraries keep many.
    """
    before = gc.get_threshold()
    if before[0] > 0:  # else it never looks
        gc.set_threshold(*map(max, before, COLLECT_AFTER))
    try:
        yield
    finally:
        gc.set_threshold(*before)


_found: dict[tuple[Any, ...], Any] = {}  # signatures of `OPERATORS`, by the operator and the types of numbers


@contextlib.contextmanager
def recalling_operators() -> Iterator[None]:
    """What the operators of numbers give is looked up once for all functions: each time Numba tries a list of them."""
    context = cpu_target.typing_context
    resolve = context.resolve_function_type

    def recalled(function: Any, arguments: Any, keywords: Any) -> Any:
        if getattr(function, "typing_key", None) not in OPERATORS:
            return resolve(function, arguments, keywords)
        kinds = tuple(map(types.unliteral, arguments))
        if not all(isinstance(kind, types.Integer | types.Float | types.Boolean) for kind in kinds):
            return resolve(function, arguments, keywords)
        if (function, kinds) not in _found:
            _found[function, kinds] = resolve(function, kinds, keywords)
        return _found[function, kinds]

    context.resolve_function_type = recalled
    try:
        yield
    finally:
        context.resolve_function_type = resolve


@contextlib.contextmanager
def of_a_kernel() -> Iterator[None]:
    """While it is compiled; other threads, which may compile what is to be called, wait."""
    with global_compiler_lock, collecting_seldom(), recalling_operators():
        context = cpu_target.target_context
        host = context.codegen()
        context._internal_codegen = Codegen(host) if type(host) is JITCPUCodegen else host
        try:
            yield
        finally:
            context._internal_codegen = host
