"""That every backend solves every arrangement of arguments that the interface allows, under every promise it keeps."""

import numpy as np
import pytest
from helpers import (
    DTYPES,
    REAL,
    Subject,
    assert_same_bits,
    assert_solves,
    dominant,
    dtype_name,
    to_numpy,
    uniform,
)

import tridiag

LAYOUTS = {"last": ((3, 50), -1), "first": ((50, 3), 0), "middle": ((2, 50, 3), 1)}
# more systems side by side than any vector or tile takes, so that some end where the next row of systems begins
LAYOUTS |= {"wide middle": ((3, 7, 300), 1), "narrow middle": ((70, 7, 5), 1), "whole vectors": ((3, 7, 64), 1)}
LAYOUTS |= {"last tile short": ((3, 2000), 0)}


def entries(seed: int, *shapes: tuple[int, ...], axis: int = -1, dtype: str = "float64") -> list[np.ndarray]:
    """a, b, c, d of the shapes, dominant after broadcasting."""
    rng = np.random.default_rng(seed)
    a, b, c, d = (rng.uniform(-1, 1, shape).astype(dtype) for shape in shapes)
    return [a, b + np.where(b < 0, -3, 3).astype(dtype), c, d]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_axis(backend: Subject, pivoting: bool | str, layout: str) -> None:
    shape, axis = LAYOUTS[layout]
    system = dominant(shape, axis=axis)
    assert_solves(backend.solve(*system, axis=axis, pivoting=pivoting), *system, axis=axis, pivoting=pivoting)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((9, 8), -1), ((9, 11), -1), ((8, 40), 0)])
def test_pads_are_never_read(
    backend: Subject, pivoting: bool | str, shape: tuple[int, ...], axis: int, transpose: bool
) -> None:
    """Nor when the last rows are exchanged, which puts the entry beside a pad into the pivot row."""
    options = {"axis": axis, "pivoting": pivoting, "transpose": transpose}
    a, b, c, d = system = (uniform if pivoting else dominant)(shape, axis=axis)
    wanted = backend.solve(*system, **options)
    np.moveaxis(a, axis, 0)[0], np.moveaxis(c, axis, 0)[-1] = np.nan, np.inf
    np.testing.assert_array_equal(backend.solve(a, b, c, d, **options), wanted)


@pytest.mark.parametrize("n", [1, 2])
def test_few_rows(backend: Subject, pivoting: bool | str, n: int) -> None:
    system = dominant((4, n))
    assert_solves(backend.solve(*system, pivoting=pivoting), *system, pivoting=pivoting)


@pytest.mark.parametrize("shape", [(0,), (4, 0), (0, 5), (2, 0, 5), (0, 0)])
def test_nothing_to_solve(backend: Subject, pivoting: bool | str, shape: tuple[int, ...]) -> None:
    x = backend.solve(1.0, 4.0, 1.0, np.zeros(shape, np.float32), pivoting=pivoting)
    assert x.shape == shape and x.dtype == np.float32


@pytest.mark.only(pivoting="auto")
def test_systems_that_need_pivoting(backend: Subject) -> None:
    system = uniform((200, 20))
    assert_solves(backend.solve(*system), *system)
    assert_solves(backend.solve(*system, transpose=True), *system, transpose=True)


@pytest.mark.only(periodic=True)
@pytest.mark.parametrize(("n", "transpose"), [(3, False), (20, False), (20, True)])
def test_periodic(backend: Subject, n: int, transpose: bool) -> None:
    system = dominant((4, n))
    x = backend.solve(*system, periodic=True, transpose=transpose)
    assert_solves(x, *system, periodic=True, transpose=transpose)


PERIODIC = {"last": ((20, 37), -1), "first": ((37, 20), 0), "middle": ((2, 9, 21), 1), "few rows": ((17, 4), -1)}


@pytest.mark.only(periodic=True)
@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("layout", PERIODIC)
def test_periodic_systems_that_need_pivoting_among_others(
    backend: Subject, pivoting: bool | str, layout: str, transpose: bool
) -> None:
    shape, axis = PERIODIC[layout]
    batch = [1 if k == axis % len(shape) else length for k, length in enumerate(shape)]
    hard = np.random.default_rng(4).uniform(size=batch) < 0.2
    both = dominant(shape, axis=axis), (dominant if pivoting is False else uniform)(shape, axis=axis, seed=1)
    system = [np.where(hard, y, x) for x, y in zip(*both, strict=True)]
    options = {"axis": axis, "periodic": True, "transpose": transpose}
    assert_solves(backend.solve(*system, pivoting=pivoting, **options), *system, pivoting=pivoting, **options)


