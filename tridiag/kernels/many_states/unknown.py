"""Steps of a Kalman filter of which some states begin with an infinite variance, for one series after another.

Those of `tridiag.algorithms.kalman_diffuse`, which says what is computed, number by number: matrices lie row by row,
and columns of a covariance as rows.
"""

from __future__ import annotations

import math

import numpy as np

from tridiag.algorithms.kalman_diffuse import NOISE
from tridiag.algorithms.kalman_filter import LOG_TWO_PI
from tridiag.kernels.access.operands import bytes_of_real
from tridiag.kernels.jobs.words import unknown as U
from tridiag.kernels.many_states.columns import (
    are_all_0,
    clean,
    copied,
    eps_of,
    moved,
    orthogonal,
    take_columns,
    take_columns_in,
    without,
)
from tridiag.kernels.many_states.roots import inverse
from tridiag.kernels.many_states.steps import number, put_number
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import c_function, set_word, word
from tridiag.kernels.simd.records import RecordAt


@compiled
def place(job, zero, operand, s, each):
    """Where an operand of a series lies, which has so many numbers of each."""
    return job.pointers[operand] + s * each * bytes_of_real(zero, ())


@compiled
def columns_of(job):
    return job.most + job.states


@compiled
def scratch_of(job, s):
    """Scratch memory of the item of a series."""
    return job.pointers[U.SCRATCH] + s // job.share * job.room


@compiled
def used(zero, parts, weights, count, k):
    """How many columns have a weight; they are brought to the front."""
    found, width = 0, bytes_of_real(zero, ())
    for c in range(count):
        weight = number(zero, weights, c)
        if weight != 0:
            if found != c:
                put_number(zero, weights, found, weight)
                copied(zero, parts + c * k * width, k, parts + found * k * width)
            found += 1
    return found


@compiled
def begin(job, zero, s):
    """Before the first step: states whose variance is infinite are unknown, and their covariances unread."""
    k, q, scratch = job.states, job.unknown, scratch_of(job, s)
    width, columns = bytes_of_real(zero, ()), columns_of(job)
    P0, A = place(job, zero, U.P0, s, k * k), place(job, zero, U.A, s, k * q)
    copied(zero, place(job, zero, U.M0, s, k), k, place(job, zero, U.MEAN, s, k))
    for i in range(k):
        for j in range(k):
            known = number(zero, P0, i * k + i) != math.inf and number(zero, P0, j * k + j) != math.inf
            both = (number(zero, P0, i * k + j) + number(zero, P0, j * k + i)) / 2
            put_number(zero, scratch, i * k + j, both if known else 0.0)
    parts, weights = place(job, zero, U.PARTS, s, columns * k), place(job, zero, U.WEIGHTS, s, columns)
    take_columns(zero, scratch, k, parts, weights, scratch + k * k * width)
    set_word(job.pointers[U.COUNTS] + 8 * s, used(zero, parts, weights, k, k))
    told, told_weights = place(job, zero, U.TOLD, s, q * k), place(job, zero, U.TOLD_WEIGHTS, s, q)
    for j in range(q):
        put_number(zero, told_weights, j, 0.0)
        for i in range(k):
            put_number(zero, told, j * k + i, 0.0)
    source = place(job, zero, U.SOURCE, s, q * q)
    for j in range(q):  # A has in its rows which states may be unknown
        for m in range(q):
            put_number(zero, source, j * q + m, 0.0)
    row = 0
    for i in range(k):
        may = False
        for j in range(q):
            one = number(zero, A, i * q + j) != 0
            may = may or one
            if one and number(zero, P0, i * k + i) != math.inf:
                put_number(zero, A, i * q + j, 0.0)
        if may:
            for j in range(q):
                put_number(zero, source, row * q + j, number(zero, A, i * q + j))
            row += 1


@compiled
def is_known(job, zero, s):
    """Whether no direction is left of which nothing is known."""
    size = job.states * job.unknown
    return are_all_0(zero, place(job, zero, U.A, s, size), size)


@compiled
def predict(job, zero, s):
    """A step later; with more than ``most`` columns they are made as many as states."""
    k, q, columns, width = job.states, job.unknown, columns_of(job), bytes_of_real(zero, ())
    scratch, F = scratch_of(job, s), place(job, zero, U.F, s, k * k)
    parts, weights = place(job, zero, U.PARTS, s, columns * k), place(job, zero, U.WEIGHTS, s, columns)
    count = word(job.pointers[U.COUNTS] + 8 * s)
    moved(zero, F, k, parts, count, scratch)
    moved(zero, F, k, place(job, zero, U.TOLD, s, q * k), q, scratch)
    moved(zero, F, k, place(job, zero, U.MEAN, s, k), 1, scratch)
    copied(zero, place(job, zero, U.Q, s, k * k), k * k, scratch)
    more = parts + count * k * width
    take_columns(zero, scratch, k, more, weights + count * width, scratch + k * k * width)
    added = used(zero, more, weights + count * width, k, k)
    count += added
    if count > min(job.most, k + 7 * added):
        room = scratch + (k * k + k) * width
        orthogonal(zero, parts, weights, count, k, k, room, scratch, scratch + k * k * width)
        copied(zero, scratch, k * k, parts)
        copied(zero, scratch + k * k * width, k, weights)
        count = used(zero, parts, weights, k, k)
    set_word(job.pointers[U.COUNTS] + 8 * s, count)
    A = place(job, zero, U.A, s, k * q)
    copied(zero, A, k * q, scratch)
    for i in range(0 if is_known(job, zero, s) else k):
        for j in range(q):
            total, terms = 0.0, 0.0
            for m in range(k):
                term = number(zero, F, i * k + m) * number(zero, scratch, m * q + j)
                total, terms = total + term, terms + abs(term)
            put_number(zero, A, i * q + j, clean(zero, total, terms, k))


