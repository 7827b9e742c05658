"""`RawModule`: CUDA C built by g++ for the CPU (`cpu_build`), and launched with the checks of a driver."""

from __future__ import annotations

import functools
import hashlib
import tempfile
import weakref
from pathlib import Path
from typing import Any

import cpu_build
import numpy as np

from cupy import machine
from cupy.cuda import runtime

MOST_DYNAMIC_SHARED = 8  # an attribute of functions, as the driver numbers it
LARGEST_BLOCK, STATIC_SHARED, MOST_SHARED = 1024, 49_152, 232_448
LARGEST_GRID, LARGEST_ARGUMENT = 2**31 - 1, 4096
BUILD_OPTIONS = ("-D", "-I", "--define-macro", "--include-path")  # those that mean something to g++ too


class CUDADriverError(RuntimeError):
    """As that of CuPy."""


def refuse(told: str) -> None:
    raise CUDADriverError(f"CUDA_ERROR_INVALID_VALUE: invalid argument: {told}")


class RawModule:
    """Kernels of one text. They take one argument, a struct: a NumPy array of size one, of structured or void dtype."""

    def __init__(
        self,
        code: str | None = None,
        *,
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
        name_expressions: Any = None,
    ) -> None:
        if not isinstance(code, str) or type(options) is not tuple or backend != "nvrtc":
            raise TypeError("wanted code as one text, options as a tuple, and backend='nvrtc'")
        self.code, self.options = code, options
        self.name_expressions = tuple(name_expressions or ())

    def get_function(self, name: str) -> RawKernel:
        if name not in self.name_expressions:
            raise CUDADriverError(f"CUDA_ERROR_NOT_FOUND: {name} is no name expression of this module")
        return RawKernel(Function(name, built(self.code, self.options, self.name_expressions)))


@functools.cache
def built(code: str, options: tuple[str, ...], expressions: tuple[str, ...]) -> cpu_build.Library:
    """The library of a text, which g++ reads as a file in a folder of its own."""
    kept = tuple(option for option in options if option.startswith(BUILD_OPTIONS))
    if "--fmad=false" in options:
        kept += (cpu_build.ROUNDED,)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "module.cu").write_text(code)
        return cpu_build.build("module.cu", expressions, (*kept, *included(kept)), folder=Path(folder))


def included(options: tuple[str, ...]) -> tuple[str, ...]:
    """What the texts of include folders are, said as an option: a library is built again when they change."""
    folders = [Path(option[2:]) for option in options if option.startswith("-I")]
    texts = [path.read_text() for folder in folders for path in sorted(folder.glob("*.cu"))]
    return (f"-DINCLUDED_{hashlib.sha256(''.join(texts).encode()).hexdigest()[:16]}",) if texts else ()


FUNCTIONS: weakref.WeakValueDictionary[int, Function] = weakref.WeakValueDictionary()


class Function:
    """A kernel as the driver knows it: by its address."""

    def __init__(self, name: str, library: cpu_build.Library) -> None:
        self.name, self.library, self.ptr = name, library, id(self)
        self.attributes = {MOST_DYNAMIC_SHARED: STATIC_SHARED}
        FUNCTIONS[self.ptr] = self

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...], shared_mem: int = 0
    ) -> None:
        runtime.getDeviceCount()
        if not all(type(x) is tuple for x in (grid, block, args)):
            raise TypeError("grid, block and args are tuples")
        if any(x != 1 for x in (*grid[1:], *block[1:])):
            raise NotImplementedError("the CPU build runs grids and blocks of one dimension")
        (job,) = args
        if not isinstance(job, np.ndarray) or job.size != 1 or job.nbytes > LARGEST_ARGUMENT:
            raise TypeError(
                f"wanted one NumPy array of size one, and of at most {LARGEST_ARGUMENT} bytes: only such arrays can be "
                f"passed by value"
            )
        job = np.ascontiguousarray(job)
        self.launch_at(grid[0], block[0], job.ctypes.data, shared_mem)

    def launch_at(self, grid: int, block: int, job: int, shared: int) -> None:
        """With the job at an address, as the driver launches."""
        if not 0 < grid <= LARGEST_GRID or not 0 < block <= LARGEST_BLOCK:
            refuse(f"grid {grid}, block {block}")
        if not 0 <= shared <= min(self.attributes[MOST_DYNAMIC_SHARED], MOST_SHARED):
            refuse(f"{shared} bytes of shared memory")
        machine.launches[:] = [*machine.launches[-99:], (self.name, int(grid), int(block), shared)]
        machine.launched.add(self.name)
        self.library.launch_at(self.name, grid, block, job, shared, machine.seed)


class RawKernel:
    def __init__(self, kernel: Function) -> None:
        self.kernel = kernel

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...], *, shared_mem: int = 0
    ) -> None:
        self.kernel(grid, block, args, shared_mem)

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        return self.kernel.attributes[MOST_DYNAMIC_SHARED]

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, size: int) -> None:
        self.kernel.attributes[MOST_DYNAMIC_SHARED] = size
