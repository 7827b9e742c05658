"""That what is decided about a call from its static facts is decided once, and never mixed up with another call."""

import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from helpers import dominant, let_tables_find_nothing

import tridiag
from tridiag.calls import fast_path
from tridiag.calls.plan import cached_plan
from tridiag.kernels.jobs import systems

SHAPE = (4, 17)
A, B, C, D = dominant(SHAPE)


class Special(np.ndarray):
    """A kind of array that is no plain one."""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    cached_plan.cache_clear()
    fast_path.forget()
    yield
    cached_plan.cache_clear()
    fast_path.forget()


def plans() -> int:
    return cached_plan.cache_info().currsize


def same(x: Any, y: Any) -> None:
    np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-12)


# ------------------------------------------------------------------------------------------------ one plan for many


def test_calls_with_the_same_facts_share_a_plan() -> None:
    for k in range(5):
        same(tridiag.solve(A, B, C, k * D), k * tridiag.solve(A, B, C, D))
    same(tridiag.solve(A[::-1], B[::-1], C[::-1], D[::-1]), tridiag.solve(A, B, C, D)[::-1])
    same(tridiag.solve(A, B, C, np.asfortranarray(D), out=np.empty(SHAPE)), tridiag.solve(A, B, C, D))
    assert plans() == 1


def test_values_of_scalars_are_no_facts() -> None:
    for value in (4.0, 5.0, 1e300, -1e-300):
        same(tridiag.solve(0.0, value, 0.0, D), D / value)
    assert plans() == 1


def test_the_cache_is_bounded() -> None:
    most = cached_plan.cache_info().maxsize
    assert most is not None
    for n in range(1, most + 20):
        tridiag.explain("solve", 1.0, 4.0, 1.0, np.empty(n))
    assert plans() == most


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_the_cache_keeps_no_array_alive(library: str) -> None:
    if library == "numpy":
        given = [x.copy() for x in (A, B, C, D)]
    elif library == "torch":
        given = [pytest.importorskip("torch").tensor(x) for x in (A, B, C, D)]
    else:
        given = [pytest.importorskip("jax.numpy").array(x) for x in (A, B, C, D)]
    tridiag.solve(*given)
    assert plans() == 1
    watched = [weakref.ref(x) for x in given]
    del given
    assert [x() for x in watched] == [None] * 4


def test_an_axis_that_is_an_array_is_read_each_time() -> None:
    torch = pytest.importorskip("torch")
    axis = torch.tensor(0)
    wanted = [tridiag.solve(1.0, 9.0, 1.0, D, axis=k) for k in (0, 1)]
    same(tridiag.solve(1.0, 9.0, 1.0, D, axis=axis), wanted[0])
    axis += 1
    same(tridiag.solve(1.0, 9.0, 1.0, D, axis=axis), wanted[1])


