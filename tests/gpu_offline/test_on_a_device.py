"""That every backend for CuPy arrays works where they are, waits for nothing, and survives full memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers import STANDIN, Subject, assert_solves, dominant

import tridiag

cupy: Any = pytest.importorskip("cupy", reason="needs the stand-in for CuPy")
if not STANDIN:
    pytest.skip("CuPy and a device are here: the stand-in is not in place", allow_module_level=True)
from cupy import machine  # noqa: E402

SYSTEM = dominant((40, 100))


@pytest.fixture
def given() -> list[Any]:
    """On another device than the current one."""
    with cupy.cuda.Device(1):
        return [cupy.asarray(x) for x in SYSTEM]


@pytest.fixture
def limits() -> Iterator[Any]:
    """Sets how many bytes more that device may give away; None: any number."""

    def set_limit(room: int | None) -> None:
        with cupy.cuda.Device(1):
            pool = cupy.get_default_memory_pool()
            pool.set_limit(size=0 if room is None else pool.used_bytes() + room)

    yield set_limit
    set_limit(None)


@pytest.mark.only(library="cupy")
def test_work_is_done_on_the_device_of_the_arrays_and_never_waited_for(backend: Subject, given: list[Any]) -> None:
    options = {"backend": backend.name, "pivoting": backend.usual}
    tridiag.solve(*given, **options)  # what is compiled once may wait
    before = machine.synchronised
    x = tridiag.solve(*given, **options)
    found = [x]
    if backend.can("factor"):
        matrix = tridiag.factor(*given[:3], **options)
        found += [matrix.status, matrix.solve(given[3])]
    if backend.can("slogdet"):
        found += tridiag.slogdet(*given[:3], backend=backend.name)
    assert machine.synchronised == before and cupy.cuda.get_device_id() == 0
    assert {found_here.device.id for found_here in found} == {1}
    assert_solves(x.get(), *SYSTEM)


@pytest.mark.only(library="cupy", verb="linear_recurrence")
def test_recurrences_are_run_on_the_device_of_the_arrays(backend: Subject, given: list[Any], limits: Any) -> None:
    """Nothing waits for it; full memory leaves arguments as they were."""

    def run() -> list[Any]:
        a, _, init, x = given
        y, last = tridiag.linear_recurrence(a, x, init[:, 0], return_final=True, backend=backend.name)
        empty = tridiag.linear_recurrence(a[:, :0], x[:, :0], backend=backend.name)
        return [y, last, empty, tridiag.logcumsumexp(x, backend=backend.name)]

    run()  # what is compiled once may wait
    before = machine.synchronised
    y, last, *others = run()
    assert machine.synchronised == before and cupy.cuda.get_device_id() == 0
    assert {found.device.id for found in (y, last, *others)} == {1}
    a, _, init, x = SYSTEM
    np.testing.assert_allclose(y.get(), tridiag.linear_recurrence(a, x, init[:, 0]), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(last.get(), y.get()[:, -1])
    limits(1000)
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError, match="Out of memory allocating"):
        run()
    for kept, copy in zip(given, SYSTEM, strict=True):
        np.testing.assert_array_equal(kept.get(), copy)
    limits(None)
    out = cupy.zeros(SYSTEM[0].shape)
    with pytest.raises(TypeError, match="out is on cuda:0; the result is on cuda:1"):
        tridiag.linear_recurrence(given[0], given[3], backend=backend.name, out=out)


@pytest.mark.only(library="cupy")
def test_full_memory_hurts_nothing(backend: Subject, given: list[Any], limits: Any) -> None:
    options = {"backend": backend.name, "pivoting": backend.usual}
    wanted = tridiag.solve(*given, **options).get()
    for room in (0, 1000, wanted.nbytes - 1):
        limits(room)
        with pytest.raises(cupy.cuda.memory.OutOfMemoryError, match="Out of memory allocating"):
            tridiag.solve(*given, **options)
        limits(None)
        for x, copy in zip(given, SYSTEM, strict=True):
            np.testing.assert_array_equal(x.get(), copy)
        np.testing.assert_array_equal(tridiag.solve(*given, **options).get(), wanted)


@pytest.mark.only(library="cupy")
def test_full_memory_leaves_right_sides_that_may_be_overwritten(backend: Subject, limits: Any) -> None:
    """Whichever allocation fails: nothing is written before all of them are made."""
    options = {"backend": backend.name, "pivoting": backend.usual, "overwrite_d": True}
    for system in (SYSTEM, dominant((2, 5000))):
        with cupy.cuda.Device(1):
            *matrix, d = (cupy.asarray(x) for x in system)
        for room in (0, 300, 1000, 10_000, 100_000, 200_000, 300_000, 500_000):
            limits(room)
            try:
                tridiag.solve(*matrix, d, **options)
            except cupy.cuda.memory.OutOfMemoryError:
                np.testing.assert_array_equal(d.get(), system[3])
            else:
                break
            finally:
                limits(None)
        assert room > 0
