"""What compiled loops do for want of wide registers: vectors on the stack, integers made of masks; and their stacks.

    python tests/vector_spills.py PROCESSOR KERNEL      of a kernel, as thomas_rows_float64: the loops with the most

A vector that is stored there is one for which there was no register, or a part of a record on the stack. What a
function saves of its caller's is not counted, nor what is stored outside of loops; a store counts for the innermost
loop around it, as jumps backwards tell. ``vector_spills.json`` has the most of any loop of hot kernels, which may not
grow, and none is above `BAR`.

Where masks have no registers of their own, an integer of one takes some instructions and a way to another part of the
processor: ``masks`` has how many of them the innermost loops of a kernel have at most, and ``reasons`` why.

macOS gives threads 512 KiB of stack, where `tridiag.kernels.runtime.threads` asks for no other size: ``stack`` has the
bytes of all functions of a kernel, as if each called the next one. It is at most `STACK`.
"""

from __future__ import annotations

import collections
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

BUDGET = json.loads(Path(__file__).with_suffix(".json").read_text())
SYSTEMS = {"haswell": "x86_64-unknown-linux-gnu", "neoverse-n1": "aarch64-unknown-linux-gnu"}
SYSTEMS["apple-m1"] = "arm64-apple-macosx11.0.0"
STORED = re.compile(
    r"^\s+(?:(?:str|stur)\s+q\d+, \[(?:sp|x29)\b|(stp)\s+q\d+, q\d+, \[(?:sp|x29)\b"
    r"|v?mov[ua]p[sd]\s+%[xyz]mm\d+, -?\d*\(%r[sb]p\))"
)
MASK = re.compile(r"^\s+v?p?movmsk\w+|^\s+addv\b")  # bits of a mask, on AArch64 as a sum over its lanes
FRAME = re.compile(r"^\s+(?:sub\s+sp, sp, (?:#(\d+)(, lsl #12)?|\w+)|st[rp]\s.*\[sp, #-(\d+)\]!)")
FUNCTION = re.compile(r'^"?(?!\.?L)([\w.$]+)"?:')
LABEL = re.compile(r"^(\.?L[\w.$]+):")
JUMP = re.compile(r"^\s+(?:j\w+|b(?:\.\w+)?|cbn?z|tbn?z)\s.*?(\.?L[\w.$]+)\s*$")
BAR = 150
STACK = 2**16


def spills(assembly: str, counted: re.Pattern[str] = STORED) -> collections.Counter[str]:
    """The most of any loop, by functions that have some."""
    found: collections.Counter[str] = collections.Counter()
    for function, lines in functions(assembly):
        labels = {match[1]: k for k, line in enumerate(lines) if (match := LABEL.match(line))}
        jumps = ((k, match[1]) for k, line in enumerate(lines) if (match := JUMP.match(line)))
        loops = [(labels[to], k) for k, to in jumps if labels.get(to, len(lines)) <= k]
        stored: collections.Counter[tuple[int, int]] = collections.Counter()
        for k, line in enumerate(lines):
            around = [(last - first, first) for first, last in loops if first <= k <= last]
            if around and (match := counted.match(line)):
                stored[min(around)] += 2 if match.re.groups and match[1] else 1
        if stored:
            found[function] = max(stored.values())
    return found


def masks(assembly: str) -> collections.Counter[str]:
    """The same of integers that are made of masks."""
    return spills(assembly, MASK)


def stack(assembly: str) -> int:
    """The bytes of all functions for AArch64, none of which may take more than it says."""
    found = 0
    for match in filter(None, map(FRAME.match, assembly.splitlines())):
        size = match[1] or match[3]
        assert size, f"a size that only a call knows: {match[0]}"
        found += int(size) << (12 if match[2] else 0)
    return found


def functions(assembly: str) -> Iterator[tuple[str, list[str]]]:
    """Their names and lines."""
    name, lines = "", []
    for line in assembly.splitlines():
        if match := FUNCTION.match(line):
            yield name, lines
            name, lines = match[1].removeprefix("_"), []
        else:
            lines.append(line)
    yield name, lines


def assembly_of(processor: str, kernel: str) -> str:
    """Of a kernel, in a process that compiles for nothing else."""
    import cross
    from kernel_code import kernels

    cross.compile_for(cross.Target(SYSTEMS[processor], processor))
    return str(kernels(whole=True)[kernel]()._library.get_asm_str())


if __name__ == "__main__":
    text = assembly_of(*sys.argv[1:])
    for what, found in (("vectors on the stack", spills(text)), ("integers of masks", masks(text))):
        for told, count in found.most_common(5):
            print(count, what, told)
    print(stack(text), "bytes of stack")