def test_plans_made_by_many_threads_at_once() -> None:
    sizes = list(range(2, 34)) * 4
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: tridiag.solve(1.0, 4.0, 1.0, D[:, : n // 2]), sizes))
    for n, x in zip(sizes, found, strict=True):
        same(x, tridiag.solve(1.0, 4.0, 1.0, D[:, : n // 2]))


# -------------------------------------------------------------------------------------------- nothing is mixed up


def test_dtypes_and_byte_orders() -> None:
    wanted = tridiag.solve(A, B, C, D)
    for dtype in ("<f8", ">f8", "<f4", ">f4", "<f8", ">c16", "<c16", ">f8"):
        x = tridiag.solve(A, B, C, D.astype(dtype))
        assert x.dtype == np.result_type(A, np.dtype(dtype).newbyteorder("="))
        np.testing.assert_allclose(x, wanted, rtol=1e-5)


def test_scalars_promote_as_what_they_are() -> None:
    b, d = B.astype("f4"), D.astype("f4")
    for a, dtype in (
        (1, np.float32), (1.0, np.float32), (1j, np.complex64), (np.float32(1), np.float32), (np.ones(17), np.float64),
        (1.0, np.float32), (np.float64(1), np.result_type(b, np.float64(1))), (1.0, np.float32),
    ):  # fmt: skip
        assert tridiag.solve(a, b, 1.0, d, backend="numpy_thomas").dtype == dtype


def test_kinds_of_arrays() -> None:
    wanted = tridiag.solve(A, B, C, D)
    for given in (D, D.view(Special), D.tolist(), D):
        x = tridiag.solve(A, B, C, given)
        assert type(x) is np.ndarray
        same(x, wanted)
    with pytest.raises(TypeError, match="d is a masked array"):
        tridiag.solve(A, B, C, np.ma.masked_array(D))


def test_an_argument_that_may_not_be_written() -> None:
    wanted = tridiag.solve(A, B, C, D)
    given, fixed = D.copy(), D.copy()
    fixed.flags.writeable = False
    assert tridiag.solve(A, B, C, given, overwrite_d=True) is given
    assert tridiag.solve(A, B, C, fixed, overwrite_d=True) is not fixed
    same(given, wanted)
    same(fixed, D)
    out = np.empty(SHAPE)
    assert tridiag.solve(A, B, C, D, out=out) is out
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        tridiag.solve(A, B, C, D, out=out)


def test_an_argument_that_is_the_output_this_time() -> None:
    out = np.empty(SHAPE)
    tridiag.solve(A, B, C, D, out=out)
    given = D.copy()
    with pytest.raises(ValueError, match="out shares memory with d"):
        tridiag.solve(A, B, C, given, out=given)
    same(given, D)


def test_options_each_have_their_plan() -> None:
    mask = np.arange(17) != 5
    for options in (
        {}, {"axis": 0}, {"pivoting": False}, {"pivoting": True}, {"periodic": True}, {"transpose": True},
        {"where": mask}, {"backend": "numpy_thomas"},
    ):  # fmt: skip
        reference = {"backend": "numpy_thomas"} | options
        for _ in range(2):
            same(tridiag.solve(A, B, C, D, **options), tridiag.solve(A, B, C, D, **reference))


@pytest.mark.parametrize("flag", ["periodic", "transpose", "overwrite_d"])
@pytest.mark.parametrize("bad", [1, 0, 1.0, [True], np.array(True)])
def test_flags_equal_to_a_boolean_are_none(flag: str, bad: Any) -> None:
    for good in (True, False, np.True_):
        tridiag.solve(A, B, C, D.copy(), **{flag: good})
    with pytest.raises(TypeError, match=f"{flag} is .*wanted True or False"):
        tridiag.solve(A, B, C, D, **{flag: bad})


@pytest.mark.parametrize("bad", [1, 0, ["auto"], np.array("auto")])
def test_promises_equal_to_a_promise_are_none(bad: Any) -> None:
    for good in (True, False, "auto"):
        tridiag.solve(A, B, C, D, pivoting=good)
    with pytest.raises(ValueError, match=r"pivoting is .*wanted False, True or 'auto'"):
        tridiag.solve(A, B, C, D, pivoting=bad)


@pytest.mark.parametrize("bad", [1.0, [1], np.array([1, 1])])
def test_axes_equal_to_an_axis_are_none(bad: Any) -> None:
    tridiag.solve(A, B, C, D, axis=1)
    with pytest.raises(TypeError, match=r"axis is .*wanted one integer|only integer"):
        tridiag.solve(A, B, C, D, axis=bad)


def test_a_refusal_is_not_kept_and_comes_again() -> None:
    tridiag.solve(A, B, C, D)
    for _ in range(2):
        with pytest.raises(ValueError, match="do not broadcast"):
            tridiag.solve(A[:3], B, C, D)
        with pytest.raises(TypeError, match="b has dtype bool") as caught:
            tridiag.solve(A, B > 0, C, D)
        assert caught.value.__context__ is None
    assert plans() == 1


def test_a_changed_number_of_threads_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    ask, granted = systems.threads, []
    monkeypatch.setattr(systems, "threads", lambda: granted.append(ask()) or granted[-1])
    large = np.ones((3000, 50))
    tridiag.solve(1.0, 4.0, 1.0, large, backend="numba_thomas")
    assert granted and set(granted) == {1}
    monkeypatch.delenv("OMP_NUM_THREADS")
    granted.clear()
    tridiag.solve(1.0, 4.0, 1.0, large, backend="numba_thomas")
    assert granted and set(granted) == {ask()}


# ------------------------------------------------------------------------ the short way for arrays that were met before

N = 12
SINGULAR = np.zeros(N)
WAYS: dict[str, Any] = {
    "one system": lambda: (1.0, dominant((N,)), {}),
    "many systems": lambda: (1.0, dominant((5, N)), {}),
    "the first axis": lambda: (1.0, dominant((N, 5), axis=0), {"axis": 0}),
    "a shared matrix": lambda: (1.0, [*(x[0] for x in dominant((5, N))[:3]), dominant((5, N))[3]], {}),
    "a shared matrix along the first axis": lambda: (1.0, [*dominant((N,))[:3], dominant((N, 4))[3]], {"axis": 0}),
    "a shared right side": lambda: (1.0, [*dominant((5, N))[:3], dominant((N,))[3]], {}),
    "a constant diagonal": lambda: (1.0, [np.ones((5, 1)), np.full((1, 1), 4.0), np.ones(1), dominant((5, N))[3]], {}),
    "a real matrix, complex right sides": lambda: (1j, dominant((5, N)), {}),
    "every other entry, backwards": lambda: (1.0, [x[::-2, ::-1] for x in dominant((9, N))], {}),
    "options": lambda: (1.0, dominant((5, N)), {"pivoting": True, "transpose": True, "check": True}),
    "corners": lambda: (1.0, dominant((5, N)), {"periodic": True, "pivoting": np.False_}),
    "a named backend": lambda: (1.0, dominant((5, N)), {"backend": "numba_thomas"}),
    "another backend": lambda: (1.0, dominant((5, N)), {"backend": "numpy"}),
    "in place": lambda: (1.0, dominant((5, N)), {"overwrite_d": True}),
    "a singular system": lambda: (1.0, [x * (np.arange(5) != 3)[:, None] for x in dominant((5, N))], {}),
    "a singular system in place": lambda: (1.0, [SINGULAR, SINGULAR, SINGULAR, np.ones(N)], {"overwrite_d": True}),
    "a singular system, unchecked": lambda: (1.0, [SINGULAR, SINGULAR, SINGULAR, np.ones(N)], {"check": False}),
    "a singular system, a shared matrix": lambda: (1.0, [SINGULAR, SINGULAR, SINGULAR, np.ones((3, N))], {}),
    "a mask": lambda: (1.0, dominant((5, N)), {"where": np.arange(N) % 5 != 2}),
    "a mask, a singular system": lambda: (
        1.0,
        [x * (np.arange(5) != 3)[:, None] for x in dominant((5, N))],
        {"where": np.arange(5)[:, None] * np.ones(N) < 4},
    ),
    "a mask that is none": lambda: (1.0, dominant((5, N)), {"where": np.ones(N)}),
    "a mask that does not fit": lambda: (1.0, dominant((5, N)), {"where": np.ones(N + 1, bool)}),
    "numbers": lambda: (1.0, [-1.0, 4, -1.0, dominant((5, N))[3]], {}),
    "numbers beside single precision": lambda: (np.float32(1), [-1.0, 4, 1e300, dominant((N,), "float32")[3]], {}),
    "numbers of NumPy": lambda: (1.0, [np.float64(-1), np.float32(4), -1.0, dominant((5, N))[3]], {}),
    "double beside single precision": lambda: (1.0, [np.float64(-1), 4.0, 1.0, dominant((N,), "float32")[3]], {}),
    "a number that no system has": lambda: (1.0, [0.0, 0.0, 0.0, np.ones((3, N))], {}),
    "an integer of 65 bits": lambda: (1.0, [2**64, 4.0, 1.0, np.ones(N)], {}),
    "an integer of 64 bits": lambda: (1.0, [1.0, 2**63, 1.0, np.ones(N)], {}),
    "a complex number": lambda: (1.0, [1j, 4.0, 1.0, np.ones(N)], {}),
    "a boolean": lambda: (1.0, [True, 4.0, 1.0, np.ones(N)], {}),
    "a list": lambda: (1.0, [[1.0] * N, 4.0, 1.0, np.ones(N)], {}),
    "integers": lambda: (1, [*dominant((5, N))[:3], np.arange(5 * N).reshape(5, N)], {}),
    "integers in columns": lambda: (1, [*dominant((5, N))[:3], np.arange(5 * N).reshape(N, 5).T], {}),
    "integers alone": lambda: (1, [np.ones(N, int), np.full(N, 4), np.ones(N, int), np.arange(N)], {}),
    "single among double precision": lambda: (1.0, [np.ones(N, "f4"), *dominant((5, N))[1:]], {}),
    "another byte order": lambda: (1.0, [*dominant((5, N))[:3], dominant((5, N))[3].astype(">f8")], {}),
    "half precision": lambda: (np.float16(1), [x.astype("f2") for x in dominant((5, N))], {}),
    "no systems": lambda: (1.0, [np.ones((0, N))] * 4, {}),
    "two dtypes": lambda: (np.float32(1), [np.ones(N), *dominant((N,), "float32")[1:]], {}),
    "shapes that do not fit": lambda: (1.0, [np.ones(N), *dominant((N + 1,))[1:]], {}),
    "no boolean": lambda: (1.0, dominant((N,)), {"check": 1}),
    "no hash": lambda: (1.0, dominant((N,)), {"pivoting": []}),
    "no such axis": lambda: (1.0, dominant((N,)), {"axis": 1}),
    "no such backend": lambda: (1.0, dominant((N,)), {"backend": "nobody"}),
}
PLACES: dict[str, Any] = {
    "no out": lambda a, b, c, d: None,
    "a new array": lambda a, b, c, d: np.zeros(d.shape, d.dtype),
    "a view": lambda a, b, c, d: np.zeros((2, *d.shape), d.dtype)[1],
    "Fortran": lambda a, b, c, d: np.zeros(d.shape, d.dtype, "F"),
    "the right side": lambda a, b, c, d: d,
    "a view of the right side": lambda a, b, c, d: d[:],
    "the memory of the right side": lambda a, b, c, d: d.view("f8") if d.dtype == int else d[:],
    "the diagonal": lambda a, b, c, d: b if isinstance(b, np.ndarray) else np.asarray(b),
    "read-only": lambda a, b, c, d: np.broadcast_to(np.zeros(()), d.shape),
    "another shape": lambda a, b, c, d: np.zeros((3, *d.shape)),
    "another dtype": lambda a, b, c, d: np.zeros(d.shape, "f2"),
    "another kind": lambda a, b, c, d: np.zeros(d.shape, d.dtype).view(Special),
    "no array": lambda a, b, c, d: "out",
}


def outcome(way: str, place: str) -> Any:
    """What comes of the third call: the solution and whether it is an argument, or what was raised, and all arrays.

    The second one is bound, the third one is in the table of the verb.
    """
    for _ in range(3):
        factor, (a, b, c, d), options = WAYS[way]()
        arguments = [np.array(x) if isinstance(x, np.ndarray) and x.base is None else x for x in (a, b, c, d * factor)]
        out = PLACES[place](*arguments)
        try:
            x = tridiag.solve(*arguments, out=out, **options)
            told = str(x.dtype), x is arguments[3], x is out, x.tobytes()
        except (ValueError, TypeError, tridiag.BackendError, tridiag.SingularSystemError) as error:
            told = type(error), str(error), error.__context__, getattr(error, "x", np.zeros(0)).tobytes()
    return told, [np.asarray(x).tobytes() for x in arguments]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", WAYS)
def test_the_short_way_is_as_good_as_the_long_one(way: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits, the same array, the same refusal."""
    found = outcome(way, place)
    let_tables_find_nothing(monkeypatch, fast_path.SOLVES)
    assert found == outcome(way, place)


def test_the_short_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second call on, where the arrays are plain and nothing is to be converted."""
    a, b, c, d = dominant((5, N))
    for options in ({}, {"out": np.zeros((5, N))}, {"overwrite_d": True}, {"pivoting": False, "check": False}):
        wanted = tridiag.solve(a, b, c, d.copy(), **options).copy()
        with monkeypatch.context() as patch:
            patch.setattr("tridiag.systems.prepare", None)
            same(tridiag.solve(a, b, c, d.copy(), **options), wanted)


ROW = np.linspace(0.1, 0.9, N)
SEQUENCES = np.random.default_rng(2).normal(size=(5, N))
RECURRENCES: dict[str, Any] = {
    "one sequence": lambda: ("linear_recurrence", (ROW, SEQUENCES[0]), {}),
    "many": lambda: ("linear_recurrence", (SEQUENCES / 9, SEQUENCES), {}),
    "the first axis, in reverse": lambda: ("linear_recurrence", (ROW, SEQUENCES.T), {"axis": 0, "reverse": True}),
    "a number": lambda: ("linear_recurrence", (0.5, SEQUENCES), {}),
    "numbers of NumPy": lambda: (
        "linear_recurrence",
        ((np.float32(1.2), np.float32(-0.5)), SEQUENCES.astype("f4")),
        {},
    ),
    "a wide number": lambda: ("linear_recurrence", (np.float64(0.1), SEQUENCES.astype("f4")), {}),
    "a narrow number": lambda: ("linear_recurrence", (np.float32(0.1), SEQUENCES, np.int64(3)), {}),
    "a sum": lambda: ("linear_recurrence", (1, SEQUENCES), {"axis": -2}),
    "from a number": lambda: ("linear_recurrence", (ROW, SEQUENCES, 2), {}),
    "from a row": lambda: ("linear_recurrence", (ROW, SEQUENCES, np.arange(5.0)), {}),
    "from a row that does not fit": lambda: ("linear_recurrence", (ROW, SEQUENCES, np.arange(4.0)), {}),
    "second order": lambda: ("linear_recurrence", ((ROW, 0.1), SEQUENCES), {}),
    "second order, from two": lambda: ("linear_recurrence", ((ROW, ROW[:1]), SEQUENCES, (1.0, np.ones(5))), {}),
    "second order, from one": lambda: ("linear_recurrence", ((ROW, ROW), SEQUENCES, 1.0), {}),
    "no order": lambda: ("linear_recurrence", ((), SEQUENCES), {}),
    "a list": lambda: ("linear_recurrence", ([ROW, ROW], SEQUENCES), {}),
    "single precision": lambda: ("linear_recurrence", (0.5, SEQUENCES.astype("f4")), {}),
    "a number beyond single precision": lambda: ("linear_recurrence", (1e300, SEQUENCES.astype("f4")), {}),
    "two dtypes": lambda: ("linear_recurrence", (ROW.astype("f4"), SEQUENCES), {}),
    "integers": lambda: ("linear_recurrence", (1, np.arange(9)), {}),
    "an integer of 65 bits": lambda: ("linear_recurrence", (2**64, SEQUENCES), {}),
    "a huge integer": lambda: ("linear_recurrence", (10**400, SEQUENCES), {}),
    "complex sequences": lambda: ("linear_recurrence", (ROW, SEQUENCES * 1j), {}),
    "a complex number": lambda: ("linear_recurrence", (1j, SEQUENCES), {}),
    "strides": lambda: ("linear_recurrence", (ROW[::-1], SEQUENCES[::2, ::-1]), {}),
    "a constant": lambda: ("linear_recurrence", (np.ones((1, 1)), np.ones(N)), {}),
    "no sequences": lambda: ("linear_recurrence", (ROW, SEQUENCES[:0]), {}),
    "no such axis": lambda: ("linear_recurrence", (ROW, SEQUENCES), {"axis": 2}),
    "no boolean": lambda: ("linear_recurrence", (ROW, SEQUENCES), {"reverse": 1}),
    "no hash": lambda: ("linear_recurrence", (ROW, SEQUENCES), {"backend": []}),
    "the last value": lambda: ("linear_recurrence", (ROW, SEQUENCES), {"return_final": True}),
    "another backend": lambda: ("linear_recurrence", (ROW, SEQUENCES), {"backend": "numpy"}),
    "logarithms": lambda: ("log_linear_recurrence", (ROW, SEQUENCES, 0.0), {}),
    "logarithms, a number": lambda: ("log_linear_recurrence", (-0.5, SEQUENCES), {"axis": 0}),
    "logarithms, a tuple": lambda: ("log_linear_recurrence", ((ROW,), SEQUENCES), {}),
    "logarithms, none": lambda: ("log_linear_recurrence", (None, SEQUENCES), {}),
    "complex logarithms": lambda: ("log_linear_recurrence", (ROW, SEQUENCES * 1j), {}),
    "sums": lambda: ("logcumsumexp", (SEQUENCES,), {}),
    "sums along columns": lambda: ("logcumsumexp", (SEQUENCES,), {"axis": 0, "reverse": True}),
    "sums of integers": lambda: ("logcumsumexp", (np.arange(N),), {}),
    "sums of complex numbers": lambda: ("logcumsumexp", (SEQUENCES * 1j,), {}),
}


def outcome_of_recurrence(way: str, place: str) -> Any:
    """The same of a recurrence."""
    for _ in range(3):
        verb, arguments, options = RECURRENCES[way]()
        arguments = [np.array(x) if isinstance(x, np.ndarray) else x for x in arguments]
        x = np.asarray(arguments[min(1, len(arguments) - 1)])
        out = PLACES[place](x, x, x, x)
        try:
            y = getattr(tridiag, verb)(*arguments, out=out, **options)
            values = y if isinstance(y, tuple) else (y,)
            told: Any = [(str(v.dtype), v.shape, v is out, v.tobytes()) for v in values]
        except (ValueError, TypeError, OverflowError, tridiag.BackendError) as error:
            told = type(error), str(error), error.__context__
    return told, [x.tobytes() for x in arguments if isinstance(x, np.ndarray)]


@pytest.mark.parametrize(
    "place",
    [
        "no out",
        "a new array",
        "Fortran",
        "the right side",
        "the memory of the right side",
        "read-only",
        "another dtype",
    ],
)
@pytest.mark.parametrize("way", RECURRENCES)
def test_the_short_way_of_recurrences_is_as_good(way: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits, the same array, the same refusal."""
    found = outcome_of_recurrence(way, place)
    let_tables_find_nothing(monkeypatch, *fast_path.RECURRENCES.values())
    assert found == outcome_of_recurrence(way, place)


SHORT = ("many", "a number", "a sum", "from a number", "second order, from two", "two dtypes", "logarithms", "sums")


@pytest.mark.parametrize("way", SHORT)
def test_the_short_way_of_recurrences_is_taken(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verb, arguments, options = RECURRENCES[way]()
    wanted = getattr(tridiag, verb)(*arguments, **options)
    monkeypatch.setattr("tridiag.recurrences.PREPARERS", None)
    same(getattr(tridiag, verb)(*arguments, **options), wanted)


def test_the_short_way_with_masks_and_numbers_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for way in ("a mask", "numbers", "integers"):
        _, (a, b, c, d), options = WAYS[way]()
        wanted = tridiag.solve(a, b, c, d, **options)
        with monkeypatch.context() as patch:
            patch.setattr("tridiag.systems.prepare", None)
            same(tridiag.solve(a, b, c, d, **options), wanted)


def test_what_is_recalled_is_bounded() -> None:
    most = fast_path.bound_call.cache_info().maxsize
    assert most is not None
    for n in range(2, most + 20):
        tridiag.solve(*np.ones((3, n)) * np.array([[0.0], [2.0], [0.0]]), np.ones(n))
    assert fast_path.bound_call.cache_info().currsize == most


def test_small_solves_of_many_threads_share_nothing() -> None:
    """Calls that overlap each have a job of their own."""
    a, b, c, _ = dominant((N,))
    right = np.arange(1.0, 65.0)[:, None] * np.ones(N)
    wanted = [tridiag.solve(a, b, c, d) for d in right]
    with ThreadPoolExecutor(32) as pool:
        found = list(pool.map(lambda k: [tridiag.solve(a, b, c, right[k % 64]) for _ in range(50)], range(256)))
    for k, solutions in enumerate(found):
        assert all(x.tobytes() == wanted[k % 64].tobytes() for x in solutions)


# ------------------------------------------------------------------------------------------- settings of libraries


def test_the_default_dtype_of_torch() -> None:
    torch = pytest.importorskip("torch")
    given = [torch.full((5,), k) for k in (1, 4, 1, 6)]
    before = torch.get_default_dtype()
    try:
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            assert tridiag.solve(*given).dtype == dtype
    finally:
        torch.set_default_dtype(before)


def test_tensors_that_require_a_gradient() -> None:
    torch = pytest.importorskip("torch")
    a, b, c, d = map(torch.tensor, (A, B, C, D))
    assert not tridiag.solve(a, b, c, d).requires_grad
    assert tridiag.solve(a, b, c, d.requires_grad_()).requires_grad
    assert not tridiag.solve(a, b, c, d.detach()).requires_grad


def test_the_x64_mode_of_jax() -> None:
    jax = pytest.importorskip("jax")
    given = [jax.numpy.full(5, k, "int32") for k in (1, 4, 1, 6)]
    before = jax.config.jax_enable_x64
    try:
        for x64 in (True, False, True):
            jax.config.update("jax_enable_x64", x64)
            assert tridiag.solve(*given).dtype == (np.float64 if x64 else np.float32)
    finally:
        jax.config.update("jax_enable_x64", before)


def test_weak_types_of_jax() -> None:
    numpy = pytest.importorskip("jax.numpy")
    weak, strong, d = numpy.full(5, 4.0), numpy.full(5, 4.0, "float64"), numpy.ones(5, "float32")
    assert weak.dtype == strong.dtype and weak.weak_type and not strong.weak_type
    for b in (weak, strong, weak, 4.0):
        x = tridiag.solve(1.0, b, 1.0, d)
        assert x.dtype == ("float64" if b is strong else "float32") and not x.weak_type
    x = tridiag.solve(1.0, weak, 1.0, weak)
    assert x.dtype == "float64" and not x.weak_type


def test_traced_arrays_and_others() -> None:
    jax = pytest.importorskip("jax")
    given = [jax.numpy.asarray(x) for x in (A, B, C, D)]
    wanted = tridiag.solve(*given, check=True)
    same(jax.jit(tridiag.solve)(*given), wanted)
    with pytest.raises(ValueError, match="check=True reads values, which a trace does not have"):
        jax.jit(lambda *given: tridiag.solve(*given, check=True))(*given)
    same(tridiag.solve(*given, check=True), wanted)
