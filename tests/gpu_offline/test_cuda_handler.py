"""The handler that launches kernels for XLA without Python: what it gives to the driver, and what it answers.

It is called with call frames of XLA's C API that are made here, and by XLA itself; the driver is a stand-in whose
`cuLaunchKernel` runs the g++ build of the kernels.
"""

from __future__ import annotations

import concurrent.futures
import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import STANDIN, assert_solves, dominant, to_library, uniform

import tridiag

pytest.importorskip("jax", reason="needs JAX")
if not STANDIN:
    pytest.skip("CuPy and a device are here: nothing needs to be pretended", allow_module_level=True)
import cpu_build
import standin_driver as driver
from cupy import machine
from pretence import pretend

from tridiag.cuda import custom_call, launcher, on_jax, sequences, struct
from tridiag.cuda.instances import INSTANCES
from tridiag.cuda.record import Clear
from tridiag.kernels.jobs.words import cuda as words
from tridiag.kernels.runtime import call_frame, cuda_handler, object_cache
from tridiag.problems.forms import Form, Recurrence

pytestmark = pytest.mark.skipif(cpu_build.why_not() is not None, reason=str(cpu_build.why_not()))
WORD, EXECUTE = ctypes.c_int64, 3
INVALID_ARGUMENT, FAILED_PRECONDITION, INTERNAL = 3, 9, 13
FUNCTIONS = words.Driver.fields["functions"].word
MINOR = 7


class XLA:
    """XLA's side of its C API."""

    def __init__(self, major: int = 0) -> None:
        self.errors: list[tuple[int, str]] = []
        self.create = driver.Handler(self.created)
        entries = {6: self.create, 10: driver.get_stream}
        self.api = np.zeros(11, np.int64)
        self.api[[0, 2, 4]] = 88, 24, major + (MINOR << 32)
        for k, function in entries.items():
            self.api[k] = custom_call.address_of(function)

    def created(self, arguments: int) -> int:
        message = ctypes.c_char_p.from_address(arguments + 16).value or b""
        self.errors.append((ctypes.c_int.from_address(arguments + 24).value, message.decode()))
        return 4242

    def call(self, attribute: Any, operands: Any = (), results: Any = (), stage: int = EXECUTE, kind: int = 1) -> int:
        """Call the handler with such buffers; what it returns."""
        kept: list[Any] = []

        def pointers(values: Any) -> int:
            kept.append(np.array([*values, 0], np.int64))
            return int(kept[-1].ctypes.data)

        def buffers(arrays: Any) -> list[int]:
            described = [pointers([48, 0, 0, x.ctypes.data, 0, 0]) for x in arrays]
            return [40, 0, len(arrays), 0, pointers(described)]

        array = pointers([0, attribute.size, attribute.ctypes.data])
        attributes = [48, 0, 1, pointers([kind]), 0, pointers([array])]
        frame = [168, 0, self.api.ctypes.data, 99, stage, *buffers(operands), *buffers(results), *attributes]
        return run(pointers(frame))

    def ask(self) -> tuple[int, ...]:
        """What the handler says of itself: the version of the interface, its traits."""
        metadata = np.full(6, -1, np.int64)
        extension = np.array([32, 1, 0, metadata.ctypes.data])
        frame = np.zeros(22, np.int64)
        frame[[0, 1, 2]] = 168, extension.ctypes.data, self.api.ctypes.data
        assert run(frame.ctypes.data) == 0
        return tuple(int(x) for x in metadata.view(np.int32)[6:9])


def run(frame: int) -> int:
    return driver.Handler(custom_call.handler().address)(frame)


