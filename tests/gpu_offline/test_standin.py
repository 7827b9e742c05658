"""That the stand-in for CuPy refuses what CuPy refuses, and counts what a GPU would be asked for."""

import gc
from collections.abc import Callable
from typing import Any

import cpu_build
import numpy as np
import pytest
from helpers import STANDIN

import tridiag

cupy: Any = pytest.importorskip("cupy", reason="needs the stand-in for CuPy")
if not STANDIN:
    pytest.skip("CuPy and a device are here: the stand-in is not in place", allow_module_level=True)
from cupy import machine  # noqa: E402

from tridiag.cuda import launcher  # noqa: E402

pytestmark = pytest.mark.smoke

HOST = np.arange(6.0).reshape(2, 3)
DOUBLED = """
struct Job { long long n; double *x; };
__global__ void doubled(Job job) {
  long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i < job.n) job.x[i] *= 2;
}
"""


@pytest.fixture
def x() -> Any:
    return cupy.asarray(HOST)


REFUSED: dict[str, Callable[[Any], Any]] = {
    "np.asarray": np.asarray,
    "a function of NumPy": lambda x: np.where(HOST > 1, x, x),
    "a ufunc": np.sqrt,
    "an array of the host on the left": lambda x: HOST + x,
    "an array of the host on the right": lambda x: x + HOST,
    "stored": lambda x: x.__setitem__(0, HOST[0]),
    "added in place": lambda x: x.__iadd__(HOST),
    "joined": lambda x: cupy.concatenate((x, HOST)),
    "chosen": lambda x: cupy.where(x > 1, x, HOST),
}


@pytest.mark.parametrize("case", REFUSED)
def test_nothing_goes_between_host_and_device_unasked(case: str, x: Any) -> None:
    with pytest.raises(TypeError, match=r"Implicit conversion|Unsupported type|does not support ufuncs"):
        REFUSED[case](x)


def test_scalars_are_welcome_and_keep_the_dtype(x: Any) -> None:
    single = x.astype(cupy.float32)
    assert (2 * single + 1j).dtype == "complex64" and (single * np.float32(2)).dtype == "float32"
    np.testing.assert_array_equal((np.float64(2) * x - 1).get(), 2 * HOST - 1)


def test_reductions_and_rows_are_arrays(x: Any) -> None:
    for found in (x.sum(), (x > 1).all(), x[0, 1], x[0].max(axis=0)):
        assert isinstance(found, cupy.ndarray) and found.shape == ()


def test_views_share_memory_and_copies_do_not(x: Any) -> None:
    row, copied = x[1], x.copy()
    row[...] = 7
    assert row.data.ptr == x.data.ptr + 24 and copied.data.ptr != x.data.ptr
    np.testing.assert_array_equal(cupy.asnumpy(x), [[0, 1, 2], [7, 7, 7]])
    np.testing.assert_array_equal(copied.get(), HOST)


def test_new_memory_holds_no_numbers() -> None:
    assert np.isnan(cupy.empty(100).get()).all() and cupy.empty(3).data.ptr % 256 == 0


@pytest.mark.parametrize("dtype", ["object", "longdouble", "datetime64[s]", "U3"])
def test_dtypes_that_no_device_has(dtype: str) -> None:
    with pytest.raises(ValueError, match="Unsupported dtype"):
        cupy.asarray(np.ones(3).astype(dtype))


def test_other_byte_orders_are_swapped() -> None:
    assert cupy.asarray(HOST.astype(HOST.dtype.newbyteorder())).dtype.isnative


def test_arrays_are_on_the_current_device(x: Any) -> None:
    with cupy.cuda.Device(1):
        other = cupy.ones(3)
        with pytest.raises(ValueError, match=r"resides \(0\) is different from the current device \(1\)"):
            x + 1
    assert (x.device.id, other.device.id, cupy.cuda.get_device_id()) == (0, 1, 0)
    with pytest.raises(ValueError, match="Peer access"):
        other + x
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="invalid device ordinal"), cupy.cuda.Device(5):
        pass


