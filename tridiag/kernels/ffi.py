"""An XLA FFI handler around a compiled kernel: XLA calls it with its own buffers, no Python, no GIL, no copy.

The offsets are those of the C structures in xla/ffi/api/c_api.h, FFI API version 0.1. XLA calls a handler once with a
metadata extension, before any data.
"""

from __future__ import annotations

from numba import cfunc, njit, types

from tridiag.kernels import job as J
from tridiag.kernels.cache import PREFIX
from tridiag.kernels.memory import (
    ask_for_huge_pages,
    c_function,
    call_task,
    free,
    half_word,
    malloc,
    set_half_word,
    set_word,
    word,
)

EXTENSION, ARGUMENTS, RESULTS, ATTRIBUTES = 8, 72, 112, 160  # in XLA_FFI_CallFrame
DATA = 24  # in XLA_FFI_Buffer
METADATA = 1  # XLA_FFI_Extension_Metadata


@njit
def only_metadata(frame):
    """Answer XLA's question for the API version; False for a real call."""
    extension = word(frame + EXTENSION)
    while extension != 0:
        if half_word(extension + 8) == METADATA:
            metadata = word(extension + 24)
            set_half_word(metadata + 24, types.int32(0))
            set_half_word(metadata + 28, types.int32(1))
            set_half_word(metadata + 32, types.int32(0))
            return True
        extension = word(extension + 16)
    return False


@njit
def buffer(frame, list_at, k):
    return word(word(word(frame + list_at) + 8 * k) + DATA)


def build(kernel: str):
    """The handler around the kernel of that name. Operands a, b, c, d, perhaps where.

    Its attribute: the words of the job, the helpers, the bytes of the result, or 0 where that is no fresh memory.
    """

    run = types.ExternalFunction(PREFIX + kernel, types.void(types.int64, types.int64))

    @njit
    def solve(frame, zero):
        if only_metadata(frame):
            return
        attribute = word(word(frame + ATTRIBUTES))
        words, source = word(attribute + 8) - 2, word(attribute + 16)
        job = malloc(types.uint64(8 * words))
        for k in range(words):
            set_word(job + 8 * k, word(source + 8 * k))
        for k in range(3):
            set_word(job + 8 * (J.POINTERS + k), buffer(frame, ARGUMENTS, k))
        set_word(job + 8 * (J.POINTERS + 4), buffer(frame, ARGUMENTS, 3))
        if word(job + 8 * J.FLAGS) & J.MASKED:
            set_word(job + 8 * (J.POINTERS + 3), buffer(frame, ARGUMENTS, 4))
        result = buffer(frame, RESULTS, 0)
        set_word(job + 8 * (J.POINTERS + 5), result)
        ask_for_huge_pages(result, word(source + 8 * (words + 1)))
        run(job, word(source + 8 * words))
        free(job)

    whole = c_function(solve, "tridiag_handler")

    def handler(frame):
        call_task(whole(0), frame)  # as in `thomas.build`
        return 0

    return cfunc(types.int64(types.int64), error_model="numpy")(handler)
