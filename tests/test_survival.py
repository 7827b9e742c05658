"""That solves survive what programs do: threads, forks, interrupts, arrays in any memory, arrays of 2^31 entries."""

import math
import multiprocessing
import os
import pathlib
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers import EPS, REAL, Subject, dominant, installed, uniform
from processes import finish, run_program, running, wait_until_ready

import tridiag
from tridiag.backends import BACKENDS
from tridiag.kernels.jobs import systems

KERNELS = [
    x.name
    for x in BACKENDS.values()
    if "solve" in x.verbs and "numba" in x.needs and "numpy" in x.arrays and "cpu" in x.devices
]  # the backends whose threads are ours

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork, which this system does not have")
needs_jax = pytest.mark.skipif(not installed("jax"), reason="needs jax, which is not installed")
any_kernel = pytest.mark.parametrize("name", KERNELS)

# What every program starts with: systems so large that a call starts helpers, on a machine with one core too.
SYSTEMS = """
import os, sys, threading, warnings
import numpy as np, tridiag
from tridiag.backends import BACKENDS
from tridiag.kernels.jobs import systems
systems.threads = lambda: 4
count = systems.WORTH_A_THREAD // 50 + 7
rng = np.random.default_rng(0)
a, c, d = rng.uniform(-1, 1, (3, count, 50))
b = rng.uniform(2.5, 3, (count, 50))

promises = BACKENDS[sys.argv[1]].pivoting
promise = "auto" if "auto" in promises else promises[-1]

def solve(d):
    return tridiag.solve(a, b, c, d, backend=sys.argv[1], pivoting=promise)

def same(x, y):
    return np.asarray(x).tobytes() == np.asarray(y).tobytes()

def together(count, work):
    start, found = threading.Barrier(count), []
    def begin(k):
        start.wait()
        found.append(work(k))
    threads = [threading.Thread(target=begin, args=(k,)) for k in range(count)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    return found
"""
JAX = """
import jax
jax.config.update("jax_enable_x64", True)
"""


def run(program: str, *arguments: str) -> str:
    return run_program(SYSTEMS + program, *arguments)


# ------------------------------------------------------------------------------------------------------- threads

THREADS = """
rights = [np.roll(d, k, 0) for k in range(4)]
wanted = [solve(d) for d in rights]
def work(k):
    return all([same(call(rights[i % 4]), wanted[i % 4]) for i in range(k, k + 4)])
print(*together(32, work))
"""


@any_kernel
def test_32_threads_at_once(name: str) -> None:
    """Calls that overlap share nothing: none waits for another forever, and none gets another's answer."""
    assert run("call = solve" + THREADS, name).split() == ["True"] * 32


@needs_jax
@any_kernel
def test_32_threads_at_once_inside_jit(name: str) -> None:
    """More calls than the pool of XLA has threads, from as many threads of Python: each ends, with its own answer."""
    assert run(JAX + "call = jax.jit(solve)" + THREADS, name).split() == ["True"] * 32


MANY = """
many = 2 * max(8, os.cpu_count())
wanted = solve(d)
call = jax.jit(lambda d: [solve(d * 2.0**k) for k in range(many)])
def work(k):
    return all([same(x, wanted * 2.0**k) for k, x in enumerate(call(d))])
print(*together(4, work))
"""


@needs_jax
@any_kernel
def test_more_solves_in_one_program_than_xla_has_threads(name: str) -> None:
    """XLA runs independent calls side by side in its pool; calls that wait for each other there would deadlock it."""
    assert run(JAX + MANY, name) == "True True True True"


@pytest.mark.only(library="numpy")
def test_the_first_calls_may_be_concurrent(backend: Subject) -> None:
    """A backend that is imported, and a kernel that is loaded, by several threads at once."""
    program = "found = together(8, lambda k: solve(d)); print(len(found), all(same(x, found[0]) for x in found))"
    assert run(program, backend.name) == "8 True"


EXECUTOR = """
from concurrent.futures import ThreadPoolExecutor
wanted = solve(d)
threading.stack_size(256 * 1024)
with ThreadPoolExecutor(1) as outer, ThreadPoolExecutor(2) as inner:
    direct = outer.submit(solve, d)
    nested = outer.submit(lambda: inner.submit(solve, d).result())
    print(same(direct.result(), wanted), same(nested.result(), wanted))
"""


