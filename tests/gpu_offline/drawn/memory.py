"""Arrays of a device that lie anyhow in larger ones, and what is looked at when a call has ended."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from drawn import Array, Refused

ALONG = ((1, 0), (1, 0), (1, 1), (2, 0), (-1, 0), (-1, 2))  # steps from one entry to the next, and entries left out


class Memory:
    """The arrays of one call."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.plain = rng.random() < 0.3
        self.kept: list[tuple[Any, Array, Array]] = []  # an array, what it held, which of its entries may change

    def given(self, x: Array) -> Any:
        """An argument, which nothing may write to."""
        return self.held(x, False)

    def written(self, x: Array) -> Any:
        """An array that holds x, and may be written to."""
        return self.held(x, True)

    def held(self, x: Array, free: bool) -> Any:
        """A part of a larger array, which is full of no numbers."""
        lengths, parts, order = self.place(x.shape)
        whole = cupy.full(lengths, np.nan if x.dtype.kind in "fc" else 0, x.dtype)
        found = whole[parts].transpose(order)
        found[...] = cupy.asarray(x)
        may_change = np.zeros(lengths, bool)
        may_change[parts] = free
        self.kept.append((whole, whole.get(), may_change))
        return found

    def place(self, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[slice, ...], tuple[int, ...]]:
        """The shape of the larger array, its part, and the order of the axes of that."""
        rng, rank = self.rng, len(shape)
        if self.plain or rng.random() < 0.25:
            return shape, (slice(None),) * rank, tuple(range(rank))
        order = rng.permutation(rank) if rng.random() < 0.5 else np.arange(rank)
        lengths, parts = [], []
        for axis in order:
            step, before = ALONG[rng.integers(len(ALONG))]
            last = before + abs(step) * (shape[axis] - 1)
            lengths.append(last + 1 + int(rng.integers(2)))
            down = slice(last, before - 1 if before else None, step)
            parts.append(slice(before, last + 1, step) if step > 0 else down)
        return tuple(lengths), tuple(parts), tuple(np.argsort(order).tolist())

    def check(self) -> None:
        """Nothing was written but what may be."""
        for whole, before, free in self.kept:
            after = np.ascontiguousarray(whole.get())
            different = after.view(np.uint8) != np.ascontiguousarray(before).view(np.uint8)
            if (different.reshape(*after.shape, after.itemsize).any(-1) & ~free).any():
                raise Refused("memory was written that is no result")
