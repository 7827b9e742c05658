"""NumPy has no derivatives: run the backend and look for singular systems."""

from __future__ import annotations

from typing import Any

import numpy as np

from tridiag.algorithms import condition, perturbation
from tridiag.backends import Backend
from tridiag.calls.plan import Call
from tridiag.calls.singular import gather, raise_if_singular, settle_status


def solve(call: Call, backend: Backend, check: bool, out: Any, factors: Any) -> Any:
    plan, matrix, d, _ = call
    x, status = backend.module().solve(matrix, d, plan.form, None if plan.casts else out, factors)
    if check:
        raise_if_singular(x, status, matrix, plan.form)
    return x


def solve_perturbed(call: Call, backend: Backend, eps: float) -> Any:
    """Systems whose solution is not finite are solved again, and no others."""
    (*matrix, where), d, form, ops = call.matrix, call.d, call.form, call.module().Operations
    x = backend.module().solve(call.matrix, d, form)[0]
    with np.errstate(all="ignore"):
        if perturbation.surely_finite(x):
            return x
        those = ~ops.xp.isfinite(x).all(form.axis)
        (*matrix, where, d, found), form = gather((*matrix, where, d, x), those, form)

        def again(matrix: Any) -> Any:
            return backend.module().solve(matrix, d, form)[0]

        perturbed = perturbation.perturb(ops, again, (*matrix, where), d, found, form, eps)
    if perturbed is not None:
        np.moveaxis(x, call.form.axis, -1)[those] = perturbed[1]
    return x


def recurrence(verb: str, call: Call, backend: Backend, out: Any) -> Any:
    function = getattr(backend.module(), verb)
    return function(call.matrix, call.d, call.init, call.form, None if call.plan.casts else out)


def solve_block(call: Call, backend: Backend) -> Any:
    return backend.module().solve_block(call.matrix, call.d, call.form)


def slogdet(call: Call, backend: Backend) -> Any:
    return backend.module().slogdet(call.matrix, call.form)


def reciprocal_condition(call: Call, backend: Backend, status: Any) -> Any:
    ops, form = call.module().Operations, call.form

    def solve(d: Any, transpose: bool) -> Any:
        return backend.module().solve(matrix, d, form._replace(transpose=transpose))[0]

    with np.errstate(all="ignore"):
        matrix = condition.near_one(ops, call.matrix, form)
        return condition.reciprocal(ops, solve, matrix, form, status)


def factor(call: Call, backend: Backend) -> tuple[Any, Any]:
    factors = backend.module().factor(call.matrix, call.form)
    return factors, settle_status(factors.status, call)