@pytest.mark.only(periodic=True, pivoting="auto")
def test_periodic_solutions_that_grow_and_decay(backend: Subject) -> None:
    """What comes around the corner may be far more, or far less, than what is there."""
    a, b, c, d = dominant((60, 30))
    x = 10.0 ** np.random.default_rng(5).uniform(-8, 8, (40, 30))
    d[:40] = a[:40] * np.roll(x, 1, -1) + b[:40] * x + c[:40] * np.roll(x, -1, -1)
    d[40:] = np.eye(30)[:20]
    assert_solves(backend.solve(a, b, c, d, periodic=True), a, b, c, d, periodic=True)


def test_transpose(backend: Subject, pivoting: bool | str) -> None:
    system = dominant((3, 50))
    x = backend.solve(*system, transpose=True, pivoting=pivoting)
    assert_solves(x, *system, transpose=True, pivoting=pivoting)


# ------------------------------------------------------------------------------------------------ broadcasting

BROADCASTS = {  # the shapes of a, b, c, d, and the axis; () is a Python scalar
    "right sides lead": ((4, 20), (4, 20), (4, 20), (3, 4, 20), -1),
    "right sides between": ((2, 1, 20), (2, 1, 20), (2, 1, 20), (2, 3, 20), -1),
    "right sides trail": ((20, 4, 1), (20, 4, 1), (20, 4, 1), (20, 4, 3), 0),
    "temperature and salt": ((3, 4, 20), (3, 4, 20), (3, 4, 20), (2, 3, 4, 20), -1),
    "a diagonal along the first axis": ((20,), (20, 5), (20,), (20, 5), 0),
    "a diagonal along the middle axis": ((20,), (3, 20, 4), (1, 20, 1), (3, 20, 4), 1),
    "constants along the system": ((4, 1), (4, 20), (), (20,), -1),
    "one matrix of constants": ((), (), (), (5, 20), -1),
    "one constant right side": ((20,), (4, 20), (20,), (), -1),
}


@pytest.mark.parametrize("case", BROADCASTS)
def test_broadcasting(backend: Subject, case: str) -> None:
    *shapes, axis = BROADCASTS[case]
    system = [x if x.ndim else float(x) for x in entries(1, *shapes)]
    assert_solves(backend.solve(*system, axis=axis), *system, axis=axis)


@pytest.mark.only(library="numpy")
def test_lists_and_scalars(backend: Subject) -> None:
    x = backend.solve([0, 1, 1], 4, [1, 1, 0], [6.0, 12.0, 14.0])
    np.testing.assert_allclose(x, [1, 2, 3], rtol=1e-15)
    assert backend.solve(1, 4, 1, [1, 2]).dtype == np.float64


def test_a_shared_matrix_gives_what_copies_of_it_give(backend: Subject) -> None:
    a, b, c, d = entries(2, (20,), (20,), (20,), (6, 20))
    copied = backend.solve(*(np.tile(v, (6, 1)) for v in (a, b, c)), d)
    np.testing.assert_allclose(backend.solve(a, b, c, d), copied, rtol=1e-14)


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((7, 100), 0), ((3, 40, 70), 1), ((50, 5, 64), 0), ((70, 40), -1)])
def test_right_sides_of_one_matrix(
    backend: Subject, pivoting: bool | str, shape: tuple[int, ...], axis: int, transpose: bool
) -> None:
    n = shape[axis]
    a, b, c, d = system = entries(3, (n,), (n,), (n,), shape)
    options = {"axis": axis, "transpose": transpose, "pivoting": pivoting}
    assert_solves(backend.solve(*system, **options), *system, **options)
    if backend.can("factor"):
        matrix = backend.factor(a, b, c, axis=axis, pivoting=pivoting)
        assert_solves(to_numpy(matrix.solve(backend.array(d), transpose=transpose)), *system, **options)


@pytest.mark.only(library="numpy")
@pytest.mark.parametrize("shift", [0, 1, 3])
def test_many_right_sides_of_one_matrix_wherever_they_begin(backend: Subject, shift: int) -> None:
    """More than caches hold: they go straight to memory, in whole cache lines."""
    a, b, c, d = entries(4, (1100,), (1100,), (1100,), (1100, 1000))
    out = np.zeros(d.size + 8)[shift : shift + d.size].reshape(d.shape)
    backend.solve(a, b, c, d, axis=0, out=out)
    np.testing.assert_allclose(out, backend.solve(a, b, c, np.ascontiguousarray(d.T)).T, rtol=1e-12)


# ------------------------------------------------------------------------------------------------ masks


