"""Kernels that JAX calls in a process that has to compile them."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

import tridiag
from tridiag.calls import fast_path
from tridiag.calls.fast_path.recurrences import recurrence
from tridiag.kernels.jobs import recurrences as jobs
from tridiag.kernels.jobs import systems
from tridiag.kernels.jobs.words import recurrences as C
from tridiag.kernels.table import call_of, kernel

PROGRAM = """
import jax, numpy as np, tridiag
a, x = np.full((20, 100), 0.5, np.float32), np.ones((20, 100), np.float32)
y = jax.jit(tridiag.linear_recurrence)(jax.numpy.asarray(a), jax.numpy.asarray(x))
blocks = np.full((20, 10, 2, 2), 0.25) + np.eye(2)
z = jax.jit(tridiag.matrix_recurrence)(jax.numpy.asarray(blocks), jax.numpy.ones((20, 10, 2)))
assert np.isfinite(jax.jit(tridiag.solve_block)(blocks, 4 * blocks, blocks, z)).all()
print(tridiag.explain("linear_recurrence", jax.numpy.asarray(a), y).backend, np.array_equal(y[:, 3], [1.875] * 20))
"""


@pytest.mark.slow
def test_a_kernel_that_was_just_compiled_serves_jax(tmp_path: Path) -> None:
    """No function inside it may have the name under which XLA's handler calls it."""
    for module in ("jax", "numba"):
        pytest.importorskip(module)
    places = {"NUMBA_CACHE_DIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=os.environ | places, capture_output=True, text=True)
    assert run.stdout.split() == ["numba_scan", "True"], run.stdout + run.stderr


def end_to_end(rng: np.random.Generator, dtype: str, largest: float) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients and terms of some sequences; what is before the first step is never read."""
    shape = int(rng.integers(1, 40)), int(np.exp(rng.uniform(0.7, 5)))
    a, x = rng.uniform(-largest, largest, shape).astype(dtype), rng.standard_normal(shape).astype(dtype)
    return a, x


def step_by_step(a: np.ndarray, x: np.ndarray, turn: int) -> np.ndarray:
    """In extended precision; ``turn``: -1 from the last step on, or 1."""
    y = np.zeros(x.shape, np.longdouble)
    before = y[:, 0]
    for t in range(x.shape[1])[::turn]:
        before = y[:, t] = a[:, t].astype(np.longdouble) * before + x[:, t]
    return y


def forget() -> None:
    """No job is met again."""
    fast_path.forget()
    call_of.cache_clear()


@pytest.fixture
def forgetful() -> Iterator[None]:
    """No job of another test is met again, and none of this one afterwards."""
    forget()
    yield
    forget()


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("kind", [C.STREAM, C.SCALAR, None])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sequences_end_to_end(dtype: str, kind: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any number and length, by the loops over vectors of steps, plain loops, and those that are chosen."""
    pytest.importorskip("numba")
    if kind is not None:
        monkeypatch.setattr(jobs, "kind_end_to_end", lambda *facts: kind)
    rng = np.random.default_rng(5)
    for case in range(100):
        a, x = end_to_end(rng, dtype, (1.0, 1.4, 3.0)[case % 3])
        a[:, -1 if case % 2 else 0] = np.nan
        reverse = bool(case % 2)
        size = tridiag.linear_recurrence(abs(a), abs(x).astype("f8"), reverse=reverse, backend="numpy_scan")
        wanted = tridiag.linear_recurrence(a.astype("f8"), x.astype("f8"), reverse=reverse, backend="numpy_scan")
        found = tridiag.linear_recurrence(a, x, reverse=reverse, backend="numba_scan")
        assert (abs(found - wanted) <= 1000 * np.finfo(dtype).eps * size).all(), (x.shape, case)


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_vectors_of_steps_are_finite_where_the_sequence_is(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of coefficients overflow, and a sequence that is not finite leaves those beside it as they are."""
    pytest.importorskip("numba")
    monkeypatch.setattr(jobs, "kind_end_to_end", lambda *facts: C.STREAM)
    rng, huge = np.random.default_rng(6), float(np.finfo(dtype).max) ** 0.75
    for reverse in (False, True):
        a, x = np.full((5, 75), huge, dtype), np.zeros((5, 75), dtype)
        assert not tridiag.linear_recurrence(a, x, reverse=reverse, backend="numba_scan").any()
        a[:] = rng.uniform(0.1, 1, a.shape)
        x[:] = rng.standard_normal(x.shape)
        a[1, 17:19], a[2, 20], x[3, 70], a[4, 30] = huge, np.inf, np.nan, 0
        with np.errstate(all="ignore"):
            wanted = tridiag.linear_recurrence(a, x, reverse=reverse, backend="numpy_scan")
        found = tridiag.linear_recurrence(a, x, reverse=reverse, backend="numba_scan")
        np.testing.assert_allclose(found, wanted, rtol=1000 * np.finfo(dtype).eps)


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_vectors_of_steps_keep_the_digits_of_what_nearly_vanishes(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Products of coefficients are subnormal, and values so large that the products with them are not."""
    pytest.importorskip("numba")
    monkeypatch.setattr(jobs, "kind_end_to_end", lambda *facts: C.STREAM)
    rng, limits = np.random.default_rng(7), np.finfo(dtype)
    for case in range(200):
        a, x = end_to_end(rng, dtype, 1.0)
        a = (limits.tiny ** np.abs(a) ** (case % 4)).astype(dtype)  # the smaller ones more and more rarely
        far_apart = rng.random(x.shape) < 0.05
        x = np.where(far_apart, x * limits.max**0.8, 0).astype(dtype)
        a, reverse = a * (rng.random(a.shape) < 0.9).astype(dtype), bool(case % 2)
        turn = -1 if reverse else 1
        wanted, size = step_by_step(a, x, turn), step_by_step(a, abs(x), turn)
        found = tridiag.linear_recurrence(a, x, reverse=reverse, backend="numba_scan")
        assert (abs(found - wanted) <= 100 * limits.eps * size + limits.tiny).all(), (x.shape, case)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_as_far_apart_in_every_operand(dtype: str) -> None:
    """Any number and length of them, with gaps between them or none; nothing in a gap is written."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(11)
    for case in range(60):
        count, n, gap = int(rng.integers(8, 70)), int(rng.integers(8, 60)), int(rng.integers(0, 3))
        rooms = [np.full((count, n + gap), 7.0, dtype) for _ in range(3)]
        a, x, out = (room[:, :n] for room in rooms)
        a[...], x[...] = rng.uniform(-1.2, 1.2, (2, count, n))
        a[:, 0] = np.nan
        assert tridiag.linear_recurrence(a, x, out=out, backend="numba_scan") is out
        for k in (0, count // 2, count - 1):
            wide = tridiag.linear_recurrence(a[k : k + 1].astype("f8"), x[k : k + 1].astype("f8"), backend="numpy_scan")
            size = tridiag.linear_recurrence(abs(a[k : k + 1]), abs(x[k : k + 1]).astype("f8"), backend="numpy_scan")
            assert (abs(out[k] - wide[0]) <= 4 * n * np.finfo(dtype).eps * size[0]).all(), (count, n, gap, case)
        assert (rooms[2][:, n:] == 7).all()


def drawn(rng: np.random.Generator, dtype: str, values: float) -> tuple[np.ndarray, list[Any]]:
    """Terms of so many steps in all, and coefficients of each kind."""
    n = int(np.exp(rng.uniform(0.7, 5)))
    shape, kind = (max(1, int(values / n)), n), np.dtype(dtype).type
    own = rng.uniform(-1, 1, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype), [own, kind(0.9), kind(1), (kind(0.5), kind(0.3))]


def laid_out(shape: tuple[int, int], dtype: str) -> list[np.ndarray]:
    """Arrays that are not contiguous: transposed, reversed, with gaps between rows and between numbers."""
    rows, n = shape
    turned, steps_turned = (np.empty(shape, dtype)[slices] for slices in ((np.s_[::-1, ::-1]), np.s_[:, ::-1]))
    return [
        np.empty((n, rows), dtype).T,
        turned,
        steps_turned,
        np.empty((rows, n + 3), dtype)[:, :n],
        np.empty((rows, 2 * n), dtype)[:, ::2],
    ]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_bits_of_a_result_do_not_depend_on_where_it_lies(dtype: str) -> None:
    """Nor where operands lie as it does: what joins steps otherwise computes no result that is not contiguous."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(21)
    for case in range(12):
        x, kinds = drawn(rng, dtype, np.exp(rng.uniform(0, 8)))
        reverse = case % 3 == 0
        for out, own in zip(laid_out(x.shape, dtype), laid_out(x.shape, dtype), strict=True):
            own[...] = x
            for a in kinds:
                for terms in (x, own):
                    wanted = tridiag.linear_recurrence(a, terms, reverse=reverse, backend="numba_scan")
                    tridiag.linear_recurrence(a, terms, reverse=reverse, out=out, backend="numba_scan")
                    np.testing.assert_array_equal(out, wanted, f"{x.shape} {out.strides} {terms.strides} {reverse}")


def test_a_result_that_is_made_elsewhere_takes_no_longer_way() -> None:
    """Its call is kept as any other: a plan made anew takes a hundred times as long as the copy."""
    pytest.importorskip("numba")
    x = np.random.default_rng(23).standard_normal((20, 30))
    for out in laid_out(x.shape, "float64"):
        assert recurrence("linear_recurrence", 0.9, x, None, out, -1, False, False, "numba_scan") is out
        np.testing.assert_array_equal(out, tridiag.linear_recurrence(0.9, x, backend="numba_scan"))


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_bits_of_short_sequences_do_not_depend_on_threads(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the items are cut that threads claim, vectors begin in the same steps."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(22)
    for case in range(12):
        x, kinds = drawn(rng, dtype, jobs.WORTH_A_THREAD * rng.uniform(1, 2))
        for a in kinds:
            found = []
            for count in (1, 2, 3):
                monkeypatch.setattr(systems, "threads", lambda count=count: count)
                forget()
                found.append(tridiag.linear_recurrence(a, x, reverse=case % 2 == 0, backend="numba_scan"))
            np.testing.assert_array_equal(found[1], found[0])
            np.testing.assert_array_equal(found[2], found[0])


def test_which_rows_take_no_tables() -> None:
    """Those of some steps, contiguous, without values before them, that are as far apart in every operand."""
    from tridiag.problems.forms import Recurrence

    def kind(shape: tuple[int, int], apart: tuple[int, ...], order: int = 1, started: bool = False) -> int:
        form = Recurrence(shape, 1)
        operands = 2 + order + started * order
        strides = [(step * 8, 8) for step in apart] + [(8, 0)] * (operands - len(apart))
        shapes = [shape] * (2 + order) + [(shape[0], 1)] * (started * order)
        job = jobs.make_job(form, order, shapes, strides, np.dtype("f8"), 1)
        return int(C.Recurrences.view(job.words).kind)

    assert kind((100, 60), (60, 60, 60)) == C.SCALAR
    assert kind((100, 60), (70, 70, 70)) == C.SCALAR
    assert kind((100, 60), (70, 60, 60)) == C.ROWS
    assert kind((100, 400), (400, 400, 400)) == C.ROWS
    assert kind((100, 60), (60, 60, 60), started=True) == C.ROWS


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_bits_of_short_rows_do_not_depend_on_the_caches(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Past them other loops walk the rows, or memory is asked for ahead of use."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(24)
    for count, n in ((160, 8), (150, 9), (83, 24), (80, 48), (65, 63)):
        a, x = rng.uniform(0.5, 1, (2, count, n)).astype(dtype)
        found = []
        for room, second in ((2**40, 2**40), (2**40, 0), (0, 0)):
            monkeypatch.setattr(jobs, "room_for_results", lambda room=room: room)
            monkeypatch.setattr(jobs, "SECOND_LEVEL", second)
            forget()
            found.append(tridiag.linear_recurrence(a, x, backend="numba_scan"))
        np.testing.assert_array_equal(found[1], found[0], f"{(count, n)}")
        np.testing.assert_array_equal(found[2], found[0], f"{(count, n)}")


def test_short_rows_past_the_caches_are_read_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once rows of 24 numbers that memory holds took 1.7 times as long as a plain loop."""
    from tridiag.problems.forms import Recurrence

    monkeypatch.setattr(jobs, "room_for_results", lambda: 0)
    for n, kind in ((24, C.SCALAR), (63, C.SCALAR), (64, C.ROWS)):
        for size in (4, 8):
            form, strides = Recurrence((100, n), 1), [(n * size, size)] * 3
            job = jobs.make_job(form, 1, [(100, n)] * 3, strides, np.dtype(f"f{size}"), 1)
            words = C.Recurrences.view(job.words)
            assert (int(words.kind), int(words.flags) & C.LARGE) == (kind, C.LARGE)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("reverse", [False, True])
def test_no_item_writes_the_sequences_of_another(dtype: str, reverse: bool) -> None:
    """Lanes that were left over computed some again, side by side with another thread: up to ten times as long."""
    pytest.importorskip("numba")
    from tridiag.problems.forms import Recurrence

    rng, lanes = np.random.default_rng(24), systems.lanes_of(np.dtype(dtype))
    shape = 2 * lanes - 3, 300
    a, x, room = rng.uniform(-1, 1, (3, *shape)).astype(dtype)
    form = Recurrence(shape, 1, reverse=reverse)
    job = jobs.make_job(form, 1, [shape] * 3, [x.strides] * 3, np.dtype(dtype), 2)
    words, layout = job.words.copy(), C.Recurrences
    assert (layout.view(words).kind, layout.view(words).items) == (C.ROWS, 2)
    words[layout.next.word] = 1  # the last item alone
    words[[layout.pointers.word + k for k in range(3)]] = [v.ctypes.data for v in (room, x, a)]
    run = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_int64)(kernel(*job.kernel).address)
    before = room[:lanes].copy()
    run(words.ctypes.data, 0)
    np.testing.assert_array_equal(room[:lanes], before)
    wanted = tridiag.linear_recurrence(a, x, reverse=reverse, backend="numba_scan")
    np.testing.assert_array_equal(room[lanes:], wanted[lanes:])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("order", [2, 3])
def test_the_bits_of_filters_do_not_depend_on_the_caches(dtype: str, order: int) -> None:
    """Beyond the second level memory of the next sequences is asked for, by loops of their own."""
    coefficients = tuple(np.dtype(dtype).type(v) for v in (1.2, -0.5, 0.1)[:order])
    for steps in (40, 63, 150, 300):
        x = np.random.default_rng(0).standard_normal((2 * jobs.SECOND_LEVEL // (3 * steps), steps)).astype(dtype)[:-3]
        found = tridiag.linear_recurrence(coefficients, x)
        few = slice(1000 // steps * 8, 1000 // steps * 8 + 40)
        np.testing.assert_array_equal(found[few], tridiag.linear_recurrence(coefficients, x[few].copy()))
        np.testing.assert_array_equal(found[-5:, ::-1], tridiag.linear_recurrence(
            coefficients, x[-21:, ::-1].copy(), reverse=True)[-5:])  # fmt: skip


@pytest.mark.parametrize("asks", [0, 1])
def test_short_sequences_of_constant_coefficients_ask_for_the_next_ones(asks: int) -> None:
    """Beyond the caches they took twice as long as one after another: as many begin at once, too short to foresee."""
    from tridiag.kernels.recurrence.plain import ABREAST, Plain
    from tridiag.kernels.simd.functions import emitted

    emit = emitted(Plain(2, False, False, True, True).write)

    @numba.njit
    def run(count: int, n: int, y: int, x: int, a: int) -> None:
        emit(0.0, (asks, count, n, y, 8, n * 8, x, 8, n * 8, a, 0, 0, a + 8, 0, 0, y, 0, 0, y, 0, 0))  # fmt: skip

    count, n = 2 * ABREAST[0] + 3, 20
    x, a = np.random.default_rng(0).standard_normal((count, n)), np.array([0.5, -0.25])
    y = np.empty_like(x)
    run(count, n, y.ctypes.data, x.ctypes.data, a.ctypes.data)
    np.testing.assert_allclose(y, tridiag.linear_recurrence(tuple(a), x), rtol=1e-12, atol=1e-14)
    (text,) = run.inspect_llvm().values()
    assert ("call void @llvm.prefetch" in text) == bool(asks)
