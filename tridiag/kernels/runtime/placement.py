"""A thread that begins on another processor than the one that makes it.

Linux may put a new thread on the processor of its maker, which has work to do there: the two then share it until the
scheduler next looks at the load of both, milliseconds later. So a helper is made for the processors but that one, and
once it runs it may use all those of its maker, as if nothing had been said.
"""

from __future__ import annotations

from numba import types

from tridiag.kernels.jobs.words.record import Record, Word, Words
from tridiag.kernels.runtime import system
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import free, malloc
from tridiag.kernels.simd.records import address_of, at

MASK = 16  # words of a bit a processor, as many as the C library has; with more processors nothing is said
ATTRIBUTES = 8  # words of pthread_attr_t, 56 bytes on x86-64 and 64 on AArch64


class Start(Record):
    """What a thread is made with, and gives back."""

    argument = Word()
    processors = Words(MASK)  # those of its maker; none where nothing is said


class Making(Record):
    """What its maker needs for that time."""

    handle = Word()
    attributes = Words(ATTRIBUTES)


start_at, making_at, START_SIZE, MAKING_SIZE = at(Start), at(Making), Start.size(), Making.size()
MASK_SIZE = types.uint64(8 * MASK)
ITSELF = types.int32(0)


@compiled
def change(start, processor):
    """Say the other thing of a processor."""
    start.processors[processor // 64] ^= 1 << processor % 64


@compiled
def look(start):
    """The processor that the calling thread runs on, where it may use others too; else -1."""
    here = system.sched_getcpu()
    if here < 0 or here >= 64 * MASK:
        return -1
    if system.sched_getaffinity(ITSELF, MASK_SIZE, address_of(start.processors)) != 0:
        return -1
    others = 0
    change(start, here)
    for k in range(MASK):
        others |= start.processors[k]
    change(start, here)
    return here if others != 0 else -1


@compiled
def create_elsewhere(making, function, start):
    """Make a thread on another processor than this; whether there is one."""
    here, attributes = look(start), address_of(making.attributes)
    if here < 0 or system.pthread_attr_init(attributes) != 0:
        return False
    change(start, here)
    said = system.pthread_attr_setaffinity_np(attributes, MASK_SIZE, address_of(start.processors)) == 0
    change(start, here)
    made = said and system.pthread_create(making.addresses.handle, attributes, function, address_of(start)) == 0
    system.pthread_attr_destroy(attributes)
    return made


@compiled
def create(function, argument):
    """Have a thread call a C function, which takes its argument by `begun`; whether there is one.

    Where the system refuses to place it (a sandbox may), it begins where the system likes.
    """
    memory, making = malloc(types.uint64(START_SIZE)), malloc(types.uint64(MAKING_SIZE))
    made = False
    if memory != 0 and making != 0:
        start_at(memory).argument = argument
        made = create_elsewhere(making_at(making), function, start_at(memory))
        if not made:
            for k in range(MASK):
                start_at(memory).processors[k] = 0
            made = system.pthread_create(making_at(making).addresses.handle, 0, function, memory) == 0
    free(making)
    if not made:
        free(memory)
    return made


@compiled
def begun(memory):
    """What the calling thread was made for, which may use all processors of its maker from here on."""
    start, said = start_at(memory), 0
    for k in range(MASK):
        said |= start.processors[k]
    if said != 0:
        system.sched_setaffinity(ITSELF, MASK_SIZE, address_of(start.processors))
    argument = start.argument
    free(memory)
    return argument
