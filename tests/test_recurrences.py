"""`linear_recurrence` by every backend against the definition in extended precision."""

import functools
from typing import Any

import numpy as np
import pytest
from helpers import DTYPES, EPS, REAL, Subject, assert_same_bits, dtype_name, noise, to_numpy

import tridiag

pytestmark = pytest.mark.only(verb="linear_recurrence")
turned = pytest.mark.parametrize("reverse", [False, True])

# ------------------------------------------------------------------------------------------------------ the definition


def oracle(a: Any, x: Any, init: Any = None, *, axis: int = -1, reverse: bool = False) -> np.ndarray:
    """Step by step in long double; ``a`` and ``init`` are tuples."""
    wide = np.clongdouble if any(np.iscomplexobj(v) for v in (*a, x, *(init or ()))) else np.longdouble
    rank = max(np.ndim(v) for v in (*a, x))
    axis %= rank
    rows = [np.asarray(v) for v in (*a, x)]
    rows = [v.reshape((1,) * axis + v.shape + (1,) * (rank - 1 - axis)) if v.ndim == 1 else v for v in rows]
    *a, x = (np.moveaxis(v, axis, 0).astype(wide) for v in np.broadcast_arrays(*rows))
    if reverse:
        a, x = [v[::-1] for v in a], x[::-1]
    y = np.zeros_like(x)
    for t in range(len(x)):
        y[t] = x[t]
        for k, v in enumerate(a, 1):
            if t >= k:
                y[t] += v[t] * y[t - k]
            elif init is not None:
                y[t] += v[t] * np.asarray(init[k - t - 1], wide)
    return np.moveaxis(y[::-1] if reverse else y, 0, axis)


def assert_recurs(y: Any, a: Any, x: Any, init: Any = None, dtype: str | None = None, **options: Any) -> None:
    """y is the sequence up to the rounding of n steps, each relative to the sum of the sizes of its terms."""
    right = oracle(a, x, init, **options)
    sizes = [abs(np.asarray(v)) for v in (*a, x)]
    size = oracle(sizes[:-1], sizes[-1], None if init is None else [abs(np.asarray(v)) for v in init], **options)
    y = np.asarray(y)
    assert y.shape == right.shape
    name = dtype or y.dtype.name
    n = y.shape[options.get("axis", -1)]
    bound = 8 * n * EPS[REAL.get(name, name)] * size + (
        EPS[name] * abs(right) if name in ("float16", "bfloat16") else 0
    )
    assert (abs(y - right) <= bound).all(), f"off by up to {float((abs(y - right) / np.maximum(bound, 1e-300)).max())}"


def recur(backend: Subject, a: Any, x: Any, init: Any = None, **options: Any) -> Any:
    """From NumPy arrays to NumPy arrays."""
    a, init = (tuple(map(backend.array, v)) if isinstance(v, tuple) else backend.array(v) for v in (a, init))
    y = tridiag.linear_recurrence(a, backend.array(x), init, backend=backend.name, **options)
    return (to_numpy(y[0]), y[1]) if options.get("return_final") else to_numpy(y)


def problem(shape: Any, order: int = 1, dtype: str = "float64", axis: int = -1, seed: int = 0) -> Any:
    """Coefficients, x, init: sequences that neither grow nor vanish."""
    rng = np.random.default_rng(seed)
    batch = np.delete(shape, axis)
    draw = functools.partial(noise, rng, dtype=dtype)
    a = tuple(draw(shape) for _ in range(order))
    return a, draw(shape), tuple(draw(batch) for _ in range(order))


def arguments(values: tuple[Any, ...]) -> Any:
    """A tuple of one as that one."""
    return values if len(values) > 1 else values[0]


# -------------------------------------------------------------------------------------------------------------- values

PLACES = [((30,), -1), ((1,), 0), ((2,), 0), ((4, 20), -1), ((20, 6), 0), ((3, 20, 4), 1), ((3, 1, 2, 17), -1)]


@turned
@pytest.mark.parametrize(("shape", "axis"), PLACES)
def test_values(backend: Subject, shape: Any, axis: int, reverse: bool) -> None:
    (a,), x, (init,) = problem(shape, axis=axis)
    options = {"axis": axis, "reverse": reverse}
    assert_recurs(recur(backend, a, x, **options), (a,), x, **options)
    assert_recurs(recur(backend, a, x, init, **options), (a,), x, (init,), **options)


