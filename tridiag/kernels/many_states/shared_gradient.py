"""The derivatives of log-likelihoods of series that share a model: what is left of each, some vectors of them together.

What covariances contribute is found once, and a record of each step: `tridiag.kernels.many_states.records`, and behind
it the covariance of the updated state.
"""

from __future__ import annotations

from tridiag.kernels.access.operands import bytes_of_real, lanes_of
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.jobs.words.record import Word
from tridiag.kernels.kalman.series import bind_series
from tridiag.kernels.many_states.records import VECTORS, gather, size_of_record, step_of_first
from tridiag.kernels.many_states.rows import (
    Numbers,
    Rows,
    add_outer_to,
    add_product,
    add_scaled,
    clear,
    scale,
    subtract_product,
)
from tridiag.kernels.many_states.steps import number, put_number
from tridiag.kernels.runtime.workspace import Workspace, aligned, workspace
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.interrupts import stopping_at
from tridiag.kernels.simd.memory import word
from tridiag.kernels.simd.records import address_of, at
from tridiag.kernels.simd.vector import LINE

ROW = VECTORS * LINE  # the bytes of a row with a number of each series
ASKING = 64  # steps after which a thread asks whether it is to end


class Slopes(Workspace):
    """What a worker has: rows with a number of each series."""

    bindings = Word()  # where the operands of the series lie
    means, ahead = Word(), Word()  # a row for each state
    later, carried = Word(), Word()  # r of the step behind, and as of the updated state
    errors = Word()  # a row for each observation of a step; u, on the way back
    zeros = Word()
    of_F, of_H, of_Q, of_R = Word(), Word(), Word(), Word()  # sums over the steps, entry by entry
    kept = Word()  # of each step the updated mean, and the errors times the weights


ARRAYS, allocate, give_back = workspace(
    Slopes, "bindings", "means", "ahead", "later", "carried", "errors", "zeros", "of_F", "of_H", "of_Q", "of_R", "kept"
)


@compiled
def allocate_slopes(zero, job):
    k, p = job.states, job.observed
    bindings = aligned(8 * K.OPERANDS * VECTORS * lanes_of(zero, ()))
    sizes = ARRAYS(
        bindings=bindings, means=k * ROW, ahead=k * ROW, later=k * ROW, carried=k * ROW, errors=p * ROW, zeros=ROW,
        of_F=k * k * ROW, of_H=p * k * ROW, of_Q=k * k * ROW, of_R=p * p * ROW, kept=job.steps * (k + p) * ROW,
    )  # fmt: skip
    return allocate(sizes)


@compiled
def size_of_longer_record(zero, job):
    """In bytes, with the covariance."""
    return size_of_record(zero, job) + job.states * aligned(job.states * bytes_of_real(zero, ()))


class CommonSlopes(Workspace):
    """What series that share their model have in common of their derivatives, in memory of their job."""

    lost = Word()  # 1 where digits are, and nothing is in common, else 0
    records = Word()  # of all steps


COMMON, allocate_common, _ = workspace(CommonSlopes, "records")
common_slopes_at = at(CommonSlopes)


@compiled
def allocate_common_slopes(zero, job):
    """The job frees it."""
    return allocate_common(COMMON(records=job.steps * size_of_longer_record(zero, job)))


@compiled
def common_slopes_of(job):
    return common_slopes_at(aligned(job.owned))


@compiled
def slopes_of_series(zero, job, worker, first, vectors, records):
    """The derivatives of some vectors of series, from the records of all steps."""
    k, p, series = job.states, job.observed, vectors * lanes_of(zero, ())
    clear(zero, (worker.zeros, VECTORS))
    bind_series(job, worker.bindings, 8 * series, first, series)
    go_forwards(zero, job, worker, vectors, records)
    for matrix, count in ((worker.of_F, k * k), (worker.of_H, p * k), (worker.of_Q, k * k), (worker.of_R, p * p)):
        clear(zero, (matrix, count * VECTORS))
    clear(zero, (worker.later, k * VECTORS))
    go_backwards(zero, job, worker, vectors, records)
    for lane in range(series):
        write_lane(zero, job, worker, lane, word(worker.bindings + 8 * (K.OF_MODEL * series + lane)))


