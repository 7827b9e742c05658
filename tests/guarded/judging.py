"""Whether the results of cases of tridiagonal systems are right."""

from __future__ import annotations

from typing import Any

import numpy as np

from guarded import Ran
from guarded.draw import Draw, in_numpy
from guarded.oracles import EPS, HUGE, WIDER, Array, backward_errors, bands, determinant, gauss, product, real_of
from guarded.systems import Systems

PROMISE = 8.0  # eps, componentwise
DENSE, INVERTED = 40, 30_000  # rows of periodic systems whose determinants are looked at, and entries of inverses
LONGEST = 400  # rows of a periodic system whose dense matrix is looked at, where something is doubtful


def check_solution(
    draw: Draw,
    systems: Systems,
    x: Array,
    pivoting: bool | str,
    periodic: bool,
    transpose: bool,
    backend: str = "auto",
) -> Ran:
    x = np.moveaxis(x, systems.axis, -1)
    matrix = bands(*systems.rows[:3], systems.keep, periodic, transpose)
    d = np.where(systems.keep, systems.rows[3], 0)
    draw.finish()
    with np.errstate(all="ignore"):
        lost = ~np.isfinite(x).all(-1)
        dead = systems.singular
        if systems.family == "integers":
            dead = dead | nearly_singular(matrix, x.dtype, lost, periodic)
        silent = dead & ~np.isnan(x).any(-1)
        for at in map(tuple, np.argwhere(silent & ~systems.singular)):
            silent[at] = not grows_beyond(x[at])
        if silent.any() or (~np.isnan(x[systems.singular]).all()):
            raise AssertionError("a singular system is not NaN")
        if (~lost & systems.spoilt).any():
            raise AssertionError("NaN in an argument did not reach the solution")
        spoilt = systems.spoilt & ~(systems.free | systems.singular) & coupled(matrix) & systems.keep.all(-1)
        if in_one_piece(backend, x.shape[-1]) and (np.isfinite(x).any(-1) & spoilt).any():
            raise AssertionError("a row of a system with NaN in an argument is finite")
        good = np.array(~(dead | systems.spoilt | systems.free))  # of a single system that is a number
        if pivoting is False and systems.family in ("uniform", "integers"):
            return Ran("solve", systems=good.size)  # nothing is promised
        for at in map(tuple, np.argwhere(lost & good)):
            if too_large(matrix, d, x, at, periodic):
                good[at] = False
        if (lost & good).any():
            raise AssertionError(
                f"not finite: systems {np.argwhere(lost & good)[:4].tolist()}, {(lost & good).sum()} of {lost.size}"
            )
        if (x[~systems.keep] != 0).any() and good.all():
            raise AssertionError("a row that is taken out is not 0")
        componentwise, normwise = backward_errors(x, matrix, d)
    error = np.where(good, np.minimum(componentwise, normwise) if pivoting is True else componentwise, 0)
    for at in map(tuple, np.argwhere(~(error <= PROMISE))):
        if not beyond_promise(matrix, d, x, at, float(error[at]), periodic):
            many = f"{(error > PROMISE).sum()} of {error.size} systems above {PROMISE:.0f} eps"
            raise AssertionError(f"backward error {float(error[at]):.3g} eps in system {tuple(map(int, at))}, {many}")
        error[at] = 0
    return Ran("solve", systems=good.size, worst=float(error.max(initial=0)))


def grows_beyond(x: Array) -> bool:
    """Whether a solution is infinite since it grows out of its range: some of it is not far from the largest number.

    That of a system with a zero pivot is infinite from one row to the next.
    """
    finite = np.isfinite(x)
    return bool(finite.any() and abs(x[finite]).max() > 1e-6 * HUGE[real_of(x.dtype)])


def coupled(matrix: tuple[Array, ...]) -> Array:
    """Whether every row of a system depends on all others: no coupling is 0."""
    below, _, above = matrix
    return (below[..., 1:] != 0).all(-1) & (above[..., :-1] != 0).all(-1)


def in_one_piece(backend: str, n: int) -> bool:
    """Whether a system is eliminated row by row, not in chunks, which may not feel what lies far off."""
    return backend != "numba_partition" and (backend != "auto" or n < 500)


def nearly_singular(matrix: tuple[Array, ...], dtype: Any, lost: Array, periodic: bool) -> Array:
    """Which of the systems that came out infinite may be singular to rounding: by their determinants, or conditions."""
    found = np.zeros(lost.shape, bool)
    if periodic:
        for at in map(tuple, np.argwhere(lost)):
            found[at] = ill_conditioned(matrix, at, dtype, True)
        return found
    return lost & of_small_determinant(matrix)


def of_small_determinant(matrix: tuple[Array, ...]) -> Array:
    """Whether rounding may take the determinants for 0."""
    wide = [
        np.ascontiguousarray(np.broadcast_to(v, matrix[1].shape)).reshape(-1, v.shape[-1]).astype(complex)
        for v in matrix
    ]
    found = [
        abs(one) <= 1e3 * EPS["float32"] * size
        for one, size, _ in (determinant(*rows) for rows in zip(*wide, strict=True))
    ]
    return np.reshape(found, matrix[1].shape[:-1])