def mask(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).uniform(size=shape) < 0.7


def column_out() -> np.ndarray:
    keep = mask(4, 20)
    keep[1] = False
    keep[2], keep[2, :3], keep[2, -2:] = True, False, False
    return keep


MASKS = {  # where, and the shape of all other arguments
    "a whole system out": (column_out(), (4, 20)),
    "the same rows everywhere": (mask(20), (4, 20)),
    "a mask with more systems than the rest": (mask(3, 1, 20), (4, 20)),
    "systems in or out": (np.array([True, False, True, True])[:, None], (4, 20)),
    "all in": (np.ones((4, 20), bool), (4, 20)),
}


@pytest.mark.parametrize("case", MASKS)
def test_where(backend: Subject, case: str) -> None:
    where, shape = MASKS[case]
    system = dominant(shape)
    assert_solves(backend.solve(*system, where=where), *system, where=where)


def test_where_transposed(backend: Subject) -> None:
    system, where = dominant((4, 20)), column_out()
    assert_solves(backend.solve(*system, where=where, transpose=True), *system, where=where, transpose=True)


@pytest.mark.only(periodic=True, promises=(True, "auto"))
@pytest.mark.parametrize("transpose", [False, True])
def test_borders_of_periodic_systems_do_not_grow(backend: Subject, pivoting: bool | str, transpose: bool) -> None:
    """The entries in x[0] and x[n-1] grow by a factor a row where pivots are chosen by their size alone."""
    a, b, c = (np.full((3, 200), v) for v in (-0.5, 1.0, 1.0))
    a[1], c[1] = 1.0, -0.5
    b[2] = np.random.default_rng(0).uniform(0.9, 1.1, 200)
    d = np.random.default_rng(1).normal(size=(3, 200))
    x = backend.solve(a, b, c, d, periodic=True, transpose=transpose, pivoting=pivoting)
    assert_solves(x, a, b, c, d, periodic=True, transpose=transpose, pivoting=pivoting)


@pytest.mark.only(periodic=True)
def test_where_periodic(backend: Subject) -> None:
    system, where = dominant((4, 20)), column_out()
    assert_solves(backend.solve(*system, where=where, periodic=True), *system, where=where, periodic=True)


@pytest.mark.only(promises=(True, "auto"))
def test_where_with_exchanges(backend: Subject, pivoting: bool | str) -> None:
    system, where = uniform((40, 20)), mask(40, 20)
    x = backend.solve(*system, where=where, pivoting=pivoting)
    assert_solves(x, *system, where=where, pivoting=pivoting)


def test_a_mask_of_one_boolean(backend: Subject) -> None:
    system = dominant((4, 20))
    np.testing.assert_allclose(backend.solve(*system, where=True), backend.solve(*system), rtol=1e-13)
    assert not backend.solve(*system, where=False).any()


# ------------------------------------------------------------------------------------------------ dtypes


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(backend: Subject, dtype: str) -> None:
    system = dominant((3, 50), dtype)
    x = backend.solve(*system)
    assert x.dtype == dtype
    assert_solves(x, *system)


@pytest.mark.only(pivoting="auto")
@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_dtypes_with_exchanges(backend: Subject, dtype: str) -> None:
    system = uniform((60, 20), dtype)
    assert_solves(backend.solve(*system), *system)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_a_real_matrix_with_complex_right_sides(backend: Subject, dtype: str) -> None:
    """Two real right sides: each is solved as well as it would be alone, however large the other is."""
    a, b, c, _ = dominant((4, 20), REAL[dtype])
    d = dominant((2, 4, 20), dtype)[3]
    d.imag *= 1e6
    x = backend.solve(a, b, c, d)
    assert x.dtype == dtype
    for part in ("real", "imag"):
        assert_solves(getattr(x, part), a, b, c, getattr(d, part))


HALVES = {"numpy": ("float16",), "torch": ("float16", "bfloat16"), "jax": ("float16", "bfloat16"), "cupy": ("float16",)}


def test_halves_come_back_as_they_came(backend: Subject) -> None:
    for dtype in HALVES[backend.library]:
        system = [backend.array(x, dtype) for x in dominant((3, 50))]
        x = tridiag.solve(*system, backend=backend.name, pivoting=backend.usual)
        assert dtype_name(x) == dtype
        assert_solves(to_numpy(x), *map(to_numpy, system), dtype=dtype)


