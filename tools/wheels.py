"""Compile the kernels that a wheel brings along, for the kinds of processors of this or another architecture.

    python tools/wheels.py FOLDER [--machine x86_64|aarch64] [--kind KIND]... [--only small|python]

The files go to FOLDER/KIND, where `tridiag.kernels.runtime.shipped` will look for them in ``tridiag/kernels/objects``.
What is compiled is `WANTED`: the kernels of the common calls of every verb.
A kernel that speaks with Python is that of the version of Python which runs this; the others are for all. ``--only``:
those of `solve` in float64, for a test, or those that speak with Python.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import cross

from tridiag.kernels import ahead
from tridiag.kernels.runtime import object_cache, shipped, sources

TRIPLE = "{}-unknown-linux-gnu"


class Wanted(NamedTuple):
    """Kernels of some verbs: their dtypes, sizes, models, and whether those of backward passes too."""

    verbs: tuple[str, ...]
    dtypes: tuple[str, ...]
    sizes: tuple[int, ...] = (1, 2, 3)
    states: tuple[tuple[int, int], ...] = ()
    backward: bool = True


REAL = ("float64", "float32")
SYSTEMS = ("solve", "factor", "slogdet", "matmul")
LOGARITHMS = ("logcumsumexp", "log_linear_recurrence")
MODELS = tuple(verb for verb in ahead.VERBS if verb.startswith("kalman."))
WANTED = (
    Wanted(SYSTEMS, (*REAL, "complex128")),
    Wanted(("linear_recurrence", "matrix_recurrence", "solve_block"), (*REAL, "complex128")),
    Wanted((*LOGARITHMS, "selective_scan", "smith_waterman"), REAL),
    Wanted(MODELS, ("float64",), states=((1, 1), (2, 1), (3, 1), (2, 2), (4, 1), (4, 2))),
)
ONLY = {"small": (Wanted(("solve",), ("float64",), backward=False),), "python": ()}


def wanted_kernels(all_wanted: Sequence[Wanted]) -> dict[str, object_cache.Builder]:
    """What builds them, by their names."""
    return ahead.builders([named for wanted in all_wanted for named in ahead.kernels_of(*wanted)])


def compile_kind(machine: str, kind: str, folder: Path, only: str | None) -> None:
    """For the processors of a kind, into a folder of its own; this process compiles for no others from now on."""
    cross.compile_for(cross.Target(TRIPLE.format(machine), kind))
    folder.mkdir(parents=True, exist_ok=True)
    for name, build in wanted_kernels(ONLY.get(only, WANTED)).items():
        ahead.bring_along(name, build.module, object_cache.object_code(build()), folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--machine", choices=shipped.KINDS, default=platform.machine(), help="default: this one's")
    parser.add_argument("--kind", action="append", help="of its processors; may be repeated (default: all)")
    parser.add_argument("--only", choices=ONLY, help="some of them")
    parser.add_argument("--at-once", type=int, default=os.cpu_count(), help="kinds (default: one a core)")
    options = parser.parse_args()
    kinds = [kind.name for kind in shipped.KINDS[options.machine]]
    if wrong := [kind for kind in options.kind or [] if kind not in kinds]:
        parser.error(f"--kind {wrong[0]}: the kinds of {options.machine} are {', '.join(kinds)}")
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / shipped.DIGEST).write_text(sources.digest())
    with ProcessPoolExecutor(options.at_once, get_context("spawn"), max_tasks_per_child=1) as processes:
        asked = {
            kind: processes.submit(compile_kind, options.machine, kind, options.folder / kind, options.only)
            for kind in options.kind or kinds
        }
        for kind, compiled in asked.items():
            compiled.result()
            files = list((options.folder / kind).iterdir())
            print(f"{kind}: {len(files)} kernels, {sum(x.stat().st_size for x in files) / 2**20:.1f} MiB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
