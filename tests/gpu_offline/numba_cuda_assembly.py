"""Compiles the kernels of `numba_cuda_thomas` for a GPU that is not there; prints what the assembler says, as JSON.

Run by `test_numba_cuda` in a process of its own: it tells Numba of a device.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numba.cuda.dispatcher
from cuda.pathfinder import find_nvidia_binary_utility
from numba import cuda, types

from tridiag.backends.numba_cuda_thomas import KERNELS


def compiled(name: str, dtype: str, capability: tuple[int, int]) -> str:
    function, signature = KERNELS[name]
    device = SimpleNamespace(compute_capability=capability)
    with mock.patch.object(numba.cuda.dispatcher, "get_current_device", lambda: device):
        ptx, _ = cuda.compile_ptx(function, signature(getattr(types, dtype)).args, cc=capability)
    return str(ptx)


def assembled(ptx: str, architecture: str) -> tuple[str, str]:
    """What ptxas says of the code, and its warnings and errors."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.ptx"
        path.write_text(ptx)
        command = [find_nvidia_binary_utility("ptxas"), f"-arch={architecture}", "-v", "--warn-on-spills", str(path)]
        done = subprocess.run([*command, "-o", str(path.with_suffix(".cubin"))], capture_output=True, text=True)
    return done.stderr, "\n".join(re.findall(r".*(?:warning|error|fatal).*", done.stderr)) + done.stdout


def main() -> None:
    told = {}
    for name in KERNELS:
        for dtype in ("float32", "float64"):
            ptx = compiled(name, dtype, (9, 0))
            log, complaints = assembled(ptx, "sm_90")
            told[f"{name} {dtype}"] = {
                "complaints": complaints,
                "registers": int(re.findall(r"Used (\d+) registers", log)[0]),
                "bytes": [int(k) for k in re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", log)],
                "in double precision": sorted(set(re.findall(r"^.*\.f64\b.*$", ptx, re.M) if "32" in dtype else [])),
            }
    json.dump(told, sys.stdout)


main()
