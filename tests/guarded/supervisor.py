"""The parent's side of a worker: it asks for cases, and finds out which one has crashed or hangs."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
STARTING = 300.0  # seconds that a worker may take to start; all kernels that a part always needs may be compiled then
TOLD = 3000  # characters of what a worker that died had to say
MOST = 2 << 30  # bytes of memory that a worker may keep; one that has more is ended after its stretch of cases


class Problem(NamedTuple):
    part: str
    seed: int
    kind: str  # "wrong", "crash SIGSEGV", "hang", or the name of an exception
    told: str
    drop: tuple[str, ...] = ()


class Sums(NamedTuple):
    """What a stretch of cases came to, and the bytes of memory that the worker has after it."""

    done: int
    kinds: Counter[str]
    systems: Counter[str]
    worst: dict[str, float]
    problems: list[Problem]
    bytes: int = 0


class Supervisor:
    """One worker of a part, started when it is needed, and again after it has died."""

    def __init__(self, part: str, module: str, limit: float, stop: threading.Event | None = None) -> None:
        self.part, self.module, self.limit = part, module, limit
        self.stop = stop or threading.Event()  # once it is set, the worker ends where it is
        self.process: subprocess.Popen[bytes] | None = None
        self.marks, self.errors = tempfile.NamedTemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self.unread = b""

    def start(self) -> None:
        self.errors.seek(0)
        self.errors.truncate()
        command = [sys.executable, str(HERE / "worker.py"), self.module, self.marks.name]
        self.unread, pipe = b"", subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self.errors, start_new_session=True)
        self.mark(-1)
        if self.answer(STARTING) is None and not self.stop.is_set():
            told = self.last_words()
            self.close()
            raise RuntimeError(f"the worker of {self.part} does not start: {told}")

    def run(self, first: int, step: int, last: int, until: float, drop: tuple[str, ...] = ()) -> Sums:
        """Cases from a seed on, until a time of `time.monotonic`, or until one kills the worker."""
        if self.process is None or self.process.poll() is not None:
            self.start()
        process, found = self.process, Sums(0, Counter(), Counter(), {}, [])
        assert process is not None and process.stdin is not None
        self.mark(first)
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps([first, step, last, until, drop]).encode() + b"\n")
            process.stdin.flush()
        while True:
            answer = self.answer(self.limit)
            if answer is None:
                if self.stop.is_set():
                    self.close()
                    return found._replace(done=sum(found.kinds.values()) + len(found.problems))
                seed = self.seed()
                found.problems.append(Problem(self.part, seed, self.end(), self.last_words(), drop))
                return found._replace(done=len(range(first, seed, step)) + 1)
            if "problem" in answer:
                found.problems.append(Problem(self.part, answer["problem"], answer["kind"], answer["told"], drop))
                continue
            found.kinds.update(answer["kinds"])
            found.systems.update(answer["systems"])
            found.worst.update(answer["worst"])
            if "done" in answer:
                if answer["bytes"] > MOST:
                    self.close()
                return found._replace(done=answer["done"], bytes=answer["bytes"])

    def answer(self, limit: float) -> dict[str, Any] | None:
        """The next line of the worker; None when it is dead, or has been at one case for too long, or is to stop."""
        assert self.process is not None and self.process.stdout is not None
        pipe = self.process.stdout.fileno()
        begun = time.monotonic()
        while b"\n" not in self.unread:
            if select.select([pipe], [], [], 0.2)[0]:
                got = os.read(pipe, 1 << 16)
                if not got:
                    return None
                self.unread += got
            elif self.stop.is_set() or time.monotonic() - max(begun, self.since()) > limit:
                return None
        line, self.unread = self.unread.split(b"\n", 1)
        found: dict[str, Any] = json.loads(line)
        return found

    def end(self) -> str:
        """Kill what is left of the worker; how it died."""
        assert self.process is not None
        try:
            code = self.process.wait(1)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # it tells where it is
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5)
            self.close()
            return "hang"
        self.close()
        return f"crash {signal.Signals(-code).name}" if code < 0 else f"exit {code}"

    def close(self) -> None:
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()
        self.process = None

    def last_words(self) -> str:
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace")[-TOLD:]

    def cpu(self) -> float:
        """Seconds that the worker, if there is one, and children of it that have ended, have run."""
        try:
            with open(f"/proc/{self.process.pid if self.process else 0}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")

    def mark(self, seed: int) -> None:
        os.pwrite(self.marks.fileno(), f"{seed:20d} {time.monotonic():20.3f}\n".encode(), 0)

    def seed(self) -> int:
        return int(os.pread(self.marks.fileno(), 20, 0))

    def since(self) -> float:
        return float(os.pread(self.marks.fileno(), 42, 0).split()[1])
