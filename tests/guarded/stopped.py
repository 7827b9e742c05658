"""A part of the campaign: kernels that are told to end, as Ctrl-C does, at one of the places where they ask.

A kernel leaves its loops then with anything in its scratch memory and its results. It may not touch memory that is none
of theirs, wait for ever, or keep a block; and the same call after it is right.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numba import cfunc, types

from guarded import Ran, failures, scratch
from guarded.failing_calls import CALLS, Call
from guarded.memory import Layout, Rooms, plain
from tridiag.kernels import table
from tridiag.kernels.simd.interrupts import ABOVE, POLL
from tridiag.kernels.simd.memory import fetch_add

SIMPLER, LIMIT, WEIGHT = ("threads", "size"), 300.0, 0.3
NEVER = 2**62
EACH, SOME = 12, 12  # places where a kernel asks, from the first on, and later ones
_left = np.array([NEVER], np.int64)  # how many times it is answered that the kernel may go on
_answering: list[Any] = []
_rooms = Rooms()


def start() -> None:
    """From now on all kernels ask us, in the place of `tridiag.kernels.runtime.python_entry.attend`."""
    scratch.install()
    left = int(_left.ctypes.data)

    def attend(order):  # type: ignore[no-untyped-def]
        if order != POLL:
            return NEVER  # a job, of which helpers are told
        return 1 if fetch_add(left, -1) <= 0 else 0

    _answering.append(cfunc(types.int64(types.int64), error_model="numpy", nopython=True)(attend))
    calls: Any = table
    calls.function = asking(calls.function, _answering[0].address * ABOVE)


class Stopped(Exception):
    """A kernel was told to end."""


def asking(function: Callable[..., Any], whom: int) -> Callable[..., Any]:
    def made(kernel: int, words: Any, helpers: int, unknowns: int) -> Any:
        enter = function(kernel, words, helpers + whom, unknowns)

        def entered(*arrays: Any) -> int:
            result: int = enter(*arrays)
            if _left[0] <= 0:
                raise Stopped
            return result

        entered.__self__ = enter.__self__  # type: ignore[attr-defined]  # the words that a table of calls copies
        return entered

    return made


@contextlib.contextmanager
def stopping(after: int) -> Iterator[None]:
    """Kernels that have asked so many times end where they ask again."""
    _left[0] = after
    try:
        yield
    finally:
        _left[0] = NEVER


def run(seed: int, drop: frozenset[str] = frozenset()) -> Ran:
    rng = np.random.default_rng(seed)
    name = list(CALLS)[seed % len(CALLS)]
    with failures.threads(1 if "threads" in drop else int(rng.choice(failures.THREADS))):
        scratch.begin(at_begin=bool(rng.random() < 0.3))
        call = CALLS[name](rng, "size" in drop)
        try:
            stop_everywhere(call.moved(guarded(bool(rng.random() < 0.5))), rng)
        except AssertionError as error:
            raise AssertionError(f"{error}\n    {call}, {failures.systems.threads()} threads") from error
        finally:
            _rooms.give_back()
    return Ran(name)


def guarded(behind: bool) -> Callable[[Any], Any]:
    """What copies an operand to pages that cannot be written, where it begins or ends with them."""

    def move(x: Any) -> Any:
        usual = plain(x.ndim, behind)
        held = _rooms.copy(x, Layout(tuple(np.argsort([-s for s in x.strides], kind="stable")), *usual[1:]))
        held.lock()
        return held.array

    return move


def stop_everywhere(call: Call, rng: np.random.Generator) -> None:
    with stopping(NEVER):
        wanted = outcome(call) or []
        asked = NEVER - int(_left[0])
    later = sorted(rng.integers(EACH, asked, SOME)) if asked > EACH else []
    for k in [*range(min(asked, EACH)), *map(int, later)]:
        with stopping(k):
            outcome(call)
        scratch.check()
        failures.expect(call, outcome(call), wanted, f"after a call that had asked {k} of {asked} times")
        scratch.check()


def outcome(call: Call) -> list[Any] | None:
    """The results, in pages of their own; None of a call that has ended early."""
    with scratch.arrays(), contextlib.suppress(Stopped):
        return call()
    return None


def describe(seed: int, drop: frozenset[str] = frozenset()) -> str:
    return f"stopped: {list(CALLS)[seed % len(CALLS)]}"
