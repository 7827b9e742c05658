"""Steps: the arithmetic of one row of an elimination, whatever the layout of rows.

Each is what is carried from a row to the next. `down` takes a row: the step behind it, and what is kept of the row;
`up` is x of a row from what was kept, and from x of rows behind it. Pivots are kept as reciprocals; else the equations
are those of `tridiag.algorithms.elimination`.

    Thomas     plain elimination                               keeps c', y'
    Pivoted    partial pivoting, LAPACK's xGTTRF by selects    keeps 1 / q0, q1, q2, q of the row before
    Bordered   plain, the last unknown of a cyclic matrix on   keeps a / pivot, d / pivot, c / pivot
               the right side
    Ends       plain, of a part of a system                    keeps nothing
    Factoring  plain, of a matrix alone                        keeps a / pivot, 1 / pivot, c'

`start` and `leave` say where in memory what is carried lies between two calls: ``kept`` are the rows (`Kept` of
`tridiag.kernels.thomas.sweeps`). Groups side by side leave and start at every row. So Thomas and Pivoted start with all
lanes and strike out, in the integer that is there, those that have lost: a mask made of it would take longer.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tridiag.algorithms import elimination as el
from tridiag.kernels.simd.values import Complex, Value
from tridiag.kernels.simd.vector import Code

# ------------------------------------------------------------------------------------------------ certificate


def certified(code: Code, row: el.Reciprocal, diagonal: Any) -> Value:
    """`elimination.certify`, without `invertible` and `lossless`, which judge many rows.

    Four times a pivot overflows where its reciprocal is no normal number, which XLA's threads take for zero.
    """
    return el.harmless(code, row.growth, row.pivot, diagonal, code.eps, 4.0)


def no_quotient(code: Code) -> Value:
    return Value(code, code.constant(code.vector, math.inf))


def least_quotient(code: Code, least: Value, quotient: Any, x: Any) -> Value:
    """The size of the smallest quotient so far; those of zeros do not count."""
    size = code.size(quotient)
    return code.where(x == 0, least, code.where(size < least, size, least))


def lossless(code: Code, least: Value) -> Value:
    """`tridiag.algorithms.elimination.lossless`, of all quotients at once."""
    return least >= code.tiny


def invertible(code: Code, pivot: Any) -> Value:
    """Where the reciprocal of a pivot is no infinity; NaN has one that is NaN."""
    return ~(code.size(pivot) <= code.tiny)


def unpack(code: Code, good: Value) -> tuple[Value, Value]:
    """The two masks of an integer: certified, and above it invertible."""
    return code.mask(good), code.mask(code.shift(good, -code.lanes))


def pack(code: Code, sure: Value, alive: Value, least: Value) -> Value:
    return code.bits(sure & alive & lossless(code, least)) | code.shift(code.bits(alive), code.lanes)


# ------------------------------------------------------------------------------------------------ steps


class Thomas(NamedTuple):
    """c' and y' of the row above, and what the certificate is made of: 8 flops and one division a row."""

    above: Any
    before: Any
    sure: Value
    alive: Value
    least: Value

    @staticmethod
    def start(code: Code, kept: Any) -> Thomas:
        above, before = kept[code.integer(-1)]
        return Thomas(above, before, code.all_lanes(), code.all_lanes(), no_quotient(code))

    def leave(self, code: Code, kept: Any) -> None:
        code.store_as(kept.good, code.word(kept.good) & pack(code, self.sure, self.alive, self.least))

    def down(self, code: Code, keep: Value, a: Any, b: Any, c: Any, d: Any) -> tuple[Thomas, tuple[Any, ...]]:
        row = el.eliminate_reciprocal(code, self.above, (a, b, c))
        sure, alive = self.sure & certified(code, row, b), self.alive & invertible(code, row.pivot)
        least = least_quotient(code, self.least, row.above, c)
        before = (d - a * self.before) * row.inverse
        above, before = (code.where(keep, x, code.zero()) for x in (row.above, before))
        return Thomas(above, before, sure, alive, least), (above, before)

    @staticmethod
    def up(kept: Any, x1: Any) -> Any:
        above, before = kept
        return before - above * x1


class Pivoted(NamedTuple):
    """The carried row (p0, p1 | r), what is rounding in p0, sure lanes.

    The first row carries that of an unknown x[-1] = 0. A pivot that may be a rounded zero, or whose reciprocal is not a
    normal number, is left to the divisions of `tridiag.kernels.thomas.refined_loops`.
    """

    p0: Any
    p1: Any
    r: Any
    rounding: Value
    sure: Value

    @staticmethod
    def start(code: Code, kept: Any) -> Pivoted:
        p0, p1, r, _ = kept.carried()
        return Pivoted(p0, p1, r, code.load_as(code.vector, kept.between[-1].base), code.all_lanes())

    def leave(self, code: Code, kept: Any) -> None:
        kept.carry(self.p0, self.p1, self.r)
        code.store_as(kept.between[-1].base, self.rounding)
        code.store_as(kept.good, code.word(kept.good) & code.bits(self.sure))

    def invert(self, code: Code, pivot: Any) -> tuple[Any, Value]:
        size = code.size(pivot)
        return code.one() / pivot, self.sure & (size > code.maximum(self.rounding, code.tiny)) & (size < 1 / code.tiny)

    def down(self, code: Code, keep: Value, a: Any, b: Any, c: Any, d: Any) -> tuple[Pivoted, tuple[Any, ...]]:
        """The pivot row is that of the row before, which this one completes."""
        swap, nothing = code.size(a) > code.size(self.p0), code.zero()
        (q0, q1, q), (o0, o1, o) = el.exchange(code, swap, (self.p0, self.p1, self.r), (a, b, d))
        inverse, sure = self.invert(code, q0)
        multiplier = o0 * inverse
        p0, p1 = o1 - multiplier * q1, code.where(swap, -(multiplier * c), c)
        state = (p0, code.one()), (p1, nothing), (o - multiplier * q, nothing)
        p0, p1, r = (code.where(keep, x, gone) for x, gone in state)
        rounding = code.size(o1) * (el.CANCELLATION * code.eps)
        return Pivoted(p0, p1, r, rounding, sure), (inverse, q1, code.where(swap, c, nothing), q)

    @staticmethod
    def up(kept: Any, x1: Any, x2: Any) -> Any:
        inverse, q1, q2, q = kept
        return (q - q1 * x1 - q2 * x2) * inverse


class Bordered(NamedTuple):
    """What is left of two rows, and the certified lanes.

    Row i - 1: x[i-1] = before + factor x[n-1] - above x[i]; the last row: below x[i] + diagonal x[n-1] = right.
    """

    above: Any
    before: Any
    factor: Any
    below: Any
    diagonal: Any
    right: Any
    sure: Value
    least: Value

    @staticmethod
    def start(code: Code, kept: Any) -> Bordered:
        return Bordered._make([*kept.carried(), code.mask(code.word(kept.good)), no_quotient(code)])

    def leave(self, code: Code, kept: Any) -> None:
        kept.carry(*self[:-2])
        code.store_as(kept.good, code.bits(self.sure & lossless(code, self.least)))

    def down(self, code: Code, keep: Value, a: Any, b: Any, c: Any, d: Any) -> tuple[Bordered, tuple[Any, ...]]:
        row, d = el.eliminate_reciprocal(code, self.above, (a, b, c)), code.where(keep, d, code.zero())
        sure = self.sure & certified(code, row, b) & invertible(code, row.pivot)
        kept = slope, given, above = a * row.inverse, d * row.inverse, row.above
        least = least_quotient(code, least_quotient(code, self.least, slope, a), above, c)
        before, factor = given - slope * self.before, -(slope * self.factor)
        diagonal, right = self.diagonal + self.below * factor, self.right - self.below * before
        return Bordered(above, before, factor, -(self.below * above), diagonal, right, sure, least), kept


class Ends(NamedTuple):
    """How the last row so far and the first one depend on the unknown before all rows and the one behind.

    Row i - 1: x[i-1] = before + factor x[-1] - above x[i]; x[0] = first + first_factor x[-1] + first_own x[i].
    """

    above: Any
    before: Any
    factor: Any
    first: Any
    first_factor: Any
    first_own: Any
    sure: Value
    alive: Value
    least: Value

    @staticmethod
    def start(code: Code, kept: Any) -> Ends:
        return Ends._make([*kept.carried(), *unpack(code, code.word(kept.good)), no_quotient(code)])

    def leave(self, code: Code, kept: Any) -> None:
        kept.carry(*self[:-3])
        code.store_as(kept.good, pack(code, self.sure, self.alive, self.least))

    def down(self, code: Code, keep: Value, a: Any, b: Any, c: Any, d: Any) -> tuple[Ends, tuple[Any, ...]]:
        row = el.eliminate_reciprocal(code, self.above, (a, b, c))
        sure, alive = self.sure & certified(code, row, b), self.alive & invertible(code, row.pivot)
        least, slope = least_quotient(code, self.least, row.above, c), a * row.inverse
        before, factor = d * row.inverse - slope * self.before, -(slope * self.factor)
        first, first_factor = self.first + self.first_own * before, self.first_factor + self.first_own * factor
        own = -(self.first_own * row.above)
        return Ends(row.above, before, factor, first, first_factor, own, sure, alive, least), ()


class Factoring(NamedTuple):
    """c' of the row above, and what the certificate is made of."""

    above: Any
    sure: Value
    alive: Value
    least: Value

    @staticmethod
    def start(code: Code, kept: Any) -> Factoring:
        (above,) = kept.carried()
        return Factoring(above, *unpack(code, code.word(kept.good)), no_quotient(code))

    def leave(self, code: Code, kept: Any) -> None:
        kept.carry(self.above)
        code.store_as(kept.good, pack(code, self.sure, self.alive, self.least))

    def down(self, code: Code, keep: Value, a: Any, b: Any, c: Any) -> tuple[Factoring, tuple[Any, ...]]:
        row = el.eliminate_reciprocal(code, self.above, (a, b, c))
        sure, alive = self.sure & certified(code, row, b), self.alive & invertible(code, row.pivot)
        slope = a * row.inverse
        least = least_quotient(code, least_quotient(code, self.least, slope, a), row.above, c)
        above = code.where(keep, row.above, code.zero())
        return Factoring(above, sure, alive, least), (slope, row.inverse, above)


