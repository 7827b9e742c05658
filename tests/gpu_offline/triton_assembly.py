"""Compiles for GPUs that are not there what a backend asks Triton for; prints what came of it, as JSON.

    python tests/gpu_offline/triton_assembly.py BACKEND CAPABILITY [CHUNKS]...

The backend runs as it is, on small tensors, but for its launches: they are recorded, and each kernel that they name is
compiled once; all of them, or those that share a system among so many lanes. Run by `test_triton` in a process of its
own, where nothing is interpreted.
"""

import itertools
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tridiag.backends import BACKENDS, triton_scan, triton_thomas
from tridiag.problems.forms import Form, Recurrence

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
DTYPES = {"float32": "fp32", "float64": "fp64", "int64": "i64", "int32": "i32", "uint8": "u8"}
Launch = tuple[dict[str, str], dict[str, Any], dict[str, Any]]  # types and constants of the parameters, options


class Recorder:
    """In the place of the module of the kernels: launches nothing, and keeps what the launches were."""

    def __init__(self, backend: ModuleType = triton_thomas) -> None:
        self.run, self.launches = self, {}
        self.kernel = backend.kernels(False).run

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return self.launch

    def launch(self, *given: Any, **named: Any) -> None:
        parameters = self.kernel.params
        given = dict(zip([p.name for p in parameters], given, strict=False))
        constants = {p.name: named.pop(p.name) for p in parameters if p.is_constexpr}
        constants |= {name: None for name, value in given.items() if value is None}
        types = {p.name: "constexpr" if p.name in constants else type_of(given[p.name], p) for p in parameters}
        told = [types["x"].strip("*"), constants["KERNEL"], str(constants["CHUNKS"])]
        name = " ".join(told + [name.lower() for name, value in constants.items() if value is True])
        assert self.launches.setdefault(name, (types, constants, named)) == (types, constants, named)


def type_of(value: Any, parameter: Any) -> str:
    """As Triton's cache has it: neither alignment nor the values of numbers tell kernels apart."""
    if isinstance(value, torch.Tensor):
        assert parameter.do_not_specialize_on_alignment
        return "*" + DTYPES[str(value.dtype).removeprefix("torch.")]
    assert parameter.do_not_specialize
    return str(parameter.annotation_type)


def launches_of_systems() -> dict[str, Launch]:
    """All that the host asks for, by name: systems on both sides of every boundary between kernels, in both layouts."""
    recorder = Recorder()
    rows = (3, 17, 33, 65, 129, triton_thomas.LONGEST + 1)
    with mock.patch.object(triton_thomas, "kernels", lambda interpreted: recorder):
        for n, axis, dtype in itertools.product(rows, (0, 1), (torch.float32, torch.float64)):
            shape = (n, 2) if axis == 0 else (2, n)
            x, mask = torch.ones(shape, dtype=dtype), torch.ones(shape, dtype=torch.bool)
            for where, pivoting, a in itertools.product((None, mask), (False, True, "auto"), (x, x[:1, :1])):
                form = Form(shape, shape, axis, pivoting=pivoting, transpose=bool(n % 4 == 1))
                triton_thomas.solve((a, x, x, where), x, form)
    return recorder.launches


def launches_of_sequences() -> dict[str, Launch]:
    """The same of sequences: a lane for each or chunks of many widths, in one piece or in several."""
    recorder = Recorder(triton_scan)
    rows = (3, 17, 33, 65, 129, 257, 513, 3000)
    with mock.patch.object(triton_scan, "kernels", lambda interpreted: recorder):
        for n, axis, dtype, many in itertools.product(rows, (0, 1), (torch.float32, torch.float64), (1, 10**9)):
            x = torch.ones((n, 2) if axis == 0 else (2, n), dtype=dtype)
            with mock.patch.object(triton_scan, "MANY", many):
                form = Recurrence(tuple(x.shape), axis, transpose=bool(n % 4 == 1))
                triton_scan.logcumsumexp((), x, (), form)
                for a in (x, x[:1, :1]):
                    triton_scan.linear_recurrence((a,), x, (), form)
    return recorder.launches


LAUNCHES = {triton_thomas: launches_of_systems, triton_scan: launches_of_sequences}


def launches(backend: ModuleType = triton_thomas) -> dict[str, Launch]:
    return LAUNCHES[backend]()


def compiled(backend: ModuleType, launch: Launch, capability: int) -> dict[str, Any]:
    types, constants, options = launch
    source = ASTSource(fn=backend.kernels(False).run, signature=types, constexprs=constants)
    found = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(found.asm["cubin"])
        told = subprocess.run([CUOBJDUMP, "-res-usage", path], capture_output=True, text=True, check=True).stdout
    usage = {name: int(size) for name, size in re.findall(r"(REG|STACK|SHARED|LOCAL):(\d+)", told)}
    accesses = re.findall(r"tt\.(load|store|atomic_rmw) ?(.*?) : (.*)", found.asm["ttir"])
    return usage | {
        "lanes": 32 * options["num_warps"],
        "fused": "fma.rn.f" in found.asm["ptx"],
        "products with zero": zeros(found.asm["ttir"]),
        "in double precision": ".f64" in found.asm["ptx"],
        "unmasked": [" ".join(access) for access in accesses if "tensor" in access[2] and not is_masked(*access[:2])],
        "accesses": len(accesses),
    }


def zeros(ttir: str) -> list[str]:
    """Products that are always zero: with a variable that a loop should carry on, and does not."""
    constants = re.findall(r"(%\w+) = arith.constant dense<0.0+e\+00>", ttir)
    return [line for line in re.findall(r"= arith.mulf (.*) :", ttir) if {*line.split(", ")} & {*constants}]


def is_masked(kind: str, operands: str) -> bool:
    """A pointer and a mask are loaded from; a pointer, a value and a mask stored to."""
    return operands.count("%") >= (2 if kind == "load" else 3)


def main() -> None:
    name_of_backend, capability, *chunks = sys.argv[1:]
    backend = BACKENDS[name_of_backend].module()
    wanted = {
        name: launch
        for name, launch in launches(backend).items()
        if name.split()[2] in (chunks or ("1", "16") if "unit" not in name else chunks or name.split()[2])
    }
    json.dump({name: compiled(backend, launch, int(capability)) for name, launch in wanted.items()}, sys.stdout)


if __name__ == "__main__":
    main()