def one_system(matrix: tuple[Array, ...], x: Array, at: Any, dtype: Any) -> list[Array]:
    return [np.ascontiguousarray(np.broadcast_to(v, x.shape)[at]).astype(dtype) for v in matrix]


def too_large(matrix: tuple[Array, ...], d: Array, x: Array, at: Any, periodic: bool) -> bool:
    """Whether the solution of a system is more than its precision holds, as that of long random ones may be."""
    if periodic:
        return False
    single = real_of(x.dtype) == "float32"
    solution = gauss if single else gauss.py_func  # Numba knows no long double
    rows = one_system((*matrix, d), x, at, complex if single else WIDER["float64"][x.dtype.kind == "c"])
    return not abs(solution(*rows)).max() < HUGE[real_of(x.dtype)] / 1e6


def beyond_promise(matrix: tuple[Array, ...], d: Array, x: Array, at: Any, error: float, periodic: bool) -> bool:
    """Whether the condition of a system is beyond 1e-3 / eps, and its error not beyond twice that of LAPACK.

    A singular one has no condition, and an error of LAPACK that is NaN: nothing is beyond it.
    """
    if (periodic and x.shape[-1] > LONGEST) or not ill_conditioned(matrix, at, x.dtype, periodic):
        return False
    kind: Any = "complex64" if real_of(x.dtype) == "float32" else "complex128"
    if periodic:
        theirs = dense_solution(whole_matrix(one_system(matrix, x, at, kind)), d[at])
    else:
        theirs = gauss(*one_system((*matrix, d), x, at, kind))
    theirs = (theirs if x.dtype.kind == "c" else theirs.real).astype(x.dtype)
    found, _ = backward_errors(theirs, tuple(np.broadcast_to(v, x.shape)[at] for v in matrix), d[at])
    return not error > 2 * float(found) + PROMISE


def ill_conditioned(matrix: tuple[Array, ...], at: Any, dtype: Any, periodic: bool) -> bool:
    """Whether the condition of a system is beyond about 1e-3 / eps."""
    like = np.broadcast_to(matrix[1], np.broadcast_shapes(*(v.shape for v in matrix)))
    rows = one_system(matrix, like, at, complex)
    rng, shape = np.random.default_rng(0), (4, like.shape[-1])
    sides = (rng.choice((-1.0, 1.0), shape) * rng.uniform(0.5, 1.0, shape)).astype(complex)  # no sums cancel
    with np.errstate(all="ignore"):
        inverse = [(periodic_solution if periodic else gauss)(*rows, side) for side in sides]
        condition = sum(map(abs, rows)).max() * abs(np.stack(inverse)).max()
    return not condition < 1e-4 / EPS[real_of(dtype)]  # a tenth: these are some vectors, not the worst


def whole_matrix(rows: list[Array]) -> Array:
    """The dense matrix of a periodic system."""
    whole = np.diag(rows[1]) + np.diag(rows[0][1:], -1) + np.diag(rows[2][:-1], 1)
    whole[0, -1] += rows[0][0]
    whole[-1, 0] += rows[2][-1]
    return whole


def periodic_solution(below: Array, diagonal: Array, above: Array, d: Array) -> Array:
    """By LAPACK for bands: in the order 0, n - 1, 1, n - 2, ... a periodic matrix has two diagonals on each side."""
    from scipy.linalg import LinAlgError, solve_banded

    n = len(d)
    k = np.arange(n)
    place = np.minimum(2 * k, 2 * (n - k) - 1)
    band = np.zeros((5, n), complex)
    for entry, column in ((below, k - 1), (diagonal, k), (above, (k + 1) % n)):
        np.add.at(band, (2 + place - place[column], place[column]), entry)
    right = np.empty(n, complex)
    right[place] = d
    try:
        return np.asarray(solve_banded((2, 2), band, right, check_finite=False)[place])
    except LinAlgError:
        return np.full(n, np.nan, complex)


def dense_solution(matrix: Array, d: Array) -> Array:
    """NaN where LAPACK finds the matrix singular."""
    try:
        return np.linalg.solve(matrix, d)
    except np.linalg.LinAlgError:
        return np.full(d.shape, np.nan, matrix.dtype)


def check_matmul(draw: Draw, systems: Systems, y: Any, periodic: bool, transpose: bool) -> Ran:
    """Every value within some units of the sum of the absolute values of its terms."""
    draw.finish()
    y = np.moveaxis(in_numpy(y), systems.axis, -1)
    with np.errstate(all="ignore"):
        wide = [v.astype(np.clongdouble if v.dtype.kind == "c" else np.longdouble) for v in systems.rows]
        found, size = product(bands(*wide[:3], systems.keep, periodic, transpose), np.where(systems.keep, wide[3], 0))
        found = np.where(systems.keep, found, 0)
    if not (abs(y - found) <= 8 * EPS[real_of(y.dtype)] * size + np.finfo(real_of(y.dtype)).tiny).all():
        raise AssertionError("a product is wrong")
    return Ran("matmul", systems=y[..., 0].size)


