"""Cases of alignments."""

from __future__ import annotations

from typing import Any

import numpy as np

import tridiag
from guarded import Ran, scratch
from guarded.draw import Draw, in_numpy
from guarded.oracles import EPS, align


def run(draw: Draw, library: str) -> Ran:
    """smith_waterman, with scores beyond the lengths that are NaN."""
    dtype = draw.choose("dtype", ("float64", "float32"))
    rng, stream = draw.values, draw.stream("alignment")
    rows, columns = (draw.shrunk("n", stream.choice((1, 2, 3, 5, 8, 9, 16, 17, 20, 33, 70))) for _ in range(2))
    pairs = draw.shrunk("batch", stream.choice((1, 1, 2, 7, 8, 9, 16, 17, 33)))
    scores = rng.normal(scale=stream.choice((1, 1, 10)), size=(pairs, rows, columns)).astype(dtype)
    lengths = None
    if draw.chance("lengths", 0.6, "options"):
        lengths = np.stack([rng.integers(0, rows + 1, pairs), rng.integers(0, columns + 1, pairs)], -1)
        lengths = lengths.astype(stream.choice(("int32", "int64", "uint8")))
        if draw.chance("unread", 0.8, "planted"):
            for s, (i, j) in zip(scores, lengths, strict=True):
                s[int(i) :] = np.nan
                s[:, int(j) :] = np.nan
    temperature = float(
        stream.choice((1.0, 1.0, 0.1, 5.0, 1e-3, 1e-6, 1e-13, 1e-15, 1e-20, 1e280))
        if "numbers" not in draw.drop
        else 1.0
    )
    temperature = max(temperature, 1e-6) if dtype == "float32" else temperature
    temperature = min(temperature, 1e28) if dtype == "float32" else temperature
    gap, gap_open = -float(rng.uniform(0.1, 2)), -float(rng.uniform(0.1, 3)) if stream.random() < 0.5 else None
    if lengths is not None and lengths.dtype == np.int64 and draw.chance("out of range", 0.1, "planted"):
        return refused(draw, scores, lengths, gap)
    given = [
        draw.operand("scores", scores, library),
        None if lengths is None else draw.operand("lengths", lengths, library),
    ]
    draw.words.insert(
        0, f"smith_waterman {library} {list(scores.shape)} temperature={temperature} gap={gap} gap_open={gap_open}"
    )
    with scratch.arrays():
        found = tridiag.smith_waterman(*given, gap=gap, gap_open=gap_open, temperature=temperature)
    found = in_numpy(found)
    draw.finish()
    opened = gap if gap_open is None else gap_open
    used = [float(np.dtype(dtype).type(v)) for v in (gap, opened, temperature)]
    for k in range(pairs):
        i, j = (rows, columns) if lengths is None else map(int, lengths[k])
        lowest, highest = bounds(np.nan_to_num(scores[k].astype(np.float64)), i, j, *used, EPS[dtype])
        if not (found[k] == lowest or lowest <= found[k] <= highest):
            raise AssertionError(f"the score of pair {k} is {found[k]}, not from {lowest} to {highest}")
    return Ran("smith_waterman", library, systems=pairs)


COLDEST = {EPS["float64"]: 2.0**-50, EPS["float32"]: 2.0**-28}


def bounds(
    scores: Any, i: int, j: int, gap: float, opened: float, temperature: float, eps: float
) -> tuple[float, float]:
    """Between what the score of a pair of such lengths is.

    Errors are as of a sum over a path: units of the largest partial sum, and of the temperature, for every step. One
    that is too low may count as the lowest that is not; the score rises with it.
    """
    largest, steps = max(abs(scores[:i, :j]).max(initial=0), abs(gap), abs(opened)), sum(scores.shape) + 2
    raised = max(temperature, 1.5 * steps * COLDEST[eps] * largest)
    error = 16 * eps * (abs(scores[:i, :j]).max(initial=0) * min(i, j) + (abs(gap) + abs(opened) + raised) * (i + j))
    lowest, highest = (t * align(scores, i, j, gap, opened, t) for t in (temperature, raised))
    return lowest - error, highest + error


def refused(draw: Draw, scores: Any, lengths: Any, gap: float) -> Ran:
    """A length that is negative, too large, or the same as a right one but for bits that 32 do not hold."""
    rng = draw.stream("length")
    lengths[rng.randrange(len(lengths)), rng.randrange(2)] += rng.choice((-1000, 1000, 2**32, -(2**32), 2**40))
    try:
        tridiag.smith_waterman(draw.operand("scores", scores), draw.operand("lengths", lengths), gap=gap)
    except ValueError:
        draw.finish()
        return Ran("smith_waterman", systems=len(scores))
    raise AssertionError(f"a length out of range was taken: {lengths.tolist()}")
