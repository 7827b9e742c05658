"""Sign and logarithm of determinants: `continuants`, and where these are not certain the pivots of elimination.

Where that loses digits to the range of numbers, they are `scaled_minors`.
"""

from __future__ import annotations

import numpy as np
from numba import cfunc, types
from numba.extending import overload

from tridiag.kernels.access.operands import (
    bytes_of_real,
    bytes_of_row,
    lanes_of,
    parts_of,
)
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.jobs.words.systems import OPERANDS, X_, Systems
from tridiag.kernels.runtime.threads import beginning, job_at, task_runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.simd.compiled import OPTIONS, compiled
from tridiag.kernels.simd.functions import definition
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import c_function, call, load, store, variable, word
from tridiag.kernels.simd.records import RecordAt, address_of
from tridiag.kernels.simd.scalars import entry, turn, unit
from tridiag.kernels.thomas.bands import views_of_block
from tridiag.kernels.thomas.bind import advance, bind_matrices, mask_view, read_mask
from tridiag.kernels.thomas.continuants import BEGIN_MINORS, CERTAIN, CLOSE_MINORS, DOUBTFUL, GO_ON, tell_short
from tridiag.kernels.thomas.pivot_products import (
    BEGIN_ONE,
    BEGIN_PRODUCT,
    CLOSE_ONE,
    CLOSE_PRODUCT,
    CYCLIC_PRODUCT,
    EXPONENTS,
    LOST,
    MULTIPLY_ONE,
    MULTIPLY_PIVOTS,
    PRODUCT,
    WORDS,
)
from tridiag.kernels.thomas.scaled_minors import (
    BEGIN_SCALED,
    CLOSE_CYCLIC,
    CLOSE_SCALED,
    CYCLIC_LOST,
    GO_ON_SCALED,
    ROOM_OF_MINORS,
)
from tridiag.kernels.thomas.workspace import BLOCK, allocate_groups, free_workspace

JOB = RecordAt(Systems)
# log 2 in two parts, the first of which times any exponent is exact
LOG_2, REST_OF_LOG_2 = 0.693147180369123816490, 1.90821492927058770002e-10


@compiled
def work_determinants(job, zero):
    """Claim items until none is left; called by every thread of a job."""
    worker = allocate_groups(zero, job, 1, ROOM_OF_MINORS, False)
    if address_of(worker) == 0:
        return
    lanes, matrices, tiles = job.lanes, job.matrices, job.tiles
    for item in items(job):
        begin = item * tiles * lanes
        end, bound = min(matrices, begin + tiles * lanes), variable(-1)
        told, whole = tell_short(zero, job, worker, begin, end)
        for first in range(begin + told if whole else begin, end, lanes):
            used = min(lanes, matrices - first)
            left = doubtful(zero, job, first) if first < begin + told else (1 << used) - 1
            if left == 0:
                continue
            if bound >= 0 and first == bound + lanes and used == lanes_of(zero, ()) and job.matrix_axes == 1:
                advance(zero, job, worker, J.AXES, 0, OPERANDS, lanes_of(zero, ()))
                read_mask(zero, job, worker)
            else:
                bind_matrices(zero, job, worker, first, used)
            bound = first
            determinants(zero, job, worker, first, used, left, first >= begin + told)
    free_workspace(worker)


@compiled
def doubtful(zero, job, first):
    """The lanes of a group whose sign says that it is not certain."""
    found = 0
    for lane in range(lanes_of(zero, ())):
        sign = load(job.pointers[X_] + (first + lane) * bytes_of_real(zero, ()), zero.real)
        found |= types.int64(sign == DOUBTFUL) << lane
    return found


task = c_function(work_determinants, "tridiag_determinants", first=JOB)


def build(dtype: str):
    """The C function void run(job, helpers) for a dtype; what is certain is told again where it is not all there is."""
    zero = np.zeros((), dtype)[()]
    define = definition(CERTAIN, task)

    def run(job, helpers):
        define(zero)
        if call(CERTAIN(zero), (job,)) == 0:
            call(beginning(zero), (job, helpers))
            job_at(job).task = task(zero)
            call(task_runner(zero), (job,))
            call(CERTAIN(zero), (job,))

    return cfunc(types.void(types.int64, types.int64), error_model="numpy")(run)


@compiled
def determinants(zero, job, worker, first, used, every, untried):
    """Sign and log |det| of ``every`` lane of some of a bound group, into x and the logarithms; no row is kept."""
    untried = untried and job.abreast == 0 and parts_of(zero, ()) == 1
    certain = certain_lanes(zero, job, worker, every) if untried else 0
    if certain != 0:
        store_determinants(zero, job, worker.kept, first, certain, 0)
    if certain != every:
        singular = multiply_pivots(zero, job, worker, used == 1)
        store_determinants(zero, job, worker.kept, first, every & ~certain, singular)
        lost = every & ~certain & lanes_at(zero, worker.kept, LOST)
        if lost != 0:
            singular = scaled_minors(zero, job, worker)
            store_determinants(zero, job, worker.kept, first, lost & lanes_at(zero, worker.kept, 0), singular)


