"""Solves, or runs recurrences, on the simulated GPU of Numba with arrays of the stand-in for CuPy, under oracles.

    python tests/gpu_offline/numba_cuda_simulated.py (systems|sequences|tensors|mistakes|texts)

Run by `test_numba_cuda` in a process of its own, where Numba compiles nothing. The simulator cannot take over arrays
and streams of others: both are done here, for arrays from where their memory lies.
"""

import ctypes
import functools
import inspect
import sys
import warnings
from types import ModuleType
from typing import Any, NamedTuple

import cupy
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from cupy import machine
from hard_sequences import HARD
from helpers import DTYPES, assert_solves, dominant, uniform
from numba import cuda
from pretence import pretend
from test_logarithms import assert_close, oracle
from test_recurrences import assert_recurs, problem, step_by_step

import tridiag
from tridiag.backends import numba_cuda_scan as scan
from tridiag.backends import numba_cuda_thomas as backend
from tridiag.cuda import numba_launcher
from tridiag.kernels.numba_cuda import policies, scans, thomas
from tridiag.problems.forms import Form, Recurrence, broadcast


def take_over(x: Any, sync: bool = True) -> np.ndarray:
    """A NumPy view of the memory that an array says is its own."""
    told = x.__cuda_array_interface__
    pointer, dtype = told["data"][0], np.dtype(told["typestr"])
    strides = told["strides"] or np.empty(told["shape"], dtype).strides
    reach = sum((length - 1) * step for length, step in zip(told["shape"], strides, strict=True))
    memory = (ctypes.c_uint8 * (reach + dtype.itemsize)).from_address(pointer)
    return np.ndarray(told["shape"], dtype, memory, 0, strides)


def solve(
    a: Any, b: Any, c: Any, d: Any, axis: int, where: Any = None, **options: Any
) -> tuple[np.ndarray, np.ndarray]:
    """On arrays of one rank."""
    matrix = [None if x is None else cupy.array(x) for x in (a, b, c, where)]
    shapes = {name: x.shape for name, x in zip("abcw", matrix, strict=True) if x is not None}
    shape = broadcast(shapes | {"d": d.shape}, shapes)
    rows = [shape[k] if k == axis else length for k, length in enumerate(broadcast(shapes, shapes))]
    x, status = backend.solve(tuple(matrix), cupy.array(d), Form(shape, tuple(rows), axis, **options))
    return x.get(), status.get()


def systems() -> None:
    backend.THREADS = 32
    for dtype in ("float32", "float64"):
        for pivoting, family in ((False, dominant), (True, uniform), ("auto", uniform)):
            for transpose in (False, True):
                backend.LEAST_SCRATCH = 1 if transpose else 2**26  # pivoted a sixth at a time, or all at once
                for axis, shape in ((1, (35, 33)), (0, (33, 3)), (1, (2, 5, 3))):
                    system = family(shape, dtype, axis)
                    x, status = solve(*system, axis, transpose=transpose, pivoting=pivoting)
                    assert not status.any() and status.shape == shape[:axis] + shape[axis + 1 :]
                    assert_solves(x, *system, pivoting=pivoting, transpose=transpose, axis=axis)

    a, b, c, d = dominant((4, 3, 6), axis=1)
    where = np.random.default_rng(0).uniform(size=(4, 3, 1)) < 0.7
    shared = [a[:1, :, :1], b[:, :1, :1] * 4, c[:, :, :1], d[..., ::-1]]
    for pivoting in (False, True, "auto"):
        x, status = solve(*shared, 1, where, pivoting=pivoting)
        assert status.shape == (4, 1) and not status.any()
        assert_solves(x, *shared, where=where, axis=1, pivoting=pivoting)

    for axis in (0, 1):
        a, b, c, d = dominant((6, 5), axis=axis)
        x, status = solve(a, b, c, d * (1 + 2j), axis)
        assert status.shape == (x.shape[1 - axis],) and not status.any()
        assert_solves(x, a, b, c, d * (1 + 2j), axis=axis)

    singular = dominant((5, 4))
    for diagonal in singular[:3]:
        diagonal[3, 2] = 0
    for pivoting in (False, True, "auto"):
        x, status = solve(*singular, 1, pivoting=pivoting)
        assert status.nonzero()[0].tolist() == [3] and np.isnan(x[3]).all()
        assert_solves(np.delete(x, 3, 0), *(np.delete(v, 3, 0) for v in singular), pivoting=pivoting)

    arrays = [cupy.array(x) for x in singular]
    waits = machine.synchronised
    tridiag.solve(*arrays, backend="numba_cuda_thomas")
    assert machine.synchronised == waits
    try:
        tridiag.solve(*arrays, backend="numba_cuda_thomas", check=True)
    except tridiag.SingularSystemError as error:
        assert error.indices.tolist() == [[3]]
        np.testing.assert_array_equal(error.x.get(), x)
    else:
        raise AssertionError("a singular system raised nothing")