@pytest.mark.only(library=("numpy", "torch"))
@pytest.mark.parametrize("into", [False, True], ids=["new", "out"])
def test_what_a_half_cannot_hold_is_infinite_without_a_warning(backend: Subject, into: bool) -> None:
    b, d = (backend.array(np.full((2, 9), value), "float16") for value in (2.0**-10, 1000.0))
    out = backend.array(np.zeros((2, 9)), "float16") if into else None
    x = tridiag.solve(0.0, b, 0.0, d, backend=backend.name, pivoting=backend.usual, out=out)
    assert np.isposinf(to_numpy(x)).all()


def test_single_and_double_promote(backend: Subject) -> None:
    a, b, c, d = dominant((3, 50))
    a, c = a.astype(np.float32), c.astype(np.float32)
    x = backend.solve(a, b, c, d)
    assert x.dtype == np.float64
    assert_solves(x, a, b, c, d)
    assert backend.solve(a, 4.0, c, np.float32(1) * d.astype(np.float32)).dtype == np.float32  # scalars do not


INTEGERS = {"numpy": "float64", "jax": "float64", "torch": "float32", "cupy": "float64"}  # what a quotient becomes


def test_integers_promote_as_in_their_library(backend: Subject) -> None:
    d = np.array([[6, 12, 14], [5, 6, 5]])
    x = backend.solve(np.array([0, 1, 1]), np.array([4, 4, 4]), 1, d)
    assert x.dtype == INTEGERS[backend.library]
    np.testing.assert_allclose(x, [[1, 2, 3], [1, 1, 1]], rtol=1e-6)


# ------------------------------------------------------------------------------------------------ memory

LAYERS = {
    "Fortran": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "reversed": lambda x: np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
    "read-only": lambda x: np.broadcast_to(x, x.shape),
    "other byte order": lambda x: x.astype(x.dtype.newbyteorder()),
    "not aligned": lambda x: np.frombuffer(b"." + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape),
    "a field of records": lambda x: np.rec.fromarrays([x, x])["f0"],
}


@pytest.mark.only(library="numpy")
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("layer", LAYERS)
def test_memory_layouts_of_numpy(backend: Subject, layer: str, dtype: str) -> None:
    system, where = uniform((6, 20), dtype), mask(6, 20)
    given = [LAYERS[layer](x) for x in system]
    x = backend.solve(*given, where=LAYERS[layer](where))
    np.testing.assert_array_equal(given, system)
    assert_solves(x, *system, where=where)
    if dtype != "complex128":  # whose products round as the library's loop for those strides does
        np.testing.assert_array_equal(x, backend.solve(*system, where=where))


@pytest.mark.only(library="torch", pivoting="auto", dtype="complex128")
def test_memory_layouts_of_torch(backend: Subject) -> None:
    matrices = uniform((6, 20), "complex128")
    system = [backend.array(x) for x in matrices]
    layers = {
        "transposed": lambda x: x.T.contiguous().T,
        "strided": lambda x: x.repeat_interleave(2, 1)[:, ::2],
        "conjugate view": lambda x: x.conj().resolve_conj().conj(),
    }
    for layer in layers.values():
        x = tridiag.solve(*map(layer, system), backend=backend.name)
        assert_solves(to_numpy(x), *matrices)
    lazily_negated = system[3].conj().imag
    assert lazily_negated.is_neg()
    real = [x.real for x in system[:3]]
    x = tridiag.solve(*real, lazily_negated, backend=backend.name)
    assert_solves(to_numpy(x), *(x.real for x in matrices[:3]), -matrices[3].imag)


def test_inputs_are_not_written(backend: Subject) -> None:
    system, where = uniform((4, 20)), column_out()
    given = [backend.array(x.copy()) for x in (*system, where)]
    for options in ({"where": given[4]}, {"transpose": True}):
        tridiag.solve(*given[:4], backend=backend.name, pivoting=backend.usual, **options)
        for x, copy in zip(given, (*system, where), strict=True):
            np.testing.assert_array_equal(to_numpy(x), copy)


# ------------------------------------------------------------------------------------------------ out, overwrite_d


@pytest.mark.only(library=("numpy", "torch", "cupy"))
@pytest.mark.parametrize("broadcast", [False, True])
def test_out_takes_the_solution(backend: Subject, broadcast: bool) -> None:
    a, b, c, d = (backend.array(x) for x in dominant((4, 20)))
    d = d[0] if broadcast else d
    options = {"backend": backend.name, "pivoting": backend.usual}
    wanted = tridiag.solve(a, b, c, d, **options)
    for out in (backend.array(np.full((4, 20), np.nan)), backend.array(np.full((20, 4), np.nan)).T):
        assert tridiag.solve(a, b, c, d, out=out, **options) is out
        np.testing.assert_array_equal(to_numpy(out), to_numpy(wanted))


