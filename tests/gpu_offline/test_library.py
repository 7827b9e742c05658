"""That CuPy arrays are first-class callers of every verb on tridiagonal systems, whichever backend runs.

The backend here is `eager` on CuPy's operations, so that nothing but the interface is tested.
"""

import sys
import types
from typing import Any

import numpy as np
import pytest
from helpers import DTYPES, STANDIN, assert_solves, dense, dominant, oracle, to_numpy, uniform, zero_diagonal

import tridiag
from tridiag.algorithms import row_loop
from tridiag.backends import BACKENDS, SYSTEMS, Backend

pytestmark = pytest.mark.smoke
cupy: Any = pytest.importorskip("cupy", reason="needs CuPy, or the stand-in for it")
needs_standin = pytest.mark.skipif(not STANDIN, reason="turns the knobs of the stand-in for CuPy")
if STANDIN:
    from cupy import machine
NAME = "cupy_eager"
TABLE = sys.modules["tridiag.backends"]  # the attribute is the verb `backends`


@pytest.fixture(autouse=True)
def line_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line of the table, and its file."""
    from tridiag.libraries.cupy import Operations

    def solve(matrix: Any, d: Any, form: Any, out: Any = None, factors: Any = None) -> Any:
        x, status = row_loop.solve(Operations, matrix, d, form, factors)
        if out is not None:
            out[...] = x
        return (x if out is None else out), status

    file = types.ModuleType(f"tridiag.backends.{NAME}")
    file.solve = solve
    file.factor = lambda matrix, form: row_loop.factor(Operations, matrix, form)
    file.slogdet = lambda matrix, form: row_loop.slogdet(Operations, matrix, form)
    line = Backend(NAME, "a loop over rows", ("cupy",), ("cupy",), ("cuda",), verbs=SYSTEMS)
    monkeypatch.setitem(BACKENDS, NAME, line)
    module_of = TABLE.module_of
    monkeypatch.setattr(TABLE, "module_of", lambda name: file if name == NAME else module_of(name))


def moved(*given: Any) -> list[Any]:
    """To the device; scalars as they are."""
    return [cupy.asarray(x) if isinstance(x, np.ndarray) else x for x in given]


def solve(*given: Any, **options: Any) -> Any:
    return tridiag.solve(*given, backend=NAME, **options)


def test_every_layout_of_arguments() -> None:
    for shape, axis in (((3, 9), -1), ((9, 3), 0), ((2, 9, 3), 1)):
        for options in ({}, {"transpose": True}, {"periodic": True}):
            system = dominant(shape, axis=axis)
            assert_solves(solve(*moved(*system), axis=axis, **options).get(), *system, axis=axis, **options)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: str) -> None:
    system = uniform((4, 9), dtype)
    x = solve(*moved(*system))
    assert x.dtype == dtype and isinstance(x, cupy.ndarray)
    assert_solves(x.get(), *system)


def test_scalars_broadcasting_and_masks() -> None:
    d, where = np.ones((4, 9)), np.arange(9) % 4 != 2
    for where_given in (cupy.asarray(where), True, np.bool_(True)):
        x = solve(1.0, np.float64(4), cupy.ones(9), cupy.asarray(d), where=where_given)
        keep = where if isinstance(where_given, cupy.ndarray) else None
        assert_solves(x.get(), 1.0, 4.0, 1.0, d, where=keep)


def test_promotion_is_that_of_numpy() -> None:
    single, whole = cupy.ones(6, "float32"), cupy.arange(1, 7)
    assert solve(1, 4.0, 1, single).dtype == "float32"
    assert solve(1, np.float32(4), 1, single).dtype == "float32"
    assert solve(1, 4.0, 1, whole).dtype == "float64"
    assert solve(1, 4, 1, whole).dtype == "float64"
    assert solve(1, 4j, 1, single).dtype == "complex64"
    assert solve(1, cupy.full(6, 4.0), 1, single).dtype == "float64"
    assert solve(1, 4, 1, single.astype("float16")).dtype == "float16"
    for x in ("int64", "float64"):
        np.testing.assert_allclose(solve(0, 4, 0, cupy.ones(3, x)).get(), 0.25)


def test_matmul_and_slogdet_and_explain() -> None:
    a, b, c, x = system = dominant((4, 9))
    y = tridiag.matmul(*moved(*system), where=cupy.ones(9, bool))
    np.testing.assert_allclose(y.get(), np.einsum("...ij,...j", dense(a, b, c), x).astype(float), rtol=1e-12)
    sign, log = tridiag.slogdet(*moved(a, b, c), backend=NAME)
    wanted = np.linalg.slogdet(dense(a, b, c).astype(float))
    np.testing.assert_array_equal(sign.get(), wanted[0])
    np.testing.assert_allclose(log.get(), wanted[1], rtol=1e-12)
    told = tridiag.explain("solve", *moved(*system), backend=NAME)
    assert (told.problem.library, told.problem.device) == ("cupy", "cuda")
    assert "takes numpy and torch and jax arrays, not cupy" in told.others["numba_thomas"]


@pytest.mark.parametrize("pivoting", [False, True, "auto"])
def test_factor_keeps_copies_and_its_status_on_the_device(pivoting: Any) -> None:
    a, b, c, d = (dominant if pivoting is False else uniform)((4, 9))
    given = moved(a, b, c)
    matrix = tridiag.factor(*given, pivoting=pivoting, backend=NAME)
    for x in given:
        x[...] = 7
    x = matrix.solve(cupy.asarray(d))
    assert_solves(x.get(), a, b, c, d, pivoting=pivoting)
    assert isinstance(matrix.status, cupy.ndarray) and not matrix.status.get().any()
    out = cupy.zeros((2, 4, 9))
    assert matrix.solve(cupy.asarray(np.stack((d, d))), out=out) is out
    np.testing.assert_array_equal(out[1].get(), x.get())
    with pytest.raises(TypeError, match=r"different libraries .*d: numpy"):
        matrix.solve(d)


def test_factor_tells_singular_matrices() -> None:
    for pivoting in (False, True):
        matrix = tridiag.factor(0.0, cupy.asarray([[1.0, 2, 3], [1, 0, 3]]), 0.0, pivoting=pivoting, backend=NAME)
        assert matrix.status.get().tolist() == [0, 2]


@pytest.mark.parametrize("shape", [(0,), (4, 0), (0, 5)])
def test_nothing_to_solve(shape: tuple[int, ...]) -> None:
    d = cupy.zeros(shape, "float32")
    assert solve(1.0, 4.0, 1.0, d).shape == shape and tridiag.matmul(1.0, 4.0, 1.0, d).shape == shape
    b = d + 4
    assert tridiag.slogdet(1.0, b, 1.0)[0].shape == shape[:-1]
    assert tridiag.factor(1.0, b, 1.0).status.shape == shape[:-1]


# ------------------------------------------------------------------------------------------------ out, overwrite_d


def test_out_takes_the_solution() -> None:
    system = dominant((4, 9))
    memory = cupy.zeros((9, 8))
    out = memory[:, ::2].T
    assert solve(*moved(*system), out=out) is out
    assert_solves(memory.get()[:, ::2].T, *system)
    assert not memory.get()[:, 1::2].any()


def test_d_is_overwritten_where_it_can_hold_the_solution() -> None:
    system = dominant((4, 9))
    a, b, c, d = moved(*system)
    assert solve(a, b, c, d, overwrite_d=True) is d
    assert_solves(d.get(), *system)
    shared, single = d[0], d.astype("float32")
    for other in (cupy.broadcast_to(shared, (4, 9)), single, a):
        before = other.get()
        assert solve(a, b, c, other, overwrite_d=True) is not other
        np.testing.assert_array_equal(other.get(), before)


def test_out_that_cannot_be_written() -> None:
    memory = cupy.full(60, 4.0)
    d, other = memory[:24].reshape(4, 6), cupy.zeros((4, 6))
    for name, out in (("d", d), ("d", memory[6:30].reshape(4, 6)), ("b", other)):
        with pytest.raises(ValueError, match=f"out shares memory with {name}, .*overwrite_d"):
            solve(1.0, other, 1.0, d, out=out)
    with pytest.raises(ValueError, match="entries of out share memory"):
        solve(1.0, 4.0, 1.0, d, out=cupy.broadcast_to(memory[50:56], (4, 6)))
    with pytest.raises(ValueError, match=r"out has shape \(6,\)"):
        solve(1.0, 4.0, 1.0, d, out=cupy.zeros(6))
    with pytest.raises(TypeError, match="out has dtype float32"):
        solve(1.0, 4.0, 1.0, d, out=cupy.zeros((4, 6), "float32"))
    with pytest.raises(TypeError, match=r"different libraries .*out: numpy"):
        solve(1.0, 4.0, 1.0, d, out=np.zeros((4, 6)))
    with pytest.raises(TypeError, match="out is a float; wanted an array"):
        solve(1.0, 4.0, 1.0, d, out=0.0)
    beside = memory.reshape(5, 12)[:4]
    np.testing.assert_array_equal(
        solve(1.0, 4.0, 1.0, beside[:, ::2], out=beside[:, 1::2]).get(), solve(1.0, 4.0, 1.0, beside[:, ::2]).get()
    )
    backwards = memory[24:60].reshape(6, 6)[::-1]
    with pytest.raises(ValueError, match="out shares memory with d"):
        solve(1.0, 4.0, 1.0, backwards[:4], out=backwards[2:])


# ------------------------------------------------------------------------------------------------ singular systems


def test_singular_systems_are_nan_and_raise_where_asked_to() -> None:
    given = moved(*zero_diagonal((4, 9)))
    assert np.isnan(solve(*given).get()).all()
    with pytest.raises(tridiag.SingularSystemError, match="4 of 4 systems are singular") as caught:
        solve(*given, check=True)
    assert isinstance(caught.value.x, cupy.ndarray) and caught.value.indices.tolist() == [[0], [1], [2], [3]]
    with pytest.raises(tridiag.SingularSystemError):
        solve(*given, check=True, pivoting=False)


@needs_standin
def test_only_check_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a backend does: around it nothing is read."""
    given = moved(*dominant((4, 9)))
    file = BACKENDS[NAME].module()
    monkeypatch.setattr(file, "solve", lambda matrix, d, form, out, factors: (d + 0, cupy.zeros(4, "int32")))
    monkeypatch.setattr(file, "factor", lambda matrix, form: types.SimpleNamespace(status=cupy.zeros(4, "int32")))
    monkeypatch.setattr(file, "slogdet", lambda matrix, form: (cupy.ones(4), cupy.ones(4)))
    before = machine.synchronised
    solve(*given)
    solve(*given, out=cupy.empty((4, 9)), where=cupy.ones(9, bool))
    tridiag.factor(*given[:3], backend=NAME).solve(given[3])
    tridiag.slogdet(*given[:3], backend=NAME)
    tridiag.matmul(*given)
    tridiag.explain("solve", 1, 4.0, 1, given[3])
    assert machine.synchronised == before
    solve(*given, check=True)
    assert machine.synchronised == before + 1