@pytest.fixture(autouse=True)
def a_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test changes of the record of the process is put back."""
    driver.pretend(monkeypatch)
    driver.problem.clear()
    before = custom_call.process.copy()
    yield
    custom_call.process[:] = before


def solve_call(shape: tuple[int, ...], axis: int, dtype: str = "float64", **options: Any) -> on_jax.Call:
    form = Form(shape, shape, axis, **options)
    shapes = (*[shape] * 3, None, *[shape] * 2)
    return on_jax.call_of_solve("chunks", form, shapes, (np.dtype(dtype),) * 2)


def recurrence_call(shape: tuple[int, ...], dtype: str = "float64") -> on_jax.Call:
    given: list[Any] = [None] * sequences.OPERANDS
    for k in (sequences.Y, sequences.X, sequences.COEFFICIENT):
        given[k] = shape
    return on_jax.call_of_recurrence("linear_recurrence", Recurrence(shape, 1), tuple(given), (np.dtype(dtype),) * 2)


def buffers_of(call: on_jax.Call, shape: tuple[int, ...], dtype: str = "float64") -> list[Any]:
    """The result, and scratch memory, full of what was there before."""
    return [np.full(shape, np.nan, dtype), np.full(call.program.scratch, 255, np.uint8)]


def attribute_of(call: on_jax.Call) -> Any:
    custom_call.load(step for step in call.program.steps if not isinstance(step, Clear))
    return custom_call.attribute(call.program, call.places, 2)


def launched_by(function: Any) -> tuple[Any, list[Any], list[int]]:
    """What it returns, the kernels that it launches, and on which streams."""
    machine.launches.clear()
    driver.queues.clear()
    return function(), [*machine.launches], [*driver.queues]


CASES: dict[str, tuple[Any, tuple[int, ...], str]] = {
    "certified": (solve_call((5, 40), 1), (5, 40), "dominant"),
    "pivoted": (solve_call((5, 40), 1), (5, 40), "uniform"),
    "rows apart": (solve_call((40, 6), 0, pivoting="auto"), (40, 6), "uniform"),
    "in pieces": (solve_call((2, 9001), 1), (2, 9001), "dominant"),
    "blocks in turn": (solve_call((100, 40), 1), (100, 40), "dominant"),
    "transposed": (solve_call((3, 17), 1, transpose=True), (3, 17), "uniform"),
    "tiles in turn": (recurrence_call((9, 50)), (9, 50), "recurrence"),
    "chained tiles": (recurrence_call((2, 9000)), (2, 9000), "recurrence"),
}


def operands_of(shape: tuple[int, ...], kind: str) -> list[Any]:
    if kind == "recurrence":
        a, _, _, x = dominant(shape)
        return [x, a]
    return [*(dominant if kind == "dominant" else uniform)(shape, axis=shape.index(max(shape)))]


@pytest.mark.parametrize("case", CASES)
def test_the_handler_launches_what_the_program_says(case: str) -> None:
    """The same kernels on the same numbers as by Python, on XLA's stream; zeros too."""
    call, shape, kind = CASES[case]
    operands, xla = operands_of(shape, kind), XLA()
    found, wanted = buffers_of(call, shape), buffers_of(call, shape)
    told = attribute_of(call)
    pointers = [0] * (call.places[-1] + 1)
    for k, x in zip(call.places, [*operands, *wanted], strict=True):
        pointers[k] = x.ctypes.data
    _, launches, _ = launched_by(lambda: launcher.run(call.program, pointers))
    returned, replayed, queues = launched_by(lambda: xla.call(told, operands, found))
    assert (returned, xla.errors, driver.problem) == (0, [], [])
    assert replayed == launches and queues == [driver.STREAM] * len(call.program.steps)
    np.testing.assert_array_equal(found[0], wanted[0])
    assert np.isfinite(found[0]).all()
    if case == "blocks in turn":  # fewer than pieces of work: as many as a device holds
        assert launches[0][1] < call.program.steps[1].grid


def test_what_is_launched_does_not_depend_on_data() -> None:
    """So that XLA may record it: systems with certificates, without, singular ones, and again."""
    call, shape = solve_call((5, 40), 1), (5, 40)
    told, xla, before = attribute_of(call), XLA(), machine.synchronised
    seen = []
    for operands in (dominant(shape), uniform(shape), [np.zeros(shape)] * 4, dominant(shape)):
        seen.append(launched_by(lambda given=operands: xla.call(told, given, buffers_of(call, shape))))
    assert all(one == seen[0] for one in seen) and seen[0][0] == 0
    assert machine.synchronised == before


def test_the_handler_allocates_nothing() -> None:
    """Its code calls what it has the addresses of, and no function of the C library or of Numba."""
    code = object_cache.object_code(cuda_handler.build())
    assert code.needs == ["tridiag_inner"]


def test_what_it_says_of_itself() -> None:
    assert XLA().ask() == (0, MINOR, 1)  # ... 1: it can be recorded in a command buffer


def test_many_threads_at_once() -> None:
    call, shape = solve_call((5, 40), 1), (5, 40)
    told, systems = attribute_of(call), [uniform(shape) for _ in range(8)]

    def solve(system: Any) -> Any:
        results = buffers_of(call, shape)
        for _ in range(3):
            assert XLA().call(told, system, results) == 0
        return results[0]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for x, system in zip(pool.map(solve, systems), systems, strict=True):
            assert_solves(x, *system)


