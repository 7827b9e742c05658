"""The machine that the stand-in pretends to be. CuPy has no such module: tests look at it, and turn its knobs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class FakeDevice:
    """What a device says of itself, and the memory that it has given away."""

    name: str = "stand-in"
    compute_capability: str = "90"
    multiprocessors: int = 4  # few, so that small problems fill it
    memory: int = 1 << 32
    used: int = 0
    limit: int = 0  # of the memory pool, in bytes; 0: none


devices = [FakeDevice(), FakeDevice()]
current = 0  # the device on which new arrays and kernels are
failure = ""  # what the driver says where there is no device: "cudaErrorNoDevice: no CUDA-capable device is detected"
synchronised = 0  # how often the host has waited for a device
seed = 0  # of the order in which the threads of a block run
pointers: dict[int, int] = {}  # the device of some
launches: list[tuple[str, int, int, int]] = []  # the latest ones: kernel, grid, block, bytes of shared memory
launched: set[str] = set()  # the kernels of all of them


def synchronise() -> None:
    """The host waits; the work is done already, and what counts is that it is counted."""
    global synchronised
    synchronised += 1
