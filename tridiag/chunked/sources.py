"""Blocks of arguments that are made again where they are needed again: no task has to keep them until that is known.

Dask takes a task for a function that may run twice. What is made again is made by few tasks, which hold no large array.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.core import get, get_dependencies

from tridiag.chunked.operands import Operands, Place

FEW = 16  # tasks that make a block
LARGE = 2**16  # bytes of an array that stands in a graph: it is in memory anyway, and so may be what is made of it

PLAIN = {type(None), bool, int, float, complex, str, bytes, slice, type}
SEEN = 16  # numbers of a block that tell whether another one is the same

Values = tuple[Any, ...]


class Trace(NamedTuple):
    """What is kept of a block that can be made again: a few of its numbers."""

    numbers: np.ndarray[Any, Any]

    @classmethod
    def of(cls, x: Any) -> Trace:
        x = np.asarray(x)
        return cls(x.flat[np.linspace(0, x.size - 1, SEEN, dtype=int)])

    def same(self, x: Any) -> bool:
        return Trace.of(x).numbers.tobytes() == self.numbers.tobytes()


class Sources(NamedTuple):
    """How the blocks of the systems of a chunk of the batch are made, for a task that makes them again."""

    graphs: Sequence[Mapping[Any, Any]]  # for each chunk the tasks that make its blocks,
    blocks: Sequence[Sequence[Any]]  # ... and what stands in them for those that are made again; None for others

    def restored(self, k: int, kept: Values) -> Values:
        """The arguments in chunk k, of which some were kept."""
        keys = [key for key in self.blocks[k] if key is not None]
        made = dict(zip(keys, get(self.graphs[k], keys), strict=True))
        for x, key in zip(kept, self.blocks[k], strict=True):
            if isinstance(x, Trace) and not x.same(made[key]):
                raise RuntimeError(
                    f"the tasks that make the block {key} give other numbers when they run again, as random ones "
                    "without a seed do; Dask takes tasks for functions that do not: persist() that array first"
                )
        return tuple(x if key is None else made[key] for x, key in zip(kept, self.blocks[k], strict=True))


class Makers(NamedTuple):
    """The tasks that make the blocks of some arguments, and which arguments can be made again from few of them."""

    operands: Operands
    tasks: Mapping[Any, Any]
    of_blocks: Mapping[Any, frozenset[Any]]  # the keys of those that make a block
    again: tuple[bool, ...]

    def of(self, places: Sequence[Place]) -> Sources:
        """How the blocks at these places are made."""
        if not any(self.again):
            return Sources((), ())
        names = [name if made else None for name, made in zip(self.operands.arrays, self.again, strict=True)]
        blocks = [[name and self.operands.block(name, place) for name in names] for place in places]
        used = [{task for key in some if key is not None for task in self.of_blocks[key]} for some in blocks]
        return Sources([{key: self.tasks[key] for key in some} for some in used], blocks)


def makers_of(operands: Operands, shared: bool) -> Makers:
    """Those of the arguments of a verb. Where tasks may not share memory none is made again, on another worker."""
    if not shared:
        return Makers(operands, {}, {}, (False,) * len(operands.arrays))
    tasks: dict[Any, Any] = {}
    for x in operands.lazy():
        tasks.update(x.__dask_graph__())
    found: dict[Any, frozenset[Any]] = {}

    def can_be_made(x: Any) -> bool:
        if not isinstance(x, da.Array):
            return False
        for place in np.ndindex(*x.numblocks):
            key = (x.name, *place)
            if not (makers := found.get(key) or makers_of_block(tasks, key)):
                return False
            found[key] = makers
        return True

    return Makers(operands, tasks, found, tuple(can_be_made(x) for x in operands.arrays.values()))


def makers_of_block(tasks: Mapping[Any, Any], key: Any) -> frozenset[Any]:
    """The keys of the tasks that make a block; none where these are too many, or hold too much."""
    found, left = {key}, [key]
    while left:
        key = left.pop()
        if most_bytes(tasks[key]) > LARGE:
            return frozenset()
        new = get_dependencies(tasks, key) - found
        found |= new
        left += new
        if len(found) > FEW:
            return frozenset()
    return frozenset(found)


def most_bytes(part: Any) -> int:
    """The bytes of the largest array that stands in a task."""
    if type(part) in PLAIN:
        return 0
    if isinstance(part, (list, tuple)):
        return max([most_bytes(x) for x in part], default=0)
    if isinstance(part, dict):
        return max([most_bytes(x) for x in part.values()], default=0)
    if isinstance(part, np.ndarray):
        return part.nbytes
    if isinstance(part, functools.partial):
        return most_bytes([*part.args, part.keywords])
    if not hasattr(part, "dependencies"):
        return 0
    return max(most_bytes(getattr(part, name, None)) for name in ("value", "args", "kwargs"))  # of a node
