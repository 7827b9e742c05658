"""Compiles the kernels of backends of Numba for a GPU that is not there; prints what the assembler says, as JSON.

Run by `test_numba_cuda` in a process of its own: it tells Numba of a device.
"""

import itertools
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import numba.cuda.dispatcher
from cuda.pathfinder import find_nvidia_binary_utility
from numba import cuda

from tridiag.backends import BACKENDS, REALS, numba_cuda_scan, numba_cuda_thomas


def compiled(source: tuple[Any, Any], capability: tuple[int, int]) -> str:
    function, signature = source
    device = SimpleNamespace(compute_capability=capability)
    with mock.patch.object(numba.cuda.dispatcher, "get_current_device", lambda: device):
        ptx, _ = cuda.compile_ptx(function, signature.args, cc=capability)
    return str(ptx)


def assembled(ptx: str, architecture: str) -> tuple[str, str]:
    """What ptxas says of the code, and its warnings and errors."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(ptx)
        command = [find_nvidia_binary_utility("ptxas"), f"-arch={architecture}", "-v", "--warn-on-spills", str(path)]
        done = subprocess.run([*command, "-o", str(path.with_suffix(".cubin"))], capture_output=True, text=True)
    return done.stderr, "\n".join(re.findall(r".*(?:warning|error|fatal).*", done.stderr)) + done.stdout


def kernels() -> Iterator[tuple[ModuleType, str, str]]:
    """Every backend of Numba, its kernels, and the dtypes for which the table says that it has them."""
    for backend in (numba_cuda_thomas, numba_cuda_scan):
        entry = BACKENDS[backend.__name__.rpartition(".")[2]]
        for name, dtype in itertools.product(backend.KERNELS, entry.dtypes):
            if dtype in REALS or name.split()[0] not in entry.real:
                yield backend, name, dtype


def main() -> None:
    told = {}
    for backend, name, dtype in kernels():
        ptx = compiled(backend.source(name, dtype), (9, 0))
        log, complaints = assembled(ptx, "sm_90")
        narrow = dtype in ("float32", "complex64")
        told[f"{name} {dtype}"] = {
            "complaints": complaints,
            "registers": int(re.findall(r"Used (\d+) registers", log)[0]),
            "bytes": [int(k) for k in re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", log)],
            "in double precision": sorted(set(re.findall(r"^.*\.f64\b.*$", ptx, re.M) if narrow else [])),
        }
    json.dump(told, sys.stdout)


main()
