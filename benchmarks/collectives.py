"""What a compiled program of JAX exchanges: words and messages, from its text."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

COLLECTIVE = re.compile(r" = (.*?) (all-gather|all-to-all|collective-permute)(?:-start)?\(")
CONDITIONAL = re.compile(r" conditional\(.*?branch_computations=\{([^}]*)\}")
TARGETS = re.compile(r"source_target_pairs=\{((?:\{\d+,\d+\},?)*)\}")


class Exchange(NamedTuple):
    """Of one device, in every call: not what is exchanged for doubtful systems alone."""

    collectives: int  # of arrays
    words: int  # received, by the device that receives most


def exchange(program: str, devices: int, taken: Collection[int | tuple[int, int]] = ()) -> Exchange:
    """From the text of a compiled program. Flags, single numbers of which the largest is found, do not count.

    Of its conditionals those that are ``taken``, by their place in the program, are counted too: the branch that
    exchanges most, or, of a pair, the one that is named by its number.
    """
    computations = re.split(r"\n(?=ENTRY|%)", program)
    entry = next(text for text in computations if text.startswith("ENTRY"))
    named = {text[1:].split(" ", 1)[0]: text for text in computations if text.startswith("%")}
    found = [directly(entry, devices)]
    chosen = dict(pair if isinstance(pair, tuple) else (pair, None) for pair in taken)
    for k, match in enumerate(CONDITIONAL.finditer(entry)):
        if k in chosen:
            branches = [directly(named[name.strip().lstrip("%")], devices) for name in match[1].split(",")]
            some = branches if chosen[k] is None else [branches[chosen[k]]]
            found.append(max(some, key=lambda told: told[1].max()))
    return Exchange(sum(count for count, _ in found), int(sum(words for _, words in found).max()))


def directly(computation: str, devices: int) -> tuple[int, np.ndarray]:
    """The collectives of a computation, and what each device receives in them."""
    count, words = 0, np.zeros(devices, int)
    for line in computation.splitlines():
        if not (match := COLLECTIVE.search(line)):
            continue
        shapes = re.findall(r"\[([\d,]*)\]", match[1])
        size = sum(int(np.prod([int(k) for k in shape.split(",") if k])) for shape in shapes)
        count += 1
        if match[2] == "collective-permute":
            pairs = TARGETS.search(line)
            assert pairs is not None
            words[[int(target) for target in re.findall(r",(\d+)\}", pairs[1])]] += size
        else:
            words += size * (devices - 1) // devices
    return count, words