@pytest.mark.only(order=5)
@turned
@pytest.mark.parametrize("order", [2, 5])
@pytest.mark.parametrize(("shape", "axis"), [((4, 20), -1), ((3, 4, 5), 1)])
def test_higher_orders(backend: Subject, shape: Any, axis: int, reverse: bool, order: int) -> None:
    a, x, init = problem(shape, order, axis=axis)
    options = {"axis": axis, "reverse": reverse}
    assert_recurs(recur(backend, a, x, **options), a, x, **options)
    assert_recurs(recur(backend, a, x, init, **options), a, x, init, **options)


BROADCASTS = {  # the shapes of a, of x and of init, the axis
    "a constant decay": ((), (4, 20), (4,), -1),
    "a decay for each sequence": ((4, 1), (4, 20), (), -1),
    "coefficients for all sequences": ((20,), (4, 20), (4,), -1),
    "coefficients along the first axis": ((20,), (20, 5), (5,), 0),
    "coefficients along the middle axis": ((20,), (3, 20, 4), (3, 1), 1),
    "one x": ((4, 20), (20,), (1,), -1),
    "a constant x": ((4, 20), (), (4,), -1),
    "both constant along the axis": ((4, 1), (3, 1, 1), (), -1),
    "more sequences than either has": ((4, 1, 20), (3, 20), (4, 3), -1),
}


@turned
@pytest.mark.parametrize("case", BROADCASTS)
def test_broadcasting(backend: Subject, case: str, reverse: bool) -> None:
    *shapes, axis = BROADCASTS[case]
    rng = np.random.default_rng(1)
    a, x, init = (rng.uniform(-1, 1, shape) if shape else float(rng.uniform(-1, 1)) for shape in shapes)
    options = {"axis": axis, "reverse": reverse}
    assert_recurs(recur(backend, a, x, **options), (a,), x, **options)
    assert_recurs(recur(backend, a, x, init, **options), (a,), x, (init,), **options)


@pytest.mark.only(order=4)
def test_constant_coefficients_are_a_filter_of_scipy(backend: Subject) -> None:
    signal = pytest.importorskip("scipy.signal")
    rng = np.random.default_rng(2)
    a, x = rng.uniform(-0.4, 0.4, 4), rng.normal(size=(3, 200))
    filtered = signal.lfilter([1.0], [1.0, *-a], x)
    np.testing.assert_allclose(recur(backend, tuple(map(float, a)), x), filtered, rtol=1e-12, atol=1e-12)


def test_a_constant_decay_is_a_filter_of_scipy(backend: Subject) -> None:
    signal = pytest.importorskip("scipy.signal")
    x = np.random.default_rng(2).normal(size=(200, 3))
    filtered = signal.lfilter([1.0], [1.0, -0.9], x, axis=0)
    np.testing.assert_allclose(recur(backend, 0.9, x, axis=0), filtered, rtol=1e-12, atol=1e-12)


def assert_never_reads_what_comes_before(
    backend: Subject, order: int, reverse: bool, shape: Any = (4, 20), axis: int = 1, fill: float = np.nan
) -> None:
    """Coefficients that would multiply what is not given."""
    a, x, _ = problem(shape, order, axis=axis)
    cut = tuple(v.copy() for v in a)
    for k, v in enumerate(cut, 1):
        np.moveaxis(v, axis, 0)[slice(max(0, shape[axis] - k), None) if reverse else slice(k)] = fill
    options = {"axis": axis, "reverse": reverse}
    assert_recurs(recur(backend, arguments(cut), x, **options), a, x, **options)


@turned
def test_the_first_coefficient_is_not_read_without_init(backend: Subject, reverse: bool) -> None:
    assert_never_reads_what_comes_before(backend, 1, reverse)


@pytest.mark.only(order=3)
@turned
def test_the_first_coefficients_are_not_read_without_init(backend: Subject, reverse: bool) -> None:
    assert_never_reads_what_comes_before(backend, 3, reverse)


@pytest.mark.only(order=3)
@turned
@pytest.mark.parametrize("steps", [2, 8, 9, 17, 49])
def test_they_are_not_read_whatever_the_steps_left_over_from_vectors(
    backend: Subject, steps: int, reverse: bool
) -> None:
    """A vector of the first steps may be one of steps that come again in the next."""
    assert_never_reads_what_comes_before(backend, 3, reverse, (17, steps))
    assert_never_reads_what_comes_before(backend, 3, reverse, (steps, 33), axis=0, fill=np.inf)


