"""How many vectors compiled loops store on the stack, for processors whose registers are narrow.

    python tests/vector_spills.py PROCESSOR KERNEL      the loops of a kernel with the most, as thomas_rows_float64

A vector that is stored there is one for which there was no register, or a part of a record on the stack. What a
function saves of its caller's is not counted. ``vector_spills.json`` has the most of any loop of some kernels,
which may not grow.
"""

from __future__ import annotations

import collections
import json
import re
import sys
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


def spills(assembly: str) -> collections.Counter[str]:
    """By functions."""
    found: collections.Counter[str] = collections.Counter()
    function = ""
    for line in assembly.splitlines():
        if match := FUNCTION.match(line):
            function = match[1].removeprefix("_")
        elif match := STORED.match(line):
            found[function] += 2 if match[1] else 1
    return found


def spills_of(processor: str, kernel: str) -> collections.Counter[str]:
    """Of a kernel, in a process that compiles for nothing else."""
    import cross
    from kernel_code import kernels

    cross.compile_for(cross.Target(SYSTEMS[processor], processor))
    return spills(kernels()[kernel]()._library.get_asm_str())


if __name__ == "__main__":
    for told, count in spills_of(*sys.argv[1:]).most_common(5):
        print(count, told)
