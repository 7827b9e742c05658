"""Recurrences over chunks: handed from chunk to chunk, or joined where there are few sequences to work on at once."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import dask.array as da
import numpy as np

from tridiag.calls import execute
from tridiag.calls.sequences import check_logarithms, check_sequence, coefficients_and_states, prepare_logarithms
from tridiag.chunked import scaled, whole
from tridiag.chunked.operands import Operands, of_recurrence, refuse_targets, share_memory, widened
from tridiag.chunked.whole import Verb

MANY = 8  # chunks of the batch: enough to work on while sequences go from chunk to chunk


class Step(NamedTuple):
    """A verb on the rows of a chunk: what its tasks are told beside their arrays."""

    verb: Verb
    rows: tuple[str, ...]  # the names of the coefficients and of x
    options: dict[str, Any]

    @property
    def axis(self) -> int:
        axis: int = self.options["axis"]
        return axis

    @property
    def sums(self) -> bool:
        """Whether the verb is logcumsumexp, which has no coefficients."""
        return self.rows == ("x",)

    @property
    def logarithms(self) -> bool:
        return self.sums or self.rows[0] == "log_a"

    def run(self, before: Any, *values: Any) -> Any:
        """A task: the rows of a chunk."""
        if self.sums and before is not None:
            return self.sum_on(before, *values)
        return self.verb(**self.given(before, values), **self.options)

    def sum_on(self, before: Any, x: Any) -> Any:
        """The rows of logcumsumexp behind a sum: `tridiag.logcumsumexp` itself begins with none."""
        _, call = prepare_logarithms("logcumsumexp", x, None, before, **self.options)
        return execute.recurrence("logcumsumexp", call)

    def run_on(self, before: Any, *values: Any) -> Any:
        """A task: the rows of a chunk, and its last values."""
        if not self.sums:
            return self.verb(**self.given(before, values), **self.options, return_final=True)
        y = self.run(before, *values)
        return y, self.last(y)

    @property
    def single(self) -> bool:
        """Whether a row depends on the one before it alone."""
        return not any("[" in name for name in self.rows)

    def last(self, y: Any) -> Any:
        """A task: the values that the chunk behind begins with."""
        return np.take(y, 0 if self.options["reverse"] else -1, axis=self.axis)

    def run_behind(self, y: Any, *values: Any) -> Any:
        """A task: the rows of a chunk behind one whose rows are at hand."""
        return self.run(self.last(y), *values)

    def given(self, before: Any, values: Sequence[Any]) -> dict[str, Any]:
        """The arguments; ``before``: None, a list of the values of all arguments init, or what a verb has returned."""
        given = whole.arguments(self.rows, values)
        if before is None:
            return given
        several = isinstance(given.get("a"), tuple)
        given["init"] = before if not isinstance(before, list) else tuple(before) if several else before[0]
        return given


def recurrence(verb: Verb, given: Mapping[str, Any], return_final: bool, out: Any, **options: Any) -> Any:
    """A recurrence of Dask arrays; ``given`` are its coefficients, x, and perhaps the values before the first step."""
    refuse_targets(out)
    rows, states = by_name(given)
    operands = of_recurrence(verb.__name__, rows, states, **options)
    if "a" not in given:
        check_logarithms(verb.__name__, operands.plan, operands.cut)
    told = {"reverse": bool(options["reverse"]), "backend": options["backend"]}
    if not operands.cut:
        y = whole.mapped(verb, operands, told)
    elif operands.plan.casts:
        wide = {**given, "x": widened(given["x"], operands.plan)}
        y = recurrence(verb, wide, False, None, **options).astype(operands.plan.out_dtype)
    else:
        y = (in_parallel if are_joined(operands) else in_turn)(verb, operands, told)
    return (y, final(given, operands, y, told["reverse"])) if return_final else y


def are_joined(operands: Operands) -> bool:
    """Whether chunks along the axis are run side by side; those of integers do not wait for products that round."""
    few = math.prod(len(operands.chunks[k]) for k in operands.batch) < MANY
    return few and not operands.plan.problem.integer and operands.plan.problem.order <= 1


def by_name(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The coefficients and x, and the values before the first step, those of tuples by their numbers."""
    if "a" in given:
        coefficients, states = coefficients_and_states(given["a"], given["init"])
        return {**coefficients, "x": given["x"]}, states
    for name in ("log_a", "init"):
        check_sequence(name, given.get(name), order=False)
    states = {} if given.get("init") is None else {"init": given["init"]}
    return {name: x for name, x in given.items() if name != "init"}, states