@turned
@pytest.mark.parametrize("order", [2, 5, pytest.param(8, marks=pytest.mark.slow)])
def test_no_compiled_loop_reads_them(order: int, reverse: bool) -> None:
    """Of all lengths around the vectors of numba_scan, of sequences one after another and side by side."""
    pytest.importorskip("numba")
    run = functools.partial(tridiag.linear_recurrence, backend="numba_scan", reverse=reverse)
    for steps in (*range(1, 27), 49):
        for axis, shape, fill in ((1, (17, steps), np.nan), (0, (steps, 33), np.inf)):
            a, x = np.full((order, *shape), 0.1), np.ones(shape)
            right = run(tuple(a), x, axis=axis)
            for k, v in enumerate(a, 1):
                np.moveaxis(v, axis, 0)[slice(max(0, steps - k), None) if reverse else slice(k)] = fill
            assert_same_bits(run(tuple(a), x, axis=axis), right)


@turned
@pytest.mark.parametrize("dtype", DTYPES)
def test_finite_where_the_sequence_is(backend: Subject, dtype: str, reverse: bool) -> None:
    """The product of the coefficients of a stretch overflows, or vanishes, where no value does."""
    n = 2000
    a, x = np.full((3, n), 10, dtype), np.zeros((3, n), dtype)
    growth = 30 if dtype in ("float32", "complex64") else 300
    x[0, 0], a[0, growth], x[0, n - growth], a[0, n - 5] = 1, 0, 1, 0  # zeros that end growing stretches
    a[1, ::2], x[1, 0] = 0.1, 1  # neither grows nor vanishes
    half = growth // 10
    a[1, 100 : 100 + half], a[1, 100 + half : 100 + 2 * half] = 1e-10, 1e10
    if reverse:
        a, x = a[:, ::-1], x[:, ::-1]
    y = recur(backend, a, x, reverse=reverse)
    right = oracle((a,), x, reverse=reverse)
    assert np.isfinite(y[2]).all() and not y[2].any()
    assert np.isfinite(y).all()
    np.testing.assert_allclose(y, right.astype(dtype), rtol=2000 * EPS[REAL.get(dtype, dtype)])


def test_a_sequence_that_cancels_what_its_coefficients_let_grow(backend: Subject) -> None:
    """The part of a stretch that comes from x alone overflows."""
    a, x = np.full(1000, 16.0), np.full(1000, -15.0)
    x[0] = 1
    np.testing.assert_array_equal(recur(backend, a, x), np.ones(1000))


def test_what_is_not_finite_stays_in_its_future(backend: Subject) -> None:
    (a,), x, _ = problem((3, 40))
    y = recur(backend, a, x)
    dirty = x.copy()
    dirty[0, 20], dirty[1, 20] = np.nan, np.inf
    a[1, 25:] = abs(a[1, 25:])
    found = recur(backend, a, dirty)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(oracle((a,), dirty).astype(float)))
    np.testing.assert_allclose(found[:2, :20], y[:2, :20], rtol=1e-12)
    np.testing.assert_allclose(found[2], y[2], rtol=1e-12)


def test_what_is_not_finite_leaves_the_init_of_others(backend: Subject) -> None:
    """A schedule that falls back on another one for it starts from the same."""
    (a,), x, (init,) = problem((3, 20))
    right = recur(backend, a, x, init)
    x[1, 7] = np.inf
    y = recur(backend, a, x, init)
    np.testing.assert_allclose(y[[0, 2]], right[[0, 2]], rtol=1e-12)
    np.testing.assert_allclose(y[1, :7], right[1, :7], rtol=1e-12)
    assert not np.isfinite(y[1, 7:]).any()


def test_a_long_sequence(backend: Subject) -> None:
    (a,), x, _ = problem((10_007,))
    a = 0.5 + a / 2
    assert_recurs(recur(backend, a, x), (a,), x)


# --------------------------------------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize(("shape", "axis"), [((0,), 0), ((3, 0), -1), ((0, 4), -1), ((0, 4, 3), 1)])
def test_nothing_to_do(backend: Subject, shape: Any, axis: int) -> None:
    batch = tuple(np.delete(shape, axis))
    init = np.full(batch, 3.0)
    y, last = recur(backend, np.ones(shape), np.ones(shape), init, axis=axis, return_final=True)
    assert y.shape == shape and y.dtype == np.float64
    np.testing.assert_array_equal(to_numpy(last), init)
    assert recur(backend, 0.5, np.ones(shape), axis=axis).shape == shape


