"""What calls with concrete JAX arrays of one CPU device are known by, and the programs that are kept for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from tridiag.calls.checks import check_readable
from tridiag.calls.plan import Call, Plan, cached_plan
from tridiag.calls.singular import raise_if_singular
from tridiag.kernels.jobs.logsumexp import WEIGHTED
from tridiag.kernels.jobs.systems import worth_threads
from tridiag.libraries.jax import default_platform, is_traced, platform_of
from tridiag.xla.programs import Program

RECURRENCES = {"linear_recurrence": "a", "matrix_recurrence": "A", "log_linear_recurrence": "log_a", "logcumsumexp": ""}
NUMBERS = (int, float, complex)
attributes_of: Callable[[Any], tuple[Any, ...]] = attrgetter("dtype", "shape", "weak_type", "sharding")
Settings = tuple[Any, Any]  # on which promotion depends


class Bound(NamedTuple):
    """A call that waits for its arrays."""

    run: Callable[..., Any]  # of the arguments
    prepared: Callable[..., Call]  # the same
    check: bool


def settings() -> Settings:
    return jax.config.jax_enable_x64, jax.config.jax_numpy_dtype_promotion


def facts_of(kind: type, given: Sequence[Any]) -> tuple[Any, ...]:
    """The facts of arrays of a type; the types of what is none, and None as it is."""
    return tuple([attributes_of(x) if type(x) is kind else x if x is None else type(x) for x in given])


def may_be_bound(facts: Sequence[Any]) -> bool:
    """Whether all arguments are arrays on one CPU device, or numbers."""
    return all(fact in NUMBERS if isinstance(fact, type) else on_cpu(fact) for fact in facts)


def on_cpu(fact: Any) -> bool:
    sharding = None if isinstance(fact, type) else fact[3]
    return isinstance(sharding, SingleDeviceSharding) and platform_of(*sharding.device_set) == "cpu"


def entry_of(fact: Any) -> Any:
    """What a plan is made from."""
    if fact is None or isinstance(fact, type):
        return fact and (fact, (), fact, None)
    dtype, shape, weak, _ = fact
    return dtype, shape, type(dtype.type(0).item()) if weak else dtype, "cpu"


def jitted(plan: Plan, finish: Callable[[Call], Any], order: int, check: bool = False) -> Bound | None:
    """The call of a plan as one program of its arguments: so many coefficients, the right side, and what else there is.

    What is last is the mask of systems.
    """
    if plan.casts or plan.empty:
        return None
    systems = plan.problem.verb not in RECURRENCES and plan.sides is None

    def prepared(*arguments: Any) -> Call:
        given = list(arguments)
        for k, dtype, shape in plan.steps:
            given[k] = jnp.asarray(given[k], dtype).reshape(shape)
        mask: tuple[Any, ...] = (given.pop(),) if systems else ()
        mask = tuple(x if x is None else x.reshape(plan.mask_shape) for x in mask)
        right = given[order] if len(given) > order else None
        return Call(plan, (*given[:order], *mask), right, tuple(given[order + 1 :]))

    def whole(*arguments: Any) -> Any:
        return finish(prepared(*arguments))

    keep = Program if worth_threads(plan.form, WEIGHTED) else jax.jit
    return Bound(keep(whole), prepared, check)


def run(bound: Bound | None, *given: Any) -> Any:
    """The result, or None where this is not the way to it."""
    if bound is None:
        return None
    try:
        return bound.run(*given)
    except OverflowError:  # an integer that JAX takes no argument of a program for
        return None


def look(bound: Bound, x: Any, check: Any, *given: Any) -> None:
    """Raise where a solution is of a singular system; ``check``, as it was given, tells whether it has to be known."""
    check_readable(x, check)
    if not is_traced(x) and not np.isfinite(np.asarray(x)).all():
        call = bound.prepared(*given)
        raise_if_singular(x, None, call.matrix, call.form)


def plan_of_systems(verb: str, facts: tuple[Any, ...], promotion: Settings, *options: Any) -> Plan | None:
    """The plan that these arguments have on the way of all calls; None where this is not the way."""
    *arguments, where = facts
    if not may_be_bound(arguments) or not (where is None or on_cpu(where)):
        return None
    mask = None if where is None else entry_of(where)
    plan: Plan = cached_plan(verb, "jax", (*map(entry_of, arguments), mask), (*promotion, default_platform()), *options)
    return plan
