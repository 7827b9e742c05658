"""Smooth alignment by its definition as sums of weights, a cell after another, in extended precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from tridiag.kernels.jobs.words.alignment import USUAL, Rules


def alignment(
    scores: np.ndarray, lengths: Any, parameters: tuple[np.ndarray, ...], rules: Rules = USUAL
) -> list[np.ndarray]:
    """The score and all its derivatives, as backends return them; scores are finite, or forbid."""
    s = scores.astype(np.longdouble)
    *gaps, t = (x.astype(np.longdouble) for x in parameters)
    count, rows, columns = s.shape
    lengths = np.full((count, 2), (rows, columns)) if lengths is None else lengths
    inside = (np.arange(rows)[:, None] < lengths[:, :1, None]) & (np.arange(columns) < lengths[:, 1:, None])
    w = np.where(inside, np.exp(s / t[:, None, None]), 0)
    g, o = (np.exp(x / t) for x in (gaps[0], gaps[-1]))
    down_after_side, side_after_down = rules.turns != "none", rules.turns == "both"
    gaps_end, first_ends = rules.ends == "any", rules.ends != "later_match"
    before = np.zeros(
        (3, rows + 1, columns + 1, count), np.longdouble
    )  # weights of what ends in a match, down, to the side
    m, x, y = before
    for i, j in np.ndindex(rows, columns):
        a, here = before[:, i, j].sum(0), inside[:, i, j]
        m[i + 1, j + 1] = w[:, i, j] * (1 + a)
        x[i + 1, j + 1] = here * (o * (m + down_after_side * y)[i, j + 1] + g * x[i, j + 1])
        y[i + 1, j + 1] = here * (o * (m + side_after_down * x)[i + 1, j] + g * y[i + 1, j])
    after = np.zeros((3, rows + 2, columns + 2, count), np.longdouble)  # weights of all that may follow them
    c, cx, cy = after
    matches, total = np.zeros((rows, columns, count), np.longdouble), np.zeros(count, np.longdouble)
    by_gap, by_open = np.zeros((2, count), np.longdouble)
    for i, j in list(np.ndindex(rows, columns))[::-1]:
        here, at, below, beside, next_one = (
            inside[:, i, j],
            (i + 1, j + 1),
            (i + 2, j + 1),
            (i + 1, j + 2),
            (i + 2, j + 2),
        )
        match = c[next_one] * (w[:, i + 1, j + 1] if i + 1 < rows and j + 1 < columns else 0)
        down, side = cx[below], cy[beside]
        rest = match + o * (down + side)
        c[at] = here * (1 + rest)
        cx[at] = here * (gaps_end + match + g * down + side_after_down * o * side)
        cy[at] = here * (gaps_end + match + g * side + down_after_side * o * down)
        later = w[:, i, j] * before[:, i, j].sum(0)
        matches[i, j] = w[:, i, j] * (first_ends + rest) + later * (1 + rest)
        total += first_ends * w[:, i, j] + later + gaps_end * here * (x + y)[at]
        by_gap += g * (x[at] * down + y[at] * side)
        by_open += o * ((m + down_after_side * y)[at] * down + (m + side_after_down * x)[at] * side)
    some = total > 0
    inverse = np.where(some, 1 / np.where(some, total, 1), 0)
    score = np.where(some, t * np.log(np.where(some, total, 1)), -np.inf)
    by_scores = np.moveaxis(matches * inverse, -1, 0)
    by_gaps = [by_gap * inverse, by_open * inverse]
    if len(gaps) == 1:
        by_gaps = [by_gaps[0] + by_gaps[1]]
    worth = (by_scores * np.where(inside & np.isfinite(s), s, 0)).sum((1, 2))
    others = worth + sum(by * x for by, x in zip(by_gaps, gaps, strict=True))
    by_temperature = np.where(some, (np.where(some, score, 0) - others) / t, 0)
    return [np.asarray(v, float) for v in (score, by_scores, *by_gaps, by_temperature)]
