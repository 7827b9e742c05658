"""The call frame with which XLA calls a handler: what handlers for any device read of it, and answer.

The offsets are those of the C structures in xla/ffi/api/c_api.h, whose major version is 0; within it structures only
grow at their ends. XLA calls a handler once with a metadata extension, before any data, to hear for which minor version
it is: the one that XLA has. Where XLA does not tell its own it has 0.1.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import I64, call, half_word, set_half_word, set_word, word

EXTENSION, API, CONTEXT, STAGE, ARGUMENTS, RESULTS = 8, 16, 24, 32, 56, 96  # in XLA_FFI_CallFrame
ATTRIBUTE_COUNT, ATTRIBUTE_TYPES, ATTRIBUTES = 136, 144, 160
BUFFERS = 16  # behind the number of arguments, or of results
DATA = 24  # in XLA_FFI_Buffer
ARRAY, COUNT, VALUES = 1, 8, 16  # XLA_FFI_AttrType_ARRAY; in XLA_FFI_Array
METADATA = 1  # XLA_FFI_Extension_Metadata
MAJOR, MINOR, ERROR_CREATE, STREAM_GET = 32, 36, 48, 80  # in XLA_FFI_Api
ERROR_SIZE, STREAM_SIZE = 28, 32  # of XLA_FFI_Error_Create_Args, XLA_FFI_Stream_Get_Args
INVALID_ARGUMENT, RESOURCE_EXHAUSTED, FAILED_PRECONDITION, INTERNAL = 3, 8, 9, 13  # XLA_FFI_Error_Code
INSTANTIATE = 0  # XLA_FFI_ExecutionStage_INSTANTIATE
RECORDABLE = 1  # XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE


@compiled
def only_metadata(frame, traits):
    """Answer XLA's question for the API version and the traits; False for a real call."""
    extension, api = word(frame + EXTENSION), word(frame + API)
    while extension != 0:
        if half_word(extension + 8) == METADATA:
            metadata = word(extension + 24)
            set_half_word(metadata + 24, types.int32(0))
            set_half_word(metadata + 28, half_word(api + MINOR) if api != 0 else types.int32(1))
            set_half_word(metadata + 32, types.int32(traits))
            return True
        extension = word(extension + 16)
    return False


def text(message):
    """An intrinsic: the address of a message."""

    @intrinsic
    def address(typing):
        def generate(context, builder, signature, args):
            return builder.ptrtoint(context.insert_const_string(builder.module, message), I64)

        return types.int64(), generate

    return address


def on_stack(count):
    """An intrinsic: the address of so many words on the stack of the function that has it."""

    @intrinsic
    def address(typing):
        def generate(context, builder, signature, args):
            return builder.ptrtoint(cgutils.alloca_once(builder, ir.ArrayType(I64, count)), I64)

        return types.int64(), generate

    return address


four_words = on_stack(4)


@compiled
def error(frame, code, message):
    """An XLA_FFI_Error, which XLA raises."""
    block = four_words()
    set_word(block, ERROR_SIZE)
    set_word(block + 8, 0)
    set_word(block + 16, message)
    set_half_word(block + 24, types.int32(code))
    return call(word(word(frame + API) + ERROR_CREATE), (block,))


@compiled
def buffer(frame, list_at, k):
    return word(word(word(frame + list_at + BUFFERS) + 8 * k) + DATA)


@compiled
def has_one_array(frame):
    """Whether the attributes are one array."""
    return word(frame + ATTRIBUTE_COUNT) == 1 and half_word(word(frame + ATTRIBUTE_TYPES)) == ARRAY


@compiled
def attribute(frame):
    """The XLA_FFI_Array that is the first attribute."""
    return word(word(frame + ATTRIBUTES))


@compiled
def stream(frame, block):
    """The stream of a device, into the last of four words; returns an XLA_FFI_Error, or 0."""
    set_word(block, STREAM_SIZE)
    set_word(block + 8, 0)
    set_word(block + 16, word(frame + CONTEXT))
    set_word(block + 24, 0)
    return call(word(word(frame + API) + STREAM_GET), (block,))
