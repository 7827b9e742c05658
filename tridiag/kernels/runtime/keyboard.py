"""Ctrl-C while a kernel is compiled: LLVM calls Python back, and ctypes drops what is raised in such a call."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

CALLED_BACK = "_raw_object_cache"  # functions of llvmlite whose names begin so


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """What Ctrl-C does, it does at once, or at the end of the body where it came while LLVM was at work."""
    usual = signal.getsignal(signal.SIGINT)
    if not callable(usual) or threading.current_thread() is not threading.main_thread():
        yield
        return
    dropped: list[tuple[Any, ...]] = []

    def handler(number: int, frame: FrameType | None) -> None:
        if is_called_back(frame):
            dropped.append((number, frame))
        else:
            usual(number, frame)

    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if dropped:
        usual(*dropped[0])


def is_called_back(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_name.startswith(CALLED_BACK):
        frame = frame.f_back
    return frame is not None
