"""y[t] = log(sum of exp(x[s]) over s <= t) of complex numbers, by two linear recurrences that cannot overflow.

With 2**k[t] the largest power of two so far, exp(Re x[t]) = m[t] 2**k with m next to 1, the sum is s[t] 2**k[t]:

    s[t] = 2**(k[t-1] - k[t]) s[t-1] + m[t] 2**(k - k[t]) exp(i Im x[t]),   y[t] = k[t] log(2) + log(s[t]).

Coefficients are powers of two, so that only additions round. What they have lost is found exactly, as in
`tridiag.algorithms.logsumexp`, and summed by the same recurrence. Logarithms are principal: imaginary parts from -pi to
pi. Real parts of sizes that leave no room for their neighbours, or infinite ones, are alike where they are equal, and
exp(-inf + i z) is 0 for any z.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tridiag.algorithms.logsumexp import Arrays, is_far, two_sum
from tridiag.algorithms.recurrence import behind
from tridiag.problems.forms import Recurrence


def logcumsumexp(ops: Any, linear: Callable[..., Any], x: Any, form: Recurrence) -> Any:
    """``linear(coefficients, x, init, form)`` is a linear recurrence."""
    real, rows = x.real, Arrays(ops, x.real)
    direction = ops.exp(1j * ops.where(real == -math.inf, ops.zero(real), x.imag))
    largest = ops.running_maximum(real, form.axis, form.reverse)
    mantissa, exponent = rows.exponential(real)
    scale = ops.running_maximum(exponent, form.axis, form.reverse)
    far, before, nothing = is_far(rows, largest), behind(ops, largest, 1, (), form), ops.zero(real)
    kept = rows.power_of_two(behind(ops, scale, 1, (), form) - scale)
    kept = ops.where(far & (before != largest), nothing, kept)
    size = mantissa * rows.power_of_two(exponent - scale)
    terms = direction * ops.where(far, ops.where(real < largest, nothing, ops.one(real)), size)
    total = linear((kept,), terms, (), form)
    added, error = two_sum(kept * behind(ops, total, 1, (), form), terms)
    log = ops.log(total + linear((kept,), (added - total) + error, (), form))
    y = rows.times_ln2(scale, log.real) + 1j * log.imag
    return ops.where(far & (total == total), largest + 1j * log.imag, y)
