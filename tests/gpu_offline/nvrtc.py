"""CUDA C sources of the package compiled for GPUs that need not be there: the wheel ``nvidia-cuda-nvrtc`` suffices.

    python tests/gpu_offline/nvrtc.py                  what each kernel takes, on each architecture
    python tests/gpu_offline/nvrtc.py --write-budget   and keep it as the budget, ``budget.json``
    python tests/gpu_offline/nvrtc.py --write-rows     of that only the instructions a row, some seconds (`row_counts`)

The budget holds the registers of every instance for every architecture, and the instructions a row of chunks. A change
that takes more fails in `test_compile` or `test_row_counts` until the budget is written anew, so that nobody pays for
it unawares.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import importlib.util
import json
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")
REGISTERS = 65_536  # of a multiprocessor, on all of them; a block may take no more
WARP = 32
GRANULE = 256  # registers are given to warps in such lots
ALL_SIZES = "sm_90"
# states: the largest of models whose loops over rows are written out, and of all
LARGEST = dict.fromkeys(("filter.cu", "smoother.cu", "gradient.cu"), (4, 8))
BUDGET = Path(__file__).parent / "budget.json"
TELL = ("--ptxas-options=-v", "--ptxas-options=-warn-spills", "--ptxas-options=-warn-lmem-usage")


class CompileError(RuntimeError):
    """What the compiler said."""


class Usage(NamedTuple):
    """Registers of a thread, and bytes of its stack and of spills; bytes of static shared memory of its block."""

    registers: int
    stack: int
    spills: int
    shared: int


def why_not() -> str | None:
    return None if library_path() else "needs nvidia-cuda-nvrtc, which is not installed"


@functools.cache
def installed(*patterns: str) -> Path | None:
    """The first file of NVIDIA's wheels that fits one of the patterns."""
    spec = importlib.util.find_spec("nvidia")
    for root in spec.submodule_search_locations or () if spec else ():
        for pattern in patterns:
            for path in sorted(Path(root).glob(pattern)):
                if "alt" not in path.name:
                    return path
    return None


def library_path() -> Path | None:
    return installed("cu13/lib/libnvrtc.so.*", "cuda_nvrtc/lib/libnvrtc.so.*")


@functools.cache
def library() -> ctypes.CDLL:
    path = library_path()
    assert path, why_not()
    for builtins in sorted(path.parent.glob("libnvrtc-builtins.so*")):  # it looks for them by name alone
        ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
    found = ctypes.CDLL(str(path))
    found.nvrtcGetErrorString.restype = ctypes.c_char_p
    return found


def check(result: int, log: str = "") -> None:
    if result:
        raise CompileError(f"{library().nvrtcGetErrorString(result).decode()}\n{log}")


class Compiled(NamedTuple):
    """What the compiler said of a program, the mangled names of its instances, assembly and machine code."""

    log: str
    names: dict[str, str]
    ptx: str
    cubin: bytes


def compiled(source: str, expressions: Sequence[str], architecture: str, options: Sequence[str] = ()) -> Compiled:
    nvrtc, program = library(), ctypes.c_void_p()
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"source.cu", 0, None, None))
    try:
        for expression in expressions:
            check(nvrtc.nvrtcAddNameExpression(program, expression.encode()))
        words = [f"--gpu-architecture={architecture}", *TELL, *options]
        given = (ctypes.c_char_p * len(words))(*(word.encode() for word in words))
        result = nvrtc.nvrtcCompileProgram(program, len(words), given)
        log = product(program, "ProgramLog").rstrip(b"\0").decode()
        check(result, log)
        names = {}
        for expression in expressions:
            name = ctypes.c_char_p()
            check(nvrtc.nvrtcGetLoweredName(program, expression.encode(), ctypes.byref(name)))
            names[expression] = (name.value or b"").decode()
        return Compiled(log, names, product(program, "PTX").rstrip(b"\0").decode(), product(program, "CUBIN"))
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def product(program: ctypes.c_void_p, kind: str) -> bytes:
    size = ctypes.c_size_t()
    check(getattr(library(), f"nvrtcGet{kind}Size")(program, ctypes.byref(size)))
    found = ctypes.create_string_buffer(size.value)
    check(getattr(library(), f"nvrtcGet{kind}")(program, found))
    return found.raw


FUNCTION = re.compile(
    r"Function properties for (\S+)\s*\n\D*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    r"\s*\n.*?Used (\d+) registers([^\n]*)"
)
INFORMATION = re.compile(r"ptxas info|(ptxas)?[\s.]*\d+ bytes stack frame")


