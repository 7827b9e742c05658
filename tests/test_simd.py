"""The floors below the solvers, each by itself: the vector language, ways into lanes, exponentials, thread teams."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from helpers import EPS, installed

if not installed("numba"):
    pytest.skip("needs numba, which is not installed", allow_module_level=True)

import numba
from llvmlite import ir

from tridiag.kernels.access import operands
from tridiag.kernels.access.moves import in_lanes, out_of_lanes
from tridiag.kernels.jobs.words.job import Job
from tridiag.kernels.jobs.words.record import Word
from tridiag.kernels.runtime.threads import runner
from tridiag.kernels.runtime.work_items import items
from tridiag.kernels.simd import explog, processor, registers, vector
from tridiag.kernels.simd.functions import emitted
from tridiag.kernels.simd.fused import inverse, multiple_less
from tridiag.kernels.simd.memory import c_function, fetch_add, word
from tridiag.kernels.simd.records import RecordAt
from tridiag.kernels.simd.transpose import transpose_blocks, transpose_in_memory
from tridiag.kernels.simd.values import Complex, Stored, Value
from tridiag.kernels.simd.vector import LINE, Code
from tridiag.kernels.thomas.factored_loops import ask_for_factors

REALS = "float32", "float64"


def written(body: Callable[..., Any], dtype: str) -> Callable[..., None]:
    """What a body writes, as a function of arrays: it gets the code, and their addresses."""
    emit, zero = emitted(body), np.dtype(dtype).type(0)

    @numba.njit
    def run(addresses: Any) -> int:
        return emit(zero, addresses)

    return lambda *arrays: run(tuple(x if isinstance(x, int) else x.ctypes.data for x in arrays))


def lanes(dtype: str) -> int:
    return LINE // np.dtype(dtype).itemsize


def rows(count: int, dtype: str, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, lanes(dtype))).astype(dtype)


# ---------------------------------------------------------------------------------------------------- the language


@pytest.mark.parametrize("dtype", REALS)
def test_operators_are_those_of_numpy(dtype: str) -> None:
    def body(code: Code, source: Value, target: Value) -> None:
        code.fused = False
        x, y, z = (code.load(source + k * LINE) for k in range(3))
        results = x * y + z, x / y - 2.0, code.where(x < y, x, z), code.magnitude(x), -x, 1.0 - y
        for k, value in enumerate(results):
            code.store(target + k * LINE, value)

    given, found = rows(3, dtype), np.zeros((6, lanes(dtype)), dtype)
    written(body, dtype)(given, found)
    x, y, z = given
    two, one = x.dtype.type(2), x.dtype.type(1)
    np.testing.assert_array_equal(found, [x * y + z, x / y - two, np.where(x < y, x, z), abs(x), -x, one - y])


def test_comparisons_with_nan_are_false_but_for_one() -> None:
    def body(code: Code, source: Value, target: Value) -> None:
        x, y = code.load(source), code.load(source + LINE)
        for k, mask in enumerate((x < y, x <= y, x > y, x >= y, x == y, x != y)):
            code.store(target + k * LINE, code.where(mask, code.splat(1.0), code.zero()))

    x, y, found = np.full(8, np.nan), np.arange(8.0), np.zeros((6, 8))
    written(body, "float64")(np.array([x, y]), found)
    assert found.tolist() == [[0.0] * 8] * 5 + [[1.0] * 8]


SPANS = (0, 7, 1), (3, 3, 1), (5, 2, 1), (0, 8, 4), (6, -1, -1), (0, 5000, 1)


@pytest.mark.parametrize(("first", "last", "step"), SPANS)
def test_a_loop_carries_its_state(first: int, last: int, step: int) -> None:
    """Also one of more rows than it takes between two looks at whether the call is to end."""

    def body(code: Code, source: Value, target: Value, begin: Value, end: Value) -> None:
        def row(i: Value, state: Any) -> Any:
            total, (count,) = state
            return total + code.load(source), (count + i,)

        total, (count,) = code.fori(begin, end, row, (code.zero(), (code.integer(0),)), step=step)
        code.store(target, total)
        code.store_as(target + LINE, count)

    found, span = np.zeros(16), range(first, last, step)
    written(body, "float64")(np.ones(8), found, first, last)
    assert found[:8].tolist() == [float(len(span))] * 8
    assert found[8:9].view(np.int64)[0] == sum(span)


@pytest.mark.parametrize("dtype", REALS)
def test_multiples_of_an_inverse_are_taken_off_without_loss(dtype: str) -> None:
    """Exponents of alignments where no operation multiplies and adds: x - k / y has all digits that a number has."""

    def body(code: Code, source: Value, target: Value) -> None:
        x, k, y = (code.load(source + row * LINE) for row in range(3))
        for row, part in enumerate((multiple_less(x, k, inverse(code, y)), *inverse(code, y))):
            code.store(target + row * LINE, part)

    rng, count = np.random.default_rng(0), lanes(dtype)
    for scale in (1e-6, 1.0, 1e6):
        y = (rng.uniform(0.5, 2, count) * scale).astype(dtype)
        x = (rng.uniform(-100, 100, count) / scale).astype(dtype)
        k, found = np.rint(x * y), np.zeros((3, count), dtype)
        written(body, dtype)(np.array([x, k, y]), found)
        for rest, high, low, *(one) in zip(*found, x, k, y, strict=True):
            x_one, k_one, y_one = map(Fraction, map(float, one))
            exact = x_one - k_one / y_one
            assert abs(Fraction(float(rest)) - exact) <= EPS[dtype] * abs(exact) + EPS[dtype] ** 2 * abs(x_one)
            assert abs(Fraction(float(high)) + Fraction(float(low)) - 1 / y_one) <= EPS[dtype] ** 1.5 / y_one


def test_complex_quotients_keep_their_digits() -> None:
    """Where the square of a divisor is no normal number, and where it overflows."""

    def body(code: Code, source: Value, target: Value) -> None:
        x, y = (Complex(*(code.load_as(code.vector, source + k + j) for j in (0, LINE))) for k in (0, 2 * LINE))
        quotient = code.quotient(x, y)
        code.store_as(target, quotient.real)
        code.store_as(target + LINE, quotient.imag)

    rng, sizes = np.random.default_rng(0), np.array([1e-200, 1e-160, 1e-5, 1.0, 1e5, 1e150, 1e160, 1e-300])
    x, y = (rng.normal(size=8) + 1j * rng.normal(size=8) for _ in range(2))
    x, y = x * sizes, y * sizes
    given, found = np.array([x.real, x.imag, y.real, y.imag]), np.zeros((2, 8))
    written(body, "complex128")(given, found)
    wanted = (x / sizes) / (y / sizes)
    np.testing.assert_allclose(found[0] + 1j * found[1], wanted, rtol=8 * EPS["float64"])


# ---------------------------------------------------------------------------------------------------- into lanes


@pytest.mark.parametrize("dtype", REALS)
def test_blocks_are_transposed(dtype: str) -> None:
    def body(code: Code, source: Value, target: Value) -> None:
        for k, row in enumerate(transpose_blocks(code, [code.load(source + k * LINE) for k in range(code.lanes)])):
            code.store(target + k * LINE, row)

    count = lanes(dtype)
    given, found = rows(count, dtype), np.zeros((count, count), dtype)
    written(body, dtype)(given, found)
    np.testing.assert_array_equal(found, given.T)


@pytest.mark.parametrize("register", [64, 32, 16])
@pytest.mark.parametrize("dtype", REALS)
def test_squares_are_transposed_in_memory(dtype: str, register: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Piece by piece where registers are narrow; rows and columns lie anywhere."""
    monkeypatch.setattr(registers, "bytes_of_register", lambda: register)
    count, step, apart = lanes(dtype), 2 * LINE, 3 * LINE

    def body(code: Code, source: Value, target: Value) -> None:
        transpose_in_memory(code, lambda k: source + k * step, lambda k: target + (count - 1 - k) * apart)

    given, found = np.zeros((count, 2 * count), dtype), np.zeros((count, 3 * count), dtype)
    given[:, :count] = rows(count, dtype)
    written(body, dtype)(given, found)
    np.testing.assert_array_equal(found[::-1, :count], given[:, :count].T)
    assert not found[:, count:].any()


