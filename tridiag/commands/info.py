"""Tell what is installed, which devices there are, and which backends are usable, or why not."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

import tridiag
from tridiag.backends import no_gpu
from tridiag.benchmarking import libraries
from tridiag.benchmarking.conditions import conditions
from tridiag.commands.terminal import show, tell
from tridiag.kernels.runtime import object_cache, shipped
from tridiag.selection import measurements

VECTORS = ("avx512f", "avx2", "avx", "sse4.2", "sve", "neon")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same as JSON")


def run(options: argparse.Namespace) -> int:
    record = facts()
    if options.json:
        print(json.dumps(record, indent=1))
        return 0
    machine = record["machine"] | {"vectors": ", ".join(record["vectors"])}
    machine["kernels"] = record["kernels"]
    machine["caches"] = ", ".join(f"{name} {size}" for name, size in machine["caches"].items())
    show("Machine", ("", ""), [(name, str(value)) for name, value in machine.items()], text=2)
    show("Devices", ("library", "devices"), [(name, found) for name, found in record["devices"].items()], text=2)
    usable = [(entry["name"], entry["algorithm"]) for entry in record["backends"] if not entry["why_not"]]
    show("Backends that are usable here", ("backend", "algorithm"), usable, text=2)
    tell(f'"auto" takes the fastest, as {record["selection"]}\n')
    others = [(entry["name"], entry["why_not"]) for entry in record["backends"] if entry["why_not"]]
    show("Others", ("backend", "why not"), others, text=2)
    show("Versions", ("", ""), [("commit", record["commit"]), *record["versions"].items()], text=2)
    return 0


def facts() -> dict[str, Any]:
    return conditions() | {
        "executable": sys.executable,
        "vectors": vectors(),
        "kernels": kernels(),
        "devices": {library: devices(library) for library in DEVICES},
        "selection": measurements.known().origin,
        "backends": [
            {"name": entry.name, "algorithm": entry.algorithm, "why_not": entry.why_not} for entry in tridiag.backends()
        ],
    }


def vectors() -> list[str]:
    """The instructions on vectors that LLVM finds, best first."""
    features = object_cache.cpu()[1].split(",")
    return [name for name in VECTORS if f"+{name}" in features]


def kernels() -> str:
    """Where the compiled kernels of this machine come from."""
    kind = shipped.kind()
    came = 0 if kind is None else len(list((shipped.FOLDER / kind).glob("*.kernel")))
    told = f"{came} came along, for {kind}" if came else "none came along"
    kept = [(folder, len(list(folder.glob("*.kernel")))) for folder in object_cache.folders()]
    return "; ".join([told, *(f"{count} compiled here, in {folder}" for folder, count in kept)])


def devices(library: str) -> str:
    """Those that a library sees, or why it has none."""
    try:
        module = libraries.load(library)
        return DEVICES[library](module)
    except Exception as error:  # whatever a broken installation says
        return str(error).partition("\n")[0]


def of_jax(module: Any) -> str:
    import jax

    return ", ".join(f"{device.platform}: {device.device_kind}" for device in jax.devices())


def of_torch(module: Any) -> str:
    names = [module.cuda.get_device_name(k) for k in range(module.cuda.device_count())]
    return ", ".join(["cpu", *(f"cuda: {name}" for name in names)])


def of_cupy(module: Any) -> str:
    if reason := no_gpu():
        return reason
    runtime = module.cuda.runtime
    return ", ".join(runtime.getDeviceProperties(k)["name"].decode() for k in range(runtime.getDeviceCount()))


DEVICES: dict[str, Callable[[Any], str]] = {"jax": of_jax, "torch": of_torch, "cupy": of_cupy}
