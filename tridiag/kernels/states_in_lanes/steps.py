"""The steps of `tridiag.algorithms.kalman_filter` for a group of series: covariances as they stand."""

from __future__ import annotations

from typing import Any

from tridiag.kernels.access.operands import addresses, lanes_of
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.kalman.loops import NEARLY
from tridiag.kernels.many_states.profiles import ROW, Profile
from tridiag.kernels.many_states.rows import each
from tridiag.kernels.many_states.steps import stride
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code
from tridiag.kernels.states_in_lanes.copies import (
    clear,
    gather,
    joined_below,
    mirror,
    pick_out,
    profile_of,
    put_ones,
    scatter,
)
from tridiag.kernels.states_in_lanes.matrices import (
    Matrix,
    add_product,
    add_some,
    add_symmetric,
    add_symmetric_less,
    any_matrix,
    apply,
    apply_symmetric,
    library,
    spread_out,
    subtract_symmetric,
)
from tridiag.kernels.states_in_lanes.workspace import COUNT, EXPONENT, LOSS, MANTISSA, QUADRATIC, SUMS

# ------------------------------------------------------------------------------------------------------- the model


@compiled
def table(zero, worker, operand):
    """Where the addresses of an operand are."""
    return worker.bindings + operand * 8 * lanes_of(zero, ())


@compiled
def load(zero, job, worker, operand, t, target, count):
    """The first entries of step t of an operand, where they are others than what is there; whether they are."""
    step = stride(job, operand)
    if step == 0 and (t != 0 or worker.held != 0):
        return False
    gather(zero, (table(zero, worker, operand), t * step, target, count))
    return True


@compiled
def load_motion(zero, job, worker, t):
    """F and Q of a step."""
    k = job.states
    if load(zero, job, worker, K.F, t, worker.F, k * k):
        profile_of(zero, (worker.profile, worker.F, k))
        joined_below(zero, (worker.below, worker.profile, k))
    load(zero, job, worker, K.Q, t, worker.Q, k * k)


@compiled
def load_sight(zero, job, worker, t):
    """H and R of a step."""
    load(zero, job, worker, K.H, t, worker.H, job.observed * job.states)
    load(zero, job, worker, K.R, t, worker.R, job.observed * job.observed)


@compiled
def load_start(zero, job, worker):
    """The states before anything is observed, and nothing summed."""
    k, worker.held = job.states, 0
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


def add_to_sums(code: Code, worker: At, variance: Value, square: Value, there: Value) -> None:
    """An observation: its squared error over its variance, its variance, and whether it is there."""

    def sum_at(row: int) -> Value:
        return worker.sums + row * LINE

    code.store(sum_at(QUADRATIC), code.load(sum_at(QUADRATIC)) + square + variance * 0.0)
    more, digits = code.split(variance)
    further, mantissa = code.split(code.load(sum_at(MANTISSA)) * digits)
    code.store(sum_at(MANTISSA), mantissa)
    code.store(sum_at(EXPONENT), code.load(sum_at(EXPONENT)) + code.to_real(more + further))
    code.store(sum_at(COUNT), code.load(sum_at(COUNT)) + there)


def separate(code: Code, job: At, worker: At, wanted: Value) -> None:
    """S = L D L^T, and from the left L^-1 of all that stands beside S; gains, means, and what a step adds to the sums.

    Not positive, or infinite, a variance is NaN. ``wanted``: LOADS or not.
    """
    k, p = job.states, job.observed

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
        add_to_sums(code, worker, variance, weight * error * error, there)
        sum_of_losses = worker.sums + LOSS * LINE
        loss = code.load(sum_of_losses)
        loss = code.where(variance < code.tiny, code.one(), loss)
        gap = share * code.load(worker.reach + q * LINE) - variance
        code.store(sum_of_losses, code.where((gap > loss) & (there > 0.0), gap, loss))

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