def assert_final_values_continue(backend: Subject, order: int, reverse: bool, n: int) -> None:
    a, x, init = problem((3, 12), order)
    parts = [slice(12 - n, None), slice(0, 12 - n)] if reverse else [slice(0, n), slice(n, None)]
    y, state = [], arguments(tuple(map(backend.array, init)))
    for part in parts:
        rows = [backend.array(np.ascontiguousarray(v[:, part])) for v in (*a, x)]
        *coefficients, right = rows
        values, state = tridiag.linear_recurrence(
            arguments(tuple(coefficients)), right, state, backend=backend.name, reverse=reverse, return_final=True
        )
        assert isinstance(state, tuple) == (order > 1)
        y.append(to_numpy(values))
    whole = np.concatenate(y[::-1] if reverse else y, axis=1)
    np.testing.assert_allclose(whole, recur(backend, arguments(a), x, arguments(init), reverse=reverse), rtol=1e-12)


@turned
@pytest.mark.parametrize("n", [0, 1, 7])
def test_the_final_value_continues_the_sequence(backend: Subject, reverse: bool, n: int) -> None:
    assert_final_values_continue(backend, 1, reverse, n)


@pytest.mark.only(order=3)
@turned
@pytest.mark.parametrize(("order", "n"), [(2, 0), (2, 1), (3, 7)])
def test_the_final_values_continue_the_sequence(backend: Subject, reverse: bool, order: int, n: int) -> None:
    assert_final_values_continue(backend, order, reverse, n)


@pytest.mark.only(library=("numpy", "torch", "cupy"))
def test_the_final_value_is_a_copy(backend: Subject) -> None:
    (a,), x, _ = problem((3, 12))
    y, last = tridiag.linear_recurrence(backend.array(a), backend.array(x), backend=backend.name, return_final=True)
    before = to_numpy(last).copy()
    y[:] = 0
    np.testing.assert_array_equal(to_numpy(last), before)


def test_without_init_the_final_value_of_no_steps_is_zero(backend: Subject) -> None:
    _, last = recur(backend, 1.0, np.ones((3, 0), np.float32), return_final=True)
    assert dtype_name(last) == "float32"
    np.testing.assert_array_equal(to_numpy(last), np.zeros(3))


# -------------------------------------------------------------------------------------------------------------- dtypes


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(backend: Subject, dtype: str) -> None:
    a, x, init = problem((3, 50), dtype=dtype)
    y = recur(backend, a[0], x, init[0])
    assert y.dtype == dtype
    assert_recurs(y, a, x, init)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_real_coefficients_of_complex_sequences(backend: Subject, dtype: str) -> None:
    (a,), _, _ = problem((3, 50), dtype=REAL[dtype])
    _, x, init = problem((3, 50), dtype=dtype)
    y = recur(backend, a, x, init[0])
    assert y.dtype == dtype
    assert_recurs(y, (a,), x, init)
    np.testing.assert_allclose(y.real, recur(backend, a, x.real, init[0].real), rtol=1e-4, atol=1e-4)


@pytest.mark.only(dtype="complex128")
def test_complex_coefficients_of_real_x(backend: Subject) -> None:
    a, _, _ = problem((3, 50), dtype="complex128")
    _, x, _ = problem((3, 50))
    assert_recurs(recur(backend, a[0], x), a, x)


HALVES = {"numpy": ("float16",), "cupy": ("float16",), "torch": ("float16", "bfloat16"), "jax": ("float16", "bfloat16")}


def test_halves_come_back_as_they_came(backend: Subject) -> None:
    (a,), x, (init,) = problem((3, 50))
    for dtype in HALVES[backend.library]:
        given = [backend.array(v, dtype) for v in (a, x, init)]
        y, last = tridiag.linear_recurrence(*given, backend=backend.name, return_final=True)
        assert dtype_name(y) == dtype_name(last) == dtype
        a1, x1, i1 = map(to_numpy, given)
        assert_recurs(to_numpy(y), (a1,), x1, (i1,), dtype=dtype)


def test_halves_are_summed_in_single(backend: Subject) -> None:
    """Each sum is rounded once: one that were kept in half precision would stall at 256 or 2048."""
    for dtype in HALVES[backend.library]:
        a, x = (backend.array(np.ones((3, 3000)), dtype) for _ in range(2))
        y = tridiag.linear_recurrence(a, x, backend=backend.name)
        wanted = backend.array(np.broadcast_to(np.arange(1.0, 3001.0), (3, 3000)), dtype)
        np.testing.assert_array_equal(to_numpy(y), to_numpy(wanted))


