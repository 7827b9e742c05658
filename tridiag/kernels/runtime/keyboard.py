"""Ctrl-C where it must wait: while LLVM's objects change hands, and where Python drops what is raised.

Who takes a module over tells its former owner after LLVM's call, and both free it if that call is the last. In
destructors and callbacks, as LLVM's and those of the garbage collector, Python drops whatever is raised.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

SOON = 0.01  # seconds
LLVM = os.path.join("llvmlite", "binding", "")  # where the code lies that calls LLVM


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Within the body, Ctrl-C that must wait comes again soon, until it is heard."""
    usual = signal.getsignal(signal.SIGINT)
    if not callable(usual) or threading.current_thread() is not threading.main_thread():
        yield
        return

    def handler(number: int, frame: FrameType | None) -> None:
        if is_in_llvm(frame):
            press_soon()
        else:
            usual(number, frame)

    said = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            press_soon()
        else:
            said(unraisable)

    signal.signal(signal.SIGINT, handler)
    sys.unraisablehook = hook
    try:
        yield
    except KeyboardInterrupt as error:
        forget_handler(error)
        raise
    finally:
        sys.unraisablehook = said
        signal.signal(signal.SIGINT, usual)


def forget_handler(error: KeyboardInterrupt) -> None:
    """Take the frames of this module out of its traceback: it shows where the work was, as without a handler."""
    place = error.__traceback__
    while place is not None and (after := place.tb_next) is not None:
        if after.tb_frame.f_code.co_filename == __file__:
            place.tb_next = after.tb_next
        else:
            place = after


def is_in_llvm(frame: FrameType | None) -> bool:
    while frame is not None and LLVM not in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None


def press_soon() -> None:
    again = threading.Timer(SOON, _thread.interrupt_main)
    again.daemon = True
    again.start()