def final(given: Mapping[str, Any], operands: Operands, y: Any, reverse: bool) -> Any:
    """The last values computed, and those before the first step where there are fewer rows than values."""
    several = isinstance(given.get("a"), tuple)
    n, axis, found = y.shape[operands.axis], operands.axis, []
    for k in range(len(given["a"]) if several else 1):
        if k < n:
            found.append(y[(slice(None),) * axis + (k if reverse else n - 1 - k,)])
            continue
        nothing = -math.inf if "log_a" in given else 0.0
        state = da.asarray(operands.arrays.get(f"init[{k - n}]" if several else "init", nothing))
        batch, chunks = (tuple(some[j] for j in operands.batch) for some in (y.shape, y.chunks))
        found.append(da.broadcast_to(state, batch, chunks=chunks).astype(y.dtype))
    return tuple(found) if several else found[0]


def step_of(verb: Verb, operands: Operands, options: Mapping[str, Any]) -> tuple[Step, tuple[str, ...]]:
    """What the tasks do, and the names of the values before the first step."""
    names = tuple(operands.arrays)
    rows = tuple(name for name in names if not name.startswith("init"))
    return Step(verb, rows, {**options, "axis": operands.axis}), names[len(rows) :]


def in_turn(verb: Verb, operands: Operands, options: Mapping[str, Any]) -> Any:
    """Each chunk begins with the last values of the one before: a chain of tasks for every chunk of the batch."""
    shared = share_memory()
    name = operands.name(verb.__name__, {**options, "shared": shared})
    step, states = step_of(verb, operands, options)
    graph: dict[Any, Any] = {}
    for batch, parts in operands.parts(options["reverse"]):
        before: Any = operands.states(states, batch) if states else None
        for k, index in enumerate(parts):
            key, blocks = (name, *index), operands.blocks(step.rows, index)
            if not step.single:
                both = (f"both-{name}", *index)
                graph[both] = (step.run_on, before, *blocks)
                graph[key] = (operator.getitem, both, 0)
                graph[before := (f"final-{name}", *index)] = (operator.getitem, both, 1)
            elif shared:
                graph[key] = (step.run_behind if k else step.run, before, *blocks)
                before = key
            else:
                graph[key] = (step.run, before, *blocks)
                graph[before := (f"final-{name}", *index)] = (step.last, key)
    return operands.result(name, graph)


def in_parallel(verb: Verb, operands: Operands, options: Mapping[str, Any]) -> Any:
    """Every chunk tells what it does to a value before it; these are joined, and every chunk runs with its own."""
    name = operands.name(verb.__name__, options)
    step, states = step_of(verb, operands, options)
    graph: dict[Any, Any] = {}
    for batch, parts in operands.parts(options["reverse"]):
        before: Any = operands.states(states, batch) if states else None
        told, values = [], (f"join-{name}", *batch)
        for k, index in enumerate(parts):
            blocks = operands.blocks(step.rows, index)
            if k + 1 < len(parts):
                told.append((f"reduce-{name}", *index))
                graph[told[-1]] = (functools.partial(summarize, step, k == 0), before if k == 0 else None, *blocks)
            init = before if k == 0 else (operator.getitem, values, k - 1)
            graph[(name, *index)] = (step.run, init, *blocks)
        graph[values] = (functools.partial(scaled.join, step.logarithms), told)
    return operands.result(name, graph)


def summarize(step: Step, first: bool, before: Any, *values: Any) -> scaled.Summary:
    """A task: what a chunk does to a value before it; of the first one, its last value."""
    y, last = step.run_on(before, *values)
    rows, axis = y.shape[step.axis], step.axis
    del y
    if first or step.sums:
        return scaled.Summary(None if first else np.zeros(()), last)
    coefficient = np.asarray(values[0])
    axis = 0 if coefficient.ndim == 1 else axis - (last.ndim + 1 - coefficient.ndim)
    return scaled.summary(coefficient, rows, axis, last, step.logarithms)
