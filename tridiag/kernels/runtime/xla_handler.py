"""An XLA FFI handler around a compiled kernel: XLA calls it with its own buffers, no Python, no GIL, no copy."""

from __future__ import annotations

from numba import cfunc, types

from tridiag.kernels.jobs.words.symbols import INNER
from tridiag.kernels.runtime.call_frame import (
    ARGUMENTS,
    COUNT,
    RESOURCE_EXHAUSTED,
    RESULTS,
    VALUES,
    attribute,
    buffer,
    error,
    only_metadata,
    text,
)
from tridiag.kernels.runtime.subnormals import count_as, keep_subnormals
from tridiag.kernels.runtime.system import ask_for_huge_pages
from tridiag.kernels.runtime.threads import job_at
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import c_function, call, free, malloc, set_word, word

no_memory = text("tridiag: no memory for the rows that the elimination keeps; solve fewer or shorter systems at a time")


def build():
    """The handler around a kernel, which it calls as INNER.

    Its attribute: the words of the job; the helpers; the bytes of a result, or 0 where that is no fresh memory; the
    places in the job of the addresses of all arguments and then of all results.
    """

    run = types.ExternalFunction(INNER, types.void(types.int64, types.int64))

    @compiled
    def solve(frame, zero):
        """The XLA_FFI_Error, or 0."""
        if only_metadata(frame, 0):
            return 0
        told, arguments, results = attribute(frame), word(frame + ARGUMENTS), word(frame + RESULTS)
        source, words = word(told + VALUES), word(told + COUNT) - 2 - arguments - results
        helpers, fresh, places = word(source + 8 * words), word(source + 8 * (words + 1)), source + 8 * (words + 2)
        job = malloc(types.uint64(8 * words))
        if job == 0:
            return error(frame, RESOURCE_EXHAUSTED, no_memory())
        for k in range(words):
            set_word(job + 8 * k, word(source + 8 * k))
        for k in range(arguments):
            set_word(job + 8 * word(places + 8 * k), buffer(frame, ARGUMENTS, k))
        for k in range(results):
            result = buffer(frame, RESULTS, k)
            set_word(job + 8 * word(places + 8 * (arguments + k)), result)
            ask_for_huge_pages(result, fresh)
        before = keep_subnormals()
        run(job, helpers)
        count_as(before)
        failure = 0
        if job_at(job).next < job_at(job).items:  # no thread has claimed the last item
            failure = error(frame, RESOURCE_EXHAUSTED, no_memory())
        free(job)
        return failure

    whole = c_function(solve, "tridiag_handler", result=types.int64)

    def handler(frame):
        return call(whole(0), (frame,))  # as in `threads.runner`

    return cfunc(types.int64(types.int64), error_model="numpy")(handler)