def usages(log: str) -> dict[str, Usage]:
    """Of each function that the log tells of, by its mangled name."""
    found = {}
    for name, stack, stores, loads, registers, rest in FUNCTION.findall(log):
        shared = re.search(r"(\d+) bytes smem", rest)
        found[name] = Usage(int(registers), int(stack), int(stores) + int(loads), int(shared[1]) if shared else 0)
    return found


def complaints(log: str) -> list[str]:
    """The lines of a log that are not information."""
    return [line for line in log.splitlines() if line.strip() and not INFORMATION.match(line)]


class Report(NamedTuple):
    """What each instance takes, and what the compiler complained of."""

    usage: dict[str, Usage]
    complaints: list[str]


def report(text: str, architecture: str, expressions: Sequence[str], options: Sequence[str] = ()) -> Report:
    """Of instances of a source, all in one program."""
    made = compiled(text, expressions, architecture, options)
    found = usages(made.log)
    return Report({expression: found[name] for expression, name in made.names.items()}, complaints(made.log))


def instances(architecture: str = ALL_SIZES) -> dict[str, dict[str, int]]:
    """All that the package can ask for: the most threads of a block, by source and name expression.

    Of sources in `LARGEST` that take longest to compile: all on one architecture, on others those sizes alone.
    """
    from tridiag.cuda.instances import INSTANCES

    found: dict[str, dict[str, int]] = {}
    for kernel in INSTANCES:
        sizes = LARGEST.get(kernel.source)
        if sizes is None or architecture == ALL_SIZES or any(f", {size}, " in kernel.name for size in sizes):
            found.setdefault(kernel.source, {})[kernel.name] = kernel.threads
    return found


def report_of_all(source: str, architecture: str) -> Report:
    """Of all instances of a source of the package, compiled as the package does."""
    from tridiag.cuda import launcher

    return report(
        launcher.text(source), architecture, list(instances(architecture)[source]), launcher.options_of(source)
    )


def registers_of_block(registers: int, threads: int) -> int:
    """What a multiprocessor sets aside."""
    warps = -(-threads // WARP)
    return warps * -(-WARP * registers // GRANULE) * GRANULE


def version() -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    check(library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--write-budget", action="store_true", help=f"keep all that is budgeted in {BUDGET.name}")
    parser.add_argument("--write-rows", action="store_true", help="of that the instructions a row alone")
    options = parser.parse_args(arguments)
    import sass

    if reason := sass.why_not() if options.write_budget or options.write_rows else why_not():
        parser.error(reason)
    if options.write_rows:
        write_rows()
        return 0
    wanted = [(source, architecture) for source in instances() for architecture in ARCHITECTURES]
    with ProcessPoolExecutor() as pool:
        reports = dict(zip(wanted, pool.map(report_of_all, *zip(*wanted, strict=True)), strict=True))
    show(reports)
    if options.write_budget:
        budget: dict[str, Any] = {"nvrtc": version()}
        for (source, architecture), found in reports.items():
            registers = {expression: usage.registers for expression, usage in found.usage.items()}
            budget.setdefault(architecture, {})[source] = registers
        BUDGET.write_text(json.dumps(budget | {"rows": json.loads(BUDGET.read_text())["rows"]}, indent=1) + "\n")
        write_rows()
    return int(any(found.complaints for found in reports.values()))


def write_rows() -> None:
    """The instructions a row of chunks, and their warps, into the budget; its aims stay."""
    import row_counts

    budget = json.loads(BUDGET.read_text())
    budget["rows"] |= {name: found._asdict() for name, found in row_counts.counted().items()}
    for name, found in budget["rows"].items():
        print(f"{name:40s} {found}")
    BUDGET.write_text(json.dumps(budget, indent=1) + "\n")


def show(reports: dict[tuple[str, str], Report]) -> None:
    for source, kernels in instances().items():
        print(f"{source}: registers on {', '.join(ARCHITECTURES)}; most threads of a block")
        for expression, threads in kernels.items():
            usages_of = (reports[source, architecture].usage for architecture in ARCHITECTURES)
            found = [usage[expression] for usage in usages_of if expression in usage]
            told = "  ".join(f"{usage.registers:4d}" for usage in found)
            more = ", ".join(f"{usage.stack} B stack, {usage.spills} B spills" for usage in found if any(usage[1:3]))
            print(f"  {expression:40s} {told}  {threads:5d}  {more}")
        for architecture in ARCHITECTURES:
            for line in reports[source, architecture].complaints:
                print(f"  {architecture}: {line}")


if __name__ == "__main__":
    sys.exit(main())
