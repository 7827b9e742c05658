"""Single steps of Kalman filters, of plain arrays whose facts are known."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from tridiag.calls import state_space
from tridiag.calls.fast_path.alignments import stand_in
from tridiag.calls.fast_path.facts import Array, facts_of_all, kept_call_of
from tridiag.calls.steps import ARGUMENTS, BoundStep, bound_step, copied, run
from tridiag.kernels.jobs.kalman import expected_of_step
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.runtime.call_table import RESULT, CallTable, Guard, Keepable, Several
from tridiag.kernels.table import kernel
from tridiag.libraries.arrays import working_dtype
from tridiag.problems.covariances import check_each, is_few

STEP_COVARIANCES = {"cov": K.P0, "Q": K.Q, "R": K.R}  # and which operands of a kernel they are


class Known(NamedTuple):
    """A step that waits for its arrays, and the call for the table; None where arrays are copied first."""

    bound: BoundStep
    kept: Keepable | None


def step(verb: str, *given: Any) -> tuple[Array, ...] | None:
    """The results of a step, or None where this is not the way to them."""
    known = known_step(verb, facts_of_all(given))
    if known is None:
        return None
    bound, kept = known
    if bound.casts:
        found: tuple[Array, ...] | None = STEPS[verb].call(*copied(bound, given))
        return found
    if np.isposinf(given[1]).any():  # of the covariance
        return None
    for name, x in zip(ARGUMENTS[verb], given, strict=True):
        if name in STEP_COVARIANCES and is_few(x.shape):
            check_each(name, x)
    made = run(bound, given)
    if kept is not None:
        STEPS[verb].keep(kept)
    return made


STEPS = {verb: CallTable(functools.partial(step, verb)) for verb in ARGUMENTS}


@functools.lru_cache(1024, typed=True)
def known_step(verb: str, facts: tuple[Any, ...]) -> Known | None:
    """The step of arrays with these facts, in the dtype to which they promote."""
    if any(isinstance(fact, type) for fact in facts):
        return None
    given = dict(zip(ARGUMENTS[verb], facts, strict=True))
    name = state_space.taken(dict(zip(ARGUMENTS[verb], map(stand_in, facts), strict=True))).dtype
    bound = bound_step(verb, facts, np.dtype(name)) if working_dtype(name) == name else None
    if bound is None or bound.casts:
        return bound and Known(bound, None)
    shapes = {STEP_COVARIANCES[own]: fact[1] for own, fact in given.items() if own in STEP_COVARIANCES}
    guard = Guard(kernel("known_guard", name).address, expected_of_step(shapes))
    wanted = Several(bound.dtype, bound.results)
    return Known(bound, kept_call_of(bound.call, facts, (), wanted, bound.sources, RESULT, False, guard))
