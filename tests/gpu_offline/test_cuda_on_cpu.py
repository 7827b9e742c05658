"""The checker itself: that `cuda_cpu.h` means what CUDA means, and that it sees what a GPU would not forgive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cpu_build
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(cpu_build.why_not() is not None, reason=str(cpu_build.why_not()))

SOURCE = """
struct Job { float* x; unsigned* y; };

__global__ void shuffles(Job job) {
  const int k = threadIdx.x;
  float* x = job.x + 8 * k;
  const float own = float(k);
  x[0] = __shfl_sync(~0u, own, 3);
  x[1] = __shfl_sync(~0u, own, 9, 8);
  x[2] = __shfl_up_sync(~0u, own, 2);
  x[3] = __shfl_up_sync(~0u, own, 1, 4);
  x[4] = __shfl_down_sync(~0u, own, 30);
  x[5] = __shfl_xor_sync(~0u, own, 5);
  if (k % 2) x[6] = __shfl_sync(0xAAAAAAAAu, own, 1);
  x[7] = float(__any_sync(~0u, k == 40) + 2 * __all_sync(~0u, k < 32));
  job.y[k] = __ballot_sync(~0u, k % 3 == 0);
}
__global__ void neighbours(Job job) {
  float* shared = static_cast<float*>(cudasim::dynsmem());
  shared[threadIdx.x] = float(threadIdx.x);
  job.x[threadIdx.x] = shared[threadIdx.x + 1 < blockDim.x ? threadIdx.x + 1 : 0];
}
__global__ void across_warps(Job job) {
  float* shared = static_cast<float*>(cudasim::dynsmem());
  shared[threadIdx.x] = float(threadIdx.x);
  __shfl_sync(~0u, 0, 0);  // of the own warp only
  job.x[threadIdx.x] = shared[threadIdx.x ^ 32];
}
__global__ void some_threads(Job) { if (threadIdx.x < 32) __syncthreads(); }
__global__ void other_barriers(Job job) {
  if (threadIdx.x < 32) __syncthreads();
  job.x[threadIdx.x] = 0;
  if (threadIdx.x >= 32) __syncthreads();
}
__global__ void other_masks(Job) { __syncwarp(threadIdx.x < 16 ? 0xFFFFu : ~0u); }
__global__ void absent_lane(Job) { if (threadIdx.x % 32 != 1) __shfl_sync(0xFFFFFFFDu, 0, 1); }
__global__ void beyond(Job) { static_cast<char*>(cudasim::dynsmem())[17] = 0; }
__global__ void waits(Job job) {  // for the block before, which tells it by its own y
  unsigned* const before = job.y + (blockIdx.x ? blockIdx.x - 1 : 0);
  __syncthreads();
  if (blockIdx.x) while (!*const_cast<volatile unsigned*>(before)) __nanosleep(20);
  __syncthreads();
  if (threadIdx.x == 0) job.y[blockIdx.x] = 1 + (blockIdx.x ? *before : 0);
}
__global__ void waits_for_the_last(Job job) {
  if (blockIdx.x + 1 == gridDim.x) job.y[0] = 1;
  while (!*const_cast<volatile unsigned*>(job.y)) __nanosleep(20);
}
__global__ void blocks(Job job) { job.x[blockIdx.x] = blockIdx.x ? 1 + job.x[blockIdx.x - 1] : 0; }
"""
KERNELS = ("shuffles", "neighbours", "across_warps", "some_threads", "other_barriers", "other_masks", "absent_lane")
KERNELS = (*KERNELS, "beyond", "blocks", "waits", "waits_for_the_last")
SEEDS = range(4)


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run a kernel in a block of 64 threads: (x, y)."""
    folder = tmp_path_factory.mktemp("kernels")
    Path(folder, "small.cu").write_text(SOURCE)
    library = cpu_build.build("small.cu", KERNELS, folder=folder)

    def run(name: str, seed: int = 0, grid: int = 1, shared: int = 256, block: int = 64) -> tuple[np.ndarray, ...]:
        x, y = np.full(512, -1, np.float32), np.zeros(64, np.uint32)
        library.launch(name, grid, block, np.array([x.ctypes.data, y.ctypes.data]), shared, seed)
        return x, y

    return run


