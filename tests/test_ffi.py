"""The handlers that XLA calls: which version they are for, and what they say where memory runs out."""

import ctypes
import functools
import pathlib

import numpy as np
import pytest
from helpers import assert_same_bits, installed
from processes import run_program

if not (installed("jax") and installed("numba")):
    pytest.skip("needs jax and numba, which are not both installed", allow_module_level=True)

import jax

import tridiag
from tridiag.xla import custom_call

NOT_ANSWERED = -1


def answer(api: np.ndarray | None) -> list[int]:
    """What a handler answers to XLA's question for its version, from an XLA that tells its own or none."""
    custom_call.target("thomas", "float64", "interleaved")
    handler = custom_call._alive[f"tridiag_thomas_interleaved_float64_{custom_call.source_hash():x}"]
    metadata = np.full(5, NOT_ANSWERED, np.int64)  # its size, that of the version, an extension, the version, traits
    extension = np.array([32, 1, 0, metadata.ctypes.data], np.int64)  # size, kind, the next one
    other = np.array([24, 99, extension.ctypes.data], np.int64)
    frame = np.array([168, other.ctypes.data, 0 if api is None else api.ctypes.data], np.int64)
    error = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(handler.address)(frame.ctypes.data)
    assert error == 0
    return metadata.view(np.int32)[6:9].tolist()


@pytest.mark.parametrize("minor", [0, 1, 3, 12])
def test_a_handler_is_for_the_version_that_xla_has(minor: int) -> None:
    """Whichever minor version; the traits claim nothing."""
    api = np.zeros(7, np.int64)
    api.view(np.int32)[8:10] = 0, minor
    assert answer(api) == [0, minor, 0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_subnormal_numbers_count(dtype: str) -> None:
    """XLA's threads take them for 0, in their own operations before and after the call too."""
    tiny = np.finfo(dtype).tiny
    rng = np.random.default_rng(0)
    a, c, d = (rng.uniform(-1, 1, (33, 70)).astype(dtype) for _ in range(3))
    b, d = (4 + rng.uniform(0, 1, a.shape)).astype(dtype), (d * tiny * 100).astype(dtype)
    wanted = tridiag.solve(a, b, c, d, backend="numba_thomas")
    solve = jax.jit(functools.partial(tridiag.solve, backend="numba_thomas"))
    halved = jax.jit(lambda x: x / 2)
    before = np.asarray(halved(np.full(9, tiny)))
    assert_same_bits(np.asarray(solve(a, b, c, d)), wanted)
    assert (abs(wanted) < tiny).any(), "no entry is subnormal"
    assert_same_bits(np.asarray(halved(np.full(9, tiny))), before)


def test_a_handler_is_for_the_first_version_where_xla_does_not_tell_its_own() -> None:
    assert answer(None) == [0, 1, 0]


SHORT_OF_MEMORY = """
import resource, sys
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
import tridiag
promise = {"False": False, "True": True, "auto": "auto"}[sys.argv[1]]
b, d = (jax.numpy.full((2, 2_000_000), x) for x in (4.0, 1.0))
call = jax.jit(
    lambda b, d: tridiag.solve(1.0, b, 1.0, d, backend="numba_thomas", overwrite_d=True, pivoting=promise),
    donate_argnums=1,
).lower(b, d).compile()
used = 4096 * int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (used + 2**23, -1))
try:
    jax.block_until_ready(call(b, d))
    print("solved")
except jax.errors.JaxRuntimeError as error:
    print("RESOURCE_EXHAUSTED: tridiag: no memory" in str(error))
resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
print(abs(call(b, jax.numpy.ones((2, 2_000_000)))[:, 50:-50] - 1 / 6).max() < 1e-9)
"""


@pytest.mark.skipif(not pathlib.Path("/proc/self/statm").exists(), reason="needs a limit of memory, as Linux has")
@pytest.mark.parametrize("promise", ["False", "True", "auto"])
def test_memory_that_runs_out_inside_jit(promise: str) -> None:
    """A kernel that gets no memory for the rows that it keeps says so: it never leaves a result unwritten."""
    assert run_program(SHORT_OF_MEMORY, promise).split() == ["True", "True"]
