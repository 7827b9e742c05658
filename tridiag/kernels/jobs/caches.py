"""The caches of this machine, and how much of a result they hold."""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path

SHARE = 4  # a result, what it is made from, and what others keep there
LEAST = 8 * 1024 * 1024  # bytes, a share of the 32 MiB that cores of a server have in common, or more


def sizes(root: Path = Path("/")) -> dict[str, str]:
    """Those of the first core as Linux writes them, by level and kind, as ``L1 data``; none where it tells none."""
    found = {}
    for cache in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        with contextlib.suppress(OSError):
            level, kind, size = ((cache / word).read_text().strip() for word in ("level", "type", "size"))
            found[f"L{level} {kind.lower()}"] = size
    return dict(sorted(found.items()))


@functools.cache
def room_for_results(root: Path = Path("/")) -> int:
    """Bytes of rows of a result that are better left in the caches than written past them.

    That costs another copy, of a piece of each row. It is read once; where the system tells no sizes it is LEAST.
    """
    found = [int(number) * 1024 for size in sizes(root).values() if (number := size.removesuffix("K")).isdecimal()]
    return max(LEAST, max(found, default=0) // SHARE)
