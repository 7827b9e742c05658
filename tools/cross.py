"""Object code of kernels for processors and systems other than this one, by the Numba that is here.

Numba asks LLVM for the host's target, data layout and features, and loads what it has compiled. `compile_for` gives it
another target, for the rest of the process: code is optimized and written for that, and none of it is loaded or run.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import llvmlite.binding as llvm
from numba.core import config
from numba.core.codegen import JITCPUCodegen
from numba.core.registry import cpu_target

from tridiag.kernels.runtime import compilation, system


class Target(NamedTuple):
    """A system as LLVM names it, and the processor of it; what that has beside its name is not used."""

    triple: str
    processor: str


class Library(compilation.Library):
    """Of functions that are never loaded."""

    def address_of(self, name: str) -> int:
        return 0

    def _finalize_specific(self) -> None:
        pass

    def _get_compiled_object(self) -> bytes:
        return self._codegen.object_of(self._final_module)


class Codegen(compilation.Codegen):
    """That of kernels, for a target; it compiles as there a process would for itself."""

    _library_class = Library

    def __init__(self, target: Target) -> None:
        self.target = target
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        JITCPUCodegen.__init__(self, "numba.exec")

    def _init(self, module: Any) -> None:
        triple, processor = self.target
        self._tm_features = ""
        self._tm = llvm.Target.from_triple(triple).create_target_machine(
            cpu=processor,
            opt=config.OPT,
            reloc="static" if triple.startswith("x86_64") else "default",
            codemodel="jitdefault",
            jit=True,
        )
        self._target_data = self._tm.target_data
        self._data_layout = str(self._target_data)
        self._loopvect, self._opt_level = False, 0

    def object_of(self, module: Any) -> bytes:
        """Object code of an optimized module, which may be that of another target; the module stays as it is."""
        module = module.clone()  # writing code changes it
        module.triple, module.data_layout = self.target.triple, self._data_layout
        if "windows" in self.target.triple:  # what it calls of POSIX is written for Windows
            module.link_in(llvm.parse_assembly(str(self.seam_of(module))))
        code: bytes = self._tm.emit_object(module)
        return code

    def seam_of(self, module: Any) -> Any:
        """A module with those functions of the system that another one declares."""
        made = self._create_empty_module("seam")
        for function in module.functions:
            if function.is_declaration and function.name in system.WINDOWS:
                system.function_of(made, function.name, "external")
        return made

    def _create_empty_module(self, name: str) -> Any:
        module = super()._create_empty_module(name)
        module.triple = self.target.triple
        return module

    def _add_module(self, module: Any) -> None:
        pass

    def magic_tuple(self) -> tuple[str, str, str]:
        return *self.target, ""


def compile_for(target: Target) -> None:
    """From now on Numba compiles for that target, in a process that has compiled nothing before."""
    cpu_target.target_context._internal_codegen = Codegen(target)
