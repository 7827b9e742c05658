"""Arguments of a verb, some of them Dask arrays: checked as all are, and cut into the same chunks."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import dask.array as da
import dask.config
import numpy as np
from dask.array.core import unify_chunks
from dask.base import get_scheduler, tokenize
from dask.blockwise import blockwise
from dask.highlevelgraph import HighLevelGraph
from dask.layers import ArrayBlockIdDep, ArrayChunkShapeDep

from tridiag.calls.checks import check_axis
from tridiag.calls.plan import NO_MASK, UNASKED, Plan, make_plan
from tridiag.calls.sequences import make_recurrence_plan
from tridiag.libraries.arrays import owner, taking

Chunks = tuple[tuple[int, ...], ...]
Steps = dict[str, dict[Any, Any]]  # the tasks of a graph, by the names of what they make
SHARED = ("threads", "threading", "synchronous", "sync", "single-threaded")  # schedulers by their names in Dask
Place = tuple[int, ...]  # which axes of the result the axes of an argument are


class Operands(NamedTuple):
    """The arguments of a verb by their names, and how they lie in its result."""

    arrays: dict[str, Any]  # Dask arrays, and scalars
    places: dict[str, Place]
    chunks: Chunks  # of the broadcast shape
    plan: Plan

    @property
    def axis(self) -> int:
        axis: int = self.plan.form.axis
        return axis

    @property
    def batch(self) -> Place:
        """The axes of the result other than that of the systems."""
        return tuple(k for k in range(len(self.chunks)) if k != self.axis)

    @property
    def cut(self) -> bool:
        """Whether systems lie in several chunks."""
        return len(self.chunks[self.axis]) > 1

    def pairs(self, names: Sequence[str]) -> list[Any]:
        """Arguments of `dask.array.blockwise`."""
        found: list[Any] = []
        for name in names:
            x = self.arrays[name]
            found += [x, self.places[name] if isinstance(x, da.Array) else None]
        return found

    @property
    def moving(self) -> tuple[str, ...]:
        """The arguments that are not constant along the axis of the systems."""
        return tuple(k for k in self.arrays if self.axis in self.places[k] and self.length(k, self.axis) > 1)

    def length(self, name: str, k: int) -> int:
        """How long an argument is along an axis of the result."""
        length: int = np.shape(self.arrays[name])[self.places[name].index(k)]
        return length

    def block(self, name: str, index: Sequence[int]) -> Any:
        """What stands in a graph for the part of an argument that belongs to a block of the result."""
        x = self.arrays[name]
        if not isinstance(x, da.Array):
            return x
        place = zip(self.places[name], x.numblocks, strict=True)
        return (x.name, *(index[k] if count > 1 else 0 for k, count in place))

    def blocks(self, names: Sequence[str], index: Sequence[int]) -> list[Any]:
        return [self.block(name, index) for name in names]

    def name(self, verb: str, options: Mapping[str, Any]) -> str:
        """The name of a result, the same for the same arguments."""
        return f"{verb}-{tokenize(verb, self.arrays, self.places, self.axis, dict(options))}"

    def parts(self, reverse: bool = False) -> Iterator[tuple[Place, list[Place]]]:
        """For every chunk of the batch its number, and the numbers of the chunks of its systems, in their order.

        Chunks that hold nothing are left out.
        """
        axis, along = self.axis, [k for k, length in enumerate(self.chunks[self.axis]) if length]
        for batch in itertools.product(*(range(len(self.chunks[k])) for k in self.batch)):
            if along and all(self.chunks[j][k] for j, k in zip(self.batch, batch, strict=True)):
                yield batch, [(*batch[:axis], k, *batch[axis:]) for k in (reversed(along) if reverse else along)]

    def states(self, names: Sequence[str], batch: Place) -> list[Any]:
        """As `blocks`, of what has no axis of the systems."""
        return self.blocks(names, (*batch[: self.axis], 0, *batch[self.axis :]))

    def result(self, name: str, graph: dict[Any, Any]) -> Any:
        """The array of the blocks that a graph has under a name."""
        for index in itertools.product(*(range(len(lengths)) for lengths in self.chunks)):
            shape = tuple(lengths[k] for lengths, k in zip(self.chunks, index, strict=True))
            if 0 in shape:
                graph[(name, *index)] = (np.empty, shape, self.plan.out_dtype)
        layers = HighLevelGraph.from_collections(name, graph, dependencies=self.lazy())
        meta = np.empty((0,) * len(self.chunks), self.plan.out_dtype)
        return da.Array(layers, name, self.chunks, meta=meta)

    def made_of(self, name: str, steps: Steps, settled: str, more: Sequence[str], function: Any) -> Any:
        """The array of the blocks ``function(number, shape, settled, *more)``, each made by one task with what follows.

        ``steps``: the tasks of each name, in an order in which those of one need none of later ones. ``settled`` is a
        name of one value for each chunk of the batch, and ``more`` are names of one for each block.
        """
        index, counts = tuple(range(len(self.chunks))), tuple(map(len, self.chunks))
        axes = {settled: self.batch, **dict.fromkeys(more, index)}
        needed = {layer for x in self.lazy() for layer in x.__dask_layers__()}
        known = HighLevelGraph.merge(*(x.__dask_graph__() for x in self.lazy()))
        layers, dependencies = dict(known.layers), dict(known.dependencies)
        for step, tasks in steps.items():
            nothing = dict.fromkeys(self.keys(step, axes[step])) if step in axes else {}
            layers[step], dependencies[step] = {**nothing, **tasks}, {*needed}
            needed.add(step)
        pairs = [x for some in axes.items() for x in some]
        numblocks = {some: tuple(counts[k] for k in places) for some, places in axes.items()}
        blocks = ArrayBlockIdDep(self.chunks), index, ArrayChunkShapeDep(self.chunks), index
        layers[name] = blockwise(function, name, index, *blocks, *pairs, numblocks=numblocks)
        dependencies[name] = {*axes}
        graph = HighLevelGraph(layers, dependencies)
        return da.Array(graph, name, self.chunks, meta=np.empty((0,) * len(index), self.plan.out_dtype))

    def keys(self, name: str, axes: Place) -> list[Any]:
        """The keys of what is numbered by the chunks along some axes."""
        return [(name, *place) for place in itertools.product(*(range(len(self.chunks[k])) for k in axes))]

    def lazy(self) -> list[Any]:
        """The Dask arrays among the arguments."""
        return [x for x in self.arrays.values() if isinstance(x, da.Array)]


def refuse_targets(out: Any, overwrite_d: bool = False) -> None:
    """Nothing is written in place by a task that may run again."""
    for name, value in (("out", out is not None), ("overwrite_d", overwrite_d)):
        if value:
            raise TypeError(
                f"{name} is for arrays that can be written to, and Dask arrays are not computed yet; leave it out, and "
                "store the result with dask.array.store"
            )


def of_system(verb: str, given: Mapping[str, Any], where: Any, axis: Any, **options: Any) -> Operands:
    """The arguments a, b, c, perhaps d, and a mask."""
    checked = {name: checked_operand(name, x) for name, x in given.items()}
    mask = None if where is None else checked_operand("where", where)
    kinds: list[Any] = [type(stand_in(x)) for x in checked.values()]
    library, take = taking(tuple(checked), *kinds, NO_MASK if mask is None else np.ndarray)
    _, _, entries, settings = take([stand_in(x) for x in checked.values()], stand_in(mask))
    chosen = {"pivoting": "auto", "periodic": False, "transpose": False, "backend": UNASKED, **options}
    axis = check_axis(axis)
    plan = make_plan(verb, library, entries, settings, axis, overwrite_d=False, **chosen)
    if mask is not None:
        checked["where"] = mask
    return lie(checked, {}, plan)


def of_recurrence(
    verb: str, rows: Mapping[str, Any], states: Mapping[str, Any], axis: Any, reverse: bool, backend: Any
) -> Operands:
    """The coefficients and, last of the rows, x; the values before the first step."""
    rows = {name: checked_operand(name, x) for name, x in rows.items()}
    states = {name: checked_operand(name, x) for name, x in states.items()}
    given = [stand_in(x) for x in (*rows.values(), *states.values())]
    names = (*rows, *states)
    library, take = taking(names, *map(type, given), NO_MASK)
    _, _, entries, settings = take(given, None)
    order, axis = len(rows) - 1, check_axis(axis)
    plan = make_recurrence_plan(verb, library, names, order, entries[:-1], settings, axis, reverse, backend)
    return lie(rows, states, plan)


def checked_operand(name: str, x: Any) -> Any:
    """A Dask array of NumPy arrays of known shapes, or what NumPy takes."""
    if not isinstance(x, da.Array):
        own: Any = type(x)
        library = owner(name, own)
        if library not in ("numpy", None):
            raise TypeError(
                f"the arguments belong to different libraries ({name}: {library}, others: dask); convert them to one: "
                "data is never moved for you"
            )
        return x if library is None and not isinstance(x, np.generic) else np.asarray(x)
    kind = type(x._meta)
    if kind is not np.ndarray:
        instead = f"{name}.map_blocks(numpy.asarray) has them"
        if issubclass(kind, np.ma.MaskedArray):
            instead = (
                f"dask.array.ma.getdata({name}) has them; of systems, the rows to keep are "
                f"where=~dask.array.ma.getmaskarray({name})"
            )
        raise TypeError(
            f"{name} is a Dask array of blocks of {kind.__module__}.{kind.__qualname__}; wanted blocks of NumPy "
            f"arrays, as {instead}"
        )
    if any(map(math.isnan, x.shape)):
        raise ValueError(
            f"{name} is a Dask array of shape {x.shape}, some of it unknown; call {name}.compute_chunk_sizes() first"
        )
    return x


def widened(x: Any, plan: Plan) -> Any:
    """An argument in the dtype that its chunks are computed in, where that is a wider one than its own."""
    return (x if isinstance(x, da.Array) else np.asarray(x)).astype(plan.problem.dtype)


def stand_in(x: Any) -> Any:
    """An array of the same dtype and shape without memory of its own."""
    return np.broadcast_to(np.empty((), x.dtype), x.shape) if isinstance(x, da.Array) else x


def lie(rows: Mapping[str, Any], states: Mapping[str, Any], plan: Plan) -> Operands:
    """Arguments cut into the same chunks: those of Dask arrays, at every place where one of them is cut."""
    rank, axis = len(plan.form.shape), plan.form.axis
    batch = [k for k in range(rank) if k != axis]
    places: dict[str, Place] = {}
    for name, x in rows.items():
        places[name] = (axis,) if np.ndim(x) == 1 else tuple(range(rank - np.ndim(x), rank))
    for name, x in states.items():
        places[name] = tuple(batch[len(batch) - np.ndim(x) :])
    arrays = {**rows, **states}
    known = chunks_of({name: x for name, x in arrays.items() if isinstance(x, da.Array)}, places)
    pairs: list[Any] = []
    for name, x in arrays.items():
        if np.ndim(x):
            arrays[name] = x if isinstance(x, da.Array) else in_chunks(x, places[name], known)
            pairs += [arrays[name], places[name]]
    chunks, unified = unify_chunks(*pairs, warn=False)
    arrays.update(zip([name for name, x in arrays.items() if np.ndim(x)], unified, strict=True))
    return Operands(arrays, places, tuple(tuple(map(int, chunks[k])) for k in range(rank)), plan)


def chunks_of(arrays: Mapping[str, Any], places: Mapping[str, Place]) -> dict[int, tuple[int, ...]]:
    """How Dask arrays are cut along the axes of the result: of several, the one of most chunks."""
    known: dict[int, tuple[int, ...]] = {}
    for name, x in arrays.items():
        for k, chunks in zip(places[name], x.chunks, strict=True):
            if len(chunks) > len(known.get(k, ())) or (sum(chunks) > 1 and sum(known[k]) == 1):
                known[k] = chunks
    return known


def in_chunks(x: np.ndarray[Any, Any], place: Place, known: Mapping[int, tuple[int, ...]]) -> Any:
    """An array of NumPy as a Dask array."""
    lengths = zip(place, x.shape, strict=True)
    return da.from_array(x, chunks=tuple(known[k] if sum(known.get(k, ())) == n else (n,) for k, n in lengths))


def starts(chunks: Chunks) -> tuple[tuple[int, ...], ...]:
    """Where each chunk begins, along every axis."""
    return tuple(tuple(int(k) for k in np.cumsum((0, *lengths[:-1]))) for lengths in chunks)


def share_memory() -> bool:
    """Whether tasks that Dask runs will share their memory, as far as is known when a graph is built."""
    scheduler = dask.config.get("scheduler", None)
    if scheduler is not None:
        return not isinstance(scheduler, str) or scheduler.lower() in SHARED
    return "distributed" not in sys.modules or getattr(get_scheduler(), "__self__", None) is None
