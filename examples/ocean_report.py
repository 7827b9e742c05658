"""What `ocean_mixing.py` shows: progress bars, two tables, one picture."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from ocean_grid import Grid
from ocean_ranking import Row
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table


def progress_bar(console: Console) -> Progress:
    columns = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console)


def table(title: str, *columns: str) -> Table:
    """The first column is text, the last a verdict, those between are numbers."""
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in columns:
        made.add_column(name, justify="left" if name in (columns[0], columns[-1]) else "right", no_wrap=True)
    return made


def conservation_table(forms: dict[str, np.ndarray], days: int, bar: float) -> Table:
    title = f"Relative drift of a column's content over {days} days; bar {bar:g}"
    made = table(title, "form", "columns", "heat worst", "median", "salt worst", "median", "verdict")
    for form, (heat, salt) in forms.items():
        cells = [f"{f(values):.1e}" for values in (heat, salt) for f in (np.max, np.median)]
        verdict = "[green]held" if max(heat.max(), salt.max()) < bar else "[red]broken"
        made.add_row(form, str(heat.size), *cells, verdict)
    return made


def ranking_table(rows: list[Row]) -> Table:
    title = "One day's solve on every backend usable here (error: worst column)"
    made = table(title, "", "pivoting", "time", "/ stream", "error", "verdict")
    for rank, row in enumerate(rows):
        name = f"{rank} {row.name}" if rank else "  stream (same words)"
        speed = (milliseconds(row), ratio(row, rows[0])) if row.times else ("not timed", "")
        verdict = "" if row is rows[0] else "[green]agrees" if row.agrees else "[red]WRONG"
        made.add_row(name, str(row.pivoting), *speed, f"{row.error:.0e}" if rank else "", verdict)
    return made


def milliseconds(row: Row) -> str:
    return f"{row.time * 1e3:.{0 if row.time > 0.1 else 1}f} ms"


def ratio(row: Row, floor: Row) -> str:
    return f"{row.time / floor.time:.1f}" if row.on_cpu else "(GPU)"


def picture(path: Path, grid: Grid, first: np.ndarray, last: np.ndarray, rows: list[Row], days: int) -> None:
    """Surface temperature before, after and the change, and the ranking."""
    figure, axes = plt.subplots(2, 2, figsize=(15, 8), layout="constrained")
    shape = " x ".join(map(str, grid.ocean.shape))
    figure.suptitle(f"Implicit vertical mixing, {shape} cells: real coastlines; depth, temperature and K synthetic")
    before, after = (np.ma.array(tracers[0, ..., 0].T, mask=~grid.ocean[..., 0].T) for tracers in (first, last))
    limit = float(np.abs(after - before).max())
    draw_map(axes[0, 0], grid, before, "on day 0", "turbo", -2, 30)
    draw_map(axes[0, 1], grid, after, f"on day {days}", "turbo", -2, 30)
    draw_map(axes[1, 0], grid, after - before, "change", "RdBu_r", -limit, limit)
    draw_ranking(axes[1, 1], [row for row in rows if row.times])
    figure.savefig(path, dpi=110)
    plt.close(figure)


def draw_map(ax: plt.Axes, grid: Grid, values: np.ndarray, title: str, colours: str, low: float, high: float) -> None:
    image = ax.pcolormesh(grid.lon, grid.lat, values, cmap=colours, vmin=low, vmax=high, rasterized=True)
    ax.set(title=f"Surface temperature {title}, \N{DEGREE SIGN}C", facecolor="0.8", aspect="equal")
    ax.set(xticks=range(-180, 181, 60), yticks=range(-60, 61, 30))
    ax.figure.colorbar(image, ax=ax, shrink=0.75)


def draw_ranking(ax: plt.Axes, rows: list[Row]) -> None:
    rows, floor = rows[::-1], rows[0]
    ratios = [row.time / floor.time for row in rows]
    bars = ax.barh([row.name for row in rows], ratios, color=["tab:blue"] * (len(rows) - 1) + ["0.6"])
    ax.bar_label(bars, [f"{r:.1f}  ({milliseconds(row)})" for r, row in zip(ratios, rows, strict=True)], padding=3)
    ax.set(xscale="log", xlim=(0.8, 9 * max(ratios)), title="One day's solve, time relative to the stream")
    ax.axvline(1, color="0.4", lw=0.8)
    ax.spines[["top", "right"]].set_visible(False)