@compiled
def observe(job, zero, s):
    """All observations of the step that are not missing, made independent of each other, one after another."""
    k, p, width = job.states, job.observed, bytes_of_real(zero, ())
    loads = scratch_of(job, s)
    noises = loads + p * k * width
    values, least, rest = noises + p * p * width, noises + (p * p + p) * width, noises + (p * p + 3 * p) * width
    y, H, R = (place(job, zero, U.Y, s, p), place(job, zero, U.H, s, p * k), place(job, zero, U.R, s, p * p))
    for i in range(p):
        here = number(zero, y, i) == number(zero, y, i)
        put_number(zero, values, i, number(zero, y, i) if here else 0.0)
        for j in range(k):
            put_number(zero, loads, i * k + j, number(zero, H, i * k + j) if here else 0.0)
        for j in range(p):
            both = here and number(zero, y, j) == number(zero, y, j)
            put_number(zero, noises, i * p + j, number(zero, R, i * p + j) if both else 1.0 if i == j else 0.0)
        put_number(zero, least, i, NOISE * p * eps_of(zero) * number(zero, noises, i * p + i))
    deviance = 0.0
    for i in range(p):
        noise = number(zero, noises, i * p + i)
        sure = noise > number(zero, least, i)
        for r in range(i + 1, p):
            share = number(zero, noises, r * p + i) / noise if sure else 0.0
            for j in range(i + 1, p):
                x = number(zero, noises, r * p + j) - share * number(zero, noises, i * p + j)
                put_number(zero, noises, r * p + j, x)
            for j in range(k):
                x = number(zero, loads, r * k + j) - share * number(zero, loads, i * k + j)
                put_number(zero, loads, r * k + j, x)
            put_number(zero, values, r, number(zero, values, r) - share * number(zero, values, i))
        noise = 0.0 if noise < 0 else noise
        term = take_in(job, zero, s, loads + i * k * width, number(zero, values, i), noise, rest)
        if number(zero, y, i) == number(zero, y, i):
            deviance += term
    put_number(zero, job.pointers[U.DEVIANCE], s, deviance)


@compiled
def take_in(job, zero, s, load, value, noise, room):
    """A state once ``load @ x`` with a noise is known; how little that was expected."""
    k, q, columns, width = job.states, job.unknown, columns_of(job), bytes_of_real(zero, ())
    A, mean = place(job, zero, U.A, s, k * q), place(job, zero, U.MEAN, s, k)
    u, row = room, room + q * width
    reach, here, largest = 0.0, 0, -1.0
    for j in range(q):
        total, terms = 0.0, 0.0
        for i in range(k):
            term = number(zero, A, i * q + j) * number(zero, load, i)
            total, terms = total + term, terms + abs(term)
        total = clean(zero, total, terms, k)
        put_number(zero, u, j, total)
        reach += total * total
        if abs(total) > largest:
            here, largest = j, abs(total)
    sees = reach > 0
    for i in range(k):
        put_number(zero, row, i, 0.0)
    parts, weights = place(job, zero, U.PARTS, s, columns * k), place(job, zero, U.WEIGHTS, s, columns)
    told, told_weights = place(job, zero, U.TOLD, s, q * k), place(job, zero, U.TOLD_WEIGHTS, s, q)
    variance = take_columns_in(zero, parts, weights, word(job.pointers[U.COUNTS] + 8 * s), k, load, noise, row)
    variance = take_columns_in(zero, told, told_weights, q, k, load, variance, row)
    error = value
    for i in range(k):
        error -= number(zero, load, i) * number(zero, mean, i)
    if not sees:
        usable = variance if 0 < variance < math.inf else np.nan
        for i in range(k):
            put_number(zero, mean, i, number(zero, mean, i) + number(zero, row, i) / usable * error)
        return math.log(usable) + LOG_TWO_PI + error * error / usable
    length = math.sqrt(reach)
    inverted = length * inverse(variance)
    for i in range(k):
        total = 0.0
        for j in range(q):
            total += number(zero, A, i * q + j) * number(zero, u, j)
        total /= length
        put_number(zero, told, here * k + i, total - number(zero, row, i) * inverted)
        put_number(zero, mean, i, number(zero, mean, i) + total / length * error)
    put_number(zero, told_weights, here, variance / reach)
    turned = number(zero, u, here)
    put_number(zero, u, here, turned - length if turned < 0 else turned + length)
    without(zero, A, k, q, u, here)
    without(zero, place(job, zero, U.SOURCE, s, q * q), q, q, u, here)
    return math.log(reach) + LOG_TWO_PI


