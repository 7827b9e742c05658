"""Series and their state-space models from the caller's arguments to the normal form."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from tridiag.backends import Problem
from tridiag.calls.checks import refuse_traced
from tridiag.calls.plan import NO_MASK, real_dtype
from tridiag.libraries.arrays import module_of, taking, working_dtype
from tridiag.problems.covariances import check_covariance
from tridiag.problems.state_space import (
    COVARIANCES,
    INTERCEPTS,
    MATRICES,
    PARAMETERS,
    STATES,
    Model,
    StateSpace,
    align,
)

Array = Any
METHODS = ("auto", "sequential", "parallel")


class Intercepts(NamedTuple):
    """Known vectors that are added in every step; None: zeros."""

    state: Array | None = None
    obs: Array | None = None


NO_INTERCEPTS = Intercepts()


class Call(NamedTuple):
    """One call, ready to run."""

    library: str
    problem: Problem
    form: StateSpace
    dtype: str  # of the result
    y: Array
    model: Model
    intercepts: Intercepts


def prepare(
    verb: str,
    y: Any,
    parameters: tuple[Any, ...],
    method: str,
    intercepts: Intercepts = NO_INTERCEPTS,
    diffuse: Any = None,
) -> Call:
    """Everything that can be checked without values; those of P0 tell what is unknown where ``diffuse`` does not."""
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; wanted one of {', '.join(map(repr, METHODS))}")
    added = {name: x for name, x in zip(INTERCEPTS, intercepts, strict=True) if x is not None}
    model = {name: x for name, x in zip(PARAMETERS, parameters, strict=True) if x is not None or name not in STATES}
    library, dtype, device, given = taken({"y": y} | model | added)
    module = module_of(library)
    lifted, batch, cov_batch = align({name: tuple(np.shape(x)) for name, x in given.items()})
    n, observed, states = *lifted["y"][-2:], lifted["F"][-1]
    arrays = {name: module.cast(x, working_dtype(dtype)).reshape(lifted[name]) for name, x in given.items()}
    unknown = unknown_in(model.get("P0"), library, device) if diffuse is None else named_states(diffuse, states)
    if diffuse is not None and "P0" in model and is_readable(library, device, model["P0"]):
        check_named(to_numpy(model["P0"]), diffuse, unknown)
    arrays |= start_of_unknown(model, diffuse, unknown, arrays["F"], module.Operations)
    if diffuse is not None and unknown:
        arrays["P0"] = with_unknown(module.Operations, arrays["P0"], unknown)
    parts, shifts = (map(arrays.get, group) for group in (PARAMETERS, INTERCEPTS))
    shape, largest = (*batch, n, observed), max(states, observed)
    problem = Problem(
        verb,
        library,
        device,
        working_dtype(dtype),
        shape,
        len(batch),
        None,
        method=method,
        states=largest,
        diffuse=bool(unknown),
    )
    form = StateSpace(n, observed, states, batch, cov_batch, None, False, unknown)
    return Call(library, problem, form, dtype, arrays["y"], Model(*parts), Intercepts(*shifts))


def parameters_of(verb: str, model: dict[str, Any], needed: Iterable[str] = MATRICES) -> dict[str, Any]:
    """The parameters among the arguments of a verb, in their order; None for those that are left out."""
    if missing := [name for name in needed if model.get(name) is None]:
        raise TypeError(f"{verb} also needs {', '.join(missing)}")
    if model.get("axis_name") is not None:
        raise TypeError(f"{verb} is for whole series, and with axis_name each device has some of their steps")
    return {name: model.get(name) for name in PARAMETERS}


class Taken(NamedTuple):
    """Arguments as their library takes them."""

    library: str
    dtype: str  # of the result
    device: str
    arrays: dict[str, Array]

    def working(self) -> dict[str, Array]:
        """The arrays in the dtype in which all is computed."""
        cast = module_of(self.library).cast
        return {name: cast(x, working_dtype(self.dtype)) for name, x in self.arrays.items()}


def taken(given: dict[str, Any]) -> Taken:
    """Some arguments of one library, checked to be real numbers."""
    library, take = taking(tuple(given), *map(type, given.values()), NO_MASK)
    arrays, _, facts, settings = take([*given.values()], None)
    entries, module = dict(zip(given, facts, strict=False)), module_of(library)
    for name, entry in entries.items():
        module.check_dtype(name, entry)
    dtype = real_dtype(module, entries, settings)
    return Taken(library, dtype, module.device(entries.values(), settings), dict(zip(given, arrays, strict=True)))


def named_states(diffuse: Any, states: int) -> tuple[int, ...]:
    """The states that are unknown at first, from their numbers, from a mask, or from one boolean for all."""
    for x in (diffuse, *(diffuse if isinstance(diffuse, list | tuple) else ())):
        refuse_traced("diffuse", x)
    given = np.asarray(diffuse, object) if isinstance(diffuse, list | tuple) else np.asarray(diffuse)
    entries = [x.item() if hasattr(x, "item") else x for x in given.ravel()]
    kinds = {*map(type, entries)}
    if kinds == {bool} and given.shape in ((), (states,)):
        given = np.broadcast_to(given, states)
        return tuple(map(int, np.flatnonzero(given)))
    numbers = kinds <= {int}
    if given.ndim != 1 or not numbers or any(not -states <= i < states for i in given):
        raise ValueError(
            f"diffuse is {diffuse!r}; wanted the numbers of states that are unknown at first, from 0 to {states - 1}, "
            f"or {states} booleans, or True for all"
        )
    return tuple(sorted({int(i) % states for i in given}))


def unknown_in(P0: Any, library: str, device: str) -> tuple[int, ...]:
    """The states whose variance is infinite in any series, where values can be read."""
    if P0 is None or not is_readable(library, device, P0):
        return ()
    variances = np.diagonal(to_numpy(P0), axis1=-2, axis2=-1)
    infinite = np.isposinf(variances).reshape(-1, variances.shape[-1]).any(0)
    return tuple(map(int, np.flatnonzero(infinite)))


def check_named(P0: Any, diffuse: Any, unknown: tuple[int, ...]) -> None:
    """Refuse a P0 that contradicts what ``diffuse`` says: a variance of a state that it names, or an infinite other."""
    variances = np.diagonal(P0, axis1=-2, axis2=-1).reshape(-1, P0.shape[-1])
    for i in range(P0.shape[-1]):
        own, given = variances[:, i], f"diffuse={diffuse!r}"
        if i in unknown and (known := own[np.isfinite(own) & (own != 0)]).size:
            raise ValueError(
                f"P0[{i}, {i}] is {known[0]:g}, and {given} names state {i} as one of which nothing is known at first; "
                "leave diffuse out, or pass diffuse=(), for the start that P0 tells, or write inf there"
            )
        if i not in unknown and np.isposinf(own).any():
            wanted = (*np.flatnonzero(np.isposinf(variances).any(0)).tolist(),)
            raise ValueError(
                f"P0[{i}, {i}] is inf, and {given} does not name state {i}; states are numbered from 0, and from -1 "
                f"backwards: pass diffuse={wanted}, or leave diffuse out: then P0 tells"
            )


def start_of_unknown(
    model: dict[str, Any], diffuse: Any, unknown: tuple[int, ...], F: Array, ops: Any
) -> dict[str, Array]:
    """Zeros for m0 and P0 that are left out, where every state is unknown at first."""
    states, rank = F.shape[-1], F.ndim - 3
    absent = [name for name in STATES if name not in model]
    if absent and len(unknown) < states:
        known = [i for i in range(states) if i not in unknown]
        told = f", and states {known} are not" if unknown else ""
        raise TypeError(
            f"{' and '.join(absent)} can be left out only where all states are unknown at first (diffuse=True){told}; "
            "wanted m0 and P0, mean and covariance of the states before y[0] is seen"
        )
    return {name: ops.full((*(1,) * rank, *(states,) * len(STATES[name])), 0, F) for name in absent}


def with_unknown(ops: Any, P0: Any, unknown: tuple[int, ...]) -> Any:
    """P0 with infinite variances of these states."""
    which = np.zeros(P0.shape[-2:], bool)
    which[unknown, unknown] = True
    return ops.where(ops.placed(which, P0), math.inf, P0)


def check_values(call: Call, arguments: dict[str, Any]) -> StateSpace:
    """Refuse covariances that are none, and see whether observations are missing, where values can be read."""
    dtype, can_be_read = working_dtype(call.dtype), readable(call)
    values = {
        name: to_numpy(x).astype(dtype)
        for name, x in arguments.items()
        if name in ("y", *COVARIANCES) and x is not None and can_be_read(x)
    }
    covariances = {name for name in COVARIANCES if arguments[name] is not None}
    for name in [name for name in COVARIANCES if name in values]:
        known = without_unknown(values[name], call.form.diffuse) if name == "P0" else values[name]
        check_covariance(name, known, call.form.n)
    missing = bool(np.isnan(values["y"]).any()) if "y" in values else None
    return call.form._replace(missing=missing, checked=covariances <= {*values})


def without_unknown(P0: Any, unknown: tuple[int, ...]) -> Any:
    """P0 with zeros for what is not read: rows and columns of states whose variance is infinite."""
    if not unknown:
        return P0
    infinite = np.isposinf(np.diagonal(P0, axis1=-2, axis2=-1))
    named = np.isin(np.arange(P0.shape[-1]), unknown) & (infinite | (not infinite.any()))
    return np.where(named[..., None] | named[..., None, :], 0, P0)


def to_numpy(x: Any) -> Any:
    """The values of an array of any library that can be read; NumPy has no bfloat16 of its own."""
    if hasattr(x, "detach"):
        x = x.detach().float() if x.dtype.itemsize < 4 else x.detach()
    return np.asarray(x)


def readable(call: Call) -> Callable[[Any], bool]:
    """Whether the values of an array can be read in this process, and at once."""
    return functools.partial(is_readable, call.library, call.problem.device)


def is_readable(library: str, device: str, x: Any) -> bool:
    """Whether the values of an array are in this process, on its processor, and known now."""
    if device != "cpu":
        return False
    return not module_of(library).is_traced(x) and getattr(x, "is_fully_addressable", True)
