"""The CUDA runtime as far as the package asks it."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from cupy import machine

is_hip = False


class CUDARuntimeError(RuntimeError):
    """As CuPy's, but made from the driver's sentence."""


def getDeviceCount() -> int:
    if machine.failure:
        raise CUDARuntimeError(machine.failure)
    return len(machine.devices)


def getDevice() -> int:
    getDeviceCount()
    return machine.current


def setDevice(device: int) -> None:
    if not 0 <= device < getDeviceCount():
        raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
    machine.current = device


def deviceSynchronize() -> None:
    machine.synchronise()


def getDeviceProperties(device: int) -> dict[str, Any]:
    found = machine.devices[device]
    return {
        "name": found.name.encode(),
        "multiProcessorCount": found.multiprocessors,
        "sharedMemPerBlockOptin": 232_448,
        "sharedMemPerMultiprocessor": 233_472,
        "totalGlobalMem": found.memory,
    }


def memsetAsync(pointer: int, value: int, size: int, stream: int) -> None:
    getDeviceCount()
    ctypes.memset(pointer, value, size)


class PointerAttributes(NamedTuple):
    device: int
    devicePointer: int
    hostPointer: int
    type: int


def pointerGetAttributes(pointer: int) -> PointerAttributes:
    """Where a test says that a pointer is, or the current device."""
    return PointerAttributes(machine.pointers.get(pointer, getDevice()), pointer, 0, 2)
