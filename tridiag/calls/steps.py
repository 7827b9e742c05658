"""Single steps of Kalman filters of NumPy arrays, by compiled kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag.backends import BACKENDS
from tridiag.kernels.jobs.batches import is_packed
from tridiag.kernels.jobs.kalman import make_step_job, work_of_step
from tridiag.kernels.jobs.systems import WORTH_A_THREAD, threads
from tridiag.kernels.jobs.words.kalman import COV, OPERANDS
from tridiag.kernels.runtime.call_table import NOTHING, RESULT
from tridiag.kernels.table import call_of
from tridiag.problems.forms import Shape
from tridiag.problems.state_space import StateSpace, align_step

Array = np.ndarray[Any, Any]
Facts = tuple[np.dtype[Any], Shape, Shape]  # dtype, shape, strides
ARGUMENTS = {"predict": ("mean", "cov", "F", "Q"), "update": ("mean", "cov", "y", "H", "R")}
INPUTS = "y", "F", "H", "Q", "R", "mean", "cov"  # of kernels, in their order


class BoundStep(NamedTuple):
    """A step that waits for its arrays."""

    call: Any  # of its pointers
    casts: tuple[int, ...]  # which arguments have another dtype, or rows that do not lie side by side
    dtype: np.dtype[Any]
    results: tuple[Shape, ...]
    sources: tuple[int, ...]  # of the pointers: which argument, or result


def step(verb: str, given: Sequence[Array], dtype: np.dtype[Any]) -> tuple[Array, ...] | None:
    """The states that a step makes, and of `update` the log-likelihood; None where no kernel makes them."""
    bound = bound_step(verb, tuple([(x.dtype, x.shape, x.strides) for x in given]), dtype)
    return None if bound is None else run(bound, given)


def run(bound: BoundStep, given: Sequence[Array]) -> tuple[Array, ...]:
    """The results of a step; finite or not, values are taken as they are."""
    given = copied(bound, given)
    made = tuple([np.empty(shape, bound.dtype) for shape in bound.results])
    places: dict[int, Any] = {NOTHING: None, **dict(enumerate(given)), **{RESULT - k: x for k, x in enumerate(made)}}
    bound.call(*[places[source] for source in bound.sources])
    return made


def copied(bound: BoundStep, given: Sequence[Array]) -> list[Array]:
    """The arrays as the kernel takes them."""
    return [np.ascontiguousarray(x, bound.dtype) if k in bound.casts else x for k, x in enumerate(given)]


def has_kernel(batch: Shape) -> bool:
    """Whether there are series, and something that compiles kernels."""
    return 0 not in batch and not BACKENDS["numba_scan"].unusable()


@functools.lru_cache(1024)
def bound_step(verb: str, facts: tuple[Facts, ...], dtype: np.dtype[Any]) -> BoundStep | None:
    """The step of arrays with these facts in a dtype; None: of no series, or nothing compiles kernels here."""
    names = ARGUMENTS[verb]
    lifted, batch = align_step({name: fact[1] for name, fact in zip(names, facts, strict=True)})
    states, observed = lifted["mean"][-1], lifted.get("y", (1,))[-1]
    if not has_kernel(batch):
        return None
    form = StateSpace(1, observed, states, batch, batch, None, False)
    results = (*batch, states), (*batch, states, states), *[batch] * (verb == "update")
    casts = tuple(
        k
        for k, (own, shape, strides) in enumerate(facts)
        if own != dtype or not is_packed(shape, strides, len(shape), own.itemsize)
    )
    made = [RESULT - k for k in range(len(results))]
    sources = [names.index(name) if name in names else NOTHING for name in INPUTS]
    sources += [*made[:2], *[NOTHING] * (OPERANDS - COV - 1), *(made[2:] or [NOTHING])]
    call = bound_call(verb, form, (*map(lifted.get, INPUTS), *results[:2]), dtype)
    return BoundStep(call, casts, dtype, results, tuple(sources))


def bound_call(verb: str, form: StateSpace, shapes: tuple[Shape | None, ...], dtype: np.dtype[Any]) -> Any:
    """The kernel as a function of its pointers, with the threads that are granted where they are worth it."""

    def find(workers: int) -> Callable[..., int]:
        return call_of(make_step_job, verb, form, shapes, dtype, workers).run

    module = BACKENDS["numba_thomas"].module()
    if work_of_step(form) < WORTH_A_THREAD:
        return module.Checked(find(1))
    return module.Threaded(lambda: find(threads()))
