"""A stand-in for the driver of CUDA as compiled code calls it: `cuLaunchKernel` runs the g++ build of a kernel.

The handler of `tridiag.cuda.custom_call` is registered for JAX's CPU, whose buffers are in host memory. XLA has no
stream there, so that is what the handler is given in place of XLA's answer; all else of the call is XLA's.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import cpu_build
import pytest
from cupy import machine, raw

from tridiag.kernels.jobs.words.cuda import Driver

STREAM = 77
API, EXTENSION, STREAM_GET = 16, 8, 80  # bytes in XLA_FFI_CallFrame, and in XLA_FFI_Api
INVALID_VALUE, INVALID_HANDLE, LAUNCH_FAILED = 1, 400, 719
NAMES = {INVALID_VALUE: b"CUDA_ERROR_INVALID_VALUE", INVALID_HANDLE: b"CUDA_ERROR_INVALID_HANDLE"}
WORD, INT, POINTER = ctypes.c_int64, ctypes.c_uint, ctypes.c_void_p
Handler = ctypes.CFUNCTYPE(WORD, WORD)

queues: list[int] = []  # the streams of the latest launches and clears
problem: list[Exception] = []  # what a launch has raised


def word(address: int) -> Any:
    return WORD.from_address(address)


@ctypes.CFUNCTYPE(ctypes.c_int, POINTER, *[INT] * 7, POINTER, ctypes.POINTER(POINTER), POINTER)
def launch(function: Any, *told: Any) -> int:
    *sizes, shared, queue, parameters, extra = told
    grid, *one, block = sizes[:4]
    assert [*one, *sizes[4:]] == [1] * 4 and not extra
    queues[:] = [*queues[-99:], queue or 0]
    try:
        kernel = raw.FUNCTIONS[function]
        kernel.launch_at(grid, block, parameters[0], shared)
    except KeyError:
        return INVALID_HANDLE
    except raw.CUDADriverError:
        return INVALID_VALUE
    except cpu_build.LaunchError as error:
        problem.append(error)
        return LAUNCH_FAILED
    return 0


@ctypes.CFUNCTYPE(ctypes.c_int, POINTER, ctypes.c_ubyte, ctypes.c_size_t, POINTER)
def clear(pointer: Any, value: int, size: int, queue: Any) -> int:
    queues[:] = [*queues[-99:], queue or 0]
    ctypes.memset(pointer, value, size)
    return 0


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int))
def device(place: Any) -> int:
    place[0] = machine.current
    return 0


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_char_p))
def error_name(number: int, place: Any) -> int:
    place[0] = NAMES.get(number, b"CUDA_ERROR_LAUNCH_FAILED")
    return 0


@Handler
def get_stream(arguments: int) -> int:
    word(arguments + 24).value = STREAM
    return 0


ENTRIES = {"launch": launch, "clear": clear, "device": device, "error_name": error_name}


def with_a_stream(handler: Any) -> Any:
    """The handler, which is told a stream by XLA on the CPU too."""

    @Handler
    def handle(frame: int) -> int:
        if word(frame + EXTENSION).value:
            return handler(frame)
        copies = []
        for start in (frame, word(frame + API).value):
            size = word(start).value
            copies.append(ctypes.create_string_buffer(ctypes.string_at(start, size), size))
        ours, api = map(ctypes.addressof, copies)
        word(ours + API).value, word(api + STREAM_GET).value = api, ctypes.cast(get_stream, POINTER).value
        return handler(ours)

    return handle


@functools.cache
def registered() -> tuple[str, Any]:
    """The name of the handler on JAX's CPU, and what keeps it alive; it calls this driver from now on."""
    import jax

    from tridiag.cuda import custom_call

    handler = with_a_stream(Handler(custom_call.handler().address))
    capsule = jax.ffi.pycapsule(ctypes.cast(handler, POINTER).value)
    stages = {"instantiate": capsule, "execute": capsule}
    for field, function in {**ENTRIES, "load": custom_call.load_words}.items():
        custom_call.process[Driver.fields[field].word] = custom_call.address_of(function)
    jax.ffi.register_ffi_target(custom_call.name(), stages, platform="cpu", api_version=1)
    return custom_call.name(), handler


def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until the test ends JAX's CPU is a GPU with this driver, and is the only one."""
    from tridiag.cuda import custom_call

    name, _ = registered()
    monkeypatch.setattr(custom_call, "target", lambda: name)
    monkeypatch.setattr(custom_call, "devices", lambda: [machine.current])
