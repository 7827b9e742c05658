"""Tell what is installed, which devices there are, and which backends are usable, or why not."""

from __future__ import annotations

import argparse
import collections
import json
import sys
from collections.abc import Callable
from typing import Any

import tridiag
from tridiag.backends import no_gpu
from tridiag.benchmarking import libraries
from tridiag.benchmarking.conditions import conditions
from tridiag.commands.compile import SIZES, STATES
from tridiag.commands.terminal import show, tell
from tridiag.kernels import ahead, origins
from tridiag.kernels.runtime import object_cache, shipped
from tridiag.kernels.table import name_of
from tridiag.selection import measurements

NOT_YET = "of those that `python -m tridiag compile --all --gradient` compiles"
VECTORS = ("avx512f", "avx2", "avx", "sse4.2", "sve", "neon")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the same as JSON")
    parser.add_argument("--kernels", action="store_true", help="where each compiled kernel comes from, and no more")


def run(options: argparse.Namespace) -> int:
    if options.kernels and not options.json:
        show_kernels(kernels())
        return 0
    record = facts()
    if options.json:
        print(json.dumps(record, indent=1))
        return 0
    machine = record["machine"] | {"vectors": ", ".join(record["vectors"])}
    machine["caches"] = ", ".join(f"{name} {size}" for name, size in machine["caches"].items())
    show("Machine", ("", ""), [(name, str(value)) for name, value in machine.items()], text=2)
    show_verbs(record["kernels"])
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


def kernels() -> dict[str, Any]:
    """Where each compiled kernel comes from: of all that there are, and of those that `NOT_YET` tells of."""
    wanted = ahead.kernels_of(list(ahead.VERBS), ["float64"], SIZES, STATES, backward=True)
    found = origins.origins([name_of(*named) for named in wanted])
    return {
        "kernels": {name: origin._asdict() for name, origin in found.kernels.items()},
        "kind": shipped.kind(),
        "folders": [str(folder) for folder in object_cache.folders()],
        "unused": found.unused,
    }


def show_verbs(record: dict[str, Any]) -> None:
    """How many kernels of each verb come from where."""
    counts: dict[str, collections.Counter[str]] = {}
    for entry in record["kernels"].values():
        counts.setdefault(entry["verb"], collections.Counter())[entry["where"]] += 1
    head = ("verb", *origins.PLACES)
    verbs = [verb for verb in (*ahead.VERBS, origins.OTHERS) if verb in counts]
    rows = [(verb, *(str(counts[verb][place] or "") for place in origins.PLACES)) for verb in verbs]
    show("Compiled kernels", head, rows)
    tell(told_of(record) + "\n")


def show_kernels(record: dict[str, Any]) -> None:
    """Each by its name."""
    show("Compiled kernels", ("", ""), [(name, entry["where"]) for name, entry in record["kernels"].items()], text=2)
    tell(told_of(record))


def told_of(record: dict[str, Any]) -> str:
    """Of the processors that kernels came along for, and the folders of those that were compiled."""
    along = f"{origins.ALONG}: for {record['kind']}" if record["kind"] else "None came along for this processor"
    kept = f"{origins.HERE}: kept in {' and '.join(record['folders']) or 'no folder, for none can be written'}"
    more = f"; {record['unused']} files there are of other sources, versions or processors" if record["unused"] else ""
    return f"{along}. {kept}{more}. {origins.NOT_YET}: {NOT_YET}"


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
