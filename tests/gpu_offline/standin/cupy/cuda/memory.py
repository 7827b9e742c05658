"""Device memory, which is host memory with an owner: a pool for each device, with a limit that tests may set."""

from __future__ import annotations

import ctypes
import weakref
from typing import Any

import numpy as np

from cupy import machine
from cupy.cuda import runtime
from cupy.cuda.device import Device

LIBRARY = ctypes.CDLL(None)
ALIGNMENT = 512  # bytes: as an allocation of CuPy's pool


class OutOfMemoryError(MemoryError):
    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        told = f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes"
        super().__init__(told + (f", limit set to: {limit:,} bytes)." if limit else ")."))


def allocate(size: int) -> np.ndarray[Any, Any]:
    """Bytes of the current device, all ones: not a number, whichever type it has.

    Nothing of this process lies right behind them, so that AddressSanitizer sees what reads on.
    """
    device = machine.devices[runtime.getDevice()]
    limit = device.limit or device.memory
    if device.used + size > limit:
        raise OutOfMemoryError(size, device.used, device.limit)
    pointer = ctypes.c_void_p()
    if LIBRARY.posix_memalign(ctypes.byref(pointer), ctypes.c_size_t(ALIGNMENT), ctypes.c_size_t(max(size, 1))):
        raise MemoryError
    address = pointer.value or 0
    whole = (ctypes.c_uint8 * size).from_address(address)
    ctypes.memset(address, 255, size)
    device.used += size
    live[address] = size
    weakref.finalize(whole, release, device, address)
    return np.frombuffer(whole, np.uint8) if size else np.empty(0, np.uint8)


live: dict[int, int] = {}  # the bytes at each pointer that is allocated


def release(device: machine.FakeDevice, pointer: int) -> None:
    device.used -= live.pop(pointer)
    LIBRARY.free(ctypes.c_void_p(pointer))


def covers(pointer: int, size: int) -> bool:
    """Whether one allocation has all of these bytes."""
    known = list(live.items())  # other threads may add to them meanwhile
    return any(start <= pointer and pointer + size <= start + length for start, length in known)


class MemoryPointer:
    """Where an array begins."""

    def __init__(self, host: np.ndarray[Any, Any], device: int) -> None:
        self._host = host  # keeps it alive
        self.ptr = host.ctypes.data
        self.device_id = device
        self.mem = host

    def __int__(self) -> int:
        return self.ptr

    @property
    def device(self) -> Device:
        return Device(self.device_id)


def alloc(size: int) -> MemoryPointer:
    return MemoryPointer(allocate(size), runtime.getDevice())


class MemoryPool:
    """That of the current device."""

    def set_limit(self, size: int | None = None) -> None:
        machine.devices[runtime.getDevice()].limit = size or 0

    def get_limit(self) -> int:
        return machine.devices[runtime.getDevice()].limit

    def used_bytes(self) -> int:
        return machine.devices[runtime.getDevice()].used

    def total_bytes(self) -> int:
        return self.used_bytes()

    def free_all_blocks(self) -> None:
        """Nothing is kept."""
