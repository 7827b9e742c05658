"""The steps of `tridiag.algorithms.kalman_filter` for a group of series: covariances as they stand."""

from __future__ import annotations

from typing import Any

from numba import njit

from tridiag.kernels.access.operands import addresses, lanes_of
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.kalman.loops import NEARLY
from tridiag.kernels.many_states.rows import each
from tridiag.kernels.simd.memory import word
from tridiag.kernels.simd.records import At, address_of
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, OPTIONS, Code
from tridiag.kernels.states_in_lanes.matrices import (
    Matrix,
    add_product,
    add_symmetric,
    apply,
    clear,
    gather,
    library,
    mirror,
    pick_out,
    put_ones,
    scatter,
    spread_out,
    subtract_symmetric,
)
from tridiag.kernels.states_in_lanes.workspace import COUNT, EXPONENT, LOSS, MANTISSA, QUADRATIC, SUMS

# ------------------------------------------------------------------------------------------------------- the model


@njit(**OPTIONS)
def stride(job, operand):
    """The bytes from step to step of an operand, 0 where it does not change."""
    return word(address_of(job) + 8 * (K.TABLE + operand))


@njit(**OPTIONS)
def table(zero, worker, operand):
    """Where the addresses of an operand are."""
    return worker.bindings + operand * 8 * lanes_of(zero, ())


@njit(**OPTIONS)
def load(zero, job, worker, operand, t, target, count):
    """The first entries of step t of an operand, where they are others than those of the step before."""
    step = stride(job, operand)
    if t == 0 or step != 0:
        gather(zero, (table(zero, worker, operand), t * step, target, count))


@njit(**OPTIONS)
def load_motion(zero, job, worker, t):
    """F and Q of a step."""
    k = job.states
    load(zero, job, worker, K.F, t, worker.F, k * k)
    load(zero, job, worker, K.Q, t, worker.Q, k * k)


@njit(**OPTIONS)
def load_start(zero, job, worker):
    """The states before anything is observed, and nothing summed."""
    k = job.states
    load(zero, job, worker, K.M0, 0, worker.mean, k)
    load(zero, job, worker, K.P0, 0, worker.cov, k * k)
    mirror(zero, (worker.cov, k))
    for target in (worker.before, worker.spread):
        pick_out(zero, (target, worker.cov, (k + 1) * LINE, k))
    clear(zero, (worker.reach, job.observed))
    clear(zero, (worker.zeros, max(k, job.observed)))
    clear(zero, (worker.sums, SUMS))
    put_ones(zero, (worker.sums + MANTISSA * LINE, 1))


def look(code: Code, job: At, worker: At, t: Value) -> Value:
    """The observations of a step to ``errors``, 0 where there is none; whether all are there."""
    base = addresses(code, worker.bindings + K.Y * 8 * code.lanes)
    step = t * code.word(job + 8 * (K.TABLE + K.Y))

    def value(j: Value, state: Any) -> Any:
        y = code.undefined(code.vector)
        for lane, address in enumerate(base):
            y = code.insert(y, code.load_as(code.real, address + step + j * code.size_of_real), lane)
        kept = y == y
        code.store(worker.errors + j * LINE, code.where(kept, y, code.zero()))
        code.store(worker.there + j * LINE, code.to_real(kept))
        return (state[0] & code.bits(kept),)

    everywhere = code.bits(code.all_lanes())
    bits = code.fori(0, job.observed, value, (everywhere,))[0]
    return code.pick(bits == everywhere, code.integer(1), code.integer(0))


def hide(code: Code, job: At, worker: At) -> None:
    """H and R of what is there: what is missing tells nothing, and has a variance of 1."""
    k, p = job.states, job.observed
    zero, one = code.zero(), code.one()

    def there(i: Value) -> Value:
        return code.load(worker.there + i * LINE) > 0.0

    def row(i: Value) -> None:
        own = there(i)

        def load_of(j: Value) -> None:
            at = (i * k + j) * LINE
            code.store(worker.sight + at, code.where(own, code.load(worker.H + at), zero))

        def noise_of(j: Value) -> None:
            at = (i * p + j) * LINE
            usual = code.where(code.everywhere(i == j), one, zero)
            code.store(worker.noise + at, code.where(own & there(j), code.load(worker.R + at), usual))

        each(code, 0, k, load_of)
        each(code, 0, p, noise_of)

    each(code, 0, p, row)


