"""Contestants for one problem, ranked: each judged first, timed against a stream of the words that the problem has."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tridiag.benchmarking.kinds import Words
from tridiag.benchmarking.past_caches import mixture_past_caches
from tridiag.benchmarking.race import Contestant, Race, timed
from tridiag.benchmarking.streams import device_stream, stream
from tridiag.report import format_time

STREAM, PAST_CACHES = "stream", "stream past the caches"
BUSY = 0.1  # cores: what other processes take beyond that is told
Progressed = Callable[[str, float], None]  # what is done, and how much of it
Told = Callable[[str, float | str], None]  # a contestant, and the seconds of its first call or why it has none


@dataclass(frozen=True)
class Comparison:
    """What is compared: makers of contestants by name, and the words that any of them has to move.

    ``refused`` are the sentences of those that cannot run; ``baseline`` is the one that speeds are compared with.
    ``place`` is where the stream runs: a library and its device, or None for the CPU; ``facts`` go into the record.
    """

    title: str
    makers: Mapping[str, Callable[[], Contestant]]
    words: Words
    dtype: str
    baseline: str
    refused: Mapping[str, str] = field(default_factory=dict)
    place: tuple[str, str | None] | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)

    def stream(self) -> Contestant:
        if self.place is None:
            return stream(*self.words, self.dtype)
        library, device = self.place
        return device_stream(library, self.words.total, self.dtype, device)

    def streams(self) -> dict[str, Callable[[], Contestant]]:
        """That of a plain loop; on the CPU also one whose stores go past the caches."""
        found = {STREAM: self.stream}
        if self.place is None:
            found[PAST_CACHES] = functools.partial(mixture_past_caches, *self.words, self.dtype)
        return found


def compare(
    comparison: Comparison,
    rounds: int = 11,
    budget: float = 8.0,
    progressed: Progressed = lambda what, part: None,
    told: Told = lambda name, found: None,
) -> dict[str, Any]:
    """The record of a comparison: rows that are ranked, those that are wrong or cannot run last, with a sentence."""
    contestants, judged, refused = {}, {}, dict(comparison.refused)
    makers = {**comparison.streams(), **comparison.makers}
    for count, (name, make) in enumerate(makers.items()):
        progressed(f"judging {name}", count / len(makers))
        try:
            contestant = make()
            judged[name] = contestant.judge(name)
            contestants[name] = contestant
            told(name, judged[name].seconds)
        except Exception as error:  # the others are timed all the same
            refused[name] = f"{type(error).__name__}: {error}".partition("\n")[0].replace(f"{name}: ", "")
            told(name, refused[name])
            if name in (STREAM, PAST_CACHES):
                raise ValueError(f"the stream cannot run: {refused[name]}") from error
    race = timed(contestants, judged, rounds, budget, lambda part: progressed("timing", part))
    rows = [row(name, race, comparison) for name in contestants if name not in (STREAM, PAST_CACHES)]
    return {
        "title": comparison.title,
        **comparison.facts,
        "dtype": comparison.dtype,
        "words": comparison.words.total,
        "baseline": comparison.baseline,
        "stream": summary(STREAM, race, comparison),
        "stream_past_caches": summary(PAST_CACHES, race, comparison) if PAST_CACHES in contestants else None,
        "rounds": race.rounds,
        "cores_busy_with_others": race.others,
        "rows": sorted(rows, key=lambda found: found["over_stream"]),
        "refused": [{"name": name, "why": why} for name, why in refused.items()],
    }


def row(name: str, race: Race, comparison: Comparison) -> dict[str, Any]:
    """A contestant's figures; ratios are medians of those within rounds."""
    walls = race.walls()
    low, ratio, high = np.quantile(walls[name] / walls[STREAM], (0.25, 0.5, 0.75)).tolist()
    found = {"name": name, "over_stream": ratio, "quartiles": (low, high)} | summary(name, race, comparison)
    hard, base = walls.get(PAST_CACHES), walls.get(comparison.baseline)
    found["over_stream_past_caches"] = None if hard is None else float(np.median(walls[name] / hard))
    found["times_baseline"] = None if base is None else float(np.median(base / walls[name]))
    return found


def summary(name: str, race: Race, comparison: Comparison) -> dict[str, Any]:
    """That of the race, and the gigabytes that had to be moved in a second."""
    found, size = race.summary(name), comparison.words.total * np.dtype(comparison.dtype).itemsize
    return found | {"gigabytes_per_second": size / found["seconds"] / 1e9}


def wrong(record: Mapping[str, Any]) -> bool:
    """Whether an answer was wrong."""
    return any(entry["why"].startswith("WrongAnswer") for entry in record["refused"])


def first_call(row: Mapping[str, Any]) -> str:
    """Its time, and whether kernels were compiled in it; records that do not tell are of kernels that were there."""
    return format_time(row["first_call_seconds"]) + (", cold" if row.get("kernels_compiled_in_it") else "")
