"""What a worker of an alignment knows of the group of pairs at hand, and what is done before and behind its cells."""

from __future__ import annotations

import math

from llvmlite import ir

from tridiag.kernels.jobs.words.alignment import HOTTEST
from tridiag.kernels.simd.powers import HIGHEST, LOWEST, Power, constant, integer, integers, nothing
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import I32, LINE, Code

# A row of lanes each: the lengths; the parameters, log2(e) / T; Z so far, and the log of its mantissa; what tells of
# scores that are NaN; the largest score; the inverse of Z; the gradients of the parameters, in place of that of T the
# scores times theirs; the score; the least T, see `cool`.
(
    ROWS_, COLUMNS_, GAP_, OPEN_, TEMPERATURE_, FACTOR_, Z_M, Z_E, Z_LOG, FLAW, PEAK, INVERSE_M, INVERSE_E, BY_GAP_,
    BY_OPEN_, BY_TEMPERATURE_, SCORE_, LEAST_, RECORD,
) = range(19)  # fmt: skip
PARAMETERS, SUMS = 3, 3
NEGLIGIBLE = {4: 2.0**-90, 8: 2.0**-800}  # by the bytes of a real: a probability below it is 0


def get(code: Code, address: Value, k: int) -> Power:
    """The k-th number at an address."""
    return Power(code.load(address + 2 * k * LINE), load_integers(code, address + (2 * k + 1) * LINE))


def put(code: Code, address: Value, k: int, x: Power) -> None:
    code.store(address + 2 * k * LINE, x.m)
    code.store(address + (2 * k + 1) * LINE, x.e)


def load_integers(code: Code, address: Value) -> Value:
    return code.load_as(integers(code), address)


def spread(code: Code, i: Value) -> Value:
    """An integer in all lanes."""
    return code.repeat(Value(code, code.builder.trunc(i.llvm, integers(code).element)), code.lanes)


def begin(code: Code, record: Value) -> None:
    """What follows from the lengths and parameters of a group: see TOLD."""
    count = ir.VectorType(I32, code.lanes)
    for k in (ROWS_, COLUMNS_):
        length = code.load_as(count, record + k * LINE).llvm
        whole = length if code.size_of_real == 4 else code.builder.sext(length, integers(code))
        code.store(record + k * LINE, Value(code, whole))
    given, least, zero = code.load(record + TEMPERATURE_ * LINE), code.load(record + LEAST_ * LINE), code.zero()
    t = code.where(least > given, least, given)
    t = code.where(t < 4 * code.tiny, constant(code, 4 * code.tiny), t)  # whose inverse is finite
    good = (given > 0) & (given <= HOTTEST[code.size_of_real])
    code.store(record + TEMPERATURE_ * LINE, t)
    code.store(record + FACTOR_ * LINE, code.where(good, math.log2(math.e) / t, constant(code, math.nan)))
    put(code, record + Z_M * LINE, 0, nothing(code))
    code.store(record + PEAK * LINE, constant(code, -math.inf))
    for k in (FLAW, *range(BY_GAP_, BY_GAP_ + SUMS)):
        code.store(record + k * LINE, zero)


def cool(code: Code, record: Value, steps: Value) -> Value:
    """Whether T is below the least for which exponents stay in their range; then a group is done again with that.

    So low a T no longer matters: next to the largest score, or a gap that is worth more, it is lost in the rounding of
    the sum over an alignment of so many steps, each match of which is two.
    """
    t, gap, opening, peak = (code.load(record + k * LINE) for k in (TEMPERATURE_, GAP_, OPEN_, PEAK))
    worth = code.magnitude(peak) * 0.5
    for x in (gap, opening):
        worth = code.where(x > worth, x, worth)
    worth = code.where(worth < math.inf, worth, code.zero())
    least = worth * (as_reals(code, spread(code, steps)) * (math.log2(math.e) / HIGHEST[code.size_of_real]))
    lower = least > t
    code.store(record + LEAST_ * LINE, code.where(lower, least, code.zero()))
    return code.pick(code.bits(lower) == 0, code.integer(0), code.integer(1))


def settle(code: Code, record: Value) -> None:
    """The score from Z, whose mantissa has its logarithm in Z_LOG. Where all are -inf the score is, its gradient 0.

    So it is where no alignment counts, or only such as go through what is forbidden, which has an exponent of -LOWEST.
    Where a score is inf so is that of the pair, and its gradient NaN. Where an argument is NaN, or a gap inf, both are.
    """
    read = [code.load(record + k * LINE) for k in (Z_M, Z_LOG, TEMPERATURE_, FLAW, PEAK, FACTOR_, GAP_, OPEN_)]
    m, log, t, flaw, peak, factor, gap, opening = read
    e = load_integers(code, record + Z_E * LINE)
    infinite, empty = peak == math.inf, (peak == -math.inf) | (e < integer(code, -LOWEST[code.size_of_real] // 2))
    good = (flaw == 0) & (factor == factor)
    for x in (gap, opening):
        good = good & (x < math.inf)
    score = t * (log + as_reals(code, e) * math.log(2))
    score = code.where(empty, constant(code, -math.inf), score)
    nan = constant(code, math.nan)
    score = code.where(infinite, constant(code, math.inf), score)
    inverse = code.where(infinite, nan, code.where(empty, code.zero(), 1.0 / m))
    code.store(record + SCORE_ * LINE, code.where(good, score, nan))
    put(code, record + INVERSE_M * LINE, 0, Power(code.where(good, inverse, nan), integer(code, 0) - e))


def as_reals(code: Code, x: Value) -> Value:
    return Value(code, code.builder.sitofp(x.llvm, code.vector))


def conclude(code: Code, record: Value) -> None:
    """The gradient by the temperature, from those by all else: the score is homogeneous in all parameters together."""
    t, score, gap, opening = (code.load(record + k * LINE) for k in (TEMPERATURE_, SCORE_, GAP_, OPEN_))
    by_gap, by_open, by_score = (code.load(record + (BY_GAP_ + k) * LINE) for k in range(SUMS))
    rest = score - by_score
    for parameter, gradient in ((gap, by_gap), (opening, by_open)):
        rest = rest - code.where(gradient == 0, code.zero(), gradient * parameter)
    finite = code.load(record + INVERSE_M * LINE) != 0
    code.store(record + BY_TEMPERATURE_ * LINE, code.where(finite, rest / t, code.zero()))
