"""Kernels of Numba's CUDA on CuPy arrays: compiled for the GPU that is there, launched on CuPy's current stream."""

from __future__ import annotations

from typing import Any

import cupy
from numba import cuda

FEWEST_BLOCKS = 128  # Numba warns of fewer; those that have nothing to do end at once


def compiled(function: Any, signature: Any) -> Any:
    return cuda.jit(signature)(function)


def launch(kernel: Any, blocks: int, threads: int, *arguments: Any) -> None:
    """With so many blocks, or more."""
    stream = cuda.external_stream(cupy.cuda.get_current_stream().ptr)
    given = [cuda.as_cuda_array(x, sync=False) if isinstance(x, cupy.ndarray) else x for x in arguments]
    kernel[max(FEWEST_BLOCKS, blocks), threads, stream](*given)