@pytest.mark.only(library=("numpy", "torch"))
@pytest.mark.parametrize("into", [False, True], ids=["new", "out"])
def test_what_a_half_cannot_hold_is_infinite_without_a_warning(backend: Subject, into: bool) -> None:
    a, x = (backend.array(np.full((2, 60), value), "float16") for value in (2.0, 1.0))
    out = backend.array(np.zeros((2, 60)), "float16") if into else None
    y = to_numpy(tridiag.linear_recurrence(a, x, backend=backend.name, out=out))
    assert np.isfinite(y[:, :15]).all() and np.isposinf(y[:, 16:]).all()


INTEGERS = {"numpy": "float64", "cupy": "float64", "jax": "float64", "torch": "float32"}


def test_integers_beside_numbers_promote_as_in_their_library(backend: Subject) -> None:
    y = recur(backend, 1.0, np.array([[1, 2, 3], [0, 1, 0]]))
    assert y.dtype == INTEGERS[backend.library]
    np.testing.assert_array_equal(y, [[1, 3, 6], [0, 1, 1]])


def test_single_and_double_promote(backend: Subject) -> None:
    (a,), x, _ = problem((3, 20))
    assert recur(backend, a.astype(np.float32), x).dtype == np.float64
    assert recur(backend, 0.5, x.astype(np.float32), 1).dtype == np.float32


@pytest.mark.only(library="numpy")
def test_lists_and_scalars(backend: Subject) -> None:
    np.testing.assert_array_equal(recur(backend, [1, 2.0], [1, 1], 3), [4, 9])


# -------------------------------------------------------------------------------------------------------------- memory

LAYERS = {
    "Fortran": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "reversed": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
    "read-only": lambda x: np.broadcast_to(x, x.shape),
    "other byte order": lambda x: x.astype(x.dtype.newbyteorder()),
    "not aligned": lambda x: np.frombuffer(b"." + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape),
}


@pytest.mark.only(library="numpy")
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("layer", LAYERS)
def test_memory_layouts(backend: Subject, layer: str, axis: int) -> None:
    (a,), x, _ = problem((20, 24))
    given = [LAYERS[layer](v) for v in (a, x)]
    assert_recurs(recur(backend, *given, axis=axis), (a,), x, axis=axis)
    np.testing.assert_array_equal(given, (a, x))


@pytest.mark.only(library="numpy", order=2)
@turned
@pytest.mark.parametrize("order", [1, 2])
def test_arrays_that_all_lie_backwards_in_memory(backend: Subject, order: int, reverse: bool) -> None:
    """A result as well, beside which nothing is written."""
    a, x, _ = problem((20, 41), order)
    room = np.full((22, 41), 7.0)
    given = [np.ascontiguousarray(v[:, ::-1])[:, ::-1] for v in (*a, x)]
    options = {"backend": backend.name, "reverse": reverse, "out": room[1:-1, ::-1]}
    assert_recurs(tridiag.linear_recurrence(tuple(given[:-1]), given[-1], **options), a, x, reverse=reverse)
    assert (room[[0, -1]] == 7).all()


