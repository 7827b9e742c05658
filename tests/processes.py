"""Programs that run in processes of their own, where they may hang, crash or be killed without ending the tests."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator

DEADLINE = 500  # seconds; a program that hangs tells where every thread of it is

PREAMBLE = f"""
import faulthandler
faulthandler.dump_traceback_later({DEADLINE}, exit=True)
"""


@contextlib.contextmanager
def started(*command: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A process of Python; at the end nothing is left of it and its children, whatever has become of the test."""
    pipe, given = subprocess.PIPE, {**os.environ, **environment}
    with subprocess.Popen(
        [sys.executable, *command], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=given, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            end(process)


@contextlib.contextmanager
def running(program: str, *arguments: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """A fresh process in which every warning is an error."""
    with started("-W", "error", "-c", PREAMBLE + program, *arguments, **environment) as process:
        yield process


def end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # there is none
        os.killpg(process.pid, signal.SIGKILL) if hasattr(os, "killpg") else process.kill()


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    """Until the program prints "ready"."""
    assert process.stdout is not None
    told = process.stdout.readline()
    assert told == "ready\n", told + finish(process)


def finish(process: subprocess.Popen[str], answer: str = "") -> str:
    """What the program prints after it has read the answer; it may not hang, warn, or end otherwise than by itself."""
    try:
        output, errors = process.communicate(answer, timeout=DEADLINE + 30)
    except subprocess.TimeoutExpired:
        end(process)
        output, errors = process.communicate()
    assert process.returncode == 0, f"status {process.returncode}; {output}{errors}"
    return output.strip()


def run_program(program: str, *arguments: str, **environment: str) -> str:
    """What a program prints."""
    with running(program, *arguments, **environment) as process:
        return finish(process)


def run_together(count: int, program: str, *arguments: str, **environment: str) -> list[str]:
    """What so many processes print after "ready", when all have said so and then read a line: they go on at once."""
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(running(program, *arguments, **environment)) for _ in range(count)]
        for process in processes:
            wait_until_ready(process)
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        return [finish(process) for process in processes]
