"""Devices: which one is current, and what they can do."""

from __future__ import annotations

from typing import Any

from cupy import machine
from cupy.cuda import runtime


def get_device_id() -> int:
    return runtime.getDevice()


def get_cusparse_handle() -> int:
    return 1


class Device:
    def __init__(self, device: Any = None) -> None:
        self.id = runtime.getDevice() if device is None else int(device)
        self._left: list[int] = []

    def __int__(self) -> int:
        return self.id

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __enter__(self) -> Device:
        self._left.append(runtime.getDevice())
        self.use()
        return self

    def __exit__(self, *error: object) -> None:
        runtime.setDevice(self._left.pop())

    def use(self) -> None:
        runtime.setDevice(self.id)

    def synchronize(self) -> None:
        machine.synchronise()

    @property
    def compute_capability(self) -> str:
        return machine.devices[self.id].compute_capability

    @property
    def attributes(self) -> dict[str, int]:
        capability = self.compute_capability
        return {
            "MultiProcessorCount": machine.devices[self.id].multiprocessors,
            "MaxSharedMemoryPerBlock": 49_152,
            "MaxSharedMemoryPerBlockOptin": 232_448,
            "MaxThreadsPerMultiProcessor": 2048,
            "WarpSize": 32,
            "ComputeCapabilityMajor": int(capability[:-1]),
            "ComputeCapabilityMinor": int(capability[-1]),
        }

    @property
    def mem_info(self) -> tuple[int, int]:
        found = machine.devices[self.id]
        return found.memory - found.used, found.memory
