"""Kernels that are compiled ahead, and what is said to somebody who waits for one at a terminal."""

import ctypes
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from processes import started

import tridiag
from tridiag import commands, kalman
from tridiag.kernels import ahead
from tridiag.kernels.runtime import notice, object_cache
from tridiag.kernels.table import KERNELS, name_of
from tridiag.verbs import VERBS


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def system(shape: tuple[int, ...], sides: tuple[int, ...] | None = None) -> tuple[Any, ...]:
    a, c, d = (rng().standard_normal(lengths) for lengths in (shape, shape, sides or shape))
    return a, np.abs(a) + np.abs(c) + 1, c, d


def blocks(count: int) -> tuple[Any, ...]:
    a, b, c = (rng().standard_normal((count, 5, 2, 2)) + shift * np.eye(2) for shift in (0, 9, 0))
    return a, b, c, rng().standard_normal((count, 5, 2))


def model(states: int = 2) -> dict[str, Any]:
    eye = np.eye(states)
    return {"F": eye / 2, "H": eye[:1], "Q": eye, "R": np.eye(1), "m0": eye[0], "P0": eye}


# of a size that kernels are written out for, of one that they are not, and of states that are unknown at first
MODELS = model(), model(9), model() | {"P0": np.diag([np.inf, 1])}


def series(*missing: int) -> Any:
    y = rng().standard_normal((3, 10, 1))
    y[0, list(missing)] = np.nan
    return y


X = rng().standard_normal((8, 9))
CALLS: dict[str, tuple[Callable[[], Any], ...]] = {
    "solve": (
        lambda: tridiag.solve(*system((8, 9))),
        lambda: tridiag.solve(*system((40, 4000)), axis=0),
        lambda: tridiag.solve(*system((90_000, 8)), axis=0),
        lambda: tridiag.solve(*system((8, 9)), pivoting=True),
        lambda: tridiag.solve(*system((8, 9)), periodic=True),
        lambda: tridiag.solve(*system((9,), (100, 9))),
        lambda: tridiag.solve(*system((100, 1, 9), (100, 3, 9))),
        lambda: tridiag.solve(*system((1_000_000,))),
    ),
    "factor": (
        lambda: tridiag.factor(*system((9,))[:3]).solve(np.ones(9)),
        lambda: tridiag.factor(*system((800, 9))[:3]).solve(np.ones((800, 9))),
    ),
    "slogdet": (lambda: tridiag.slogdet(*system((8, 9))[:3]), lambda: tridiag.slogdet(*system((9,))[:3])),
    "matmul": (lambda: tridiag.matmul(*system((8, 9))),),
    "solve_block": (lambda: tridiag.solve_block(*blocks(3)), lambda: tridiag.solve_block(*blocks(1))),
    "linear_recurrence": (
        lambda: tridiag.linear_recurrence(X / 9, X),
        lambda: tridiag.linear_recurrence(0.5, X),
        lambda: tridiag.linear_recurrence((X / 9, X / 9), X),
        lambda: tridiag.linear_recurrence((0.5, 0.1), X),
    ),
    "matrix_recurrence": (lambda: tridiag.matrix_recurrence(np.eye(2), X.reshape(-1, 4, 2)),),
    "log_linear_recurrence": (lambda: tridiag.log_linear_recurrence(X, X),),
    "logcumsumexp": (lambda: tridiag.logcumsumexp(X),),
    "selective_scan": (lambda: tridiag.selective_scan(X, X[:, 0], X, X),),
    "smith_waterman": (
        lambda: tridiag.smith_waterman(X, gap=-1.0),
        lambda: tridiag.smith_waterman(X, gap=-1.0, gap_open=-2.0),
    ),
    "kalman.log_likelihood": tuple(
        lambda y=y, m=m: kalman.log_likelihood(y, **m) for y in (series(), series()[0], series(3)) for m in MODELS
    ),
    "kalman.filter": tuple(lambda y=y, m=m: kalman.filter(y, **m) for y in (series(), series(3)) for m in MODELS),
    "kalman.smoother": tuple(lambda y=y, m=m: kalman.smoother(y, **m) for y in (series(), series(3)) for m in MODELS),
    "kalman.predict": (lambda: kalman.predict(np.ones(2), np.eye(2), F=np.eye(2), Q=np.eye(2)),),
    "kalman.update": (lambda: kalman.update(np.ones(2), np.eye(2), np.ones(1), H=np.eye(1, 2), R=np.eye(1)),),
}
STREAMS = "kalman.predict", "kalman.update"
ENTRIES = {"call", "recall"}  # of Python, around any kernel