@pytest.mark.only(library=("numpy", "torch", "cupy"))
@pytest.mark.parametrize("dtype", ["float64", "float16", "complex64"])
def test_out_takes_the_result(backend: Subject, dtype: str) -> None:
    (a,), x, _ = problem((4, 20), dtype="complex64" if dtype == "complex64" else "float64")
    a, x = backend.array(a.real, dtype.replace("complex64", "float32")), backend.array(x, dtype)
    wanted = to_numpy(tridiag.linear_recurrence(a, x, backend=backend.name))
    for out in (backend.array(np.zeros((4, 20)), dtype), backend.array(np.zeros((20, 4)), dtype).T):
        assert tridiag.linear_recurrence(a, x, backend=backend.name, out=out) is out
        assert_same_bits(to_numpy(out), wanted)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_bits_do_not_depend_on_where_the_result_lies(dtype: str) -> None:
    """Few sequences are joined in vectors, many are not; an array that lies otherwise takes the same numbers."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(3)
    for shape in [(1, 9), (3, 64), (5, 130), (8, 70), (12, 33), (20, 24), (40, 6), (40, 3), (2, 3, 50)]:
        a, x = (rng.uniform(-1, 1, shape).astype(dtype) for _ in range(2))
        wide = np.zeros((*shape[:-1], 2 * shape[-1]), dtype)
        backwards = np.zeros_like(x)[..., ::-1]
        for reverse in (False, True):
            wanted = tridiag.linear_recurrence(a, x, reverse=reverse)
            for out in (wide[..., ::2], wide[..., 1 : shape[-1] + 1], backwards, np.zeros(shape[::-1], dtype).T):
                for _ in range(3):
                    assert tridiag.linear_recurrence(a, x, reverse=reverse, out=out) is out
                    assert_same_bits(out, wanted)


# --------------------------------------------------------------------------------------- results beyond the caches

LARGE = {
    "rows": ((2001, 551), 1),
    "side by side": ((551, 2001), 0),
    "shared": ((551, 2001), 0),
    "long": ((2, 600_007), 1),
}


@pytest.mark.usefixtures("usual_caches")
@turned
@pytest.mark.parametrize("order", (1, 2))
@pytest.mark.parametrize("case", LARGE)
def test_large_results(case: str, order: int, reverse: bool) -> None:
    """Those of numba_scan take another way to memory: the same bits, and nothing beside them is written."""
    pytest.importorskip("numba")
    (shape, axis), rng = LARGE[case], np.random.default_rng(8)
    x, buffer = rng.normal(size=shape), np.full(np.prod(shape) + 16, 7.0)
    a = tuple(rng.uniform(-0.5, 0.5, (shape[0], 1) if case == "shared" else shape) for _ in range(order))
    options = {"axis": axis, "reverse": reverse, "backend": "numba_scan"}
    out = buffer[3:-13].reshape(shape)
    assert out.nbytes > 8 * 2**20
    tridiag.linear_recurrence(a, x, out=out, **options)
    assert (buffer[:3] == 7).all() and (buffer[-13:] == 7).all()
    half = shape[1 - axis] // 2
    for part in (slice(half), slice(half, None)):
        here = (slice(None), part) if axis == 0 else (part,)
        some = tuple(c if case == "shared" else c[here] for c in a)
        assert_same_bits(out[here], tridiag.linear_recurrence(some, x[here], **options))


@pytest.mark.usefixtures("usual_caches")
@pytest.mark.only(library=("numpy", "torch"))
@pytest.mark.parametrize("number", ["float32", "float64"])
def test_a_large_result_in_an_array_whose_batch_axes_do_not_merge(backend: Subject, number: str) -> None:
    """Sequences in the lanes of one vector lie anywhere: each goes to its place, and nothing beside it is written."""
    rows = 2 * 10**5 // np.dtype(number).itemsize + 9 * 10**3
    a, x = noise(np.random.default_rng(0), (2, rows, 3, 15), number) / 2
    wanted = recur(backend, a, x)
    assert wanted.nbytes > 8 * 2**20
    room = backend.array(np.full((rows, 4, 16), 7.0), number)
    out = room[:, :3, :15]
    assert tridiag.linear_recurrence(backend.array(a), backend.array(x), backend=backend.name, out=out) is out
    assert_same_bits(np.ascontiguousarray(to_numpy(out)), wanted)
    out[...] = 7
    assert (to_numpy(room) == 7).all()


# ----------------------------------------------------------------------------------------------- long sequences, cut

LONG = {"float64": 150_001, "float32": 280_003}  # steps: more than a few blocks of numba_scan


def step_by_step(a: np.ndarray, x: np.ndarray) -> np.ndarray:
    y, last = np.empty_like(x), x.dtype.type(0)
    for t in range(len(x)):
        last = a[t] * last + x[t] if t else x[t]
        y[t] = last
    return y


COEFFICIENTS = {
    "decaying": lambda rng, n: rng.uniform(0.5, 1, n),
    "a sum": lambda rng, n: np.ones(n),
    "alternating": lambda rng, n: rng.choice([-1.0, 1.0], n),
    "with zeros": lambda rng, n: rng.uniform(0, 1, n) * (rng.uniform(size=n) > 1e-4),
    "vanishing and back": lambda rng, n: np.where(np.arange(n) % (p := 400 if n < 200_000 else 40) < p // 2, 0.1, 10.0),
    "growing, with zeros": lambda rng, n: np.where(np.arange(n) % 100 == 0, 0.0, 1.2),
}


@pytest.mark.only(library="numpy", compiled=True)
@turned
@pytest.mark.parametrize("dtype", LONG)
@pytest.mark.parametrize("case", COEFFICIENTS)
def test_long_sequences(backend: Subject, case: str, dtype: str, reverse: bool) -> None:
    """As one step after another, up to rounding that the sequence forgets as fast as it forgets its past."""
    rng, n = np.random.default_rng(4), LONG[dtype]
    a, x = COEFFICIENTS[case](rng, n).astype(dtype), rng.normal(size=n).astype(dtype)
    y = recur(backend, a[::-1], x[::-1], reverse=True)[::-1] if reverse else recur(backend, a, x)
    size = step_by_step(abs(a).astype(float), abs(x).astype(float))
    np.testing.assert_array_less(abs(y - step_by_step(a.astype(float), x.astype(float))), 500 * EPS[dtype] * size)


@pytest.mark.only(library="numpy", compiled=True)
def test_a_long_sequence_that_lies_backwards_in_memory(backend: Subject) -> None:
    rng, n = np.random.default_rng(7), LONG["float64"]
    a, x, room = rng.uniform(-1, 1, n), rng.normal(size=n), np.full(n + 64, 7.0)
    out = room[32:-32][::-1]
    tridiag.linear_recurrence(a[::-1], x[::-1], backend=backend.name, out=out)
    np.testing.assert_allclose(out, step_by_step(a[::-1], x[::-1]), rtol=1e-9, atol=1e-12)
    assert (room[:32] == 7).all() and (room[-32:] == 7).all()


@pytest.mark.only(library="numpy")
def test_a_long_sequence_that_cannot_be_cut(backend: Subject) -> None:
    """Its chunks grow beyond all numbers where it does not; what is not finite stays in its future."""
    n = LONG["float64"]
    a, x = np.full(n, 16.0), np.full(n, -15.0)
    x[0] = 1
    np.testing.assert_array_equal(recur(backend, a, x), np.ones(n))
    x[n // 2] = np.nan
    y = recur(backend, a, x)
    np.testing.assert_array_equal(y[: n // 2], np.ones(n // 2))
    assert np.isnan(y[n // 2 :]).all()


@pytest.mark.only(library="numpy", compiled=True)
@pytest.mark.parametrize("rest", (0, 1, 70, 400))
def test_the_end_of_a_long_sequence(backend: Subject, rest: int) -> None:
    """Behind whole blocks of numba_scan some steps are left, too few for a block or not."""
    rng, n = np.random.default_rng(6), 1 + 3 * 8 * 2056 + rest
    a, x = rng.uniform(-1, 1, n), rng.normal(size=n)
    np.testing.assert_allclose(recur(backend, a, x), step_by_step(a, x), rtol=1e-9, atol=1e-12)


@pytest.mark.only(library="numpy", compiled=True)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_long_sequence_that_nearly_vanishes_time_and_again(
    backend: Subject, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values many orders below those before them keep their digits, wherever the sequence is cut, or if it is not."""
    n = LONG[dtype]
    factor, start, least = (1e-3, 1e30, 1e-37) if dtype == "float32" else (1e-27, 1e300, 1e-300)
    a, x = np.full(n, factor, dtype), np.zeros(n, dtype)
    x[::23] = start
    right = step_by_step(a.astype(float), x.astype(float))
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        np.testing.assert_allclose(recur(backend, a, x), right, rtol=100 * EPS[dtype], atol=least)