PLACES = {  # in the structures of XLA's header
    "EXTENSION": "XLA_FFI_CallFrame, extension_start",
    "API": "XLA_FFI_CallFrame, api",
    "CONTEXT": "XLA_FFI_CallFrame, ctx",
    "STAGE": "XLA_FFI_CallFrame, stage",
    "ARGUMENTS": "XLA_FFI_CallFrame, args.size",
    "RESULTS": "XLA_FFI_CallFrame, rets.size",
    "ATTRIBUTE_COUNT": "XLA_FFI_CallFrame, attrs.size",
    "ATTRIBUTE_TYPES": "XLA_FFI_CallFrame, attrs.types",
    "ATTRIBUTES": "XLA_FFI_CallFrame, attrs.attrs",
    "BUFFERS": "XLA_FFI_Args, args) - offsetof(XLA_FFI_Args, size",
    "DATA": "XLA_FFI_Buffer, data",
    "COUNT": "XLA_FFI_Array, size",
    "VALUES": "XLA_FFI_Array, data",
    "MAJOR": "XLA_FFI_Api, api_version.major_version",
    "MINOR": "XLA_FFI_Api, api_version.minor_version",
    "ERROR_CREATE": "XLA_FFI_Api, XLA_FFI_Error_Create",
    "STREAM_GET": "XLA_FFI_Api, XLA_FFI_Stream_Get",
}
NUMBERS = {
    "ARRAY": "XLA_FFI_AttrType_ARRAY",
    "METADATA": "XLA_FFI_Extension_Metadata",
    "INSTANTIATE": "XLA_FFI_ExecutionStage_INSTANTIATE",
    "RECORDABLE": "XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE",
    "ERROR_SIZE": "XLA_FFI_Error_Create_Args_STRUCT_SIZE",
    "STREAM_SIZE": "XLA_FFI_Stream_Get_Args_STRUCT_SIZE",
}


