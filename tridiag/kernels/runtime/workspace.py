"""The scratch memory of a worker."""

from __future__ import annotations

import collections
from typing import Any, NamedTuple

from numba import types

from tridiag.kernels.jobs.words.record import GUARDED, Guarded, Word
from tridiag.kernels.runtime.system import fresh
from tridiag.kernels.runtime.workspace_pool import acquire, release
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import free, set_word, word
from tridiag.kernels.simd.records import address_of, at
from tridiag.kernels.simd.vector import LINE

ZONE = LINE if GUARDED else 0  # bytes
MARK = 0x5AFE_6A3D_0000_0001
abort = types.ExternalFunction("abort", types.void())


@compiled
def aligned(count):
    """A length in bytes rounded up to whole cache lines."""
    return (count + LINE - 1) // LINE * LINE


class Workspace(Guarded):
    """Base of what a worker has where arrays lie behind the record, whose addresses are in it."""

    memory = Word()  # all of it
    end = Word()  # behind the last array


class Kind(NamedTuple):
    """What allocates a record with its arrays, in one piece, and what gives it back."""

    arrays: Any  # a named tuple of the sizes of the arrays, in bytes
    allocate: Any  # (sizes) -> the record; its address is 0 where there is no memory
    free: Any  # (record)


def workspace(record: Any, *names: str, pooled: bool = False) -> Kind:
    """Of a record whose fields of these names hold the addresses of its arrays.

    ``pooled``: memory that is kept between calls (`tridiag.kernels.runtime.workspace_pool`).

    In a debug build (TRIDIAG_GUARD_ZONES=1) every field and every array is followed by a zone that nobody may write;
    where one was written, the process ends when the record is given back.
    """
    made, arrays = at(record), collections.namedtuple(f"{record.__name__}Arrays", names)
    places = tuple(record.fields[name].offset for name in names)
    zones = tuple(8 * zone for zone in record.zones) or (0,)
    head = -(-record.size() // LINE) * LINE
    take, give, begin = (acquire, release, LINE) if pooled else (fresh, free, 0)

    @compiled
    def allocate(sizes):
        total = head + ZONE
        for size in sizes:
            total += size + ZONE
        memory = take(total + LINE + begin)
        if memory == 0:
            return made(memory)
        address = aligned(memory + begin)
        found = made(address)
        place = address + head + ZONE
        for k in range(len(sizes)):
            set_word(address + places[k], place)
            place += sizes[k] + ZONE
        found.memory, found.end = memory, place
        if ZONE:
            for zone in zones:
                set_word(address + zone, MARK)
            for at_array in places:
                fill(word(address + at_array) - ZONE)
            fill(place - ZONE)
        return found

    @compiled
    def give_back(found):
        if ZONE:
            address = address_of(found)
            for zone in zones:
                if word(address + zone) != MARK:
                    abort()
            for at_array in places:
                check(word(address + at_array) - ZONE)
            check(found.end - ZONE)
        give(found.memory)

    return Kind(arrays, allocate, give_back)


def piece(record: Any) -> tuple[Any, Any]:
    """What allocates a record with so many bytes behind it, (bytes) -> the record, and what gives it back.

    Zones of a debug build: as those of `workspace`.
    """
    made, size = at(record), -(-record.size() // LINE) * LINE
    zones = tuple(8 * zone for zone in record.zones) or (0,)

    @compiled
    def allocate(more):
        address = allocate_workspace(size + more)
        if ZONE and address != 0:
            for zone in zones:
                set_word(address + zone, MARK)
        return made(address)

    @compiled
    def give_back(found):
        address = address_of(found)
        if ZONE:
            for zone in zones:
                if word(address + zone) != MARK:
                    abort()
        free_workspace(address)

    return allocate, give_back


@compiled
def fill(zone):
    for k in range(0, ZONE, 8):
        set_word(zone + k, MARK)


@compiled
def check(zone):
    for k in range(0, ZONE, 8):
        if word(zone + k) != MARK:
            abort()


@compiled
def allocate_workspace(size):
    """Memory of a worker at the beginning of a cache line, behind the address of all of it; 0: there is none."""
    memory = fresh(size + 2 * LINE + ZONE)
    if memory == 0:
        return 0
    room = (memory + 2 * LINE - 1) // LINE * LINE
    set_word(room - 8, memory)
    if ZONE:
        set_word(memory, room + size)
        fill(room + size)
    return room


@compiled
def free_workspace(room):
    if ZONE:
        check(word(word(room - 8)))
    free(word(room - 8))
