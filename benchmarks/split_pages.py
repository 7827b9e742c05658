"""The tables of ``docs/howto/devices.rst``: what `split` measured, and what its words would take on a network.

    python benchmarks/split_pages.py

Reads the records of ``benchmarks/results/split``. A prediction is arithmetic: words over bandwidth, messages times
latency, and the small systems of all devices at the speed of the memory.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from tridiag.xla.split import WORTH_TWO

ROOT = Path(__file__).parents[1]
RESULTS, PAGES = ROOT / "benchmarks/results/split", ROOT / "docs/howto"
DEVICES = 2, 4, 8, 16, 64, 256, 1024, 4096
TOLD, RETURNED, LOCAL, SMALL = 6, 3, 9, 5  # words: of a system to others, back; of a row, of a row of a small system


class Machine(NamedTuple):
    """What a prediction supposes."""

    systems: int = 64
    rows: int = 10_000  # of each device
    memory: float = 20e9  # bytes a second of a device
    network: float = 10e9  # bytes a second into a device
    latency: float = 10e-6  # seconds


class Prediction(NamedTuple):
    collectives: int
    messages: int  # into a device
    words: float  # received, a system
    efficiency: float  # of weak scaling


def predicted(devices: int, machine: Machine) -> Prediction:
    """An ``all_gather`` in a tree of log2 P messages, or two ``all_to_all`` of P - 1."""
    two = machine.systems >= WORTH_TWO * devices
    words = (TOLD + RETURNED) * (devices - 1) / devices if two else TOLD * (devices - 1)
    messages = 2 * (devices - 1) if two else math.ceil(math.log2(devices))
    local = 8 * LOCAL * machine.systems * machine.rows / machine.memory
    small = 8 * SMALL * machine.systems * (1 if two else devices) / machine.memory
    exchange = 8 * words * machine.systems / machine.network + messages * machine.latency
    return Prediction(1 + two, messages, words, local / (local + small + exchange))


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
    rows = [
        (devices, p.collectives, p.messages, f"{p.words:.3g}", f"{100 * p.efficiency:.0f} %")
        for devices, p in ((devices, predicted(devices, Machine())) for devices in DEVICES)
    ]
    return table(("devices", "collectives", "messages", "words a system", "weak scaling, predicted"), rows)


if __name__ == "__main__":
    (PAGES / "devices.inc").write_text(measured())
    (PAGES / "devices_predicted.inc").write_text(predictions())
