"""The cores that the quotas of a container leave to its processes, as control groups of Linux have them."""

from __future__ import annotations

import functools
import math
from pathlib import Path


@functools.cache
def quota(root: Path = Path("/")) -> float:
    """Cores, rounded up, that this process and those in its groups may keep busy; infinity where nothing limits them.

    Of both versions of control groups, and of the groups around: the tightest counts. It is read once.
    """
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return math.inf
    found = math.inf
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / controllers
        inner = top / path.lstrip("/")
        for folder in (inner, *inner.parents):
            found = min(found, of_group(folder))
            if folder == top:
                break
    return max(1, math.ceil(found)) if found < math.inf else found


def of_group(folder: Path) -> float:
    """The time that a group has in a period, over that period."""
    for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            time, period = " ".join((folder / file).read_text() for file in files).split()
            if time not in ("max", "-1"):
                return int(time) / int(period)
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return math.inf