def test_every_verb_has_its_kernels() -> None:
    assert (
        set(ahead.VERBS) == {name for name, verb in VERBS.items() if name != "scan" and not verb.made_of} == set(CALLS)
    )
    for taken in ahead.VERBS.values():
        assert {family for family, *_ in taken.forward + taken.backward} <= set(KERNELS)


@pytest.mark.parametrize("verb", CALLS)
def test_a_verb_takes_no_kernel_that_is_not_compiled_ahead(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its first call would still compile one."""
    taken: set[str] = set()
    obtain = object_cache.obtain
    from tridiag.kernels import table

    def noted(name: str, *more: Any) -> Any:
        taken.add(name)
        return obtain(name, *more)

    monkeypatch.setattr(table, "obtain", noted)
    table.kernel.cache_clear()
    table.call_of.cache_clear()
    tridiag.calls.fast_path.forget()
    for call in CALLS[verb]:
        call()
    prepared = {name_of(*named) for named in ahead.kernels_of([verb], ["float64"], [1, 2], [(2, 1), (9, 1)])}
    assert taken and taken <= prepared, taken - prepared


@pytest.mark.slow
def test_a_kernel_is_compiled_ahead_once(tmp_path: Path) -> None:
    """In a new process with an empty folder: the command compiles, a second one finds, a call compiles nothing."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}

    def run(*arguments: str) -> str:
        done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout

    command = "-m", "tridiag", "compile", "matmul"
    assert run(*command).startswith("1 kernel compiled, 0 were there; kept in " + str(tmp_path))
    assert run(*command).startswith("0 kernels compiled, 1 was there")
    program = (
        "import numpy as np, tridiag; from tridiag.kernels.runtime import object_cache;"
        "tridiag.matmul(*np.ones((4, 3))); print(object_cache.compiled())"
    )
    assert run("-c", program) == "0\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["solve", "sort"], "there is no verb 'sort'. The verbs are solve, factor"),
        (["--all", "solve"], "--all stands for every verb; leave out solve, or --all"),
        (["kalman.filter", "--states", "2"], "'2' is no model; wanted its states and the values observed, as in 2,1"),
        (
            ["kalman.filter", "--states", "33,1"],
            "no kernel has 33,1 states and observed values; the most are 32 of each",
        ),
        (["logcumsumexp", "--dtype", "complex64"], "logcumsumexp: no kernel has the dtype complex64"),
    ],
)
def test_what_cannot_be_compiled_is_told(arguments: list[str], told: str, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("rich")
    with pytest.raises(SystemExit) as stopped:
        commands.main(["compile", *arguments])
    assert stopped.value.code == 2
    assert told in capsys.readouterr().err


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """The error stream, to somebody who has heard nothing yet and has little patience."""
    stream = Terminal()
    monkeypatch.setattr(notice, "sys", SimpleNamespace(stderr=stream))  # pytest changes that of all modules
    monkeypatch.setattr(notice, "AFTER", 0.05)
    monkeypatch.setattr(notice, "_said", False)
    yield stream


def wait_for(kernel: str, seconds: float) -> None:
    with notice.waiting(kernel, Path("/folder")):
        time.sleep(seconds)


def test_who_waits_at_a_terminal_is_told_once(terminal: Terminal) -> None:
    wait_for("first", 0.3)
    wait_for("second", 0.3)
    assert terminal.getvalue().startswith("tridiag: first is compiled for this processor, once, ")
    assert terminal.getvalue().count("\n") == 1
    assert "kept in /folder" in terminal.getvalue() and "python -m tridiag compile" in terminal.getvalue()


def test_nothing_is_said_of_what_is_soon_done(terminal: Terminal) -> None:
    wait_for("first", 0.0)
    time.sleep(0.1)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_nothing_is_said_where_nobody_reads(stream: Any, monkeypatch: pytest.MonkeyPatch, terminal: Terminal) -> None:
    monkeypatch.setattr(notice, "sys", SimpleNamespace(stderr=stream))
    wait_for("first", 0.2)
    assert stream is None or stream.getvalue() == ""


def test_a_compilation_is_announced(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of a kernel that is not there, by what obtains it."""
    monkeypatch.setattr(object_cache, "folders", lambda: [tmp_path])

    def slowly(build: Any, file: str) -> Any:
        time.sleep(0.3)
        return object_cache.Kernel(0, False, None)

    monkeypatch.setattr(object_cache, "compile_and_keep", slowly)
    object_cache.compile_in_turn("thomas_of_nobody", lambda: None, "thomas_of_nobody-0.kernel")
    assert "thomas_of_nobody is compiled" in terminal.getvalue() and str(tmp_path) in terminal.getvalue()


def press() -> None:
    signal.raise_signal(signal.SIGINT)
    time.sleep(0.01)


class Pressed:
    def __del__(self) -> None:
        press()


@pytest.fixture
def interrupted() -> Iterator[None]:
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, usual) is signal.default_int_handler


PLACES = {"call": press, "del": Pressed, "callback": ctypes.CFUNCTYPE(None)(press)}


def build_after(pressed: Callable[[], Any]) -> Callable[[], None]:
    def build() -> None:
        pressed()
        for _ in range(1000):
            time.sleep(0.01)

    return build


@pytest.mark.skipif(os.name != "posix", reason="needs signals, as POSIX has them")
@pytest.mark.parametrize("pressed", PLACES.values(), ids=PLACES)
@pytest.mark.usefixtures("interrupted")
def test_ctrl_c_is_heard_while_a_kernel_is_compiled(pressed: Callable[[], Any]) -> None:
    """Where LLVM calls Python back, and where what it has made is destroyed, what is raised would be lost."""
    usual = sys.unraisablehook
    with pytest.raises(KeyboardInterrupt):
        object_cache.compile_and_keep(build_after(pressed), "kernel_of_nobody-0.kernel")
    assert sys.unraisablehook is usual


@pytest.mark.skipif(os.name != "posix", reason="needs signals, as POSIX has them")
@pytest.mark.usefixtures("interrupted")
def test_ctrl_c_does_not_come_between_a_call_of_llvm_and_what_is_told_of_it() -> None:
    """A module that LLVM has linked with another, and that still counts as its own, would be freed twice."""
    text = "def link():\n    press()\n    told.append(True)"
    names: dict[str, Any] = {"press": press, "told": []}
    exec(compile(text, os.path.join("llvmlite", "binding", "linker.py"), "exec"), names)
    with pytest.raises(KeyboardInterrupt):
        object_cache.compile_and_keep(build_after(names["link"]), "kernel_of_nobody-0.kernel")
    assert names["told"]


INTERRUPTED = """
import gc, signal, time
from tridiag import commands
signal.signal(signal.SIGINT, signal.default_int_handler)
def in_text(options):
    exec("raise KeyboardInterrupt")
def in_the_collector(options):
    gc.callbacks.append(lambda phase, _: phase == "start" and signal.raise_signal(signal.SIGINT))
    gc.collect()
    gc.callbacks.clear()
    for _ in range(1000):
        time.sleep(0.01)
class Command:
    add_arguments, run = id, {}
commands.module_of = lambda name: Command
commands.main(["tune"])
"""


@pytest.mark.parametrize("where", ["in_text", "in_the_collector"])
def test_an_interrupted_command_has_its_status_wherever_ctrl_c_came(where: str, tmp_path: Path) -> None:
    """Numba makes functions from text, and CPython takes a Ctrl-C there for the end of the process; JAX has the garbage
    collector call it, and CPython drops what is raised there."""
    pytest.importorskip("rich")
    (tmp_path / "interrupted.py").write_text(INTERRUPTED.format(where))
    command = [sys.executable, "-m", "interrupted"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 130 and "interrupted" in done.stderr and "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("arguments", "told"), [(["tune"], "tune: interrupted; what was"), ([], "tridiag: interrupted")]
)
def test_a_command_that_is_interrupted_while_it_is_imported(
    arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What commands import takes a second where nothing is in the cache of the file system."""
    pytest.importorskip("rich")
    import_command, calls = commands.module_of, []

    def press_once(name: str) -> Any:
        calls.append(name)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return import_command(name)

    monkeypatch.setattr(commands, "module_of", press_once)
    with pytest.raises(SystemExit) as ended:
        commands.main(arguments)
    assert ended.value.code == commands.INTERRUPTED and told in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("tune",), "interrupted; what was measured is kept"),
        (("bench", "solve", "--shape", "300000,100"), "interrupted; no record was written"),
        (("compile", "--all"), "interrupted; what was compiled is kept"),
    ],
)
def test_an_interrupted_command_says_what_is_kept(command: tuple[str, ...], told: str, tmp_path: Path) -> None:
    """Early on most commands compile."""
    pytest.importorskip("rich")
    folders = dict.fromkeys(("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "XDG_DATA_HOME"), str(tmp_path))
    with started("-m", "tridiag", *command, **folders) as process:
        time.sleep(6)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130 and told in error and "Traceback" not in error, error
