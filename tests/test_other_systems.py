"""What is left where compiled kernels cannot run, and what they call on systems that are not this one."""

import ctypes
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import llvmlite.binding as llvm
import pytest
from llvmlite import ir
from processes import run_program

import tridiag
from tridiag.kernels.runtime import system

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from other_targets import KERNEL32
from symbols import undefined

PROGRAM = """
import importlib, sys
table = importlib.import_module("tridiag.backends")
setattr(table, *eval(sys.argv[1]))
import numpy as np
import tridiag
from tridiag.kernels.runtime import object_cache

x = np.linspace(1, 2, 36).reshape(6, 6)
y = tridiag.solve(-1.0, 4.0, -1.0, x)
np.testing.assert_allclose(tridiag.matmul(-1.0, 4.0, -1.0, y), x)
cyclic = tridiag.solve(-1.0, 4.0, -1.0, x, periodic=True)
np.testing.assert_allclose(tridiag.matmul(-1.0, 4.0, -1.0, cyclic, periodic=True), x)
np.testing.assert_allclose(tridiag.factor(-1.0 + 0 * x, 4.0, -1.0).solve(x), y)
tridiag.slogdet(-1.0 + 0 * x, 4.0, -1.0)
tridiag.linear_recurrence(0.5, x), tridiag.logcumsumexp(x), tridiag.matrix_recurrence(np.eye(2), x.reshape(6, 3, 2))
tridiag.solve_block(np.eye(2), 4 * np.eye(2), np.eye(2), x.reshape(6, 3, 2))
model = dict(F=[[0.5]], H=[[1.0]], Q=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
tridiag.kalman.log_likelihood(x[..., None], **model)
for refused in (
    lambda: tridiag.solve(-1.0, 4.0, -1.0, x, backend="numba_thomas"),
    lambda: tridiag.parts.reduce(-1.0, 4.0, -1.0, x),
):
    try:
        refused()
    except tridiag.BackendError as error:
        print(error)
print([entry.why_not for entry in tridiag.backends() if entry.name == "numba_scan"], list(object_cache.modules))
"""


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        (("THREADS", False), "needs the threads of POSIX or Windows, which"),
        (("FREE_THREADED", True), "needs a Python with a global interpreter lock"),
    ],
)
def test_verbs_take_what_runs_and_say_why(setting: tuple[str, bool], reason: str) -> None:
    """No kernel is looked for: it would have symbols that nothing resolves, or be called by threads at once."""
    told = run_program(PROGRAM, repr(setting))
    assert told.count(reason) == 3
    assert told.endswith("[]")


def test_one_module_names_functions_of_the_system() -> None:
    """Any other would need what Windows does not have."""
    for path in (Path(tridiag.__file__).parent / "kernels").rglob("*.py"):
        if path.name != "system.py":
            names = re.findall(r'ExternalFunction\("(\w+)"', path.read_text())
            assert {name for name in names if not re.match("_?Py", name)} <= {"malloc", "free", "abort"}, path


