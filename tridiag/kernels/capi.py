"""A C function around any compiled kernel, which CPython calls with arrays as they are: see `tridiag.kernels.call`."""

from __future__ import annotations

from numba import cfunc, types

from tridiag.kernels import job as J
from tridiag.kernels.call import BROKEN, HEAD, HELPERS, JOB, KERNEL, LONG, NO_MEMORY, NONE, SIZE, SOLVED
from tridiag.kernels.memory import call, free, malloc, set_word, word


def build():
    """The function PyObject *enter(PyObject *template, PyObject *const *arrays, Py_ssize_t count)."""
    save = types.ExternalFunction("PyEval_SaveThread", types.int64())
    restore = types.ExternalFunction("PyEval_RestoreThread", types.void(types.int64))
    integer = types.ExternalFunction("PyLong_FromLong", types.int64(types.int64))

    def enter(template, arrays, count):
        template = word(template + HEAD)
        kernel, size, helpers = word(template + KERNEL), word(template + SIZE), word(template + HELPERS)
        job = malloc(types.uint64(size))
        if job == 0:
            return integer(NO_MEMORY)
        for at in range(0, size, 8):
            set_word(job + at, word(template + JOB + at))
        for k in range(count):
            array = word(arrays + 8 * k)
            if array != word(template + NONE):
                set_word(job + 8 * (J.POINTERS + k), word(array + HEAD))
        if word(template + LONG):
            thread = save()
            call(kernel, (job, helpers))
            restore(thread)
        else:
            call(kernel, (job, helpers))
        result = SOLVED
        if word(job + 8 * J.NEXT) < word(job + 8 * J.ITEMS):  # no thread has claimed the last item
            result = NO_MEMORY
        elif word(job + 8 * J.BROKEN):
            result = BROKEN
        free(job)
        return integer(result)

    return cfunc(types.int64(types.int64, types.int64, types.int64), error_model="numpy")(enter)
