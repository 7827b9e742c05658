"""Compile the kernels that a wheel brings along, each for the kinds of processors of this machine's architecture.

    python tools/wheels.py FOLDER [--kind KIND]... [--only small|python]

The files go to FOLDER/KIND, where `tridiag.kernels.runtime.shipped` will look for them in ``tridiag/kernels/objects``.
What is compiled is `WANTED`: the kernels of the common calls of every verb.
A kernel that speaks with Python is that of the version of Python which runs this; the others are for all. ``--only``:
those of `solve` in float64, for a test, or those that speak with Python.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tridiag.kernels import ahead
from tridiag.kernels.runtime import object_cache, shipped, sources

KINDS = tuple(kind.name for kind in shipped.kinds())


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


def compile_here(folder: Path, all_wanted: tuple[Wanted, ...]) -> None:
    """For the processor that the environment names, into a folder of its own."""
    ahead.prepare_calls()
    for wanted in all_wanted:
        for named in ahead.kernels_of(wanted.verbs, wanted.dtypes, wanted.sizes, wanted.states, wanted.backward):
            ahead.prepare(named)
    folder.mkdir(parents=True, exist_ok=True)
    for name in object_cache.modules:
        ahead.bring_along(name, folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kind", action="append", choices=KINDS, help="may be repeated (default: all)")
    parser.add_argument("--only", choices=ONLY, help="some of them")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        compile_here(options.folder, ONLY.get(options.only, WANTED))
        return 0
    if not KINDS:
        raise SystemExit(f"no kernels can come along on {sys.platform}; {', '.join(shipped.KINDS)} on Linux have some")
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / shipped.DIGEST).write_text(sources.digest())
    for kind in options.kind or KINDS:
        with tempfile.TemporaryDirectory() as cache:
            environment = os.environ | {"NUMBA_CPU_NAME": kind, "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": cache}
            command = [sys.executable, __file__, str(options.folder / kind), "--here"]
            command += ["--only", options.only] if options.only else []
            subprocess.run(command, env=environment, check=True)
        files = list((options.folder / kind).iterdir())
        print(f"{kind}: {len(files)} kernels, {sum(x.stat().st_size for x in files) / 2**20:.1f} MiB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
