"""Cases of systems as other libraries have them, through `tridiag.conventions`; what is not read there is NaN."""

from __future__ import annotations

from typing import Any

import numpy as np

import tridiag
from guarded import Ran, scratch
from guarded.draw import DTYPES, Draw, in_numpy
from guarded.judging import check_solution
from guarded.oracles import Array
from guarded.systems import Systems, values

FORMATS = (
    "scipy_banded", "scipy_hermitian", "lapack", "jax", "tensorflow", "cusparse_strided", "cusparse_interleaved",
)  # fmt: skip


def run(draw: Draw, library: str) -> Ran:
    """solve, of what a function of conventions gives; of buffers also in place of the right sides."""
    name = draw.choose("format", FORMATS)
    dtype = draw.choose("dtype", DTYPES)
    n, batch = draw.sizes(most=1500, longest=300)
    right_sides = draw.choose("right sides", (1, 2, 3, 8), "options")
    buffers = name.startswith("cusparse")
    batch = (int(np.prod(batch)),) if buffers else batch
    vector = not buffers and name != "jax" and not batch and draw.chance("one vector", 0.4, "options")
    a, b, c = (values(draw, band, "dominant", (*batch, n), dtype) for band in "abc")
    d = values(draw, "d", "dominant", (*batch, n) if buffers or vector else (*batch, n, right_sides), dtype)
    options: dict[str, Any] = {}
    if name == "scipy_hermitian":
        b = b.real.astype(dtype)
        a[..., 1:] = c[..., :-1].conj()
        options["lower"] = draw.chance("lower", 0.5)
    a[..., 0] = c[..., -1] = np.nan
    given = [draw.operand(f"argument {k}", x, library) for k, x in enumerate(arguments(draw, name, a, b, c, options))]
    draw.words.insert(0, f"solve, from_{name} {library} {options} {dtype}{[*batch, n]} right sides {list(d.shape)}")
    with scratch.arrays():
        if buffers:
            x = in_buffers(draw, name, given, d, library)
        else:
            given.append(draw.operand("right sides", d, library))
            x = tridiag.solve(**getattr(tridiag.conventions, f"from_{name}")(*given, **options))
    x = in_numpy(x)
    if x.shape != d.shape or x.dtype != dtype:
        raise AssertionError(f"the result is {x.dtype}{x.shape}, not {dtype}{d.shape}")
    if not buffers and not vector:
        a, b, c = (np.broadcast_to(v[..., None, :], (*batch, right_sides, n)) for v in (a, b, c))
        x, d = np.moveaxis(x, -2, -1), np.moveaxis(d, -2, -1)
    none = np.zeros(x.shape[:-1], bool)
    systems = Systems({}, x.shape, x.ndim - 1, (a, b, c, d), np.ones(x.shape, bool), none, none, none, "dominant")
    return check_solution(draw, systems, x, "auto", False, False)


def arguments(draw: Draw, name: str, a: Array, b: Array, c: Array, options: dict[str, Any]) -> list[Array]:
    """What a call of theirs takes, from its documented formula, without the right sides."""
    if name == "scipy_banded":  # ab[1 + i - j, j] = A[i, j]
        return [np.stack((np.roll(c, 1, -1), b, np.roll(a, -1, -1)), -2)]
    if name == "scipy_hermitian":
        return [np.stack((b, np.roll(a, -1, -1)) if options["lower"] else (np.roll(c, 1, -1), b), -2)]
    if name == "lapack":
        return [a[..., 1:], b, c[..., :-1]]
    if name == "tensorflow":
        options["diagonals_format"] = kind = draw.choose("diagonals", ("compact", "matrix"))
        if kind == "compact" or b.shape[-1] > 40:
            options["diagonals_format"] = "compact"
            return [np.stack((c, b, a), -2)]
        whole, at = np.full((*b.shape, b.shape[-1]), np.nan, b.dtype), np.arange(b.shape[-1])
        whole[..., at, at], whole[..., at[1:], at[:-1]], whole[..., at[:-1], at[1:]] = b, a[..., 1:], c[..., :-1]
        return [whole]
    return [a, b, c]


def in_buffers(draw: Draw, name: str, given: list[Any], d: Array, library: str) -> Any:
    """As cuSPARSE does: the solution in the buffer of the right sides, and nothing between the systems is touched."""
    count, n = d.shape
    interleaved = name == "cusparse_interleaved"
    gap = 0 if interleaved else draw.choose("stride", (0, 0, 1, 5), "options")
    buffers = []
    for x in (*map(in_numpy, given), d):
        wide = np.full((count, n + gap), np.nan, x.dtype)
        wide[:, :n] = x
        buffers.append((wide.T if interleaved else wide).reshape(-1))
    *diagonals, right = buffers
    taken, buffer = draw.output("buffer", right.shape, right.dtype, library)
    buffer.array[...] = right
    diagonals = [draw.operand(f"buffer {k}", x, library) for k, x in enumerate(diagonals)]
    if interleaved:
        system = tridiag.conventions.from_cusparse_interleaved(*diagonals, taken, n)
    else:
        system = tridiag.conventions.from_cusparse_strided(*diagonals, taken, n, *([n + gap] if gap else []))
    x = tridiag.solve(**system, overwrite_d=True)
    rest = in_numpy(taken).reshape((n, count) if interleaved else (count, n + gap))
    if not interleaved and not np.isnan(rest[:, n:]).all():
        raise AssertionError("what lies between two systems was written")
    found = in_numpy(x).T if interleaved else in_numpy(x)
    if not np.array_equal(found, rest.T if interleaved else rest[:, :n], equal_nan=True):
        raise AssertionError("the solution is not in the buffer of the right sides")
    return found
