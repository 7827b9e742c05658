"""A part whose cases are mistakes, one a seed: what a campaign must report, see `guarded.test_guarded`."""

from __future__ import annotations

import ctypes
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numpy as np

import tridiag
from guarded import Ran, scratch, sequences
from guarded.draw import Draw

SIMPLER = ("threads", "n/2", "layout")
LIMIT = 5.0
right = tridiag.linear_recurrence


class Chosen(Draw):
    """A recurrence of first order that is written to an array of the caller's, with gaps around it."""

    def chance(self, aspect: str, share: float, drop: str | None = None) -> bool:
        never = ("planted", "zeros", "final", "init", "half", "whole numbers")
        return aspect == "out" or (aspect not in never and super().chance(aspect, share, drop))

    def choose(self, aspect: str, among: Any, drop: str | None = None) -> Any:
        return {"verb of sequences": "linear_recurrence", "order": 1, "dtype": "float64"}.get(aspect, among[0])

    def sizes(self, most: int = 3000, longest: int = 2000) -> tuple[int, tuple[int, ...]]:
        return 9, (5,)


def at(x: np.ndarray[Any, Any], entries: int) -> int:
    """The address of what lies so many entries, of 8 bytes, from the first or behind the last."""
    low, high = np.lib.array_utils.byte_bounds(x)
    return int(low + 8 * entries if entries < 0 else high + 8 * (entries - 1))


def near(x: np.ndarray[Any, Any]) -> int:
    """The end of the array that lies within its pages, not at theirs."""
    return -1 if at(x, 1) % 4096 == 0 else 1


def write(address: int) -> None:
    ctypes.memset(address, 1, 8)


def block(size: int) -> int:
    function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_uint64)
    return int(function(llvm.address_of_symbol("malloc"))(size))


def free(address: int) -> None:
    ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(llvm.address_of_symbol("free"))(address)


def overflow(by: int) -> None:
    """Write so many bytes behind a block of 40."""
    memory = block(40)
    ctypes.memset(memory + 40, 1, by)
    free(memory)


def wrong(y: np.ndarray[Any, Any]) -> None:
    y[(-1,) * y.ndim] *= 1 + 1e-13


MISTAKES: dict[str, tuple[str, Callable[..., Any]]] = {
    "nothing is wrong": ("", lambda a, x, y: None),
    "writes beside the result": ("wrong: 8 bytes beside out", lambda a, x, y: write(at(y, near(y)))),
    "a number that is hardly wrong": ("wrong: 1 of 45 values", lambda a, x, y: wrong(y)),
    "an entry that is not written": ("wrong: 1 of 45 values", lambda a, x, y: y.__setitem__((2, 3), np.nan)),
    "scratch memory overflows a little": ("wrong: scratch memory", lambda a, x, y: overflow(4)),
    "scratch memory is lost": ("wrong: scratch memory", lambda a, x, y: block(100)),
    "raises": ("ZeroDivisionError", lambda a, x, y: 1 / 0),
    "warns": ("UserWarning", lambda a, x, y: warnings.warn("so", stacklevel=1)),
    "writes an argument": ("crash SIGSEGV", lambda a, x, y: write(x.ctypes.data)),
}
QUICK = len(MISTAKES)  # those for which workers start twice only
MISTAKES |= {
    "writes far behind the result": ("crash SIGSEGV", lambda a, x, y: write(at(y, 1 if near(y) < 0 else -1))),
    "reads beyond an argument": ("crash SIGSEGV", lambda a, x, y: ctypes.string_at(at(x, 1 if near(x) < 0 else -1), 8)),
    "ends the process": ("exit 3", lambda a, x, y: os._exit(3)),
    "aborts": ("crash SIGABRT", lambda a, x, y: os.abort()),
    "hangs": ("hang", lambda a, x, y: time.sleep(1000)),
    "scratch memory overflows": ("crash SIGSEGV", lambda a, x, y: overflow(9)),
}


def start() -> None:
    scratch.install()
    run(0)  # what has to be compiled takes longer than a case may


def run(seed: int, drop: frozenset[str] = frozenset()) -> Ran:
    _, mischief = list(MISTAKES.values())[seed % len(MISTAKES)]

    def fake(a: Any, x: Any, *more: Any, **options: Any) -> Any:
        y = right(a, x, *more, **options)
        mischief(a, x, y)
        return y

    case = Chosen(seed, drop | {"broadcast", "axes"})
    case.machine()
    scratch.begin()  # blocks end with their pages
    tridiag.linear_recurrence = fake
    try:
        return sequences.run(case, "numpy")
    except AssertionError as error:
        raise AssertionError(f"{error}; {'; '.join(case.words)}") from None
    finally:
        tridiag.linear_recurrence = right
        case.give_back()


def describe(seed: int, drop: frozenset[str] = frozenset()) -> str:
    return list(MISTAKES)[seed % len(MISTAKES)]
