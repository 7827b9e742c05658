"""The steps of `tridiag.algorithms.kalman_filter` as compiled loops, one series in each lane.

Matrices are those of `tridiag.kernels.kalman.matrices`. Parameters that change with time are fetched in every step. The
logarithm of the product of all variances is taken at the end: the product is kept as a mantissa and an exponent.
"""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tridiag.algorithms import kalman_filter
from tridiag.algorithms.kalman_filter import Doubt, Estimate, Observed
from tridiag.kernels.access.operands import addresses
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.jobs.words.record import Guarded, Lines, extended
from tridiag.kernels.kalman.matrices import Form, Lanes, Roots, vector
from tridiag.kernels.kalman.recorded import Recorded
from tridiag.kernels.simd.processor import bytes_of_register
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.registers import Scratch, by_register, in_turn, narrow
from tridiag.kernels.simd.values import Stored, Value, flatten
from tridiag.kernels.simd.vector import LINE, Code

NEARLY = 16.0  # times a variance: what is older than it and no larger is forgotten
PERIOD, SLACK = 4, 8.0  # covariances are at rest that moved in so many steps by no more than so many times eps
SHORT = 3  # states and values observed: of more, steps are written once for all registers where these are narrow
QUADRATIC, MANTISSA, EXPONENT, COUNT, LOSS = range(5)  # rows of a result


