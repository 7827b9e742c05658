"""The scratch memory of a worker."""

from __future__ import annotations

from numba import njit, types

from tridiag.kernels.simd.memory import free, malloc, set_word, word
from tridiag.kernels.simd.vector import LINE, OPTIONS


@njit(**OPTIONS)
def aligned(count):
    """A length in bytes rounded up to whole cache lines."""
    return (count + LINE - 1) // LINE * LINE


@njit(**OPTIONS)
def allocate_workspace(size):
    """Memory of a worker at the beginning of a cache line, behind the address of all of it; 0: there is none."""
    memory = malloc(types.uint64(size + 2 * LINE))
    if memory == 0:
        return 0
    room = (memory + 2 * LINE - 1) // LINE * LINE
    set_word(room - 8, memory)
    return room


@njit(**OPTIONS)
def free_workspace(room):
    free(word(room - 8))
