"""Solutions looked at while they are in cache: in which systems all residuals are as small as "auto" promises.

That of a row is taken relative to |A||x| + |d| there, as in `tridiag.algorithms.matrix_rows.residual`. It may be
`REFINE_ABOVE` eps; one that is not a number is too large.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.algorithms import elimination as el
from tridiag.kernels.access.load_store import put_interleaved, take_interleaved
from tridiag.kernels.access.rows import ITERATE, SWEEPS, Rows, planes
from tridiag.kernels.simd.values import Complex, Value
from tridiag.kernels.simd.vector import LINE, Code


def less_in_pairs(code: Code, rest: Value, x: Value, y: Value) -> Value:
    """rest - x y of numbers as they lie in memory, complex ones as pairs; rounded as by `less`."""
    if code.parts == 1:
        return rest - x * y
    count = code.lanes
    real, imaginary = (code.shuffle(x, x, [k // 2 * 2 + part for k in range(count)]) for part in range(2))
    turned = code.shuffle(imaginary, -imaginary, [k + (k + 1) % 2 * count for k in range(count)])
    return rest - real * y - turned * code.shuffle(y, y, [k ^ 1 for k in range(count)])


def less(code: Code, rest: Any, x: Any, y: Any) -> Any:
    """rest - x y."""
    if code.parts == 1:
        return rest - x * y
    real = rest.real - x.real * y.real - -x.imag * y.imag
    return Complex(real, rest.imag - x.real * y.imag - x.imag * y.real)


def size(code: Code, x: Value) -> Value:
    """The size of numbers as they lie in memory; of a complex one, at both of its parts."""
    x = code.magnitude(x)
    return x if code.parts == 1 else x + code.shuffle(x, x, [k ^ 1 for k in range(x.llvm.type.count)])


def small(code: Code, rest: Value, scale: Value) -> Value:
    """Where residuals of some size are small enough; a product of complex numbers can be half that of their sizes."""
    bar = el.REFINE_ABOVE * code.eps
    return rest <= code.maximum(scale * (bar / code.parts), 4 * code.tiny / code.eps * bar)


def verify_lines(code: Code, *words: Any) -> Value:
    """The lanes where all residuals are small. Each system is contiguous, and of more rows than a cache line holds.

    Rows are taken from memory as they lie there, a line of one lane at a time.
    """
    operands, moves, (x_at, count, used) = words[:4], words[4:8], words[8:]
    entry, height = code.parts * code.size_of_real, code.lanes // code.parts

    def lane(k: Value, state: Any) -> Any:
        tables = [operand.addresses.lanes + k * 8 for operand in (*operands, x_at)]
        a, b, c, d = (code.word(table) + move * entry for table, move in zip(tables[:4], moves, strict=True))
        x = code.word(tables[4])

        def rows(address: Value, i: Value) -> Value:
            return code.load_as(code.vector, address + i * entry)

        def shifted(rows: Value, by: int) -> Value:
            """One row further down or up, zero in the row that comes in."""
            places = [k - by * code.parts for k in range(code.lanes)]
            return code.shuffle(rows, code.real_zero(), [k if 0 <= k < code.lanes else code.lanes for k in places])

        def fine(i: Value, first: bool = False, last: bool = False) -> Value:
            here, diagonal, right = rows(x, i), rows(b, i), rows(d, i)
            below, before = (shifted(rows(a, i + 1), 1), shifted(here, 1)) if first else (rows(a, i), rows(x, i - 1))
            above, after = (shifted(rows(c, i - 1), -1), shifted(here, -1)) if last else (rows(c, i), rows(x, i + 1))
            rest, scale = right, size(code, right)
            for coefficient, value in ((diagonal, here), (above, after), (below, before)):
                rest = less_in_pairs(code, rest, coefficient, value)
                scale = scale + size(code, coefficient) * size(code, value)
            return small(code, size(code, rest), scale)

        end = count - height
        found = fine(code.integer(0), first=True) & fine(end, last=True)
        (found,) = code.fori(height, end, lambda i, state: (state[0] & fine(i),), (found,), step=height)
        whole = code.bits(found) == 2**code.lanes - 1
        return (state[0] | code.pick(whole, code.power(k), code.integer(0)),)

    (bits,) = code.fori(0, used, lane, (code.integer(0),))
    return bits


class Verifying(NamedTuple):
    """x of the two rows behind; of the nearer its residual but for the coupling to the row at hand, and that coupling.

    ``scale`` is that of the residual, ``fine`` the lanes where all of them were small.
    """

    x1: Any
    x2: Any
    rest: Any
    scale: Value
    coupling: Any
    fine: Value

    @staticmethod
    def start(code: Code, fine: Value) -> Verifying:
        """Below the last row."""
        zero = code.zero()
        return Verifying(zero, zero, zero, code.real_zero(), zero, fine)

    def close(self, code: Code, x: Any) -> Value:
        """The lanes that are fine with the row behind."""
        rest = code.size(less(code, self.rest, self.coupling, x))
        return self.fine & small(code, rest, self.scale + code.size(self.coupling) * code.size(x))

    def step(self, code: Code, x: Any, a: Any, b: Any, c: Any, d: Any) -> Verifying:
        rest = less(code, less(code, d, b, x), c, self.x1)
        scale = code.size(d) + code.size(b) * code.size(x) + code.size(c) * code.size(self.x1)
        return Verifying(x, self.x1, rest, scale, a, self.close(code, x))


def backward_verified_interleaved(code: Code, *words: Any) -> Value:
    """The solution of a group, of at least two rows, whose lanes lie side by side, in place of q of its pivot rows.

    As it lies in memory. Meanwhile the bands ``ahead`` bytes further on are asked for. Returns those of the lanes
    ``sure`` where all residuals are small.
    """
    operands, moves, (group, source, step, count, sure, ahead) = words[:4], words[4:8], words[8:]
    strides, zero, last = [operand.stride for operand in operands], code.zero(), count - 1
    tables = [operand.lanes[0] + group for operand in operands]
    bases = [table + move * stride for table, move, stride in zip(tables, moves, strides, strict=True)]
    pivots = [Rows(code, source + k * code.row, step) for k in range(4)]

    def row(i: Value, state: Any, top: bool = False, bottom: bool = False) -> Any:
        state, outside = Verifying(*state), (top, False, bottom, False)
        entries = [
            zero if gone else take_interleaved(code, base + i * stride)
            for base, stride, gone in zip(bases, strides, outside, strict=True)
        ]
        for base, stride in zip(bases, strides, strict=True):
            for line in range(0, code.row, LINE):
                code.prefetch(base + i * stride + ahead + line)
        inverse, q1, q2, q = (rows[i] for rows in pivots)
        here = (q - q1 * state.x1 - q2 * state.x2) * inverse
        put_interleaved(code, pivots[3].base + i * step, here)
        return state.step(code, here, *entries)

    state = row(last, Verifying.start(code, code.mask(sure)), bottom=True)
    state = code.fori(last - 1, 0, row, state, step=-1)
    return code.bits(row(code.integer(0), state, top=True).close(code, zero))


def verify(code: Code, base: Value, count: Value) -> Value:
    """The same of a solution in planes."""
    a, b, c, d = planes(code, base, 4, count)
    (x,), zero = planes(code, base + count * (ITERATE * code.row), 1, count), code.zero()

    def row(k: Value, state: Any) -> Any:
        i = count - 1 - k
        return Verifying(*state).step(code, x[i], a[i], b[i], c[i], d[i])

    state = code.fori(0, count, row, Verifying.start(code, code.all_lanes()))
    return code.bits(Verifying(*state).close(code, zero))


VERIFY, VERIFY_LINES = SWEEPS.add("verify", verify), SWEEPS.add("verify_lines", verify_lines)
BACKWARD_VERIFIED_INTERLEAVED = SWEEPS.add("backward_verified_interleaved", backward_verified_interleaved)
