"""How the threads of a job get work, and tell whom it concerns what is done."""

from __future__ import annotations

from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.interrupts import stopping
from tridiag.kernels.simd.memory import call, fetch_add, word
from tridiag.kernels.simd.records import address_of


@compiled
def field(job, k):
    """The k-th word of a job: of those behind its fields."""
    return word(address_of(job) + 8 * k)


@compiled
def reports(job):
    """Whether anybody asks for systems while they are in cache."""
    return job.after != 0


@compiled
def report(job, first, count):
    """Tell whom it concerns that the systems first, first + 1, ... are solved."""
    if reports(job) and count > 0:
        call(job.after, (job, first, count))


@compiled
def claim(job, share, tried):
    """An item that no thread has taken, or -1, also where the job is to end; and the shares in which there is none.

    Items are dealt in as many shares as there are threads, one after another. A thread takes those of its own first,
    then what is left of others': from call to call it finds in its caches what it has had, and threads that are side by
    side in fresh memory would both clear the huge page that they touch first.
    """
    shares, items = job.helpers + 1, job.items
    if job.shares == 0:  # nobody else claims
        item = job.next
        if item >= items or stopping():
            return -1, tried
        job.next = item + 1
        return item, tried
    length = (items + shares - 1) // shares
    while tried < shares and not stopping():
        of = (share + tried) % shares
        first = of * length
        item = first + fetch_add(job.shares + 8 * (of + 1), 1)
        if item < min(items, first + length):
            fetch_add(job.addresses.next, 1)
            return item, tried
        tried += 1
    return -1, tried


@compiled
def items(job):
    """The items that a thread works on, until none is left."""
    share = fetch_add(job.shares, 1) if job.shares != 0 else 0
    item, tried = claim(job, share, 0)
    while item >= 0:
        yield item
        item, tried = claim(job, share, tried)


@compiled
def part_of_item(job, item):
    """The run of an item, and its right sides k0 <= k < k1."""
    chunks, length = job.chunks, job.chunk
    k0 = item % chunks * length
    return item // chunks, k0, min(job.right_sides, k0 + length)
