"""What has been measured on this machine, or comes with the package: files of curves, and when they count."""

from __future__ import annotations

import functools
import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import platformdirs

from tridiag._version import __version__
from tridiag.kernels.jobs.systems import threads
from tridiag.kernels.runtime import private_files
from tridiag.selection import machine
from tridiag.selection.costs import Costs

FACTS = ("tridiag", "machine", "threads")  # of the conditions, beside the versions
HERE = "measured here by tridiag.tune()"
SHIPPED = Path(__file__).parent / "data"


def conditions() -> dict[str, Any]:
    """What measurements depend on."""
    return {
        "tridiag": __version__,
        "machine": machine.cpu(),
        "threads": threads(),
        "versions": machine.versions(),
    }


def path_of_machine() -> Path:
    """Where the measurements of this machine are: one file for each model of CPU and number of threads."""
    digest = hashlib.sha256(f"{machine.cpu()} {threads()}".encode()).hexdigest()[:12]
    return Path(platformdirs.user_data_path("tridiag")) / f"costs-{digest}.json"


@functools.cache
def known() -> Costs:
    """What "auto" goes by: the measurements of this machine, or those that come with the package."""
    path = path_of_machine()
    try:
        text = private_files.read(path).decode()
    except FileNotFoundError:
        return shipped()
    except (OSError, ValueError) as error:
        return ignored(path, error)
    try:
        record = json.loads(text)
        if differs := difference(record["conditions"], conditions()):
            raise ValueError(differs)
        return Costs(record, HERE)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        return ignored(path, error)


def ignored(path: Path, error: Exception) -> Costs:
    warnings.warn(
        f"{path} is ignored, and what comes with tridiag is used instead: {type(error).__name__}: {error}; "
        f"tridiag.tune() measures anew",
        RuntimeWarning,
        stacklevel=2,
    )
    return shipped()


def shipped() -> Costs:
    """What comes with the package: measured with as many threads as there are here, or the most below that."""
    counts = sorted(int(path.stem.rpartition("-")[2]) for path in SHIPPED.glob("costs-*.json"))
    count = max((count for count in counts if count <= threads()), default=counts[0])
    record = json.loads((SHIPPED / f"costs-{count}.json").read_text(encoding="utf-8"))
    known = record["conditions"]
    return Costs(record, f"measured on {known['machine']}, {count} thread{'s' * (count > 1)}, which comes with tridiag")


def difference(then: dict[str, Any], now: dict[str, Any]) -> str:
    """What has changed since measurements were made, in a sentence."""
    before, after = ({**known["versions"], **{key: known[key] for key in FACTS}} for known in (then, now))
    return "; ".join(
        f"{key} was {before.get(key, 'not there')}, is {after.get(key, 'not there')}"
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    )


def write(path: Path, record: dict[str, Any]) -> None:
    """All of it or nothing."""
    private_files.write(path, (json.dumps(record, separators=(",", ":")) + "\n").encode())