@any_kernel
def test_a_worker_of_an_executor(name: str) -> None:
    """A worker thread, whose stack may be small, solves as the main thread does."""
    assert run(EXECUTOR, name) == "True True"


@any_kernel
def test_more_threads_than_helpers_are_kept_for(name: str) -> None:
    """Where thousands of cores are granted, some of them stay out, call after call: each finds others at work."""
    program = """
d = d[:, :, None] * np.ones(4)
a, b, c = a[:, :, None], b[:, :, None], c[:, :, None]
def many(count):
    systems.threads = lambda: count
    return tridiag.solve(a, b, c, d, axis=1, backend=sys.argv[1])
wanted = many(1)
print(all(same(many(1000), wanted) for _ in range(100)), same(many(3), wanted))
"""
    assert run(program, name) == "True True"


ALONE = """
import time
def threads():
    return len(os.listdir("/proc/self/task"))
before = threads()
for _ in range(20):
    solve(d)
deadline = time.monotonic() + 60
while threads() > before and time.monotonic() < deadline:
    time.sleep(0.01)
print(threads() == before)
"""


@pytest.mark.skipif(not pathlib.Path("/proc/self/task").exists(), reason="needs a list of threads, as Linux has")
@any_kernel
def test_helpers_end(name: str) -> None:
    """A helper looks out for another job for a moment only."""
    assert run(ALONE, name) == "True"


# ------------------------------------------------------------------------------------------------------- processes

FORK = """
warnings.simplefilter("ignore")  # Python and JAX warn of forks in a process with threads
wanted = solve(d)
def right():
    return same(solve(d), wanted)
def forked(work):
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if work() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

found = [forked(right), forked(lambda: right() and forked(right) == 0)]
solve(d)  # whose helpers may look out for another job still: a child has none of them
found[0] |= forked(lambda: right() and right())
busy, stop = threading.Event(), threading.Event()
def work():
    while not stop.is_set():
        solve(d)
        busy.set()
thread = threading.Thread(target=work)
thread.start()
busy.wait()
found += [forked(right) for _ in range(4)]
stop.set()
thread.join()
print(*found, right())
"""


@needs_fork
@pytest.mark.only(library="numpy")
def test_a_forked_child(backend: Subject) -> None:
    """A child, its child, and children made while another thread is in a solve: all start threads of their own."""
    assert run(FORK, backend.name) == "0 0 0 0 0 0 True"


@needs_fork
@needs_jax
@any_kernel
def test_a_forked_child_after_jit(name: str) -> None:
    """The parent has solved inside `jit`, and has XLA's threads, which the child has not: it solves NumPy arrays."""
    assert run(JAX + "jax.jit(solve)(d).block_until_ready()" + FORK, name) == "0 0 0 0 0 0 True"


POOL = """
import multiprocessing
warnings.simplefilter("ignore")
rights = [k * d for k in range(1, 5)]
wanted = [solve(d) for d in rights]
with multiprocessing.get_context(sys.argv[2]).Pool(2) as pool:
    found = pool.starmap(tridiag.solve, [(a, b, c, d) for d in rights])
print(*map(same, found, wanted))
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_pool_of_processes(method: str) -> None:
    """`multiprocessing`, however it makes its processes."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system cannot start processes by {method}")
    assert run(POOL, KERNELS[0], method) == "True True True True"


# ------------------------------------------------------------------------------------------------------- interrupts

INTERRUPTED = """
import signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may have it ignored
d = np.tile(d, (100, 1))
def solve_long():
    return np.asarray(call(d))
wanted = solve_long()
begin = time.monotonic()
solve_long()
length = time.monotonic() - begin
print("ready", flush=True)
try:
    while True:
        solve_long()
except KeyboardInterrupt:
    late = time.monotonic() - float(sys.stdin.readline())
print(same(solve_long(), wanted), late < 5 + 20 * length, late, length)
"""
LONG = """
def call(d):
    return tridiag.solve(1.0, 4.0, 1.0, d, backend=sys.argv[1], pivoting=True)
"""
LONG_CALLS = [
    pytest.param(LONG, id="numpy"),
    pytest.param(LONG + JAX + "call = jax.jit(call)", id="jit", marks=needs_jax),
]


