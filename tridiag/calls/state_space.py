"""Series and their state-space models from the caller's arguments to the normal form."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tridiag.backends import Problem
from tridiag.calls.plan import NO_MASK, real_dtype
from tridiag.libraries.arrays import module_of, taking, working_dtype
from tridiag.problems.state_space import COVARIANCES, PARAMETERS, Model, StateSpace, align, check_covariance

Array = Any
METHODS = ("auto", "sequential", "parallel")


class Call(NamedTuple):
    """One call, ready to run."""

    library: str
    problem: Problem
    form: StateSpace
    dtype: str  # of the result
    y: Array
    model: Model


def prepare(verb: str, y: Any, parameters: tuple[Any, ...], method: str) -> Call:
    """Everything that can be checked without values."""
    if method not in METHODS:
        raise ValueError(f"method is {method!r}; wanted one of {', '.join(map(repr, METHODS))}")
    names, arguments = ("y", *PARAMETERS), [y, *parameters]
    library, take = taking(names, *map(type, arguments), NO_MASK)
    taken, _, facts, settings = take(arguments, None)
    entries, module = dict(zip(names, facts, strict=False)), module_of(library)
    for name, entry in entries.items():
        module.check_dtype(name, entry)
    dtype = real_dtype(module, entries, settings)
    lifted, batch, cov_batch = align({name: tuple(entry[1]) for name, entry in entries.items()})
    n, observed, states = *lifted["y"][-2:], lifted["m0"][-1]
    device = module.device(entries.values(), settings)
    y, *rest = (
        module.cast(x, working_dtype(dtype)).reshape(lifted[name]) for name, x in zip(names, taken, strict=True)
    )
    shape, largest = (*batch, n, observed), max(states, observed)
    problem = Problem(
        verb, library, device, working_dtype(dtype), shape, len(batch), None, method=method, states=largest
    )
    form = StateSpace(n, observed, states, batch, cov_batch, None, False)
    return Call(library, problem, form, dtype, y, Model(*rest))


def check_values(call: Call, arguments: dict[str, Any]) -> StateSpace:
    """Refuse covariances that are none, and see whether observations are missing, where values can be read."""
    module, dtype = module_of(call.library), working_dtype(call.dtype)
    readable = {
        name: np.asarray(x).astype(dtype)
        for name, x in arguments.items()
        if call.problem.device == "cpu" and name in ("y", *COVARIANCES) and is_here(module, x)
    }
    for name in [name for name in COVARIANCES if name in readable]:
        check_covariance(name, readable[name], call.form.n)
    missing = bool(np.isnan(readable["y"]).any()) if "y" in readable else None
    return call.form._replace(missing=missing, checked={*COVARIANCES} <= {*readable})


def is_here(module: Any, x: Any) -> bool:
    """Whether the values of an argument can be read in this process."""
    return not module.is_traced(x) and getattr(x, "is_fully_addressable", True)
