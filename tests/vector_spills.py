"""How many vectors compiled loops store on the stack, for processors whose registers are narrow.

    python tests/vector_spills.py PROCESSOR KERNEL      the loops of a kernel with the most, as thomas_rows_float64

A vector that is stored there is one for which there was no register, or a part of a record on the stack. What a
function saves of its caller's is not counted, nor what is stored outside of loops; a store counts for the innermost
loop around it, as jumps backwards tell. ``vector_spills.json`` has the most of any loop of hot kernels, which may not
grow. Above `BAR` it says why: ``reasons``. Doing a half or a quarter of the lanes after the other brings
the figure down wherever it was tried, but it is kept where it costs no time alone.
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
FUNCTION = re.compile(r'^"?(?!\.?L)([\w.$]+)"?:')
LABEL = re.compile(r"^(\.?L[\w.$]+):")
JUMP = re.compile(r"^\s+(?:j\w+|b(?:\.\w+)?|cbn?z|tbn?z)\s.*?(\.?L[\w.$]+)\s*$")
BAR = 150


def spills(assembly: str) -> collections.Counter[str]:
    """The most of any loop, by functions that have some."""
    found: collections.Counter[str] = collections.Counter()
    for function, lines in functions(assembly):
        labels = {match[1]: k for k, line in enumerate(lines) if (match := LABEL.match(line))}
        jumps = ((k, match[1]) for k, line in enumerate(lines) if (match := JUMP.match(line)))
        loops = [(labels[to], k) for k, to in jumps if labels.get(to, len(lines)) <= k]
        stored: collections.Counter[tuple[int, int]] = collections.Counter()
        for k, line in enumerate(lines):
            around = [(last - first, first) for first, last in loops if first <= k <= last]
            if around and (match := STORED.match(line)):
                stored[min(around)] += 2 if match[1] else 1
        if stored:
            found[function] = max(stored.values())
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


def spills_of(processor: str, kernel: str) -> collections.Counter[str]:
    """Of a kernel, in a process that compiles for nothing else."""
    import cross
    from kernel_code import kernels

    cross.compile_for(cross.Target(SYSTEMS[processor], processor))
    return spills(kernels()[kernel]()._library.get_asm_str())


if __name__ == "__main__":
    for told, count in spills_of(*sys.argv[1:]).most_common(5):
        print(count, told)
