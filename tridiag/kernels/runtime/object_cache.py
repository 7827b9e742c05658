"""Compiled kernels kept on disk as object code, one file a kernel: a process that finds its file does not start Numba.

Those that came with the package, for some kinds of processors, are taken first (`tridiag.kernels.runtime.shipped`).
A file is named by everything that its code depends on: the kernel, its sources, the versions of the compiler, the CPU.
It begins with a digest of its name and of the rest, so that a file that is damaged, or another one's under its name,
counts as none, and appears by a rename, so that any number of processes may fill one folder. Where no folder can be
written every process compiles: the cache never fails a call.
Code that another user may have written is never run: `tridiag.kernels.runtime.private_files`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import logging  # noqa: F401  # its hooks at forks: see below
import os
import pathlib
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import platformdirs

from tridiag.kernels.jobs.words.record import GUARDED
from tridiag.kernels.jobs.words.symbols import INNER, PREFIX
from tridiag.kernels.runtime import keyboard, notice, private_files, shipped
from tridiag.kernels.runtime.sources import SETTINGS, source_hash_of
from tridiag.kernels.simd.processor import first_level_is_large

PATIENCE = 120.0  # seconds for which a kernel is waited for that another process compiles
JIT_LINK = sys.platform != "win32"  # the linker of LLVM that llvmlite has not for Windows
MOST_FILES = 256  # in a folder; beyond, those that were not used for the longest time are removed


class Kernel(NamedTuple):
    """The address of a C function, whether its code was found on the disk, and else what Numba has compiled."""

    address: int
    found: bool
    compiled: Any


class Code(NamedTuple):
    """Object code, the function of it that is called, and the symbols that it needs."""

    function: str
    needs: list[str]
    image: bytes


_kernels: dict[str, Kernel] = {}
modules: dict[str, str] = {}  # that build the kernels of this process, by their names
_warned = False  # that a file is not to be trusted
_lock = threading.RLock()
# A child must not wait for a thread that it does not have. What forks waits for a kernel that is being compiled and
# may not hold the lock of `logging` by then, as Numba logs: that module's hook is registered first, to run after this.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def obtain(name: str, build: Callable[[], Any], inner: Kernel | None = None) -> Kernel:
    """The kernel of that name, from this process, from the disk, or from ``build``, which gives a `numba.cfunc`.

    The name stands for everything but the sources of the kernels that the code depends on, such as its dtype. Another
    kernel calls it as the external C function PREFIX + name. A kernel around an ``inner`` one calls that as INNER: one
    code serves around all, and is linked with each.
    """
    known = name if inner is None else f"{name} around {inner.address:x}"
    with _lock:
        if known not in _kernels:
            if inner is not None:
                llvm.add_symbol(INNER, inner.address)
            module = getattr(build, "module", "")
            modules[name] = module
            if (kernel := come_along(name, module)) is None:
                file = file_name(name, module)
                kernel = load(name, file) or compile_in_turn(name, build, file)
            _kernels[known] = kernel
            if inner is None:
                llvm.add_symbol(PREFIX + name, _kernels[known].address)
        return _kernels[known]


def come_along(name: str, module: str) -> Kernel | None:
    """The kernel that came with the package, if one did for this processor."""
    if (found := shipped.content_of(name, module)) is None:
        return None
    with contextlib.suppress(ValueError, RuntimeError):
        return Kernel(link(name, unpack(*found)), True, None)
    return None


@dataclass(frozen=True)
class Builder:
    """What builds a kernel for `obtain`: a function of a module, which is imported, and Numba with it, when it runs."""

    module: str
    function: str
    arguments: tuple[Any, ...]

    def __call__(self) -> Any:
        return getattr(importlib.import_module(self.module), self.function)(*self.arguments)


def made_by(builder: str, *arguments: Any) -> Builder:
    """The builder "folder.module.function" of `tridiag.kernels`."""
    module, _, function = builder.rpartition(".")
    return Builder(f"tridiag.kernels.{module}", function, arguments)


def compiled() -> int:
    """How many kernels this process has compiled, which were not on the disk."""
    return sum(not kernel.found for kernel in _kernels.values())


def file_name(name: str, module: str = "") -> str:
    """The file of a kernel from a module: another one where anything differs that its code depends on."""
    settings = [GUARDED, *(os.environ.get(f"NUMBA_{setting}") for setting in SETTINGS)]
    versions = importlib.metadata.version("numba"), importlib.metadata.version("llvmlite")
    machine = llvm.get_process_triple(), cpu(), first_level_is_large()
    key = (source_hash_of(module), versions, sys.implementation.cache_tag, machine, settings)
    return f"{name}-{hashlib.sha256(repr(key).encode()).hexdigest()[:20]}.kernel"


def cpu() -> tuple[str, str]:
    try:
        return llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    except RuntimeError:  # LLVM cannot tell the features of some CPUs; Numba uses none then
        return llvm.get_host_cpu_name(), ""


def folders() -> list[pathlib.Path]:
    """Where kernels are looked for, first that of NUMBA_CACHE_DIR; a new one goes to the first that can be written."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    users = pathlib.Path(platformdirs.user_cache_dir("tridiag", appauthor=False))
    found = [users / "kernels"] if users.is_absolute() else []  # relative where there is no home
    return [pathlib.Path(named).absolute() / "tridiag", *found] if named else found


