"""What is promised of contestants, and whether a race keeps it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tridiag.benchmarking.race import Seconds


@dataclass(frozen=True)
class Bar:
    """What is promised of contestants: a figure for each round, whose median is at most, or at least, the limit.

    Without a limit the figure is only told.
    """

    figure: str
    names: tuple[str, ...]
    of: Callable[..., Seconds]
    limit: float | None
    at_most: bool = True
    unit: str = ""

    def judge(self, walls: dict[str, Seconds]) -> dict[str, Any]:
        low, median, high = np.quantile(self.of(*(walls[name] for name in self.names)), (0.25, 0.5, 0.75)).tolist()
        bar = verdict = ""
        if self.limit is not None:
            bar = f"{'at most' if self.at_most else 'at least'} {self.limit:g}{self.unit}"
            verdict = "pass" if (median <= self.limit if self.at_most else median >= self.limit) else "short"
        return {
            "figure": self.figure,
            "contestants": self.names,
            "median": median,
            "quartiles": (low, high),
            "unit": self.unit,
            "bar": bar,
            "limit": self.limit,
            "verdict": verdict,
        }


def at_most(limit: float | None, of: str, to: str) -> Bar:
    """The time of one contestant over that of another."""
    return Bar(f"{of} / {to}", (of, to), lambda x, y: x / y, limit)


def streams(limit: float | None, of: str, past: float | None = None, stream: str = "stream") -> tuple[Bar, Bar]:
    """The time of a contestant over that of a stream, and over that of the same words past the caches."""
    return at_most(limit, of, stream), at_most(past, of, f"{stream} past the caches")


def faster(limit: float | None, of: str, than: str) -> Bar:
    """How many times faster a contestant is than another."""
    return Bar(f"{than} / {of}", (of, than), lambda x, y: y / x, limit, at_most=False)


def above(limit: float | None, of: str, to: str) -> Bar:
    """How many microseconds more a contestant takes than another."""
    return Bar(f"{of} - {to}", (of, to), lambda x, y: 1e6 * (x - y), limit, unit=" us")


def microseconds(of: str) -> Bar:
    return Bar(of, (of,), lambda x: 1e6 * x, None, unit=" us")


def seconds(limit: float | None, of: str) -> Bar:
    return Bar(of, (of,), lambda x: x, limit, unit=" s")
