"""Threads beside the calling one, which works too: plain threads of the system, nothing to initialise, no Python.

A job is a block of int64 words. A helper that has nothing left to claim looks out for another job, and ends: after some
microseconds, or a millisecond where calls follow one another, as between the steps of a simulation. Making another
takes as long as a small job, so such a job has it made only where calls follow one another, and the next is likely to
find it looking out; where it does not, more calls have to follow one another before it is tried again.
"""

from __future__ import annotations

from llvmlite import ir
from numba import cfunc, types
from numba.extending import intrinsic

from tridiag.kernels.jobs.words.job import Job
from tridiag.kernels.jobs.words.record import Record, Word, Words
from tridiag.kernels.runtime import placement, system
from tridiag.kernels.simd import interrupts
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.functions import definition
from tridiag.kernels.simd.memory import I64, c_function, call, fetch_add, free, malloc, set_word, swap, word
from tridiag.kernels.simd.records import RecordAt, address_of, at

MOST_THREADS = 256
# What a place holds: no helper; one that waits for work; one at work; else the address of a team that wants a helper.
# All changes are swaps of that word, so a helper that comes late finds nothing to do, and a caller waits only for those
# that have begun: in a forked child, where all helpers are gone, for none.
EMPTY, WAITING, AT_WORK = range(3)
LINGER = 100_000  # nanoseconds in which a helper looks out for another team before it ends
LINGER_ON = 1_000_000  # likewise, where calls follow one another
A_MOMENT = 500_000  # nanoseconds from call to call of those that follow one another
MOST_CALLS = 64  # that have to follow one another before a small job has a helper made
PATIENCE = 5_000  # looks of a caller for a helper that is still at work, before it sleeps between them


class Team(Record):
    """The helpers of a call."""

    asked, finished = Word(), Word()  # how many were asked for, and how many have finished
    function, argument = Word(), Word()  # what they call
    works_for = Word()  # the job for which their caller works, as `tridiag.kernels.simd.interrupts` knows it
    seconds, nanoseconds = Word(), Word()  # what the clock shows
    calls = Word()  # the address of how calls follow one another
    places = Words(MOST_THREADS)  # the addresses of those that were asked for


class Place(Record):
    """Of a helper, in a cache line of its own."""

    state = Word()
    seconds, nanoseconds = Word(), Word()  # what the helper's clock shows
    linger = Word()  # the nanoseconds in which it looks out for another team


class Calls(Record):
    """How calls follow one another; those of callers at once may take each other's for their own."""

    latest = Word()  # the time at which a team finished last
    followed = Word()  # the calls that have followed one another, since a helper was made for one
    enough = Word()  # of them, for a small job to have a helper made


job_at, team_at, place_at, calls_at, TEAM_SIZE = at(Job), at(Team), at(Place), at(Calls), Team.size()


