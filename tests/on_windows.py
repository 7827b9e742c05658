"""Some kernels compiled for Windows, linked with a program in C and run in Wine against what they find here.

    python tests/on_windows.py FOLDER

Needs a C compiler for Windows (mingw-w64) and Wine. Every kernel is called many times, with three helpers: their
threads, pauses and clocks are those of Windows, as `tridiag.kernels.runtime.system` writes them; the program counts the
threads. What speaks with Python is not run. Ends with 1 where a result is not right or no thread was started.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).parents[1]
TARGET = "x86_64-pc-windows-msvc", "haswell"
COMPILER, WINE = "x86_64-w64-mingw32-gcc", shutil.which("wine64") or "/usr/lib/wine/wine64"
# counted; and ntdll's, of which libgcc has the same by another name
LINKED = "-Wl,--wrap=CreateThread", "-Wl,--defsym=__chkstk=___chkstk_ms"
HELPERS, TIMES = 3, 50
BAR = 64.0  # eps, of the largest number of a result
PROGRAM = r"""
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>
extern void kernel(long long *, long long) __asm__("%s");
static volatile long made;
HANDLE __real_CreateThread(void *, SIZE_T, void *, void *, DWORD, DWORD *);
HANDLE __wrap_CreateThread(void *a, SIZE_T s, void *f, void *x, DWORD c, DWORD *i)
{
    InterlockedIncrement(&made);
    return __real_CreateThread(a, s, f, x, c, i);
}
static long long next(FILE *file) { long long x = 0; fread(&x, 8, 1, file); return x; }
static char *bytes(FILE *file, long long count)
{
    char *memory = (char *)_aligned_malloc(count + 64, 64);
    if ((long long)fread(memory, 1, count, file) != count) exit(2);
    return memory;
}
int main(int count, char **arguments)
{
    FILE *file = fopen(arguments[1], "rb");
    long long words = next(file), pointers = next(file), times = next(file), helpers = next(file);
    long long *job = (long long *)bytes(file, 8 * words), *given = malloc(8 * words), arrays = next(file);
    char *before[64] = {0}, *memory[64] = {0}, *after[64] = {0};
    long long size[64] = {0}, real[64] = {0};
    double worst = 0;
    for (int k = 0; k < arrays; k++) {
        long long offset;
        if (!(size[k] = next(file))) continue;
        offset = next(file), real[k] = next(file);
        before[k] = bytes(file, size[k]), after[k] = bytes(file, size[k]);
        memory[k] = _aligned_malloc(size[k] + 64, 64);
        job[pointers + k] = (long long)memory[k] + offset;
    }
    for (int time = 0; time < times; time++) {
        for (int k = 0; k < arrays; k++) if (size[k]) memcpy(memory[k], before[k], size[k]);
        memcpy(given, job, 8 * words);
        kernel(given, helpers);
        for (int k = 0; k < arrays; k++) {
            double largest = 0, error = 0;
            if (real[k] == 0 && size[k] && memcmp(memory[k], after[k], size[k])) worst = INFINITY;
            for (long long i = 0; real[k] && i < size[k] / real[k]; i++) {
                double x = real[k] == 8 ? ((double *)memory[k])[i] : ((float *)memory[k])[i];
                double y = real[k] == 8 ? ((double *)after[k])[i] : ((float *)after[k])[i];
                largest = fmax(largest, fabs(y)), error = x == y ? error : fmax(error, fabs(x - y));
                if (x != x) error = INFINITY;
            }
            if (error > worst * largest) worst = error / largest;
        }
    }
    printf("{\"error\": %%.3g, \"threads\": %%ld}\n", isinf(worst) ? 1e300 : worst, made);
    return 0;
}
"""


class Called(NamedTuple):
    """A call of a kernel: its name, job, and each array before and after: where it begins, its memory, its dtype."""

    name: str
    words: Any
    arrays: list[tuple[int, bytes, bytes, str] | None]


def problems() -> dict[str, Callable[[], Any]]:
    import tridiag

    draw = np.random.default_rng(0).uniform
    a, c, d = (draw(-1, 1, (330, 400)) for _ in range(3))
    b = 3 + np.abs(d)
    a32, b32, c32, d32 = (x.astype("float32") for x in (a, b, c, d))
    return {
        "solve": lambda: tridiag.solve(a, b, c, d),
        "solve, float32": lambda: tridiag.solve(a32, b32, c32, d32),
        "solve, side by side": lambda: tridiag.solve(a, b, c, d, axis=0),
        "solve, pivoted": lambda: tridiag.solve(a, b, c, d, pivoting=True),
        "matmul": lambda: tridiag.matmul(a, b, c, d),
        "linear_recurrence": lambda: tridiag.linear_recurrence(a, d),
        "linear_recurrence, long": lambda: tridiag.linear_recurrence(a.ravel(), d.ravel()),
        "logcumsumexp": lambda: tridiag.logcumsumexp(d),
        "smith_waterman": lambda: tridiag.smith_waterman(d.reshape(132, 25, 40), gap=-1.0),
    }


def record(run: Callable[[], Any]) -> list[Called]:
    """The calls of kernels that a problem makes here."""
    from tridiag.kernels import table
    from tridiag.kernels.runtime import object_cache

    found: list[Called] = []
    make = table.function

    class Recording:
        def __init__(self, address: int, *told: Any) -> None:
            self.run = make(address, *told)
            self.words = np.array(told[0])
            self.name = next(name for name, made in object_cache._kernels.items() if made.address == address)
            self.__self__ = self.run.__self__  # type: ignore[attr-defined]

        def __call__(self, *arrays: Any) -> int:
            before = [memory_of(x) for x in arrays]
            result = self.run(*arrays)
            told = zip(arrays, before, map(memory_of, arrays), strict=True)
            found.append(
                Called(
                    self.name,
                    self.words,
                    [s and t and (s[0], s[1], t[1], x.dtype.str) for x, s, t in told],
                )
            )
            return result

    table.function = Recording
    try:
        run()
    finally:
        table.function = make
    return found


def memory_of(x: Any) -> tuple[int, bytes] | None:
    """Where an array begins in the memory that it lies in, and what that holds."""
    if x is None:
        return None
    low, high = np.lib.array_utils.byte_bounds(x) if hasattr(np.lib, "array_utils") else np.byte_bounds(x)
    memory = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * (high - low)).from_address(low))
    return x.__array_interface__["data"][0] - low, memory.tobytes()


def write(path: Path, call: Called) -> None:
    from tridiag.kernels.jobs.words.job import POINTERS

    head = [len(call.words), POINTERS, TIMES, HELPERS]
    parts = [np.array(head, np.int64).tobytes(), call.words.tobytes(), np.int64(len(call.arrays)).tobytes()]
    for array in call.arrays:
        if array is None or not array[1]:
            parts.append(np.int64(0).tobytes())
            continue
        offset, before, after, dtype = array
        real = {"f": 1, "c": 2}.get(dtype[1], 0) and int(dtype[2:]) // {"f": 1, "c": 2}[dtype[1]]
        parts += [np.array([len(before), offset, real], np.int64).tobytes(), before, after]
    path.write_bytes(b"".join(parts))


def compile_kernels(folder: Path, names: list[str]) -> None:
    """Object files for Windows; the function that is called, to NAME.json."""
    sys.path.insert(0, str(ROOT / "tools"))
    import cross
    from wheels import WANTED, wanted_kernels

    from tridiag.kernels.runtime import object_cache

    cross.compile_for(cross.Target(*TARGET))
    wanted = wanted_kernels(WANTED)
    for name in names:
        code = object_cache.object_code(wanted[name]())
        (folder / f"{name}.obj").write_bytes(code.image)
        (folder / f"{name}.json").write_text(json.dumps(code.function))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--compile", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compile:
        compile_kernels(options.folder, options.compile)
        return 0
    options.folder.mkdir(parents=True, exist_ok=True)
    cases = {told: record(run) for told, run in problems().items()}
    names = sorted({call.name for calls in cases.values() for call in calls})
    subprocess.run([sys.executable, __file__, str(options.folder), "--compile", *names], check=True)
    wrong = 0
    for told, calls in cases.items():
        if not calls:
            raise SystemExit(f"{told}: no kernel was called")
        for k, call in enumerate(calls):
            error, threads = run_there(call, options.folder / re.sub(r"\W+", "_", f"{told} {k}"))
            right = error <= BAR and threads > 0
            wrong += not right
            end = "" if right else " WRONG"
            print(f"{told}, {call.name}: {error:.2g} eps, {threads} threads in {TIMES} calls{end}", flush=True)
    return int(wrong > 0)


def run_there(call: Called, place: Path) -> tuple[float, int]:
    """The largest error, in eps, and the threads that were started."""
    write(place.with_suffix(".data"), call)
    named = place.parent / call.name
    place.with_suffix(".c").write_text(PROGRAM % json.loads(named.with_suffix(".json").read_text()))
    sources = [str(place.with_suffix(".c")), str(named.with_suffix(".obj"))]
    subprocess.run([COMPILER, "-O1", *LINKED, "-o", f"{place}.exe", *sources], check=True)
    quiet = os.environ | {"WINEDEBUG": "-all", "WINEPREFIX": str(place.parent.absolute() / "wine")}
    command = [WINE, f"{place}.exe", f"{place}.data"]
    told = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=quiet, timeout=300).stdout
    )
    dtype = next(x[3] for x in call.arrays if x is not None and x[3][1] in "fc")
    return told["error"] / float(np.finfo(dtype).eps), told["threads"]


if __name__ == "__main__":
    sys.exit(main())
