"""Smooth local alignment by CUDA C through CuPy: a wave over the anti-diagonals of a pair, a thread for some rows.

A pair has a warp, or a block of up to eight where pairs are few and long. The values of a row go to the thread of the
next by shuffles; every cell is a mantissa with an exponent, as in `tridiag.kernels.alignment.exponent_a_cell`: the
score takes 140 instructions a cell in float32 and 260 in float64, under affine gaps half as many more, and with its
gradient about two and a half times that. The score is one launch, with its gradient another: then scores are read
twice, the gradient is written once, and two words a cell are kept on the way and read on the way back, in scratch
memory of at most 1 GiB that pairs take in turn, or of what one pair needs. The gradients of gaps are carried with the
weights, that of the temperature follows from all others.

Sources: Smith and Waterman (1981); Gotoh (1982); Petti et al. (2023), for the smoothed score and its gradient.
"""

from __future__ import annotations

from typing import Any

from tridiag.cuda import on
from tridiag.kernels.jobs.words.alignment import USUAL, Rules


def smith_waterman(
    scores: Any, lengths: Any, parameters: tuple[Any, ...], derivatives: int = 0, rules: Rules = USUAL
) -> tuple[Any, ...]:
    return on(scores).smith_waterman(scores, lengths, parameters, derivatives, rules)
