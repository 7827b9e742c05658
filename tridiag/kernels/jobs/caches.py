"""How much of a result the caches of this machine hold."""

from __future__ import annotations

import functools
from pathlib import Path

SHARE = 4  # a result, what it is made from, and what others keep there
LEAST = 8 * 1024 * 1024  # bytes, a share of the 32 MiB that cores of a server have in common, or more


@functools.cache
def room_for_results(root: Path = Path("/")) -> int:
    """Bytes of rows of a result that are better left in the caches than written past them.

    That costs another copy, of a piece of each row. It is read once; where the system tells no sizes it is LEAST.
    """
    found = [0]
    for file in (root / "sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            found.append(int(file.read_text().strip().removesuffix("K")) * 1024)
        except (OSError, ValueError):
            continue
    return max(LEAST, max(found) // SHARE)
