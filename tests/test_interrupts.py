"""That Ctrl-C ends a call of a compiled kernel at once: the next call is right, no memory is lost."""

import os
import signal
import time

import pytest
from helpers import installed
from processes import finish, running, wait_until_ready

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals, as POSIX has them")
AT_MOST = 0.2  # seconds from Ctrl-C to the end of a call; on a machine with nothing else to do
SLACK = 1.0  # where there is
AT_MOST_OF_CPU = 0.07  # where only the call's own time counts

# Each gives a call for so many rows or steps, whose time is in proportion.
SETUP = """
import ctypes, math, mmap, os, signal, sys, time
import numpy as np, tridiag
signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever started the tests may have it ignored
rng = np.random.default_rng(0)
def uniform(*shape):
    return rng.uniform(-1, 1, shape)
def model(k, p):
    return dict(F=0.9 * np.eye(k), H=uniform(p, k), Q=np.eye(k), R=np.eye(p), m0=np.zeros(k), P0=np.eye(k))
PIECE, FIXED = 2**25, 0x10  # bytes; MAP_FIXED of Linux
map_memory = ctypes.CDLL(None).mmap
map_memory.restype, map_memory.argtypes = ctypes.c_void_p, [*[ctypes.c_void_p] * 2, *[ctypes.c_int] * 3, ctypes.c_long]
def repeated(*shape, scale=1.0, dtype=float):  # no more than a piece is in memory, which is mapped again and again
    count = math.prod(shape)
    pieces = -(-np.dtype(dtype).itemsize * count // PIECE)
    if pieces < 2 or not hasattr(os, "memfd_create"):
        return (scale * uniform(*shape)).astype(dtype)
    file = os.memfd_create("piece")
    os.ftruncate(file, PIECE)
    whole = mmap.mmap(-1, pieces * PIECE)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(whole))
    for at in range(begin, begin + pieces * PIECE, PIECE):
        assert map_memory(at, PIECE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED | FIXED, file, 0) == at
    os.close(file)
    numbers = np.frombuffer(whole, dtype)
    piece = numbers[: PIECE // numbers.itemsize]
    piece[:] = scale * uniform(len(piece))
    return numbers[:count].reshape(shape)
def solve(n, *shape, name="numba_thomas", result=repeated, **options):
    shape = [n if size is None else size for size in shape]
    (a, b, c, d), x = (repeated(*shape) for _ in range(4)), result(*shape)
    return lambda: tridiag.solve(a, b, c, d, backend=name, out=x, **options)
def one_matrix(n):
    a, b, c = uniform(3, 300)
    d, x = repeated(n, 300), repeated(n, 300)
    return lambda: tridiag.solve(a, b + 4, c, d, backend="numba_thomas", out=x)
def blocks(n):
    A, B, C = uniform(3, n, 8, 8)
    d = uniform(n, 8)
    return lambda: tridiag.solve_block(A, B + 10 * np.eye(8), C, d, backend="numba_thomas")
def sequences(verb, count, *shape, **options):
    def make(n):
        sizes = [n if size is None else size for size in shape]
        *arrays, y = (repeated(*sizes, scale=0.4) for _ in range(count + 1))
        given = (tuple(arrays[:-1]), arrays[-1]) if count > 2 else arrays
        return lambda: getattr(tridiag, verb)(*given, backend="numba_scan", out=y, **options)
    return make
def matrices(n):
    A, x, y = repeated(n, 12, 12, scale=0.2), repeated(n, 12), repeated(n, 12)
    return lambda: tridiag.matrix_recurrence(A, x, backend="numba_scan", out=y)
def scans(n, states=8, **options):
    a, B, C, x, y = uniform(states), repeated(n, states), repeated(n, states), repeated(2, n), repeated(2, n)
    return lambda: tridiag.selective_scan(a, x, B, C, backend="numba_scan", out=y, **options)
def layer(n):
    a, B, C = -abs(uniform(16, 4)), repeated(n, 1, 4), repeated(n, 1, 4)
    x, step, y = repeated(n, 16), abs(repeated(n, 16)), repeated(n, 16)
    return lambda: tridiag.selective_scan(a, x, B, C, step=step, axis=0, backend="numba_scan", out=y)
def kalman(verb, missing=True):
    def make(n):
        y, parameters = uniform(8, n, 2), model(7, 2)
        if missing:
            y[0, 5] = np.nan
        return lambda: getattr(tridiag.kalman, verb)(y, **parameters, backend="numba_scan")
    return make
def alignment(spread, **options):
    def make(n):
        scores = repeated(1, n, 2000, scale=spread, dtype="f4")
        return lambda: tridiag.smith_waterman(scores, gap=-1.0, **options)
    return make
def torch_solve(n):
    import torch
    a, b, c, d, x = (torch.from_numpy(repeated(n, 100)) for _ in range(5))
    return lambda: tridiag.solve(a, b, c, d, pivoting=True, backend="numba_thomas", out=x).numpy()
CALLS = {
    "solve": lambda n: solve(n, None, 100, pivoting=True),
    "columns": lambda n: solve(n, 100, None, axis=0, pivoting=True),
    "few long systems": lambda n: solve(n, 8, None),
    "few long columns": lambda n: solve(n, None, 8, axis=0),
    "periodic": lambda n: solve(n, 8, None, periodic=True),
    "one matrix": one_matrix,
    "one system": lambda n: solve(n, None, name="numba_partition", result=uniform),  # which it reads
    "blocks": blocks,
    "recurrence": sequences("linear_recurrence", 2, 16, None),
    "one sequence": sequences("linear_recurrence", 2, None),
    "second order": sequences("linear_recurrence", 3, None),
    "matrices": matrices,
    "logcumsumexp": sequences("logcumsumexp", 1, None),
    "log_linear_recurrence": sequences("log_linear_recurrence", 2, 3, None),
    "selective_scan": scans,
    "selective_scan, a layer": layer,
    "kalman.log_likelihood": kalman("log_likelihood"),
    "kalman.log_likelihood, shared": kalman("log_likelihood", False),
    "kalman.filter": kalman("filter"),
    "kalman.smoother": kalman("smoother"),
    "smith_waterman": alignment(1),
    "smith_waterman, wild": alignment(1000),
    "torch": torch_solve,
}
make = CALLS[sys.argv[1]]
def timed(call):
    begin = time.monotonic()
    call()
    return time.monotonic() - begin
def bits(x):
    return b"".join(np.asarray(part).tobytes() for part in (x if isinstance(x, tuple) else (x,)))
small = make(2000)
wanted = bits(small())  # compiled by now
def long_enough(seconds, clock=timed):  # little longer, one problem at a time: seconds of some kernels read gigabytes
    n = 20_000
    while True:
        call = make(n)
        if (length := min(clock(call) for _ in range(3))) >= seconds:
            return call
        del call
        n = int(n * min(4, 1.1 * seconds / length + 0.1))
def interrupted(call):
    try:
        call()
    except KeyboardInterrupt:
        return time.monotonic()
"""

