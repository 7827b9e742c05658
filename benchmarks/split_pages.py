"""The tables of ``docs/howto/devices.rst``: what `split` measured, and what its words would take on a network.

    python benchmarks/split_pages.py

Reads the records of ``benchmarks/results/split``. A prediction is arithmetic: words over bandwidth, messages times
latency, and the small systems of all devices at the speed of the memory. Messages are those that a device waits for one
after another: log2 P of an ``all_gather`` and of a flag, of which one is for doubtful systems, P - 1 of an
``all_to_all``.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tridiag.problems.parts import with_ends
from tridiag.xla import split
from tridiag.xla.exchange import words_of_all, worth_two

ROOT = Path(__file__).parents[1]
RESULTS, PAGES = ROOT / "benchmarks/results/split", ROOT / "docs/howto"
DEVICES = 2, 4, 8, 16, 64, 256, 1024, 4096
LOCAL, SMALL = 9, 5  # words moved: of a row, of a row of a small system


class Machine(NamedTuple):
    """What a prediction supposes."""

    systems: int
    rows: int  # of each device
    memory: float = 20e9  # bytes a second of a device
    network: float = 10e9  # bytes a second into a device
    latency: float = 10e-6  # seconds

    @property
    def local(self) -> float:
        """Seconds of the work of a device on its rows."""
        return 8 * LOCAL * self.systems * self.rows / self.memory


FEW, MANY = Machine(64, 10_000), Machine(2**18, 40)


class Step(NamedTuple):
    """What a device waits for."""

    messages: int = 0
    words: float = 0  # received, a system
    joined: int = 0  # rows of the small systems that it solves, for each of its systems

    def seconds(self, machine: Machine) -> float:
        moved = 8 * machine.systems * (SMALL * self.joined / machine.memory + self.words / machine.network)
        return moved + self.messages * machine.latency


def steps(devices: int, machine: Machine, decayed: bool) -> list[Step]:
    """What comes after another where couplings have decayed within devices, or have not."""
    levels = math.ceil(math.log2(devices))
    flag, count = Step(levels), machine.systems
    two = worth_two(devices, count, split.TOLD, split.RETURNED)
    _, words = words_of_all(devices, count, split.TOLD, split.RETURNED)
    from_all = Step(2 * (devices - 1), words, 1) if two else Step(levels, words, devices)
    if split.always_right(devices, periodic=False):
        return [Step(1, split.BESIDE / 2, 1), flag]
    asked = [Step(1, split.BESIDE, 2), flag]
    if with_ends(machine.rows, count, np.dtype("float64")):
        return asked if decayed else [*asked, from_all, flag]
    if not split.may_pay(devices, count, machine.rows, False, "float64"):
        return [from_all, flag]
    return [*asked, flag] if decayed else [*asked, from_all, flag]


def efficiency(machine: Machine, taken: list[Step]) -> float:
    """Of weak scaling."""
    return machine.local / (machine.local + sum(step.seconds(machine) for step in taken))


def table(head: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (head, *rows):
        lines += [f"   {'*' if k == 0 else ' '} - {cell}" for k, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


def measured() -> str:
    """One table for each record, under the name of its processor."""
    pages = []
    for path in sorted(RESULTS.glob("*.json")):
        record = json.loads(path.read_text())
        machine = record["machine"]
        rows = []
        for name, line in record["lines"].items():
            batch = line.get("split / batch")
            rows.append(
                (
                    f"{name.split('-')[0]}, {tuple(line['shape'])}", f"{line['gather / split']:.0f}",
                    "" if batch is None else f"{batch:.2f}", f"{line['words a system']:.3g}", line["collectives"],
                )
            )  # fmt: skip
        head = "", "times faster than gathered", "over whole systems on each", "words a system", "collectives"
        pages.append(f"{machine['cpu']} ({machine['core']}, {machine['cores']} cores):\n\n{table(head, rows)}")
    return "\n".join(pages)


def predictions() -> str:
    """A table for few systems and one for many, of such as decay within devices and of such as do not."""
    head = [
        "devices",
        *(f"{what}, {how}" for how in ("decayed", "not") for what in ("messages", "words", "weak scaling")),
    ]
    pages = []
    for machine in (FEW, MANY):
        rows = []
        for devices in DEVICES:
            cells: list[Any] = [devices]
            for decayed in (True, False):
                taken = steps(devices, machine, decayed)
                words = sum(step.words for step in taken)
                messages = sum(step.messages for step in taken)
                cells += [messages, f"{words:.3g}", f"{100 * efficiency(machine, taken):.0f} %"]
            rows.append(tuple(cells))
        pages.append(f"{machine.systems:_} systems of {machine.rows:_} rows a device:\n".replace("_", " "))
        pages.append(table(tuple(head), rows))
    return "\n".join(pages)


if __name__ == "__main__":
    (PAGES / "devices.inc").write_text(measured())
    (PAGES / "devices_predicted.inc").write_text(predictions())