@pytest.mark.only(library="numpy")
def test_a_few_long_sequences_from_a_state(backend: Subject) -> None:
    rng, n = np.random.default_rng(5), LONG["float64"]
    a, x, init = rng.uniform(-1, 1, (2, n)), rng.normal(size=(2, n)), np.array([1e3, -1e6])
    y = recur(backend, a, x, init)
    x[:, 0] += a[:, 0] * init
    np.testing.assert_allclose(y, [step_by_step(*pair) for pair in zip(a, x, strict=True)], rtol=1e-9, atol=1e-9)


# -------------------------------------------------------------------------------------------------------------- errors

ONES = np.ones((4, 6))


@pytest.mark.parametrize(
    ("kind", "text", "given", "options"),
    [
        (ValueError, r"do not broadcast: a \(4, 6\), x \(3, 6\); x has length 3", (ONES, ONES[:3]), {}),
        (ValueError, r"init has shape \(6,\); wanted .* broadcasts to \(4,\)", (ONES, ONES, np.ones(6)), {}),
        (ValueError, r"init has shape \(4, 6\)", (ONES, ONES, ONES), {}),
        (ValueError, "axis 2 is out of range", (ONES, ONES), {"axis": 2}),
        (ValueError, "all arguments are scalars", (1.0, 2.0), {}),
        (ValueError, "a is an empty tuple", ((), ONES), {}),
        (ValueError, r"; coefficients of order 2 are a tuple: \(a\[0\], a\[1\]\)$", ([0.5, 0.2], ONES), {}),
        (ValueError, r"; coefficients of order 2 are a tuple: \(a\[0\], a\[1\]\)$", (np.ones(2), ONES), {}),
        (TypeError, r"a is a list of arrays; pass the tuple \(a1, ..., ap\) for order p, or ", ([ONES] * 2, ONES), {}),
        (TypeError, "init is a list of arrays; pass a tuple, as a is", ((ONES, ONES), ONES, [ONES[0], ONES[0]]), {}),
        (TypeError, "init is a list of arrays", (ONES, ONES, [ONES[0], ONES[0]]), {}),
        (TypeError, r"a\[0\] is a tuple of arrays; pass the tuple .* of p arrays", (((ONES, ONES), ONES), ONES), {}),
        (ValueError, "init is a float; wanted a tuple of 2 arrays, as a is", ((ONES, ONES), ONES, 1.0), {}),
        (ValueError, "init is a tuple of 1; wanted a tuple of 2 arrays", ((ONES, ONES), ONES, (1.0,)), {}),
        (ValueError, "init is a tuple of 2; wanted one array, as a is", (ONES, ONES, (1.0, 1.0)), {}),
        (ValueError, r"init\[1\] has shape \(3,\)", ((ONES, ONES), ONES, (1.0, np.ones(3))), {}),
        (TypeError, "a has dtype bool", (ONES > 0, ONES), {}),
        (TypeError, r"a\[1\] has dtype datetime64", ((ONES, ONES.astype("M8[s]")), ONES), {}),
        (TypeError, "x is a masked array", (ONES, np.ma.masked_array(ONES)), {}),
        (TypeError, "reverse is 'yes'", (ONES, ONES), {"reverse": "yes"}),
        (TypeError, "return_final is 1", (ONES, ONES), {"return_final": 1}),
        (TypeError, "axis is 1.0", (ONES, ONES), {"axis": 1.0}),
        (ValueError, r"out has shape \(6,\)", (ONES, ONES), {"out": np.ones(6)}),
        (ValueError, "out shares memory with x", (2.0, ONES), {"out": ONES}),
        (ValueError, r"out shares memory with a\[0\]", ((ONES, 1.0), 2.0), {"out": ONES}),
        (tridiag.BackendError, "there is no backend 'nonsense'", (ONES, ONES), {"backend": "nonsense"}),
        (tridiag.BackendError, "cannot run linear_recurrence along axis 1 .*numpy_thomas does not have the verb",
         (ONES, ONES), {"backend": "numpy_thomas"}),
    ],
)  # fmt: skip
def test_bad_input(kind: type[Exception], text: str, given: Any, options: Any) -> None:
    with pytest.raises(kind, match=text):
        tridiag.linear_recurrence(*given, **options)


def test_libraries_mixed() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="a: numpy, x: torch"):
        tridiag.linear_recurrence(ONES, torch.ones(6))


def test_orders_beyond_a_backend() -> None:
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.ones(5)
    text = "cannot run linear_recurrence of order 2 .*: jax_associative runs recurrences up to order 1, not of order 2"
    with pytest.raises(tridiag.BackendError, match=text):
        tridiag.linear_recurrence((0.5, 0.5), x, backend="jax_associative")


def test_an_array_of_jax_takes_no_out() -> None:
    jnp = pytest.importorskip("jax.numpy")
    with pytest.raises(TypeError, match="out= cannot be written"):
        tridiag.linear_recurrence(0.5, jnp.ones(5), out=np.ones(5))


def test_lists_of_numbers_are_arrays() -> None:
    """One of arrays is refused, for it could be meant for the tuple of a higher order."""
    wanted = tridiag.linear_recurrence(np.full(6, 0.5), ONES, np.arange(4.0))
    for a in ([0.5] * 6, [[0.5] * 6] * 4, [np.float64(0.5)] * 6):
        np.testing.assert_array_equal(tridiag.linear_recurrence(a, ONES, [0.0, 1.0, 2.0, 3.0]), wanted)