ONCE = """
call = long_enough(float(sys.argv[2]))
print("ready", flush=True)
sys.stdin.readline()
print("ready", flush=True)
ended = None
while ended is None:  # whoever sends the signal may be late
    ended = interrupted(call)
late = ended - float(sys.stdin.readline())
print(bits(small()) == wanted, late)
"""


def seconds_late(name: str, length: float) -> float:
    """From Ctrl-C at the beginning of a call that takes some time to its end; the next call must be right."""
    with running(SETUP + ONCE, name, str(length)) as process:
        wait_until_ready(process)
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        wait_until_ready(process)
        time.sleep(0.1)
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        right, late = finish(process, f"{sent}\n").split()
    assert right == "True"
    return float(late)


@pytest.mark.parametrize("name", ["smith_waterman"])  # the others: with `-m slow`
def test_ctrl_c_ends_a_call(name: str) -> None:
    """One that would go on for longer than it may."""
    assert seconds_late(name, 2.0) < AT_MOST + SLACK


CALLS = [
    *("solve", "columns", "few long systems", "few long columns", "periodic", "one matrix", "one system", "blocks"),
    *(
        "recurrence",
        "one sequence",
        "second order",
        "matrices",
        "logcumsumexp",
        "log_linear_recurrence",
        "selective_scan",
        "selective_scan, a layer",
        "kalman.filter",
    ),
    *("kalman.log_likelihood", "kalman.log_likelihood, shared", "kalman.smoother", "smith_waterman, wild"),
    pytest.param("torch", marks=pytest.mark.skipif(not installed("torch"), reason="needs torch")),
]


