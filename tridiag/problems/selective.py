"""The normal form of selective scans, and how their arguments broadcast."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from tridiag.problems.forms import Recurrence, Shape, broadcast, lift, lift_state, normalise_axis

VERB = "selective_scan"


class SelectiveScan(NamedTuple):
    """What a backend must know of a selective scan beside its arrays; static and hashable."""

    shape: Shape  # of the result, whose sequences have so many states
    states: int
    axis: int
    reverse: bool = False

    @property
    def n(self) -> int:
        return self.shape[self.axis]

    @property
    def batch(self) -> Shape:
        """The shape of one row."""
        return self.shape[: self.axis] + self.shape[self.axis + 1 :]

    @property
    def recurrence(self) -> Recurrence:
        """That of all states, which lie along a last axis."""
        return Recurrence((*self.shape, self.states), self.axis, self.reverse)

    @property
    def chunk(self) -> int:
        """So many steps that the states of a chunk take as much memory as those between all chunks."""
        return math.isqrt(max(0, self.n - 1)) + 1

    def steps(self, count: int) -> SelectiveScan:
        """The same of so many steps."""
        return self._replace(shape=(*self.shape[: self.axis], count, *self.shape[self.axis + 1 :]))


class Operands(NamedTuple):
    """The arrays of a selective scan, all of the rank of the states of all steps, each axis of full length or 1."""

    a: Any
    x: Any  # of length 1 along the states, as ``step``
    B: Any
    C: Any
    step: Any = None
    init: Any = None  # of length 1 along the axis of the steps


def align_selective(given: Mapping[str, Shape], axis: int) -> tuple[Shape, int, int, dict[str, Shape]]:
    """The shape of the result, the states, the axis from the front, and the lifted shapes of what is given."""
    heads = {name: given[name] if name in ("x", "step") else given[name][:-1] for name in given if name != "init"}
    rank = max(map(len, heads.values()))
    if rank == 0:
        raise ValueError(
            "no argument has the axis of the steps: x and step are (..., n), a, B and C are (..., n, states), "
            "where n or an axis before it may be 1"
        )
    axis = normalise_axis(axis, rank)
    lifted = {}
    for name, head in heads.items():
        if name in ("x", "step"):
            lifted[name] = (*lift(head, rank, axis), 1)
        else:
            lifted[name] = ((1,) * (rank - len(head)) + head) + (given[name][-1:] or (1,))
    *full, states = broadcast(lifted, given, lambda: without_channels(given, axis, rank))
    check_steps(given, axis, rank)
    if "init" in given:
        batch = (*full[:axis], *full[axis + 1 :], states)
        lifted["init"] = lift_state("init", given["init"], batch, axis)
    return tuple(full), states, axis, lifted


def of_steps(given: Mapping[str, Shape], axis: int, rank: int) -> list[str]:
    """Those of B and C whose axes before the states are those of x, but for its channels."""
    x, channels = given.get("x", ()), channels_of(axis, rank)
    if len(x) != rank or rank < 2:
        return []
    head = x[:channels] + x[channels + 1 :]
    return [name for name in ("B", "C") if len(given.get(name, ())) == rank and given[name][:-1] == head]


def channels_of(axis: int, rank: int) -> int:
    """The last axis that is not that of the steps."""
    return rank - 2 if axis == rank - 1 else rank - 1


def for_all_channels(axis: int, rank: int) -> str:
    """What gives B or C of each step an axis for all channels."""
    return "[..., None, :, :]" if channels_of(axis, rank) == rank - 2 else "[..., None, :]"


def without_channels(given: Mapping[str, Shape], axis: int, rank: int) -> str:
    """What to do where B or C of each step lack the axis of channels, as in Mamba."""
    added = for_all_channels(axis, rank)
    return "".join(f"; {name}{added} is that of all channels" for name in of_steps(given, axis, rank))


def check_steps(given: Mapping[str, Shape], axis: int, rank: int) -> None:
    """Refuse B or C that have the axes of x but for its channels, and broadcast against others than these."""
    added, channels = for_all_channels(axis, rank), channels_of(axis, rank)
    own = "[..., None, :, :]" if axis == rank - 2 else "[None]"
    for name in of_steps(given, axis, rank):
        head = given[name][:-1]
        if (1, *head) != (*head[:channels], 1, *head[channels:]):
            raise ValueError(
                f"{name} has shape {given[name]}, which broadcasts against x {given['x']} in two ways: "
                f"{name}{added} is one for each step of all channels, {name}{own} one for each channel; write the one "
                "meant"
            )