@compiled
def observe(zero, job, worker, t, wanted):
    """The means once the observations of a step are known, and gains; returns whether all are there.

    ``wanted``: LOADS, HIDDEN or 0.
    """
    k, p, row, noises = job.states, job.observed, job.states * LINE, job.observed * LINE
    load_sight(zero, job, worker, t)
    sight, noise = Matrix(worker.H, row, LINE), Matrix(worker.R, noises, LINE)
    there = look_at(zero, (job, worker, t)) != 0
    if not there or wanted != 0:
        hide_missing(zero, (job, worker))
        sight, noise = Matrix(worker.sight, row, LINE), Matrix(worker.noise, noises, LINE)
    cov, news = Matrix(worker.cov, row, LINE), Matrix(worker.news, row, LINE)
    whole = any_matrix(worker)
    if p == 1:
        apply_symmetric(zero, worker.news, cov, sight.address, worker.zeros, k)
    else:
        add_product(zero, news, sight, cov, Matrix(worker.zeros, 0, LINE), whole, k, p, k)
    add_symmetric(zero, Matrix(worker.S, noises, LINE), news, sight, noise, whole, k, p, p)
    of_sight = sight.address, row, worker.mean, worker.spread, worker.zeros, 0, whole.address, whole.step, k, p
    spread_out(zero, (worker.scaled, worker.variances, *of_sight))
    expected(zero, (worker, p))
    eliminate(zero, (job, worker, wanted))
    return there


@compiled
def update_covariance(zero, job, worker):
    """That of the states once the observations of a step are known."""
    k, row, cov = job.states, job.states * LINE, Matrix(worker.cov, job.states * LINE, LINE)
    gains, turned = Matrix(worker.gains, LINE, row), Matrix(worker.news, LINE, row)
    subtract_symmetric(zero, cov, gains, turned, cov, any_matrix(worker), job.observed, k, k)


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


def weigh_gains(code: Code, worker: At, q: Value, size: Value) -> None:
    """Of an observation the gains of the next step, times the variance of what it tells."""
    variance, first = code.load(worker.variances + q * LINE), q * size * LINE

    def one(i: Value) -> None:
        at = first + i * LINE
        code.store(worker.weighed + at, variance * code.load(worker.moved_gains + at))

    each(code, 0, size, one)


weigh = library.add("weigh_gains", weigh_gains)
grow_older, outlived = library.add("age", age), library.add("outlive", outlive)


@compiled
def predict(zero, job, worker, updated):
    """The states of the next step, and the variances that carry their rounding errors: `Doubt.older`.

    ``updated``: whether the covariances are, by `update_covariance`; if not, it is F P F^T + Q - (F G^T) D (F G^T)^T.
    """
    k, row = job.states, job.states * LINE
    F, Q, nothing = Matrix(worker.F, row, LINE), Matrix(worker.Q, row, LINE), Matrix(worker.zeros, 0, LINE)
    cov, product = Matrix(worker.cov, row, LINE), Matrix(worker.product, row, LINE)
    profile, below = Profile(worker.profile, ROW), Profile(worker.below, ROW)
    of_Q = worker.Q, row + LINE, profile.address, profile.step, k, k
    spread_out(zero, (worker.ahead, worker.moved, worker.F, row, worker.mean, worker.before, *of_Q))
    worker.mean, worker.ahead = worker.ahead, worker.mean
    add_some(zero, product, F, cov, nothing, profile, below, k)  # a sum for (i, j), i <= j, has row j of F
    if updated:
        add_symmetric(zero, cov, product, F, Q, profile, k, k, k)
    else:
        for q in range(job.observed):
            gains, moved = worker.gains + q * row, worker.moved_gains + q * row
            apply(zero, moved, F, gains, worker.zeros, profile, k, k)
            weigh(zero, (worker, q, k))
        taken = worker.moved_gains, worker.weighed
        add_symmetric_less(zero, cov, product, F, Q, profile, k, taken, job.observed)
    if grow_older(zero, (worker, k)) != 0:
        spread_out(zero, (worker.scratch, worker.older, worker.F, row, worker.zeros, worker.spread, *of_Q))
        outlived(zero, (worker, k))
    worker.spread, worker.moved = worker.moved, worker.spread
    worker.before, worker.now = worker.now, worker.before


@compiled
def write_state(zero, job, worker, t, mean, cov):
    """The states to those operands, where they are wanted."""
    if job.pointers[cov] != 0:
        k = job.states
        scatter(zero, (table(zero, worker, mean), t * stride(job, mean), worker.mean, k))
        scatter(zero, (table(zero, worker, cov), t * stride(job, cov), worker.cov, k * k))
