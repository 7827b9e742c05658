"""Kalman filters of plain arrays whose facts are known."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tridiag.calls import state_space
from tridiag.calls.fast_path.alignments import stand_in
from tridiag.calls.fast_path.facts import facts_of_all
from tridiag.problems.forms import Shape
from tridiag.problems.state_space import COVARIANCES, PARAMETERS, Model, StateSpace, check_covariance
from tridiag.selection.choose import choose

CHECKED = tuple((name, 1 + PARAMETERS.index(name)) for name in COVARIANCES)  # where they are behind y


class BoundFilter(NamedTuple):
    """A filter that waits for its arrays."""

    call: Callable[..., Any]  # of y, the model, and the form
    form: StateSpace  # where nothing is missing
    shapes: tuple[Shape, ...]  # of y and the parameters in the form


def kalman(verb: str, given: list[Any], method: str, backend: str) -> Any:
    """What a backend makes of y and the parameters, or None where this is not the way to it."""
    try:
        bound = bound_filter(verb, facts_of_all(given), method, backend)
    except TypeError:  # refused, or an option that has no hash and is refused next
        return None
    if bound is None:
        return None
    form = bound.form
    for name, k in CHECKED:
        check_covariance(name, given[k], form.n)
    if np.isnan(given[0]).any():
        form = form._replace(missing=True)
    y, *model = [x if x.shape == s else x.reshape(s) for x, s in zip(given, bound.shapes, strict=True)]
    return bound.call(verb, y, Model(*model), form)


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
    return BoundFilter(entry.module().kalman, form, shapes)
