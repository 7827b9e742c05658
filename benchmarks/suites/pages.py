"""What a page of the documentation includes of a suite: its tables, its picture, the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tridiag.benchmarking.comparison import BUSY, first_call

HEAD = ("", "times the stream", "past the caches", "quartiles", "GB/s", "error (eps)", "times as fast", "first call")


def fragment(suite: str, record: Mapping[str, Any]) -> str:
    """reStructuredText."""
    parts = [f".. Written by: python -m tridiag bench --suite {suite} --output docs/benchmarks", measured(record)]
    parts.append(f".. image:: {suite}.png\n   :alt: {suite}: the figures of the tables below as a picture")
    for comparison in record["comparisons"]:
        panel = f"{comparison['panel']}: " if "panel" in comparison else ""
        title = comparison["title"].removeprefix(panel)
        parts.append(f"**{panel}{title}**")
        parts.append(table([HEAD, *map(cells, comparison["rows"])]))
        parts.append(conditions_of(comparison))
        parts += [f"- {entry['name']} has no time: {literal(entry['why'])}" for entry in comparison["refused"]]
    return "\n\n".join(parts) + "\n"


def literal(text: str) -> str:
    return f"``{text.strip().replace('`', '')}``"


def measured(record: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    text = f"{record['machine']['cpu']}, {record['threads']} threads; commit {record['commit']}; {versions}."
    return f"*A rehearsal on small arrays, whose figures say nothing.* {text}" if record["rehearsal"] else text


def conditions_of(comparison: Mapping[str, Any]) -> str:
    speed = comparison["stream"]["gigabytes_per_second"]
    text = f'The stream has {speed:.3g} GB/s; "times as fast" as {comparison["baseline"]}; '
    text += f"medians of {comparison['rounds']} rounds."
    if (others := comparison["cores_busy_with_others"] or 0) > BUSY:
        text += f" Other processes kept {others:.1f} cores busy at the same time: these figures are rough."
    return text


def cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    low, high = row["quartiles"]
    return (
        row["name"],
        f"{row['over_stream']:.3g}",
        optional(row["over_stream_past_caches"]),
        f"{low:.3g} to {high:.3g}",
        f"{row['gigabytes_per_second']:.3g}",
        f"{row['error_in_eps']:.3g}",
        optional(row["times_baseline"]),
        first_call(row),
    )


def optional(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.3g}"


def table(rows: Sequence[Sequence[str]]) -> str:
    lines = ["   * - " + "\n     - ".join(row) for row in rows]
    return "\n".join([".. list-table::", "   :header-rows: 1", "", *lines]).replace("- \n", "-\n")
