"""DTensors over four processes: what `distributed_systems.py` and `distributed_recurrences.py` check is run here.

Every process runs every check, in the same order, as all programs over `torch.distributed` do.
"""

import importlib
import os
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._python_dispatch import TorchDispatchMode

import tridiag

PROCESSES = 4
REAL, COMPLEX = torch.float64, torch.complex128
DTYPES = (torch.float32, REAL, torch.complex64, COMPLEX)
LENGTHS = (17, 5, 3)  # 5, 5, 5, 2 rows; 2, 2, 1, 0; 1, 1, 1, 0
CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


def random(*shape: int, dtype: torch.dtype = REAL, seed: int = 0) -> Any:
    """Between -1 and 1, the same in all processes."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype) * 2 - (
        1 + 1j if dtype.is_complex else 1
    )


def systems(*shape: int, dtype: torch.dtype = REAL, dominant: bool = True) -> list[Any]:
    a, b, c, d = (random(*shape, dtype=dtype, seed=k) for k in range(4))
    return [a, b + 4 if dominant else b, c, d]


def spread(x: Any, *placements: Any, over: Any = None) -> Any:
    return distribute_tensor(x.clone(), over or mesh(), placements)


def mesh() -> Any:
    return init_device_mesh("cpu", (PROCESSES,))


def grid() -> Any:
    return init_device_mesh("cpu", (2, 2))


def eps(x: Any) -> float:
    return float(torch.finfo(x.dtype).eps)


def backward_error(a: Any, b: Any, c: Any, d: Any, x: Any, periodic: bool = False, transpose: bool = False) -> Any:
    """The largest componentwise residual of systems along the last axis, in higher precision."""
    wide = np.clongdouble if x.is_complex() else np.longdouble
    a, b, c, d, x = (v.broadcast_to(x.shape).numpy().astype(wide) for v in (a, b, c, d, x))
    if not periodic:
        a[..., 0] = c[..., -1] = 0
    if transpose:
        a, c = np.roll(c, 1, -1), np.roll(a, -1, -1)
    terms = a * np.roll(x, 1, -1), b * x, c * np.roll(x, -1, -1), -d
    return (abs(sum(terms)) / sum(map(abs, terms))).max()


def assert_near(found: Any, wanted: Any, within: float = 8) -> None:
    """Differences of so many eps of the largest entry, or of 1."""
    found = found.full_tensor() if isinstance(found, DTensor) else found
    assert found.shape == wanted.shape and found.dtype == wanted.dtype, (found.shape, found.dtype)
    error = (found - wanted).abs().max() / wanted.abs().max().clamp(1) / eps(wanted)
    assert error <= within, f"{float(error)} eps"


class Words(TorchDispatchMode):
    """The words that a process receives in collectives."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, int]] = []

    def __torch_dispatch__(self, function: Any, types: Any, given: Any = (), options: Any = None) -> Any:
        if "c10d" in function.namespace and "wait" not in function.__name__ and "wrap" not in function.__name__:
            self.calls.append((function.__name__, given[0].numel() * (PROCESSES - 1)))
        return function(*given, **(options or {}))

    @property
    def large(self) -> int:
        """But for the one that is a flag."""
        return sum(words for _, words in self.calls if words > PROCESSES - 1)


def gradients(function: Callable[..., Any], given: list[Any], weights: Any) -> tuple[Any, list[Any]]:
    """A result, and the gradients of its product with weights."""
    given = [x.detach().requires_grad_() for x in given]
    y = function(*given)
    (y * weights).sum().abs().backward()
    return y.detach(), [x.grad for x in given]


def assert_alike(
    function: Callable[..., Any], given: list[Any], places: list[Any], over: Any = None, within: float = 40
) -> None:
    """A verb of DTensors, and its gradients, as it is of tensors."""
    several = [place if isinstance(place, tuple) else (place,) for place in places]
    tensors = [spread(x, *place, over=over) for x, place in zip(given, several, strict=True)]
    wanted = function(*given)
    weights = random(*wanted.shape, dtype=wanted.dtype, seed=9)
    y, found = gradients(function, tensors, spread(weights, *function(*tensors).placements, over=over))
    wanted, right = gradients(function, given, weights)
    assert_near(y, wanted)
    for g, r, x in zip(found, right, tensors, strict=True):
        assert g.placements == x.placements
        assert_near(g, r, within)


@contextmanager
def processes(count: int) -> Iterator[int]:
    """So many, which have imported everything already; their ranks. All end here, and one that fails ends all."""
    for dtype in (torch.float32, REAL):  # what is compiled and imported here need not be there
        ones = torch.ones(2, 3, dtype=dtype)
        tridiag.solve(1.0, 4.0, 1.0, ones)
        tridiag.parts.finish(
            1.0, 4.0, 1.0, ones, tridiag.parts.join(tridiag.parts.reduce(1.0, 4.0, 1.0, ones)[None])[0]
        )
    importlib.import_module("torch._dynamo")  # which DTensors import, by and by
    folder, children, rank = tempfile.mkdtemp(), [], 0
    for k in range(1, count):
        if (child := os.fork()) == 0:
            rank = k
            break
        children.append(child)
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=count)
    try:
        yield rank
    except BaseException:
        print(f"in process {rank}:\n{traceback.format_exc()}", flush=True)
        os._exit(1)
    torch.distributed.destroy_process_group()
    if rank:
        os._exit(0)
    for child in children:
        status = os.waitpid(child, 0)[1]
        assert status == 0, f"status {status}"


def main(names: list[str]) -> None:
    torch.set_num_threads(1)
    with processes(PROCESSES) as rank:
        for name in names:
            start = time.monotonic()
            CHECKS[name]()
            if rank == 0:
                print(f"{name}: {time.monotonic() - start:.1f} s", flush=True)
