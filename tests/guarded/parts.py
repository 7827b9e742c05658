"""Cases of parts of systems: reduced, joined and finished from arrays in any memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from guarded import Ran, scratch
from guarded.draw import Draw, in_numpy
from guarded.oracles import EPS, real_of
from tridiag import parts
from tridiag.problems import parts as problems

BAR = 8.0  # eps


def run(draw: Draw, library: str) -> Ran:
    """x of systems that are cut before some rows; NaN where a part has no certificate."""
    dtype = draw.choose("dtype", ("float64", "float32", "complex128", "complex64"), "numbers")
    stream = draw.stream("parts")
    n, batch = draw.sizes()
    lengths = cut(stream, n)
    axis = draw.axis(len(batch) + 1)
    wide = draw.stream("family").random() < 0.7
    places, first = [], 0
    bands = [values(draw, name, (*batch[:axis], n, *batch[axis:]), dtype, wide) for name in "abcd"]
    longest = stream.choice((problems.LONGEST, 8, 40))  # rows of a chunk
    draw.say(parts=lengths, axis=axis, longest=longest)
    before = problems.LONGEST
    problems.LONGEST = longest
    try:
        for k, rows in enumerate(lengths):
            place = (slice(None),) * axis + (slice(first, first + rows),)
            places.append(
                [draw.operand(f"{name}{k}", x[place], library) for name, x in zip("abcd", bands, strict=True)]
            )
            first += rows
        with scratch.arrays():
            told = [in_numpy(parts.reduce(*given, axis=axis)) for given in places]
            known = parts.join(np.stack(told))
            found = [in_numpy(parts.finish(*given, v, axis=axis)) for given, v in zip(places, known, strict=True)]
    finally:
        problems.LONGEST = before
    draw.finish()
    judge(np.moveaxis(np.concatenate(found, axis), axis, -1), [np.moveaxis(x, axis, -1) for x in bands], dtype)
    return Ran("parts", library, systems=int(np.prod(batch)))


def cut(stream: Any, n: int) -> list[int]:
    """Some lengths that make up n."""
    ends = sorted(stream.sample(range(1, n), min(n - 1, stream.randrange(4)))) if n > 1 else []
    return [j - i for i, j in zip([0, *ends], [*ends, n], strict=True)]


def values(draw: Draw, name: str, shape: tuple[int, ...], dtype: str, wide: bool) -> Any:
    rng = draw.values
    x = rng.uniform(-1, 1, shape) + (1j * rng.uniform(-1, 1, shape) if np.dtype(dtype).kind == "c" else 0)
    return (x + (3 * np.sign(x.real) if name == "b" and wide else 0)).astype(dtype)


def judge(x: Any, bands: list[Any], dtype: str) -> None:
    """Every system is right, or NaN in some part."""
    a, b, c, d = (np.array(v, np.clongdouble if np.iscomplexobj(v) else np.longdouble) for v in bands)
    a[..., 0] = c[..., -1] = 0
    terms = a * np.roll(x, 1, -1), b * x, c * np.roll(x, -1, -1), -d
    with np.errstate(invalid="ignore", divide="ignore"):
        error = abs(sum(terms)) / sum(map(abs, terms))
    good = np.isnan(x).any(-1) | (np.nan_to_num(error) <= BAR * EPS[real_of(dtype)]).all(-1)
    if not good.all():
        raise AssertionError(f"a componentwise residual is {np.nanmax(error) / EPS[real_of(dtype)]:.1f} eps")