def module_for(triple: str) -> tuple[Any, Any]:
    """One that has all functions of the seam, as LLVM reads it, and what writes object code of it."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    module = ir.Module("seam")
    module.triple = triple
    caller = ir.Function(module, ir.FunctionType(ir.VoidType(), []), "caller")
    builder = ir.IRBuilder(caller.append_basic_block())
    for name in system.FUNCTIONS:
        function = system.function_of(module, name)
        builder.call(function, [ir.Constant(x.type, 0) for x in function.args])
    builder.ret_void()
    found = llvm.parse_assembly(str(module))
    found.verify()
    return found, llvm.Target.from_triple(triple).create_target_machine(codemodel="jitdefault", jit=True)


@pytest.mark.parametrize(
    ("triple", "needed"),
    [
        ("x86_64-pc-windows-msvc", KERNEL32),
        ("aarch64-pc-windows-msvc", KERNEL32),
        ("x86_64-unknown-linux-gnu", {*system.FUNCTIONS}),
        ("arm64-apple-macosx11.0.0", {*system.WINDOWS}),
    ],
)
def test_what_is_asked_of_a_system_is_there(triple: str, needed: set[str]) -> None:
    """Functions of kernel32 on Windows, of POSIX elsewhere, and its own on Linux: by the object code."""
    module, machine = module_for(triple)
    assert {x.name for x in module.functions if x.is_declaration} == needed
    if "aarch64" not in triple:  # whose COFF `symbols` does not read
        assert undefined(machine.emit_object(module)) == needed


@pytest.mark.parametrize(("triple", "line", "clock"), [("arm64-apple-macosx11.0.0", 128, 6), ("x86_64-linux", 64, 1)])
def test_cache_lines_and_clocks_are_those_of_the_system(triple: str, line: int, clock: int) -> None:
    module = SimpleNamespace(triple=triple)
    assert (system.line_of(module), system.clock_of(module)) == (line, clock)


def test_functions_for_windows_do_what_those_of_posix_do() -> None:
    """With stand-ins for those of kernel32, run here: a clock of 10 MHz, thread 7, keys from 3 on."""
    module = ir.Module("seam")
    module.triple = "windows"
    for name in system.FUNCTIONS:
        system.function_of(module, name, "external")
    module.triple = llvm.get_process_triple()
    word = ctypes.c_int64
    kept: dict[int, int] = {}
    calls: list[tuple[str, tuple[int, ...]]] = []

    def put(at: int, value: int) -> int:
        word.from_address(at).value = value
        return 1

    answers: dict[str, Callable[..., int]] = {
        "SwitchToThread": lambda: 0, "Sleep": lambda ms: 0, "CloseHandle": lambda handle: 1, "TlsAlloc": lambda: 3,
        "QueryPerformanceCounter": lambda at: put(at, 12_345_678_901), "GetCurrentThreadId": lambda: 7,
        "QueryPerformanceFrequency": lambda at: put(at, 10_000_000), "TlsGetValue": lambda key: kept[key],
        "TlsSetValue": lambda key, value: kept.update({key: value}) or 1,
        "CreateThread": lambda *told: 0 if told[3] == 0 else 99,
    }  # fmt: skip
    pointers = []
    for name, answer in answers.items():
        count = len(inspect.signature(answer).parameters) if name != "CreateThread" else 6

        def told(*given: int, name: str = name, answer: Callable[..., int] = answer) -> int:
            calls.append((name, given))
            return answer(*given)

        pointers.append(ctypes.CFUNCTYPE(word, *[word] * count)(told))
        llvm.add_symbol(name, ctypes.cast(pointers[-1], ctypes.c_void_p).value)
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(str(module)), machine)
    engine.finalize_object()

    def call(name: str, *arguments: int) -> int:
        function = ctypes.CFUNCTYPE(word, *[word] * len(arguments))(engine.get_function_address(name))
        value: int = function(*arguments)
        return value if name in ("pthread_self", "pthread_getspecific") else value & 0xFFFFFFFF

    time = (word * 2)()
    assert call("clock_gettime", 1, ctypes.addressof(time)) == 0 and [*time] == [1234, 567_890_100]
    assert (
        call("pthread_self") == 7 and call("sched_yield") == call("madvise", 0, 1, 14) == call("pthread_detach", 7) == 0
    )
    assert call("usleep", 50) == call("usleep", 2000) == 0
    assert [given for name, given in calls if name == "Sleep"] == [(0,), (2,)]
    key = word(-1)
    assert call("pthread_key_create", ctypes.addressof(key), 0) == 0 and key.value == 3
    assert call("pthread_setspecific", 3, 2**40) == 0 and call("pthread_getspecific", 3) == 2**40
    assert call("pthread_create", 0, 0, 5, 6) == 0 and ("CloseHandle", (99,)) in calls
    assert ("CreateThread", (0, 0, 5, 6, 0, 0)) in calls
    assert call("pthread_create", 0, 0, 5, 0) == 11 and calls[-1][0] == "CreateThread"
    for name, (signature, _) in system.LINUX.items():
        assert call(name, *[0] * len(signature.args)) == 2**32 - 1  # as if it had failed
