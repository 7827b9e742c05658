"""A program as one custom call of XLA, whose handler launches its kernels: no Python once it is compiled.

The program itself is the attribute of the call, so that one handler serves all, and a compiled program means the same
in another process. Kernels go by their numbers in `tridiag.cuda.instances`; where they are loaded is in a record of the
process, which is filled when JAX traces a call, and when XLA makes a program that was traced elsewhere.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import numpy as np

from tridiag.cuda import launcher
from tridiag.cuda.instances import INSTANCES
from tridiag.cuda.record import Clear, Launch, Program
from tridiag.kernels.jobs.words import cuda as words
from tridiag.kernels.runtime.object_cache import Kernel, made_by, obtain
from tridiag.kernels.runtime.python_call import lasting
from tridiag.kernels.runtime.sources import source_hash_of

PLATFORM = "CUDA"
LIBRARY = "libcuda.so.1"
ENTRIES = {
    "launch": "cuLaunchKernel",
    "clear": "cuMemsetD8Async",
    "device": "cuCtxGetDevice",
    "error_name": "cuGetErrorName",
}
MADE_OF = "tridiag.cuda.custom_call", "tridiag.kernels.runtime.cuda_handler"
NUMBERS = {kernel: k for k, kernel in enumerate(INSTANCES)}

process = lasting(words.Driver.filled())  # what the handler reads
_functions: dict[tuple[int, int], Any] = {}  # the kernels that it names, which must not be unloaded
_lock = threading.Lock()
_loader = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)


def target() -> str | None:
    """The name of the handler, registered with XLA; None where there can be none.

    That is where Numba is not installed, or XLA has another interface.
    """
    with _lock:
        return registered()


@functools.cache
def registered() -> str | None:
    try:
        capsule = jax.ffi.pycapsule(handler().address)
    except ImportError:
        return None
    connect()
    try:
        stages = {"instantiate": capsule, "execute": capsule}
        jax.ffi.register_ffi_target(name(), stages, platform=PLATFORM, api_version=1)
    except Exception:  # of XLA, which has no class for it
        return None
    return name() if words.Driver.view(process).interface == words.INTERFACE else None


def handler() -> Kernel:
    """Around the record of this process."""
    return obtain("cuda_handler", made_by("runtime.cuda_handler.build"), Kernel(process.ctypes.data, True, None))


@functools.cache
def name() -> str:
    """It says which version of the kernels a program is for: one that was kept must not meet other jobs."""
    texts = [path.read_bytes() for path in sorted(launcher.SOURCES.glob("*.cu"))]
    return f"tridiag_cuda_{source_hash_of(*MADE_OF):x}_{hashlib.sha256(b''.join(texts)).hexdigest()[:12]}"


def connect() -> None:
    """Tell the handler where the functions of the driver are, where there is one."""
    try:
        driver = ctypes.CDLL(LIBRARY)
    except OSError:
        return
    for field, function in ENTRIES.items():
        process[words.Driver.fields[field].word] = address_of(getattr(driver, function))
    process[words.Driver.fields["load"].word] = address_of(load_words)


def address_of(function: Any) -> int:
    """Of a C function."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def attribute(program: Program, places: Sequence[int], results: int) -> np.ndarray[Any, Any]:
    """What the handler is told: for operands, then for so many results, which array of the program each is."""
    pointers, job = program.arrays.shape[1], program.jobs.itemsize // 8
    if max(places) + 2 > words.MOST_ARRAYS or job > words.MOST_JOB:
        raise ValueError(f"a program of {max(places) + 1} arrays and {job} words a job; the handler has less room")
    head = words.Program.filled(
        sign=words.SIGN, operands=len(places) - results, results=results, steps=len(program.steps), pointers=pointers,
        job=job,
    )  # fmt: skip
    parts: list[Any] = [head, np.array(places) + 1]
    jobs = program.jobs.view(np.int64).reshape(len(program.steps), -1)
    for step, arrays, offsets, others in zip(program.steps, program.arrays, program.offsets, jobs, strict=True):
        parts += [words_of(step), arrays, offsets, others[pointers:]]
    return np.concatenate(parts)


def words_of(step: Launch | Clear) -> np.ndarray[Any, Any]:
    if isinstance(step, Clear):
        return words.Step.filled(kernel=words.CLEAR, cleared=step.size)
    return words.Step.filled(
        kernel=NUMBERS[step.kernel],
        grid=loaded(step),
        block=step.block,
        shared=step.shared,
        in_turn=step.in_turn,
    )


def launches_in(told: np.ndarray[Any, Any]) -> list[Launch]:
    """Of the attribute of a call."""
    program, found = words.Program.view(told), []
    at = words.Program.words + program.operands + program.results
    for _ in range(program.steps):
        step = words.Step.view(told[at:])
        if step.kernel != words.CLEAR:
            kernel = INSTANCES[step.kernel]
            found.append(Launch(kernel, int(step.grid), int(step.block), int(step.shared), bool(step.in_turn)))
        at += words.Step.words + program.pointers + program.job
    return found


def devices() -> list[int]:
    """The GPUs of JAX in this process, as CUDA numbers them."""
    try:
        return [device.local_hardware_id for device in jax.local_devices(backend="cuda")]
    except RuntimeError:  # it has none
        return []


def load(launches: Iterable[Launch]) -> None:
    """Load kernels on all devices: XLA may record what is launched, and nothing can be loaded then."""
    for step in launches:
        loaded(step)


def loaded(step: Launch) -> int:
    """The blocks of a launch, whose kernel is loaded on all devices; the fewest of these where they take turns."""
    import cupy

    table = process[words.Driver.fields["functions"].word :].reshape(words.MOST_DEVICES, words.MOST_KERNELS)
    number, blocks = NUMBERS[step.kernel], step.grid
    for device in devices():
        with cupy.cuda.Device(device):
            function, (grid,), *_ = launcher.launch_of(step, device)
        blocks = min(blocks, grid)
        if device < words.MOST_DEVICES:
            _functions[device, number] = function
            table[device, number] = function.ptr
    return blocks


@lasting
@_loader
def load_words(address: int, count: int) -> int:
    """Load the kernels of a program that XLA makes; what fails here is told when it runs."""
    try:
        told = np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(address))
        if count >= words.Program.words and told[0] == words.SIGN:
            load(launches_in(told))
    except Exception:  # nothing may go up into XLA
        return 1
    return 0
