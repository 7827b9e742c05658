"""Whole systems in each chunk: one task a chunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import dask.array as da
import numpy as np
from dask.layers import ArrayBlockIdDep

from tridiag.calls.singular import PERTURBED
from tridiag.chunked.operands import Operands, starts
from tridiag.errors import SingularSystemError

Verb = Callable[..., Any]


def mapped(verb: Verb, operands: Operands, options: Mapping[str, Any]) -> Any:
    """A verb in every chunk, of the same shape as its rows."""
    names = tuple(operands.arrays)
    index = tuple(range(len(operands.chunks)))
    return da.blockwise(
        run, index, verb, None, names, None, {**options, "axis": operands.axis}, None, *operands.pairs(names),
        **told(verb, operands, options, index),
    )  # fmt: skip


def solved(verb: Verb, operands: Operands, options: Mapping[str, Any]) -> Any:
    """As `mapped`, where singular systems are counted in the whole array."""
    names = tuple(operands.arrays)
    index = tuple(range(len(operands.chunks)))
    batch = tuple(operands.chunks[k] for k in operands.batch)
    return da.blockwise(
        solve_chunk, index, verb, None, names, None, {**options, "axis": operands.axis}, None, starts(batch), None,
        ArrayBlockIdDep(operands.chunks), index, *operands.pairs(names), **told(verb, operands, options, index),
    )  # fmt: skip


def told(verb: Verb, operands: Operands, options: Mapping[str, Any], index: Sequence[int]) -> dict[str, Any]:
    """What Dask has to know of a result without running a task."""
    dtype = operands.plan.out_dtype
    return {
        "name": operands.name(verb.__name__, options),
        "dtype": dtype, "meta": np.empty((0,) * len(index), dtype), "align_arrays": False, "concatenate": True,
    }  # fmt: skip


def arguments(names: Sequence[str], values: Sequence[Any]) -> dict[str, Any]:
    """Arguments by their names; those of a tuple, a[0], a[1], ..., as one."""
    found: dict[str, Any] = {}
    for name, value in zip(names, values, strict=True):
        first, bracket, _ = name.partition("[")
        found[first] = (*found.get(first, ()), value) if bracket else value
    return found


def run(verb: Verb, names: Sequence[str], options: Mapping[str, Any], *values: Any) -> Any:
    """A task: a verb on the chunks of its arguments."""
    return verb(**arguments(names, values), **options)


def solve_chunk(
    verb: Verb,
    names: Sequence[str],
    options: Mapping[str, Any],
    begins: Sequence[Sequence[int]],
    block: Sequence[int],
    *values: Any,
) -> Any:
    """A task: the solution of the systems of a chunk."""
    try:
        return run(verb, names, options, *values)
    except SingularSystemError as error:
        axis = options["axis"]
        where = [k for j, k in enumerate(block) if j != axis]
        first = [begins[j][k] for j, k in enumerate(where)]
        raise singular(error.indices + np.array(first, int), error.x, error.column) from error


def singular(indices: np.ndarray[Any, Any], x: Any, column: int | None) -> SingularSystemError:
    """The exception of a task that has met singular systems; the column of the first one's zero pivot."""
    first = ", ".join(map(str, indices[0].tolist()))
    systems = "a system is" if len(indices) == 1 else f"{len(indices)} systems of a chunk are"
    return SingularSystemError(
        f"{systems} singular (batch index ({first}) of the whole array, column {column}): elimination with partial "
        "pivoting met a zero pivot; to go on with NaN pass check=False, to take a row out pass where=, "
        f"{PERTURBED} where chunks hold whole systems",
        indices,
        x,
        column,
    )


def determinants(verb: Verb, operands: Operands, options: Mapping[str, Any]) -> tuple[Any, Any]:
    """`tridiag.slogdet` of Dask arrays: one task takes all rows of its matrices."""
    options = {name: options[name] for name in ("periodic", "backend")}
    names, batch = tuple(operands.arrays), operands.batch
    both_axes = (*batch, len(operands.chunks))
    both = da.blockwise(
        both_in_one, both_axes, verb, None, names, None, {**options, "axis": operands.axis}, None,
        *operands.pairs(names), new_axes={both_axes[-1]: 2}, **told(verb, operands, options, both_axes),
    )  # fmt: skip
    logarithm = both[..., 1]
    return both[..., 0], logarithm.real if both.dtype.kind == "c" else logarithm


def both_in_one(verb: Verb, names: Sequence[str], options: Mapping[str, Any], *values: Any) -> Any:
    """A task: the sign, and behind it the logarithm."""
    return np.stack(verb(**arguments(names, values), **options), axis=-1)
