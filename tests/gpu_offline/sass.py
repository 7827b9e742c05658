"""Machine code of kernels, disassembled by ``nvdisasm``: basic blocks, loops, and the lines that they come from."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import nvrtc

LINES = "--generate-line-info"  # what code has to be compiled with; it is the same code
INSTRUCTION = re.compile(r"\s+/\*[0-9a-f]+\*/\s+(.*?)\s*;?\s*$")
LABEL = re.compile(r"(\.L_x_\d+):")
BRANCH = re.compile(r"\bBRA\b.*`\((\.L_x_\d+)\)")
LEAVES = re.compile(r"\b(?:BRA|EXIT|RET|BRX)\b")
CONDITION = re.compile(r"@|.*\bBRA !?U?P\d")
REJOINS = "BSYNC"  # where the arms of a branch meet: run by all, whichever line the compiler gives it


class Instruction(NamedTuple):
    text: str
    lines: frozenset[int]  # of the source: its own, and those of the calls by which it came there


class Block(NamedTuple):
    instructions: list[Instruction]
    following: list[int]  # the blocks that may come next


def why_not() -> str | None:
    return nvrtc.why_not() or (None if program() else "needs nvidia-cuda-nvdisasm, which is not installed")


def program() -> Path | None:
    return nvrtc.installed("cu13/bin/nvdisasm")


def blocks_of(cubin: bytes, name: str) -> list[Block]:
    """The basic blocks of a kernel, by its mangled name, the first one first; calls are instructions."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(program()), "--print-code", "--print-line-info-inline", file.name]
        code = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    listing = code.partition(f"\n.text.{name}:\n")[2]
    return parsed(re.split(r"\n(?:\t\.section|\$)", listing)[0])


def parsed(listing: str) -> list[Block]:
    runs: list[list[Instruction]] = []
    labels: dict[str, int] = {}
    lines: list[int] = []
    begins, told = True, False  # whether a block begins here; whether lines are of the instruction before
    for line in listing.splitlines():
        if label := LABEL.match(line):
            labels[label[1]], begins = len(runs), True
        elif "//##" in line:
            lines = [*([] if told else lines), *map(int, re.findall(r"line (\d+)", line))]
            told = False
        elif found := INSTRUCTION.match(line):
            if begins:
                runs.append([])
            runs[-1].append(Instruction(found[1], frozenset(lines)))
            begins, told = bool(LEAVES.search(found[1])), True
    return [Block(run, sorted(following(k, run[-1].text, labels, len(runs)))) for k, run in enumerate(runs)]


def following(block: int, last: str, labels: dict[str, int], blocks: int) -> Iterator[int]:
    if (branch := BRANCH.search(last)) and branch[1] in labels:
        yield labels[branch[1]]
    if (not LEAVES.search(last) or CONDITION.match(last)) and block + 1 < blocks:
        yield block + 1


def comes_from(block: Block, lines: Collection[int]) -> bool:
    """Whether more than half of what it does comes from these lines."""
    found = [bool(one.lines & set(lines)) for one in block.instructions if not one.text.startswith(REJOINS)]
    return 2 * sum(found) > len(found)


def reached(blocks: list[Block], skipped: Collection[int]) -> set[int]:
    """The blocks that may be run, where no branch is taken to one that comes from lines which are skipped.

    Of two such the later is taken, where the arms of the branch meet.
    """
    found: set[int] = set()
    waiting = [0]
    while waiting:
        if (block := waiting.pop()) not in found:
            found.add(block)
            ways = blocks[block].following
            taken = [way for way in ways if len(ways) == 1 or not comes_from(blocks[way], skipped)]
            waiting += taken or ways[-1:]
    return found


def loops(blocks: list[Block], among: set[int]) -> list[set[int]]:
    """The natural loops of some of the blocks, the smallest first."""
    before = {k: [j for j in among if k in blocks[j].following] for k in among}
    dominators = {k: set(among) for k in among} | {0: {0}}
    changed = True
    while changed:
        found = {k: {k} | set.intersection(*(dominators[j] for j in before[k])) if k else {0} for k in among}
        changed, dominators = found != dominators, found
    bodies: dict[int, set[int]] = {}
    for block in among:
        for header in dominators[block] & set(blocks[block].following):
            body, waiting = bodies.setdefault(header, {header}), [block]
            while waiting:
                if (inside := waiting.pop()) not in body:
                    body.add(inside)
                    waiting += before[inside]
    return sorted(bodies.values(), key=len)
