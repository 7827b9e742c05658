"""NumPy has no derivatives: run the backend and look for singular systems."""

from __future__ import annotations

from typing import Any

from tridiag.backends import Backend
from tridiag.calls.plan import Call
from tridiag.calls.singular import raise_if_singular, settle_status


def solve(call: Call, backend: Backend, check: bool, out: Any, factors: Any) -> Any:
    plan, matrix, d, _ = call
    x, status = backend.module().solve(matrix, d, plan.form, None if plan.casts else out, factors)
    if check:
        raise_if_singular(x, status, matrix, plan.form)
    return x


def recurrence(verb: str, call: Call, backend: Backend, out: Any) -> Any:
    function = getattr(backend.module(), verb)
    return function(call.matrix, call.d, call.init, call.form, None if call.plan.casts else out)


def solve_block(call: Call, backend: Backend) -> Any:
    return backend.module().solve_block(call.matrix, call.d, call.form)


def slogdet(call: Call, backend: Backend) -> Any:
    return backend.module().slogdet(call.matrix, call.form)


def factor(call: Call, backend: Backend) -> tuple[Any, Any]:
    factors = backend.module().factor(call.matrix, call.form)
    return factors, settle_status(factors.status, call)