class Room:
    """The memory of a worker, for models of one size: a record, and the offsets of its fields."""

    def __init__(self, states: int, observed: int) -> None:
        k, p = states, observed
        self.states, self.observed = k, p
        self.shapes = {K.Y: (p,), K.F: (k, k), K.H: (p, k), K.Q: (k, k), K.R: (p, p), K.M0: (k,), K.P0: (k, k)}
        fields = {"bindings": Lines(2 * K.OPERANDS)}
        fields |= {f"operand{operand}": Lines(self.entries(operand)) for operand in self.shapes}
        fields |= {"result": Lines(5)}
        self.waits = self.carried if bytes_of_register() < LINE and k + p > SHORT else 0
        if self.waits:
            kept = -(-self.scratch * bytes_of_register() // LINE)
            fields |= {"waiting": Lines(self.waits), "scratch": Lines(kept)}
        self.layout = extended(Guarded, f"FilterRoom{k}_{p}", **fields)
        self.places = {operand: self.layout.fields[f"operand{operand}"].offset for operand in self.shapes}
        self.result = self.layout.fields["result"].offset
        # what is kept of a step of a shared model, in numbers: weights, gains, factors
        self.record = p + p * k + p * (p - 1) // 2

    @property
    def scratch(self) -> int:
        """How many values a step keeps in scratch memory: half as many again as any model of up to 8 states needs."""
        return 6 * self.states**3 + 16 * (self.states + self.observed) ** 2

    @property
    def carried(self) -> int:
        """How many rows of lanes any loop carries from step to step, at most."""
        k, p = self.states, self.observed
        state, sums, doubt = k + k * (k + 1) // 2, 4, k + p + 1
        return state + max(sums + doubt + k * k + state + p, 2 * k + k * k, 2 * (k + 1) * p)

    @property
    def size(self) -> int:
        """Bytes, in whole lines: what is kept of the steps lies behind."""
        return -(-self.layout.size() // LINE) * LINE

    def bind(self, operand: int) -> int:
        """Where the addresses of an operand are, one for each lane: two lines."""
        return operand * 2 * LINE

    def entries(self, operand: int) -> int:
        return int(np.prod(self.shapes[operand]))


class Loops:
    """The loops for models of one size."""

    lane: Any = 0  # the first one of a row that they are for
    scratch: Scratch | None = None  # of a step

    def __init__(self, room: Room) -> None:
        self.room = room

    def steps(
        self, code: Code, room: At, first: Any, last: Any, step: Callable[..., Any], carry: Any, by: int = 1
    ) -> Any:
        """`Code.fori` with ``step(loops, code, t, carry)``, of a few lanes after others where registers are narrow."""

        def some(code: Code, lane: Any, t: Value, carry: Any) -> Any:
            loops = copy.copy(self)
            loops.lane = lane
            if self.room.waits:
                place = room + self.room.layout.fields["scratch"].offset
                loops.scratch = Scratch(code, place, self.room.scratch, rolled=by < 0)  # the way back does the more
            return step(loops, code, t, carry)

        if not self.room.waits:
            return by_register(code, first, last, some, carry, by)
        assert len(flatten(carry)) <= self.room.waits
        waiting = room + self.room.layout.fields["waiting"].offset
        return in_turn(code, first, last, some, carry, [(waiting, k * LINE) for k in range(len(flatten(carry)))], by)

    def line(self, code: Code, at: Value, e: Any = 0) -> Value:
        """The address of these lanes in a row of lanes, so many behind one."""
        return at + (e * LINE + self.lane * code.size_of_real)

    # ------------------------------------------------------------------------------------------- reading

    def gather(self, code: Code, base: list[Value]) -> Value:
        """One number at each of the addresses."""
        found = code.undefined(code.vector)
        for lane, address in enumerate(base):
            found = code.insert(found, code.load_as(code.real, address), lane)
        return found

    def addresses(self, code: Code, room: At, operand: int) -> list[Value]:
        """That of an operand in each lane."""
        return addresses(code, room + (self.room.bind(operand) + 8 * self.lane))

    def bound(self, code: Code, job: At, room: At, operand: int, t: Value) -> list[Value]:
        """The address of step t of an operand in each lane."""
        base = self.addresses(code, room, operand)
        step = t * code.word(job + 8 * (K.TABLE + operand))
        return [address + step for address in base]

    def fetch(self, code: Code, job: At, room: At, operand: int, t: Any, count: Any) -> None:
        """The first entries of a matrix to the memory of the worker."""
        base = self.bound(code, job, room, operand, t)
        target = room + self.room.places[operand]

        def entry(e: Value, state: Any) -> Any:
            code.store(self.line(code, target, e), self.gather(code, [x + e * code.size_of_real for x in base]))
            return state

        code.fori(0, count, entry)

    def fetch_all(self, code: Code, job: At, room: At) -> None:
        for operand in (K.F, K.H, K.Q, K.R, K.M0, K.P0):
            self.fetch(code, job, room, operand, code.integer(0), self.room.entries(operand))

    def matrix(self, code: Code, job: At, room: At, operand: int, t: Any = None) -> Any:
        """A matrix from there; that of step t where it changes with time."""
        if t is not None:
            changes = code.word(job + 8 * (K.TABLE + operand)) != 0
            count = code.pick(changes, code.integer(self.room.entries(operand)), code.integer(0))
            self.fetch(code, job, room, operand, t, count)
        at, shape = room + self.room.places[operand], self.room.shapes[operand]
        found = np.empty(shape, object)
        found.ravel()[:] = self.row(code, at, found.size)
        return found

    def observations(self, code: Code, job: At, room: At, t: Value) -> Any:
        base = self.bound(code, job, room, K.Y, t)
        found = np.empty(self.room.observed, object)
        for j in range(self.room.observed):
            found[j] = self.gather(code, [x + j * code.size_of_real for x in base])
        return found

    # ------------------------------------------------------------------------------------------- keeping

    def put_row(self, code: Code, at: Value, values: Iterable[Value]) -> None:
        for e, value in enumerate(values):
            code.store(self.line(code, at, e), value)

    def scatter(self, code: Code, base: Iterable[Value], value: Value) -> None:
        """One number to each of the addresses."""
        for lane, address in enumerate(base):
            code.store_as(address, code.extract(value, lane))

    def row(self, code: Code, at: Value, count: int) -> list[Value]:
        """Rows of lanes; where there are few registers they are left in memory until they are used."""
        if self.scratch is None:
            return [code.load(self.line(code, at, e)) for e in range(count)]
        base = self.line(code, at)
        return [Stored(code, base, e * LINE) for e in range(count)]

    # ------------------------------------------------------------------------------------------- carrying

    def times(self, code: Code, product: tuple[Value, Value], variance: Value) -> tuple[Value, Value]:
        """A product as mantissa and exponent, times one factor more."""
        mantissa, exponent = product
        more, digits = code.split(variance)
        further, mantissa = code.split(mantissa * digits)
        return mantissa, exponent + more + further

    def one(self, code: Code) -> tuple[Value, Value]:
        exponent, mantissa = code.split(code.one())
        return mantissa, exponent

    # ------------------------------------------------------------------------------------------- loops

    def filter(self, covs: Form, missing: bool, code: Code, job: At, room: At) -> None:
        """All steps of a series in each lane."""
        self.run(covs, missing, code, job, room, lambda *state: None)

    def before_steps(self, covs: Form, code: Code, job: At, room: At) -> Any:
        """What is carried from step to step, before the first; the model is read."""
        self.fetch_all(code, job, room)
        cov = self.first(covs, code, job, room)
        mean, doubt = tuple(self.matrix(code, job, room, K.M0)), self.doubt(covs, code, job, room)
        return mean, covs.packed(cov), self.sums(code), doubt, self.begun(code)

    def after_steps(self, covs: Form, code: Code, room: At, carry: Any) -> None:
        """What is told of a series, behind its last step."""
        mean, cov, (quadratic, product, count), doubt, more = carry
        self.put(code, room, quadratic, product, count, doubt)
        self.ended(covs, code, room, mean, cov, doubt, more)

    def run(self, covs: Form, missing: bool, code: Code, job: At, room: At, visit: Callable[..., Any]) -> None:
        """The same; ``visit(loops, code, t, predicted, updated)`` sees all states, and may tell of a loss (`Doubt`)."""

        def step(loops: Loops, *state: Any) -> Any:
            return loops.step(covs, missing, job, room, visit, *state)

        start = self.before_steps(covs, code, job, room)
        self.after_steps(covs, code, room, self.steps(code, room, 0, job.steps, step, start))

    def step(
        self, covs: Form, missing: bool, job: At, room: At, visit: Callable[..., Any], code: Code, t: Value, carry: Any
    ) -> Any:
        """A step of `run`."""
        ops, (mean, cov, (quadratic, product, count), doubt, more) = Lanes(code, self.scratch), carry
        state, y = Estimate(vector(mean), covs.unpacked(cov, self.room.states)), self.observations(code, job, room, t)
        H, R = (self.matrix(code, job, room, operand, t) for operand in (K.H, K.R))
        kept: Any = vector([x == x for x in y]) if missing else None
        seen, updated = kalman_filter.observe(ops, H, R, y, kept, state, covs)
        for weight, error, variance in zip(seen.weights, seen.errors, seen.variances, strict=True):
            quadratic = quadratic + error * error * weight + variance * 0.0  # infinity is not lost
            product = self.times(code, product, variance)
        for mask in kept if missing else ():
            count = count + code.to_real(mask)
        loss = visit(self, code, t, state, updated)
        F, Q = (self.matrix(code, job, room, operand, t) for operand in (K.F, K.Q))
        ahead = kalman_filter.predict(ops, F, Q, updated, covs)
        doubt = self.doubted(code, doubt, (state.cov, ahead.cov), F, H, Q, kept, seen.variances)
        if doubt and loss is not None:
            doubt = *doubt[:-1], kalman_filter.larger(ops, loss, doubt[-1])
        more = self.followed(code, room, seen, F, kept, more)
        return tuple(ahead.mean), covs.packed(ahead.cov), (quadratic, product, count), doubt, more

    # what else is carried from step to step, for loops that carry more

    def begun(self, code: Code) -> Any:
        """Before the first step."""
        return ()

    def followed(self, code: Code, room: At, seen: Observed, F: Any, kept: Any, before: Any) -> Any:
        """Behind a step."""
        return ()

    def ended(self, covs: Form, code: Code, room: At, mean: Any, cov: Any, doubt: Any, found: Any) -> None:
        """Once all steps are done, with the state that is predicted behind them."""

    def first(self, covs: Form, code: Code, job: At, room: At) -> Any:
        """The covariance before anything is observed."""
        ops = Lanes(code)
        return covs.start(ops, ops.symmetric(self.matrix(code, job, room, K.P0)))

    def sums(self, code: Code) -> Any:
        """The sums over all steps, before the first: of squares, the product of variances, the number of values."""
        return code.zero(), self.one(code), code.zero()

    def doubt(self, covs: Form, code: Code, job: At, room: At) -> Any:
        """A `Doubt` before the first step; () with square roots."""
        if covs is Roots:
            return ()
        spread = kalman_filter.diagonal(self.matrix(code, job, room, K.P0))
        return Doubt(tuple(spread), (code.zero(),) * self.room.observed, code.zero())

    def doubted(
        self, code: Code, doubt: Any, covs: Any, F: Any, H: Any, Q: Any, kept: Any, variances: list[Value]
    ) -> Any:
        """The same once a step has observed, as of the next one; ``covs``: as predicted, for this step and the next."""
        if not doubt:
            return ()
        ops = Lanes(code, self.scratch)
        sight = H if kept is None else ops.where(kept[:, None], H, ops.zero(H))
        found = Doubt.add(ops, Doubt(*doubt), sight, kept, variances)
        before, now = map(kalman_filter.diagonal, covs)
        moved = Doubt.moved(F, Q, before)

        def older(_: Value, state: Any) -> Any:
            return tuple(Doubt.older(ops, F, Q, found.spread, before, now, moved))

        # of most models, nothing that is older counts: divisions that cost more than all of `Doubt` are left out then
        counts = functools.reduce(operator.or_, (x > y * NEARLY for x, y in zip(found.spread, before, strict=True)))
        zero = code.integer(0)
        spread = code.fori(zero, code.pick(code.bits(counts) == zero, zero, zero + 1), older, tuple(moved))
        return spread, tuple(found.reach), found.loss

    def put(
        self, code: Code, room: At, quadratic: Value, product: tuple[Value, Value], count: Value, doubt: Any
    ) -> None:
        """The sums, and above 0 where digits may be lost."""
        loss = code.zero()
        if doubt:
            loss = code.where(quadratic == quadratic, doubt[-1], code.one())
        rows = {QUADRATIC: quadratic, MANTISSA: product[0], EXPONENT: code.to_real(product[1]), COUNT: count}
        rows[LOSS] = loss
        for row, value in rows.items():
            code.store(room + self.room.result + row * LINE, value)

    def covariances(self, covs: Form, code: Code, job: At, room: At, records: Value) -> None:
        """What the steps of all series of a model have in common."""
        code = narrow(code)[0][0]  # all lanes find the same
        k = self.room.states
        self.fetch_all(code, job, room)
        cov, doubt = self.first(covs, code, job, room), self.doubt(covs, code, job, room)

        def step(loops: Loops, code: Code, t: Value, carry: Any) -> Any:
            ops, (packed, bad, product, doubt) = Lanes(code, loops.scratch), carry
            cov = covs.unpacked(packed, k)
            H, R = (loops.matrix(code, job, room, operand, t) for operand in (K.H, K.R))
            weights, variances, factors, rows, after, _ = covs.separate(ops, H, R, cov)
            for variance in variances:
                bad, product = bad + variance * 0.0, loops.times(code, product, variance)
            at = records + t * (self.room.record * code.size_of_real)
            for e, value in enumerate(Recorded.of(weights, rows, factors).numbers):
                code.store_as(at + e * code.size_of_real, code.extract(value, 0))
            F, Q = (loops.matrix(code, job, room, operand, t) for operand in (K.F, K.Q))
            ahead = covs.predict(ops, F, Q, after)
            doubt = loops.doubted(code, doubt, (cov, ahead), F, H, Q, None, variances)
            return covs.packed(ahead), bad, product, doubt

        start = covs.packed(cov), code.zero(), self.one(code), doubt
        _, bad, product, doubt = self.steps(code, room, 0, job.steps, step, start)
        self.put(code, room, bad, product, code.zero(), doubt)

    def means(self, code: Code, job: At, room: At, records: Value) -> None:
        """The rest of all steps, of a series in each lane."""
        k, p, size = self.room.states, self.room.observed, code.size_of_real
        self.fetch_all(code, job, room)
        start = tuple(self.matrix(code, job, room, K.M0)), code.zero()

        def step(t: Value, carry: Any) -> Any:
            mean, quadratic = vector(carry[0]), carry[1]
            at = records + t * (self.room.record * size)
            found = Recorded.taken(iter([code.spread(at + e * size) for e in range(self.room.record)]), k, p)
            H, y = self.matrix(code, job, room, K.H, t), self.observations(code, job, room, t)
            mean, errors = found.update(H, y, mean)
            F = self.matrix(code, job, room, K.F, t)
            return tuple(kalman_filter.apply(F, mean)), found.add_squares(errors, quadratic)

        _, quadratic = code.fori(0, job.steps, step, start)
        code.store(room + self.room.result, quadratic)
