"""A part of the campaign: memory that runs out, threads that do not start, change operands, fork or are interrupted.

A case is one verb, or several at once, and one kind of trouble. What comes out is right or `MemoryError`, and the next
call is right; only where operands are changed meanwhile anything may come out, and nothing else may happen.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from guarded import Ran, refusals, scratch
from guarded.failing_calls import CALLS, Call, same
from guarded.memory import Rooms
from tridiag.kernels.jobs import systems

SIMPLER = ("threads", "size")
LIMIT = 300.0
WEIGHT = 0.5
THREADS = (1, 2, 3, 4, 9)
PATIENCE = 60  # seconds that a child may take
EACH, SOME = 40, 10  # blocks that are refused, from the first on, and later ones
CHANGES = 0.2  # seconds for which operands change
NESTED = 3  # handlers of signals in handlers


def start() -> None:
    scratch.install()
    refusals.install()


def run(seed: int, drop: frozenset[str] = frozenset()) -> Ran:
    rng = np.random.default_rng(seed)
    kind, name = list(KINDS)[seed % len(KINDS)], str(rng.choice(list(CALLS)))
    with threads(1 if "threads" in drop else int(rng.choice(THREADS))):
        call = CALLS[name](rng, "size" in drop)
        try:
            KINDS[kind](call, rng)
        except AssertionError as error:
            raise AssertionError(f"{kind}: {error}\n    {call}, {systems.threads()} threads") from error
        finally:
            scratch.begin()
            refusals.begin()
    return Ran(kind)


def describe(seed: int, drop: frozenset[str] = frozenset()) -> str:
    rng = np.random.default_rng(seed)
    return f"{list(KINDS)[seed % len(KINDS)]}: {rng.choice(list(CALLS))}"


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    before = systems.threads
    systems.threads = lambda: count
    try:
        yield
    finally:
        systems.threads = before


# ---------------------------------------------------------------------------------------------- memory that runs out


def allocations(call: Call, rng: np.random.Generator) -> None:
    """Each block that the kernels ask for is refused, alone, and with all after it; of very many some."""
    wanted = call()
    scratch.check()  # what a kernel has put by for the next call counts as too small from here on
    scratch.begin()
    call()
    asked = scratch.asked()
    later = rng.integers(EACH + 1, asked + 2, SOME) if asked > EACH else []
    for k in [*range(1, min(asked, EACH) + 2), *map(int, later)]:
        for all_after in (False, True):
            scratch.begin(bool(rng.random() < 0.5), k, all_after)
            found = outcome(call)
            scratch.begin()
            expect(call, found, wanted, f"block {k} of {asked} refused{', and all after it' if all_after else ''}")
            scratch.check()
    expect(call, call(), wanted, "the call after")
    scratch.check()


def outcome(call: Call) -> list[Any] | None:
    """The results, or None where memory has run out."""
    try:
        return call()
    except MemoryError:
        return None
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}") from error


def expect(call: Call, found: list[Any] | None, wanted: list[Any], when: str) -> None:
    if found is not None and not same(found, wanted):
        raise AssertionError(f"wrong, {when}")


def helpers(call: Call, rng: np.random.Generator) -> None:
    """No thread can be started, or only a few."""
    wanted = call()
    for k in range(1, 12):
        refusals.begin(k)
        found = call()
        refused = refusals.refused()
        refusals.begin()
        expect(call, found, wanted, f"threads refused from the {k}th on")
        if not refused:
            break
        time.sleep(0.002)  # helpers that wait for another job end
    expect(call, call(), wanted, "the call after")


# ------------------------------------------------------------------------------------------------- other threads


def concurrent(call: Call, rng: np.random.Generator) -> None:
    """Several verbs, in several threads each, at once."""
    calls = [call, *(CALLS[str(name)](rng, False) for name in rng.choice(list(CALLS), 5))]
    wanted = [each() for each in calls]
    wrong: list[str] = []
    begin = threading.Barrier(len(calls) * 2)

    def work(k: int) -> None:
        begin.wait()
        try:
            for _ in range(5):
                if not same(calls[k](), wanted[k]):
                    wrong.append(f"wrong: {calls[k]}")
        except Exception as error:
            wrong.append(f"{calls[k]}: {error!r}")

    together = [threading.Thread(target=work, args=(k % len(calls),)) for k in range(2 * len(calls))]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    assert not wrong, wrong


def changing(call: Call, rng: np.random.Generator) -> None:
    """Operands that end where memory does, and change while the kernels read them: any numbers, any lengths."""
    rooms = Rooms(most=0)
    moving = call.moved(lambda x: rooms.copy(x).array)
    operands = [x for x in moving.operands if x.size and x.flags.writeable]
    saved, stop = [x.copy() for x in operands], threading.Event()
    scrap = [rng.integers(0, 256, x.nbytes, np.uint8).view(x.dtype).reshape(x.shape) for x in operands]

    def change() -> None:
        while not stop.is_set():
            for x, wild, usual in zip(operands, scrap, saved, strict=True):
                x[...] = wild
                x[...] = 0
                x[...] = usual

    thread, until = threading.Thread(target=change), time.monotonic() + CHANGES
    thread.start()
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            while time.monotonic() < until:
                with contextlib.suppress(ValueError, np.linalg.LinAlgError, MemoryError):
                    moving()
    finally:
        stop.set()
        thread.join()
    rooms.give_back()
    scratch.check()
    call()


# ---------------------------------------------------------------------------------------------- signals, processes


def signals(call: Call, rng: np.random.Generator) -> None:
    """A timer interrupts the kernels, whose handler may itself call a verb."""
    wanted, other, heard = call(), CALLS["recurrence"](rng, True), [0]
    depth, expected = [0], other()

    def hear(*arguments: Any) -> None:
        """Interrupted itself, a few deep: on a busy machine the timer is faster than the handler."""
        heard[0] += 1
        if depth[0] == NESTED:
            return
        depth[0] += 1
        try:
            assert same(other(), expected), "wrong in a handler"
        finally:
            depth[0] -= 1

    before = signal.signal(signal.SIGALRM, hear)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
        until = time.monotonic() + CHANGES
        while time.monotonic() < until:
            expect(call, call(), wanted, "with a timer")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert heard[0], "no signal came"


def forks(call: Call, rng: np.random.Generator) -> None:
    """Children made while other threads are in kernels: each calls the same verbs."""
    other, stop = CALLS[str(rng.choice(list(CALLS)))](rng, False), threading.Event()
    wanted, expected = call(), other()

    def work() -> None:
        while not stop.is_set():
            other()

    def right() -> bool:
        return same(call(), wanted) and same(other(), expected)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        found = [forked(right) for _ in range(3)]
    finally:
        stop.set()
        thread.join()
    assert found == [0, 0, 0], f"children ended with {found}"
    assert right(), "wrong after forks"


def forked(work: Callable[[], bool]) -> int:
    """How a child ends: 0 where its work comes out true."""
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of forks in a process with threads
        child = os.fork()
    if child == 0:
        status = 2
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(PATIENCE)
            status = 0 if work() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


KINDS: dict[str, Callable[[Call, np.random.Generator], None]] = {
    "allocations": allocations,
    "helpers": helpers,
    "concurrent": concurrent,
    "changing": changing,
    "signals": signals,
    "forks": forks,
}
