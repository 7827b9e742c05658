"""What the steps of all series of a model have in common, and the rest of each series: several vectors of them.

A record of a step has the gains of its observations, a row of states each; the factors that make errors independent,
as they are added; and the weights.
"""

from __future__ import annotations

from typing import Any

from tridiag.kernels.access.operands import addresses, bytes_of_real, lanes_of
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.jobs.words.record import Word
from tridiag.kernels.kalman.series import bind_series, put
from tridiag.kernels.many_states.profiles import ROW, Profile, put_profile, put_whole_profile
from tridiag.kernels.many_states.rows import (
    Numbers,
    Rows,
    add_product_within,
    clear,
    each,
    library,
    pack,
)
from tridiag.kernels.many_states.steps import factor_of, number, put_number, stride
from tridiag.kernels.runtime.workspace import Workspace, aligned, workspace
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import word
from tridiag.kernels.simd.records import address_of
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

VECTORS = K.TOGETHER


@compiled
def size_of_record(zero, job):
    """In bytes."""
    k, p, size = job.states, job.observed, bytes_of_real(zero, ())
    return p * aligned(k * size) + (p + 1) * aligned(p * size)


@compiled
def put_record(zero, job, worker, record):
    """A step, from gains and factors; returns where the next one goes."""
    p, row, noises = job.observed, worker.row, worker.noises
    factors, weights = record + p * row, record + p * (row + noises)
    pack(zero, (record, row, worker.gains, row, p, row // bytes_of_real(zero, ())))
    for q in range(p):
        put_number(zero, weights, q, number(zero, worker.weights, q))
        for i in range(q + 1, p):
            put_number(zero, factors + q * noises, i, -factor_of(zero, worker, q, i))
    return record + size_of_record(zero, job)


# ------------------------------------------------------------------------------------------------------- the rest


class Means(Workspace):
    """What a worker has for the means of some vectors of series: rows with a number of each."""

    bindings = Word()  # where the operands of the series lie
    means, ahead = Word(), Word()  # a row for each state
    errors = Word()  # a row for each observation of a step
    quadratic, zeros = Word(), Word()
    profile = Word()  # of F


ARRAYS, allocate, give_back = workspace(Means, "bindings", "means", "ahead", "errors", "quadratic", "zeros", "profile")


@compiled
def allocate_means(zero, job):
    row, k, p = VECTORS * LINE, job.states, job.observed
    bindings = aligned(8 * K.OPERANDS * VECTORS * lanes_of(zero, ()))
    return allocate(ARRAYS(
        bindings=bindings, means=k * row, ahead=k * row, errors=p * row, quadratic=row, zeros=row,
        profile=aligned(k * ROW),
    ))  # fmt: skip


def gather_rows(code: Code, table: Value, step: Value, target: Value, rows: Value, vectors: Value) -> None:
    """So many numbers side by side, ``step`` bytes behind the address of each series: a row of all series each."""

    def one(j: Value, v: Value) -> None:
        row = code.undefined(code.vector)
        for lane, address in enumerate(addresses(code, table + v * (8 * code.lanes))):
            row = code.insert(row, code.load_as(code.real, address + step + j * code.size_of_real), lane)
        code.store(target + j * (VECTORS * LINE) + v * LINE, row)

    each(code, 0, vectors, lambda v: each(code, 0, rows, lambda j: one(j, v)))


def take_in(code: Code, *given: Value) -> None:
    """Means and the sums of squares once the observations of a step are known; of ``errors``, these are taken off.

    Of all vectors that there may be, whether there are series in them or not.
    """
    means, errors, quadratic, H, record, states, noises, k, p = given
    row, size = VECTORS * LINE, code.size_of_real
    factors, weights = record + p * states, record + p * (states + noises)

    def loads(at: Value) -> tuple[Value, ...]:
        return tuple(code.load(at + v * LINE) for v in range(VECTORS))

    def stores(at: Value, values: Any) -> None:
        for v, value in enumerate(values):
            code.store(at + v * LINE, value)

    def error(q: Value) -> None:
        own, load = errors + q * row, H + q * (k * size)

        def less(sums: Any, j: Value) -> Any:
            factor = code.spread(load + j * size)
            return tuple(x - factor * mean for x, mean in zip(sums, loads(means + j * row), strict=True))

        def pair(i: Value, sums: Any) -> Any:  # two sums at a time: one would wait for itself
            return less(sums[0], 2 * i), less(sums[1], 2 * i + 1)

        first, second = code.fori(0, k / 2, pair, (loads(own), (code.zero(),) * VECTORS))
        first = code.fori(k / 2 * 2, k, lambda j, sums: less(sums, j), first)
        stores(own, (x + y for x, y in zip(first, second, strict=True)))

    def separate(q: Value) -> None:
        own, weight = loads(errors + q * row), code.spread(weights + q * size)
        stores(quadratic, (x + weight * y * y for x, y in zip(loads(quadratic), own, strict=True)))

        def below(i: Value) -> None:
            factor, at = code.spread(factors + q * noises + i * size), errors + i * row
            stores(at, (x + factor * y for x, y in zip(loads(at), own, strict=True)))

        each(code, q + 1, p, below)

    def update(j: Value) -> None:
        def term(q: Value, sums: Any) -> Any:
            gain = code.spread(record + q * states + j * size)
            return tuple(x + gain * y for x, y in zip(sums, loads(errors + q * row), strict=True))

        stores(means + j * row, code.fori(0, p, term, loads(means + j * row)))

    each(code, 0, p, error)
    each(code, 0, p, separate)
    each(code, 0, k, update)


gathered, taken_in = library.add("gather_rows", gather_rows), library.add("take_in", take_in)


@compiled
def gather(zero, job, worker, operand, t, series, rows, target):
    """The first numbers of step t of an operand: a row of all series each."""
    step = t * word(address_of(job) + 8 * (K.TABLE + operand))
    gathered(zero, (worker.bindings + 8 * operand * series, step, target, rows, series // lanes_of(zero, ())))


@compiled
def move_means(zero, job, worker, matrix, vectors):
    """A matrix times all means; its profile is that of the worker."""
    k, size, row = job.states, bytes_of_real(zero, ()), VECTORS * LINE
    means, ahead, profile = Rows(worker.means, row), Rows(worker.ahead, row), Profile(worker.profile, ROW)
    left, zeros = Numbers(matrix, k * size, size), Rows(worker.zeros, 0)
    add_product_within(zero, ahead, left, means, zeros, profile, k, k, vectors)
    worker.means, worker.ahead = worker.ahead, worker.means


@compiled
def begin_means(zero, job, worker, common, series, vectors):
    """The means that series begin with, in the basis of the model that they have in common; nothing summed."""
    k, size = job.states, bytes_of_real(zero, ())
    clear(zero, (worker.zeros, VECTORS))
    clear(zero, (worker.quadratic, VECTORS))
    gather(zero, job, worker, K.M0, 0, series, k, worker.means)
    put_whole_profile(worker.profile, k)
    if common.moved != 0:
        move_means(zero, job, worker, common.basis, vectors)
    F, _ = model_of_step(job, worker, common, 0, series)
    if stride(job, K.F) == 0:
        put_profile(zero, worker.profile, F, k * size, k)


@compiled
def means_of_series(zero, job, worker, first, vectors, common):
    """The log-likelihoods of some vectors of series, from what they have in common."""
    k, p, size = job.states, job.observed, bytes_of_real(zero, ())
    states, noises, series = aligned(k * size), aligned(p * size), vectors * lanes_of(zero, ())
    bind_series(job, worker.bindings, 8 * series, first, series)
    begin_means(zero, job, worker, common, series, vectors)
    for t in range(job.steps):
        record = common.records + t * size_of_record(zero, job)
        F, H = model_of_step(job, worker, common, t, series)
        gather(zero, job, worker, K.Y, t, series, p, worker.errors)
        of_step = H, record, states, noises, k, p
        taken_in(zero, (worker.means, worker.errors, worker.quadratic, *of_step))
        if t + 1 < job.steps:
            move_means(zero, job, worker, F, vectors)
    logarithms = number(zero, common.logarithms, 0)
    for lane in range(series):
        put(zero, job, first + lane, -0.5 * (number(zero, worker.quadratic, lane) + logarithms))


@compiled
def step_of_first(job, worker, operand, t, series):
    """The address of step t of an operand that all series share."""
    return word(worker.bindings + 8 * operand * series) + t * word(address_of(job) + 8 * (K.TABLE + operand))


@compiled
def model_of_step(job, worker, common, t, series):
    """F and H of a step, in the basis of what series have in common."""
    if common.moved != 0:
        return common.F, common.H
    return step_of_first(job, worker, K.F, t, series), step_of_first(job, worker, K.H, t, series)
