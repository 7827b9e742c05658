"""Lanes of which rows are taken out: their couplings to other rows are none, their diagonal 1.

A mask is a byte a row and lane, those of a row side by side, or one group of lanes a row for all groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tridiag.kernels.access.layouts import Contiguous, Interleaved, Narrow
from tridiag.kernels.access.moves import MOVES, bytes_of_lanes
from tridiag.kernels.access.rows import Mask
from tridiag.kernels.simd.registers import lanes_of_register
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code


@dataclass(frozen=True)
class MaskOfGroups:
    """Which lanes of some groups are kept; ``side``: bytes from a lane to the next, 0 where all groups have the same.

    ``most``: the place of the last group, as in `Interleaved`.
    """

    code: Code
    base: Value
    stride: Value
    side: Value
    most: Value

    def row(self, i: Value) -> Callable[[Value], Value]:
        """A function (g): the lanes of group g that row i keeps."""
        code, at = self.code, self.base + i * self.stride
        last = self.most / (code.size_of_real * code.parts)

        def group(g: Value) -> Value:
            lane = g * code.lanes
            return code.load_bytes(at + code.pick(lane < last, lane, last) * self.side)

        return group

    def around(self, i: Value, end: Value) -> tuple[Callable[[Value], Value], ...]:
        """The same of the rows before i, i, and behind i; the first and the last are their own neighbours."""
        code, last = self.code, end - 1
        before, behind = code.pick(i == 0, i, i - 1), code.pick(i == last, i, i + 1)
        return self.row(before), self.row(i), self.row(behind)

    def kept(self, i: Value, g: Value, x: Any) -> Any:
        """x of row i of group g, zero where it is taken out."""
        return self.code.where(self.row(i)(g), x, self.code.zero())

    def first_group(self) -> MaskOfGroups:
        """That of the only group, whatever its place."""
        return MaskOfGroups(self.code, self.base, self.stride, self.code.integer(0), self.code.integer(0))


def without(code: Code, entries: Sequence[Any], before: Value, keep: Value, behind: Value) -> tuple[Any, ...]:
    """The entries of a row as if that and its neighbours were taken out in some lanes."""
    a, b, c, d = entries
    a, c = (code.where(keep & other, x, code.zero()) for x, other in ((a, before), (c, behind)))
    return a, code.where(keep, b, code.one()), c, d


class Masked(Interleaved):
    """`Interleaved`, with such a mask."""

    def __init__(
        self,
        code: Code,
        operands: Sequence[Any],
        moves: Sequence[Any],
        words: Sequence[Value],
        mask: MaskOfGroups,
        asks: bool = True,
    ) -> None:
        super().__init__(code, operands, moves, words, asks)
        self.mask = mask

    def row(self, i: Value) -> Callable[[Value], Any]:
        entries, (before, here, behind) = self.read(i), self.mask.around(i, self.end)

        def group(g: Value) -> Any:
            keep = here(g)
            return keep, *without(self.code, entries(g), before(g), keep, behind(g))

        return group


class MaskedContiguous(Contiguous):
    """`Contiguous`, with the mask of a group, which has a row before the first and one behind the last."""

    def __init__(
        self, code: Code, operands: Sequence[Any], moves: Sequence[Any], pads: Sequence[Value], mask: Mask, turned: bool
    ) -> None:
        super().__init__(code, operands, moves, pads, turned=turned)
        self.mask = mask

    def of_lanes(self, code: Code, first: int) -> MaskedContiguous:
        made = cast(MaskedContiguous, super().of_lanes(code, first))
        made.mask = self.mask.of_lanes(code, first)
        return made

    def rows(self, i: Value) -> Iterator[tuple[Value, Any]]:
        """The lanes that `height` rows from i on keep, and their entries."""
        before, keep = self.mask[i - 1], self.mask[i]
        for k, entries in enumerate(self.read(i)):
            behind = self.mask[i + (k + 1)]
            yield keep, without(self.code, entries, before, keep, behind)
            before, keep = keep, behind

    def least(self, sweep: Any) -> int:
        """Masks take registers, too."""
        return lanes_of_register(self.code)


class MaskedNarrow(Narrow):
    """`Narrow`, with such a mask, which has all lanes of a vector."""

    def __init__(
        self, code: Code, operands: Sequence[Any], moves: Sequence[Any], words: Sequence[Value], mask: MaskOfGroups
    ) -> None:
        super().__init__(code, operands, moves, words)
        self.mask = mask.first_group()

    def kept(self, i: Value, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        before, keep, behind = (row(self.code.integer(0)) for row in self.mask.around(i, self.end))
        return keep, *without(self.code, entries, before, keep, behind)


def gather_mask(code: Code, *words: Value) -> None:
    """Bytes of the lanes of a group, ``lane_step`` apart in memory, side by side; those behind the last repeat it."""
    base, lane_step, used, stride, count, target, target_stride = words
    lanes = [code.integer(lane) for lane in range(code.lanes)]
    places = [base + code.pick(lane < used, lane, used - 1) * lane_step for lane in lanes]
    bytes_of_lanes(code, places, stride, count, target, target_stride)


GATHER_MASK = MOVES.add("gather_mask", gather_mask)
