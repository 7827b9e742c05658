"""`logcumsumexp` and `log_linear_recurrence` by every backend against their definition."""

import functools
from typing import Any

import numpy as np
import pytest
from helpers import EPS, Subject, assert_same_bits, dtype_name, to_numpy

import tridiag

pytestmark = [
    pytest.mark.only(verb="log_linear_recurrence"),  # whose backends have both verbs
    # torch's own forward mode compiles its decompositions with what it has deprecated
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
]
turned = pytest.mark.parametrize("reverse", [False, True])
both = pytest.mark.parametrize("weighted", [False, True])
on_jax = pytest.mark.only(library="jax")
on_torch = pytest.mark.only(library="torch")
COMPILED = pytest.mark.only(compiled=True)
of_sums = pytest.mark.only(verb="logcumsumexp")
INF, NAN = np.inf, np.nan


def oracle(x: Any, log_a: Any = None, init: Any = None, axis: int = -1, reverse: bool = False) -> np.ndarray:
    """Step by step in long double, where the sum is kept relative to its largest term."""
    arrays = [np.asarray(v, np.longdouble) for v in (x, 0.0 if log_a is None else log_a)]
    rank = max(v.ndim for v in arrays)
    axis %= rank
    rows = [v.reshape((1,) * axis + v.shape + (1,) * (rank - 1 - axis)) if v.ndim == 1 else v for v in arrays]
    x, log_a = (np.moveaxis(v, axis, 0)[:: -1 if reverse else 1] for v in np.broadcast_arrays(*rows))
    y = np.array(x)
    with np.errstate(all="ignore"):
        for t in range(len(x)):
            before = y[t - 1] if t else init
            if before is not None:
                y[t] = np.logaddexp(log_a[t] + before, x[t])
    return np.moveaxis(y[:: -1 if reverse else 1], 0, axis)


def run(backend: Subject, x: Any, log_a: Any = None, init: Any = None, **options: Any) -> Any:
    """From NumPy arrays to NumPy arrays: `logcumsumexp`, or with log_a the recurrence."""
    options["backend"] = backend.name
    if log_a is None:
        return to_numpy(tridiag.logcumsumexp(backend.array(x), **options))
    return to_numpy(tridiag.log_linear_recurrence(*map(backend.array, (log_a, x, init)), **options))


def noise(*shapes: Any, dtype: str = "float64", seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.normal(size=shape), dtype) for shape in shapes]


def assert_close(found: Any, right: Any, steps: int = 8) -> None:
    """Up to some roundings of the largest number."""
    found = np.asarray(found)
    bound = steps * EPS[found.dtype.name] * np.maximum(1, np.max(abs(right), initial=1))
    np.testing.assert_allclose(found, right.astype(found.dtype), rtol=0, atol=float(bound))


# -------------------------------------------------------------------------------------------------------------- values

PLACES = [((30,), -1), ((1,), 0), ((2,), 0), ((4, 20), -1), ((20, 6), 0), ((3, 20, 4), 1), ((3, 1, 2, 17), -1)]
WIDE = [((21, 70), 1), ((70, 37), 0), ((2, 131, 19), 1)]
LONG = [((6007,), 0), ((2, 3001), 1), ((3001, 3), 0)]


@turned
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "axis"), PLACES + WIDE)
def test_values(backend: Subject, shape: Any, axis: int, dtype: str, reverse: bool) -> None:
    check_values(backend, shape, axis, dtype, reverse)


@COMPILED
@turned
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("shape", "axis"), LONG)
def test_sequences_in_chunks(backend: Subject, shape: Any, axis: int, dtype: str, reverse: bool) -> None:
    check_values(backend, shape, axis, dtype, reverse)


def check_values(backend: Subject, shape: Any, axis: int, dtype: str, reverse: bool) -> None:
    batch = tuple(np.delete(shape, axis))
    x, log_a, init = noise(shape, shape, batch, dtype=dtype)
    options = {"axis": axis, "reverse": reverse}
    found = run(backend, x, **options)
    assert found.dtype == dtype
    assert_close(found, oracle(x, **options))
    steps = 8 + 2 * shape[axis] if backend.name == "jax_associative" else 8
    assert_close(run(backend, x, log_a, **options), oracle(x, log_a, **options), steps)
    assert_close(run(backend, x, log_a, init, **options), oracle(x, log_a, init, **options), steps)


