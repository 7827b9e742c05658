"""Kernels of the `.cu` sources compiled by CuPy (NVRTC) on first use, and launched on its current device and stream."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tridiag.algorithms import elimination
from tridiag.cuda.record import Clear, Kernel, Launch, Placed, Program

SOURCES = Path(__file__).parent / "src"
BOUNDS = (
    "GROWTH", "CANCELLATION", "CLOSING", "REFINE_ABOVE", "REFINE_STEPS", "LEAVE_BELOW", "LEAVE_LATE", "VANISHED",
    "ZEROS_AFTER", "LOST", "RETURN_AFTER", "ENOUGH", "UNREACHED",
)  # fmt: skip
OPTIONS = ("-std=c++17", *(f"-D{name}={getattr(elimination, name)!r}" for name in BOUNDS))
PIVOTED = ("pivoted.cu", "pivoted_chunks.cu", "blocks.cu")
ROUNDED = ("--fmad=false",)  # every product of these is rounded, as on a CPU: so the same systems are singular


class Last(tuple[str, ...]):
    """Options that stay behind those which CuPy adds: of two that contradict each other, NVRTC takes the last."""

    def __add__(self, added: Any) -> Last:
        return Last((*added, *self))


EXACT = ("-ftz=false",)  # numbers below the smallest normal one are numbers; CuPy has them flushed to zero


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


def options_of(source: str) -> Last:
    """What a source is compiled with."""
    return Last((*OPTIONS, *ROUNDED, *EXACT) if source in PIVOTED else (*OPTIONS, *EXACT))


@functools.cache
def function(kernel: Kernel, device: int) -> Any:
    """The compiled kernel on a device, a `cupy.cuda.function.Function`; CuPy keeps what it compiled on disk.

    `RawModule` takes options as a tuple and no kind of it, so it is passed by where CuPy has what it calls: without
    that, float32 numbers below the smallest normal one are zero.
    """
    import cupy

    source, options = text(kernel.source), options_of(kernel.source)
    with cupy.cuda.Device(device):
        if (compiled := getattr(cupy.cuda.compiler, "_compile_module_with_cache", None)) is None:
            module = cupy.RawModule(code=source, options=tuple(options), name_expressions=(kernel.name,))
            return module.get_function(kernel.name).kernel
        module = compiled(source, options, name_expressions=(kernel.name,))
        return module.get_function(module.mapping[kernel.name])


LEAST_SHARED = 65_536  # bytes that a block may have on every device of compute capability 7.5 or newer


@functools.cache
def shared_memory() -> int:
    """The bytes of shared memory that a block may have on all devices here."""
    import cupy

    try:
        devices = [cupy.cuda.Device(k) for k in range(cupy.cuda.runtime.getDeviceCount())]
    except cupy.cuda.runtime.CUDARuntimeError:  # programs can be lowered where there is none
        devices = []
    return min((int(device.attributes["MaxSharedMemoryPerBlockOptin"]) for device in devices), default=LEAST_SHARED)


@functools.cache
def resident(kernel: Kernel, block: int, shared: int, device: int) -> int:
    """How many blocks a device holds at a time, of so many threads and bytes of shared memory each."""
    import cupy

    driver, compiled = cupy.cuda.driver, function(kernel, device)
    most = driver.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    driver.funcSetAttribute(compiled.ptr, most, max(shared, driver.funcGetAttribute(most, compiled.ptr)))
    each = driver.occupancyMaxActiveBlocksPerMultiprocessor(compiled.ptr, block, shared)
    return int(each * cupy.cuda.Device(device).attributes["MultiProcessorCount"])


class Bound:
    """A program whose kernels are compiled for a device: what is left is where the arrays are.

    A run takes jobs that no other has, and leaves them for the next: kernels get theirs by value as they are launched.
    """

    def __init__(self, program: Program, device: int) -> None:
        import cupy

        self.program, self.cuda = program, cupy.cuda
        self.clears = any(isinstance(step, Clear) for step in program.steps)
        self.steps = [step if isinstance(step, Clear) else launch_of(step, device) for step in program.steps]
        self.idle: list[Placed] = []

    def run(self, pointers: Sequence[int]) -> None:
        """On the current stream; where the operands, the scratch memory and the results are."""
        try:
            placed = self.idle.pop()
        except IndexError:
            placed = Placed(self.program)
        placed.place(pointers)
        stream = self.cuda.get_current_stream().ptr if self.clears else 0
        for step, words, job in zip(self.steps, placed.words, placed.jobs, strict=True):
            if isinstance(step, Clear):
                self.cuda.runtime.memsetAsync(int(words[0]), 0, step.size, stream)
            else:
                compiled, grid, block, shared = step
                compiled(grid, block, (job,), shared_mem=shared)
        self.idle.append(placed)


def launch_of(step: Launch, device: int) -> tuple[Any, tuple[int], tuple[int], int]:
    """The compiled kernel, the grid and the block of a launch, and its bytes of shared memory."""
    grid = min(step.grid, resident(step.kernel, step.block, step.shared, device)) if step.in_turn else step.grid
    return function(step.kernel, device), (grid,), (step.block,), step.shared


bound = functools.lru_cache(1024)(Bound)  # of a program and a device


def run(program: Program, pointers: Sequence[int]) -> None:
    """On the current device and stream of CuPy; where the operands, the scratch memory and the results are."""
    import cupy

    bound(program, cupy.cuda.device.get_device_id()).run(pointers)
