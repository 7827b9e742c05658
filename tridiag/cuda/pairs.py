"""Alignments by CUDA kernels: what is launched, and how pairs are spread over blocks and threads; pure."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag.cuda import instances
from tridiag.cuda.record import Job, Program, Recording, address
from tridiag.cuda.spread_systems import WARP, parts
from tridiag.cuda.struct import layout
from tridiag.kernels.jobs.words.alignment import Rules

SCORES, LENGTHS, PARAMETERS, SCORE, GRADIENT, BY_PARAMETERS = 0, 1, 2, 5, 6, 7
OPERANDS = 10
PAIRS = layout(
    (
        ("operand", OPERANDS),
        ("kept", 1),
        ("room", 1),
        ("pairs", 1),
        ("rows", 1),
        ("columns", 1),
        ("apart", 3),
        ("gaps_end", 1),
        ("first_ends", 1),
        ("down_after_side", 1),
        ("side_after_down", 1),
    ),
    ("operand", "kept"),
    OPERANDS,
)
BLOCKS = 4096  # at most: more pairs than that are taken in turn
FULL = 4096  # warps: enough for all multiprocessors, so that a pair needs no more than one
ROOM = 2**30  # bytes of scratch memory that many pairs may take together
WORDS = {False: 6, True: 8}  # of what goes from a row to the next, by whether numbers carry two derivatives


class Alignment(NamedTuple):
    """A program, which of its arrays its arguments and its results are, and the shapes of the results."""

    program: Program
    given: tuple[int, ...]  # scores, perhaps lengths, the parameters
    results: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]

    def operands(self, given: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        """In the order of the struct; None: not there."""
        found: list[Any] = [None] * OPERANDS
        for k, x in zip((*self.given, *self.results), (*given, *results), strict=True):
            found[k] = x
        return found


@functools.lru_cache(1024)
def alignment(
    shape: tuple[int, ...],
    dtype: str,
    rules: Rules,
    derivatives: int,
    has_lengths: bool,
    one_for_all: tuple[bool, ...],
) -> Alignment:
    """The scores of pairs and their derivatives (`tridiag.backends`), from contiguous arrays.

    ``one_for_all``: whether a parameter is one number, not one for each pair; of gap, perhaps gap_open, temperature.
    """
    batch, is_affine = shape[:-2], len(one_for_all) == 3
    kinds = range(3) if is_affine else (0, 2)
    given = [SCORES, *[LENGTHS] * has_lengths, *(PARAMETERS + k for k in kinds)]
    results = [SCORE, GRADIENT, *(BY_PARAMETERS + k for k in kinds)][: (1, 2, None)[derivatives]]
    shapes = [shape if k == GRADIENT else batch for k in results]
    job = np.zeros((), PAIRS.job)
    job["operand"][[*given, *results]] = [address(k) for k in (*given, *results)]
    job["pairs"], job["rows"], job["columns"] = math.prod(batch), *shape[-2:]
    job["apart"][[*kinds]] = [not one for one in one_for_all]
    job["gaps_end"], job["first_ends"] = rules.ends == "any", rules.ends != "later_match"
    job["down_after_side"], job["side_after_down"] = rules.turns != "none", rules.turns == "both"
    recording = Recording(PAIRS)
    launch(recording, job, dtype, is_affine, derivatives)
    return Alignment(recording.program(), tuple(given), tuple(results), tuple(shapes))


def launch(recording: Recording, job: Job, dtype: str, is_affine: bool, derivatives: int) -> None:
    """A warp for each pair; several where pairs are few and long. Blocks take one pair after another."""
    pairs, rows, columns = (int(job[name]) for name in ("pairs", "rows", "columns"))
    itemsize, height = np.dtype(dtype).itemsize, WARP * instances.ALIGNED_ROWS[dtype, derivatives]
    warps = max(1, min(instances.ALIGNMENT_THREADS // WARP, parts(rows, height), FULL // pairs))
    threads, height = warps * WARP, warps * height
    border = WORDS[is_affine and derivatives == 2] * itemsize
    kept = 2 * parts(rows, height) * height * (columns + threads - 1) * itemsize if derivatives else 0
    room = kept + (columns * border if rows > height else 0)
    blocks = min(pairs, BLOCKS, max(1, ROOM // max(1, room)))
    job["room"], job["kept"] = room, recording.reserve(blocks * room)
    kernel = instances.alignment(dtype, is_affine, derivatives)
    recording.launch(kernel, blocks, threads, job, 2 * warps * border if warps > 1 else 0, in_turn=True)