@pytest.mark.only(library=("numpy", "torch", "cupy"))
@pytest.mark.parametrize("dtype", ["float64", "float16", "complex64"])
def test_overwrite_d_returns_d(backend: Subject, pivoting: bool | str, dtype: str) -> None:
    a, b, c, d = dominant((4, 20), dtype)
    matrix, given = [backend.array(x.real.copy()) for x in (a, b, c)], backend.array(d.copy())
    x = tridiag.solve(*matrix, given, backend=backend.name, pivoting=pivoting, overwrite_d=True)
    assert x is given
    assert_solves(to_numpy(x), a.real, b.real, c.real, d)


@pytest.mark.only(library=("numpy", "torch", "cupy"))
@pytest.mark.parametrize("case", ["smaller", "integers", "single"])
def test_overwrite_d_where_d_cannot_hold_the_solution(backend: Subject, case: str) -> None:
    a, b, c, d = dominant((4, 20))
    d = {"smaller": d[:1], "integers": np.round(9 * d).astype(np.int64), "single": d.astype(np.float32)}[case]
    matrix, given = [backend.array(x) for x in (a, b, c)], backend.array(d.copy())
    x = tridiag.solve(*matrix, given, backend=backend.name, pivoting=backend.usual, overwrite_d=True)
    np.testing.assert_array_equal(to_numpy(given), d)
    assert_solves(to_numpy(x), a, b, c, d)


@pytest.mark.only(library="numpy")
def test_overwrite_d_of_a_read_only_array(backend: Subject) -> None:
    a, b, c, d = dominant((4, 20))
    d.flags.writeable = False
    x = backend.solve(a, b, c, d, overwrite_d=True)
    assert x is not d
    assert_solves(x, a, b, c, d)


@pytest.mark.only(library="torch")
def test_overwrite_d_of_an_expanded_tensor(backend: Subject) -> None:
    """Its rows are one row in memory: the solutions do not fit."""
    a, b, c, d = dominant((4, 20))
    given = backend.array(d[0]).expand(4, 20)
    options = {"backend": backend.name, "pivoting": backend.usual, "overwrite_d": True}
    x = tridiag.solve(*map(backend.array, (a, b, c)), given, **options)
    assert_solves(to_numpy(x), a, b, c, d[0])
    np.testing.assert_array_equal(to_numpy(given[0]), d[0])


@pytest.mark.only(library="numpy")
def test_overwrite_d_of_d_that_is_also_the_diagonal(backend: Subject) -> None:
    a, b, c, _ = dominant((4, 20))
    x = backend.solve(a, b, c, b, overwrite_d=True)
    assert x is not b
    assert_solves(x, a, b, c, b)


@pytest.mark.only(library="jax")
def test_overwrite_d_under_jax_leaves_concrete_arrays(backend: Subject) -> None:
    import jax

    system = dominant((3, 50))
    given = [backend.array(x) for x in system]

    def run(*arrays: jax.Array) -> jax.Array:
        return tridiag.solve(*arrays, backend=backend.name, pivoting=backend.usual, overwrite_d=True)

    assert_solves(to_numpy(run(*given)), *system)
    np.testing.assert_array_equal(given[3], system[3])
    assert_solves(to_numpy(jax.jit(run)(*given)), *system)
    np.testing.assert_array_equal(given[3], system[3])
    donated = jax.jit(run, donate_argnums=3)(*given[:3], given[3] + 0)
    assert_solves(to_numpy(donated), *system)


@pytest.mark.parametrize("pivoting", ["auto", True])
@pytest.mark.parametrize("n", [512, pytest.param(1024, marks=pytest.mark.slow), 1536])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_share_sets_of_the_cache(dtype: str, n: int, pivoting: bool | str) -> None:
    """They are read and written line by line, and asked for in their order: the same bits as of rows further apart."""
    for m in (16, 37):
        system = (dominant if pivoting == "auto" else uniform)((m, n), dtype)
        wide = [np.zeros((m, n + 8), dtype) for _ in system]
        for x, y in zip(wide, system, strict=True):
            x[:, :n] = y
        apart = tridiag.solve(*(x[:, :n] for x in wide), pivoting=pivoting, backend="numba_thomas")
        out = np.full((m + 2, n), 7, dtype)
        assert_same_bits(tridiag.solve(*system, out=out[1:-1], pivoting=pivoting, backend="numba_thomas"), apart)
        assert (out[0] == 7).all() and (out[-1] == 7).all()
        assert_solves(out[1:4], *(x[:3] for x in system), pivoting=pivoting)
