"""That kernels are kept on disk safely: found again, never damaged code or another machine's, and never in the way."""

import ctypes
import functools
import inspect
import json
import os
import pathlib
import sys
import threading
from collections.abc import Callable
from typing import Any

import llvmlite.binding
import numpy as np
import pytest
from helpers import installed
from processes import run_program, run_together

import tridiag
from tridiag.kernels.runtime import object_cache, sources

needs_jax = pytest.mark.skipif(not installed("jax"), reason="needs jax, which is not installed")


def build_triple() -> Any:
    """A kernel that compiles at once."""
    from numba import cfunc, types

    def triple(x):
        return 3 * x

    return cfunc(types.int64(types.int64))(triple)


def build_sum() -> Any:
    """A kernel that needs Numba's runtime: it makes an array, which may raise."""
    import numpy
    from numba import cfunc, types

    def total(n):
        return numpy.ones(n, numpy.int64).sum()

    return cfunc(types.int64(types.int64))(total)


def build_six_times() -> Any:
    """A kernel that calls another one."""
    from numba import cfunc, types

    from tridiag.kernels.jobs.words.symbols import PREFIX

    call = types.ExternalFunction(PREFIX + "triple", types.int64(types.int64))

    def six_times(x):
        return 2 * call(x)

    return cfunc(types.int64(types.int64))(six_times)


def build_twice() -> Any:
    """A kernel around another one."""
    from numba import cfunc, types

    from tridiag.kernels.jobs.words.symbols import INNER

    inner = types.ExternalFunction(INNER, types.int64(types.int64))

    def twice(x):
        return inner(inner(x))

    return cfunc(types.int64(types.int64))(twice)


