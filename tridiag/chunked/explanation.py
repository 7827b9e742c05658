"""What tasks of Dask are told, for `tridiag.explain`: arguments of a chunk in place of those of all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import dask.array as da
import numpy as np

from tridiag.chunked import cuts, whole
from tridiag.chunked.held import SETTING
from tridiag.chunked.operands import Operands, of_recurrence, of_system, share_memory
from tridiag.chunked.sequences import are_joined, by_name
from tridiag.chunked.sources import makers_of
from tridiag.chunked.systems import holds_solved

SYSTEMS = "solve", "matmul", "slogdet"
VERBS = *SYSTEMS, "linear_recurrence", "log_linear_recurrence", "logcumsumexp"
FLAGS = "periodic", "transpose", "pivoting"


def of_a_chunk(verb: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The arguments of a call, those that are arrays as a task has them, and what the tasks are."""
    system = verb in SYSTEMS
    operands = of_systems(verb, given) if system else of_sequences(verb, given)
    how, all_rows = way(verb, operands, given)
    shapes = {
        name: tuple(max(lengths) for lengths in x.chunks) if isinstance(x, da.Array) else ()
        for name, x in operands.arrays.items()
    }
    if all_rows:
        rows = {name: operands.places[name].index(operands.axis) for name in operands.moving}
        shapes |= {
            name: (*shapes[name][:k], operands.length(name, operands.axis), *shapes[name][k + 1 :])
            for name, k in rows.items()
        }
    values = [np.empty(shapes[k], x.dtype) if isinstance(x, da.Array) else x for k, x in operands.arrays.items()]
    found = whole.arguments(tuple(operands.arrays), values)
    if verb == "matmul":
        found["x"] = found.pop("d")
    count = math.prod(map(len, operands.chunks))
    if operands.cut:
        kind = "system axis" if system else "axis of the sequences"
        told = f"{count} chunks of Dask; the {kind} is cut into {len(operands.chunks[operands.axis])}{how}"
    else:
        told = f"a task of Dask for each of {count} chunks, which hold whole {'systems' if system else 'sequences'}"
    return {**given, **found}, told


def of_systems(verb: str, given: Mapping[str, Any]) -> Operands:
    arguments = {"d" if name == "x" else name: given[name] for name in "abcdx" if name in given}
    flags = {name: given[name] for name in FLAGS if name in given}
    return of_system(verb, arguments, given.get("where"), given.get("axis", -1), **flags)


def of_sequences(verb: str, given: Mapping[str, Any]) -> Operands:
    rows, states = by_name({"init": None, **{k: x for k, x in given.items() if k in ("a", "log_a", "x", "init")}})
    return of_recurrence(verb, rows, states, given.get("axis", -1), given.get("reverse", False), "auto")


def way(verb: str, operands: Operands, given: Mapping[str, Any]) -> tuple[str, bool]:
    """How chunks of an axis that is cut are run, and whether a task of the verb itself has all their rows."""
    if not operands.cut:
        return "", False
    if verb == "solve":
        if cuts.are_long(operands.chunks[operands.axis]):
            shared = share_memory()
            if holds_solved(operands, shared, makers_of(operands, shared)):
                return ", each solved alone, and the rows around the cuts again", False
            return f", each solved alone, and again for the result, as too much would be held ({SETTING})", False
        return ", joined by tridiag.parts; systems that fail are solved whole, by this", True
    if verb == "matmul":
        return ", each multiplied alone, and told the rows beside it", False
    if verb == "slogdet":
        if given.get("backend", "auto") != "auto":
            return ", and one task takes all rows of its matrices", True
        return ", whose determinants are multiplied as a tree", False
    if are_joined(operands):
        return ", whose summaries are joined", False
    return ", one behind the other", False
