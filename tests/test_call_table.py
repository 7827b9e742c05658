"""That calls which were met before are found again by compiled code, and nothing but these."""

import copy
import gc
import pickle
import sys
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from helpers import dominant

import tridiag
from tridiag import kalman
from tridiag.calls import fast_path
from tridiag.kernels.runtime import call_table, python_call
from tridiag.kernels.runtime.call_table import CONVERTED, SLOTS

pytestmark = pytest.mark.usefixtures("forgetful")

N = 12
MASK = np.arange(N) != 5
HOLES = np.where(MASK, 1.0, np.nan)[:, None]
MODEL: dict[str, Any] = {
    "F": 0.9 * np.eye(2), "H": np.ones((1, 2)), "Q": np.eye(2), "R": np.eye(1), "m0": np.zeros(2), "P0": np.eye(2),
}  # fmt: skip
SOLVES = fast_path.systems.SOLVES
RECURRENCES = fast_path.RECURRENCES["linear_recurrence"]


@pytest.fixture(scope="module")
def only_new_garbage() -> None:
    """Garbage of later calls is collected in no time: the collector does not look at what other tests have left."""
    gc.collect()
    gc.freeze()


def met(call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a call that was made three times is found by the table."""
    for _ in range(3):
        call()
    asked: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(fast_path.systems, "bound_call", lambda *facts: asked.append(facts))
        patch.setattr(fast_path.recurrences, "bound_recurrence", lambda *facts: asked.append(facts))
        patch.setattr(fast_path.factored, "bound_factored", lambda *facts: asked.append(facts))
        patch.setattr(fast_path.matrices, "bound_determinants", lambda *facts: asked.append(facts))
        patch.setattr(fast_path.filters, "bound_filter", lambda *facts: asked.append(facts))
        patch.setattr(fast_path.alignments, "bound_alignment", lambda *facts: asked.append(facts))
        call()
    return not asked


def taken(table: Any) -> int:
    return sum(call is not None for call in table.kept)


def eliminated(*matrix: Any, take: Any = ..., **options: Any) -> tridiag.Factorization:
    """A factorization of what is taken of matrices, the same one as long as these are the same objects."""
    key = (*map(id, matrix), take, *options)
    if key not in FACTORS:
        FACTORS[key] = matrix, tridiag.factor(*(np.asarray(x)[take] for x in matrix), **options)
    return FACTORS[key][1]


FACTORS: dict[Any, Any] = {}
CALLS: dict[str, Callable[..., Any]] = {
    "a solve": lambda a, b, c, d, out: tridiag.solve(a, b, c, d),
    "into an array": lambda a, b, c, d, out: tridiag.solve(a, b, c, d, out=out),
    "numbers": lambda a, b, c, d, out: tridiag.solve(-1.0, 4.0, -1.0, d),
    "integers of Python": lambda a, b, c, d, out: tridiag.solve(-1, 4, -1, d),
    "integers": lambda a, b, c, d, out: tridiag.solve(a, b, c, d.astype(int)),
    "short integers": lambda a, b, c, d, out: tridiag.linear_recurrence(a, d.astype("i4")),
    "one in single": lambda a, b, c, d, out: tridiag.solve(a, b.astype("f4"), c, d),
    "factors": lambda a, b, c, d, out: eliminated(a, b, c).solve(d),
    "factors into an array": lambda a, b, c, d, out: eliminated(a, b, c).solve(d, out=out),
    "factors, in place, unchecked": lambda a, b, c, d, out: eliminated(a, b, c).solve(
        d.copy(), overwrite_d=True, check=False
    ),
    "factors, transposed": lambda a, b, c, d, out: eliminated(a, 4.0, c).solve(d, True),
    "factors, integers": lambda a, b, c, d, out: eliminated(a, b, c, where=MASK).solve(d.astype(int)),
    "factors, many right sides": lambda a, b, c, d, out: eliminated(a, b, c, take=0).solve(d, out=out),
    "a mask": lambda a, b, c, d, out: tridiag.solve(a, b, c, d, where=b > 0),
    "options": lambda a, b, c, d, out: tridiag.solve(a, b, c, d, axis=0, pivoting=True, check=False, periodic=True),
    "in place, unchecked": lambda a, b, c, d, out: tridiag.solve(a, b, c, d.copy(), overwrite_d=True, check=False),
    "views": lambda a, b, c, d, out: tridiag.solve(a[:, ::-2], b[:, ::-2], c[:, ::-2], d[:, ::-2]),
    "a recurrence": lambda a, b, c, d, out: tridiag.linear_recurrence(a, d),
    "a recurrence into an array": lambda a, b, c, d, out: tridiag.linear_recurrence(a, d, out=out, reverse=True),
    "a number": lambda a, b, c, d, out: tridiag.linear_recurrence(0.5, d),
    "a number of NumPy": lambda a, b, c, d, out: tridiag.linear_recurrence(np.float64(0.5), d),
    "a tuple": lambda a, b, c, d, out: tridiag.linear_recurrence((a, 0.1), d, (d[:, 0], d[:, 1])),
    "a likelihood": lambda a, b, c, d, out: kalman.log_likelihood(d[..., None], **MODEL),
    "a filter": lambda a, b, c, d, out: kalman.filter(d[..., None], **MODEL),
    "a smoother, values missing": lambda a, b, c, d, out: kalman.smoother(HOLES, **MODEL),
    "alignments": lambda a, b, c, d, out: tridiag.smith_waterman(d.reshape(5, 3, 4), gap=-1.0),
    "affine gaps": lambda a, b, c, d, out: tridiag.smith_waterman(
        d.reshape(5, 3, 4), gap=-1, gap_open=d[0, :5], temperature=0.5
    ),
    "determinants": lambda a, b, c, d, out: tridiag.slogdet(a, b, c),
    "determinants, a mask": lambda a, b, c, d, out: tridiag.slogdet(a, 4.0, c, where=MASK),
    "logarithms": lambda a, b, c, d, out: tridiag.log_linear_recurrence(a, d, d[:, 0]),
    "a sum of logarithms": lambda a, b, c, d, out: tridiag.logcumsumexp(d, out=out),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_found_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = (*dominant((5, N)), np.zeros((5, N)))
    assert met(lambda: CALLS[name](*given), monkeypatch)


@pytest.mark.usefixtures("only_new_garbage")
@pytest.mark.parametrize("name", CALLS)
def test_objects_are_counted_as_before(name: str) -> None:
    """A reference too many keeps arrays for ever, one too few frees them in use."""
    given = (*dominant((5, N)), np.zeros((5, N)))
    watched = [*given, None, True, False, np.dtype(float), "auto", -1]
    for _ in range(4):
        CALLS[name](*given)
    gc.collect()
    before = [sys.getrefcount(x) for x in watched]
    results = [CALLS[name](*given) for _ in range(1000)]
    if results[0] is not given[-1]:
        counts = {sys.getrefcount(item(results[-1], k)) for k in range(items(results[-1]))}
        owners = {id(item(x, k)) for x in results for k in range(items(x))}
        assert (counts, len(owners)) == ({2}, 1000 * items(results[-1]))
    alive = weakref.ref(item(results[-1], 0)) if results[0] is not given[-1] else None
    del results
    gc.collect()
    assert alive is None or alive() is None
    assert all(abs(sys.getrefcount(x) - count) < 100 for x, count in zip(watched, before, strict=True))


def items(result: Any) -> int:
    """How many arrays a result has."""
    return len(result) if isinstance(result, tuple) else 1


def item(result: Any, k: int) -> Any:
    return result[k] if isinstance(result, tuple) else result


def test_what_differs_is_no_such_call() -> None:
    """In dtype, shape, strides, kind or option; answers are those of the call that it is."""
    a, b, c, d = dominant((5, N))
    for _ in range(3):
        wanted = tridiag.solve(a, b, c, d)
    narrow = tuple(x.astype("f4") for x in (a, b, c, d))
    half = tuple(x[:, ::2] for x in (a, b, c, d))
    assert tridiag.solve(*narrow).dtype == np.float32
    assert tridiag.solve(*half).shape == (5, N // 2)
    assert not np.allclose(tridiag.solve(a, b, c, d, transpose=True), wanted)
    np.testing.assert_array_equal(tridiag.solve(a, b, c, np.asfortranarray(d)), wanted)
    np.testing.assert_allclose(tridiag.solve(a, b, c, d.astype(">f8")), wanted, rtol=1e-12)
    np.testing.assert_array_equal(tridiag.solve(a, b, c, list(d)), wanted)


def test_a_tuple_of_one_argument_is_not_that_argument() -> None:
    """Once an axis (0,) was taken for 0 after calls with axis=0, and an initial value for a tuple of one."""
    a, b, c, d = dominant((N, 3))
    calls: tuple[Callable[..., Any], ...] = (
        lambda one: tridiag.solve(a, b, c, d, axis=one(0)),
        lambda one: tridiag.matmul(a, b, c, d, axis=one(0)),
        lambda one: tridiag.logcumsumexp(d, axis=one(0)),
        lambda one: tridiag.linear_recurrence(a, d, one(d[0]), axis=0),
    )
    for call in calls:
        for _ in range(4):
            call(lambda x: x)
        with pytest.raises((TypeError, ValueError)):
            call(lambda x: (x,))
    for _ in range(4):
        wanted = tridiag.linear_recurrence((a,), d, (d[0],), axis=0)
    np.testing.assert_array_equal(tridiag.linear_recurrence(a, d, d[0], axis=0), wanted)
    with pytest.raises((TypeError, ValueError)):
        tridiag.linear_recurrence((a,), d, d[0], axis=0)


def test_converted_arrays_are_read_anew() -> None:
    """Integers and single precision as NumPy converts them; what has too many entries goes another way."""
    a, b, c, d = dominant((N,))
    large = np.array([2**63 - 1, -(2**63), 2**53 + 1, 0, 1, -1, 3, 4, 5, 6, 7, 8])
    for right in (large, np.arange(N), np.arange(N, dtype="i4") - 5, np.float32(d), np.arange(N, dtype="u1")):
        for shift in range(4):
            wanted = tridiag.solve(a, b, c, np.roll(right, shift).astype(float))
            np.testing.assert_array_equal(tridiag.solve(a, b, c, np.roll(right, shift)), wanted)
    long, kept = np.arange(CONVERTED + 1), np.arange(CONVERTED + 1)
    for _ in range(4):
        np.testing.assert_array_equal(tridiag.solve(1.0, 4.0, 1.0, long), tridiag.solve(1.0, 4.0, 1.0, long * 1.0))
        np.testing.assert_array_equal(long, kept)


@pytest.mark.parametrize("dtype", ["f8", pytest.param("f4", marks=pytest.mark.slow)])
def test_integers_of_python_are_read_anew(dtype: str) -> None:
    """As NumPy rounds them; those of more than 64 bits, and what only compares as one, are refused as ever."""
    x = np.ones(2, dtype)
    for _ in range(4):
        for factor in (-3, 0, 1, 2, 2**24 + 1, 2**53 + 1, 2**62 + 1, -(2**63), 2**63 - 1):
            y = tridiag.linear_recurrence(factor, x)
            assert y[1] == x.dtype.type(1) + x.dtype.type(factor)
        for wrong in (True, 2**64 + 1):
            with pytest.raises(TypeError):
                tridiag.linear_recurrence(wrong, x)


@pytest.mark.parametrize("dtype", ["f8", pytest.param("f4", marks=pytest.mark.slow)])
def test_parameters_of_alignments_are_read_anew(dtype: str) -> None:
    """One for all pairs or one for each; a temperature out of range is refused each time."""
    scores = np.random.default_rng(1).normal(size=(3, 4, 5))
    given = scores.astype(dtype)
    for _ in range(4):
        for gap in (
            -1.0,
            -0.25,
            1e-300,
            -1,
            np.float32(-2),
            np.array([-1.0, -2.0, -3.0], dtype),
            -np.ones(1, dtype),
        ):
            for more in ({}, {"gap_open": -1.5}, {"gap_open": gap}, {"temperature": 0.125}, {"temperature": 2}):
                names = {"gap": gap, **more}
                each = {name: np.array(np.broadcast_to(x, 3), dtype) for name, x in names.items()}
                right = tridiag.smith_waterman(given, **each, lengths=[[4, 5]] * 3)
                np.testing.assert_array_equal(tridiag.smith_waterman(given, **names), right)
        for wrong in (0.0, -1.0, 2.0**961, 1e-60 if dtype == "f4" else -0.0):
            with pytest.raises(ValueError, match="temperature"):
                tridiag.smith_waterman(given, gap=-1.0, temperature=wrong)
        assert np.isnan(tridiag.smith_waterman(given, gap=-1.0, temperature=np.nan)).all()


@pytest.mark.parametrize("dtypes", [("f8",), pytest.param(("f8", "f4"), marks=pytest.mark.slow)], ids=str)
def test_factors_of_other_matrices(dtypes: tuple[str, ...]) -> None:
    """Calls with the layouts of others read their own arrays."""
    for _ in range(4):
        for scale in (1.0, 2.0):
            for dtype in dtypes:
                a, b, c, d = (x.astype(dtype) for x in dominant((5, N)))
                found = tridiag.factor(scale * a, scale * b, scale * c).solve(d)
                np.testing.assert_allclose(scale * found, tridiag.solve(a, b, c, d), rtol=1e-4)
    a, b, c, d = dominant((5, N))
    matrix = tridiag.factor(a, b, c)
    for _ in range(4):
        x = matrix.solve(d)
        wanted = tridiag.solve(a, b, c, d, transpose=True)
        np.testing.assert_allclose(matrix.solve(d, transpose=True), wanted, rtol=1e-12)
    with pytest.raises(ValueError, match="shares memory"):
        matrix.solve(x, out=x[::-1])
    np.testing.assert_array_equal(copy.deepcopy(matrix).solve(d), x)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(matrix)).solve(d), x)


@pytest.mark.parametrize("dtype", ["f8", pytest.param("f4", marks=pytest.mark.slow)])
def test_numbers_are_read_anew(dtype: str) -> None:
    x = np.ones(N, dtype)
    for decay in (0.1, 0.5, -2.0, 1e-300, 0.0):
        y = tridiag.linear_recurrence(decay, x)
        assert y[1] == x.dtype.type(1) + x.dtype.type(decay)


def test_a_singular_system_raises_each_time() -> None:
    a, b, c, d = dominant((5, N))
    for _ in range(3):
        tridiag.solve(a, b, c, d)
    a[3], b[3], c[3] = 0, 0, 0
    for _ in range(3):
        with pytest.raises(tridiag.SingularSystemError) as raised:
            tridiag.solve(a, b, c, d)
        assert [tuple(map(int, k)) for k in np.transpose(raised.value.indices)] == [(3,)]


@pytest.mark.parametrize("shift", [0, 1, N - 1])
def test_an_output_that_overlaps_is_refused_after_one_that_did_not(shift: int) -> None:
    a, b, c, d = dominant((N,))
    memory = np.zeros(3 * N)
    for _ in range(3):
        tridiag.solve(a, b, c, d, out=memory[:N])
    right = memory[shift : shift + N]
    with pytest.raises(ValueError, match="shares memory"):
        tridiag.solve(a, b, c, right, out=memory[:N])
    fixed = np.zeros(N)
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="writ"):
        tridiag.solve(a, b, c, d, out=fixed)


def test_more_calls_than_slots() -> None:
    """Each is right, and a table does not grow."""
    x = np.ones(SLOTS + 60)
    for _ in range(3):
        for n in range(1, len(x) + 1):
            assert tridiag.linear_recurrence(1.0, x[:n])[-1] == n
    assert 1 < taken(RECURRENCES) <= SLOTS


def test_threads_with_calls_of_their_own() -> None:
    """Whatever another thread does to a slot meanwhile."""
    x = np.arange(1.0, 41.0)

    def work(k: int) -> bool:
        n = 2 + k % 39
        return all(tridiag.linear_recurrence(1.0, x[:n])[-1] == n * (n + 1) / 2 for _ in range(100))

    with ThreadPoolExecutor(16) as pool:
        futures = [pool.submit(work, k) for k in range(200)]
        for _ in range(50):
            fast_path.forget()
        assert all(future.result() for future in futures)


def test_a_finalizer_that_makes_calls_while_a_result_is_made() -> None:
    """The collector may run in the middle of a call, and change the table."""

    class Node:
        def __del__(self) -> None:
            fast_path.forget()
            for n in range(2, 9):
                tridiag.linear_recurrence(0.5, np.ones(n))

    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(200):
            node = Node()
            node.me = node  # type: ignore[attr-defined]
            del node
            assert tridiag.linear_recurrence(1.0, np.ones(7))[-1] == 7
    finally:
        gc.set_threshold(*before)


@pytest.mark.parametrize("module", [python_call, call_table])
def test_what_functions_are_made_of_outlives_them(module: Any) -> None:
    """A process ended in a segmentation fault where modules were freed before the functions of the last calls."""
    made = weakref.ref(module.method())
    module.method.cache_clear()
    gc.collect()
    assert made() is not None
