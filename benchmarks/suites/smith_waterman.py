"""What does a smooth local alignment of 64 pairs of (100, 120) cost in each library, compiled and not?

PyTorch's loop is taken as it is, with its step compiled, and on a GPU as a CUDA graph, which replays its kernels
without Python.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import textbook

from tridiag.benchmarking import reference
from tridiag.benchmarking.comparison import Comparison
from tridiag.benchmarking.problems import Problem
from tridiag.benchmarking.race import Contestant

SHAPE, TINY = (64, 100, 120), (4, 6, 7)
GAP = -1.0


def comparisons(rehearse: bool) -> Iterator[Comparison]:
    for gradient in (False, True):
        problem = Problem("smith_waterman", TINY if rehearse else SHAPE, dtype="float32", gradient=gradient)
        title = f"{problem.shape[0]} pairs of {problem.shape[1:]}, float32, {'with gradient' if gradient else 'scores'}"
        yield Comparison(title, makers(problem, rehearse), problem.words, problem.dtype, "JAX, lax.scan in jit")


def makers(problem: Problem, rehearse: bool) -> dict[str, Callable[[], Contestant]]:
    found = {
        "tridiag, JAX arrays in jit": lambda: problem.of("jax").contestant(),
        "tridiag, PyTorch tensors": lambda: problem.of("torch").contestant(),
        "JAX, lax.scan in jit": lambda: problem.of("jax").by(functools.partial(textbook.align_by_scan, gap=GAP)),
        "PyTorch, eager": lambda: problem.of("torch").by(in_torch),
        "PyTorch, torch.compile of a step": lambda: problem.of("torch").by(compiled(rehearse)),
    }
    if not problem.gradient:
        found["tridiag, NumPy arrays"] = problem.contestant
        found["NumPy, a loop"] = lambda: problem.by(lambda scores: reference.align(scores, GAP).astype(np.float32))
        found["PyTorch, CUDA graph"] = lambda: as_graph(problem)
    return found


def in_torch(scores: Any) -> Any:
    return textbook.align_in_torch(scores, GAP)


def compiled(rehearse: bool) -> Callable[..., Any]:
    """A step is compiled: the loop as a whole would be unrolled, and take many minutes. A rehearsal traces only."""
    import torch

    step = torch.compile(textbook.torch_step, backend="aot_eager" if rehearse else "inductor")
    return functools.partial(textbook.align_in_torch, gap=GAP, step=step)


def as_graph(problem: Problem) -> Contestant:
    """The kernels of PyTorch's loop, recorded once and replayed."""
    import torch

    if not torch.cuda.is_available():
        raise ImportError("needs a GPU that PyTorch sees")
    scores = torch.as_tensor(problem.host[0], device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        in_torch(scores)  # before it is recorded, memory and kernels have to be there
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = in_torch(scores)

    def call() -> Any:
        graph.replay()
        torch.cuda.synchronize()
        return found

    return Contestant(call, problem.error, problem.limit)