@compiled
def variances_to(job, zero, s, target, diagonal):
    """The covariance of what is known, or its diagonal alone."""
    k, q, columns = job.states, job.unknown, columns_of(job)
    parts, weights = place(job, zero, U.PARTS, s, columns * k), place(job, zero, U.WEIGHTS, s, columns)
    told, told_weights = place(job, zero, U.TOLD, s, q * k), place(job, zero, U.TOLD_WEIGHTS, s, q)
    count = word(job.pointers[U.COUNTS] + 8 * s)
    for i in range(k):
        for j in range(i if diagonal else 0, i + 1):
            total = 0.0
            for c in range(count):
                total += number(zero, parts, c * k + i) * number(zero, weights, c) * number(zero, parts, c * k + j)
            for c in range(q):
                total += number(zero, told, c * k + i) * number(zero, told_weights, c) * number(zero, told, c * k + j)
            if diagonal:
                put_number(zero, target, i, total)
            else:
                put_number(zero, target, i * k + j, total)
                put_number(zero, target, j * k + i, total)


@compiled
def tell(job, zero, s, infinite):
    """The covariance; ``infinite``: where a direction that nothing is known of enters."""
    k, q = job.states, job.unknown
    A, cov = place(job, zero, U.A, s, k * q), place(job, zero, U.COV, s, k * k)
    variances_to(job, zero, s, cov, False)
    if not infinite:
        return
    for i in range(k):
        for j in range(k):
            total, terms = 0.0, 0.0
            for m in range(q):
                term = number(zero, A, i * q + m) * number(zero, A, j * q + m)
                total, terms = total + term, terms + abs(term)
            total = clean(zero, total, terms, k)
            if total != 0 and total == total:
                put_number(zero, cov, i * k + j, math.inf if total > 0 else -math.inf)


@compiled
def is_settled(job, zero, s):
    """Whether the covariance of what is known would lose no digits as it stands: what is uncertain is of one size."""
    k, q, columns, width = job.states, job.unknown, columns_of(job), bytes_of_real(zero, ())
    count = word(job.pointers[U.COUNTS] + 8 * s)
    parts = scratch_of(job, s)
    weights = parts + (columns + q) * k * width
    scaled, own = weights + (columns + q) * width, weights + 2 * (columns + q) * width
    variances, lower = own + k * width, own + 2 * k * width
    copied(zero, place(job, zero, U.PARTS, s, columns * k), count * k, parts)
    copied(zero, place(job, zero, U.TOLD, s, q * k), q * k, parts + count * k * width)
    copied(zero, place(job, zero, U.WEIGHTS, s, columns), count, weights)
    copied(zero, place(job, zero, U.TOLD_WEIGHTS, s, q), q, weights + count * width)
    variances_to(job, zero, s, variances, True)
    orthogonal(zero, parts, weights, count + q, k, k, scaled, lower, own)
    share = eps_of(zero) ** (1 / 3)
    for i in range(k):
        weight, variance = number(zero, own, i), number(zero, variances, i)
        if not (weight <= NOISE * k * eps_of(zero) * variance or weight >= share * variance):
            return False
    return True


@compiled
def are_settled(job, zero, first, last, doubted):
    """Whether all of these series are; the one that was not before, ``doubted``, is asked first."""
    for n in range(last - first):
        s = first + (word(doubted) + n) % (last - first)
        if not (is_known(job, zero, s) and is_settled(job, zero, s)):
            set_word(doubted, s - first)
            return False
    return True


@compiled
def work(job, zero):
    """What is to be done, of all series."""
    to_do = job.pointers[U.TO_DO]
    what = word(to_do)
    for item in items(job):
        first, last = item * job.share, min(job.series, (item + 1) * job.share)
        found = what != U.BEGIN
        for s in range(first, last):
            if what == U.BEGIN:
                begin(job, zero, s)
            elif what == U.PREDICT or what == U.PREDICT_AND_ASK:
                predict(job, zero, s)
            elif what == U.OBSERVE:
                observe(job, zero, s)
                found = found and is_known(job, zero, s)
            else:
                tell(job, zero, s, what == U.TELL_ALL)
        if what == U.PREDICT_AND_ASK:
            found = are_settled(job, zero, first, last, to_do + 8 * (1 + item))
        set_word(job.pointers[U.FOUND] + 8 * item, 1 if found else 0)


task = c_function(work, "tridiag_filter_unknown", first=RecordAt(U.Unknown))


def build(dtype: str):
    """The C function void run(job, helpers) for a dtype."""
    return runner(np.zeros((), dtype)[()], task)
