"""That calls on arrays of a device whose facts are known are what they would be if everything were decided anew."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers import STANDIN, assert_solves, dominant, in_threads, installed, to_library, uniform

import tridiag
from tridiag import recurrences, systems
from tridiag.calls import fast_path

if not STANDIN:
    pytest.skip("CuPy and a device are here: the stand-in is not in place", allow_module_level=True)
import cpu_build
import cupy
from cupy import machine
from pretence import pretend

from tridiag.cuda import launcher

pytestmark = [
    pytest.mark.gpu_offline,
    pytest.mark.skipif(cpu_build.why_not() is not None, reason=str(cpu_build.why_not())),
]
needs_torch = pytest.mark.skipif(not installed("torch"), reason="needs torch, which is not installed")
LIBRARIES = ["cupy", pytest.param("torch", marks=needs_torch)]
rng = np.random.default_rng(3)


@pytest.fixture(autouse=True)
def nothing_is_known() -> Iterator[None]:
    fast_path.forget()
    yield
    fast_path.forget()


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "torch":
        for name in ("cupy_pcr", "cupy_scan"):
            pretend(monkeypatch, name)
    return str(request.param)


def to_host(x: Any) -> Any:
    return x.get() if isinstance(x, cupy.ndarray) else x.numpy()


def both_ways(call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, short: bool = True) -> Any:
    """What a call gives the short way, or twice the long one, after a look at what the long one gives."""
    with monkeypatch.context() as patch:
        patch.setattr(fast_path, "of_tensors", lambda verb, x: None)
        wanted = to_host(call()).copy()
    with monkeypatch.context() as patch:
        if short:
            for module in (systems, recurrences):
                patch.setattr(module.outputs, "target", refuse)
        for _ in range(2):
            found = call()
            np.testing.assert_array_equal(to_host(found), wanted)
    return found


def refuse(*arguments: Any) -> Any:
    raise AssertionError("everything is decided anew")


def linear(*given: Any, **options: Any) -> Any:
    return tridiag.linear_recurrence(*given, backend="cupy_scan", **options)


def solve(*given: Any, **options: Any) -> Any:
    return tridiag.solve(*given, backend="cupy_pcr", **options)


SYSTEMS: dict[str, Any] = {
    "side by side": ((5, 40), {}),
    "apart": ((40, 5), {"axis": 0}),
    "in the middle": ((3, 40, 2), {"axis": 1}),
    "transposed": ((5, 40), {"transpose": True}),
    "pivoting": ((5, 40), {"pivoting": True}),
    "plain": ((5, 40), {"pivoting": False}),
    "periodic": ((5, 40), {"periodic": True}),
    "long": ((1, 4001), {}),
    "one row": ((4, 1), {}),
}


@pytest.mark.parametrize("case", SYSTEMS)
def test_solves(case: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape, options = SYSTEMS[case]
    system = dominant(shape, axis=options.get("axis", -1))
    given = [to_library(library, x) for x in system]
    both_ways(lambda: solve(*given, **options), monkeypatch)
    out = to_library(library, np.zeros(shape))
    assert both_ways(lambda: solve(*given, out=out, **options), monkeypatch) is out
    assert_solves(to_host(out), *system, **options)


def test_what_broadcasts_is_masked_or_lies_apart(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c, d = dominant((6, 40))
    mask = to_library(library, np.arange(40) % 5 != 2)
    one = [to_library(library, x[0]) for x in (a, b, c)]
    right = to_library(library, np.stack((d, d + 1)))
    both_ways(lambda: solve(*one, right, where=mask), monkeypatch)
    wide = to_library(library, np.zeros((6, 80)))
    places = [to_library(library, np.repeat(x, 2, axis=1))[:, ::2] for x in (a, b, c, d)]
    x = both_ways(lambda: solve(*places, out=wide[:, ::2]), monkeypatch)
    assert_solves(to_host(x), a, b, c, d)
    assert not to_host(wide)[:, 1::2].any()


def test_complex_right_sides_of_real_matrices(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c, d = dominant((6, 40))
    given = [to_library(library, x) for x in (a, b, c, d + 1j * d[::-1])]
    assert_solves(to_host(both_ways(lambda: solve(*given), monkeypatch)), a, b, c, d + 1j * d[::-1])


@pytest.mark.parametrize("n", [40, 4001])
def test_d_is_overwritten_where_that_is_the_same(n: int, library: str) -> None:
    """Long systems are solved from a copy of d."""
    system = uniform((2, n)) if n < 100 else dominant((2, n))
    for _ in range(2):
        a, b, c, d = (to_library(library, x) for x in system)
        assert solve(a, b, c, d, overwrite_d=True) is d
        assert_solves(to_host(d), *system)
        kept = to_host(a).copy()
        assert solve(a, b, c, a, overwrite_d=True) is not a
        np.testing.assert_array_equal(to_host(a), kept)


def recurrences_of(library: str) -> dict[str, Callable[[Any], Any]]:
    a, x = (to_library(library, v) for v in rng.uniform(-1, 1, (2, 6, 50)))
    init, number = to_library(library, np.ones(6)), to_library(library, rng.uniform(-1, 1, 50))
    A, v = to_library(library, rng.uniform(-1, 1, (6, 50, 2, 2)) / 2), to_library(library, np.ones((6, 50, 2)))
    order2 = to_library(library, np.full((6, 50), 0.3))
    return {
        "linear": lambda out: linear(a, x, out=out),
        "shared": lambda out: linear(number, x, init, out=out),
        "init": lambda out: linear(a, x, init, reverse=True, out=out),
        "order 2": lambda out: linear((a, order2), x, (init, init), out=out),
        "order 2, reversed": lambda out: linear((a, order2), x, reverse=True, out=out),
        "logcumsumexp": lambda out: tridiag.logcumsumexp(x, axis=0, backend="cupy_scan", out=out),
        "log_linear": lambda out: tridiag.log_linear_recurrence(a, x, init, backend="cupy_scan", out=out),
        "matrices": lambda out: tridiag.matrix_recurrence(A, v, backend="cupy_scan"),
    }


@pytest.mark.parametrize("case", recurrences_of("numpy"))
def test_recurrences(case: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call = recurrences_of(library)[case]
    wanted = to_host(both_ways(lambda: call(None), monkeypatch))
    if case != "matrices":
        out = to_library(library, np.zeros((6, 50)))
        assert both_ways(lambda: call(out), monkeypatch) is out
        np.testing.assert_array_equal(to_host(out), wanted)


def test_what_may_overlap_is_looked_at_each_time(library: str) -> None:
    """Facts do not say where arrays are: the same shapes may overlap in one call and not in the next."""
    system = dominant((4, 40))
    a, b, c, d = (to_library(library, x) for x in system)
    out = to_library(library, np.zeros((4, 40)))
    solve(a, b, c, d, out=out)
    linear(a, d, out=out)
    for wrong in (a, b, c, d):
        with pytest.raises(ValueError, match="out shares memory with"):
            solve(a, b, c, d, out=wrong)
    for wrong in (a, d):
        with pytest.raises(ValueError, match="out shares memory with"):
            linear(a, d, out=wrong)
    memory = to_library(library, np.zeros(6 * 40))
    first, later = memory[: 4 * 40].reshape(4, 40), memory[40 : 5 * 40].reshape(4, 40)
    with pytest.raises(ValueError, match="out shares memory with d"):
        solve(a, b, c, first, out=later)
    assert_solves(to_host(solve(a, b, c, d, out=out)), *system)


def test_numbers_and_other_dtypes_are_prepared(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b, c, d = (to_library(library, x) for x in dominant((4, 40)))
    single = to_library(library, np.ones((4, 40), np.float32))
    whole = to_library(library, np.arange(160).reshape(4, 40))
    for given in ((-1.0, 4.0, -1.0, d), (a, b, c, single), (a, b, c, whole)):
        both_ways(lambda given=given: solve(*given), monkeypatch, short=False)  # type: ignore[misc]
    with pytest.raises(tridiag.SingularSystemError):
        solve(a * 0, b * 0, c * 0, d, check=True)


def test_calls_inside_of_calls_and_of_other_threads(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job is of one call, while another is made before all of its kernels are launched."""
    drawn = [dominant((3, 40)) for _ in range(8)]
    given = [[to_library(library, x) for x in system] for system in drawn]
    launch_of, inside = launcher.launch_of, threading.local()

    def interrupted(*arguments: Any) -> Any:
        compiled, *rest = launch_of(*arguments)

        def launch(*arguments: Any, **options: Any) -> None:
            if not getattr(inside, "call", False):
                inside.call = True
                assert_solves(to_host(solve(*given[0])), *drawn[0])
                inside.call = False
            compiled(*arguments, **options)

        return launch, *rest

    monkeypatch.setattr(launcher, "launch_of", interrupted)
    launcher.bound.cache_clear()

    def work(k: int) -> None:
        for _ in range(10):
            assert_solves(to_host(solve(*given[k])), *drawn[k])

    try:
        in_threads(work, 8)
    finally:
        launcher.bound.cache_clear()


