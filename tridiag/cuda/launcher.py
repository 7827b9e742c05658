"""Kernels of the `.cu` sources compiled by CuPy (NVRTC) on first use and launched on its current stream and device."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tridiag import elimination

SOURCES = Path(__file__).parent.parent / "kernels"
BOUNDS = ("GROWTH", "CANCELLATION", "CLOSING", "REFINE_ABOVE", "REFINE_STEPS", "LEAVE_BELOW", "VANISHED")
OPTIONS = ("-std=c++17", *(f"-D{name}={getattr(elimination, name)!r}" for name in BOUNDS))
ROUNDED = ("--fmad=false",)  # every product is rounded, as on a CPU: so the same systems are singular


class Kernel(NamedTuple):
    """A kernel of a source file, by its name expression; ``threads``: the most that a block may have."""

    source: str
    name: str
    threads: int


@functools.cache
def text(source: str) -> str:
    """A source with what it includes, each file once."""
    seen: set[str] = set()

    def read(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        lines = (SOURCES / name).read_text(encoding="utf-8").splitlines()
        return "\n".join(read(line.split('"')[1]) if line.startswith('#include "') else line for line in lines)

    return read(source).replace("#pragma once", "")


def options_of(source: str) -> tuple[str, ...]:
    """What a source is compiled with."""
    return (*OPTIONS, *ROUNDED) if source == "pivoted.cu" else OPTIONS


@functools.cache
def function(kernel: Kernel, device: int) -> Any:
    """The compiled kernel; CuPy keeps what it compiled on disk."""
    import cupy

    source = kernel.source
    module = cupy.RawModule(code=text(source), options=options_of(source), name_expressions=(kernel.name,))
    return module.get_function(kernel.name)


def launch(kernel: Kernel, grid: int, block: int, job: np.ndarray[Any, Any], shared: int = 0) -> None:
    """Run a kernel on the current device and stream; ``shared``: bytes of shared memory of a block, at most 48 KiB."""
    import cupy

    function(kernel, cupy.cuda.device.get_device_id())((grid,), (block,), (job,), shared_mem=shared)