def load(name: str, file: str) -> Kernel | None:
    """The kernel of such a file, if there is one and it is whole."""
    for folder in folders():
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            kernel = Kernel(link(name, unpack(content_of(folder / file), file)), True, None)
            with contextlib.suppress(OSError):
                os.utime(folder / file)  # used: see `keep`
            return kernel
    return None


def content_of(path: pathlib.Path) -> bytes:
    """Of a file that nobody else can have written; where somebody can, a process warns once."""
    try:
        return private_files.read(path)
    except private_files.NotPrivateError as error:
        warn_once(error)
        raise


def warn_once(error: OSError) -> None:
    global _warned
    if not _warned:
        _warned = True
        message = f"{error}; no kernel is read from there, and processes may compile anew: see NUMBA_CACHE_DIR"
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def compile_in_turn(name: str, build: Callable[[], Any], file: str) -> Kernel:
    """A kernel that other processes may be compiling too: the first does, the others wait for its file."""
    folder = folders()[0] if folders() else None
    turn = private_files.turn(folder / file, PATIENCE) if folder else contextlib.nullcontext()
    with notice.waiting(name, folder), turn:
        return load(name, file) or compile_and_keep(build, file)


def compile_and_keep(build: Callable[[], Any], file: str) -> Kernel:
    """A new kernel, whose code is kept where that can be done."""
    from tridiag.kernels.runtime import compilation  # and Numba

    with keyboard.interruptible(), compilation.of_a_kernel():
        compiled = build()
    content = pack(object_code(compiled), file)
    for folder in folders():
        try:
            keep(folder, file, content)
            break
        except private_files.NotPrivateError as error:
            warn_once(error)
        except OSError:
            continue
    return Kernel(compiled.address, False, compiled)


def object_code(compiled: Any) -> Code:
    """The code of a `numba.cfunc`, for any process on a CPU like this one."""
    library = compiled._library
    module = library._final_module
    outside = [x.name for x in (*module.functions, *module.global_variables) if x.is_declaration]
    image, _ = library.serialize_using_object_code()[2]
    return Code(compiled.native_name, [x for x in outside if not x.startswith("llvm.")], image)


def pack(code: Code, file: str) -> bytes:
    """The content of the file of such a name."""
    content = json.dumps([code.function, code.needs]).encode() + b"\n" + code.image
    return digest_of(content, file) + content


def digest_of(content: bytes, file: str) -> bytes:
    return hashlib.sha256(file.encode() + b"\n" + content).digest()


def unpack(content: bytes, file: str) -> Code:
    """The code in the content of a file; ValueError where it is not as it was written, or not to that file."""
    digest, content = content[:32], content[32:]
    if digest_of(content, file) != digest:
        raise ValueError("damaged, or the content of another file")
    head, _, image = content.partition(b"\n")
    function, needs = json.loads(head)
    return Code(function, needs, image)


def keep(folder: pathlib.Path, file: str, content: bytes) -> None:
    """Write a file, whole or not at all, and remove the least recently used of too many."""
    private_files.write(folder / file, content)
    with contextlib.suppress(OSError):  # another process may be removing the same files
        found = [path for path in folder.glob("*.kernel*") if path.suffix != private_files.LOCK]
        for old in sorted(found, key=lambda path: -path.lstat().st_mtime)[MOST_FILES:]:
            old.unlink()


def link(name: str, code: Code) -> int:
    """The address of the function of an object code, which stays in memory until the process ends."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    try:
        return link_with_what_is_there(name, code)
    except RuntimeError:  # a kernel that makes arrays or raises needs Numba's runtime
        from numba.core.registry import cpu_target
        from numba.core.runtime import rtsys

        rtsys.initialize(cpu_target.target_context)
        return link_with_what_is_there(name, code)


def link_with_what_is_there(name: str, code: Code) -> int:
    library = llvm.JITLibraryBuilder().add_object_img(code.image).add_current_process().export_symbol(code.function)
    for symbol in code.needs:
        if address := llvm.address_of_symbol(symbol):
            library.import_symbol(symbol, address)
    jit = llvm.create_lljit_compiler(use_jit_link=JIT_LINK, suppress_errors=True)
    linked = library.link(jit, name)
    address = linked[code.function]
    for owner in (linked, jit):
        owner.detach()  # never unloaded: threads may run in it until the very end
    return address
