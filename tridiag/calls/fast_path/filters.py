"""Kalman filters of plain arrays whose facts are known."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from tridiag.calls import state_space
from tridiag.calls.fast_path.alignments import stand_in
from tridiag.calls.fast_path.facts import facts_of_all, kept_call_of
from tridiag.kernels.jobs.batches import is_packed
from tridiag.kernels.jobs.words.kalman import INPUTS, OPERANDS
from tridiag.kernels.runtime.call_table import NOTHING, RESULT, CallTable, Keepable, Same, Several
from tridiag.problems.covariances import check_covariance
from tridiag.problems.forms import Shape
from tridiag.problems.state_space import COVARIANCES, KALMAN, PARAMETERS, Model, StateSpace
from tridiag.selection.choose import choose

CHECKED = tuple((name, 1 + PARAMETERS.index(name)) for name in COVARIANCES)  # where they are behind y


# for each verb the calls with complete observations, and those where some are missing: of y, the parameters and options
def not_met(*arguments: Any) -> None:
    """The other table of the verb, or Python, has a look at it."""


TABLES = {verb: (CallTable(not_met), CallTable(not_met)) for verb in KALMAN}


class BoundFilter(NamedTuple):
    """A filter that waits for its arrays."""

    module: Any  # the backend
    form: StateSpace  # where nothing is missing
    shapes: tuple[Shape, ...]  # of y and the parameters in the form
    scattered: bool  # whether its kernel wants copies of some arrays, whose rows do not lie side by side
    kept: dict[bool, Keepable | None]  # of the calls that were made: whether observations were missing


def kalman(verb: str, given: list[Any], method: str, backend: str) -> Any:
    """What a backend makes of y and the parameters, or None where this is not the way to it."""
    complete, incomplete = TABLES[verb]
    found = complete.call(*given, method, backend)
    if found is None:
        found = incomplete.call(*given, method, backend)
    if found is not None:
        return found
    facts = facts_of_all(given)
    try:
        bound = bound_filter(verb, facts, method, backend)
    except TypeError:  # refused, or an option that has no hash and is refused next
        return None
    if bound is None:
        return None
    if bound.scattered:
        return kalman(verb, [*map(np.ascontiguousarray, given)], method, backend)
    form = bound.form
    if np.isposinf(given[-1]).any():  # of P0: a start that is unknown
        return None
    for name, k in CHECKED:
        check_covariance(name, given[k], form.n)
    missing = bool(np.isnan(given[0]).any())
    if missing:
        form = form._replace(missing=True)
    y, *model = [x if x.shape == s else x.reshape(s) for x, s in zip(given, bound.shapes, strict=True)]
    found = bound.module.kalman(verb, y, Model(*model), form)
    if missing not in bound.kept:
        bound.kept[missing] = kept_filter(verb, facts, (method, backend), form, bound)
    if (kept := bound.kept[missing]) is not None:
        TABLES[verb][missing].keep(kept)
    return found


@functools.lru_cache(1024, typed=True)
def bound_filter(verb: str, facts: tuple[Any, ...], method: str, backend: str) -> BoundFilter | None:
    """The filter of arrays with these facts, all of one dtype."""
    if any(isinstance(fact, type) or fact[0] != facts[0][0] for fact in facts):
        return None
    y, *parameters = map(stand_in, facts)
    call = state_space.prepare(verb, y, tuple(parameters), method)
    form, entry = call.form._replace(missing=False, checked=True), choose(call.problem, backend).backend
    if call.dtype != call.problem.dtype or facts[0][0] != np.dtype(call.dtype) or form.n == 0 or 0 in form.batch:
        return None
    shapes: Any = tuple(x.shape for x in (call.y, *call.model))
    packed = all(is_packed(own, steps, len(own), dtype.itemsize) for dtype, own, steps in facts)
    module = entry.module()
    return BoundFilter(module, form, shapes, hasattr(module, "bound_kalman") and not packed, {})


def kept_filter(
    verb: str, facts: tuple[Any, ...], options: tuple[Any, ...], form: StateSpace, bound: BoundFilter
) -> Keepable | None:
    """A filter of arrays with these facts for the table of its verb."""
    module, dtype = bound.module, facts[0][0]
    if not hasattr(module, "bound_kalman"):
        return None
    found = module.bound_kalman(verb, form, bound.shapes, dtype)
    if found is None:
        return None
    call, guard, shapes = found
    results = tuple(RESULT - k for k in range(len(shapes)))
    nothing = (NOTHING,) * (OPERANDS - INPUTS - len(results) + 1)
    sources = *range(INPUTS), *results[:-1], *nothing, results[-1]
    wanted = (dtype, *shapes) if len(shapes) == 1 else Several(dtype, tuple(shapes))
    return kept_call_of(call, (*facts, *map(Same, options)), (), wanted, sources, RESULT, False, guard)