BROADCASTS = {  # the shapes of log_a, of x and of init, the axis
    "a constant decay": ((), (4, 20), (4,), -1),
    "a decay for each sequence": ((4, 1), (4, 20), (), -1),
    "coefficients for all sequences": ((20,), (4, 20), (4,), -1),
    "coefficients along the first axis": ((20,), (20, 17), (17,), 0),
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
    log_a, x, init = noise(*shapes)
    options = {"axis": axis, "reverse": reverse}
    right = oracle(x, log_a, np.broadcast_to(init, oracle(x, log_a, axis=axis).take(0, axis).shape), **options)
    assert_close(run(backend, x, log_a, init, **options), right, 64)


LADDERS = {
    "normal": lambda t: np.random.default_rng(0).normal(size=t.size),
    "zeros": lambda t: 0 * t,
    "constant": lambda t: 0 * t + 0.7,
    "rising slowly": lambda t: 1e-6 * t,
    "falling slowly": lambda t: -1e-6 * t,
    "rising": lambda t: 1e-3 * t,
    "falling": lambda t: -1e-3 * t,
    "through 0": lambda t: 0.023904973471509966 * (t - 299),  # sums near 1 of many terms far below
    "jumping": lambda t: np.choose(t.astype(int) // 100 % 4, [0.0, 800.0, -800.0, 2000.0]),
    "wide": lambda t: 300 * np.random.default_rng(1).normal(size=t.size),
    "1e9": lambda t: 0 * t + 1e9,
    "1e16": lambda t: 0 * t + 1e16,
    "1e17": lambda t: 1e17 * np.random.default_rng(2).normal(size=t.size),
    "1e30": lambda t: 1e30 * np.random.default_rng(3).normal(size=t.size),
    "1e300": lambda t: 1e300 * np.random.default_rng(4).normal(size=t.size),
}


@functools.cache
def exactly(name: str, dtype: str, n: int) -> np.ndarray:
    """The log cumsum exp of a ladder, in long double."""
    mpmath = pytest.importorskip("mpmath")
    total, right = mpmath.mpf(0), np.empty(n, np.longdouble)
    with mpmath.workprec(120):
        for t, v in enumerate(ladder(name, dtype, n)):
            total += mpmath.exp(mpmath.mpf(float(v)))
            value = mpmath.log(total)
            right[t] = float(value)
            right[t] += float(value - float(value))
    return right


def units(found: np.ndarray, right: np.ndarray) -> float:
    """The largest error in units in the last place of max(1, abs(result))."""
    unit = np.spacing(np.maximum(1, abs(right.astype(found.dtype))))
    return float(np.max(abs(found - right) / unit))


def length(backend: Subject) -> int:
    return 6007 if backend.compiled else 409


@functools.cache
def ladder(name: str, dtype: str, n: int) -> np.ndarray:
    """Of some length for backends that are loops in Python."""
    return LADDERS[name](np.arange(float(n))).astype(dtype)


@of_sums
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", LADDERS)
def test_errors_do_not_pile_up(backend: Subject, name: str, dtype: str) -> None:
    """A running maximum alone is thousands of units off on what rises slowly."""
    if name == "1e300" and dtype == "float32":
        pytest.skip("beyond float32")
    x = ladder(name, dtype, length(backend))
    right = exactly(name, dtype, length(backend))
    assert units(run(backend, x), right) <= backend.entry.units
    assert units(run(backend, np.repeat(x[:, None], 17, axis=1), axis=0)[:, 16], right) <= backend.entry.units


@of_sums
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_errors_of_few_terms(backend: Subject, dtype: str) -> None:
    """Also where a library's own exp and log are at their worst, as those of NumPy in float32 are by 4 units."""
    first, second = noise((40_000,), (40_000,))
    x = np.stack([1.1 + 0.2 * first, 1.1 - 3 * abs(second)]).astype(dtype)
    right = np.logaddexp.accumulate(x.astype(np.longdouble))
    assert units(run(backend, x, axis=0), right) <= backend.entry.units


@of_sums
def test_errors_of_pairs_found_by_a_search(backend: Subject) -> None:
    """Where XLA's exp is at its worst, by 1.3 units for doubles, and all other roundings add to it: that made 2.15."""
    first = [1.040378314816301, 1.040234407490088, 1.040555749884733, 1.0401911358268936, 1.0403013243233805]
    second = [-13.681595066315035, -17.254432752363375, -30.111728179440032, -12.611578594000337, -4.085312427544197]
    x = np.repeat([first, second], 8, axis=1)  # as many as fill vectors, whose exp may be another
    right = np.logaddexp.accumulate(x.astype(np.longdouble))
    assert units(run(backend, x, axis=0), right) <= backend.entry.units


@both
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1e10, 3e17, 1e20])
def test_nothing_is_added_to_what_is_far_below(backend: Subject, size: float, dtype: str, weighted: bool) -> None:
    """The exponent of a sum has bounds, and a sum beyond them that only minus infinity follows has no other number."""
    column = np.array([-np.inf, -size, -np.inf, -np.inf, -2 * size, -np.inf] + 40 * [-np.inf], dtype)
    right = np.where(np.arange(46) == 0, -np.inf, column[1])
    for x, axis in ((column, 0), (np.repeat(column[:, None], 64, axis=1), 0), (np.tile(column, (64, 1)), 1)):
        log_a = np.zeros(1, dtype) if weighted else None
        found = np.moveaxis(run(backend, x, log_a, axis=axis), axis, -1)
        np.testing.assert_array_equal(found, np.broadcast_to(right, found.shape))