@compiled
def go_forwards(zero, job, worker, vectors, records):
    """What is kept of all steps."""
    k, p, size, series = job.states, job.observed, bytes_of_real(zero, ()), vectors * lanes_of(zero, ())
    states, noises, zeros = aligned(k * size), aligned(p * size), Rows(worker.zeros, 0)
    means, errors = Rows(worker.means, ROW), Rows(worker.errors, ROW)
    F, H = step_of_first(job, worker, K.F, 0, series), step_of_first(job, worker, K.H, 0, series)
    gather(zero, job, worker, K.M0, 0, series, k, worker.means)
    for t in range(job.steps):
        if stopping_at(t, ASKING):
            break
        record, kept = records + t * size_of_longer_record(zero, job), Rows(worker.kept + t * (k + p) * ROW, ROW)
        factors, weights = record + p * states, record + p * (states + noises)
        gather(zero, job, worker, K.Y, t, series, p, worker.errors)
        subtract_product(zero, errors, Numbers(H, k * size, size), means, errors, p, k, vectors, 0)
        for q in range(p):
            own = worker.errors + q * ROW
            for i in range(q + 1, p):
                add_scaled(zero, (worker.errors + i * ROW, own, factors + q * noises + i * size, vectors))
            scale(zero, (kept.address + (k + q) * ROW, own, weights + q * size, vectors))
        add_product(zero, kept, Numbers(record, size, states), errors, means, k, p, vectors, 0)
        if t + 1 < job.steps:
            add_product(zero, means, Numbers(F, k * size, size), kept, zeros, k, k, vectors, 0)


@compiled
def go_backwards(zero, job, worker, vectors, records):
    """The sums over all steps, and r as of the first one."""
    k, p, size, series = job.states, job.observed, bytes_of_real(zero, ()), vectors * lanes_of(zero, ())
    states, noises, zeros = aligned(k * size), aligned(p * size), Rows(worker.zeros, 0)
    errors, smoothed = Rows(worker.errors, ROW), Rows(worker.ahead, ROW)
    F, H = step_of_first(job, worker, K.F, 0, series), step_of_first(job, worker, K.H, 0, series)
    for t in range(job.steps - 1, -1, -1):
        if stopping_at(t, ASKING):
            break
        record, kept = records + t * size_of_longer_record(zero, job), Rows(worker.kept + t * (k + p) * ROW, ROW)
        factors, cov = record + p * states, record + size_of_record(zero, job)
        mean = kept.address
        if t + 1 < job.steps:
            later, carried = Rows(worker.later, ROW), Rows(worker.carried, ROW)
            add_outer_to(zero, (worker.of_Q, worker.later, worker.later, k, k, vectors, ROW))
            add_product(zero, carried, Numbers(F, size, k * size), later, zeros, k, k, vectors, 0)
            add_product(zero, smoothed, Numbers(cov, states, size), carried, kept, k, k, vectors, 0)
            mean = smoothed.address
            add_outer_to(zero, (worker.of_F, worker.later, mean, k, k, vectors, ROW))
            worker.later, worker.carried = worker.carried, worker.later
        later, scaled = Rows(worker.later, ROW), Rows(kept.address + k * ROW, ROW)
        subtract_product(zero, errors, Numbers(record, states, size), later, scaled, p, k, vectors, 0)
        for q in range(p - 1, -1, -1):
            for i in range(q + 1, p):
                other = worker.errors + i * ROW
                add_scaled(zero, (worker.errors + q * ROW, other, factors + q * noises + i * size, vectors))
        add_outer_to(zero, (worker.of_H, worker.errors, mean, p, k, vectors, ROW))
        add_outer_to(zero, (worker.of_R, worker.errors, worker.errors, p, p, vectors, ROW))
        add_product(zero, later, Numbers(H, size, k * size), errors, later, k, p, vectors, 0)
        put_of_y(zero, job, worker, t, series)


@compiled
def put_of_y(zero, job, worker, t, series):
    """The derivative in y, where it is wanted."""
    if job.pointers[K.OF_Y] != 0:
        step = t * word(address_of(job) + 8 * (K.TABLE + K.OF_Y))
        for lane in range(series):
            place = word(worker.bindings + 8 * (K.OF_Y * series + lane)) + step
            for j in range(job.observed):
                put_number(zero, place, j, -number(zero, worker.errors + j * ROW, lane))


@compiled
def write_entries(zero, target, source, lane, count, factor):
    """So many numbers of a series, times a factor; returns where the next ones go."""
    for e in range(count):
        put_number(zero, target, e, factor * number(zero, source + e * ROW, lane))
    return target + count * bytes_of_real(zero, ())


@compiled
def write_lane(zero, job, worker, lane, target):
    """All derivatives of a series, in the order of the parameters."""
    k, p = job.states, job.observed
    target = write_entries(zero, target, worker.of_F, lane, k * k, 1.0)
    target = write_entries(zero, target, worker.of_H, lane, p * k, 1.0)
    target = write_entries(zero, target, worker.of_Q, lane, k * k, 0.5)
    target = write_entries(zero, target, worker.of_R, lane, p * p, 0.5)
    r = target
    target = write_entries(zero, target, worker.later, lane, k, 1.0)
    for i in range(k):
        for j in range(k):
            put_number(zero, target, i * k + j, 0.5 * number(zero, r, i) * number(zero, r, j))
