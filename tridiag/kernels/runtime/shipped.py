"""Kernels that come with the package: object code for kinds of processors, in wheels for a platform.

A folder has the kernels for one kind, which run on every processor that has its instructions; the best kind that this
one is of is taken. Beside the folders is a digest of the sources that all of them were made from: where it is not that
of the sources here, none counts. Kernels that speak with Python are of one version of it. `tools/wheels.py` writes
them.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import platform
import sys
from collections.abc import Mapping
from typing import NamedTuple

import llvmlite.binding as llvm

from tridiag.kernels.jobs.words.record import GUARDED
from tridiag.kernels.runtime import sources

DIGEST = "sources"  # the file of it
FOLDER = pathlib.Path(__file__).parents[1] / "objects"
OF_PYTHON = "tridiag.kernels.runtime.python_entry", "tridiag.kernels.runtime.verb_entry"  # what builds their callers


class Kind(NamedTuple):
    """A kind of processors, by a name that LLVM knows, and the features of it that compiled code may use.

    Features are named as LLVM names those of x86, and as ``/proc/cpuinfo`` of Linux those of ARM.
    """

    name: str
    features: tuple[str, ...]


BASE = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
AVX2 = (*BASE, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
AVX512 = (*AVX2, "adx", "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl", "clflushopt", "prfchw")
NEON = ("fp", "asimd")
SVE = (
    *NEON, "crc32", "atomics", "fphp", "asimdhp", "asimdrdm", "jscvt", "fcma", "lrcpc", "ilrcpc", "asimddp", "asimdfhm",
    "uscat", "flagm", "sve", "svei8mm", "svebf16", "i8mm", "bf16",
)  # fmt: skip
KINDS = {  # of a machine, the best first
    "x86_64": (Kind("skylake-avx512", AVX512), Kind("haswell", AVX2), Kind("nehalem", BASE)),
    "aarch64": (Kind("neoverse-v1", SVE), Kind("generic", NEON)),
}
# What Linux says of an ARM processor: of these two words of a process's auxiliary vector, which bit is which feature
AT_HWCAP, AT_HWCAP2 = 16, 26
HWCAP = {
    AT_HWCAP: {
        "fp": 0, "asimd": 1, "crc32": 7, "atomics": 8, "fphp": 9, "asimdhp": 10, "asimdrdm": 12, "jscvt": 13,
        "fcma": 14, "lrcpc": 15, "asimddp": 20, "sve": 22, "asimdfhm": 23, "uscat": 25, "ilrcpc": 26, "flagm": 27,
    },
    AT_HWCAP2: {"svei8mm": 9, "svebf16": 12, "i8mm": 13, "bf16": 14},
}  # fmt: skip


def kinds() -> tuple[Kind, ...]:
    """Those of the machines of this system for which kernels can come along."""
    return KINDS.get(platform.machine(), ()) if sys.platform == "linux" else ()


def features() -> Mapping[str, bool]:
    """Of this processor, by the names that its kinds have for them; nothing where they cannot be told.

    On ARM the system is asked: it may hide what the processor has, and LLVM knows a few features alone.
    """
    if platform.machine() == "aarch64":
        return {name: bool(ask_system(word) >> bit & 1) for word, bits in HWCAP.items() for name, bit in bits.items()}
    try:
        return llvm.get_host_cpu_features()
    except RuntimeError:
        return {}


def ask_system(word: int) -> int:
    """A word of the auxiliary vector of this process; 0 where there is none such."""
    getauxval = ctypes.CDLL(None).getauxval
    getauxval.restype, getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    return int(getauxval(word))


@functools.cache
def kind() -> str | None:
    """The best kind that this processor is of and that there are kernels for; None: there are none."""
    if GUARDED or any(f"NUMBA_{setting}" in os.environ for setting in sources.SETTINGS) or not made_of_these_sources():
        return None  # somebody wants other code
    here = features()
    fitting = (kind.name for kind in kinds() if all(here.get(name) for name in kind.features))
    return next((name for name in fitting if (FOLDER / name).is_dir()), None)


def made_of_these_sources() -> bool:
    try:
        return (FOLDER / DIGEST).read_text() == sources.digest()
    except OSError:
        return False


def file_name(name: str, module: str) -> str:
    """That of a kernel which a module builds, in the folder of a kind."""
    return f"{name}.{sys.implementation.cache_tag}.kernel" if module in OF_PYTHON else f"{name}.kernel"


def content_of(name: str, module: str) -> tuple[bytes, str] | None:
    """What the file of such a kernel holds and how it is called, where there is one."""
    if (of_this := kind()) is None or not module:
        return None
    file = file_name(name, module)
    try:
        return (FOLDER / of_this / file).read_bytes(), file
    except OSError:
        return None
