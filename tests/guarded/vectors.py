"""Cases of small dense matrices: block tridiagonal systems, and recurrences of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

import tridiag
from guarded import Ran, scratch
from guarded.draw import Draw, in_numpy
from guarded.oracles import EPS, HUGE, TINY, WIDER, Array, matrix_recurrence, real_of

SIZES = (1, 2, 2, 3, 3, 4, 8)


def run_blocks(draw: Draw, library: str) -> Ran:
    """solve_block, whose residual is small next to the sizes of what it is the difference of, over a block row."""
    dtype = draw.choose("dtype", ("float64", "float32", "float64", "complex128"))
    m = draw.choose("m", SIZES, "numbers")
    n, batch = draw.sizes(most=max(1, 1500 // m), longest=200)
    rng = draw.values
    shapes = [
        tuple(
            1 if draw.chance(f"shared {k} {i}", 0.25, "broadcast") else length for i, length in enumerate((*batch, n))
        )
        for k in range(3)
    ]
    blocks = [numbers(rng, (*s, m, m), dtype) for s in shapes]
    if n > 40 or draw.chance("dominant", 0.6):  # long ones of any numbers may have solutions that are too large
        blocks[1] = (blocks[1] + 3 * m * np.eye(m)).astype(dtype)
    d = numbers(rng, (*batch, n, m), dtype)
    for k, at in ((0, 0), (2, n - 1)):
        if blocks[k].shape[-3] == n and n > 1 and draw.chance(f"end {k}", 0.7, "planted"):
            blocks[k][..., at, :, :] = np.nan
    spoilt = np.zeros(batch, bool)
    if batch and d.size and draw.chance("NaN", 0.2, "planted"):
        spoilt.flat[draw.stream("which").randrange(spoilt.size)] = True
        d[spoilt, draw.stream("row").randrange(n)] = np.nan
    given = [draw.operand(name, x, library) for name, x in zip(("A", "B", "C", "d"), (*blocks, d), strict=True)]
    draw.words.insert(0, f"solve_block {library} {list(d.shape)}")
    with scratch.arrays():
        x = tridiag.solve_block(*given)
    x = in_numpy(x)
    draw.finish()
    if x.shape != d.shape or x.dtype != dtype:
        raise AssertionError(f"the result is {x.dtype}{x.shape}, not {dtype}{d.shape}")
    if np.isfinite(x[spoilt]).any():
        raise AssertionError("a row of a system with NaN in an argument is finite")
    x, d = (np.where(spoilt[..., None, None], 0, v) for v in (x, d))
    real = real_of(dtype)
    wide = WIDER[real][x.dtype.kind == "c"]
    a, b, c = (np.broadcast_to(v, (*batch, n, m, m)).astype(wide) for v in blocks)
    a[..., 0, :, :], c[..., -1, :, :] = 0, 0
    v = x.astype(wide)
    residual, size = d.astype(wide), abs(d).astype(wide).real
    for matrix, by in ((a, 1), (b, 0), (c, -1)):
        moved = np.roll(v, by, -2)
        residual = residual - (matrix * moved[..., None, :]).sum(-1)
        size = size + (abs(matrix) * abs(moved[..., None, :])).sum(-1)
    error = (
        abs(residual).max((-1, -2)) / np.maximum(size.max((-1, -2)), TINY[real]) / EPS[real] if x.size else np.zeros(1)
    )
    # normwise stable: 3 m multiplications of growth that partial pivoting of a band hardly ever exceeds
    if not (error <= 60 * m).all():
        raise AssertionError(f"backward error {float(error.max()):.3g} eps")
    return Ran("solve_block", library, systems=x.size // (n * m), worst=float(error.max(initial=0)))


def numbers(rng: Any, shape: tuple[int, ...], dtype: str) -> Array:
    x = rng.uniform(-1, 1, shape)
    return (x + 1j * rng.uniform(-1, 1, shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def run_matrices(draw: Draw, library: str) -> Ran:
    """matrix_recurrence."""
    dtype = draw.choose("dtype", ("float64", "float32", "float64", "complex64"))
    m = draw.choose("m", SIZES, "numbers")
    n, batch = draw.sizes(most=max(1, 1500 // m), longest=300)
    rng, full = draw.values, (*batch, n)
    shape = tuple(1 if draw.chance(f"shared {i}", 0.25, "broadcast") else length for i, length in enumerate(full))
    a = numbers(rng, (*shape, m, m), dtype) / np.float32(m)
    x, init = numbers(rng, (*full, m), dtype), numbers(rng, (*batch, m), dtype)
    reverse, final = draw.chance("reverse", 0.3, "options"), draw.chance("final", 0.3, "options")
    started = draw.chance("init", 0.5, "options")
    if not started and shape[-1] == n and n > 1 and draw.chance("unread", 0.7, "planted"):
        a[..., n - 1 if reverse else 0, :, :] = np.nan
    given = [
        draw.operand("A", a, library),
        draw.operand("x", x, library),
        draw.operand("init", init, library) if started else None,
    ]
    options: dict[str, Any] = {"reverse": reverse, "return_final": final}
    out = None
    if draw.chance("out", 0.6):
        out, _ = draw.output("out", x.shape, dtype, library)
        options["out"] = out
    draw.words.insert(0, f"matrix_recurrence {library} {list(x.shape)} reverse={reverse} init={started}")
    with scratch.arrays():
        y = tridiag.matrix_recurrence(*given, **options)
    y, last = y if final else (y, None)
    if out is not None and y is not out:
        raise AssertionError("the result is not the array that was given for it")
    y, last = in_numpy(y), None if last is None else in_numpy(last)
    draw.finish()
    kind: Any = np.complex128 if y.dtype.kind == "c" else np.float64
    turn = slice(None, None, -1 if reverse else 1)
    matrices = np.broadcast_to(a, (*full, m, m))[..., turn, :, :].reshape(-1, n, m, m).astype(kind)
    rows = [v[..., turn, :].reshape(-1, n, m).astype(kind) for v in (x, y)]
    with np.errstate(all="ignore"):
        wanted, size, path = matrix_recurrence(
            np.ascontiguousarray(matrices), np.ascontiguousarray(rows[0]), init.reshape(-1, m).astype(kind), started
        )
        real = real_of(dtype)
        allowed = EPS[real] * (3 * path + 8 * size) * 2 + (n + 4) * TINY[real]
        wrong = ~(abs(rows[1] - wanted) <= allowed) & (size < HUGE[real] / 4)
    if wrong.any():
        raise AssertionError(f"{wrong.sum()} of {wrong.size} values are wrong, first {np.argwhere(wrong)[0].tolist()}")
    if last is not None and not np.array_equal(last.reshape(-1, m).astype(kind), rows[1][:, -1], equal_nan=True):
        raise AssertionError("the final value is not that of the sequence")
    return Ran("matrix_recurrence", library, systems=y.size // (n * m))
