"""Ctrl-C where Python drops what it raises: in a destructor, a callback of the garbage collector, a call from LLVM."""

from __future__ import annotations

import _thread
import contextlib
import sys
import threading
from collections.abc import Iterator

SOON = 0.01  # seconds


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C that is dropped within the body comes again soon, until it is heard."""
    if threading.current_thread() is not threading.main_thread():  # which alone hears it
        yield
        return
    usual = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            again = threading.Timer(SOON, _thread.interrupt_main)
            again.daemon = True
            again.start()
        else:
            usual(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = usual