def sequences() -> None:
    scans.THREADS, scans.CHUNK, scan.BESIDE = 8, 3, 32
    for number, schedule in enumerate(("threads", "tiles", "pieces")):
        scan.MANY, scan.FEW = 1 if schedule == "threads" else 10**9, 10**9 if schedule == "pieces" else 0
        scan.spread_of.cache_clear()
        for k, (shape, axis) in enumerate((((3, 29), 1), ((29, 3), 0), ((3, 2, 3), 1)), number):
            for dtype in DTYPES[k % 2 :: 2]:  # one real and one complex; every schedule has all of them
                recur(shape, axis, dtype, reverse=axis == 0)
        for k, case in enumerate(HARD if schedule != "threads" else ()):
            assert_hard(case, k % 2)
    assert_transposed()


def recur(shape: tuple[int, ...], axis: int, dtype: str, reverse: bool) -> None:
    """Of sequences in that layout, with what is before the first step and without."""
    (a,), x, (init,) = problem(shape, 1, dtype, axis)
    options = {"axis": axis, "reverse": reverse}
    assert_recurs(called("linear_recurrence", a, x, **options), (a,), x, **options)
    assert_recurs(called("linear_recurrence", a, x, init, **options), (a,), x, (init,), **options)
    if dtype.startswith("complex"):
        y = called("linear_recurrence", a.real, x, init, **options)
        assert_recurs(y, (a.real,), x, (init,), **options)
    else:
        assert_close(called("logcumsumexp", x * 40, **options), oracle(x * 40, **options))


def called(verb: str, *given: np.ndarray, **options: Any) -> np.ndarray:
    """Into an array whose memory is full of NaN, so that all of it has to be written."""
    out = cupy.full(given[1 if verb == "linear_recurrence" else 0].shape, np.nan, given[-1].dtype)
    y = getattr(tridiag, verb)(*map(cupy.asarray, given), backend="numba_cuda_scan", out=out, **options)
    return y.get()


def assert_hard(case: str, axis: int) -> None:
    """As one step after another, up to rounding."""
    n = 61
    a, x = HARD[case](n)
    beside = [np.stack((v, np.full(n, 0.5)), 1 - axis) for v in (a, x)]
    y = np.moveaxis(called("linear_recurrence", *beside, axis=axis), axis, 0)[:, 0]
    right = step_by_step(a.astype(np.longdouble), x.astype(np.longdouble)).astype(float)
    np.testing.assert_allclose(y, right, rtol=1e-12, err_msg=case)


def assert_transposed() -> None:
    """As derivatives ask for it: the other way, and a coefficient in the row of the value that it multiplies."""
    (a,), x, _ = problem((3, 29))
    form = Recurrence(x.shape, 1, transpose=True)
    y = scan.linear_recurrence((cupy.asarray(a),), cupy.asarray(x), (), form).get()
    shifted = np.concatenate((a[:, 1:], a[:, :1] * np.nan), 1)
    assert_recurs(y, (np.nan_to_num(shifted),), x, reverse=True)
    changed = a.copy()
    changed[:, 0] = np.nan  # which multiplies nothing
    y = scan.linear_recurrence((cupy.asarray(changed),), cupy.asarray(x), (), form._replace(transpose=False)).get()
    assert np.isfinite(y).all()


def tensors() -> None:
    """Memory of PyTorch and JAX is lent to CuPy; derivatives are those of every backend."""
    scans.THREADS, scans.CHUNK = 8, 3
    (a,), x, (init,) = problem((2, 17), axis=1)
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, "numba_cuda_scan")
        for reference, differentiated in (("torch_scan", torch_gradients), ("jax_scan", jax_gradients)):
            wanted = differentiated(reference, a, x, init)
            for found, right in zip(differentiated("numba_cuda_scan", a, x, init), wanted, strict=True):
                np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)


