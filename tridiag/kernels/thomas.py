"""The driver of the tile kernels: claims items of a job, loads tiles of systems, solves them, stores the solutions.

One item is a tile of LANES matrices (or one shared matrix) and a chunk of its right sides. A tile is loaded once,
eliminated plainly, and certified; its systems without certificate are eliminated again with pivoting, while the others
are substituted. Scratch per thread: about 4 (plain) to 16 (pivoted) arrays (n, LANES).
"""

from __future__ import annotations

import numpy as np
from numba import carray, cfunc, njit, types

from tridiag.elimination import CANCELLATION, GROWTH, LEAVE_BELOW, REFINE_ABOVE, REFINE_STEPS, VANISHED
from tridiag.kernels import job as J
from tridiag.kernels import source_hash
from tridiag.kernels.load import (
    X_,
    field,
    load_mask,
    load_matrix,
    load_right_side,
    right_side_lanes,
    store_rows,
)
from tridiag.kernels.memory import (
    c_function,
    fetch_add,
    finish,
    pointer,
    set_half_word,
    start,
    store,
)
from tridiag.kernels.tile import (
    BAR_,
    FLOOR_,
    GROWTH_,
    LEAVE_,
    ONE_,
    OPTIONS,
    ROUNDING_,
    TINY_,
    VANISHED_,
    eliminate,
    eliminate_cyclic,
    eliminate_pivoted,
    quotient,
    solve_refined,
    substitute,
    substitute_transposed,
)

EASY, HARD, DEAD = 0, 1, 2  # certified; to be pivoted; plain elimination met a zero pivot


@njit(**OPTIONS)
def machine(limits):
    """The constants of `tridiag.elimination` in the real type of ``limits``."""
    single = limits.itemsize == 4
    eps, tiny = 2.0**-23 if single else 2.0**-52, 2.0**-126 if single else 2.0**-1022
    limits[GROWTH_], limits[ROUNDING_], limits[TINY_] = GROWTH, CANCELLATION * eps, tiny
    limits[BAR_], limits[LEAVE_], limits[VANISHED_] = REFINE_ABOVE * eps, LEAVE_BELOW * eps, VANISHED * eps
    limits[FLOOR_], limits[ONE_] = 4 * tiny / eps, 1


@njit(**OPTIONS)
def fill(T, w, value):
    for i in range(T.shape[0]):
        T[i, w] = value


@njit(**OPTIONS)
def none_skipped(width):
    skip = np.empty(width, np.bool_)
    for w in range(width):
        skip[w] = False
    return skip


@njit(**OPTIONS)
def singleton(value):
    return np.array([value])


@njit(**OPTIONS)
def solve_hard(job, systems, lanes, k0, k1, P, U, S, mask, limits, status, zero):
    """The systems of a tile that are not certified (all, with pivoting=True): pivoted, and refined for "auto"."""
    A, B, C, X, D, Y, R = P[0], P[1], P[2], P[3], P[4], P[5], P[6]
    width = B.shape[1]
    offsets, x_offsets = np.empty(width, np.int64), np.empty(width, np.int64)
    error, trial = np.empty(width, limits.dtype), np.empty(width, limits.dtype)
    skip = none_skipped(width)
    flags = field(job, J.FLAGS)
    periodic, masked, step = flags & J.PERIODIC != 0, flags & J.MASKED != 0, 1 - field(job, J.SHARED)
    refinements = REFINE_STEPS if field(job, J.PROMISE) == J.AUTO else 0
    load_matrix(P, mask, job, systems, offsets, lanes, zero)
    if periodic:
        eliminate_cyclic(A, B, C, U, S, lanes, status, zero)
    else:
        eliminate_pivoted(A, B, C, U, S, mask, masked, lanes, status, zero)
    if flags & J.DETERMINANT:
        determinants(job, systems, U, S, lanes, periodic, status, limits[ONE_], zero)
    k = k0
    while k < k1:
        count = 1 if step else min(width, k1 - k)
        used = right_side_lanes(job, systems, lanes, k, step, count, offsets, x_offsets)
        load_right_side(D, job, offsets, used, mask, step, zero)
        solve_refined(
            A, B, C, U, S, X, D, Y, R, mask, masked, used, step, periodic, refinements, limits, error, trial, zero
        )
        for w in range(used):
            if status[w * step] != 0:
                fill(X, w, np.nan)
        store_rows(X, field(job, J.POINTERS + X_), x_offsets, used, field(job, J.STRIDES + X_), skip, zero)
        k += count