@pytest.mark.parametrize("seed", SEEDS)
def test_warps_exchange_as_cuda_says(launch: Any, seed: int) -> None:
    x, y = launch("shuffles", seed)
    k = np.arange(64)
    lane, warp = k % 32, k - k % 32
    expected = [warp + 3, k - k % 8 + 1, np.where(lane >= 2, k - 2, k), np.where(k % 4 >= 1, k - 1, k)]
    expected += [
        np.where(lane < 2, k + 30, k),
        warp + (lane ^ 5),
        np.where(k % 2, warp + 1, -1),
        np.where(k < 32, 2, 1),
    ]
    np.testing.assert_array_equal(x.reshape(64, 8), np.transpose(expected))
    votes = [sum(1 << i for i in range(32) if (i + first) % 3 == 0) for first in (0, 32)]
    np.testing.assert_array_equal(y, np.repeat(votes, 32))


@pytest.mark.parametrize("name", ["neighbours", "across_warps"])
def test_a_missing_barrier_is_a_wrong_answer_under_some_seed(launch: Any, name: str) -> None:
    k = np.arange(64)
    expected = (k + 1) % 64 if name == "neighbours" else k ^ 32
    assert any(np.isnan(launch(name, seed)[0][:64]).any() for seed in SEEDS)
    assert not all((launch(name, seed)[0][:64] == expected).all() for seed in SEEDS)


def test_blocks_have_no_order(launch: Any) -> None:
    assert any((launch("blocks", seed, grid=5)[0][:5] != np.arange(5)).any() for seed in SEEDS)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("some_threads", "exited"),
        ("other_barriers", "different barriers"),
        ("other_masks", "do not come"),
        ("absent_lane", "not in the mask"),
    ],
)
@pytest.mark.parametrize("seed", SEEDS)
def test_what_a_gpu_would_hang_on_is_an_error(launch: Any, name: str, said: str, seed: int) -> None:
    with pytest.raises(cpu_build.LaunchError, match=said):
        launch(name, seed)
    launch("shuffles", seed)  # and the next kernel runs


def test_memory_beyond_the_end_of_shared_memory_is_watched(launch: Any) -> None:
    launch("beyond", shared=18)
    with pytest.raises(cpu_build.LaunchError, match="beyond its end"):
        launch("beyond", shared=17)


@pytest.mark.parametrize("seed", SEEDS)
def test_blocks_wait_for_others_that_are_at_work(launch: Any, seed: int) -> None:
    """As many as may be: the order in which they begin is no matter."""
    _, y = launch("waits", seed, grid=5)
    np.testing.assert_array_equal(y[:5], np.arange(1, 6))
    launch("waits_for_the_last", seed, grid=5)


def test_blocks_that_wait_for_one_that_cannot_begin_are_an_error(launch: Any) -> None:
    with pytest.raises(cpu_build.LaunchError, match="all blocks at work sleep"):
        launch("waits_for_the_last", grid=30)
    launch("shuffles")  # and the next kernel runs


@pytest.mark.parametrize(("grid", "block"), [(0, 32), (1, 0), (1, 1025)])
def test_grids_that_no_gpu_has_are_refused(launch: Any, grid: int, block: int) -> None:
    with pytest.raises(cpu_build.LaunchError, match="invalid configuration"):
        launch("shuffles", grid=grid, block=block)


@pytest.mark.skipif(cpu_build.why_not_fused() is not None, reason=str(cpu_build.why_not_fused()))
def test_products_are_fused_where_that_is_said_and_not_else(tmp_path: Path) -> None:
    """What a product loses to rounding is seen only by a difference that is fused with it."""
    (tmp_path / "lost.cu").write_text(
        "struct Job { double* x; };\n__global__ void lost(Job job) { job.x[1] = job.x[0] * job.x[2] - job.x[3]; }\n"
    )
    third = 1 / 3
    fused = cpu_build.FUSED
    for options, is_lost in (((), True), (fused, False), ((*fused, cpu_build.ROUNDED), True)):
        x = np.array([third, 0, third, third * third])
        cpu_build.build("lost.cu", ("lost",), options, folder=tmp_path).launch("lost", 1, 1, np.array([x.ctypes.data]))
        assert (x[1] == 0) == is_lost
