"""The suites: each is a module here, a question that its docstring asks, and comparisons that answer it.

``comparisons(rehearse)`` yields them, one at a time, so that the arrays of one are gone before those of the next are
made; a rehearsal has the same contestants on small arrays. Comparisons with the facts ``at`` and ``along`` are points
of a curve; ``panel`` says in which picture.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from suites.pages import fragment as fragment
from tridiag.benchmarking.comparison import Comparison

SUITES = ("tdma", "logcumsumexp", "kalman", "smith_waterman", "small_matvec", "fusion")


def question(suite: str) -> str:
    """The first line of its docstring."""
    return (module_of(suite).__doc__ or "").partition("\n")[0]


def comparisons(suite: str, rehearse: bool) -> Iterator[Comparison]:
    return iter(module_of(suite).comparisons(rehearse))


def module_of(suite: str) -> Any:
    if suite not in SUITES:
        raise ValueError(f"there is no suite {suite!r}; the names are {', '.join(SUITES)}")
    return importlib.import_module(f"suites.{suite}")
