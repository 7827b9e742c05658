"""What tasks of systems that are cut have in common, and the systems that are solved whole from their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag.chunked.operands import Place
from tridiag.chunked.rows import full
from tridiag.chunked.sources import Sources, Trace
from tridiag.chunked.whole import Verb, singular
from tridiag.errors import SingularSystemError

Array = np.ndarray[Any, Any]
Rows = dict[str, Any]
FEW = 16  # one system of so many may fail before more is done for all


class Solved(NamedTuple):
    """A chunk that is solved but for some systems, and the arguments that these may need again.

    ``x``: None where it is not held, but solved again.
    ``values``: with traces in the place of those that are made again if they are needed.
    ``ends``: copies of its first and its last rows, where these are what is needed at first.
    """

    x: Any
    values: tuple[Any, ...]
    ends: Any = None


class Verdict(NamedTuple):
    """What is known of the systems of a chunk of the batch once their chunks are solved."""

    unsolved: Array | None  # those that are to be solved whole; None: there are none
    around: Array | None = None  # (cuts, *batch): rows that are solved again, those before each cut and those behind it

    @property
    def failed(self) -> int:
        """How many are to be solved whole."""
        return 0 if self.unsolved is None else int(np.count_nonzero(self.unsolved))


class Settled(NamedTuple):
    """The same, and the solutions of the systems that were solved whole, in each of their chunks.

    ``chunks``: what was solved in each, where tasks share their memory. No task has to keep the arguments then;
    ``sources`` make those of chunks that are solved again.
    """

    verdict: Verdict
    x: Sequence[Array]
    chunks: Sequence[Solved] = ()
    sources: Sources | None = None


class Systems(NamedTuple):
    """What the tasks of all chunks are told beside their arrays."""

    verb: Verb
    names: tuple[str, ...]  # of the arguments
    moving: tuple[str, ...]  # those that are not constant along the axis of the systems
    axis: int
    rank: int
    options: dict[str, Any]
    shared: bool  # whether tasks share their memory; then none is run again, on another worker
    again: tuple[bool, ...] = ()  # which arguments can be made again, and need not be kept

    @property
    def transpose(self) -> bool:
        return bool(self.options["transpose"])

    def given(self, values: Sequence[Any]) -> dict[str, Any]:
        """The arguments by their names."""
        return dict(zip(self.names, values, strict=True))

    def kept(self, values: tuple[Any, ...], likely: bool) -> tuple[Any, ...]:
        """The arguments that are kept: all of them where it is ``likely`` that they are needed again."""
        if likely:
            return values
        return tuple(Trace.of(x) if made else x for x, made in zip(values, self.again, strict=True))

    def restored(self, k: int, solved: Solved, sources: Sources) -> Solved:
        """A solved chunk, the k-th of its systems, with all its arguments."""
        missing = any(x is None or isinstance(x, Trace) for x in solved.values)
        return solved._replace(values=sources.restored(k, solved.values)) if missing else solved

    def solve(self, given: Mapping[str, Any], axis: int) -> Array:
        """A solution of rows that lie together and are coupled to no others; NaN in singular systems."""
        x: Array = self.verb(**given, axis=axis, **{**self.options, "check": False, "periodic": False})
        return x

    def writeable(self, x: Array) -> Array:
        """What a task returned, for the one task that makes a result of it."""
        return x if self.shared and x.flags.writeable else x.copy()

    def put(self, settled: Settled, k: int, x: Array) -> Array:
        """x of chunk k with the solutions of systems that were solved whole."""
        if settled.verdict.unsolved is None:
            return x
        x = self.writeable(x)
        np.moveaxis(x, self.axis, -1)[settled.verdict.unsolved] = settled.x[k]
        return x

    def rows(self, verdict: Verdict, solved: Solved) -> Rows | None:
        """A task: the rows of the systems that are to be solved whole."""
        if verdict.unsolved is None:
            return None
        return {name: self.entries(name, x, verdict.unsolved) for name, x in self.given(solved.values).items()}

    def entries(self, name: str, x: Any, unsolved: Array) -> Any:
        """Some systems of an argument; what they share is shared still."""
        if np.ndim(x) == 0:
            return x
        x = np.moveaxis(full(x, self.axis, self.rank), self.axis, -1)
        if x.size == x.shape[-1] and name != "d":
            return x.reshape(1, -1)
        return np.broadcast_to(x, (*unsolved.shape, x.shape[-1]))[unsolved]

    def together(self, told: Sequence[Any]) -> Rows:
        """The rows of all chunks."""
        return {
            name: np.concatenate([rows[name] for rows in told], axis=-1) if name in self.moving else x
            for name, x in told[0].items()
        }

    def whole(self, first: Place, verdict: Verdict, told: Sequence[Any]) -> Settled:
        """A task: the solution of the systems whose rows were collected; ``first``: the index of the first system."""
        if verdict.unsolved is None:
            return Settled(verdict, ())
        try:
            x = self.verb(**self.together(told), **self.options)
        except SingularSystemError as error:
            places = np.argwhere(verdict.unsolved)[error.indices[:, 0]]
            raise singular(places + np.array(first, int), error.x, error.column) from error
        cuts = np.cumsum([rows[self.moving[0]].shape[-1] for rows in told])[:-1]
        return Settled(verdict, np.split(x, cuts, axis=-1))

    def settle(self, first: Place, sources: Sources, verdict: Verdict, solved: Sequence[Solved]) -> Settled:
        """As `rows` of every chunk and `whole`."""
        told: list[Rows | None] = []
        if verdict.unsolved is not None:
            told += (self.rows(verdict, self.restored(k, chunk, sources)) for k, chunk in enumerate(solved))
        settled = self.whole(first, verdict, told)
        left = [Solved(chunk.x, chunk.values if chunk.x is None else ()) for chunk in solved]
        return settled._replace(chunks=left, sources=sources if any(chunk.x is None for chunk in solved) else None)


def few(failed: int, systems: int) -> bool:
    """Whether so few systems fail that no more is done for all than to solve these whole."""
    return failed * FEW <= systems
