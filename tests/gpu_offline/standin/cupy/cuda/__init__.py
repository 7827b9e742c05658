"""`cupy.cuda` as far as the package needs it."""

from cupy.cuda import compiler, device, driver, memory, runtime, stream
from cupy.cuda.device import Device, get_device_id
from cupy.cuda.memory import MemoryPointer, MemoryPool, alloc
from cupy.cuda.stream import ExternalStream, Stream, get_current_stream

__all__ = [
    "Device",
    "ExternalStream",
    "MemoryPointer",
    "MemoryPool",
    "Stream",
    "alloc",
    "compiler",
    "device",
    "driver",
    "get_current_stream",
    "get_device_id",
    "is_available",
    "memory",
    "runtime",
    "stream",
]


def is_available() -> bool:
    try:
        return runtime.getDeviceCount() > 0
    except runtime.CUDARuntimeError:
        return False