# Seconds of CPU of all threads, over their number: what else the machine does changes little, unless the one thread
# that hears of signals waits for a core while the others compute, hence two tries in time of up to nine. A call that is
# not ended goes on for longer than is allowed in each of them; one of seconds would take more memory than two tests at
# a time have: what some kernels keep of 0.12 s, and the states of filters, is more than 1 GiB.
LATE = """
from tridiag.kernels.jobs import systems
threads = systems.threads()
class Alarm(Exception):
    pass
def ring(*_):
    raise Alarm
signal.signal(signal.SIGPROF, ring)
def spent(call):
    begin = time.process_time()
    try:
        call()
        signal.setitimer(signal.ITIMER_PROF, 0)
    except Alarm:
        pass
    return (time.process_time() - begin) / threads
call = long_enough(0.12, spent)
late = []
while len(late) < 9 and sum(seconds < float(sys.argv[2]) for seconds in late) < 2:
    signal.setitimer(signal.ITIMER_PROF, 0.03 * threads)
    late.append(spent(call) - 0.03)
print(bits(small()) == wanted, sorted(late)[1], spent(call))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_a_call_of_every_kernel_ends(name: str) -> None:
    """Long before it is done; in two tries of some."""
    with running(SETUP + LATE, name, str(AT_MOST_OF_CPU)) as process:
        right, late, length = finish(process).split()
    assert right == "True"
    assert float(late) < AT_MOST_OF_CPU, f"a call of {length} seconds"


MANY_TIMES = """
import gc, threading
call = long_enough(0.1)
class Alarm(Exception):
    pass
def ring(*_):
    raise Alarm
signal.signal(signal.SIGALRM, ring)
def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
def threads():
    return len(os.listdir("/proc/self/task"))
caught, right, before, alone = 0, True, 0, threads()
for k in range(int(sys.argv[2])):
    if k == 10:
        before = resident()
    signal.setitimer(signal.ITIMER_REAL, float(rng.uniform(1e-3, 0.12)))
    try:
        call()
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Alarm:
        caught += 1
    right = right and bits(small()) == wanted
end = time.monotonic() + 30
while threads() > alone and time.monotonic() < end:  # helpers look out for more work for a while
    time.sleep(0.01)
print(right, caught > 0, resident() - before < 2**26, threads() <= alone)
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs /proc, as Linux has it")
@pytest.mark.parametrize(
    ("name", "times"),
    [
        ("solve", 20),
        *(
            pytest.param(name, 20, marks=pytest.mark.slow)
            for name in (
                "few long systems",
                "one system",
                "recurrence",
                "one sequence",
                "kalman.filter",
                "smith_waterman",
            )
        ),
    ],
)
def test_a_handler_that_raises_at_any_moment(name: str, times: int) -> None:
    """Of any signal. The call after it is right; no memory and no thread is left behind."""
    with running(SETUP + MANY_TIMES, name, str(times)) as process:
        assert finish(process) == "True True True True"


HANDLERS = """
import threading
call, tiny = long_enough(0.5), make(20)
heard, least = [], bits(tiny())
def note(*_):  # in the midst of a call: kernels may be called here too, with the GIL, as tiny ones are, and without
    heard.append((time.monotonic(), bits(tiny()) == least and bits(small()) == wanted))
signal.signal(signal.SIGALRM, note)
signal.setitimer(signal.ITIMER_REAL, 0.1)
begin = time.monotonic()
found = call()
length = time.monotonic() - begin
signal.setitimer(signal.ITIMER_REAL, 0)
at, right = heard[0]
in_thread = []
thread = threading.Thread(target=lambda: in_thread.append(bits(call())))
thread.start()
try:
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(5)
except KeyboardInterrupt:
    pass
thread.join()
print(right, at - begin < length, bits(found) == bits(call()) == in_thread[0])
"""


def test_handlers_that_do_not_raise() -> None:
    """They run during the call, which goes on; and a call in another thread than the main one is none of theirs."""
    with running(SETUP + HANDLERS, "kalman.log_likelihood") as process:  # half a second of it takes little memory
        assert finish(process) == "True True True"
