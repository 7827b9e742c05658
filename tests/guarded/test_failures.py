"""Memory that runs out, threads that do not start, processes that end or are killed: one of each kind in every run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import run_program, run_together, running, wait_until_ready

pytest.importorskip("numba")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs mmap and signals as Linux has them")
CAMPAIGN = Path(__file__).parent / "campaign.py"
CASES = """
import sys, warnings
import numpy as np
from guarded.failing_calls import CALLS, same
from tridiag.kernels.jobs import systems
systems.threads = lambda: 4
rng = np.random.default_rng(0)
calls = {name: make(rng, True) for name, make in CALLS.items()}
wanted = {name: call() for name, call in calls.items()}
"""


def program(text: str, *arguments: str, **environment: str) -> str:
    """What a program prints that has a call of each verb, and its results."""
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    return run_program(CASES + text, *arguments, PYTHONPATH=path, **environment)


def campaign(folder: Path, *options: str) -> dict[str, Any]:
    output = folder / "summary.json"
    command = [sys.executable, str(CAMPAIGN), "--parts", "failures=guarded.failures", "--output", str(output), *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    summary: dict[str, Any] = json.loads(output.read_text())["parts"]["failures"]
    return summary


def test_one_trouble_of_each_kind(tmp_path: Path) -> None:
    """The same cases in every run."""
    summary = campaign(tmp_path, "--seconds", "300", "--cases", "6", "--workers", "1")
    assert summary["cases"] == 6 and len(summary["cases by kind"]) == 6


# ------------------------------------------------------------------------------------------ the end of the interpreter

BUSY = """
import threading, time
from tridiag.kernels.jobs import systems
d = np.ones((4000, 200))
def work():
    import tridiag
    while True:
        tridiag.solve(1.0, 4.0, 1.0, d)
        tridiag.logcumsumexp(d)
threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
[thread.start() for thread in threads]
time.sleep(0.2)
"""
ENDS = {
    "the main thread ends": "",
    "sys.exit": "sys.exit(0)",
    "calls at exit": "import atexit; atexit.register(lambda: print(same(calls['solve'](), wanted['solve'])))",
    "calls of threads at exit": (
        "import atexit\n"
        "def last():\n"
        "    x = threading.Thread(target=lambda: print(same(calls['recurrence'](), wanted['recurrence'])))\n"
        "    x.start()\n"
        "    x.join()\n"
        "threading._register_atexit(last)"
    ),
    "os._exit": "sys.stdout.flush(); os._exit(0)",
}
AT_ONCE = "sys.exit", "calls at exit"


@pytest.mark.parametrize("end", [pytest.param(end, marks=[] if end in AT_ONCE else pytest.mark.slow) for end in ENDS])
def test_the_interpreter_ends_while_threads_are_in_kernels(end: str) -> None:
    """Daemon threads are in kernels when it goes: it goes, at once and with its own status."""
    printed = program("import os\n" + BUSY + ENDS[end])
    assert printed == ("True" if "calls" in end else "")


# --------------------------------------------------------------------------------------------------- short of memory

SHORT = """
import resource
used = 4096 * int(open("/proc/self/statm").read().split()[0])
problems, refused = [], 0
for room in (0, 2**14, 2**16, 2**18, 2**20):
    for name, call in calls.items():
        resource.setrlimit(resource.RLIMIT_AS, (used + room, -1))
        try:
            found = call()
        except MemoryError:
            refused += 1
            found = wanted[name]
        except RuntimeError as error:  # CPython's own threads
            found = wanted[name] if "can't start new thread" in str(error) else [error]
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
        if not same(found, wanted[name]) or not same(call(), wanted[name]):
            problems.append(f"{room} {call}")
print(problems)
"""


def test_every_verb_short_of_address_space() -> None:
    """As a container or a batch system limits it: right, or MemoryError, and right again when there is room."""
    assert program(SHORT) == "[]"


def debugging_malloc() -> str | None:
    """The library of glibc that checks its heap, and is a separate one from 2.34 on."""
    found = shutil.which("ldconfig") or "/sbin/ldconfig"
    try:
        told = subprocess.run([found, "-p"], capture_output=True, text=True).stdout
    except OSError:
        return None
    paths = [line.split("=> ")[1] for line in told.splitlines() if "libc_malloc_debug.so" in line and "=> " in line]
    return paths[0] if paths else None


def test_a_heap_that_is_checked() -> None:
    """Fresh and freed memory is full of rubbish, and glibc looks whether blocks were overrun."""
    library = debugging_malloc()
    environment = {"LD_PRELOAD": library, "MALLOC_CHECK_": "3"} if library else {}
    text = "print([str(call) for name, call in calls.items() for _ in range(3) if not same(call(), wanted[name])])"
    assert program(text, MALLOC_PERTURB_="165", **environment) == "[]"


# ----------------------------------------------------------------------------------------------- kernels on the disk

FILL = """
import ctypes, sys
import numpy as np
import tridiag
print("ready", flush=True)
sys.stdin.readline()
a, x = np.full((5, 9), 0.5), np.ones((5, 9))
print(float(abs(tridiag.linear_recurrence(a, x)[:, -1] - 1.99609375).max()))
"""


def only_here(folder: Path) -> dict[str, str]:
    return {name: str(folder) for name in ("NUMBA_CACHE_DIR", "HOME", "XDG_CACHE_HOME", "LOCALAPPDATA")}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the kernels of a recurrence."""
    folder = tmp_path_factory.mktemp("filled")
    assert run_together(1, FILL, **only_here(folder)) == ["0.0"]
    return folder


def kernels(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and ".kernel" in path.name)


@pytest.mark.slow
def test_real_kernels_that_are_damaged_at_random(filled: Path, tmp_path: Path) -> None:
    """Bits, ends, swapped files: each damaged file is replaced by processes that start together, all right."""
    rng = np.random.default_rng(0)
    for _ in range(2):
        folder = tmp_path / str(rng.integers(10**9))
        shutil.copytree(filled, folder)
        files = kernels(folder)
        assert files
        for file in files:
            content = bytearray(file.read_bytes())
            for at in rng.integers(0, len(content), rng.integers(1, 5)):
                content[at] ^= 1 << int(rng.integers(8))
            file.write_bytes(content[: rng.integers(len(content) // 2, len(content) + 1)])
        found = run_together(2, FILL, **only_here(folder))
        assert found == ["0.0", "0.0"]
        assert run_together(1, FILL, **only_here(folder)) == ["0.0"]


@pytest.mark.slow
def test_processes_that_are_killed_while_they_fill_a_folder(tmp_path: Path) -> None:
    """At any moment: what is left harms nobody, and does not grow for ever."""
    rng = np.random.default_rng(1)
    for _ in range(2):
        with running(FILL, **only_here(tmp_path)) as process:
            wait_until_ready(process)
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
            time.sleep(float(rng.uniform(0.5, 12)))
            process.send_signal(signal.SIGKILL)
            process.wait()
    assert run_together(1, FILL, **only_here(tmp_path)) == ["0.0"]
    assert len(kernels(tmp_path)) < 10


@pytest.mark.slow
def test_a_disk_that_is_full_for_real_kernels(tmp_path: Path) -> None:
    """Files that cannot be written to their ends are taken away; what is small enough is kept."""
    limit = "import tridiag, resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"
    text = FILL.replace("import tridiag", limit)
    assert run_together(1, text, **only_here(tmp_path)) == ["0.0"]
    assert all(path.stat().st_size <= 20_000 and path.suffix == ".kernel" for path in kernels(tmp_path))
    assert run_together(1, FILL, **only_here(tmp_path)) == ["0.0"]
