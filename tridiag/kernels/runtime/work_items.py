"""How the threads of a job get work, and tell whom it concerns what is done."""

from __future__ import annotations

from numba import njit

from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.simd.interrupts import stopping
from tridiag.kernels.simd.memory import call, fetch_add, word
from tridiag.kernels.simd.vector import OPTIONS


@njit(**OPTIONS)
def field(job, k):
    return word(job + 8 * k)


@njit(**OPTIONS)
def reports(job):
    """Whether anybody asks for systems while they are in cache."""
    return field(job, J.AFTER) != 0


@njit(**OPTIONS)
def report(job, first, count):
    """Tell whom it concerns that the systems first, first + 1, ... are solved."""
    if reports(job) and count > 0:
        call(field(job, J.AFTER), (job, first, count))


@njit(**OPTIONS)
def claim(job):
    """An item that no thread has taken, or -1, also where the job is to end.

    As many stretches of items as there are threads are walked in turn: threads that are side by side in fresh memory
    would both clear the huge page that they touch first.
    """
    stretches, items = field(job, J.HELPERS) + 1, field(job, J.ITEMS)
    length = (items + stretches - 1) // stretches
    while not stopping():
        count = fetch_add(job, 1)
        item = count % stretches * length + count // stretches
        if count >= stretches * length:
            return -1
        if item < items:
            return item
    return -1


@njit(**OPTIONS)
def part_of_item(job, item):
    """The run of an item, and its right sides k0 <= k < k1."""
    chunks, length = field(job, J.CHUNKS), field(job, J.CHUNK)
    k0 = item % chunks * length
    return item // chunks, k0, min(field(job, J.RIGHT_SIDES), k0 + length)
