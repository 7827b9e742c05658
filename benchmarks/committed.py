"""The file of committed ratios: one entry for each kind of machine that they were measured on."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from losses import Committed

Entry = dict[str, Any]
NEEDED = ("machine", "versions", "commit", "threads", "tiny", "lines")


class BadFile(Exception):
    """The file is not there, or is no such file."""


def read(path: Path) -> list[Entry]:
    """The entries of a file, each of which has what is needed of it."""
    try:
        entries = json.loads(path.read_text())["entries"]
        for entry in entries:
            checked(entry)
    except FileNotFoundError:
        raise BadFile(f"{path} is not there; write it on a quiet machine: python benchmarks/guard.py --write") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        told = f"{type(error).__name__}: {error}"
        raise BadFile(f"{path} does not hold committed ratios ({told}); take it from git, or remove it") from error
    return list(entries)


def checked(entry: Entry) -> None:
    missing = [name for name in NEEDED if name not in entry]
    if missing:
        raise ValueError(f"an entry without {', '.join(missing)}")
    kind(entry)
    for name, line in entry["lines"].items():
        if not (math.isfinite(line["ratio"]) and line["ratio"] > 0 and line["cores"] >= 0 and line["figure"]):
            raise ValueError(f"{name} has a ratio of {line['ratio']}, a time over another one")


def kind(entry: Entry) -> tuple[Any, ...]:
    """What has to be alike for ratios to compare: the processor, its caches, the threads; and the sizes of problems."""
    machine = entry["machine"]
    return machine["cpu"], tuple(sorted(machine["caches"].items())), entry["threads"], entry["tiny"]


def entry_of(entries: Sequence[Entry], here: Entry) -> Entry | None:
    """The entry of a machine like this one."""
    return next((entry for entry in entries if kind(entry) == kind(here)), None)


def ratios(entries: Sequence[Entry], here: Entry) -> dict[tuple[str, str], Committed]:
    """The committed ratios by the names of lines and figures; where this machine has none the largest of any other."""
    own = entry_of(entries, here)
    found: dict[tuple[str, str], Committed] = {}
    for entry in (entry for entry in entries if entry["tiny"] == here["tiny"]):
        for name, line in entry["lines"].items():
            key, this = (name, line["figure"]), Committed(line["ratio"], line["cores"], entry is own)
            found[key] = max(found.get(key, this), this, key=lambda one: (one.here, one.ratio))
    return found


def write(path: Path, entries: Sequence[Entry], new: Entry) -> None:
    """The entry of this machine takes the place of an older one, whose other lines it keeps where it has only some."""
    old = entry_of(entries, new)
    merged = new if old is None else new | {"lines": old["lines"] | new["lines"]}
    others = [entry for entry in entries if entry is not old]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"entries": [*others, merged]}, indent=1) + "\n")
