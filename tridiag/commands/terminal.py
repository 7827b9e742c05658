"""Tables and progress bars."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

PIPED = 160  # columns, where neither a terminal nor COLUMNS tells how wide it is
NARROW = 20  # columns; tables take as many, however few there are


def console() -> Console:
    """The terminal, or what output is piped to."""
    columns = os.environ.get("COLUMNS", "")
    told = sys.stdout.isatty() or (columns.isdecimal() and int(columns) > 0)  # 0: it is not known
    width = shutil.get_terminal_size().columns if told else PIPED
    return Console(width=max(NARROW, width), highlight=False)


def tell(text: str) -> None:
    """A paragraph, in lines as long as there is room for."""
    page = console()
    with page.capture() as captured:
        page.print(text, markup=False)
    put(captured.get())


def put(text: str) -> None:
    """Print what was laid out; without the blanks behind lines where nobody looks at a terminal."""
    lines = text.splitlines()
    print("\n".join(line if sys.stdout.isatty() else line.rstrip() for line in lines), flush=True)


def show(
    title: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    caption: str = "",
    text: int = 1,
    spare: Sequence[str] = (),
) -> None:
    """A table whose first columns are text, and the others numbers, if ``text`` says so; no number is cut.

    Where lines are too short for all columns those that can be spared are left out, in their order, and told.
    """
    page, left_out = console(), []
    for name in spare:
        if width(head, rows) > page.width:
            k = list(head).index(name)
            left_out.append(name)
            head, *rows = ([*row[:k], *row[k + 1 :]] for row in (head, *rows))
    if left_out:
        caption += f"; not shown, for want of columns: {', '.join(left_out)}"
    titles = {"title": escape(title), "caption": caption and escape(caption)}
    table = Table(**titles, box=box.SIMPLE_HEAD, show_header=any(head))
    table.title_justify = table.caption_justify = "left"
    for k, name in enumerate(head):
        number = k >= text
        least = max((len(row[k]) for row in rows), default=0) if number else None
        table.add_column(name, justify="right" if number else "left", no_wrap=number or k < text < 2, min_width=least)
    for row in rows:
        table.add_row(*map(escape, row))
    with page.capture() as captured:
        page.print(table)
    put(captured.get())


def width(head: Sequence[str], rows: Sequence[Sequence[str]]) -> int:
    """That of a table no line of which is broken: a column has a blank on either side."""
    return sum(max(len(row[k]) for row in (head, *rows)) + 2 for k in range(len(head))) + 2


class Bars:
    """Bars, and lines above them that stay."""

    def __init__(self, bars: Progress) -> None:
        self.bars = bars
        self.tasks: dict[str, Any] = {}

    def __call__(self, whose: str, what: str, part: float) -> None:
        """How much of something is done, and what is being done."""
        if whose not in self.tasks:
            self.tasks[whose] = self.bars.add_task(escape(whose), total=1.0, what="")
        self.bars.update(self.tasks[whose], completed=part, what=escape(what))

    def say(self, line: str) -> None:
        """A line above the bars, or at once to what the error stream is piped to."""
        if self.bars.console.is_terminal:
            self.bars.console.print(escape(line), highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)


@contextlib.contextmanager
def progress() -> Iterator[Bars]:
    """Bars on the error stream, while something is done."""
    whose, what = TextColumn("{task.description}"), TextColumn("{task.fields[what]}")
    columns = whose, BarColumn(), what, TimeElapsedColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        yield Bars(bars)
