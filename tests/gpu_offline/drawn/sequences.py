"""`linear_recurrence`, `matrix_recurrence`, `log_linear_recurrence` and `logcumsumexp`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from helpers import noise

import tridiag
from drawn import DTYPES, Array, Outcome, Refused, Where, chosen, in_kinds, same_bits, sizes
from drawn.kinds_of_sequences import BAD, LINEAR, LOGARITHMS, Linear, Logarithms, spoil
from drawn.memory import Memory
from drawn.roundings import judge_linear, judge_logarithms


class Call(NamedTuple):
    """All but the numbers; the axes of an array are (sequences, sequences inside, steps), the last one moved."""

    verb: str
    dtype: str
    order: int
    rows: int  # of a matrix
    count: int
    inner: int
    n: int
    axis: int
    reverse: bool
    started: bool
    final: bool
    into: bool
    shared: int  # which coefficient is one for all sequences, or for all steps; -1: none

    @classmethod
    def draw(cls, rng: np.random.Generator, where: Where, verb: str, dtypes: Any = DTYPES) -> Call:
        matrices, sums = verb == "matrix_recurrence", verb == "logcumsumexp"
        order = int(rng.choice([1, 1, 1, 2, 2, 3, 4])) if verb == "linear_recurrence" else 1
        rows = int(rng.integers(1, 9)) if matrices else 0
        m, n = sizes(rng, where, 2**15 // max(1, rows**2), 9000 if not matrices else 400)
        inner = int(rng.integers(1, min(m, 70) + 1)) if rng.random() < 0.5 else 1
        flags = [bool(rng.random() < 0.4) for _ in range(4)]
        return cls(
            verb, str(rng.choice(dtypes)), order, rows, max(1, m // inner), inner, n,
            2 if matrices else int(rng.integers(3)), flags[0], flags[1] and not sums, flags[2] and not sums, flags[3],
            int(rng.integers(3)) - 1,
        )  # fmt: skip

    @property
    def place(self) -> int:
        """Of the axis along which the first coefficient is constant."""
        return self.axis if self.shared else int(self.axis == 0)

    def laid(self, x: Array) -> Array:
        """Sequences as they lie in a call."""
        x = x.reshape(self.count, self.inner, *x.shape[1:])
        return x if self.rows else np.moveaxis(x, 2, self.axis)

    def back(self, y: Array) -> Array:
        y = y if self.rows else np.moveaxis(y, self.axis, 2)
        return np.ascontiguousarray(y.reshape(self.count * self.inner, *y.shape[2:]))

    def run(self, rng: np.random.Generator, given: list[Array], init: list[Array]) -> Array:
        """The sequences; what is said to be their ends is that."""
        memory = Memory(rng)
        *a, x = [memory.given(self.laid(v)) for v in given]
        begin = [memory.given(v.reshape(self.count, self.inner, *v.shape[1:])) for v in init]
        if self.shared >= 0 and a:
            a[0] = a[0][(slice(None),) * self.place + (slice(1),)]
        options: dict[str, Any] = {"backend": "cupy_scan", "reverse": self.reverse}
        options |= {} if self.rows else {"axis": self.axis}
        options |= {"return_final": True} if self.final else {}
        out = memory.written(self.laid(np.zeros_like(given[-1]))) if self.into else None
        coefficients = [tuple(a) if len(a) > 1 else a[0]] if a else []
        start = [tuple(begin) if len(begin) > 1 else begin[0]] if begin else []
        y = getattr(tridiag, self.verb)(*coefficients, x, *start, **options, **({"out": out} if self.into else {}))
        y, last = y if self.final else (y, ())
        if self.into and y is not out:
            raise Refused("the result is not the array that was given for it")
        memory.check()
        if y.shape != x.shape or str(y.dtype) != self.dtype:
            raise Refused(f"the result is {y.dtype}{y.shape}")
        found = self.back(y.get())
        self.check_ends(found, [v.get() for v in (last if isinstance(last, tuple) else (last,))], init)
        return found

    def check_ends(self, y: Array, last: list[Array], init: list[Array]) -> None:
        """The last values of a sequence, or of what was before it, are those that are returned."""
        for k, v in enumerate(last):
            row = (
                y[:, k if self.reverse else self.n - 1 - k]
                if k < self.n
                else init[k - self.n]
                if init
                else np.zeros_like(y[:, 0])
            )
            if not np.array_equal(v.reshape(row.shape), row, equal_nan=True):
                raise Refused(f"final value {k} is not that of the sequence")


def ask(rng: np.random.Generator, call: Call, kinds: Array, given: list[Array], judge: Any) -> Outcome:
    """Have it run, with what is bad in some sequences and without."""
    if call.shared >= 0 and len(given) > 1:
        first = given[0]
        first[...] = first[:1] if call.shared == 0 else first[:, :1]
        if call.shared == 0:  # of the first ones alone
            inside = first.reshape(call.count, call.inner, *first.shape[1:])
            inside[...] = inside[:1]
    init = [noise(rng, v.shape[:1] + v.shape[2:], call.dtype) for v in [given[-1]] * call.order] if call.started else []
    spoilt = (
        [*given[:1], *spoil(rng, kinds, given[1:])] if call.shared >= 0 and len(given) > 1 else spoil(rng, kinds, given)
    )
    seed, bad = int(rng.integers(2**60)), np.isin(kinds, BAD)
    hidden = [v.copy() for v in spoilt]
    if not call.started and rng.random() < 0.5 and call.shared < 0:  # coefficients that are not read
        for k, v in enumerate(hidden[:-1]):
            v[:, slice(max(0, call.n - 1 - k), None) if call.reverse else slice(k + 1)] = np.nan
    y = call.run(np.random.default_rng(seed), hidden, init)
    error = judge(call, spoilt, init, y)
    if bad.any() and not bad.all():
        again = call.run(
            np.random.default_rng(seed),
            [np.where(bad.reshape(-1, *[1] * (v.ndim - 1)), v, h) for v, h in zip(given, hidden, strict=True)],
            init,
        )
        error[~same_bits(y, again) & ~bad] = np.inf
    return Outcome(str(call), kinds, error)


def linear_recurrence(rng: np.random.Generator, where: Where) -> Outcome:
    return linear(rng, Call.draw(rng, where, "linear_recurrence"))


def matrix_recurrence(rng: np.random.Generator, where: Where) -> Outcome:
    return linear(rng, Call.draw(rng, where, "matrix_recurrence"))


def linear(rng: np.random.Generator, call: Call) -> Outcome:
    m, count = call.rows, call.count * call.inner
    inner = ((m, m), (m,)) if m else ((), ())
    kinds = chosen(rng, LINEAR, count)
    given = [np.empty((count, call.n, *inner[0]), call.dtype) for _ in range(call.order)]
    given.append(np.empty((count, call.n, *inner[1]), call.dtype))
    in_kinds(kinds, Linear(rng, call.n, call.order, call.dtype, inner).make, *given)
    return ask(rng, call, kinds, given, judge_linear)


def log_linear_recurrence(rng: np.random.Generator, where: Where, verb: str = "log_linear_recurrence") -> Outcome:
    call = Call.draw(rng, where, verb, ("float64", "float32"))
    count = call.count * call.inner
    kinds = chosen(rng, LOGARITHMS, count)
    given = [np.empty((count, call.n), call.dtype) for _ in range(2)]
    in_kinds(kinds, Logarithms(rng, call.n, call.dtype).make, *given)
    return ask(rng, call, kinds, given if verb == "log_linear_recurrence" else given[1:], judge_logarithms)


def logcumsumexp(rng: np.random.Generator, where: Where) -> Outcome:
    return log_linear_recurrence(rng, where, "logcumsumexp")
