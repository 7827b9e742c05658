"""Tables and progress bars."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

PIPED = 160  # columns, where no terminal tells how wide it is


def console() -> Console:
    return Console(width=None if sys.stdout.isatty() else PIPED, highlight=False)


def show(title: str, head: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", text: int = 1) -> None:
    """A table whose first columns are text, and the others numbers, if ``text`` says so."""
    table = Table(title=escape(title), caption=caption and escape(caption), box=box.SIMPLE_HEAD)
    table.title_justify = table.caption_justify = "left"
    for k, name in enumerate(head):
        table.add_column(name, justify="left" if k < text else "right", no_wrap=k < text < len(head))
    for row in rows:
        table.add_row(*map(escape, row))
    console().print(table)


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str, str, float], None]]:
    """Bars on the error stream: a function that takes whose bar it is, what is being done, and how much is."""
    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[what]}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def progressed(whose: str, what: str, part: float) -> None:
            if whose not in tasks:
                tasks[whose] = bars.add_task(escape(whose), total=1.0, what="")
            bars.update(tasks[whose], completed=part, what=escape(what))

        yield progressed
