"""An XLA FFI handler around a compiled kernel: XLA calls it with its own buffers, no Python, no GIL, no copy.

The offsets are those of the C structures in xla/ffi/api/c_api.h, whose major version is 0; within it structures only
grow at their ends. XLA calls a handler once with a metadata extension, before any data, to hear for which minor version
it is: the one that XLA has. Where XLA does not tell its own it has 0.1.
"""

from __future__ import annotations

from llvmlite import ir
from numba import cfunc, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from tridiag.kernels.jobs.words.symbols import INNER
from tridiag.kernels.runtime.subnormals import count_as, keep_subnormals
from tridiag.kernels.runtime.threads import job_at
from tridiag.kernels.simd.memory import (
    I64,
    ask_for_huge_pages,
    c_function,
    call,
    free,
    half_word,
    malloc,
    set_half_word,
    set_word,
    word,
)

EXTENSION, API, ARGUMENTS, RESULTS, ATTRIBUTES = 8, 16, 56, 96, 160  # in XLA_FFI_CallFrame
BUFFERS = 16  # behind the number of arguments, or of results
DATA = 24  # in XLA_FFI_Buffer
METADATA = 1  # XLA_FFI_Extension_Metadata
MINOR, ERROR_CREATE = 36, 48  # in XLA_FFI_Api
ERROR_SIZE, RESOURCE_EXHAUSTED = 28, 8  # of XLA_FFI_Error_Create_Args; XLA_FFI_Error_Code
MESSAGE = "tridiag: no memory for the rows that the elimination keeps; solve fewer or shorter systems at a time"


@njit
def only_metadata(frame):
    """Answer XLA's question for the API version; False for a real call."""
    extension, api = word(frame + EXTENSION), word(frame + API)
    while extension != 0:
        if half_word(extension + 8) == METADATA:
            metadata = word(extension + 24)
            set_half_word(metadata + 24, types.int32(0))
            set_half_word(metadata + 28, half_word(api + MINOR) if api != 0 else types.int32(1))
            set_half_word(metadata + 32, types.int32(0))
            return True
        extension = word(extension + 16)
    return False


@intrinsic
def message(typing):
    """The address of MESSAGE."""

    def generate(context, builder, signature, args):
        text = context.insert_const_string(builder.module, MESSAGE)
        return builder.ptrtoint(text, I64)

    return types.int64(), generate


@intrinsic
def four_words(typing):
    """The address of memory on the stack."""

    def generate(context, builder, signature, args):
        room = cgutils.alloca_once(builder, ir.ArrayType(I64, 4))
        return builder.ptrtoint(room, I64)

    return types.int64(), generate


@njit
def no_memory(frame):
    """An XLA_FFI_Error, which XLA raises."""
    block = four_words()
    set_word(block, ERROR_SIZE)
    set_word(block + 8, 0)
    set_word(block + 16, message())
    set_half_word(block + 24, types.int32(RESOURCE_EXHAUSTED))
    return call(word(word(frame + API) + ERROR_CREATE), (block,))


@njit
def buffer(frame, list_at, k):
    return word(word(word(frame + list_at + BUFFERS) + 8 * k) + DATA)


def build():
    """The handler around a kernel, which it calls as INNER.

    Its attribute: the words of the job; the helpers; the bytes of a result, or 0 where that is no fresh memory; the
    places in the job of the addresses of all arguments and then of all results.
    """

    run = types.ExternalFunction(INNER, types.void(types.int64, types.int64))

    @njit
    def solve(frame, zero):
        """The XLA_FFI_Error, or 0."""
        if only_metadata(frame):
            return 0
        attribute, arguments, results = word(word(frame + ATTRIBUTES)), word(frame + ARGUMENTS), word(frame + RESULTS)
        source, words = word(attribute + 16), word(attribute + 8) - 2 - arguments - results
        helpers, fresh, places = word(source + 8 * words), word(source + 8 * (words + 1)), source + 8 * (words + 2)
        job = malloc(types.uint64(8 * words))
        if job == 0:
            return no_memory(frame)
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
        error = 0
        if job_at(job).next < job_at(job).items:  # no thread has claimed the last item
            error = no_memory(frame)
        free(job)
        return error

    whole = c_function(solve, "tridiag_handler", result=types.int64)

    def handler(frame):
        return call(whole(0), (frame,))  # as in `threads.runner`

    return cfunc(types.int64(types.int64), error_model="numpy")(handler)