class Verifying(NamedTuple):
    """The residuals of a solution that is substituted upwards: in which lanes all are as small as "auto" promises.

    That of a row is taken relative to |A||x| + |d| there, as in `tridiag.algorithms.matrix_rows.residual`. It may be
    `REFINE_ABOVE` eps; one that is not a number is too large. Carried are x of the two rows behind, and of the nearer
    its residual but for the coupling to the row at hand, the scale of that, and the coupling.
    """

    x1: Any
    x2: Any
    rest: Any
    scale: Value
    coupling: Any
    fine: Value

    @staticmethod
    def below(code: Code, fine: Value) -> Verifying:
        """Below the last row."""
        zero = code.zero()
        return Verifying(zero, zero, zero, code.real_zero(), zero, fine)

    def close(self, code: Code, x: Any) -> Value:
        """The lanes that are fine with the row behind."""
        rest = code.size(less(code, self.rest, self.coupling, x))
        return self.fine & small(code, rest, self.scale + code.size(self.coupling) * code.size(x))

    def next(self, code: Code, x: Any, a: Any, b: Any, c: Any, d: Any) -> Verifying:
        rest = less(code, less(code, d, b, x), c, self.x1)
        scale = code.size(d) + code.size(b) * code.size(x) + code.size(c) * code.size(self.x1)
        return Verifying(x, self.x1, rest, scale, a, self.close(code, x))


def less(code: Code, rest: Any, x: Any, y: Any) -> Any:
    """rest - x y."""
    if code.parts == 1:
        return rest - x * y
    real = rest.real - x.real * y.real - -x.imag * y.imag
    return Complex(real, rest.imag - x.real * y.imag - x.imag * y.real)


def small(code: Code, rest: Value, scale: Value) -> Value:
    """Where residuals of some size are small enough; a product of complex numbers can be half that of their sizes."""
    bar = el.REFINE_ABOVE * code.eps
    return rest <= code.maximum(scale * (bar / code.parts), 4 * code.tiny / code.eps * bar)