LOADS, HIDDEN = 1, 2  # what ``sight`` is to be of a step: L^-1 H; H of what is there; 0: anything


def separate(code: Code, job: At, worker: At, wanted: Value) -> None:
    """S = L D L^T, and from the left L^-1 of all that stands beside S; gains, means, and what a step adds to the sums.

    Not positive, or infinite, a variance is NaN. ``wanted``: LOADS or not.
    """
    k, p = job.states, job.observed

    def sum_at(row: int) -> Value:
        return worker.sums + row * LINE

    def one(q: Value) -> None:
        own, share = worker.S + q * p * LINE, code.eps ** (1 / 3)
        variance, error = code.load(own + q * LINE), code.load(worker.errors + q * LINE)
        usable = (variance > 0.0) & (variance < float("inf"))
        variance = code.where(usable, variance, code.splat(float("nan")))
        weight, there = 1.0 / variance, code.load(worker.there + q * LINE)
        code.store(worker.variances + q * LINE, variance)
        code.store(worker.weights + q * LINE, weight)
        code.store(worker.scaled + q * LINE, weight * error)
        news = worker.news + q * k * LINE
        quadratic = code.load(sum_at(QUADRATIC)) + weight * error * error + variance * 0.0
        code.store(sum_at(QUADRATIC), quadratic)
        more, digits = code.split(variance)
        further, mantissa = code.split(code.load(sum_at(MANTISSA)) * digits)
        code.store(sum_at(MANTISSA), mantissa)
        code.store(sum_at(EXPONENT), code.load(sum_at(EXPONENT)) + code.to_real(more + further))
        code.store(sum_at(COUNT), code.load(sum_at(COUNT)) + there)
        loss = code.load(sum_at(LOSS))
        loss = code.where(variance < code.tiny, code.one(), loss)
        gap = share * code.load(worker.reach + q * LINE) - variance
        code.store(sum_at(LOSS), code.where((gap > loss) & (there > 0.0), gap, loss))

        def below(i: Value) -> None:
            factor = code.load(own + i * LINE) * weight

            def take_off(matrix: Value, first: Value, count: Value) -> None:
                target, source = matrix + i * count * LINE, matrix + q * count * LINE
                each(
                    code,
                    first,
                    count,
                    lambda j: code.store(
                        target + j * LINE, code.load(target + j * LINE) - factor * code.load(source + j * LINE)
                    ),
                )

            zero = code.integer(0)
            take_off(worker.S, i, p)
            take_off(worker.news, zero, k)
            take_off(worker.errors, zero, code.integer(1))
            take_off(worker.sight, code.pick(wanted == LOADS, zero, k), k)

        each(code, q + 1, p, below)
        gains = worker.gains + q * k * LINE

        def learn(j: Value) -> None:
            gain, mean = weight * code.load(news + j * LINE), worker.mean + j * LINE
            code.store(gains + j * LINE, gain)
            code.store(mean, code.load(mean) + gain * error)

        each(code, 0, k, learn)

    each(code, 0, p, one)


def expect(code: Code, worker: At, count: Value) -> None:
    """The errors, and the largest variances of observations before they are known: ``scaled``, ``variances`` of H x."""

    def one(j: Value) -> None:
        at = worker.errors + j * LINE
        code.store(at, code.load(at) - code.load(worker.scaled + j * LINE))
        found, reach = code.load(worker.variances + j * LINE), code.load(worker.reach + j * LINE)
        code.store(worker.reach + j * LINE, code.where(found > reach, found, reach))

    each(code, 0, count, one)


def lose(code: Code, worker: At, variances: Value, size: Value) -> None:
    """How far a variance of the states is below its share of that before it, to the sums."""
    share, at = code.eps ** (1 / 3), worker.sums + LOSS * LINE

    def one(i: Value, state: Any) -> Any:
        gap = share * code.load(variances + i * LINE) - code.load(worker.cov + i * (size + 1) * LINE)
        return (code.where(gap > state[0], gap, state[0]),)

    code.store(at, code.fori(0, size, one, (code.load(at),))[0])


look_at, hide_missing = library.add("look", look), library.add("hide", hide)
eliminate, expected = library.add("separate", separate), library.add("expect", expect)
lost = library.add("lost", lose)