@intrinsic
def places(typing):
    """The address of the places of helpers, and of one more for `Calls`; the module's own, and zero at first."""

    def generate(context, builder, signature, args):
        line = system.line_of(builder.module)
        kind = ir.ArrayType(I64, line // 8 * (MOST_THREADS + 1))
        table = builder.module.globals.get("tridiag_places")
        if table is None:
            table = ir.GlobalVariable(builder.module, kind, "tridiag_places")
            table.linkage, table.initializer, table.align = "internal", ir.Constant(kind, None), line
        return builder.ptrtoint(table, I64)

    return types.int64(), generate


@compiled
def now(record):
    """Nanoseconds of a clock that never goes back; of a team or a place, which the clock is read into."""
    system.read_clock(record.addresses.seconds)
    return record.seconds * 1_000_000_000 + record.nanoseconds


@compiled
def follow(calls, team):
    """Whether this call follows another, and whether enough have followed one another."""
    soon = now(team) - calls.latest < A_MOMENT
    calls.followed = calls.followed + 1 if soon else 0
    return soon, soon and calls.followed > calls.enough


@compiled
def learn(calls, found):
    """Whether a helper was found looking out, or had to be made."""
    if found:
        calls.enough = 0
    else:
        calls.enough, calls.followed = min(2 * calls.enough + 1, MOST_CALLS), 0


@compiled
def helper_loop(start, zero):
    """What a helper does: work for a team, and for the next one if that comes soon."""
    address = placement.begun(start)
    # by its caller, the C library of Linux may look at a thread that is gone
    system.pthread_detach(system.pthread_self())
    place = place_at(address)
    # where the team has not waited for this helper, another may come; of helpers of one place only one looks out
    end = now(place) + place.linger if swap(address, EMPTY, WAITING) else 0
    while True:
        found = fetch_add(address, 0)
        if found == WAITING and now(place) < end:
            system.sched_yield()
        elif found <= AT_WORK:
            if found != WAITING or end == 0 or swap(address, WAITING, EMPTY):
                return
        elif swap(address, found, AT_WORK):
            team = team_at(found)
            interrupts.ask(team.works_for)
            call(team.function, (team.argument,))
            end = now(place) + place.linger
            # first: a call behind this one that found it at work would make another helper, and the two keep both cores
            # busy while one of them, and the caller, wait for each other on the same core
            swap(address, AT_WORK, WAITING)
            fetch_add(team.addresses.finished, 1)  # its caller may free the team now


helper = c_function(helper_loop, "tridiag_helper")


@compiled
def start(function, argument, helpers, small):
    """Ask helpers to call a function; fewer may come, which only slows the job down. Returns what `finish` takes.

    ``small``: as a job's.
    """
    memory, asked = malloc(types.uint64(TEAM_SIZE)), 0
    team = team_at(memory)
    most = min(helpers, MOST_THREADS)  # the second look may find places again whose helpers have ended since the first
    if memory == 0:
        return team
    team.finished = 0
    team.function, team.argument = function, argument
    works_for = interrupts.ask(interrupts.TEAM)
    team.works_for = works_for if works_for != 0 else interrupts.NOBODY
    team.calls = places() + system.line() * MOST_THREADS
    calls = calls_at(team.calls)
    soon, often = follow(calls, team)
    made, linger = often or small == 0, LINGER_ON if soon else LINGER
    for least in (WAITING, EMPTY if made else WAITING):  # who waits comes first, who waits since then second
        for k in range(MOST_THREADS):
            place = places() + system.line() * k
            if asked >= most:
                break
            state = word(place)
            if state < least or state > WAITING or not swap(place, state, memory):
                continue
            place_at(place).linger = linger
            failed = state == EMPTY and not placement.create(helper(0), place)
            if failed and swap(place, memory, EMPTY):
                break
            team.places[asked] = place
            asked += 1
            learn(calls, state == WAITING)
    team.asked = asked
    return team


@compiled
def finish(team):
    """Wait for the helpers that have begun."""
    memory = address_of(team)
    if memory == 0:
        return
    begun, left = team.asked, PATIENCE
    for k in range(team.asked):
        if swap(team.places[k], memory, EMPTY):
            begun -= 1
    while fetch_add(team.addresses.finished, 0) < begun:
        interrupts.stopping()  # this thread may be the one that hears of signals
        if left > 0:
            left -= 1
            system.sched_yield()
        else:
            system.usleep(types.uint32(50))
    calls_at(team.calls).latest = now(team)
    free(memory)


@compiled
def deal(job):
    """Counts for the shares of a job, as `tridiag.kernels.runtime.work_items` has them; none without memory."""
    count = job.helpers + 2
    job.shares = malloc(types.uint64(8 * count))
    for k in range(count if job.shares != 0 else 0):
        set_word(job.shares + 8 * k, 0)


@compiled
def run_task(job, zero):
    """Run the task of a job in helpers and in the calling thread; nothing where there is none."""
    job.shares = 0
    if job.task != 0 and job.helpers != 0:
        deal(job)
    if job.shares != 0:
        team = start(job.task, address_of(job), job.helpers, job.small)
        call(job.task, (job,))
        finish(team)
        free(job.shares)
    elif job.task != 0:
        call(job.task, (job,))
    free(job.owned)


task_runner = c_function(run_task, "tridiag_run_task", first=RecordAt(Job))


@compiled
def begin(job, helpers, zero):
    """Tell a job how many helpers it has, and this kernel whom to ask whether it is to end: `interrupts.ABOVE`."""
    job.helpers = helpers % interrupts.ABOVE
    if helpers >= interrupts.ABOVE:
        set_word(interrupts.watch(), helpers // interrupts.ABOVE)


beginning = c_function(begin, "tridiag_begin", 2, first=RecordAt(Job))


def runner(zero, task, prepare=None):
    """The C function void run(job, helpers) around the task of a kernel, and what prepares a job for it.

    It only calls C functions, which cannot raise: the code needs nothing of Numba's runtime. ``helpers``: as `begin`
    takes it.
    """
    prepared = prepare is not None
    define = definition(task, prepare) if prepared else definition(task)

    def run(job, helpers):
        define(zero)
        call(beginning(zero), (job, helpers))
        job_at(job).task = task(zero)
        if prepared:
            call(prepare(zero), (job,))
        call(task_runner(zero), (job,))

    return cfunc(types.void(types.int64, types.int64), error_model="numpy")(run)
