"""Sweeps over groups of which rows are taken out.

Words: those of the sweeps of `tridiag.kernels.thomas.sweeps` over the same layout without a mask, and, the last ones of
the layout or of all, where the mask of the first row lies; of groups side by side also how far the next row is, and the
next lane: `tridiag.kernels.access.masked_layouts`. A row of the elimination is counted from the first of all, and so is
one of the substitution of contiguous rows; of others it is counted from the first at hand.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tridiag.kernels.access.layouts import solution_of_groups, to_contiguous, to_interleaved, to_narrow
from tridiag.kernels.access.masked_layouts import Masked, MaskedContiguous, MaskedNarrow, MaskOfGroups
from tridiag.kernels.access.rows import SWEEPS, Mask
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code
from tridiag.kernels.thomas.steps import Pivoted, Thomas
from tridiag.kernels.thomas.sweeps import Substitution, parted


def eliminate_masked_contiguous(turned: bool, code: Code, *words: Any) -> None:
    if turned and code.parts != 1:
        return  # of complex numbers it is never called
    layout, span = parted(words)
    operands, moves, pads, mask = layout[:4], layout[4:8], layout[8:10], Mask(code, layout[10], code.lanes)
    rows = MaskedContiguous(code, operands, moves, pads, mask, turned)
    rows.down(span.first, span.last, span.elimination(code, Thomas))


def substitute_masked_contiguous(code: Code, *words: Any) -> None:
    source, stride, carry, output, first, last, rest, mask_at = words
    mask = Mask(code, mask_at, code.lanes)

    def kept(i: Value, x: Any) -> Any:
        return code.where(mask[i], x, code.zero())

    to_contiguous(code, output, first, last, Substitution(code, Thomas, source, stride, carry, carry), kept, rest)


def mask_of(code: Code, words: Sequence[Any], most: Value) -> MaskOfGroups:
    base, stride, side = words
    return MaskOfGroups(code, base, stride, side, most)


def eliminate_masked(asks: bool, step: Any, code: Code, *words: Any) -> None:
    layout, span = parted(words)
    operands, moves, places, mask = layout[:4], layout[4:8], layout[8:11], mask_of(code, layout[11:], layout[8])
    Masked(code, operands, moves, places, mask, asks).down(span.first, span.last, span.elimination(code, step))


def eliminate_masked_narrow(code: Code, *words: Any) -> None:
    layout, span = parted(words)
    if code.parts == 1:  # of complex numbers it is never called
        operands, moves, places, mask = layout[:4], layout[4:8], layout[8:11], mask_of(code, layout[11:], layout[8])
        narrow = MaskedNarrow(code, operands, moves, places, mask)
        narrow.down(span.first, span.last, span.elimination(code, Thomas))


def substitute_masked(past_caches: bool, step: Any, code: Code, *words: Value) -> None:
    source, stride, carry, groups, count, *target = words[:-3]
    sweep, mask = Substitution(code, step, source, stride, carry, carry), mask_of(code, words[-3:], target[-1])
    to_interleaved(past_caches, code, target, count, groups, solution_of_groups(sweep, mask.kept))


def substitute_masked_narrow(code: Code, *words: Value) -> None:
    source, stride, carry, _, count, *target = words[:-3]
    if code.parts == 1:
        mask = mask_of(code, words[-3:], target[-1]).first_group()
        to_narrow(code, target, count, Substitution(code, Thomas, source, stride, carry, carry), mask.kept)


ELIMINATE_MASKED, ELIMINATE_MASKED_STREAM, PIVOT_MASKED = (
    SWEEPS.add("eliminate_thomas_masked", functools.partial(eliminate_masked, True, Thomas)),
    SWEEPS.add("eliminate_thomas_masked_stream", functools.partial(eliminate_masked, False, Thomas)),
    SWEEPS.add("eliminate_pivoted_masked", functools.partial(eliminate_masked, True, Pivoted)),
)
SUBSTITUTE_MASKED, SUBSTITUTE_MASKED_STREAM = (
    SWEEPS.add("substitute_thomas_masked", functools.partial(substitute_masked, False, Thomas)),
    SWEEPS.add("substitute_thomas_masked_stream", functools.partial(substitute_masked, True, Thomas)),
)
UNPIVOT_MASKED, UNPIVOT_MASKED_STREAM = (
    SWEEPS.add("substitute_pivoted_masked", functools.partial(substitute_masked, False, Pivoted)),
    SWEEPS.add("substitute_pivoted_masked_stream", functools.partial(substitute_masked, True, Pivoted)),
)
ELIMINATE_MASKED_CONTIGUOUS, ELIMINATE_MASKED_TURNED, SUBSTITUTE_MASKED_CONTIGUOUS = (
    SWEEPS.add("eliminate_thomas_masked_contiguous", functools.partial(eliminate_masked_contiguous, False)),
    SWEEPS.add("eliminate_thomas_masked_turned", functools.partial(eliminate_masked_contiguous, True)),
    SWEEPS.add("substitute_thomas_masked_contiguous", substitute_masked_contiguous),
)
ELIMINATE_MASKED_NARROW, SUBSTITUTE_MASKED_NARROW = (
    SWEEPS.add("eliminate_thomas_masked_narrow", eliminate_masked_narrow),
    SWEEPS.add("substitute_thomas_masked_narrow", substitute_masked_narrow),
)