@pytest.mark.skipif(os.name != "posix", reason="needs SIGINT, which this system sends differently")
@pytest.mark.slow
@pytest.mark.parametrize("before", LONG_CALLS)
@any_kernel
def test_ctrl_c_in_a_long_solve(name: str, before: str) -> None:
    """The call ends, then KeyboardInterrupt is raised: nothing is torn, and the next call is right."""
    with running(SYSTEMS + before + INTERRUPTED, name) as process:
        wait_until_ready(process)
        time.sleep(0.3)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        output = finish(process, f"{sent}\n")
    assert output.startswith("True True"), output


# ------------------------------------------------------------------------------------------------------- memory

ROWS = 37  # no multiple of a vector
COUNT = systems.WORTH_A_THREAD // ROWS + 8 | 1  # odd, and enough systems for threads
FORMS = {
    "systems beside rows": ((COUNT, ROWS), -1),
    "rows beside systems": ((ROWS, COUNT), 0),
    "few long systems": ((ROWS, COUNT), -1),
    "few long systems, interleaved": ((COUNT, ROWS), 0),
    "rows in the middle": ((5, ROWS, COUNT // 5 + 1), 1),
}


def bytes_apart(shape: tuple[int, ...], dtype: np.dtype[Any], step: int, start: int) -> np.ndarray:
    """An array whose entries are ``step`` bytes apart, from ``start`` bytes behind an aligned address."""
    memory = np.full(int(np.prod(shape)) * step + start + 64, 0x5A, np.uint8)
    strides = np.cumprod([step, *shape[:0:-1]])[::-1]
    at = start - memory.ctypes.data % 64 + 64
    return np.ndarray(shape, dtype, memory, at, tuple(map(int, strides)))


def fields(shape: tuple[int, ...], dtype: np.dtype[Any], align: bool) -> np.ndarray:
    kinds = [("before", np.uint8), ("x", dtype), ("after", np.uint8)]
    return np.zeros(shape, np.dtype(kinds, align=align))["x"]


def turned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    return np.moveaxis(np.zeros((*shape[1:], shape[0]), dtype), -1, 0)


MEMORIES: dict[str, Callable[[tuple[int, ...], np.dtype[Any]], np.ndarray]] = {
    "one byte off": lambda shape, dtype: bytes_apart(shape, dtype, dtype.itemsize, 1),
    "half an entry off": lambda shape, dtype: bytes_apart(shape, dtype, dtype.itemsize, dtype.itemsize // 2),
    "across cache lines": lambda shape, dtype: bytes_apart(shape, dtype, dtype.itemsize, 60),
    "entries 3 bytes apart": lambda shape, dtype: bytes_apart(shape, dtype, dtype.itemsize + 3, 0),
    "fields of packed records": lambda shape, dtype: fields(shape, dtype, False),
    "fields of aligned records": lambda shape, dtype: fields(shape, dtype, True),
    "every other entry": lambda shape, dtype: np.zeros((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2],
    "every third system": lambda shape, dtype: np.zeros((3 * shape[0], *shape[1:]), dtype)[1::3],
    "backwards": lambda shape, dtype: np.zeros(shape, dtype)[tuple(slice(None, None, -1) for _ in shape)],
    "rows backwards": lambda shape, dtype: np.zeros(shape, dtype)[..., ::-1],
    "Fortran": lambda shape, dtype: np.zeros(shape, dtype, "F"),
    "axes turned": turned,
}
FOREIGN = {"other byte order": lambda shape, dtype: np.zeros(shape, dtype.newbyteorder())}


def place(values: np.ndarray, memory: str) -> np.ndarray:
    """The same values in such memory."""
    made = (MEMORIES | FOREIGN)[memory](values.shape, values.dtype)
    made[...] = values
    return made


def around(x: np.ndarray) -> np.ndarray:
    """A copy of the whole memory that an array is a view of, with zeros in the place of its own entries."""
    owner = x
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    saved = x.copy()
    x[...] = 0
    kept = owner.copy()
    x[...] = saved
    return kept


def error(x: np.ndarray, system: list[np.ndarray], axis: int) -> float:
    """The worst componentwise backward error, in eps."""
    a, b, c, d, x = (np.moveaxis(v, axis, -1) for v in (*system, x))
    eps = EPS[REAL.get(x.dtype.name, x.dtype.name)]
    wide = np.clongdouble if x.dtype.kind == "c" else np.longdouble
    a, b, c, d, x = (v.astype(wide) for v in (a, b, c, d, x))
    terms = [np.zeros_like(x), b * x, np.zeros_like(x)]
    terms[0][..., 1:] = a[..., 1:] * x[..., :-1]
    terms[2][..., :-1] = c[..., :-1] * x[..., 1:]
    return float((abs(d - sum(terms)) / (sum(map(abs, terms)) + abs(d))).max() / eps)


def check(x: np.ndarray, wanted: np.ndarray) -> None:
    """The answer of contiguous arrays, up to rounding."""
    assert abs(x - wanted).max() <= 200 * EPS[REAL.get(x.dtype.name, x.dtype.name)] * abs(wanted).max()


@pytest.fixture(scope="module", params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module", params=["float32", "float64", "complex64", "complex128"])
def problem(request: pytest.FixtureRequest, form: str) -> tuple[list[np.ndarray], int, dict[str, np.ndarray]]:
    """Systems, their axis, and each kernel's answer from contiguous arrays."""
    shape, axis = FORMS[form]
    system = dominant(shape, request.param, axis)
    answers = {name: tridiag.solve(*system, axis=axis, backend=name) for name in KERNELS}
    assert all(error(x, system, axis) <= 8 for x in answers.values())
    return system, axis, answers


@pytest.mark.parametrize("memory", MEMORIES | FOREIGN)
@any_kernel
def test_inputs_in_any_memory(name: str, memory: str, problem: Any) -> None:
    """Tiles, their tails and threads, on arrays that lie as they like; the arrays stay as they are."""
    system, axis, wanted = problem
    given = [place(x, memory) for x in system]
    check(tridiag.solve(*given, axis=axis, backend=name), wanted[name])
    for x, y in zip(given, system, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("memory", MEMORIES)
@any_kernel
def test_out_in_any_memory(name: str, memory: str, problem: Any) -> None:
    """The solution goes where it belongs, and not a byte beside it."""
    system, axis, wanted = problem
    out = place(np.zeros_like(system[3]), memory)
    before = around(out)
    assert tridiag.solve(*system, axis=axis, backend=name, out=out) is out
    check(out, wanted[name])
    np.testing.assert_array_equal(around(out), before)


@pytest.mark.parametrize("memory", MEMORIES)
@any_kernel
def test_in_place_in_any_memory(name: str, memory: str, problem: Any) -> None:
    """The same with ``overwrite_d``."""
    system, axis, wanted = problem
    d = place(system[3], memory)
    before = around(d)
    assert tridiag.solve(*system[:3], d, axis=axis, backend=name, overwrite_d=True) is d
    check(d, wanted[name])
    np.testing.assert_array_equal(around(d), before)


@pytest.mark.parametrize("memory", MEMORIES | FOREIGN)
@any_kernel
def test_systems_that_need_pivoting_in_any_memory(name: str, memory: str) -> None:
    """Lanes that are eliminated again find their own rows."""
    for shape, axis in FORMS.values():
        system = uniform(shape, "float64", axis)
        x = tridiag.solve(*(place(x, memory) for x in system), axis=axis, backend=name)
        assert error(x, system, axis) <= 8


# ------------------------------------------------------------------------------------------------ too little memory

SHORT_OF_MEMORY = """
import resource
promise = {"False": False, "True": True, "auto": "auto"}[sys.argv[2]]
b, d = np.full((9, 500_000), 4.0), np.ones((9, 500_000))
out = np.empty_like(d)
def call(n):
    return tridiag.solve(1.0, b[:, :n], 1.0, d[:, :n], backend=sys.argv[1], out=out[:, :n], pivoting=promise)
call(100)
used = 4096 * int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (used + 2**23, -1))
try:
    call(500_000)
    print("solved")
except MemoryError:
    print("MemoryError")
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
print(abs(call(500_000)[:, 50:-50] - 1 / 6).max() < 1e-9)
"""


@pytest.mark.skipif(not pathlib.Path("/proc/self/statm").exists(), reason="needs a limit of memory, as Linux has")
@pytest.mark.parametrize("promise", ["False", "True", "auto"])
@any_kernel
def test_memory_that_runs_out(name: str, promise: str) -> None:
    """A kernel that gets no memory for the rows that it keeps says so; the process lives on, and solves again."""
    told = "solved" if name == "numba_partition" else "MemoryError"  # it keeps rows of one chunk, whatever their number
    assert run(SHORT_OF_MEMORY, name, promise) == f"{told}\nTrue"


# ------------------------------------------------------------------------------------------- more than 2^31 entries

ROWS_OF_MANY = 64
PATTERN = 1009  # right sides that differ; a prime, so that an address that wraps around meets another one
BLOCKS = 2**31 // (ROWS_OF_MANY * PATTERN) + 5
BORDERS = (2**29, 2**30, 2**31)  # entries behind 2^31 bytes, 2^32 bytes, 2^31 entries


def available() -> int:
    """The bytes that this process may still use, as far as Linux tells; 0 where it does not."""
    told = []
    memory = pathlib.Path("/proc/meminfo")
    if memory.exists():
        lines = dict(line.split(":") for line in memory.read_text().splitlines())
        told.append(1024 * int(lines["MemAvailable"].split()[0]))
    for group in control_groups():
        for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            if (group / limit).exists() and (group / limit).read_text().strip().isdigit():
                told.append(int((group / limit).read_text()) - int((group / used).read_text()))
    return min(told, default=0)


def control_groups() -> list[pathlib.Path]:
    """The control groups of this process and those that hold them, of versions 1 and 2."""
    own = pathlib.Path("/proc/self/cgroup")
    found = []
    for line in own.read_text().splitlines() if own.exists() else []:
        _, controllers, path = line.split(":", 2)
        root = pathlib.Path("/sys/fs/cgroup", *(["memory"] if controllers else []))
        if controllers in ("", "memory") or "memory" in controllers.split(","):
            group = root / path.lstrip("/")
            found += [group, *group.parents[: len(group.relative_to(root).parts)]]
    return found


@pytest.fixture
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One test at a time, of all workers of a run: two that see the same memory free would both take it."""
    fcntl = pytest.importorskip("fcntl", reason="needs locks of files, as POSIX has them")
    with open(tmp_path_factory.getbasetemp().parent / "alone", "w") as file:  # of the folder that workers share
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("alone")
@any_kernel
@pytest.mark.parametrize("axis", [-1, 0])
def test_more_than_2_to_the_31_entries(name: str, axis: int) -> None:
    """Addresses do not wrap around: at 2^31 bytes, at 2^32, at 2^31 entries. One matrix, solved in place: 9 GiB."""
    shape = (BLOCKS, PATTERN, ROWS_OF_MANY) if axis else (ROWS_OF_MANY, BLOCKS, PATTERN)
    size = math.prod(shape)
    assert size > 2**31
    if available() < 4 * size + 2**30:
        pytest.skip(f"needs {size / 2**28 + 1:.1f} GiB of memory, and {available() / 2**30:.1f} GiB are free")
    a, b, c, few = dominant((PATTERN, ROWS_OF_MANY), "float32")
    a, b, c = a[0], b[0], c[0]
    wanted = tridiag.solve(a, b, c, few, backend=name)
    assert error(wanted, np.broadcast_arrays(a, b, c, few), -1) <= 8
    d = np.empty(shape, np.float32)
    d[...] = few if axis else np.ascontiguousarray(few.T)[:, None]
    whole = d.reshape((-1, ROWS_OF_MANY) if axis else (ROWS_OF_MANY, -1))
    assert tridiag.solve(a, b, c, whole, axis=axis, backend=name, overwrite_d=True) is whole
    solved = d if axis else np.moveaxis(d, 0, -1)
    systems = [place // ROWS_OF_MANY if axis else place % (BLOCKS * PATTERN) for place in (0, *BORDERS, size - 1)]
    near = {system // PATTERN + step for system in systems for step in (-1, 0, 1)}
    for block in sorted({min(max(k, 0), BLOCKS - 1) for k in near} | set(range(0, BLOCKS, 97))):
        np.testing.assert_allclose(solved[block], wanted, rtol=0, atol=1e-5)