@njit(**OPTIONS)
def determinants(job, systems, U, S, lanes, periodic, status, one, zero):
    """Sign and log |det| of every lane, into x and the logarithms."""
    n = U.shape[1]
    for w in range(lanes):
        sign, total = zero + one, zero.real
        for i in range(n):
            pivot = U[0, i, w]
            total += np.log(abs(pivot))
            sign *= quotient(pivot, zero + abs(pivot)) if pivot != 0 else pivot
            flips = (S[i, w] & 1) + (S[i, w] >> 1)
            if flips == 1:
                sign = -sign
        if periodic and n % 2 == 0:
            sign = -sign
        logarithm = singleton(total)
        if status[w] != 0:  # after a zero pivot the rest is NaN
            sign, total = zero, np.log(zero.real)
        store(field(job, J.POINTERS + X_) + systems[w] * types.int64(U.itemsize), sign)
        store(field(job, J.LOGARITHM) + systems[w] * types.int64(logarithm.itemsize), total)


@njit(**OPTIONS)
def tell_status(job, systems, lanes, status):
    address = field(job, J.STATUS)
    if address != 0:
        for w in range(lanes):
            set_half_word(address + 4 * systems[w], types.int32(status[w]))


@njit(**OPTIONS)
def solve_easy(job, systems, lanes, k0, k1, A, B, C, Y, mask, kind, zero):
    """Substitution in the lanes whose plain elimination holds; a plain elimination that broke down gives NaN."""
    width = Y.shape[1]
    offsets, x_offsets = np.empty(width, np.int64), np.empty(width, np.int64)
    flags = field(job, J.FLAGS)
    masked, step = flags & J.MASKED != 0, 1 - field(job, J.SHARED)
    backwards = flags & J.FACTORED != 0 and flags & J.TRANSPOSE != 0
    skip = none_skipped(width)
    if step:
        for w in range(lanes):
            skip[w] = kind[w] == HARD
    k = k0
    while k < k1:
        count = 1 if step else min(width, k1 - k)
        used = right_side_lanes(job, systems, lanes, k, step, count, offsets, x_offsets)
        load_right_side(Y, job, offsets, used, mask, step, zero)
        if backwards:
            substitute_transposed(A, B, C, Y, mask, masked, used, step, zero)
        else:
            substitute(A, B, C, Y, mask, masked, used, step, zero)
        for w in range(used):
            if kind[w * step] == DEAD:
                fill(Y, w, np.nan)
        store_rows(Y, field(job, J.POINTERS + X_), x_offsets, used, field(job, J.STRIDES + X_), skip, zero)
        k += count


@njit(**OPTIONS)
def prepare_easy(job, tile, systems, lanes, M, mask, limits, kind, status, zero):
    """Eliminated A, B, C of a tile (or those of a factorization), and the kind of each lane."""
    T = M
    flags = field(job, J.FLAGS)
    offsets, good = np.empty(M.shape[2], np.int64), np.empty(M.shape[2], np.bool_)
    if flags & (J.FACTORED | J.FACTORING):
        T = carray(pointer(field(job, J.FACTORS) + tile * types.int64(M.size * M.itemsize), zero), M.shape)
    A, B, C = T[0], T[1], T[2]
    if flags & J.FACTORED:
        kinds = carray(pointer(field(job, J.CERTIFIED) + systems[0], types.uint8(0)), lanes)
        for w in range(lanes):
            kind[w] = kinds[w]
        load_mask(mask, job, systems, offsets, lanes)
        return A, B, C
    load_matrix(T, mask, job, systems, offsets, lanes, zero)
    eliminate(A, B, C, mask, flags & J.MASKED != 0, lanes, limits, good, status, zero)
    auto = field(job, J.PROMISE) == J.AUTO
    for w in range(lanes):
        kind[w] = (EASY if good[w] else HARD) if auto else (EASY if status[w] == 0 else DEAD)
    if flags & J.FACTORING:
        kinds = carray(pointer(field(job, J.CERTIFIED) + systems[0], types.uint8(0)), lanes)
        for w in range(lanes):
            kinds[w] = kind[w]
    return A, B, C


