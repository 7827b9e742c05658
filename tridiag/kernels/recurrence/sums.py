"""Cumulative sums of short sequences of float64, step by step: several abreast, so that none waits for its own sums.

Where the coefficient is 1 a product changes no bit, and additions alone take less time than to join the steps of eight
lanes. Sixteen lanes are joined sooner, and so are steps of which few belong to one sequence.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import Code

ABREAST = 4, 1  # sequences at a time, as long as there are so many; addresses of more leave the registers
SHORTEST, LONGEST = 12, 64  # steps of sequences that are quicker so


class Sums(NamedTuple):
    """All steps of regularly spaced sequences without values before, whose steps lie side by side."""

    backward: bool

    @property
    def name(self) -> str:
        return f"sums{'_backward' * self.backward}"

    def write(self, code: Code, *words: Value) -> None:
        """``words``: as of `scalar.Plain`."""
        (count, n), operands = words[:2], [words[k : k + 3] for k in (2 + 3 * C.Y, 2 + 3 * C.X)]
        size = -code.size_of_real if self.backward else code.size_of_real

        def group(together: int) -> Any:
            def body(first: Value, state: Any) -> Any:
                y, x = ([address + (first + k) * apart for k in range(together)] for address, _, apart in operands)
                nothing = Value(code, code.constant(code.real, -0.0))  # to add it changes no number
                code.fori(0, n, step(y, x), (nothing,) * together)
                return state

            return body

        def step(y: list[Value], x: list[Value]) -> Any:
            def values(i: Value, sums: Any) -> Any:
                found = []
                for z, source, target in zip(sums, x, y, strict=True):
                    found.append(z + code.load_as(code.real, source + i * size))
                    code.store_as(target + i * size, found[-1])
                return tuple(found)

            return values

        done = code.integer(0)
        for together in ABREAST:
            even = count / together * together
            code.fori(done, even, group(together), step=together)
            done = even
