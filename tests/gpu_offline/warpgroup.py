"""The kernel of `jax_pallas` on a model of a block: 128 threads, and memory that knows who wrote and who read what.

Pallas's interpreter takes a block for one thread, and does not notice that a barrier is missing. Here a thread that
reads what another one has written, or writes what another one has written or read, without a barrier between, is an
error; so are an index outside an array, and what is read before it was written. Thread k has the entries k, k + 128,
... of every value.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import numpy as np

from tridiag.kernels.pallas import access, thomas
from tridiag.kernels.pallas import job as pallas_job

backend = importlib.import_module("tridiag.backends.jax_pallas")
NOBODY, SEVERAL = -1, -2


class Race(AssertionError):
    pass


class Memory:
    """An array; with ``inputs`` its values, which nothing may be written over."""

    def __init__(self, shape: Sequence[int], dtype: Any, inputs: np.ndarray | None = None) -> None:
        self.shape, self.dtype = tuple(shape), np.dtype(dtype)
        self.values = np.zeros(self.shape, dtype) if inputs is None else inputs
        self.constant = inputs is not None
        self.numbers = np.arange(math.prod(self.shape)).reshape(self.shape)
        self.known = np.full(self.numbers.size, self.constant)
        self.barrier()

    def barrier(self) -> None:
        self.writer = np.full(self.numbers.size, NOBODY)
        self.reader = np.full(self.numbers.size, NOBODY)

    def inside(self, index: Any) -> tuple[Any, ...]:
        """The index in NumPy's terms, if it is inside."""
        index = index if isinstance(index, tuple) else (index,)
        return tuple(self.inside_one(k, length) for k, length in zip(index, self.shape, strict=False))

    @staticmethod
    def inside_one(k: Any, length: int) -> Any:
        if isinstance(k, slice):
            return k
        start, stop = (int(k.start), int(k.start) + k.size) if hasattr(k, "start") else (int(k), int(k) + 1)
        if not 0 <= start < stop <= length:
            raise IndexError(f"{start} to {stop} of {length}")
        return slice(start, stop) if hasattr(k, "start") else start

    def touched(self, index: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        index = self.inside(index)
        numbers = self.numbers[index]
        threads = np.arange(numbers.size) % pallas_job.THREADS if numbers.shape else np.array([SEVERAL])
        return index, numbers.ravel(), threads

    def __getitem__(self, index: Any) -> Any:
        index, numbers, threads = self.touched(index)
        if not self.known[numbers].all():
            raise Race("read before it was written")
        writers = self.writer[numbers]
        if ((writers != NOBODY) & (writers != threads)).any():
            raise Race("read what another thread wrote, without a barrier")
        before = self.reader[numbers]
        self.reader[numbers] = np.where((before == NOBODY) | (before == threads), threads, SEVERAL)
        return self.values[index].copy()

    def __setitem__(self, index: Any, value: Any) -> None:
        index, numbers, threads = self.touched(index)
        if self.constant:
            raise Race("written over an argument")
        for others in (self.writer[numbers], self.reader[numbers]):
            if ((others != NOBODY) & (others != threads)).any():
                raise Race("written over what another thread has in hand, without a barrier")
        self.values[index] = value
        self.known[numbers], self.writer[numbers] = True, threads


@contextlib.contextmanager
def modelled(memories: list[Memory], current: list[int], without: int | None) -> Iterator[None]:
    """The names of JAX that the kernel uses, on the model; a barrier, by its number in the program, is left out."""
    count = itertools.count()

    def barrier() -> None:
        if next(count) != without:
            for memory in memories:
                memory.barrier()

    def loop(start: Any, stop: Any, body: Callable[..., Any], carry: Any) -> Any:
        for k in range(int(start), int(stop)):
            carry = body(k, carry)
        return carry

    lax = types.SimpleNamespace(
        axis_index=lambda name: current[0], fori_loop=loop, div=lambda x, y: x // int(y), rem=lambda x, y: x % int(y)
    )
    plgpu = types.SimpleNamespace(commit_smem=barrier)
    with (
        mock.patch.multiple(pallas_job, lax=lax, jnp=numpy_like()),
        mock.patch.multiple(access, plgpu=plgpu, INTERPRET=True, jnp=numpy_like()),
        mock.patch.multiple(thomas, lax=lax, jnp=numpy_like()),
        np.errstate(all="ignore"),
    ):
        yield


def numpy_like() -> Any:
    names = ("where", "full", "broadcast_to", "minimum", "maximum", "int32", "finfo", "nan", "dtype")
    return types.SimpleNamespace(**{name: getattr(np, name) for name in names})


def run(job: Any, operands: Sequence[np.ndarray], without: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """As `jax_pallas.run`, one block after another."""
    results, scratch = backend.memories(job)
    results = [Memory(x.shape, x.dtype) for x in results]
    inputs = [Memory(x.shape, x.dtype, x) for x in operands]
    for block in range(math.prod(job.grid)):
        own = [Memory(x.shape, x.dtype) for x in scratch]
        with modelled([*results, *own], [block], without):
            thomas.kernel(job, *inputs, *results, *own)
        for memory in results:
            memory.barrier()
    assert all(memory.known.all() for memory in results[:2])
    return results[0].values, results[1].values