def check_determinants(draw: Draw, systems: Systems, result: Any, periodic: bool) -> Ran:
    """Of systems that are not periodic: sign and logarithm, where the determinant is not a matter of rounding."""
    draw.finish()
    sign, logarithm = map(in_numpy, result)
    full = systems.rows[1].shape
    if sign.shape != full[:-1] or logarithm.shape != full[:-1]:
        raise AssertionError(f"determinants of shape {sign.shape}, not {full[:-1]}")
    if periodic:
        check_periodic(systems, sign, logarithm)
        return Ran("slogdet", systems=sign.size)
    if full[-1] > 600 or sign.size > 2000:
        return Ran("slogdet", systems=sign.size)
    eps, n = EPS[real_of(sign.dtype)], full[-1]
    with np.errstate(all="ignore"):
        matrix = [v.astype(complex) for v in bands(*systems.rows[:3], systems.keep, False, False)]
        for at in np.ndindex(full[:-1]):
            one, size, scale = determinant(*(v[at] for v in matrix))
            loss = size / abs(one) if one else np.inf
            if not loss * eps * n <= 1e-3:
                continue
            unit, wanted, tolerance = one / abs(one), np.log(abs(one)) + scale, 20 * eps * n * loss
            near = abs(logarithm[at] - wanted) <= tolerance + 4 * eps * abs(wanted)
            if not (near and abs(sign[at] - unit) <= tolerance):
                raise AssertionError(f"determinant {at}: {sign[at]}, {logarithm[at]}, not {unit}, {wanted}")
    return Ran("slogdet", systems=sign.size)


def check_entries(systems: Systems, entries: Array, lossy: Array) -> None:
    """Entries of the inverse of small matrices, within what errors next to their largest ones may do."""
    *batch, n = systems.rows[1].shape
    if n > DENSE or lossy.size * n * n > INVERTED or not entries.size:
        return
    if entries.dtype.kind != systems.rows[1].dtype.kind and entries.dtype.kind != "c":
        raise AssertionError(f"entries of {entries.dtype}")
    matrix = bands(*systems.rows[:3], systems.keep, False, False)
    below, diagonal, above = (v.astype(complex) for v in matrix)
    at = np.arange(n)
    whole = np.zeros((*batch, n, n), complex)
    whole[..., at, at] = diagonal
    whole[..., at[1:], at[:-1]] = below[..., 1:]
    whole[..., at[:-1], at[1:]] = above[..., :-1]
    found, eps = np.moveaxis(entries, systems.axis + 1, -1), EPS[real_of(entries.dtype)]
    with np.errstate(all="ignore"):
        fit = np.isfinite(np.linalg.slogdet(whole)[1]) & (lossy == 0)
        inverse = np.linalg.inv(np.where(fit[..., None, None], whole, np.eye(n)))
        wanted = np.zeros((3, *batch, n), complex)
        wanted[1] = np.where(systems.keep, inverse[..., at, at], 0)
        wanted[0][..., 1:], wanted[2][..., :-1] = inverse[..., at[:-1], at[1:]], inverse[..., at[1:], at[:-1]]
        size = abs(inverse).max((-1, -2))
        loss = abs(whole).max((-1, -2)) * size
        off = ~(abs(found - wanted) <= (40 * eps * n * loss * size)[..., None]).all((0, -1))
    wrong = fit & (eps * n * loss <= 1e-3) & (size < HUGE[real_of(entries.dtype)]) & off
    if wrong.any():
        k = tuple(np.argwhere(wrong)[0].tolist())
        raise AssertionError(f"entries of the inverse of matrix {k}: {found[:, *k]}, not {wanted[:, *k]}")


def check_periodic(systems: Systems, sign: Array, logarithm: Array) -> None:
    """Determinants of small periodic systems, within what errors next to their largest entries may do."""
    *batch, n = systems.rows[1].shape
    if n > DENSE or sign.size * n * n > INVERTED or not sign.size:
        return
    kind = complex if any(v.dtype.kind == "c" for v in systems.rows[:3]) else float
    below, diagonal, above = (v.astype(kind) for v in bands(*systems.rows[:3], systems.keep, True, False))
    at = np.arange(n)
    whole = np.zeros((*batch, n, n), kind)
    whole[..., at, at] += diagonal
    whole[..., at, at - 1] += below
    whole[..., at, (at + 1) % n] += above
    with np.errstate(all="ignore"):
        unit, wanted = np.linalg.slogdet(whole)
        known = np.isfinite(wanted)
        inverse = np.linalg.inv(np.where(known[..., None, None], whole, np.eye(n)))
        eps = EPS[real_of(sign.dtype)]
        tolerance = 40 * eps * n * abs(whole).max((-1, -2)) * abs(inverse).max((-1, -2))
        off = ~(abs(logarithm - wanted) <= tolerance + 8 * eps * abs(wanted)) | ~(abs(sign - unit) <= tolerance)
    wrong = known & (tolerance <= 1e-3) & off
    if wrong.any():
        k = tuple(np.argwhere(wrong)[0].tolist())
        raise AssertionError(f"determinant {k}: {sign[k]}, {logarithm[k]}, not {unit[k]}, {wanted[k]}")