@njit(**OPTIONS)
def observe(zero, job, worker, t, wanted):
    """The states once the observations of a step are known; ``wanted``: LOADS, HIDDEN or 0."""
    k, p, row, noises = job.states, job.observed, job.states * LINE, job.observed * LINE
    load(zero, job, worker, K.H, t, worker.H, p * k)
    load(zero, job, worker, K.R, t, worker.R, p * p)
    sight, noise = Matrix(worker.H, row, LINE), Matrix(worker.R, noises, LINE)
    if look_at(zero, (job, worker, t)) == 0 or wanted != 0:
        hide_missing(zero, (job, worker))
        sight, noise = Matrix(worker.sight, row, LINE), Matrix(worker.noise, noises, LINE)
    cov, news = Matrix(worker.cov, row, LINE), Matrix(worker.news, row, LINE)
    if p == 1:
        apply(zero, (worker.news, worker.cov, row, sight.address, worker.zeros, k, k))
    else:
        add_product(zero, news, sight, cov, Matrix(worker.zeros, 0, 0), k, p, k)
    add_symmetric(zero, Matrix(worker.S, noises, LINE), news, sight, noise, k, p, p)
    of_sight = sight.address, row, worker.mean, worker.spread, worker.zeros, 0, k, p
    spread_out(zero, (worker.scaled, worker.variances, *of_sight))
    expected(zero, (worker, p))
    eliminate(zero, (job, worker, wanted))
    gains, turned = Matrix(worker.gains, LINE, row), Matrix(worker.news, LINE, row)
    subtract_symmetric(zero, cov, gains, turned, cov, p, k, k)


# ------------------------------------------------------------------------------------------------------- predictions


def age(code: Code, worker: At, size: Value) -> Value:
    """The variances of the next step to ``now``; whether any that is older counts, in which case it is joined."""

    def one(i: Value, state: Any) -> Any:
        code.store(worker.now + i * LINE, code.load(worker.cov + i * (size + 1) * LINE))
        spread, before = code.load(worker.spread + i * LINE), code.load(worker.before + i * LINE)
        return (state[0] | code.bits(spread > before * NEARLY),)

    def join(i: Value) -> None:
        spread, before = code.load(worker.spread + i * LINE), code.load(worker.before + i * LINE)
        code.store(worker.spread + i * LINE, code.where(spread > before, spread, before))

    bits = code.fori(0, size, one, (code.integer(0),))[0]
    each(code, 0, code.pick(bits == code.integer(0), code.integer(0), size), join)
    return bits


def outlive(code: Code, worker: At, size: Value) -> None:
    """What is older has the share in each state that its variance has: the larger of it and of what moved."""

    def one(i: Value) -> None:
        found, new = code.load(worker.older + i * LINE), code.load(worker.moved + i * LINE)
        share = code.where(new > found * code.eps, code.load(worker.now + i * LINE) / new, code.one())
        found = found * share
        code.store(worker.moved + i * LINE, code.where(found > new, found, new))

    each(code, 0, size, one)


grow_older, outlived = library.add("age", age), library.add("outlive", outlive)


@njit(**OPTIONS)
def predict(zero, job, worker):
    """The states of the next step, and the variances that carry their rounding errors: `Doubt.older`."""
    k, row = job.states, job.states * LINE
    F, Q, nothing = Matrix(worker.F, row, LINE), Matrix(worker.Q, row, LINE), Matrix(worker.zeros, 0, 0)
    cov, product = Matrix(worker.cov, row, LINE), Matrix(worker.product, row, LINE)
    of_Q = worker.Q, row + LINE, k, k
    spread_out(zero, (worker.ahead, worker.moved, worker.F, row, worker.mean, worker.before, *of_Q))
    worker.mean, worker.ahead = worker.ahead, worker.mean
    add_product(zero, product, F, cov, nothing, k, k, k)
    add_symmetric(zero, cov, product, F, Q, k, k, k)
    if grow_older(zero, (worker, k)) != 0:
        spread_out(zero, (worker.scratch, worker.older, worker.F, row, worker.zeros, worker.spread, *of_Q))
        outlived(zero, (worker, k))
    worker.spread, worker.moved = worker.moved, worker.spread
    worker.before, worker.now = worker.now, worker.before


@njit(**OPTIONS)
def write_state(zero, job, worker, t, mean, cov):
    """The states to those operands, where they are wanted."""
    if job.pointers[cov] != 0:
        k = job.states
        scatter(zero, (table(zero, worker, mean), t * stride(job, mean), worker.mean, k))
        scatter(zero, (table(zero, worker, cov), t * stride(job, cov), worker.cov, k * k))
