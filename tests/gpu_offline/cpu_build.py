"""CUDA C sources of the package, unchanged, built by g++ and run on the CPU (`cuda_cpu.h`): one fiber per CUDA thread.

The threads of a block take turns at barriers, in an order that ``seed`` permutes: a missing barrier shows as a wrong
answer under some seed, a divergent one as an error. Shared memory begins as NaN. With ``sanitizers`` the library has to
be used from a process into which their runtime is preloaded (`test_sanitizers`).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import tridiag

HERE = Path(__file__).parent
HEADER = HERE / "cuda_cpu.h"
SOURCES = Path(tridiag.__file__).parent / "cuda" / "src"
COMPILER = shutil.which(os.environ.get("CXX", "g++"))
OPTIONS = ("-std=c++17", "-O1", "-g1", "-fPIC", "-shared", "-Wall", "-Wno-unknown-pragmas", "-Wno-unused")
FUSED = ("-mfma", "-ffp-contract=fast", "-fexpensive-optimizations")  # without the last g++ fuses nothing at -O1
ROUNDED = "-ffp-contract=off"  # what `--fmad=false` is to g++

HOST = """
#include <cfenv>
#include "{source}"
template <class Job> int run(void (*kernel)(Job), unsigned grid, unsigned block, size_t shared, unsigned seed,
                             const char** error, const void* words) {{
  const Job job = *static_cast<const Job*>(words);
  std::fenv_t caller;  // XLA's threads flush subnormal numbers, which no GPU does that compiles without fast math
  std::fegetenv(&caller);
  std::fesetenv(FE_DFL_ENV);
  const int failed = cudasim::launch(grid, block, shared, seed, error, [=] {{ kernel(job); }});
  std::fesetenv(&caller);
  return failed;
}}
"""
ENTRY = """
extern "C" int entry_{k}(unsigned grid, unsigned block, size_t shared, unsigned seed, const char** error, const void* w)
{{ return run(&{expression}, grid, block, shared, seed, error, w); }}
"""


class LaunchError(RuntimeError):
    """A kernel did what no GPU would forgive: divergent barriers, shuffles from lanes that are not there."""


class Library:
    """Kernels of one source, by their name expressions."""

    def __init__(self, path: Path, expressions: tuple[str, ...]) -> None:
        library = ctypes.CDLL(str(path))
        self.entries = {name: getattr(library, f"entry_{k}") for k, name in enumerate(expressions)}

    def launch(
        self, name: str, grid: int, block: int, words: np.ndarray[Any, Any], shared: int = 0, seed: int = 0
    ) -> None:
        words = np.ascontiguousarray(words)
        self.launch_at(name, grid, block, words.ctypes.data, shared, seed)

    def launch_at(self, name: str, grid: int, block: int, job: int, shared: int = 0, seed: int = 0) -> None:
        """The same with the address of the job."""
        error, entry = ctypes.c_char_p(), self.entries[name]
        if entry(grid, block, ctypes.c_size_t(shared), seed, ctypes.byref(error), ctypes.c_void_p(job)):
            raise LaunchError(f"{name}: {(error.value or b'').decode()}")


def why_not() -> str | None:
    """The sentence that says why nothing can be built here."""
    return None if COMPILER else "needs g++, which is not installed"


def why_not_fused() -> str | None:
    """The sentence that says why g++ cannot round products and sums once here."""
    if platform.machine() != "x86_64" or " fma " not in Path("/proc/cpuinfo").read_text():
        return "needs a processor that fuses products and sums, and g++'s flag for it"
    return why_not()


@functools.cache
def build(
    source: str,
    expressions: tuple[str, ...],
    options: tuple[str, ...] = (),
    sanitizers: str = "",
    folder: Path = SOURCES,
) -> Library:
    """The kernels of a source file of ``folder``; what was built from the same text before is kept."""
    host = HOST.format(source=source) + "".join(
        ENTRY.format(k=k, expression=expression) for k, expression in enumerate(expressions)
    )
    flags = (*OPTIONS, *([f"-fsanitize={sanitizers}", "-fno-sanitize-recover=all"] if sanitizers else []))
    texts = [path.read_text() for path in (HEADER, *sorted(folder.glob("*.cu")))]
    key = hashed(*texts, host, *flags, *options)
    shelf = Path(tempfile.gettempdir()) / f"tridiag-cuda-on-cpu-{os.getuid() if hasattr(os, 'getuid') else ''}"
    shelf.mkdir(exist_ok=True)
    target = shelf / f"{key}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=shelf) as scratch:
            text, made = Path(scratch, "host.cc"), Path(scratch, "made.so")
            text.write_text(host)
            header = precompiled(shelf, flags)
            command = [str(COMPILER), *flags, *options, "-include", str(header), "-I", str(folder)]
            done = subprocess.run([*command, str(text), "-o", str(made)], capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{source} does not compile:\n{done.stderr}")
            made.replace(target)
    return Library(target, expressions)


def precompiled(shelf: Path, flags: tuple[str, ...]) -> Path:
    """The header, beside its compiled form, which is what takes longest in a small kernel."""
    kept = shelf / hashed(HEADER.read_text(), *flags)
    if not kept.exists():
        with tempfile.TemporaryDirectory(dir=shelf) as scratch:
            made = Path(scratch, "made")
            made.mkdir()
            header = shutil.copy(HEADER, made)
            command = [str(COMPILER), *flags, "-w", "-x", "c++-header", header, "-o", f"{header}.gch"]
            subprocess.run(command, capture_output=True, check=True)
            with contextlib.suppress(OSError):  # another process was faster
                made.rename(kept)
    return kept / HEADER.name


def hashed(*texts: str) -> str:
    return hashlib.sha256("\0".join((*texts, str(COMPILER))).encode()).hexdigest()[:24]