def test_offsets_are_those_of_the_header_of_xla(tmp_path: Path) -> None:
    """Of the version that is installed: a compiler says no where one is not."""
    import jax

    facts = {name: f"offsetof({place})" for name, place in PLACES.items()} | NUMBERS
    checks = [f"static_assert({fact} == {getattr(call_frame, name)}, {name!r});" for name, fact in facts.items()]
    source = tmp_path / "offsets.cc"
    source.write_text("\n".join(['#include "xla/ffi/api/c_api.h"', *checks]).replace("'", '"'))
    command = [str(cpu_build.COMPILER), "-w", "-fsyntax-only", f"-I{jax.ffi.include_dir()}", str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------------------------------------ what it refuses


def refused(told: Any, code: int, text: str, **options: Any) -> None:
    call, shape, xla = solve_call((5, 40), 1), (5, 40), XLA()
    machine.launches.clear()
    assert xla.call(told, dominant(shape), buffers_of(call, shape), **options) == 4242
    assert len(xla.errors) == 1 and xla.errors[0][0] == code and text in xla.errors[0][1]
    assert not machine.launches


def test_attributes_of_others() -> None:
    """Nothing is launched that was told in another way."""
    told = attribute_of(solve_call((5, 40), 1))
    other, more = told.copy(), told.copy()
    other[0] += 1
    more[words.Program.fields["operands"].word] += 1
    for wrong in (other, more, told[:3], told[:0]):
        refused(wrong, INVALID_ARGUMENT, "another version")
    refused(told, INVALID_ARGUMENT, "another version", kind=3)  # a scalar


def test_kernels_that_are_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    told = attribute_of(solve_call((5, 40), 1))
    for device in (1, words.MOST_DEVICES):
        monkeypatch.setattr(machine, "current", device)
        refused(told, FAILED_PRECONDITION, "not loaded on this device")


def test_a_process_without_a_driver() -> None:
    told = attribute_of(solve_call((5, 40), 1))
    custom_call.process[words.Driver.fields["launch"].word] = 0
    refused(told, FAILED_PRECONDITION, "no CUDA driver")


def test_launches_that_the_driver_refuses() -> None:
    """With its own name for what is wrong."""
    call = solve_call((5, 40), 1)
    told = attribute_of(call)
    step = words.Program.words + len(call.places)
    steps = call.program.arrays.shape[1] + call.program.jobs.itemsize // 8 + words.Step.words
    wrong = told.copy()
    wrong[step + steps + words.Step.fields["grid"].word] = 0  # behind that of the zeros
    refused(wrong, INTERNAL, "CUDA_ERROR_INVALID_VALUE")


def test_there_is_room_for_every_kernel_and_job() -> None:
    assert len({*INSTANCES}) == len(INSTANCES) <= words.MOST_KERNELS
    for layout in (struct.SYSTEMS, sequences.SEQUENCES):
        assert layout.job.itemsize // 8 <= words.MOST_JOB and layout.operands + 4 <= words.MOST_ARRAYS
    call = solve_call((5, 40), 1)
    with pytest.raises(ValueError, match="the handler has less room"):
        custom_call.attribute(call.program, (words.MOST_ARRAYS,), 1)


# --------------------------------------------------------------------------------------------------- called by XLA


def jitted(monkeypatch: pytest.MonkeyPatch) -> Any:
    import jax

    pretend(monkeypatch, "cupy_pcr")
    return jax.jit(lambda *given: tridiag.solve(*given, backend="cupy_pcr"))


def test_xla_calls_it_on_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    system = uniform((5, 40))
    given = [to_library("jax", x) for x in system]
    solve = jitted(monkeypatch)
    x, launches, queues = launched_by(lambda: np.asarray(solve(*given)))
    assert_solves(x, *system)
    assert [name.partition("<")[0] for name, *_ in launches] == ["chunks", "pivoted"]
    assert queues == [driver.STREAM] * 3


def test_xla_raises_what_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [to_library("jax", x) for x in dominant((5, 40))]
    solve = jitted(monkeypatch)
    solve(*given)
    monkeypatch.setattr(machine, "current", 1)  # where nothing was loaded
    table = custom_call.process[FUNCTIONS:].reshape(words.MOST_DEVICES, -1)
    table[1] = 0
    with pytest.raises(Exception, match="not loaded on this device"):
        solve(*given).block_until_ready()


def test_where_there_is_no_handler_python_is_called_back(monkeypatch: pytest.MonkeyPatch) -> None:
    system = uniform((5, 41))  # of which JAX has traced nothing
    given = [to_library("jax", x) for x in system]
    solve = jitted(monkeypatch)
    monkeypatch.setattr(custom_call, "target", lambda: None)
    assert "callback" in solve.lower(*given).as_text()
    x, launches, queues = launched_by(lambda: np.asarray(solve(*given)))
    assert_solves(x, *system)
    assert len(launches) == 2 and not queues


def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not asked for a handler."""
    monkeypatch.undo()
    custom_call.registered.cache_clear()


@pytest.mark.parametrize("major", [0, 1])
def test_another_interface_of_xla(major: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    fresh(monkeypatch)
    monkeypatch.setattr(jax.ffi, "register_ffi_target", lambda *given, **options: XLA(major).ask())
    assert custom_call.target() == (custom_call.name() if major == 0 else None)
    custom_call.registered.cache_clear()


@pytest.mark.parametrize("missing", ["numba", "xla"])
def test_no_handler_can_be_made(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import jax

    def fails(*given: Any, **options: Any) -> None:
        raise ModuleNotFoundError("No module named 'numba'") if missing == "numba" else RuntimeError("refused")

    fresh(monkeypatch)
    if missing == "numba":
        monkeypatch.setattr(custom_call, "handler", fails)
    else:
        monkeypatch.setattr(jax.ffi, "register_ffi_target", fails)
    assert custom_call.target() is None
    custom_call.registered.cache_clear()


# ------------------------------------------------------------------------------------- programs that are kept


def test_a_program_that_was_exported_loads_its_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has traced it, perhaps: they are loaded when XLA makes the program."""
    import jax

    system = uniform((5, 40))
    given = [to_library("jax", x) for x in system]
    checks = [jax.export.DisabledSafetyCheck.custom_call(custom_call.name())]
    exported = jax.export.export(jitted(monkeypatch), disabled_checks=checks)(*given)
    custom_call.process[FUNCTIONS:] = 0
    x, launches, _ = launched_by(lambda: np.asarray(exported.call(*given)))
    assert_solves(x, *system)
    assert len(launches) == 2 and (custom_call.process[FUNCTIONS:] != 0).sum() == 2


OF_BOTH = {"solve": "tridiag_thomas_rows", "slogdet": "tridiag_determinants", "solve_block": "tridiag_block"}


@pytest.mark.parametrize("verb", OF_BOTH)
def test_a_program_for_both_a_cpu_and_a_gpu(verb: str) -> None:
    import jax

    *matrix, d = (to_library("jax", x) for x in dominant((5, 40)))
    if verb == "solve_block":
        matrix, d = [x.reshape(5, 10, 2, 2) for x in matrix], d[:, :20].reshape(5, 10, 2)
    given = matrix if verb == "slogdet" else [*matrix, d]
    text = jax.jit(getattr(tridiag, verb)).trace(*given).lower(lowering_platforms=("cpu", "cuda")).as_text()
    assert custom_call.name() in text and OF_BOTH[verb] in text
