"""Kernels that come with the package: object code for kinds of processors, in wheels for a platform.

A folder has the kernels for one kind, which run on every processor that has its instructions; the best kind that this
one is of is taken. Beside the folders is a digest of the sources that all of them were made from: where it is not that
of the sources here, none counts. Kernels that speak with Python are of one version of it. `tools/wheels.py` writes
them.
"""

from __future__ import annotations

import functools
import os
import pathlib
import platform
import sys
from typing import NamedTuple

import llvmlite.binding as llvm

from tridiag.kernels.jobs.words.record import GUARDED
from tridiag.kernels.runtime import sources

DIGEST = "sources"  # the file of it
FOLDER = pathlib.Path(__file__).parents[1] / "objects"
OF_PYTHON = "tridiag.kernels.runtime.python_entry", "tridiag.kernels.runtime.table_entry"  # what builds their callers


class Kind(NamedTuple):
    """A kind of processors, by a name that LLVM knows, and the features of it that compiled code may use."""

    name: str
    features: tuple[str, ...]


BASE = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
AVX2 = (*BASE, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")
AVX512 = (*AVX2, "adx", "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl", "clflushopt", "prfchw")
KINDS = {  # of a machine, the best first
    "x86_64": (Kind("skylake-avx512", AVX512), Kind("haswell", AVX2), Kind("nehalem", BASE)),
}


def kinds() -> tuple[Kind, ...]:
    """Those of the machines of this system for which kernels can come along."""
    return KINDS.get(platform.machine(), ()) if sys.platform == "linux" else ()


@functools.cache
def kind() -> str | None:
    """The best kind that this processor is of and that there are kernels for; None: there are none."""
    if GUARDED or any(f"NUMBA_{setting}" in os.environ for setting in sources.SETTINGS) or not made_of_these_sources():
        return None  # somebody wants other code
    try:
        features = llvm.get_host_cpu_features()
    except RuntimeError:  # LLVM cannot tell
        return None
    fitting = (kind.name for kind in kinds() if all(features.get(name) for name in kind.features))
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
