"""The operations of `algorithms.logsumexp` on JAX arrays, with an exp of doubles that keeps errors within 2 units.

In eps = 2**-52, for results y between 1 and 2, where a unit is 1 eps and so smallest against what comes before it; the
sum of exponentials is m 2**k:

- of each exp(x): 0.13 from the rounding of r = x - k log(2), as abs(r) < 1/2, and from `exp_near_0` 0.56 for r > 0,
  0.68 for r < 0; of their sum no more, as it is in two numbers;
- of log(high + low): 0.5 / m from high + low, with m from 1 to 2, 0.13 from XLA's log, and up to 0.13 from adding the
  low part of k log(2). The last two are that large only if the logarithm is above 1/4, where m > 1.28: 0.65 in all;
- 0.5 of the result itself.

That is 1.96. XLA's own exp on the CPU is 1.27 off, and made 2.15 of it. In single precision that is 0.63 with the
rounding of r, found over all x, the logarithm is 0.78 off, over all m, and the sum is 1.91.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from tridiag.algorithms import logsumexp

QUOTIENT = (  # r coth(r / 2) - 2 = r**2 (...), highest power first, as in FreeBSD's e_exp.c
    4.13813679705723846039e-08, -1.65339022054652515390e-06, 6.61375632143793436117e-05, -2.77777777770155933842e-03,
    1.66666666666666019037e-01,
)  # fmt: skip


class Exponentials(logsumexp.Arrays):
    def exponential(self, x: Any, correction: Any = None) -> tuple[Any, Any]:
        """As in `logsum.Arrays`."""
        r, k = self.reduced(self.clamp(x, self.far))
        r = r if correction is None else r + correction
        return exp_near_0(self.clamp(r, logsumexp.ROOM)), k

    def exponent(self, x: Any) -> Any:
        """The second result of `exponential` alone."""
        return self.reduced(self.clamp(x, self.far))[1]


def exp_near_0(r: Any) -> Any:
    """exp(r) for abs(r) <= log(2) / 2: 1 + r + r c / (2 - c), so that only the last two sums round by much.

    Those are off by 1/8 eps and by half a unit of the result, the quotient, of 0.07 at most, by 0.15 eps.
    """
    if r.dtype != jnp.float64:
        return jnp.exp(r)
    square = r * r
    total = jnp.full_like(r, QUOTIENT[0])
    for coefficient in QUOTIENT[1:]:
        total = total * square + coefficient
    c = r - square * total
    return 1 - (r * c / (c - 2) - r)
