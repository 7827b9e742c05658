"""Pictures of comparisons: bars, curves, what "auto" takes, and a roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tridiag.backends import BACKENDS, how_to_install

NO_MATPLOTLIB = f"needs matplotlib, which is not installed: {how_to_install('plot')}"
OF_STREAM = "time / stream of the same words"
Records = Sequence[Mapping[str, Any]]


def pyplot() -> Any:
    """matplotlib without a window."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError(NO_MATPLOTLIB) from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt


def save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    pyplot().close(figure)
    from PIL import Image  # matplotlib writes its own pictures with it

    with Image.open(path) as picture:
        few_colors = picture.convert("RGB").quantize(64)
    few_colors.save(path, optimize=True)


def draw(records: Records, path: Path) -> None:
    """Curves where the comparisons are points of some, else bars."""
    panels: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        panels.setdefault(record.get("panel", record["title"]), []).append(record)
    tallest = max(len(record["rows"]) for record in records)
    points = "at" in records[0]
    figure, axes = pyplot().subplots(
        len(panels), squeeze=False, figsize=(8, len(panels) * (3.2 if points else 1 + 0.3 * tallest))
    )
    for axis, (title, found) in zip(axes[:, 0], panels.items(), strict=True):
        axis.set_title(title, fontsize=10)
        curves(axis, found) if points else bars(axis, found[0])
    save(figure, path)


def bars(axis: Any, record: Mapping[str, Any]) -> None:
    """A bar for each contestant, the fastest first."""
    rows = record["rows"][::-1]
    ratios = [row["over_stream"] for row in rows]
    colors = ["tab:blue" if row["name"].startswith("tridiag") else "tab:gray" for row in rows]
    axis.barh([row["name"] for row in rows], ratios, color=colors)
    for k, ratio in enumerate(ratios):
        axis.text(ratio, k, f" {ratio:.3g}", va="center", fontsize=8)
    axis.set(
        xscale="log", xlabel=OF_STREAM, xlim=(min(1, *ratios) / 1.5 if ratios else 0.5, max(ratios, default=1) * 3)
    )
    axis.axvline(1, color="black", linewidth=0.8)
    axis.tick_params(axis="y", labelsize=8)


def curves(axis: Any, records: Records, figure: str = "over_stream", label: str = OF_STREAM) -> None:
    """A curve for each contestant."""
    from matplotlib.ticker import LogFormatter

    names = dict.fromkeys(row["name"] for record in records for row in record["rows"])
    for name in names:
        points = [(record["at"], row[figure]) for record in records for row in record["rows"] if row["name"] == name]
        axis.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name, color=color_of(name))
    axis.set(xscale="log", yscale="log", xlabel=records[0]["along"], ylabel=label)
    axis.set_xticks([record["at"] for record in records], [f"{record['at']:g}" for record in records])
    axis.set_xticks([], minor=True)
    axis.yaxis.set_major_formatter("{x:g}")
    axis.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))


def throughput(records: Records, path: Path) -> None:
    """Gigabytes in a second against the length and the number of systems, and the stream's."""
    panels = {record["panel"]: [other for other in records if other["panel"] == record["panel"]] for record in records}
    figure, axes = pyplot().subplots(len(panels), squeeze=False, figsize=(8, 3.4 * len(panels)))
    for axis, (title, found) in zip(axes[:, 0], panels.items(), strict=True):
        speeds = [record["stream"]["gigabytes_per_second"] for record in found]
        axis.plot([record["at"] for record in found], speeds, color="black", linestyle="--", label="stream")
        curves(axis, found, "gigabytes_per_second", "GB/s")
        axis.set_title(title, fontsize=10)
    save(figure, path)


def color_of(name: str) -> Any:
    """One color for a backend in all pictures; ``name`` may have its library before it."""
    import matplotlib

    palette = [*matplotlib.color_sequences["tab20"], *matplotlib.color_sequences["tab20b"]]
    known, backend = list(BACKENDS), name.rpartition(": ")[2]
    return palette[known.index(backend) % len(palette)] if backend in known else "gray"


def choices(
    names: Sequence[Sequence[str]], lengths: Sequence[int], systems: Sequence[int], title: str, path: Path
) -> None:
    """The map of what "auto" takes: a row for each length, a column for each number of systems."""
    found = sorted({name for row in names for name in row if name})
    values = np.array([[found.index(name) if name else np.nan for name in row] for row in names])
    figure, axis = pyplot().subplots(figsize=(8, 5))
    from matplotlib.colors import ListedColormap

    colors = ListedColormap([color_of(name) for name in found] or ["white"])
    axis.imshow(values, origin="lower", cmap=colors, vmin=-0.5, vmax=max(len(found), 1) - 0.5, aspect="auto")
    axis.set_xticks(range(len(systems)), [f"{count:g}" for count in systems], fontsize=7)
    axis.set_yticks(range(len(lengths)), [f"{n:g}" for n in lengths], fontsize=7)
    axis.set(xlabel="systems", ylabel="rows n")
    axis.set_title(title, fontsize=10)
    for name in found:
        axis.plot([], [], "s", color=color_of(name), label=name)
    axis.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    save(figure, path)


def roofline(record: Mapping[str, Any], operations: int, peak: float, path: Path) -> None:
    """Operations in a second against operations for each byte: the roof is the stream's slope, then the peak."""
    size = record["words"] * np.dtype(record["dtype"]).itemsize
    bandwidth, intensity = size / record["stream"]["seconds"], operations / size
    figure, axis = pyplot().subplots(figsize=(8, 4))
    x = np.geomspace(intensity / 30, max(intensity * 30, 3 * peak / bandwidth), 200)
    axis.loglog(x, np.minimum(peak, bandwidth * x) / 1e9, color="black", label="stream, then matmul")
    for row in record["rows"]:
        axis.plot([intensity], [operations / row["seconds"] / 1e9], "o", label=row["name"], color=color_of(row["name"]))
    axis.set(xlabel="operations for each byte that has to be moved", ylabel="1e9 operations / s")
    axis.set_title(record["title"], fontsize=10)
    axis.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    axis.grid(alpha=0.3)
    save(figure, path)