# ------------------------------------------------------------------------------------------------ bad input


def test_arrays_of_the_host_are_never_moved() -> None:
    d = np.ones((4, 6))
    with pytest.raises(TypeError, match=r"different libraries \(a: cupy, d: numpy\); .*never moved for you"):
        tridiag.solve(cupy.ones(6), 4.0, 1.0, d)
    with pytest.raises(TypeError, match="where: numpy"):
        tridiag.solve(1.0, 4.0, 1.0, cupy.ones(6), where=np.ones(6, bool))
    with pytest.raises(tridiag.BackendError, match=r"takes cupy arrays, not numpy; move them with cupy.asarray"):
        solve(1.0, 4.0, 1.0, d)


def test_backends_of_the_host_do_not_take_them() -> None:
    d = cupy.ones((4, 6))
    with pytest.raises(tridiag.BackendError, match=f"not cupy. Backends that can: .*{NAME}"):
        tridiag.solve(1.0, 4.0, 1.0, d, backend="numba_thomas")
    with pytest.raises(tridiag.BackendError, match=r"no backend can run linear_recurrence .* from cupy arrays on cuda"):
        tridiag.linear_recurrence((0.1,) * 5, d)
    with pytest.raises(tridiag.BackendError, match=r"no backend can solve block .* cupy .* up to 8 rows, not 9"):
        tridiag.solve_block(*(cupy.ones((5, 9, 9)) for _ in range(3)), cupy.ones((5, 9)))