def call(kernel: object_cache.Kernel, x: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(kernel.address)(x)


def only_here(folder: pathlib.Path) -> dict[str, str]:
    """The environment of a process that keeps its kernels below a folder, and finds none elsewhere."""
    homes = {name: str(folder / "home") for name in ("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA")}
    return {"NUMBA_CACHE_DIR": str(folder / "kernels"), **homes}


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Where kernels go: an empty folder, and no other."""
    for name, value in only_here(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(object_cache.platformdirs, "user_cache_dir", lambda *args, **options: str(tmp_path / "user"))
    monkeypatch.setattr(object_cache, "_kernels", {})
    return tmp_path / "kernels" / "tridiag"


def obtain_anew(monkeypatch: pytest.MonkeyPatch) -> object_cache.Kernel:
    """The kernel as a new process would get it; it must be the right one, wherever it comes from."""
    monkeypatch.setattr(object_cache, "_kernels", {})
    kernel = object_cache.obtain("triple", build_triple)
    assert call(kernel, 7) == 21
    return kernel


def state(folder: pathlib.Path) -> dict[str, tuple[int, int]]:
    """The files in a folder and below, each with its size and the number that a new file of its name does not have."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_size) for path in files}


# --------------------------------------------------------------------------------------------------- found again


def test_a_kernel_is_found_again(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second time it is read, nothing is written, and within a process it is the same kernel."""
    first = obtain_anew(monkeypatch)
    assert not first.found and object_cache.obtain("triple", build_triple) is first
    before = state(folder)
    assert obtain_anew(monkeypatch).found
    assert len(before) == 1 and state(folder) == before


@pytest.mark.parametrize("can_be_kept", [True, False])
def test_one_code_serves_around_many_kernels(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch, can_be_kept: bool
) -> None:
    """Each is a kernel of its own, in this process and the next; there is one file for all, if any."""
    if not can_be_kept:
        monkeypatch.setattr(object_cache, "folders", list)

    def around_both() -> list[object_cache.Kernel]:
        monkeypatch.setattr(object_cache, "_kernels", {})
        inner = object_cache.obtain("triple", build_triple), object_cache.obtain("six_times", build_six_times)
        kernels = [object_cache.obtain("twice", build_twice, kernel) for kernel in (*inner, inner[0])]
        assert kernels[0] is kernels[2] and [call(kernel, 5) for kernel in kernels] == [45, 180, 45]
        return kernels

    assert [kernel.found for kernel in around_both()] == [False, can_be_kept, False]
    assert [kernel.found for kernel in around_both()] == [can_be_kept] * 3
    assert len(state(folder)) == 3 * can_be_kept


def test_threads_wait_for_one_compilation(folder: pathlib.Path) -> None:
    """Threads that need a kernel at the same time compile it once."""
    built, start, found = [], threading.Barrier(8), []

    def build() -> Any:
        built.append(1)
        return build_triple()

    def work() -> None:
        start.wait()
        found.append(object_cache.obtain("triple", build))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1 and len(set(found)) == 1


OBTAIN = """
import ctypes, sys
from tridiag.kernels.runtime import object_cache, sources
def call(name, x):
    kernel = object_cache.obtain(name, globals()["build_" + name])
    return int(kernel.found), ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(kernel.address)(x)
"""


def with_kernels(program: str, *builders: Callable[[], Any]) -> str:
    """A program that calls such kernels by name."""
    return "".join(inspect.getsource(build).replace("-> Any", "") for build in builders) + OBTAIN + program


IN_TURN = """
print(*call("triple", 7), "numba" in sys.modules, *call("sum", 5), *call("six_times", 7))
"""


def test_processes_in_turn(folder: pathlib.Path) -> None:
    """The second and third process only read, the folder does not grow, and Numba is not even imported where a kernel
    does not need it; one that makes arrays, and one that calls another kernel, work as well.
    """
    program = with_kernels(IN_TURN, build_triple, build_sum, build_six_times)
    assert run_program(program) == "0 21 True 0 5 0 42"
    before = state(folder)
    for _ in range(2):
        assert run_program(program) == "1 21 False 1 5 1 42"
    assert len(before) == 3 and state(folder) == before


TOGETHER = """
import numba.core.registry
numba.core.registry.cpu_target.target_context.refresh()
print("ready", flush=True)
sys.stdin.readline()
print(*call("triple", 7), *call("sum", 5))
"""


def test_processes_that_fill_a_folder_together(folder: pathlib.Path) -> None:
    """Each compiles or reads, all are right; what they leave is one whole file a kernel and nothing half-written."""
    program = with_kernels(TOGETHER, build_triple, build_sum)
    for output in run_together(2, program):
        assert output.split()[1::2] == ["21", "5"]
    before = state(folder)
    assert sorted(name.partition("-")[0] for name in before) == ["sum", "triple"]
    assert run_together(1, program) == ["1 21 1 5"]
    assert state(folder) == before


ONE_BY_ONE = """
def build_counted():
    with open(sys.argv[1], "a") as file:
        file.write("compiled ")
    time.sleep(1)
    return build_triple()
print("ready", flush=True)
sys.stdin.readline()
print(*call("counted", 7))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no locks of files")
def test_processes_at_once_compile_a_kernel_once(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    program = "import time\n" + with_kernels(ONE_BY_ONE, build_triple)
    told = [output.split()[1] for output in run_together(4, program, str(tmp_path / "told"))]
    assert told == ["21"] * 4
    assert (tmp_path / "told").read_text() == "compiled "
    assert [name.partition("-")[0] for name in state(folder)] == ["counted"]


def test_a_process_that_never_ends_is_not_waited_for(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(object_cache, "PATIENCE", 0.1)
    folder.mkdir(parents=True)
    folder.parent.chmod(0o700)
    with open(folder / (object_cache.file_name("triple") + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not obtain_anew(monkeypatch).found
    assert obtain_anew(monkeypatch).found


FORK = """
import os, threading, time
compiling = threading.Event()
def build_slow():
    compiling.set()
    time.sleep(1)
    return build_triple()
thread = threading.Thread(target=call, args=("slow", 7))
thread.start()
compiling.wait()
child = os.fork()
if child == 0:
    try:
        os._exit(call("triple", 7)[1] + call("slow", 7)[1])
    finally:
        os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork, which this system does not have")
def test_a_fork_while_another_thread_compiles(folder: pathlib.Path) -> None:
    """The child gets kernels, though the thread that was compiling one is not there to let go of what it held."""
    program = "import warnings; warnings.simplefilter('ignore')\n" + with_kernels(FORK, build_triple)
    assert run_program(program) == "42"


# ---------------------------------------------------------------------------------------- folders that do not serve


@pytest.mark.parametrize("place", ["below a file", "in /proc", "a file", "a name too long"])
def test_folders_that_cannot_be_made(
    folder: pathlib.Path, place: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the folder of NUMBA_CACHE_DIR nor a home, read-only or missing: kernels are compiled, nothing raises."""
    (tmp_path / "file").write_text("")
    (tmp_path / "taken").mkdir()
    for name in ("tridiag", "kernels"):
        (tmp_path / "taken" / name).write_text("")
    places = {
        "below a file": tmp_path / "file" / "x",
        "in /proc": pathlib.Path("/proc/nobody/x"),
        "a file": tmp_path / "taken",
        "a name too long": tmp_path / ("x" * 1000),
    }
    unusable = str(places[place])
    monkeypatch.setenv("NUMBA_CACHE_DIR", unusable)
    monkeypatch.setattr(object_cache.platformdirs, "user_cache_dir", lambda *args, **options: unusable)
    for _ in range(2):
        assert not obtain_anew(monkeypatch).found


def test_without_a_home_no_folder_named_tilde_appears(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody's home is known, "~" stays as it is, and would be a folder in the working directory."""
    monkeypatch.delenv("NUMBA_CACHE_DIR")
    monkeypatch.setattr(object_cache.platformdirs, "user_cache_dir", lambda *args, **options: "~/.cache/tridiag")
    assert object_cache.folders() == []
    assert not obtain_anew(monkeypatch).found


def test_the_next_folder_serves(folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the folder of NUMBA_CACHE_DIR cannot be written, kernels go to the user's cache; both are read."""
    obtain_anew(monkeypatch)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(next(folder.iterdir())))
    assert [obtain_anew(monkeypatch).found for _ in range(2)] == [False, True]
    assert len(state(tmp_path / "user" / "kernels")) == 1


def test_a_folder_that_can_only_be_read(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder filled by somebody else, in the image of a container say, is used as it is."""

    def refuse(*args: Any, **options: Any) -> None:
        raise PermissionError("read-only")

    obtain_anew(monkeypatch)
    monkeypatch.setattr(os, "utime", refuse)
    monkeypatch.setattr(pathlib.Path, "write_bytes", refuse)
    assert obtain_anew(monkeypatch).found


FULL_DISK = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
print(*call("triple", 7))
"""


@pytest.mark.skipif(os.name != "posix", reason="needs RLIMIT_FSIZE, which this system does not have")
def test_a_full_disk(folder: pathlib.Path) -> None:
    """A file that cannot be written to its end is taken away again."""
    assert run_program(with_kernels(FULL_DISK, build_triple)) == "0 21"
    assert state(folder.parent) == {}


def test_ctrl_c_while_a_kernel_is_written(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing half-written stays, and the next call compiles again."""

    def interrupt(*args: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            obtain_anew(patch)
    assert state(folder) == {}
    assert not obtain_anew(monkeypatch).found


# ---------------------------------------------------------------------------------------------- files that are wrong

DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "half of it": lambda content: content[: len(content) // 2],
    "all but one byte": lambda content: content[:-1],
    "only the digest": lambda content: content[:32],
    "one bit of code": lambda content: content[:-200] + bytes([content[-200] ^ 1]) + content[-199:],
    "zeros, as after a power failure": lambda content: bytes(len(content)),
    "something else": lambda content: b"something else" * 100,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file(folder: pathlib.Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts as none and is replaced; its code is never run."""
    obtain_anew(monkeypatch)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(DAMAGES[damage](whole))
    assert not obtain_anew(monkeypatch).found
    (file,) = folder.iterdir()
    assert object_cache.unpack(file.read_bytes(), file.name).needs == object_cache.unpack(whole, file.name).needs
    assert obtain_anew(monkeypatch).found


def test_a_whole_file_under_another_name(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another kernel, or of the same one for other sources or another CPU: it counts as none and is replaced."""
    obtain_anew(monkeypatch)
    object_cache.obtain("sum", build_sum)
    triple, total = (folder / object_cache.file_name(name) for name in ("triple", "sum"))
    content = triple.read_bytes(), total.read_bytes()
    triple.write_bytes(content[1])
    total.write_bytes(content[0])
    assert not obtain_anew(monkeypatch).found
    again = object_cache.obtain("sum", build_sum)
    assert not again.found and call(again, 5) == 5
    assert obtain_anew(monkeypatch).found and object_cache.obtain("sum", build_sum).found
    with monkeypatch.context() as patched:
        patched.setattr(object_cache, "source_hash_of", lambda module: 1)
        (folder / object_cache.file_name("triple")).write_bytes(content[0])
        assert not obtain_anew(patched).found


def test_code_that_does_not_link(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that is no object, or that needs a function nobody has, counts as none; LLVM must not end the process."""
    obtain_anew(monkeypatch)
    (file,) = folder.iterdir()
    code = object_cache.unpack(file.read_bytes(), file.name)
    for wrong in (code._replace(image=b"no object"), code._replace(function="no such function")):
        file.write_bytes(object_cache.pack(wrong, file.name))
        assert not obtain_anew(monkeypatch).found


LACKING = """
from tridiag.kernels.runtime import object_cache, sources
print(object_cache.load("six_times", object_cache.file_name("six_times")))
"""


def test_code_that_calls_a_kernel_which_is_not_there(folder: pathlib.Path) -> None:
    """Its file counts as none: it is not linked with a hole in it."""
    program = with_kernels('print(*call("triple", 7), *call("six_times", 7))', build_triple, build_six_times)
    assert run_program(program) == "0 21 0 42"
    assert run_program(LACKING) == "None"


# ----------------------------------------------------------------------------------------------- what a file is for


def test_a_file_is_for_one_cpu_one_compiler_and_one_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever changes the code changes the name of the file."""
    names = [object_cache.file_name("triple"), object_cache.file_name("six_times")]
    changes: list[tuple[Any, str, Any]] = [
        (llvmlite.binding, "get_host_cpu_name", lambda: "another"),
        (llvmlite.binding, "get_host_cpu_features", lambda: llvmlite.binding.FeatureMap({"avx512f": False})),
        (llvmlite.binding, "get_process_triple", lambda: "another"),
        (object_cache, "source_hash_of", lambda module: 1),
        (object_cache.importlib.metadata, "version", lambda name: "0.1"),
        (object_cache.sys.implementation, "cache_tag", "another"),
    ]
    for holder, name, value in changes:
        with monkeypatch.context() as patch:
            patch.setattr(holder, name, value)
            names.append(object_cache.file_name("triple"))
    for setting in sources.SETTINGS:
        with monkeypatch.context() as patch:
            patch.setenv(f"NUMBA_{setting}", "1")
            names.append(object_cache.file_name("triple"))
    assert len(set(names)) == len(names)
    assert object_cache.file_name("triple") == names[0]


def test_a_cpu_whose_features_llvm_cannot_tell(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba then compiles for no features in particular; so does the name of the file."""

    def refuse() -> None:
        raise RuntimeError("failed to get host cpu features")

    monkeypatch.setattr(llvmlite.binding, "get_host_cpu_features", refuse)
    assert object_cache.cpu()[1] == ""


def test_another_cpu_gets_code_of_its_own(folder: pathlib.Path) -> None:
    """Processes on different machines share a folder: each finds the code for its own CPU only."""
    program = with_kernels('print(*call("triple", 7))', build_triple)
    for wanted in ("0 21", "1 21"):
        assert run_program(program) == wanted
        assert run_program(program, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="") == wanted
    assert len(state(folder)) == 2


def test_old_files_are_removed(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of sources and machines that are gone do not add up: the least recently used go. Other files stay."""
    monkeypatch.setattr(object_cache, "MOST_FILES", 3)
    folder.mkdir(parents=True)
    (folder / "notes.txt").write_text("mine")
    for age in range(1, 6):
        old = folder / f"triple-{age}.kernel"
        old.write_text("")
        os.utime(old, (10_000_000 - age, 10_000_000 - age))
    obtain_anew(monkeypatch)
    kept = sorted(path.name for path in folder.iterdir())
    assert kept == sorted([object_cache.file_name("triple"), "notes.txt", "triple-1.kernel", "triple-2.kernel"])


def test_use_keeps_a_file(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The age of a file counts from its last use."""
    obtain_anew(monkeypatch)
    (file,) = folder.iterdir()
    os.utime(file, (1, 1))
    assert obtain_anew(monkeypatch).found
    assert file.stat().st_mtime > 1


# ------------------------------------------------------------------------------------------------ the real kernels

SOLVE = """
import json, sys
import numpy as np, tridiag
from numba.core import event
print("ready", flush=True)
sys.stdin.readline()
worst = 0
with event.install_recorder("numba:run_pass") as compiled:
    for dtype in sys.argv[1:]:
        d = (np.arange(60_000) % 17).reshape(3000, 20).astype(dtype)
        for b in (4.0, np.full_like(d, 4.0)):
            for options in ({}, {"periodic": True}, {"pivoting": True}, {"pivoting": False}):
                x = tridiag.solve(1.0, b, 1.0, d, backend="numba_thomas", **options)
                product = tridiag.matmul(1.0, b, 1.0, x, periodic=options.get("periodic", False))
                worst = max(worst, float(abs(product - d).max() / np.finfo(dtype).eps))
print(json.dumps([worst, len(compiled.buffer)]))
"""


def solve_in_processes(count: int, *dtypes: str, **environment: str) -> list[int]:
    """How often a pass of the compiler ran in each process; all start at once, and what they solve must be right."""
    found = [json.loads(output) for output in run_together(count, SOLVE, *dtypes, **environment)]
    assert all(worst < 200 for worst, _ in found)
    return [passes for _, passes in found]


@pytest.mark.slow
def test_what_one_process_has_compiled_the_next_two_only_read() -> None:
    """Every kernel of this package is kept, in the folder that users have."""
    dtypes = "float32", "float64", "complex128"
    solve_in_processes(1, *dtypes)
    for _ in range(2):
        assert solve_in_processes(1, *dtypes) == [0]


WARM = """
import sys
import numpy as np, tridiag
solve = lambda d: tridiag.solve(1.0, 4.0, 1.0, d, backend="numba_thomas")
if len(sys.argv) > 1:
    import jax
    jax.config.update("jax_enable_x64", True)
    solve = jax.jit(solve)
print(float(abs(solve(np.full((5, 9), 5.0))[:, 0] - 1).max()) < 1, "numba" in sys.modules)
"""


@pytest.mark.parametrize("library", [[], pytest.param(["jax"], marks=needs_jax)], ids=["numpy", "jax"])
def test_a_process_that_only_reads_kernels_does_not_import_numba(library: list[str]) -> None:
    """Most of the time to a first solution would be that import. This process leaves the kernels."""
    solve = functools.partial(tridiag.solve, 1.0, 4.0, 1.0, backend="numba_thomas")
    if library:
        solve = pytest.importorskip("jax").jit(solve)
    solve(np.full((5, 9), 5.0))
    assert run_program(WARM, *library) == "True False"


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_real_kernels_fill_an_empty_folder(tmp_path: pathlib.Path) -> None:
    """Two processes together, then two more in turn: these only read, and the folder does not grow."""
    dtypes, environment = ("float32", "complex128"), only_here(tmp_path)
    assert any(solve_in_processes(2, *dtypes, **environment))  # the one that waits for a kernel compiles nothing
    before = state(tmp_path)
    assert before
    for _ in range(2):
        assert solve_in_processes(1, *dtypes, **environment) == [0]
        assert state(tmp_path) == before


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_real_kernels_for_the_simplest_cpu(tmp_path: pathlib.Path) -> None:
    """Kernels do not rely on wide registers; and beside those of this CPU they are files of their own."""
    here = only_here(tmp_path)
    simple = here | {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    for compiles in (True, False):
        for environment in (simple, here):
            (passes,) = solve_in_processes(1, "float32", "complex128", **environment)
            assert (passes > 0) == compiles


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_real_kernels_without_a_home(tmp_path: pathlib.Path) -> None:
    """Where nothing can be kept every process compiles, and solves."""
    (tmp_path / "file").write_text("")
    nowhere = only_here(tmp_path / "file")
    for _ in range(2):
        solve_in_processes(1, "float64", **nowhere)
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]