def test_work_is_done_on_the_device_of_the_arrays() -> None:
    system = dominant((4, 40))
    with cupy.cuda.Device(1):
        given = [cupy.asarray(x) for x in system]
    here = [cupy.asarray(x) for x in system]
    for _ in range(2):
        before = machine.devices[0].used
        x = solve(*given)
        assert x.device.id == 1 and cupy.cuda.get_device_id() == 0 and machine.devices[0].used == before
        assert solve(*here).device.id == 0
        assert_solves(to_host(x), *system)
        with pytest.raises(TypeError, match="the arrays are on different devices: cuda:0, cuda:1"):
            solve(*given[:3], here[3])
        with pytest.raises(TypeError, match="out is on cuda:0; the result is on cuda:1"):
            solve(*given, out=here[0])


def test_full_memory_leaves_everything_as_it_is() -> None:
    system = dominant((4, 40))
    given, out = [cupy.asarray(x) for x in system], cupy.zeros((4, 40))
    pool = cupy.get_default_memory_pool()
    solve(*given, out=out)
    out[...] = 7.0
    pool.set_limit(size=pool.used_bytes() + 8)
    try:
        with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
            solve(*given, out=out)
        with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
            solve(*given, overwrite_d=True)
    finally:
        pool.set_limit(size=0)
    assert (out.get() == 7).all()
    for x, kept in zip(given, system, strict=True):
        np.testing.assert_array_equal(x.get(), kept)
    assert_solves(solve(*given).get(), *system)


@needs_torch
def test_tensors_count_their_versions_and_have_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    pretend(monkeypatch, "cupy_pcr")
    given = [torch.from_numpy(x).requires_grad_() for x in dominant((3, 40))]
    out = torch.zeros((3, 40), dtype=torch.float64)
    version = out._version
    with torch.no_grad():
        solve(*given, out=out)
    assert out._version == version + 1
    found = torch.autograd.grad(solve(*given).sin().sum(), given)
    wanted = torch.autograd.grad(tridiag.solve(*given, backend="torch_thomas").sin().sum(), given)
    for x, y in zip(found, wanted, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-10, atol=1e-12)
