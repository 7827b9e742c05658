"""Compiles whole jitted functions for an H200 that is not there, by XLA; prints what came of it, as JSON.

    python tests/gpu_offline/xla_gpu_assembly.py FOLDER

Needs JAX's plugins for CUDA and ptxas. Mosaic GPU writes its kernels to FOLDER. Run by `test_xla_gpu` in a process of
its own: the plugins look for a GPU when JAX starts, and find none.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
os.environ |= {
    "JAX_PLATFORMS": "cpu,cuda",
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",
    "MOSAIC_GPU_DUMP_TO": str(FOLDER),
    "MOSAIC_GPU_DUMP_PTX": "1",
    "MOSAIC_GPU_DUMP_PTXAS": "1",
}

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental import topologies  # noqa: E402

import tridiag  # noqa: E402
from tridiag.backends import BACKENDS  # noqa: E402
from tridiag.cuda import custom_call  # noqa: E402

H200 = """
gpu_device_info {
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  threads_per_core_limit: 2048
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000
  l2_cache_size: 62914560
  clock_rate_ghz: 1.98
  device_memory_size: 150754820096
  shared_memory_per_block_optin: 232448
  cuda_compute_capability { major: 9 minor: 0 }
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 10 patch: 0 }
device_description_str: "NVIDIA H200"
"""
LAYOUTS: dict[str, tuple[Callable[..., tuple[int, ...]], int]] = {
    "rows": (lambda systems, n: (systems, n), 1),
    "columns": (lambda systems, n: (n, systems), 0),
    "narrow": (lambda systems, n: (systems // 8, n, 8), 1),
}
USUAL = (100_000, 100)


def solve(backend: str, layout: str, **options: Any) -> Callable[..., Any]:
    axis = LAYOUTS[layout][1]
    return lambda *given: tridiag.solve(*given, axis=axis, backend=backend, **options)


def masked(layout: str) -> Callable[..., Any]:
    axis = LAYOUTS[layout][1]
    return lambda a, b, c, d: tridiag.solve(a, b, c, d, axis=axis, where=b > 0, backend="jax_pallas")


def gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.grad(lambda *given: jnp.sum(function(*given) ** 2), (0, 1, 2, 3))


def replayed(a: Any, b: Any, c: Any, d: Any) -> Any:
    """A call of the handler that launches kernels; what is to be launched is told on a device alone."""
    return jax.ffi.ffi_call(custom_call.target(), jax.typeof(d))(a, b, c, d, program=np.zeros(4, np.int64))


def cases() -> dict[str, tuple[Callable[..., Any], str, tuple[int, int], str]]:
    """By name: a function of a, b, c and d; layout, number of systems and of rows, dtype."""
    found: dict[str, tuple[Callable[..., Any], str, tuple[int, int], str]] = {}
    for layout, dtype in itertools.product(LAYOUTS, ("float32", "float64")):
        name = f"jax_pallas {layout} {dtype}"
        found[name] = solve("jax_pallas", layout), layout, USUAL, dtype
        if layout != "narrow":
            found[f"{name} plain"] = solve("jax_pallas", layout, pivoting=False), layout, USUAL, dtype
            found[f"{name} transposed"] = solve("jax_pallas", layout, transpose=True), layout, USUAL, dtype
            found[f"{name} masked"] = masked(layout), layout, USUAL, dtype
            found[f"{name} long"] = solve("jax_pallas", layout), layout, (1000, 1001), dtype
    found["jax_pallas gradient"] = gradient(solve("jax_pallas", "rows")), "rows", USUAL, "float32"
    found["handler"] = replayed, "rows", USUAL, "float64"
    found["auto"] = solve("auto", "rows"), "rows", USUAL, "float64"
    found["auto gradient"] = gradient(solve("auto", "columns")), "columns", USUAL, "float32"
    for backend in ("jax_pcr", "jax_lax", "jax_fori"):
        found[backend] = solve(backend, "rows", pivoting=False), "rows", USUAL, "float32"
    return found


def kernel(ptx: Path) -> dict[str, Any]:
    """What ptxas says of a kernel."""
    text, told = ptx.read_text(), ptx.with_suffix(".ptxas").read_text()
    numbers = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", told)
    registers = re.search(r"Used (\d+) registers", told)
    assert numbers and registers, told
    return {
        "bytes": [int(k) for k in numbers.groups()],
        "registers": int(registers[1]),
        "complaints": [line for line in told.splitlines() if "warning" in line.lower()],
        "in double precision": [line.strip() for line in text.splitlines() if ".f64" in line],
        "kept in memory": text.count(".param .u64") > 6,  # a, b, c, d, x, told; and c' and d'
    }


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    jax.devices("cpu")
    entry = BACKENDS["jax_pallas"]
    BACKENDS[entry.name] = dataclasses.replace(entry, devices=(*entry.devices, "cpu"))  # where it is traced
    topology = topologies.get_topology_desc("NVIDIA H200", platform="cuda", target_config=H200, topology="1x1x1")
    sharding = jax.sharding.SingleDeviceSharding(topology.devices[0])
    results = {}
    for name, (function, layout, counts, dtype) in cases().items():
        before = set(FOLDER.glob("*.ptx"))
        x = jax.ShapeDtypeStruct(LAYOUTS[layout][0](*counts), dtype, sharding=sharding)
        program = jax.jit(function).lower(x, x, x, x).compile().as_text()
        results[name] = {
            "kernels": [kernel(ptx) for ptx in sorted(set(FOLDER.glob("*.ptx")) - before)],
            "calls": sorted(set(re.findall(r'custom_call_target="([^"]*)"', program))),
        }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