@pytest.mark.parametrize("verb", ["logcumsumexp", "log_linear_recurrence"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scan_inside_shard_map(verb: str, dtype: str) -> None:
    """What a scan starts from varies over the mesh as x does."""
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(noise((2, 5))[0].astype(dtype))
    given = (x,) if verb == "logcumsumexp" else (x, x)
    solve = functools.partial(getattr(tridiag, verb), backend="jax_scan")
    mesh, part = jax.make_mesh((1,), ("i",), axis_types=(jax.sharding.AxisType.Auto,)), jax.sharding.PartitionSpec("i")
    found = jax.jit(jax.shard_map(solve, mesh=mesh, in_specs=part, out_specs=part))(*given)
    assert np.allclose(found, solve(*given))


def test_errors_of_log_a_do_not_pile_up(backend: Subject) -> None:
    """A chain of constant log_a is as exact as its sum."""
    if backend.name == "jax_associative":
        pytest.skip("its errors grow with the sum of log_a")
    n = length(backend)
    x = np.full(n, -INF)
    x[0] = 0.3
    for log_a in (1e-6, -1e-3, 0.1, -5.3):
        right = np.longdouble(0.3) + np.arange(n) * np.longdouble(log_a)
        found = run(backend, x, np.full(n, log_a))
        assert (abs(found - right) <= 2 * np.spacing(np.maximum(1, abs(right).astype(float)))).all()


# ------------------------------------------------------------------------------------------------------------ infinite

EXTREMES = [
    [-INF, -INF, 1], [INF, INF, 1], [INF, -INF, 1], [1, NAN, 2], [-INF] * 3, [NAN, INF, 1], [INF, NAN, 1],
    [-INF, 1e300, 2], [0, 800, 1], [0, -1e300, 1], [-1e300, 1e300, 1e300], [-1e300, -INF, -1e300],
    [1.7e308, 1.7e308, 1], [-1.7e308, -INF, 0], [5e-324, 0, -5e-324], [INF] * 3, [NAN] * 3, [-INF, NAN, -INF],
]  # fmt: skip


@turned
@both
@pytest.mark.parametrize("x", EXTREMES, ids=str)
def test_infinities_and_nan(backend: Subject, x: list[float], weighted: bool, reverse: bool) -> None:
    """As the definition, in whatever lane and row; what is not in the past of a value does not touch it."""
    values = np.array(x[::-1] if reverse else x, float)
    log_a = np.zeros(3) if weighted else None
    right = oracle(values, reverse=reverse).astype(float)
    found = run(backend, values, log_a, reverse=reverse)
    np.testing.assert_allclose(found, right, rtol=1e-15, atol=3e-16)
    many = np.zeros((20, 90))
    many[11, 40:43] = values
    log_a = np.zeros((20, 90)) if weighted else None
    np.testing.assert_allclose(
        run(backend, many, log_a, reverse=reverse), oracle(many, reverse=reverse), rtol=1e-14, atol=3e-16
    )


@pytest.mark.parametrize("seed", range(3))
def test_infinite_coefficients(backend: Subject, seed: int) -> None:
    """-inf ends what is before it, and +inf is as in the definition; also next to values without bounds."""
    rng = np.random.default_rng(seed)
    pool = np.array([0, 1, -1, 30.5, -700, 1000, -INF, -INF, NAN, INF, 1e300, -1e300, 2.0**58, -2e17])
    log_a, x = (rng.choice(pool, (500, 6), p=np.r_[[0.109] * 8, [0.128 / 6] * 6]) for _ in range(2))
    init = rng.choice(pool, 500)
    right = oracle(x, log_a, init).astype(float)
    sizes = np.column_stack([init, log_a])
    cancelled = np.cumsum(np.where(abs(sizes) < INF, abs(sizes), 0), axis=1)[:, 1:]
    found = run(backend, x, log_a, init)
    sure = (cancelled < 1e15) | ~(abs(right) < INF)
    np.testing.assert_allclose(found[sure], right[sure], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_coefficients_that_outweigh_what_was_before(backend: Subject, dtype: str) -> None:
    """Around the size from which on the larger of two terms is all; errors are those of the largest number so far."""
    rng = np.random.default_rng(0)

    def drawn() -> np.ndarray:
        sizes = rng.choice([1.0, 0.5, 1e-3, 2.5], (500, 6)) * 64 / EPS[dtype]
        special = rng.choice([-INF, INF, 0, 1e30, -1e30], (500, 6))
        return np.where(rng.random((500, 6)) < 0.25, special, sizes * rng.normal(size=(500, 6))).astype(dtype)

    log_a, x = drawn(), drawn()
    right = oracle(x, log_a)
    sizes = np.ones((500, 6))
    for part in (x, np.where(np.arange(6) > 0, log_a, 0), right):
        sizes = np.fmax(sizes, np.where(np.isfinite(part), abs(part), 0).astype(float))
    found, bound = run(backend, x, log_a), 64 * EPS[dtype] * np.maximum.accumulate(sizes, 1)
    with np.errstate(invalid="ignore"):
        near = (abs(found - right) <= bound) | (found == right) | (np.isnan(found) & np.isnan(right))
    assert near.all(), (log_a[~near.all(1)][:2], x[~near.all(1)][:2], found[~near.all(1)][:2])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_coefficients_that_end_what_was_before(backend: Subject, dtype: str) -> None:
    """Of any size, now and then or in all steps; what follows has no errors of theirs."""
    rng, (sequences, n) = np.random.default_rng(0), (24, 130)
    x, log_a = rng.normal(size=(sequences, n)), rng.normal(-0.1, 0.5, size=(sequences, n))
    ends = rng.random((sequences, n)) < 0.2
    ends[: sequences // 4] = True
    sizes = 10.0 ** rng.uniform(2, 20, (sequences, 1)) * rng.uniform(0.5, 1, (sequences, n))
    x, log_a = x.astype(dtype), np.where(ends, -sizes, log_a).astype(dtype)
    steps = 8 + 2 * n if backend.name == "jax_associative" else 8
    assert_close(run(backend, x, log_a), oracle(x, log_a), steps)


@pytest.mark.parametrize("seed", range(2))
def test_infinite_coefficients_of_long_sequences(backend: Subject, seed: int) -> None:
    """Where stretches of a sequence are put together +inf meets some that are -inf, or that end what was before."""
    rng, n = np.random.default_rng(seed), length(backend)
    x, log_a = rng.normal(size=n), 0.1 * rng.normal(size=n)
    for values in (x, log_a):
        values[rng.integers(0, n, 40)] = -INF
    x[n // 15 : n // 8], log_a[n // 10] = -INF, INF
    log_a[n // 12] = -INF if seed else 0.0
    right = oracle(x, log_a).astype(float)
    np.testing.assert_allclose(run(backend, x, log_a), right, rtol=1e-11, atol=1e-11)


# --------------------------------------------------------------------------------------------------------------- sizes


@pytest.mark.parametrize(("shape", "axis"), [((0,), 0), ((3, 0), -1), ((0, 4), -1), ((0, 4, 3), 1)])
def test_nothing_to_do(backend: Subject, shape: Any, axis: int) -> None:
    batch = tuple(np.delete(shape, axis))
    assert run(backend, np.ones(shape), axis=axis).shape == shape
    x, init = backend.array(np.ones(shape)), backend.array(np.full(batch, 3.0))
    call = functools.partial(tridiag.log_linear_recurrence, x, x, axis=axis, backend=backend.name, return_final=True)
    y, last = call(init)
    assert tuple(y.shape) == shape and dtype_name(y) == "float64"
    np.testing.assert_array_equal(to_numpy(last), np.full(batch, 3.0))
    if shape[axis] == 0:
        np.testing.assert_array_equal(to_numpy(call()[1]), np.full(batch, -INF))


@turned
@pytest.mark.parametrize("n", [0, 1, 7])
def test_the_final_value_continues_the_sequence(backend: Subject, reverse: bool, n: int) -> None:
    log_a, x, init = noise((3, 12), (3, 12), (3,))
    parts = [slice(12 - n, None), slice(0, 12 - n)] if reverse else [slice(0, n), slice(n, None)]
    y, state = [], backend.array(init)
    for part in parts:
        rows = [backend.array(np.ascontiguousarray(v[:, part])) for v in (log_a, x)]
        values, state = tridiag.log_linear_recurrence(
            *rows, state, backend=backend.name, reverse=reverse, return_final=True
        )
        y.append(to_numpy(values))
    whole = np.concatenate(y[::-1] if reverse else y, axis=1)
    np.testing.assert_allclose(whole, run(backend, x, log_a, init, reverse=reverse), rtol=1e-12, atol=1e-14)


@turned
def test_the_first_coefficient_is_not_read_without_init(backend: Subject, reverse: bool) -> None:
    for shape in ((4, 20), (length(backend),), (20, 40)):
        log_a, x = noise(shape, shape)
        right = oracle(x, log_a, reverse=reverse)
        log_a[..., -1 if reverse else 0] = NAN
        assert_close(run(backend, x, log_a, reverse=reverse), right, 64)


# ------------------------------------------------------------------------------------------------------ dtypes, memory

HALVES = {"numpy": ("float16",), "cupy": ("float16",), "torch": ("float16", "bfloat16"), "jax": ("float16", "bfloat16")}


@of_sums
def test_halves_compute_in_single_precision(backend: Subject) -> None:
    x = noise((3, 50))[0]
    for dtype in HALVES[backend.library]:
        given = backend.array(x, dtype)
        y = tridiag.logcumsumexp(given, backend=backend.name)
        assert dtype_name(y) == dtype
        right = oracle(to_numpy(given)).astype(np.float32)
        np.testing.assert_allclose(to_numpy(y).astype(np.float32), right, rtol=EPS[dtype] / 2, atol=EPS[dtype] / 2)


@of_sums
def test_integers_promote_as_in_their_library(backend: Subject) -> None:
    y = run(backend, np.array([[0, 0, 0], [3, 2, 1]]))
    assert y.dtype == ("float32" if backend.library == "torch" else "float64")
    assert_close(y, oracle(np.array([[0, 0, 0], [3, 2, 1]])))


LAYERS = {
    "Fortran": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "reversed": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
    "read-only": lambda x: np.broadcast_to(x, x.shape),
    "other byte order": lambda x: x.astype(x.dtype.newbyteorder()),
    "not aligned": lambda x: np.frombuffer(b"." + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape),
}


@pytest.mark.only(library="numpy")
@turned
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("layer", LAYERS)
def test_memory_layouts(backend: Subject, layer: str, axis: int, reverse: bool) -> None:
    log_a, x = noise((20, 24), (20, 24))
    given, options = [LAYERS[layer](v) for v in (log_a, x)], {"axis": axis, "reverse": reverse}
    assert_close(run(backend, given[1], **options), oracle(x, **options))
    assert_close(run(backend, given[1], given[0], **options), oracle(x, log_a, **options), 64)
    np.testing.assert_array_equal(given, (log_a, x))


@pytest.mark.only(library=("numpy", "torch"))
@turned
@both
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [2, 3, 5, 8, 9])
def test_few_steps(backend: Subject, n: int, dtype: str, weighted: bool, reverse: bool) -> None:
    """Of any number of sequences, that lie end to end or do not; the first log_a is not read."""
    for count in (1, 7, 8, 37, 64, 131) if backend.compiled else (7,):
        x, log_a = noise((count, n), (count, n), dtype=dtype, seed=count)
        x[1::3, n // 2], log_a[2::5, n // 2], x[3::7, 0] = -INF, -INF, NAN
        log_a[::2, -1 if reverse else 0] = NAN
        right = oracle(x, np.where(np.isnan(log_a), 0, log_a) if weighted else None, reverse=reverse).astype(dtype)
        given = [backend.array(v) for v in ((log_a, x) if weighted else (x,))]
        verb = tridiag.log_linear_recurrence if weighted else tridiag.logcumsumexp
        call = functools.partial(verb, *given, backend=backend.name, reverse=reverse)
        found = to_numpy(call())
        np.testing.assert_allclose(found, right, rtol=16 * EPS[dtype], atol=16 * EPS[dtype])
        elsewhere = backend.array(np.zeros((n, count), dtype)).T
        assert_same_bits(to_numpy(call(out=elsewhere)), found)


@of_sums
@pytest.mark.only(library=("numpy", "torch"))
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_out_takes_the_result(backend: Subject, dtype: str) -> None:
    x = backend.array(noise((4, 20))[0], dtype)
    wanted = to_numpy(tridiag.logcumsumexp(x, backend=backend.name))
    for out in (backend.array(np.zeros((4, 20)), dtype), backend.array(np.zeros((20, 4)), dtype).T):
        assert tridiag.logcumsumexp(x, backend=backend.name, out=out) is out
        assert_same_bits(to_numpy(out), wanted)


# ----------------------------------------------------------------------------------------------------------- gradients


def functions(backend: Subject) -> list[tuple[Any, list[np.ndarray]]]:
    """The verbs as functions of arrays, and those."""
    log_a, x, init = noise((2, 5), (2, 5), (2,))
    by = functools.partial(tridiag.log_linear_recurrence, backend=backend.name)
    return [
        (functools.partial(tridiag.logcumsumexp, backend=backend.name), [x]),
        (functools.partial(tridiag.logcumsumexp, backend=backend.name, axis=0, reverse=True), [x]),
        (by, [log_a, x]),
        (functools.partial(by, reverse=True), [log_a, x, init]),
        (by, [log_a[0], x, init]),
        (by, [log_a[:, :1], x[:1], init]),
    ]


@on_jax
@pytest.mark.parametrize("which", range(6))
def test_finite_differences_under_jax(backend: Subject, which: int) -> None:
    import jax
    from jax.test_util import check_grads

    function, arrays = functions(backend)[which]
    arrays = [jax.numpy.asarray(v) for v in arrays]
    check_grads(jax.jit(function), arrays, order=1, modes=("fwd", "rev"), atol=1e-4, rtol=1e-4)


@on_jax
@pytest.mark.parametrize("which", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_second_differences_under_jax(backend: Subject, which: int) -> None:
    import jax
    from jax.test_util import check_grads

    function, arrays = functions(backend)[which]
    arrays = [jax.numpy.asarray(v) for v in arrays]
    check_grads(jax.jit(function), arrays, order=2, modes=("fwd", "rev"), atol=1e-4, rtol=1e-4)


@on_torch
@pytest.mark.parametrize("which", range(6))
def test_finite_differences_under_torch(backend: Subject, which: int) -> None:
    import torch

    function, arrays = functions(backend)[which]
    given = [torch.tensor(v, requires_grad=True) for v in arrays]
    torch.autograd.gradcheck(function, given, check_forward_ad=True)
    torch.autograd.gradgradcheck(function, given, check_fwd_over_rev=True)


@on_jax
def test_gradients_under_vmap_and_jit(backend: Subject) -> None:
    import jax

    function = functools.partial(tridiag.log_linear_recurrence, backend=backend.name)
    gradient = jax.jit(jax.grad(lambda *v: (function(*v) ** 2).sum(), argnums=(0, 1, 2)))
    arrays = list(map(jax.numpy.asarray, noise((3, 2, 5), (3, 2, 5), (3, 2))))
    for dims in ((0, 0, 0), (None, 0, None)):
        given = [v if dim == 0 else v[0] for v, dim in zip(arrays, dims, strict=True)]
        found = jax.jit(jax.vmap(gradient, in_axes=dims))(*given)
        for k in range(3):
            right = gradient(*(v[k] if dim == 0 else v for v, dim in zip(given, dims, strict=True)))
            for x, y in zip(found, right, strict=True):
                np.testing.assert_allclose(x[k], y, rtol=1e-12)


@on_torch
def test_gradients_under_vmap_of_torch(backend: Subject) -> None:
    import torch

    function = functools.partial(tridiag.log_linear_recurrence, backend=backend.name)
    gradient = torch.func.grad(lambda *v: (function(*v) ** 2).sum(), argnums=(0, 1, 2))
    arrays = list(map(torch.tensor, noise((3, 2, 5), (3, 2, 5), (3, 2))))
    found = torch.func.vmap(gradient)(*arrays)
    for k in range(3):
        for x, y in zip(found, gradient(*(v[k] for v in arrays)), strict=True):
            torch.testing.assert_close(x[k], y)


@functools.cache
def pulled_back(name: str, reverse: bool) -> Any:
    """x and the cotangent of y to that of x, compiled."""
    import jax

    call = functools.partial(tridiag.logcumsumexp, backend=name, reverse=reverse)
    return jax.jit(lambda x, g: jax.vjp(call, x)[1](g)[0])


def gradient_of(backend: Subject, x: np.ndarray, g: np.ndarray, reverse: bool) -> np.ndarray:
    """The cotangent of x."""
    if backend.library == "jax":
        return np.asarray(pulled_back(backend.name, reverse)(x, g))
    call = functools.partial(tridiag.logcumsumexp, backend=backend.name, reverse=reverse)
    given = backend.array(x).requires_grad_()
    call(given).backward(backend.array(g))
    return to_numpy(given.grad)


@pytest.mark.only(library=("jax", "torch"))
@turned
@pytest.mark.parametrize("x", EXTREMES, ids=str)
def test_gradients_at_infinities_and_nan(backend: Subject, x: list[float], reverse: bool) -> None:
    """exp(x[s] - y[t]) for each s <= t with a finite y[t]; nothing comes from an infinite one, NaN only from NaN."""
    values, identity = np.array(x, float), np.eye(3)
    y = oracle(values).astype(float)
    with np.errstate(all="ignore"):
        right = np.where(np.isfinite(y)[:, None], np.tril(np.exp(values - y[:, None])), 0.0)
    for t in range(3):
        given = (values[::-1], identity[t, ::-1]) if reverse else (values, identity[t])
        found = gradient_of(backend, *map(np.ascontiguousarray, given), reverse)[:: -1 if reverse else 1]
        clean = ~np.isnan(y)
        np.testing.assert_allclose(found[clean], right[t][clean], rtol=1e-12, atol=1e-300)


@pytest.mark.only(library=("jax", "torch"))
@pytest.mark.parametrize("slope", [1e-3, -1e-3, 5.0, -5.0])
def test_gradients_of_long_sequences(backend: Subject, slope: float) -> None:
    """exp(x - y[n-1]), whatever the range of x."""
    x = slope * np.arange(200.0)
    g = np.zeros(200)
    g[-1] = 1
    right = np.exp(x - oracle(x)[-1]).astype(float)
    np.testing.assert_allclose(gradient_of(backend, x, g, False), right, rtol=1e-9, atol=1e-300)


# ------------------------------------------------------------------------------------------------ complex numbers

COMPLEX = {
    "normal": lambda r, n: r.normal(size=n) + 1j * r.normal(size=n),
    "turning": lambda r, n: r.normal(size=n) + 40j * r.normal(size=n),
    "rising slowly": lambda r, n: 1e-6 * np.arange(n) + 0.3j,
    "constant": lambda r, n: np.full(n, 0.7 + 1j),
    "wide": lambda r, n: 300 * r.normal(size=n) + 1j * r.normal(size=n),
    "far": lambda r, n: 1e17 * r.normal(size=n) + 1j * r.normal(size=n),
}


@functools.cache
def exact_sums(name: str, dtype: str, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Terms, the logarithms of their sums, and how much more their sizes are in sum."""
    mpmath = pytest.importorskip("mpmath")
    x = COMPLEX[name](np.random.default_rng(0), n).astype(dtype)
    total, sizes, right, condition = mpmath.mpc(0), mpmath.mpf(0), np.empty(n, np.clongdouble), np.empty(n)
    with mpmath.workprec(120):
        for t, v in enumerate(x):
            term = mpmath.exp(mpmath.mpc(complex(v)))
            total, sizes = total + term, sizes + abs(term)
            right[t], condition[t] = complex(mpmath.log(total)), float(sizes / abs(total))
    return x, right, condition


@pytest.mark.only(dtype="complex128")
@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", COMPLEX)
def test_complex_sums(backend: Subject, name: str, dtype: str) -> None:
    """To some units, times what cancels; imaginary parts are those of the principal logarithm."""
    x, right, condition = exact_sums(name, dtype, 409)
    unit = np.spacing(np.maximum(1, abs(right)).astype(x.real.dtype))
    for found in (
        run(backend, x),
        run(backend, x[::-1].copy(), reverse=True)[::-1],
        run(backend, np.repeat(x[:, None], 3, axis=1), axis=0)[:, 2],
    ):
        assert found.dtype == dtype and (abs(found.imag) <= np.pi * (1 + EPS[x.real.dtype.name])).all()
        error = found - right
        error = error.real + 1j * (error.imag - 2 * np.pi * np.rint(error.imag / (2 * np.pi)))
        assert (abs(error) <= 3 * unit * condition).all()


def test_complex_tensors_go_the_way_of_arrays() -> None:
    """To the bit: the same loops take their memory, in place of ten times as many operations of torch."""
    torch, rng = pytest.importorskip("torch"), np.random.default_rng(5)
    x = rng.normal(size=(3, 40)) + 1j * rng.normal(size=(3, 40))
    for given, wanted in ((torch.tensor(x), x), (torch.tensor(x).conj(), x.conj()), (torch.tensor(x.T).mT, x)):
        found = tridiag.logcumsumexp(given, backend="numba_scan")
        np.testing.assert_array_equal(found.numpy(), tridiag.logcumsumexp(wanted, backend="numba_scan"))


@pytest.mark.only(dtype="complex128")
def test_complex_infinities_and_nan(backend: Subject) -> None:
    x = np.array(
        [complex(-INF, NAN), complex(-INF, 3), 1 + 1j, complex(INF, 1), 2, complex(INF, 1), complex(NAN, 0), 1]
    )
    found = run(backend, x)
    assert (found[:2].real == -INF).all() and found[2] == 1 + 1j and (found[3:6].real == INF).all()
    np.testing.assert_allclose(found[3:6].imag, 1)
    assert np.isnan(found[6:]).all()


@pytest.mark.only(dtype="complex128")
@on_torch
def test_complex_gradients_are_those_of_torch(backend: Subject) -> None:
    torch = pytest.importorskip("torch")
    x, g = (v + 1j * w for v, w in zip(*[iter(noise((3, 9), (3, 9), (3, 9), (3, 9)))] * 2, strict=True))
    x = torch.tensor(x, requires_grad=True)
    found, wanted = (
        torch.autograd.grad(y, x, torch.tensor(g))[0].resolve_conj()
        for y in (tridiag.logcumsumexp(x, backend=backend.name), torch.logcumsumexp(x, -1))
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_complex_gradients_under_jax() -> None:
    jax = pytest.importorskip("jax")
    x, g = (v + 1j * w for v, w in zip(*[iter(noise((9,), (9,), (9,), (9,)))] * 2, strict=True))

    def plain(x: Any) -> Any:
        return jax.numpy.log(jax.numpy.cumsum(jax.numpy.exp(x)))

    found, wanted = (jax.jit(lambda x, f=f: jax.vjp(f, x)[1](g)[0])(x) for f in (tridiag.logcumsumexp, plain))
    np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_complex_sums_want_whole_sequences() -> None:
    da = pytest.importorskip("dask.array")
    x = np.ones((2, 6)) * (1 + 1j)
    np.testing.assert_allclose(
        tridiag.logcumsumexp(da.from_array(x, chunks=(1, 6))).compute(), tridiag.logcumsumexp(x), rtol=1e-14
    )
    with pytest.raises(TypeError, match="logcumsumexp takes complex128 where whole sequences are in one place; gather"):
        tridiag.logcumsumexp(da.from_array(x, chunks=(2, 3)))


@of_sums
def test_an_array_without_axes_is_its_own_sum(backend: Subject) -> None:
    for axis in (0, -1):
        found = tridiag.logcumsumexp(backend.array(np.array(3.5)), axis=axis, backend=backend.name)
        assert found.shape == () and float(found) == 3.5
    with pytest.raises(ValueError, match="axis 1 is out of range"):
        tridiag.logcumsumexp(backend.array(np.array(3.5)), axis=1)


def test_an_array_without_axes_has_its_place() -> None:
    out = np.empty(())
    assert tridiag.logcumsumexp(np.array(2), out=out) is out and out == 2


# -------------------------------------------------------------------------------------------------------------- errors

ONES = np.ones((4, 6))


@pytest.mark.parametrize(
    ("kind", "text", "given", "options"),
    [
        (ValueError, "axis 2 is out of range", ONES, {"axis": 2}),
        (ValueError, "all arguments are scalars", 1.0, {}),
        (TypeError, "x has dtype bool", ONES > 0, {}),
        (TypeError, "x is a masked array", np.ma.masked_array(ONES), {}),
        (TypeError, "reverse is 'yes'", ONES, {"reverse": "yes"}),
        (TypeError, "axis is 1.0", ONES, {"axis": 1.0}),
        (ValueError, r"out has shape \(6,\)", ONES, {"out": np.ones(6)}),
        (ValueError, "out shares memory with x", ONES, {"out": ONES}),
        (tridiag.BackendError, "there is no backend 'nonsense'", ONES, {"backend": "nonsense"}),
        (tridiag.BackendError, "cannot run logcumsumexp along axis 1 .*numpy_thomas does not have the verb", ONES,
         {"backend": "numpy_thomas"}),
    ],
)  # fmt: skip
def test_bad_input(kind: type[Exception], text: str, given: Any, options: Any) -> None:
    with pytest.raises(kind, match=text):
        tridiag.logcumsumexp(given, **options)


@pytest.mark.parametrize(
    ("kind", "text", "given", "options"),
    [
        (ValueError, r"do not broadcast: log_a \(4, 6\), x \(3, 6\)", (ONES, ONES[:3]), {}),
        (ValueError, r"init has shape \(6,\); wanted .* broadcasts to \(4,\)", (ONES, ONES, np.ones(6)), {}),
        (TypeError, "log_linear_recurrence takes logarithms .* not complex128", (ONES + 1j, ONES), {}),
        (TypeError, "log_a is None; wanted numbers", (None, ONES), {}),
        (TypeError, "log_a has dtype object", (np.full(6, None), ONES), {}),
        (TypeError, "log_a is a tuple of arrays, and this recurrence is of first order", ((ONES, ONES), ONES), {}),
        (TypeError, "return_final is 1", (ONES, ONES), {"return_final": 1}),
        (ValueError, "out shares memory with log_a", (ONES, 2.0), {"out": ONES}),
    ],
)
def test_bad_input_of_the_recurrence(kind: type[Exception], text: str, given: Any, options: Any) -> None:
    with pytest.raises(kind, match=text):
        tridiag.log_linear_recurrence(*given, **options)


def test_an_array_of_jax_takes_no_out() -> None:
    jnp = pytest.importorskip("jax.numpy")
    with pytest.raises(TypeError, match="out= cannot be written"):
        tridiag.logcumsumexp(jnp.ones(5), out=np.ones(5))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_chunks_of_one_row(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """They lie side by side in memory, as sequences may, but are totalled a group at a time."""
    pytest.importorskip("numba")
    from tridiag.backends import numba_scan
    from tridiag.kernels.jobs import logsumexp
    from tridiag.kernels.table import call_of

    monkeypatch.setattr(logsumexp, "FEWEST_ROWS", 1)
    monkeypatch.setattr(numba_scan, "granted", lambda form, weight: 4)
    call_of.cache_clear()
    (x,) = noise((61 if dtype == "float64" else 120,), dtype=dtype)
    found = tridiag.logcumsumexp(x, backend="numba_scan")
    call_of.cache_clear()
    np.testing.assert_allclose(found, tridiag.logcumsumexp(x, backend="numpy_scan"), rtol=1e-5, atol=1e-5)


def test_one_step_in_jax_is_its_argument() -> None:
    """With its NaN and infinities; and its derivative is 1."""
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(np.array([[1.0, -np.inf, np.inf, np.nan, -3.0]], np.float32))
    found = jax.jit(lambda x: tridiag.logcumsumexp(x, axis=0))(x)
    np.testing.assert_array_equal(found, x)
    slope = jax.grad(lambda x: tridiag.logcumsumexp(x, axis=0)[0, 4])(x)
    np.testing.assert_array_equal(slope[0, [0, 4]], [0, 1])
