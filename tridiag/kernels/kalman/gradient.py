"""The derivatives of log-likelihoods as loops in the language of `tridiag.kernels.simd`: one series in each lane.

For models that do not change with time. A pass forwards keeps the states that are predicted; a pass backwards carries
what `tridiag.algorithms.kalman_scan` calls r and N, and the sums over all steps. Where series share a model and nothing
is missing, N and all else that depends on covariances alone is computed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tridiag.algorithms import kalman_adjoint, kalman_filter, kalman_square_roots
from tridiag.algorithms.kalman_adjoint import Shrinking
from tridiag.algorithms.kalman_filter import Estimate
from tridiag.kernels.access.operands import addresses
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.jobs.words.record import Lines, extended
from tridiag.kernels.kalman.loops import Loops, Room
from tridiag.kernels.kalman.matrices import Entries, Form, Lanes, Roots, vector
from tridiag.kernels.kalman.recorded import Recorded
from tridiag.kernels.simd.processor import bytes_of_register
from tridiag.kernels.simd.records import At
from tridiag.kernels.simd.registers import narrow
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import LINE, Code

PARAMETERS = (K.F, K.H, K.Q, K.R, K.M0, K.P0)


class GradientRoom(Room):
    """The memory of a worker; behind it, what it keeps of each step."""

    def __init__(self, states: int, observed: int) -> None:
        super().__init__(states, observed)
        k, p = states, observed
        self.entries_of_all = sum(map(self.entries, PARAMETERS))
        self.layout = extended(self.layout, f"GradientRoom{k}_{p}", found=Lines(self.entries_of_all))
        self.found = self.layout.fields["found"].offset
        self.sums = k * k, p * k, k * (k + 1) // 2, p * (p + 1) // 2  # over all steps: of F, H, and half of Q and R
        self.kept, self.kept_of_means = k + k * (k + 1) // 2, k + p  # lines of a step
        self.gains = self.record  # of a record, before the covariances that are updated and predicted
        self.record += k * (k + 1)


class Gradient(Loops):
    """The loops for models of one size."""

    room: GradientRoom

    # ------------------------------------------------------------------------------------------- memory

    def begin(self, code: Code, job: At, room: At) -> None:
        """The model to the memory of the worker; F of a single step, which is not read, as 0."""
        self.fetch_all(code, job, room)
        single = job.steps < 2
        count = code.pick(single, code.integer(self.room.entries(K.F)), code.integer(0))

        def clear(e: Value, state: Any) -> Any:
            code.store(room + self.room.places[K.F] + e * LINE, code.zero())
            return state

        code.fori(0, count, clear)

    def put_of_y(self, code: Code, job: At, room: At, t: Value, u: Any) -> None:
        """The derivative in y, where it is wanted."""
        wanted = job.pointers[K.OF_Y] != 0

        def put(_: Value, state: Any) -> Any:
            base = self.bound(code, job, room, K.OF_Y, t)
            for j, value in enumerate(u):
                self.scatter(code, [x + j * code.size_of_real for x in base], -value)
            return state

        code.fori(0, code.pick(wanted, code.integer(1), code.integer(0)), put)

    def finish(self, code: Code, room: At, sums: Any, mean: Any, cov: Any) -> None:
        """All derivatives, in the order of the parameters, to the memory of the worker."""
        counts = self.room.sums
        row = iter(() if sums else self.row(code, room + self.room.found, sum(counts)))
        of_F, of_H, of_Q, of_R = sums or [[next(row) for _ in range(count)] for count in counts]
        of_Q, of_R, of_P0 = ([0.5 * x for x in sides] for sides in (of_Q, of_R, cov))
        of_Q, of_P0 = (Entries.unpacked(x, self.room.states).ravel() for x in (of_Q, of_P0))
        of_R = Entries.unpacked(of_R, self.room.observed).ravel()
        self.put_row(code, room + self.room.found, [*of_F, *of_H, *of_Q, *of_R, *mean, *of_P0])

    def give(self, code: Code, room: At) -> None:
        """All derivatives from there to the caller's memory, for each lane."""
        base = addresses(code, room + self.room.bind(K.OF_MODEL))

        def entry(e: Value, state: Any) -> Any:
            value = code.load(room + self.room.found + e * LINE)
            self.scatter(code, [x + e * code.size_of_real for x in base], value)
            return state

        code.fori(0, self.room.entries_of_all, entry)

    def none(self, code: Code, room: At) -> Any:
        """The sums before the first step, of F, H, Q and R; () where registers are narrow: they are in memory."""
        if bytes_of_register() == LINE:
            return tuple((code.zero(),) * count for count in self.room.sums)
        self.put_row(code, room + self.room.found, [code.zero()] * sum(self.room.sums))
        return ()

    def add(self, code: Code, room: At, sums: Any, terms: Iterable[Any]) -> Any:
        """What a step adds to the sums; where these are in memory, to one of them after the other."""
        if sums:
            sides = zip(sums, terms, strict=True)
            return tuple(tuple(x + y for x, y in zip(*pair, strict=True)) for pair in sides)
        place = self.room.found
        for found in terms:
            row = self.row(code, room + place, len(found))
            self.put_row(code, room + place, [x + y for x, y in zip(row, found, strict=True)])
            place += len(found) * LINE
        return ()

    def squares(self, x: Any) -> tuple[Value, ...]:
        """x x^T, packed."""
        return Entries.packed(kalman_filter.outer(x, x))

    # ------------------------------------------------------------------------------------------- loops

    def gradient(self, covs: Form, missing: bool, code: Code, job: At, room: At, _: Value) -> None:
        """All steps of a series in each lane, there and back."""
        k, p = self.room.states, self.room.observed
        kept_lines, n = room + self.room.size, job.steps
        self.begin(code, job, room)

        def read(loops: Gradient, code: Code, t: Value) -> Any:
            y = loops.observations(code, job, room, t)
            kept: Any = vector([x == x for x in y]) if missing else None
            H, R = (loops.matrix(code, job, room, operand) for operand in (K.H, K.R))
            return *kalman_filter.there(Lanes(code, loops.scratch), H, R, y, kept), kept

        def updated(loops: Gradient, code: Code, t: Value, state: Estimate) -> Any:
            H, R, y, kept = read(loops, code, t)
            seen, after = kalman_filter.observe(Lanes(code, loops.scratch), H, R, y, None, state, covs)
            return H, R, kept, seen, after

        def forward(loops: Gradient, code: Code, t: Value, carry: Any) -> Any:
            ops, (mean, cov, bad, doubt) = Lanes(code, loops.scratch), carry
            loops.put_row(code, kept_lines + t * (self.room.kept * LINE), [*mean, *cov])
            state = Estimate(vector(mean), covs.unpacked(cov, k))
            H, _, kept, seen, after = updated(loops, code, t, state)
            F, Q = (loops.matrix(code, job, room, operand) for operand in (K.F, K.Q))
            bad = kalman_filter.added([bad, *(x * 0.0 for x in seen.variances), *(x * 0.0 for x in seen.errors)])
            ahead = kalman_filter.predict(ops, F, Q, after, covs)
            doubt = self.doubted(code, doubt, (state.cov, ahead.cov), F, H, Q, kept, seen.variances)
            return tuple(ahead.mean), covs.packed(ahead.cov), bad, doubt

        def backward(loops: Gradient, code: Code, t: Value, carry: Any) -> Any:
            r, N, sums, behind = vector(carry[0]), Entries.unpacked(carry[1], k), carry[2], carry[3]
            ops, row_at = Lanes(code, loops.scratch), kept_lines + t * (self.room.kept * LINE)
            row = loops.row(code, row_at, self.room.kept)
            H, R, kept, seen, after = updated(loops, code, t, Estimate(vector(row[:k]), covs.unpacked(row[k:], k)))
            root, after = after.cov, Estimate(after.mean, covs.whole(ops, after.cov))
            F = loops.matrix(code, job, room, K.F)
            scaled, gains = ([x * w for w, x in zip(seen.weights, xs, strict=True)] for xs in (seen.errors, seen.rows))
            mean = kalman_adjoint.pull_mean(ops, F, H, scaled, gains, seen.factors, after, r)
            if covs is Entries:
                cov = kalman_adjoint.pull_covariance(ops, F, H, R, seen, after.cov, N)
            else:
                behind = Shrinking(vector(behind[0]), vector(behind[1]).reshape(k, k))
                back = loops.gain(code, job, room, t, root)
                cov, behind = kalman_adjoint.pull_by_roots(ops, F, H, R, seen, after.mean, back, N, behind)
                mean, behind = mean._replace(smoothed=behind.mean), (tuple(behind.mean), tuple(behind.NP.ravel()))
            of_R = kalman_filter.outer(mean.u, mean.u) - cov.of_R
            if missing:
                of_R = ops.where(kept[:, None] & kept[None], of_R, np.full((p, p), code.zero()))

            def terms_of_sums() -> Iterator[Any]:
                yield (kalman_filter.outer(r, mean.smoothed) - cov.of_F).ravel()
                yield (kalman_filter.outer(mean.u, mean.smoothed) - cov.of_H).ravel()
                yield Entries.packed(kalman_filter.outer(r, r) - N)
                yield Entries.packed(of_R)

            terms = [*terms_of_sums()] if sums else terms_of_sums()
            loops.put_of_y(code, job, room, t, mean.u)
            return tuple(mean.r), Entries.packed(cov.N), loops.add(code, room, sums, terms), behind

        cov, doubt = self.first(covs, code, job, room), self.doubt(covs, code, job, room)
        start = tuple(self.matrix(code, job, room, K.M0)), covs.packed(cov), code.zero(), doubt
        *_, bad, doubt = self.steps(code, room, 0, n, forward, start)
        self.put(code, room, bad, self.one(code), code.zero(), doubt)
        ahead = self.ahead(code, job, room)
        nothing = tuple(ahead[:k]), tuple(ahead[k:]), self.none(code, room)
        behind = ((code.zero(),) * k, (code.zero(),) * (k * k)) if covs is Roots else ()
        r, N, sums, _ = self.steps(code, room, n - 1, -1, backward, (*nothing, behind), -1)
        of_P0 = [x - y for x, y in zip(self.squares(vector(r)), N, strict=True)]
        self.finish(code, room, sums, r, of_P0)
        self.give(code, room)

    def ahead(self, code: Code, job: At, room: At) -> list[Value]:
        """r and N behind the last step, 0 where nothing is known; with square roots it has to be nothing."""
        at, k = room + self.room.found, self.room.states
        count = k + k * (k + 1) // 2
        self.put_row(code, at, [code.zero()] * count)
        base = addresses(code, room + self.room.bind(K.AHEAD))

        def entry(e: Value, state: Any) -> Any:
            code.store(at + e * LINE, self.gather(code, [x + e * code.size_of_real for x in base]))
            return state

        code.fori(0, code.pick(job.pointers[K.AHEAD] != 0, code.integer(count), code.integer(0)), entry)
        return self.row(code, at, count)

    def gain(self, code: Code, job: At, room: At, t: Value, root: Any) -> Any:
        """With which a state follows from the next one; 0 for the last."""
        ops, last = Lanes(code, self.scratch), code.everywhere(t + 1 == job.steps)
        F, Q = (self.matrix(code, job, room, operand) for operand in (K.F, K.Q))
        found = kalman_square_roots.gain_back(ops, F, Q, root)
        return ops.where(last, ops.zero(found), found)

    def in_common(self, code: Code, job: At, room: At, records: Value) -> None:
        """What the steps of all series of a model have in common: a record of each, and what comes of N alone."""
        code = narrow(code)[0][0]  # all lanes find the same
        covs, k, size = Entries, self.room.states, code.size_of_real
        half = k * (k + 1) // 2
        n = job.steps
        self.begin(code, job, room)

        def separated(loops: Gradient, code: Code, cov: Any) -> Any:
            H, R = (loops.matrix(code, job, room, operand) for operand in (K.H, K.R))
            return H, R, *covs.separate(Lanes(code, loops.scratch), H, R, cov)

        def forward(loops: Gradient, code: Code, t: Value, carry: Any) -> Any:
            ops, (packed, bad, doubt) = Lanes(code, loops.scratch), carry
            cov = covs.unpacked(packed, k)
            H, _, weights, variances, factors, rows, after, _ = separated(loops, code, cov)
            kept = Recorded.of(weights, rows, factors).numbers
            at = records + t * (self.room.record * size)
            for e, value in enumerate([*kept, *Entries.packed(after), *packed]):
                code.store_as(at + e * size, code.extract(value, 0))
            F, Q = (loops.matrix(code, job, room, operand) for operand in (K.F, K.Q))
            ahead = covs.predict(ops, F, Q, after)
            doubt = loops.doubted(code, doubt, (cov, ahead), F, H, Q, None, variances)
            bad = kalman_filter.added([bad, *(x * 0.0 for x in variances)])
            return covs.packed(ahead), bad, doubt

        def backward(loops: Gradient, code: Code, t: Value, carry: Any) -> Any:
            ops, N, sums = Lanes(code, loops.scratch), Entries.unpacked(carry[0], k), carry[1]
            at = records + (t * self.room.record + self.room.gains) * size
            numbers = [code.spread(at + e * size) for e in range(2 * half)]
            after, before = Entries.unpacked(numbers[:half], k), covs.unpacked(numbers[half:], k)
            H, R, weights, variances, factors, rows, *_ = separated(loops, code, before)
            seen = kalman_filter.Observed(weights, [], rows, [], variances, factors, [])
            F = loops.matrix(code, job, room, K.F)
            cov = kalman_adjoint.pull_covariance(ops, F, H, R, seen, after, N)
            terms = (-cov.of_F).ravel(), (-cov.of_H).ravel(), Entries.packed(-N), Entries.packed(-cov.of_R)
            return Entries.packed(cov.N), loops.add(code, room, sums, terms)

        cov, doubt = self.first(covs, code, job, room), self.doubt(covs, code, job, room)
        _, bad, doubt = self.steps(code, room, 0, n, forward, (covs.packed(cov), code.zero(), doubt))
        self.put(code, room, bad, self.one(code), code.zero(), doubt)
        N, sums = self.steps(code, room, n - 1, -1, backward, ((code.zero(),) * half, self.none(code, room)), -1)
        self.finish(code, room, sums, (code.zero(),) * k, [-x for x in N])
        target = job.of_covariances

        def entry(e: Value, state: Any) -> Any:
            value = code.load(room + self.room.found + e * LINE)
            code.store_as(target + e * size, code.extract(value, 0))
            return state

        code.fori(0, self.room.entries_of_all, entry)

    def means(self, code: Code, job: At, room: At, records: Value) -> None:
        """The rest of all steps, there and back, of a series in each lane."""
        k, p, size = self.room.states, self.room.observed, code.size_of_real
        kept_lines, n = room + self.room.size, job.steps
        lines = self.room.kept_of_means
        self.begin(code, job, room)

        def recorded(code: Code, t: Value) -> Any:
            at = records + t * (self.room.record * size)
            numbers = iter([code.spread(at + e * size) for e in range(self.room.gains + k * (k + 1) // 2)])
            return Recorded.taken(numbers, k, p), Entries.unpacked(list(numbers), k)

        def forward(loops: Gradient, code: Code, t: Value, mean: Any) -> Any:
            (found, _), H = recorded(code, t), loops.matrix(code, job, room, K.H)
            mean, errors = found.update(H, loops.observations(code, job, room, t), vector(mean))
            scaled = [weight * error for weight, error in zip(found.weights, errors, strict=True)]
            loops.put_row(code, kept_lines + t * (lines * LINE), [*mean, *scaled])
            return tuple(kalman_filter.apply(loops.matrix(code, job, room, K.F), mean))

        def backward(loops: Gradient, code: Code, t: Value, carry: Any) -> Any:
            ops, r, sums = Lanes(code, loops.scratch), vector(carry[0]), carry[1]
            row = loops.row(code, kept_lines + t * (lines * LINE), lines)
            (_, gains, factors), cov = recorded(code, t)
            F, H = (loops.matrix(code, job, room, operand) for operand in (K.F, K.H))
            mean = kalman_adjoint.pull_mean(ops, F, H, row[k:], gains, factors, Estimate(vector(row[:k]), cov), r)

            def terms_of_sums() -> Iterator[Any]:
                yield kalman_filter.outer(r, mean.smoothed).ravel()
                yield kalman_filter.outer(mean.u, mean.smoothed).ravel()
                yield loops.squares(r)
                yield loops.squares(mean.u)

            terms = [*terms_of_sums()] if sums else terms_of_sums()
            loops.put_of_y(code, job, room, t, mean.u)
            return tuple(mean.r), loops.add(code, room, sums, terms)

        self.steps(code, room, 0, n, forward, tuple(self.matrix(code, job, room, K.M0)))
        r, sums = self.steps(code, room, n - 1, -1, backward, ((code.zero(),) * k, self.none(code, room)), -1)
        self.finish(code, room, sums, r, self.squares(vector(r)))
        self.give(code, room)
