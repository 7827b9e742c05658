"""Every kernel that a wheel brings along, compiled for processors and systems that are not here.

    python tools/other_targets.py FOLDER [--part K/N]

Each is compiled for any AArch64 Linux and written to FOLDER/generic, as into a wheel, and its optimized code for
`TARGETS` too. A symbol that no object has and that is not among those of the target's system ends this with 1; so does
code that cannot be written. What a target lacks, which keeps its kernels from running, is printed. ``--part``: the K-th
of N parts of the kernels, for as many processes.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

import cross
from symbols import undefined
from wheels import TRIPLE, WANTED, wanted_kernels

from tridiag.kernels import ahead
from tridiag.kernels.jobs.words.symbols import PREFIX
from tridiag.kernels.runtime import object_cache, shipped, sources

GENERIC = cross.Target(TRIPLE.format("aarch64"), "generic")
TARGETS = {
    "linux, neoverse-n1": cross.Target(TRIPLE.format("aarch64"), "neoverse-n1"),
    "linux, neoverse-v1": cross.Target(TRIPLE.format("aarch64"), "neoverse-v1"),
    "macos, apple-m1": cross.Target("arm64-apple-macosx11.0.0", "apple-m1"),
    "windows, x86-64-v3": cross.Target("x86_64-pc-windows-msvc", "haswell"),
}
EVERYWHERE = {"malloc", "free", "abort", "memcpy", "memset", "memmove", "log", "logf", "hypot", "hypotf"}
POSIX = {
    "sched_yield", "usleep", "clock_gettime", "madvise", "pthread_create", "pthread_self", "pthread_detach",
    "pthread_key_create", "pthread_getspecific", "pthread_setspecific",
}  # fmt: skip
OF = {"linux": POSIX, "macos": POSIX | {"bzero", "memset_pattern16"}, "windows": {"_fltused", "__chkstk"}}
OURS = re.compile(rf"{re.escape(PREFIX)}\w+|_?Py\w+")  # other kernels, CPython


def lacking(system: str, needed: set[str]) -> tuple[set[str], set[str]]:
    """Of the symbols of an object file: what that system does not have, of POSIX and else."""
    missing = {name for name in needed - EVERYWHERE - OF[system] if not OURS.fullmatch(name)}
    return missing & POSIX, missing - POSIX


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", default="1/1")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    cross.compile_for(GENERIC)
    others = {told: cross.Codegen(target) for told, target in TARGETS.items()}
    place = options.folder / GENERIC.processor
    place.mkdir(parents=True, exist_ok=True)
    (options.folder / shipped.DIGEST).write_text(sources.digest())
    unknown, lacked = set(), set()
    for name, build in list(wanted_kernels(WANTED).items())[part - 1 :: parts]:
        compiled = build()
        code = object_cache.object_code(compiled)
        ahead.bring_along(name, build.module, code, place)
        images = {"linux, generic": code.image}
        images |= {told: made.object_of(compiled._library._final_module) for told, made in others.items()}
        for told, image in images.items():
            system = told.partition(",")[0]
            of_posix, else_missing = lacking(system, undefined(image))
            lacked |= {(system, symbol) for symbol in of_posix}
            unknown |= {f"{name} for {told} needs {symbol}, which {system} does not have" for symbol in else_missing}
        print(name, *(f"{len(image) >> 10} KiB" for image in images.values()), flush=True)
    for system, symbol in sorted(lacked):
        print(f"{system} lacks {symbol}")
    print(*sorted(unknown), sep="\n")
    return int(bool(unknown))


if __name__ == "__main__":
    sys.exit(main())