@pytest.mark.parametrize("parts", [1, 4])
@pytest.mark.parametrize("dtype", REALS)
def test_pieces_of_lanes_become_rows_of_lanes_and_back(dtype: str, parts: int) -> None:
    """Of a part of the lanes too, down to fewer than each has numbers."""

    def body(code: Code, source: Value, target: Value, again: Value) -> None:
        code = code.of_lanes(code.lanes // parts)
        kind, size = ir.VectorType(code.real, operands.QUAD), operands.QUAD * code.size_of_real
        made = in_lanes(code, [code.load_as(kind, source + k * size) for k in range(code.lanes)])
        for k, row in enumerate(made):
            code.store(target + k * LINE, row)
        for k, piece in enumerate(out_of_lanes(code, made)):
            code.store_as(again + k * size, piece)

    given = rows(operands.QUAD, dtype).reshape(lanes(dtype), operands.QUAD)
    found, again = np.zeros(given.shape[::-1], dtype), np.zeros_like(given)
    written(body, dtype)(given, found, again)
    used = lanes(dtype) // parts
    np.testing.assert_array_equal(found[:, :used], given[:used].T)
    np.testing.assert_array_equal(again[:used], given[:used])


@pytest.mark.parametrize(("register", "pieces"), [(64, 1), (32, 2), (16, 4)])
def test_a_loop_by_registers_is_one_over_whole_rows(
    register: int, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the registers: masks and numbers are carried in pieces, and joined in order."""
    monkeypatch.setattr(registers, "bytes_of_register", lambda: register)
    seen: list[int] = []

    def body(code: Code, source: Value, target: Value) -> None:
        def row(some: Code, lane: int, i: Value, state: Any) -> Any:
            seen.append(lane)
            x = some.load(source + i * LINE + lane * some.size_of_real)
            return state[0] + x, state[1] & (x > -0.5)

        total, positive = registers.by_register(code, 0, code.integer(5), row, (code.one(), code.all_lanes()))
        code.store(target, code.where(positive, total, -total))

    given, found = rows(5, "float64"), np.zeros(8)
    written(body, "float64")(given, found)
    total = functools.reduce(np.add, given, np.ones(8))
    np.testing.assert_array_equal(found, np.where((given > -0.5).all(0), total, -total))
    assert sorted({*seen}) == list(range(0, 8, 8 // pieces))


@pytest.mark.parametrize(("register", "pieces"), [(64, 1), (32, 2), (16, 4)])
def test_a_loop_in_turn_is_one_by_registers(register: int, pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """States wait in memory, also where each takes the place of another; rows of matrices in scratch memory."""
    monkeypatch.setattr(registers, "bytes_of_register", lambda: register)

    def body(code: Code, source: Value, target: Value, waiting: Value) -> None:
        def step(some: Code, lane: Value, i: Value, state: Any) -> Any:
            scratch = registers.Scratch(some, waiting + 2 * LINE, 6, rolled=True)
            x = some.load(source + i * LINE + lane * some.size_of_real)
            pair = np.array([[x, x + x]], object)
            (tripled,) = scratch.row_by_row(lambda row: (row + row + row,), scratch.keep(pair))
            assert all(isinstance(value, Stored) for value in tripled.ravel())
            return state[1], state[0] + tripled[0, 0] + tripled[0, 1]

        start = code.zero(), code.one()
        for k, x in enumerate(
            registers.in_turn(code, 0, code.integer(5), step, start, [(waiting, 0), (waiting, LINE)])
        ):
            code.store(target + k * LINE, x)

    given, found, memory = rows(5, "float64"), np.zeros((2, 8)), np.zeros(2 * 8 + 6 * 8)
    written(body, "float64")(given, found, memory)
    first, second = np.zeros(8), np.ones(8)
    for x in given:
        first, second = second, first + 3 * x + 3 * (x + x)
    np.testing.assert_allclose(found, (first, second), rtol=1e-14)
    assert not memory[2 * 8 + 4 * 8 // pieces :].any() and memory[2 * 8 : 2 * 8 + 4 * 8 // pieces].all()


# ---------------------------------------------------------------------------------------------------- exp and log


@pytest.mark.parametrize("dtype", REALS)
def test_exponentials_and_logarithms_are_right_to_a_unit(dtype: str) -> None:
    """exp(x) = m 2**k for any x; log of all normal numbers."""

    def body(code: Code, source: Value, target: Value, count: Value) -> None:
        ops = explog.Lanes(code)

        def row(i: Value, state: Any) -> Any:
            x, y = code.load(source + i * (2 * LINE)), code.load(source + i * (2 * LINE) + LINE)
            for k, value in enumerate((*ops.exponential(x), *ops.logarithm(y))):
                code.store(target + i * (4 * LINE) + k * LINE, value)
            return state

        code.fori(0, count, row)

    info, count = np.finfo(dtype), 500
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (count, lanes(dtype))) * 10.0 ** rng.uniform(-3, 3, (count, 1))
    y = np.exp(rng.uniform(np.log(float(info.tiny)), np.log(float(info.max)), x.shape))
    given, found = np.stack((x, y), 1).astype(dtype), np.zeros((count, 4, lanes(dtype)), dtype)
    written(body, dtype)(given, found, count)
    m, k, log, exponent = (found[:, j].astype(np.longdouble) for j in range(4))
    x, y = (given[:, j].astype(np.longdouble) for j in range(2))
    wanted = np.exp(x - k * np.log(np.longdouble(2)))
    assert (abs(m / wanted - 1)).max() < EPS[dtype] * 1.5
    assert m.min() > 0.7 and m.max() < 1.4143
    wanted = np.log(y)
    assert (abs(log + exponent * np.log(np.longdouble(2)) - wanted) / np.maximum(1, abs(wanted))).max() < EPS[dtype]


# ---------------------------------------------------------------------------------------------------- thread teams


class Counting(Job):
    """A job that adds up what was claimed."""

    total, calls = Word(), Word()


@functools.cache
def team() -> Any:
    """The kernel of such a job."""

    @numba.njit
    def work(job: Any, zero: Any) -> None:
        for item in items(job):
            fetch_add(job.addresses.total, item)
            fetch_add(job.addresses.calls, 1)

    return runner(np.float64(0), c_function(work, "tridiag_test_counting", first=RecordAt(Counting)))


@pytest.mark.parametrize(("large", "far"), [(True, 3), (False, 2)])
def test_far_streams_are_asked_for_into_a_cache_that_holds_them(
    large: bool, far: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a processor with a small first level solves of rows took twice as long with the far ones there."""
    monkeypatch.setattr(vector, "first_level_is_large", lambda: large)

    def body(code: Code, x: Value) -> None:
        code.prefetch(x)
        code.prefetch(x, write=True)
        code.prefetch(x, near=True)

    assert levels_asked_for(body) == [(0, far), (1, far), (0, 3)]


@pytest.mark.parametrize(("large", "far"), [(True, 3), (False, 2)])
def test_factors_are_asked_for_far_ahead_and_then_into_the_first_level(
    large: bool, far: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A solve with factors beyond the caches took 1.4 times as long with both requests into a small first level."""
    monkeypatch.setattr(vector, "first_level_is_large", lambda: large)
    assert levels_asked_for(lambda code, x: ask_for_factors(code, x, 2 * LINE)) == [(0, far)] * 2 + [(0, 3)] * 2


def levels_asked_for(body: Callable[[Code, Value], None]) -> list[tuple[int, int]]:
    """Of each request for memory in a function of an address: whether to write there, and how near it is to lie."""
    emit = emitted(body)

    @numba.njit
    def run(address: int) -> int:
        return emit(0.0, (address,))

    run(np.empty(8).ctypes.data)
    (text,) = run.inspect_llvm().values()
    asked = re.findall(r"call void @llvm.prefetch[^(]*\([^,]*, i32 (\d), i32 (\d), i32 1\)", text)
    return [(int(write), int(level)) for write, level in asked]


@pytest.mark.parametrize(("told", "name", "large"), [("48K", None, True), ("32K", None, False), (None, None, False),
                                                     ("48K", "znver5", False)])  # fmt: skip
def test_a_first_level_is_large_where_the_system_says_so(
    told: str | None, name: str | None, large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels for a processor that is named do not depend on the machine that compiles them."""
    monkeypatch.setattr(processor.caches, "sizes", lambda: {"L1 data": told} if told else {})
    monkeypatch.delenv("NUMBA_CPU_NAME", raising=False)
    if name:
        monkeypatch.setenv("NUMBA_CPU_NAME", name)
    assert processor.first_level_is_large.__wrapped__() is large


@pytest.mark.parametrize("helpers", [0, 1, 3, 40])
@pytest.mark.parametrize("items", [0, 1, 2, 1000])
def test_every_item_is_claimed_once(helpers: int, items: int) -> None:
    """By however many threads, of which fewer may come."""
    words = Counting.filled(items=items)
    ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(team().address)(words.ctypes.data, helpers)
    found = Counting.view(words)
    assert found.calls == items and found.total == items * (items - 1) // 2
    assert found.next >= found.items


def test_words_are_read_where_they_are() -> None:
    @numba.njit
    def run(address: int) -> int:
        return word(address + 8)

    given = np.array([3, 5, 7])
    assert run(given.ctypes.data) == 5
