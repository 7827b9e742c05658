"""What is compared with where the package has no backend in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np


def align(scores: Any, gap: float) -> Any:
    """The scores of smooth local alignments of pairs, in NumPy: a loop over anti-diagonals, all pairs at once."""
    shape, (rows, columns) = scores.shape[:-2], scores.shape[-2:]
    scores, i = scores.reshape(-1, rows, columns), np.arange(rows)
    before = last = np.full((len(scores), rows), -np.inf)
    total = np.full(len(scores), -np.inf)
    for k in range(rows + columns - 1):
        here = k - i
        w = scores[:, i, np.clip(here, 0, columns - 1)]
        longer = np.logaddexp(np.logaddexp(shifted(before) + w, w), np.logaddexp(shifted(last), last) + gap)
        before, last = last, np.where((here >= 0) & (here < columns), longer, -np.inf)
        total = np.logaddexp(total, np.logaddexp.reduce(last, axis=1))
    return total.reshape(shape)


def shifted(x: Any) -> Any:
    """From one row to the next, into which nothing comes from before the first one."""
    return np.concatenate((np.full_like(x[:, :1], -np.inf), x[:, :-1]), axis=1)