def test_memory_is_limited_and_given_back(x: Any) -> None:
    gc.collect()  # what other tests have left
    pool = cupy.get_default_memory_pool()
    before = pool.used_bytes()
    pool.set_limit(size=before + 1000)
    try:
        with pytest.raises(cupy.cuda.memory.OutOfMemoryError, match="Out of memory allocating 8,000 bytes"):
            cupy.empty(1000)
        kept = cupy.empty(100)[::2]
        assert pool.used_bytes() == before + 800
    finally:
        pool.set_limit(size=0)
    del kept
    gc.collect()
    assert pool.used_bytes() == before


def test_reading_values_waits_for_the_device(x: Any) -> None:
    before = machine.synchronised
    cupy.where(x > 1, x, -x).max(axis=1)[0].reshape(1).astype(cupy.float32)
    assert machine.synchronised == before
    for read in (x.get, x.all().__bool__, x[0, 0].item, x.device.synchronize, lambda: float(x[0, 0])):
        before = machine.synchronised
        read()
        assert machine.synchronised == before + 1


def test_streams_have_their_names() -> None:
    assert cupy.cuda.get_current_stream().ptr == 0
    with cupy.cuda.Stream(non_blocking=True) as stream:
        assert cupy.cuda.get_current_stream().ptr == stream.ptr > 0


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "failure", "cudaErrorInsufficientDriver: CUDA driver version is insufficient")
    assert not cupy.cuda.is_available()
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="InsufficientDriver"):
        cupy.empty(3)


# ------------------------------------------------------------------------------------------------ kernels

needs_compiler = pytest.mark.skipif(cpu_build.why_not() is not None, reason=str(cpu_build.why_not()))


@needs_compiler
def test_a_kernel_runs() -> None:
    x = cupy.asarray(np.arange(100.0))
    kernel = cupy.RawModule(code=DOUBLED, name_expressions=("doubled",)).get_function("doubled")
    words = np.array([100, x.data.ptr])
    kernel((4,), (32,), (words.view(f"V{words.nbytes}"),))
    np.testing.assert_array_equal(x.get(), 2 * np.arange(100.0))
    assert machine.launches[-1] == ("doubled", 4, 32, 0)


def test_options_that_only_look_like_a_tuple() -> None:
    """CuPy's `RawModule` takes no kind of tuple."""

    class Options(tuple[str, ...]):
        pass

    with pytest.raises(TypeError, match="options as a tuple"):
        cupy.RawModule(code=DOUBLED, options=Options(), name_expressions=("doubled",))


@needs_compiler
def test_a_kernel_where_cupy_compiles_by_raw_modules_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(cupy.cuda.compiler, "_compile_module_with_cache")
    launcher.function.cache_clear()
    x = cupy.asarray(np.ones(100))
    np.testing.assert_allclose(tridiag.linear_recurrence(1.0, x).get(), np.arange(1.0, 101))
    launcher.function.cache_clear()


@needs_compiler
def test_launches_that_no_device_takes() -> None:
    words, module = np.zeros(1, "V16"), cupy.RawModule(code=DOUBLED, name_expressions=("doubled",))
    kernel = module.get_function("doubled")
    for grid, block, shared in ((0, 32, 0), (1, 1025, 0), (1, 0, 0), (2**31, 32, 0), (1, 32, 50_000)):
        with pytest.raises(RuntimeError, match="CUDA_ERROR_INVALID_VALUE"):
            kernel((grid,), (block,), (words,), shared_mem=shared)
    kernel.max_dynamic_shared_size_bytes = 60_000
    kernel((1,), (32,), (words,), shared_mem=50_000)
    with pytest.raises(RuntimeError, match="no name expression"):
        module.get_function("tripled")
    with pytest.raises(TypeError, match="of size one"):
        kernel((1,), (32,), (np.zeros(2, np.int64),))


def test_draws_are_of_the_dtypes_that_cupy_draws_in() -> None:
    random = cupy.random.default_rng(0)
    assert random.standard_normal((2, 3), "float32").dtype == cupy.float32
    with pytest.raises(TypeError, match="only supports float32 and float64"):
        random.standard_normal(3, "float16")