@compiled
def lanes_at(zero, state, place):
    """Those that a word behind a product or minors tells."""
    return word(state + WORDS * bytes_of_row(zero, ()) + place)


@compiled
def words_of_block(zero, job, worker, i0):
    """What a sweep over rows i0 <= i < i0 + BLOCK of a group takes: their view, what it goes on with, how many."""
    i1 = min(i0 + BLOCK, worker.high)
    a, a_step, b, b_step, c, c_step, _, _ = views_of_block(zero, job, worker, i0, i1, 3)
    mask, mask_step = mask_view(zero, worker, i0)
    return a, a_step, b, b_step, c, c_step, mask, mask_step, worker.bindings, i0, worker.kept, i1 - i0


@compiled
def scaled_minors(zero, job, worker):
    """The determinants of a bound group, and which are 0."""
    state = worker.kept
    BEGIN_SCALED(zero, (state,))
    for i0 in range(worker.low, worker.high, BLOCK):
        if stopping_at(i0 // BLOCK, 64):
            break
        GO_ON_SCALED(zero, words_of_block(zero, job, worker, i0))
    return CLOSE_SCALED(zero, (state,))


@compiled
def certain_lanes(zero, job, worker, every):
    """Those of a bound group that are certain without elimination."""
    state, certain = worker.kept, every
    BEGIN_MINORS(zero, (state,))
    for i0 in range(worker.low, worker.high, BLOCK):
        if certain == 0 or stopping_at(i0 // BLOCK, 64):
            return types.int64(0)
        certain = every & GO_ON(zero, words_of_block(zero, job, worker, i0))
    CLOSE_MINORS(zero, (state,))
    return certain


@compiled
def multiply_pivots(zero, job, worker, alone):
    """The determinants of a bound group from pivots, and which lanes met one that is zero."""
    state = worker.kept
    if alone:
        BEGIN_ONE(zero, (state,))
    else:
        BEGIN_PRODUCT(zero, (state,))
    for i0 in range(worker.low, worker.high, BLOCK):
        if stopping_at(i0 // BLOCK, 64):
            break
        words = words_of_block(zero, job, worker, i0)
        if alone:
            MULTIPLY_ONE(zero, words)
        else:
            MULTIPLY_PIVOTS(zero, words)
    return CLOSE_ONE(zero, (state,)) if alone else CLOSE_PRODUCT(zero, (state,))


@compiled
def store_determinants(zero, job, state, first, lanes, singular):
    """Those of some lanes; of complex numbers the logarithms and directions are found here."""
    row, side = bytes_of_row(zero, ()), bytes_of_real(zero, ())
    product, signs = state + PRODUCT * row, job.pointers[X_] + first * side * parts_of(zero, ())
    for lane in range(lanes_of(zero, ())):
        if lanes >> lane & 1 == 0:
            continue
        sign = entry(product + lane * side, zero)
        if parts_of(zero, ()) == 1:
            total = load(state + lane * side, zero.real)
        else:
            size, exponent = np.float64(abs(sign)), word(state + EXPONENTS * row + 8 * lane)
            total = rounded(np.log(size) + (exponent * LOG_2 + exponent * REST_OF_LOG_2), zero)
            sign = turn(unit(zero), sign)
            if singular >> lane & 1:
                sign, total = zero, rounded(-np.inf, zero)
        store(signs + lane * side * parts_of(zero, ()), sign)
        store(job.logarithm + (first + lane) * side, total)


def rounded(x, zero):
    """A number in the precision of ``zero``."""


@overload(rounded, jit_options=OPTIONS)
def _rounded(x, zero):
    make = np.dtype(str(getattr(zero, "underlying_float", zero))).type
    return lambda x, zero: make(x)


@compiled
def tell_determinants(zero, job, worker, first, used):
    """Those of a group of cyclic matrices that is eliminated."""
    state, every, tile = worker.kept, (1 << used) - 1, (worker.tile, job.rows)
    singular = CYCLIC_PRODUCT(zero, (*tile, worker.swaps, state))
    lost = every & (CYCLIC_LOST(zero, tile) | lanes_at(zero, state, LOST))
    store_determinants(zero, job, state, first, every, singular)
    if lost != 0:
        singular = CLOSE_CYCLIC(zero, (*tile, state))
        store_determinants(zero, job, state, first, lost & lanes_at(zero, state, 0), singular)
