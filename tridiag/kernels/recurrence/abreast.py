"""Short sequences of first order, step by step: several abreast, so that none waits for its own values.

Operands are walked by an address each, of which the compiler cannot tell that it grows evenly: else it keeps one for
each sequence, for which there are no registers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import I64, Code


class Abreast(NamedTuple):
    """All steps of regularly spaced sequences without values before, all operands of which have the same stride."""

    together: tuple[int, ...]  # sequences at a time, as long as there are so many

    def write(self, code: Code, *words: Value) -> None:
        """``words``: as of `scalar.Plain`, without the first."""
        (count, n), stride = words[:2], words[2 + 3 * C.Y + 1]
        operands = [words[k : k + 3] for k in range(2, 2 + 3 * (C.A + 1), 3)]
        apart = operands[C.Y][2]  # as far as those of all operands

        def group(together: int) -> Any:
            distances = [apart * k for k in range(together)]

            def places(address: Value) -> list[Value]:
                return [address + distance for distance in distances]

            def step(_: Value, state: Any) -> Any:
                addresses, before = state
                addresses = tuple(opaque(code, address + stride) for address in addresses)
                found = []
                for y, x, a, value in zip(*map(places, addresses), before, strict=True):
                    found.append(code.load_as(code.real, a) * value + code.load_as(code.real, x))
                    code.store_as(y, found[-1])
                return addresses, tuple(found)

            def body(first: Value, state: Any) -> Any:
                addresses = tuple(operand[0] + first * apart for operand in operands)
                begin = tuple(code.load_as(code.real, x) for x in places(addresses[C.X]))
                for y, x in zip(places(addresses[C.Y]), begin, strict=True):
                    code.store_as(y, x)
                code.fori(1, n, step, (addresses, begin))
                return state

            return body

        done = code.integer(0)
        for together in self.together:
            even = count / together * together
            code.fori(done, even, group(together), step=together)
            done = even


def opaque(code: Code, x: Value) -> Value:
    """An integer of which the compiler knows nothing."""
    return Value(code, code.builder.asm(ir.FunctionType(I64, [I64]), "", "=r,0", [x.llvm], False))
