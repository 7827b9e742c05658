"""What algorithms do with single numbers that are not finite, for every library."""

from __future__ import annotations

from typing import Any


def finite(x: Any) -> Any:
    """x, or NaN where it is infinite: a quotient by it would be 0, which looks like a result."""
    return x + (x - x)


def not_overflowed(ops: Any, x: Any, entry: Any) -> Any:
    """x, which comes of an entry: NaN where it is infinite and the entry is not."""
    return ops.where((entry - entry) == 0, finite(x), x)
