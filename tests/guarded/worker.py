"""A worker: runs the cases of one part, one after another, in a process that may crash or hang.

It reads seeds from its standard input, and what is dropped from them, and writes an answer for each to its standard
output. What the cases themselves print goes to standard error.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import io
import json
import mmap
import os
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

TOLD = 4000  # characters of a message, and frames of a traceback
FRAMES = 4
OFTEN = 2.0  # seconds from one sum to the next, which are all that a crash loses


def main(module: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    faulthandler.enable()
    warnings.simplefilter("error")
    part: Any = importlib.import_module(module)
    part.start()
    tell(answers, ready=True)
    for line in sys.stdin:
        first, step, last, until, drop = json.loads(line)
        run_some(part, range(first, last, step), until, frozenset(drop), answers)


def run_some(part: Any, seeds: range, until: float, drop: frozenset[str], answers: io.TextIOBase) -> None:
    """Run seeds until a time of `time.monotonic`; tell problems at once, and the sums now and then, and at last."""
    kinds: Counter[str] = Counter()
    systems: Counter[str] = Counter()
    worst: dict[str, float] = {}
    done, told = 0, time.monotonic()
    for now in seeds:
        if time.monotonic() > until:
            break
        mark(now)
        try:
            ran = part.run(now, drop) if drop else part.run(now)
        except Exception as error:
            tell(answers, problem=now, kind=kind_of(error), told=message_of(error))
        else:
            name = f"{ran.kind} {ran.library}"
            kinds[name] += 1
            systems[name] += ran.systems
            worst[name] = max(worst.get(name, 0.0), ran.worst)
        done += 1
        if time.monotonic() - told > OFTEN:
            tell(answers, kinds=kinds, systems=systems, worst=worst)
            told = time.monotonic()
            kinds.clear()
            systems.clear()
    mark(-1)
    tell(answers, done=done, kinds=kinds, systems=systems, worst=worst, bytes=memory())


def memory() -> int:
    """Bytes of main memory that the process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def mark(seed: int) -> None:
    """Leave which seed is under way, and since when, where the parent finds it even after a crash."""
    os.pwrite(MARKS, f"{seed:20d} {time.monotonic():20.3f}\n".encode(), 0)


def kind_of(error: Exception) -> str:
    """A wrong answer, or the exception that should not have been."""
    if isinstance(error, AssertionError):
        cause = error.__cause__
        return "wrong" if cause is None or isinstance(cause, AssertionError) else type(cause).__name__
    return type(error).__name__


def message_of(error: Exception) -> str:
    cause = error.__cause__ or error
    told = f"{error}"[:TOLD]
    if isinstance(cause, AssertionError):
        return told
    return told + "\n" + "".join(traceback.format_tb(cause.__traceback__)[-FRAMES:])


def tell(answers: Any, **facts: Any) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(json.dumps(facts), file=answers, flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    MARKS = os.open(sys.argv[2], os.O_RDWR)
    main(sys.argv[1])
