"""How problems are spread over threads and blocks: in half of the calls as if a device were small, or calls large."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import cupy
import numpy as np
import planted

from tridiag.cuda import blocks, kalman, pairs, recurrences, solvers, spread_systems

CHOICES: tuple[tuple[Any, str, tuple[int, ...]], ...] = (
    (spread_systems, "MOST_CHUNKS", (3,)),
    (spread_systems, "ENOUGH", (5,)),
    (recurrences, "MANY", (1,)),
    (recurrences, "FULL", (0, 10**9)),
    (recurrences, "GROUP", (4,)),
    (pairs, "FULL", (1, 10**6)),
    (pairs, "BLOCKS", (2,)),
    (kalman, "MOST", (64,)),
    (kalman, "ROOM", (1,)),
    (kalman, "ROOM_OF_GRADIENT", (1,)),
    (blocks, "ROOM", (1,)),
)
USUAL = {(module, name): getattr(module, name) for module, name, _ in (*CHOICES, (solvers, "LONGEST", ()))}


@contextlib.contextmanager
def drawn(rng: np.random.Generator) -> Iterator[None]:
    """Thresholds, and on the CPU build the order of the threads of a block."""
    small = rng.random() < 0.5
    found = {(m, name): int(rng.choice(values)) for m, name, values in CHOICES if rng.random() < 0.5}
    if (spread_systems, "MOST_CHUNKS") in found:
        found[solvers, "LONGEST"] = 1  # what is cut into pieces cannot be solved in place
    if "standin" in cupy.__version__:
        cupy.machine.seed = int(rng.integers(4))
    if small:
        set_to(USUAL | found)
    try:
        yield
    finally:
        if small:
            set_to(USUAL)


def set_to(values: dict[tuple[Any, str], int]) -> None:
    for (module, name), value in values.items():
        setattr(module, name, value)
    planted.decide_anew()
    for program in (pairs.alignment, blocks.program, kalman.program):
        program.cache_clear()