def test_booleans_and_masks_of_numbers() -> None:
    for b in (cupy.ones(6, bool), True, np.True_):
        with pytest.raises(TypeError, match="b has dtype bool"):
            solve(1.0, b, 1.0, cupy.ones(6))
    with pytest.raises(TypeError, match="where has dtype float64"):
        solve(1.0, 4.0, 1.0, cupy.ones(6), where=cupy.ones(6))


@needs_standin
def test_devices() -> None:
    """Work is done where the arrays are, whichever device is current; never between devices."""
    system = dominant((4, 9))
    with cupy.cuda.Device(1):
        given, out = moved(*system), cupy.empty((4, 9))
    for d in (given[3], given[3].astype("float32") if cupy.cuda.get_device_id() == 1 else given[3]):
        assert solve(*given[:3], d).device.id == 1
    x = solve(1, given[1], given[2], given[3], out=out, where=True)
    assert_solves(x.get(), 1, *system[1:])
    matrix = tridiag.factor(*given[:2], 1, backend=NAME)
    assert matrix.status.device.id == matrix.solve(given[3]).device.id == 1
    assert tridiag.matmul(*given).device.id == tridiag.slogdet(*given[:3], backend=NAME)[1].device.id == 1
    assert cupy.cuda.get_device_id() == 0
    here = cupy.ones((4, 9))
    with pytest.raises(TypeError, match="the arrays are on different devices: cuda:0, cuda:1; move them to one"):
        solve(*given[:3], here)
    with pytest.raises(TypeError, match="different devices: cuda:0, cuda:1"):
        solve(*given, where=here > 0)
    with pytest.raises(TypeError, match="out is on cuda:0; the result is on cuda:1"):
        solve(*given, out=here)


