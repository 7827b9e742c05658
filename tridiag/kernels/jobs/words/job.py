"""What the jobs of all kernels begin with."""

from __future__ import annotations

from tridiag.kernels.jobs.words.record import Record, Word


class Job(Record):
    """One block of int64 that tells a kernel everything: filled in Python, read by compiled code.

    Behind these words come the addresses of arrays, in the order in which a call has them; what a kernel does not fill
    itself is behind those.
    """

    next = Word()  # counts the items that are claimed
    items = Word()
    helpers = Word()  # threads beside the calling one
    small = Word()  # not zero: only those that already run are worth it, unless one call follows another
    shares = Word()  # the address of a count of threads that claim, and of one of the items of each share; or 0
    task = Word()  # the C function that every thread calls
    after = Word()  # a C function f(job, first, count) that is called when systems are solved, or 0
    broken = Word()  # not zero: elimination met a zero pivot in some system
    owned = Word()  # memory of the job's own, to be freed at its end


POINTERS = Job.words  # where the addresses of arrays begin
