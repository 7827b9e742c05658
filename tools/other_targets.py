"""Every kernel that a wheel brings along, compiled for processors and systems that are not here.

    python tools/other_targets.py FOLDER [--part K/N] [VERB]...

Each is compiled for any AArch64 Linux and written to FOLDER/generic, as into a wheel, and its optimized code for
`TARGETS` too. A symbol that no object has and that is not among those of the target's system ends this with 1; so does
code that cannot be written. ``--part``: the K-th of N parts of the kernels, for as many processes. Verbs, as ``solve``
or ``kalman.filter``: the kernels of these alone.
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
from tridiag.kernels.runtime import object_cache, shipped, sources, system

GENERIC = cross.Target(TRIPLE.format("aarch64"), "generic")
TARGETS = {
    "linux, neoverse-n1": cross.Target(TRIPLE.format("aarch64"), "neoverse-n1"),
    "linux, neoverse-v1": cross.Target(TRIPLE.format("aarch64"), "neoverse-v1"),
    "macos, apple-m1": cross.Target("arm64-apple-macosx11.0.0", "apple-m1"),
    "windows, x86-64-v3": cross.Target("x86_64-pc-windows-msvc", "haswell"),
}
VERBS = tuple(verb for wanted in WANTED for verb in wanted.verbs)
EVERYWHERE = {"malloc", "free", "abort", "memcpy", "memset", "memmove", "log", "logf", "hypot", "hypotf"}
POSIX = {*system.WINDOWS}
KERNEL32 = {
    "SwitchToThread", "Sleep", "QueryPerformanceCounter", "QueryPerformanceFrequency", "CreateThread", "CloseHandle",
    "GetCurrentThreadId", "TlsAlloc", "TlsGetValue", "TlsSetValue",
}  # fmt: skip
OF = {"linux": POSIX, "macos": POSIX | {"bzero", "memset_pattern16"}, "windows": KERNEL32 | {"_fltused", "__chkstk"}}
OURS = re.compile(rf"{re.escape(PREFIX)}\w+|_?Py\w+")  # other kernels, CPython


def lacking(of: str, needed: set[str]) -> set[str]:
    """Of the symbols of an object file: what that system does not have."""
    return {name for name in needed - EVERYWHERE - OF[of] if not OURS.fullmatch(name)}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--part", default="1/1")
    parser.add_argument("verbs", nargs="*", metavar="VERB", help=f"of {', '.join(VERBS)} (default: all)")
    options = parser.parse_args()
    if wrong := [verb for verb in options.verbs if verb not in VERBS]:
        parser.error(f"{wrong[0]}: kernels come along for {', '.join(VERBS)}")
    part, parts = map(int, options.part.split("/"))
    wanted = [some._replace(verbs=tuple(v for v in some.verbs if v in (options.verbs or VERBS))) for some in WANTED]
    cross.compile_for(GENERIC)
    kernels = list(wanted_kernels(wanted).items())[part - 1 :: parts]
    others = {told: cross.Codegen(target) for told, target in TARGETS.items()}
    place = options.folder / GENERIC.processor
    place.mkdir(parents=True, exist_ok=True)
    (options.folder / shipped.DIGEST).write_text(sources.digest())
    unknown = 0
    for name, build in kernels:
        compiled = build()
        code = object_cache.object_code(compiled)
        ahead.bring_along(name, build.module, code, place)
        images = {"linux, generic": code.image}
        images |= {told: made.object_of(compiled._library._final_module) for told, made in others.items()}
        print(name, *(f"{len(image) >> 10} KiB" for image in images.values()), flush=True)
        for told, image in images.items():
            missing = lacking(told.partition(",")[0], undefined(image))
            unknown += len(missing)
            for symbol in sorted(missing):
                print(f"{name} for {told} needs {symbol}, which that system does not have", flush=True)
    print(f"part {options.part}: {len(kernels)} kernels for {1 + len(TARGETS)} targets; unknown symbols: {unknown}")
    return int(unknown > 0)


if __name__ == "__main__":
    sys.exit(main())
