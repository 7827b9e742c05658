"""What Numba writes of a kernel: machine code of the kernel alone, and whatever else is compiled as ever."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import traceback
from collections.abc import Iterator
from typing import Any

import pytest
from numba import cfunc, njit, types
from numba.core.codegen import JITCPUCodegen
from numba.core.registry import cpu_target

from tridiag.kernels.runtime import keyboard
from tridiag.kernels.runtime.compilation import of_a_kernel
from tridiag.kernels.simd.compiled import compiled

NUMBERS = types.int64(types.int64)


@compiled
def twice(x):
    return 2 * x


@compiled
def twice_and_one(x):
    return twice(x) + 1


def build() -> Any:
    def run(x):
        return twice_and_one(twice_and_one(x))

    return cfunc(NUMBERS, error_model="numpy")(run)


def test_a_kernel_alone_gets_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it calls is part of it: nobody waits for code of functions that nobody calls."""
    added: list[str] = []
    as_ever = JITCPUCodegen._add_module
    monkeypatch.setattr(JITCPUCodegen, "_add_module", lambda self, module: added.append("") or as_ever(self, module))
    host = cpu_target.target_context.codegen()
    with of_a_kernel():
        compiled = build()
    assert len(added) == 1
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(compiled.address)(5) == 23
    assert cpu_target.target_context.codegen() is host


def test_what_users_compile_is_called_as_ever() -> None:
    """Functions that a kernel has taken too, and that are compiled after it."""
    with of_a_kernel():
        build()
    assert njit(lambda x: twice_and_one(x) + twice(x))(3) == 13


def test_a_build_that_fails_leaves_numba_as_it_was() -> None:
    host = cpu_target.target_context.codegen()
    with pytest.raises(ZeroDivisionError), of_a_kernel():
        _ = 1 / 0
    assert cpu_target.target_context.codegen() is host


@pytest.fixture
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.usefixtures("thresholds")
@pytest.mark.parametrize("before", [(700, 10, 10), (100_000, 50, 5), (0, 10, 10)])
def test_garbage_is_looked_for_less_often_meanwhile(before: tuple[int, int, int]) -> None:
    """Never more often than its user wants it, not at all where he does not, and afterwards as before."""
    gc.set_threshold(*before)
    with of_a_kernel():
        meanwhile = gc.get_threshold()
    assert gc.get_threshold() == before
    if before[0] == 0:
        assert meanwhile == before
    else:
        assert all(now >= then for now, then in zip(meanwhile, before, strict=True))
        assert meanwhile[0] >= 20_000
    with pytest.raises(ZeroDivisionError), of_a_kernel():
        _ = 1 / 0
    assert gc.get_threshold() == before


def test_a_function_is_compiled_once_for_all_constants() -> None:
    """Each would be compiled again by Numba, for which a constant is a type."""

    @compiled
    def shifted(x, by):
        return x + by

    @compiled
    def sum_of_three(x):
        return shifted(x, 1) + shifted(x, 2) + shifted(x, x)

    whole = cfunc(NUMBERS)(lambda x: sum_of_three(x))
    assert whole.ctypes(5) == 6 + 7 + 10
    assert len(shifted.signatures) == 1


@pytest.mark.skipif(os.name != "posix", reason="needs signals, as POSIX has them")
def test_ctrl_c_shows_where_the_work_was() -> None:
    """And no frame of what defers it."""

    def work() -> None:
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt) as found, keyboard.interruptible():
            work()
    finally:
        signal.signal(signal.SIGINT, before)
    names = [frame.name for frame in traceback.extract_tb(found.value.__traceback__)]
    assert names == ["test_ctrl_c_shows_where_the_work_was", "work"]
