"""What is said to someone at a terminal who waits while a kernel is compiled: once a process, on the error stream."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

AFTER = 2.0  # seconds of silence

_said = False


@contextlib.contextmanager
def waiting(kernel: str, kept_in: Path | None) -> Iterator[None]:
    """Where the body takes longer than that, say what is compiled, where it is kept and how that is done ahead."""
    if _said or not at_terminal():
        yield
        return
    timer = threading.Timer(AFTER, say, (kernel, kept_in))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def say(kernel: str, kept_in: Path | None) -> None:
    global _said
    if _said:
        return
    _said = True
    kept = kept_in or "nowhere, as no folder can be written: see NUMBA_CACHE_DIR"
    print(
        f"tridiag: {kernel} is compiled for this processor, once, which takes 10 to 20 s, as for each verb and dtype; "
        f"kept in {kept}. Ahead of time: python -m tridiag compile",
        file=sys.stderr,
        flush=True,
    )


def silence() -> None:
    """Say nothing: who compiles knows."""
    global _said
    _said = True


def at_terminal() -> bool:
    """Whether somebody reads the error stream; it may be closed, or none."""
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False
