"""The scratch memory of a worker."""

from __future__ import annotations

import collections
from typing import Any

from numba import njit, types

from tridiag.kernels.jobs.words.record import Record
from tridiag.kernels.simd.memory import free, malloc, set_word, word
from tridiag.kernels.simd.vector import LINE, OPTIONS


@njit(**OPTIONS)
def aligned(count):
    """A length in bytes rounded up to whole cache lines."""
    return (count + LINE - 1) // LINE * LINE


def aligned_size(record: type[Record]) -> int:
    """The bytes of a record, in whole cache lines."""
    return -(-record.size() // LINE) * LINE


def arrays_of(record: type[Record], last: str) -> Any:
    """A named tuple of the sizes of the arrays whose addresses a record begins with, up to the ``last`` of them."""
    names = list(record.fields)
    found = names[: names.index(last) + 1]
    assert all(record.fields[name].word == k for k, name in enumerate(found)), "addresses are single words"
    return collections.namedtuple(f"{record.__name__}Arrays", found)


@njit(**OPTIONS)
def size_of_arrays(head, arrays):
    """The bytes of a record and of its arrays, which have these sizes."""
    total = head
    for size in arrays:
        total += size
    return total


@njit(**OPTIONS)
def place_arrays(record, head, arrays):
    """Put the addresses of its arrays, which lie behind it, into a record."""
    at = record + head
    for k in range(len(arrays)):
        set_word(record + 8 * k, at)
        at += arrays[k]


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
