"""The product of all pivots of an elimination with exchanges, as a mantissa and an exponent in each lane."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from llvmlite import ir

from tridiag.algorithms import elimination as el
from tridiag.kernels.access.layouts import views_of
from tridiag.kernels.access.rows import SWEEPS, UPPER, Rows
from tridiag.kernels.simd.explog import logarithm, numbers, plus_ln2
from tridiag.kernels.simd.powers import MANTISSA, integer, integers
from tridiag.kernels.simd.values import Complex, Value
from tridiag.kernels.simd.vector import I64, Code

# what lies in memory between two calls, by rows of lanes: what is carried, the product, its exponents (an int64 a
# lane), and in words the lanes that met a zero pivot, and those that lost digits
CARRIED, PRODUCT, EXPONENTS, WORDS, ROOM = 0, 2, 3, 5, 6
SINGULAR, LOST = 0, 8  # bytes
FEW = 32  # mantissas whose product does not overflow
RAISED = 64  # powers of two by which a subnormal number is made a normal one


class State(NamedTuple):
    """The carried row, and the product of the pivots so far."""

    p0: Any
    p1: Any
    product: Any
    exponent: Value
    singular: Value
    lost: Value


class Product:
    """A sweep over rows, in some memory."""

    def __init__(self, code: Code, memory: Value) -> None:
        self.code, self.memory = code, memory
        self.exponents = memory + EXPONENTS * code.row
        self.words = memory + WORDS * code.row

    def start(self) -> State:
        code = self.code
        p0, p1, product = (code.load(self.memory + k * code.row) for k in range(EXPONENTS))
        singular, lost = (code.mask(code.word(self.words + place)) for place in (SINGULAR, LOST))
        return State(p0, p1, product, integer(code, 0), singular, lost)

    def step(self, state: State, i: Value, keep: Value, *row: Any) -> State:
        code = self.code
        (p0, p1), pivot = el.eliminate(code, state[:2], row, True)
        lost = state.lost | ~el.keeps_digits(code, state[:2], row[0], pivot, (p0, p1), code.tiny)
        product, exponent = times(code, state.product, state.exponent, pivot.q0)
        product = code.where(pivot.swap, -product, product)
        p0, p1 = code.where(keep, p0, code.one()), code.where(keep, p1, code.zero())
        return State(p0, p1, product, exponent, state.singular | (pivot.q0 == 0), lost)

    def leave(self, state: State) -> None:
        """The mantissa of the product is between 1 and 2 again, and of a few rows a number that does not overflow."""
        code = self.code
        product, exponent = times(code, code.one(), state.exponent, state.product)
        for k, x in enumerate((state.p0, state.p1, product)):
            code.store(self.memory + k * code.row, x)
        wide = ir.VectorType(I64, code.lanes)
        more = exponent.llvm if code.size_of_real == 8 else code.builder.sext(exponent.llvm, wide)
        code.store_as(self.exponents, code.load_as(wide, self.exponents) + Value(code, more))
        for place, lanes in ((SINGULAR, state.singular), (LOST, state.lost)):
            code.store_as(self.words + place, code.bits(lanes))


def times(code: Code, product: Any, exponent: Value, x: Any) -> tuple[Any, Value]:
    """A product and a number, whose exponent is added to that of the product; what is not finite has none."""
    digits, size = MANTISSA[code.size_of_real], largest(code, x)
    bias, most = (1023, 2047) if code.size_of_real == 8 else (127, 255)
    small = size < code.tiny
    x, size = (code.where(small, raised(code, y), y) for y in (x, size))
    field = code.shift(bits_of(code, size), -digits)
    finite, power = field < most, field - bias
    taken = code.where(small, power - RAISED, power)
    mantissa = code.where(finite, scaled(code, x, power, digits, bias, most), x)
    return product * mantissa, exponent + code.where(finite, taken, integer(code, 0))


def largest(code: Code, x: Any) -> Value:
    """The size of a number, or of the larger part of a complex one; NaN where a part is."""
    if not isinstance(x, Complex):
        return code.magnitude(x)
    real, imag = code.magnitude(x.real), code.magnitude(x.imag)
    return code.where((real > imag) | (real != real), real, imag)


def raised(code: Code, x: Any) -> Any:
    return x * 2.0**RAISED


def scaled(code: Code, x: Any, power: Value, digits: int, bias: int, most: int) -> Any:
    """x / 2**power: of a real number the digits with another exponent, of a complex one a product in two steps."""
    if not isinstance(x, Complex):
        kept = bits_of(code, x) & ~(most << digits)
        return real_of(code, kept | (bias << digits))
    half = code.shift(power + 2 * most, -1) - most
    factors = [real_of(code, code.shift(bias - part, digits)) for part in (half, power - half)]
    return Complex(*(part * factors[0] * factors[1] for part in (x.real, x.imag)))


def bits_of(code: Code, x: Value) -> Value:
    return Value(code, code.builder.bitcast(x.llvm, integers(code)))


def real_of(code: Code, bits: Value) -> Value:
    return Value(code, code.builder.bitcast(bits.llvm, code.vector))


def power_of(code: Code, x: Value) -> tuple[Value, Value]:
    """e of a normal number of size 2**e to 2**(e + 1), as an integer; and 2**-e."""
    what = numbers(code)
    field = code.shift(bits_of(code, x), -what.digits) & 2 * what.bias + 1
    return field - what.bias, real_of(code, code.shift(2 * what.bias - field, what.digits))


def begin(code: Code, memory: Value) -> None:
    """What is carried to the first row is that of an unknown before it; the product is 1."""
    sweep = Product(code, memory)
    code.store_as(sweep.exponents, Value(code, code.constant(ir.VectorType(I64, code.lanes), 0)))
    for place in (SINGULAR, LOST):
        code.store_as(sweep.words + place, code.integer(0))
    for k, x in enumerate((code.one(), code.zero(), code.one())):
        code.store(memory + k * code.row, x)


def multiply(code: Code, *words: Value) -> None:
    """Rows of a view of three bands."""
    *layout, memory, count = words
    code.fused = False  # the pivots are those of LAPACK
    views = views_of(code, layout, 3)
    if code.lanes == 1:
        views.ask = lambda i: None  # a single matrix is read as it lies
    views.down(code.integer(0), count, Product(code, memory))


def close(code: Code, memory: Value) -> Value:
    """The pivot of the last row, and which lanes met one that is zero; `tell` of real numbers."""
    sweep = Product(code, memory)
    state = sweep.start()
    product, exponent = times(code, state.product, state.exponent, state.p0)
    singular = state.singular | (state.p0 == 0)
    lost = state.lost | ~(singular | (largest(code, product) < math.inf))
    sweep.leave(state._replace(product=product, exponent=exponent, singular=singular, lost=lost))
    if code.parts == 1:
        tell(code, sweep, singular)
    return code.bits(singular)


def cyclic(code: Code, tile: Value, rows: Value, swaps: Value, memory: Value) -> Value:
    """The same from the pivots and the exchanges of cyclic matrices in an eliminated tile."""
    begin(code, memory)
    sweep, pivots = Product(code, memory), Rows(code, tile + rows * (UPPER * code.row), code.row)
    state = sweep.start()

    def row(i: Value, state: Any) -> Any:
        product, exponent, singular = state
        first, second = code.load_pair(swaps + i * code.lanes)
        product, exponent = times(code, product, exponent, pivots[i])
        product = code.where((first | second) & ~(first & second), -product, product)
        return product, exponent, singular | (pivots[i] == 0)

    def some(i: Value, state: Any) -> Any:
        end = code.pick(i + FEW < rows, i + FEW, rows)
        product, exponent, singular = code.fori(i, end, row, state)
        return *times(code, code.one(), exponent, product), singular

    start = state.product, state.exponent, state.singular
    product, exponent, singular = code.fori(0, rows, some, start, step=FEW)
    product = code.where(code.everywhere((rows & 1) == 0), -product, product)  # column 0 has been moved to the end
    lost = ~(singular | (largest(code, product) < math.inf))
    sweep.leave(state._replace(product=product, exponent=exponent, singular=singular, lost=lost))
    if code.parts == 1:
        tell(code, sweep, singular)
    return code.bits(singular)


def tell(code: Code, sweep: Product, singular: Value) -> None:
    """The logarithm of the product in place of what was carried, and its sign in its own."""
    wide = code.load_as(ir.VectorType(I64, code.lanes), sweep.exponents)
    sign, total = sign_and_logarithm(code, code.load(sweep.memory + PRODUCT * code.row), wide)
    code.store(sweep.memory, code.where(singular, code.splat(-math.inf), total))
    code.store(sweep.memory + PRODUCT * code.row, code.where(singular, code.zero(), sign))


def sign_and_logarithm(code: Code, product: Value, wide: Value) -> tuple[Value, Value]:
    """Of a number times two to an exponent, an int64; where it is not finite the logarithm is its size."""
    what, size = numbers(code), code.magnitude(product)
    log, exponent = logarithm(code, size)
    own = exponent.llvm if code.size_of_real == 8 else code.builder.sext(exponent.llvm, wide.llvm.type)
    power = code.to_real(wide + Value(code, own) - what.bias)
    total = plus_ln2(code, log, power)
    total = code.where(size < math.inf, total, size)
    return code.where(product < 0, -code.one(), code.where(product > 0, code.one(), product)), total


def of_one_lane(body: Any) -> Any:
    """The same of the first lane alone, whose steps wait for shorter instructions."""

    def write(code: Code, *words: Value) -> Any:
        one = code.of_lanes(1)
        return body(one, *(Value(one, x.llvm) for x in words))

    return write


BEGIN_ONE, MULTIPLY_ONE, CLOSE_ONE = (
    SWEEPS.add(f"{body.__name__}_one_product", of_one_lane(body)) for body in (begin, multiply, close)
)
BEGIN_PRODUCT = SWEEPS.add("begin_product", begin)
MULTIPLY_PIVOTS = SWEEPS.add("multiply_pivots", multiply)
CLOSE_PRODUCT = SWEEPS.add("close_product", close)
CYCLIC_PRODUCT = SWEEPS.add("cyclic_product", cyclic)