def loss(name: str, a: Any, x: Any, init: Any) -> Any:
    y = tridiag.linear_recurrence(a, x, init, reverse=True, backend=name)
    return (y * y).sum() + (tridiag.logcumsumexp(x, backend=name) * y).sum()


def torch_gradients(name: str, *given: np.ndarray) -> list[np.ndarray]:
    tensors = [torch.from_numpy(v).requires_grad_() for v in given]
    loss(name, *tensors).backward()
    return [v.grad.numpy() for v in tensors]


def jax_gradients(name: str, *given: np.ndarray) -> list[np.ndarray]:
    gradients = jax.jit(jax.grad(functools.partial(loss, name), argnums=(0, 1, 2)))(*map(jnp.asarray, given))
    return [np.asarray(v) for v in gradients]


def mistakes() -> None:
    """Planted ones: parts that cannot be trusted are, and products vanish. Hard coefficients have to find them."""
    scans.THREADS, scans.CHUNK, scan.MANY, scan.FEW = 8, 3, 10**9, 0
    for name, wrong in (("TRUSTED", np.inf), ("SMALL", {4: 0.0, 8: 0.0})):
        kept = getattr(policies, name)
        for value, found in ((wrong, True), (kept, False)):
            setattr(policies, name, value)
            policies.linear.cache_clear()
            scan.kernel.cache_clear()
            failures = [case for case in HARD if fails(case)]
            assert bool(failures) == found, f"{name} = {value}: {failures}"


def fails(case: str) -> bool:
    try:
        assert_hard(case, 1)
    except AssertionError:
        return True
    return False


class Text(NamedTuple):
    """What the text of a module is changed from and to."""

    module: ModuleType
    old: str
    new: str

    def plant(self) -> None:
        """From now on the module is what the change makes of it."""
        text = inspect.getsource(self.module)
        if text.count(self.old) != 1:  # no AssertionError, which is taken for a mistake that shows
            raise LookupError(f"{self.old!r} occurs {text.count(self.old)} times")
        exec(compile(text.replace(self.old, self.new), str(self.module.__file__), "exec"), vars(self.module))


TEXTS = {  # in the code of each kernel
    "columns": Text(scans, "state = step(state, factor, x[o, row, i])", "state = step(state, none, x[o, row, i])"),
    "carry": Text(scans, "behind = apply(kept(parts[piece], sequence), state)", "behind = state"),
    "fold": Text(scans, "whole = join(whole, own)", "whole = own"),
    "tiles": Text(scans, "past = apply(kept(made, t - apart), state)", "past = state"),
    "plain": Text(thomas, "(d[i] - a * y) / pivot", "(d[i] + a * y) / pivot"),
    "pivoted": Text(thomas, "y -= kept[2, i] * x2", "pass"),
}


def texts() -> None:
    """Every kernel has a mistake that shows, and nothing shows without."""
    assert {*TEXTS} == {*scans.KERNELS, *backend.KERNELS}
    for name, text in TEXTS.items():
        for planted, found in ((text, True), (text._replace(new=text.old), False)):
            planted.plant()
            scan.kernel.cache_clear()
            assert is_wrong(name) == found, f"{planted.new} in {name}"


def is_wrong(name: str) -> bool:
    """What a kernel makes of a problem that is spread so that it runs."""
    try:
        if name in backend.KERNELS:
            system = (uniform if name == "pivoted" else dominant)((3, 9))
            assert_solves(solve(*system, 1, pivoting=name == "pivoted")[0], *system, pivoting=name == "pivoted")
            return False
        scans.THREADS, scans.CHUNK, scan.BESIDE, scan.ENOUGH = 8, 3, 32, 2  # pieces of several tiles
        scan.MANY, scan.FEW = 1 if name == "columns" else 10**9, 10**9 if name in ("carry", "fold") else 0
        scan.spread_of.cache_clear()
        recur((61, 3), 0, "float64", reverse=False)
    except AssertionError:
        return True
    return False


def main() -> None:
    warnings.simplefilter("ignore")
    cuda.as_cuda_array, cuda.external_stream = take_over, lambda pointer: 0
    numba_launcher.FEWEST_BLOCKS = 1
    jax.config.update("jax_enable_x64", True)
    tests = (systems, sequences, tensors, mistakes, texts)
    next(test for test in tests if test.__name__ == sys.argv[1])()
    sys.stdout.write("all as wanted\n")


main()
