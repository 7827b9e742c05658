"""How Numba compiles a kernel: what the kernel calls becomes part of its code, and gets no machine code of its own.

Numba writes and loads machine code of every function that it compiles, as somebody may call it. Nobody calls those of a
kernel: their code in LLVM's language is linked into that of the kernel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target

CALLABLE = "cfunc."  # begins the name of what is called from outside


class Library(JITCodeLibrary):
    """Of one function; there is machine code of it as soon as it is asked where that lies."""

    _loaded = False

    def get_pointer_to_function(self, name: str) -> int:
        self._ensure_finalized()
        if not name.startswith(CALLABLE):
            return 0
        if not self._loaded:
            self._loaded = True
            super()._finalize_final_module()
        return int(super().get_pointer_to_function(name))

    def _finalize_final_module(self) -> None:
        self._finalized = True


class Codegen(JITCPUCodegen):
    """Numba's own, with such libraries."""

    _library_class = Library

    def __init__(self, host: JITCPUCodegen) -> None:
        self.__dict__.update(host.__dict__)

    def set_env(self, name: str, environment: Any) -> None:
        """Kernels raise nothing; environments are for what does."""


@contextlib.contextmanager
def of_a_kernel() -> Iterator[None]:
    """While it is compiled; other threads, which may compile what is to be called, wait."""
    with global_compiler_lock:
        context = cpu_target.target_context
        host = context.codegen()
        context._internal_codegen = Codegen(host) if type(host) is JITCPUCodegen else host
        try:
            yield
        finally:
            context._internal_codegen = host
