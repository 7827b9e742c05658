"""What a compiled program of JAX exchanges: words and messages, from its text."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

COLLECTIVE = re.compile(r" = (.*?) (all-gather|all-to-all|collective-permute)(?:-start)?\(")


class Exchange(NamedTuple):
    """Of one device, in every call: not what is exchanged for doubtful systems alone."""

    collectives: int  # of arrays
    words: int  # received


def exchange(program: str, devices: int) -> Exchange:
    """From the text of a compiled program. Flags, single numbers of which the largest is found, do not count."""
    found = [match for line in program[program.index("ENTRY") :].splitlines() if (match := COLLECTIVE.search(line))]
    words = 0
    for match in found:
        shapes = re.findall(r"\[([\d,]*)\]", match[1])
        size = sum(int(np.prod([int(k) for k in shape.split(",") if k])) for shape in shapes)
        words += size if match[2] == "collective-permute" else size * (devices - 1) // devices
    return Exchange(len(found), words)
