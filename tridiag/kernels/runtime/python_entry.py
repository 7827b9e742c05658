"""A C function around any compiled kernel, which CPython calls with arrays as they are: see `python_call`."""

from __future__ import annotations

import ctypes

from numba import cfunc, types

from tridiag.kernels.jobs.words.job import POINTERS
from tridiag.kernels.runtime import system
from tridiag.kernels.runtime.python_call import (
    BEFORE_JOB,
    BROKEN,
    HEAD,
    HELPERS,
    INTEGER,
    JOB,
    KERNEL,
    LISTEN,
    LONG,
    NO_MEMORY,
    NONE,
    RAISED,
    SIZE,
    SOLVED,
)
from tridiag.kernels.runtime.threads import job_at
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.interrupts import ABOVE, NOBODY, TEAM
from tridiag.kernels.simd.memory import c_function, call, free, malloc, set_word, shared_words, swap, word

# what lies before a job that can be interrupted, byte offsets from it: whether it is to end; the thread that hears of
# signals, as the system and as Python know it; when it listens next; the time
BEFORE, STOP, OWNER, THREAD, DUE, SECONDS, NANOSECONDS = -BEFORE_JOB, -8, -16, -24, -32, -48, -40
TYPE = HEAD - 8  # where any object holds the address of its type
SECOND = 1_000_000_000  # nanoseconds
MAIN = "_PyOS_IsMainThread"  # of CPython; where there is none every thread listens, and hears nothing

_save = types.ExternalFunction("PyEval_SaveThread", types.int64())
_restore = types.ExternalFunction("PyEval_RestoreThread", types.void(types.int64))
_address = types.ExternalFunction("PyLong_AsVoidPtr", types.int64(types.int64))
_integer = types.ExternalFunction("PyLong_FromLong", types.int64(types.int64))
_check_signals = types.ExternalFunction("PyErr_CheckSignals", types.int32())
_is_main = types.ExternalFunction(MAIN, types.int32())


keys = shared_words("tridiag_keys", 2)  # how far the key of `attend` is made, and that key


@compiled
def make_key():
    """The key under which each thread knows the job that it works for."""
    while word(keys()) != 2:
        if swap(keys(), 0, 1):
            system.pthread_key_create(keys() + 8, 0)
            swap(keys(), 1, 2)


@compiled
def listen(job):
    """Run the handlers of signals if it is time to; whether one has raised, which ends the job.

    Meanwhile this thread works for nobody: what a handler calls is no part of the job.
    """
    system.read_clock(job + SECONDS)
    now = word(job + SECONDS) * SECOND + word(job + NANOSECONDS)
    if now < word(job + DUE):
        return 0
    if word(job + DUE) != 0:
        system.pthread_setspecific(word(keys() + 8), 0)
        _restore(word(job + THREAD))
        raised = _check_signals()
        set_word(job + THREAD, _save())
        system.pthread_setspecific(word(keys() + 8), job)
        if raised != 0:
            set_word(job + STOP, 1)
            return 1
        system.read_clock(job + SECONDS)
        now = word(job + SECONDS) * SECOND + word(job + NANOSECONDS)
    set_word(job + DUE, now + LISTEN)
    return 0


@compiled
def attend(order, zero):
    """See `tridiag.kernels.simd.interrupts`."""
    key = word(keys() + 8)
    if order > NOBODY:
        system.pthread_setspecific(key, order)
        return 0
    if order == NOBODY:
        system.pthread_setspecific(key, 0)
        return 0
    job = system.pthread_getspecific(key)
    if order == TEAM:
        return job
    if job == 0 or (word(job + STOP) == 0 and word(job + OWNER) != system.pthread_self()):
        return 0
    return 1 if word(job + STOP) != 0 else listen(job)


attending = c_function(attend, "tridiag_attend", result=types.int64)


@compiled
def run_interruptible(kernel, job, helpers, zero):
    """Whether a handler of a signal has raised; other Python threads run meanwhile."""
    make_key()
    key = word(keys() + 8)
    before = system.pthread_getspecific(key)
    for at in range(BEFORE, 0, 8):
        set_word(job + at, 0)
    set_word(job + OWNER, system.pthread_self())
    system.pthread_setspecific(key, job)
    set_word(job + THREAD, _save())
    call(kernel, (job, helpers + attending(0) * ABOVE))
    _restore(word(job + THREAD))
    system.pthread_setspecific(key, before)
    return word(job + STOP)


interruptible = c_function(run_interruptible, "tridiag_run_interruptible", 3, types.int64)


@compiled
def ask_python(zero):
    """Whether this thread is the one that runs the handlers of signals."""
    return types.int64(_is_main())


@compiled
def suppose(zero):
    return types.int64(1)


@compiled
def fresh_job(size):
    """Memory for a job of so many bytes, with what `perform` keeps before it; 0 where there is none."""
    memory = malloc(types.uint64(size - BEFORE))
    return memory - BEFORE if memory != 0 else 0


@compiled
def perform(kernel, job, helpers, long, zero):
    """Run a kernel with a job: what a call returns, or RAISED. ``long``: other Python threads run meanwhile."""
    stopped = 0
    if long == 0:
        call(kernel, (job, helpers))
    elif helpers < ABOVE and call(hears(0), ()) != 0:
        stopped = call(interruptible(0), (kernel, job, helpers))
    else:
        thread = _save()
        call(kernel, (job, helpers))
        _restore(thread)
    result = SOLVED
    if job_at(job).next < job_at(job).items:  # no thread has claimed the last item
        result = NO_MEMORY
    elif job_at(job).broken:
        result = BROKEN
    return RAISED if stopped else result


known = hasattr(ctypes.pythonapi, MAIN)
hears = c_function(ask_python if known else suppose, "tridiag_hears", 0, types.int64)
performing = c_function(perform, "tridiag_perform", 4, types.int64)


@compiled
def enter_kernel(template, arrays, count, zero):
    """What a call of a kernel with some arrays returns."""
    template = word(template + HEAD)
    size = word(template + SIZE)
    job = fresh_job(size)
    if job == 0:
        return _integer(NO_MEMORY)
    for at in range(0, size, 8):
        set_word(job + at, word(template + JOB + at))
    for k in range(count):
        array = word(arrays + 8 * k)
        if array == word(template + NONE):
            continue
        integer = word(array + TYPE) == word(template + INTEGER)
        set_word(job + 8 * (POINTERS + k), _address(array) if integer else word(array + HEAD))
    kernel, helpers, long = word(template + KERNEL), word(template + HELPERS), word(template + LONG)
    result = call(performing(0), (kernel, job, helpers, long))
    free(job + BEFORE)
    return 0 if result == RAISED else _integer(result)  # NULL: it has raised


entering = c_function(enter_kernel, "tridiag_enter", 3, types.int64)


def enter(template, arrays, count):
    return call(entering(0), (template, arrays, count))


def build():
    """The function PyObject *enter(PyObject *template, PyObject *const *arrays, Py_ssize_t count)."""
    return cfunc(types.int64(types.int64, types.int64, types.int64), error_model="numpy")(enter)
