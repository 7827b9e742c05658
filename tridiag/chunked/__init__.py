"""Verbs on Dask arrays: a graph of tasks, each of which calls a verb on arrays of NumPy. Nothing is computed here.

Where the axis of the systems lies within chunks, a task solves a chunk (`whole`). Where it is cut, systems are reduced,
joined and finished (`parts`), recurrences handed from chunk to chunk or joined (`sequences`), and products told of the
rows beside their chunk (`products`). Systems that fail are solved whole (`rest`), from blocks that are kept, or made
again (`sources`), and solutions that are too large to be held (`held`) are found twice. `explanation` tells `explain`
what a task has.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


def is_chunked(*arguments: Any) -> bool:
    """Whether an argument, or one of a tuple, is a Dask array; Dask is not imported for it."""
    kind: Any = getattr(sys.modules.get("dask.array"), "Array", None)
    return kind is not None and any(
        isinstance(x, kind) or (isinstance(x, tuple) and any(isinstance(y, kind) for y in x)) for x in arguments
    )


def chunked(name: str) -> ModuleType:
    """A module of this folder, which imports Dask."""
    return importlib.import_module(f"tridiag.chunked.{name}")