@njit(**OPTIONS)
def work(job, zero):
    """Claim items until none is left; called by every thread of a job."""
    n, width, promise = field(job, J.ROWS), field(job, J.LANES), field(job, J.PROMISE)
    matrices, right_sides, chunks = field(job, J.MATRICES), field(job, J.RIGHT_SIDES), field(job, J.CHUNKS)
    only_hard = promise == J.PIVOTED or field(job, J.FLAGS) & J.PERIODIC != 0
    columns = 1 if field(job, J.SHARED) else width
    seed, limits = singleton(zero), np.empty(8, singleton(zero.real).dtype)
    machine(limits)
    hard_rows, easy_rows = 0 if promise == J.PLAIN and not only_hard else n, 0 if only_hard else n
    P, U = np.empty((7, hard_rows, width), seed.dtype), np.empty((7, hard_rows, columns), seed.dtype)
    M, Y = np.empty((3, easy_rows, columns), seed.dtype), np.empty((easy_rows, width), seed.dtype)
    S, mask, hard_mask = (
        np.empty((hard_rows, columns), np.uint8),
        np.empty((n, columns), np.uint8),
        np.empty((n, columns), np.uint8),
    )
    kind, status = np.empty(columns, np.uint8), np.empty(columns, np.int64)
    systems, chosen = np.empty(columns, np.int64), np.empty(columns, np.int64)
    while True:
        item = fetch_add(job, 1)
        if item >= field(job, J.ITEMS):
            return
        tile, chunk = item // chunks, item % chunks
        lanes = min(columns, matrices - tile * columns)
        k0, k1 = right_sides * chunk // chunks, right_sides * (chunk + 1) // chunks
        for w in range(lanes):
            systems[w], kind[w], status[w] = tile * columns + w, HARD, 0
        A, B, C = M[0], M[1], M[2]
        if not only_hard:
            A, B, C = prepare_easy(job, tile, systems, lanes, M, mask, limits, kind, status, zero)
        if chunk == 0:
            tell_status(job, systems, lanes, status)
        count = 0
        for w in range(lanes):
            if kind[w] == HARD:
                chosen[count] = systems[w]
                count += 1
        if count > 0:
            solve_hard(job, chosen, count, k0, k1, P, U, S, hard_mask, limits, status, zero)
            if chunk == 0:
                tell_status(job, chosen, count, status)
        if count < lanes:
            solve_easy(job, systems, lanes, k0, k1, A, B, C, Y, mask, kind, zero)


def _task(job, zero):
    work(job, zero)


task = c_function(_task, "tridiag_work")


def build(dtype: str):
    """The C function void run(job, helpers) for a dtype, compiled or read from Numba's disk cache."""
    zero, salt = np.zeros((), dtype)[()], source_hash()

    def run(job, helpers):
        if salt == 0:  # closed over, so that an edited kernel is never taken from the cache
            return
        handles = start(task(zero), job, helpers)
        work(job, zero)
        finish(handles)

    run.__qualname__ = run.__name__ = f"run_{dtype}"
    signature = types.void(types.int64, types.int64)
    try:
        return cfunc(signature, cache=True, error_model="numpy")(run)
    except RuntimeError:  # nowhere to keep a cache: compile every time
        return cfunc(signature, error_model="numpy")(run)