@needs_standin
def test_an_old_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.devices[1], "compute_capability", "61")
    with cupy.cuda.Device(1):
        d = cupy.ones((3, 17))
    text = r"runs on cuda, not on cuda with compute capability 6.1 \(at least 7.5 is needed\)"
    with pytest.raises(tridiag.BackendError, match=text):
        tridiag.solve(1.0, 4.0, 1.0, d)
    with pytest.raises(tridiag.BackendError, match=text):
        solve(1.0, 4.0, 1.0, d)


@needs_standin
def test_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    told = "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version"
    monkeypatch.setattr(machine, "failure", told)
    text = f"needs an NVIDIA GPU and its driver; CUDA finds none: {told}"
    assert tridiag.backends()[NAME].why_not == text
    with pytest.raises(tridiag.BackendError, match=f"{NAME} {text}"):
        solve(1.0, 4.0, 1.0, np.ones(6))
    assert tridiag.solve(1.0, 4.0, 1.0, np.ones(6)).shape == (6,)


def test_what_is_not_installed_says_which_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TABLE, "installed", lambda module: module != "cupy")
    with pytest.raises(tridiag.BackendError, match=r'needs cupy, .*: pip install "batched-tridiag\[cuda13\]"'):
        solve(1.0, 4.0, 1.0, np.ones(6))


@needs_standin
def test_out_of_memory_hurts_nothing() -> None:
    """The exception is CuPy's; inputs, and the device, are as they were."""
    system = dominant((40, 90))
    given, pool = moved(*system), cupy.get_default_memory_pool()
    wanted = oracle(*system)
    for room in (0, 10_000, 40_000):
        pool.set_limit(size=pool.used_bytes() + room)
        try:
            with pytest.raises(cupy.cuda.memory.OutOfMemoryError, match="Out of memory allocating"):
                solve(*given, overwrite_d=False)
        finally:
            pool.set_limit(size=0)
        for x, copy in zip(given, system, strict=True):
            np.testing.assert_array_equal(to_numpy(x), copy)
        np.testing.assert_allclose(solve(*given).get(), wanted.astype(float), rtol=1e-10)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", [{}, {"axis": 0}, {"periodic": True}, {"where": np.arange(9) % 4 != 1}])
def test_conditions_are_those_of_numpy(dtype: str, options: dict[str, Any]) -> None:
    """By the eager backend, as any other would: its solves are all that it takes; a singular matrix has 0."""
    a, b, c, _ = uniform((9, 9), dtype)
    a[4] = b[4] = c[4] = 0
    a[:, 4] = b[:, 4] = c[:, 4] = 0
    where = options.get("where")
    on_device = options | ({} if where is None else {"where": cupy.asarray(where)})
    found = tridiag.factor(*map(cupy.asarray, (a, b, c)), backend=NAME, **on_device).rcond
    assert isinstance(found, cupy.ndarray)
    wanted = tridiag.factor(a, b, c, backend="numpy_thomas", **options).rcond
    np.testing.assert_allclose(to_numpy(found), wanted, rtol=1e-3 if wanted.dtype.itemsize == 4 else 1e-9)
