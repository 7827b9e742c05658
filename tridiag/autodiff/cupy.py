"""CuPy has no derivatives: run the backend, and look for singular systems where asked to; nothing else waits."""

from __future__ import annotations

from typing import Any

from tridiag.backends import Backend
from tridiag.prepare import Call
from tridiag.singular import raise_if_singular


def solve(call: Call, backend: Backend, check: bool, out: Any, factors: Any) -> Any:
    plan, matrix, d, _ = call
    x, status = backend.module().solve(matrix, d, plan.form, None if plan.casts else out, factors)
    if check:
        raise_if_singular("cupy", x, status, matrix, plan.form)
    return x


def slogdet(call: Call, backend: Backend) -> Any:
    return backend.module().slogdet(call.matrix, call.form)


def factor(call: Call, backend: Backend) -> tuple[Any, Any]:
    """The status stays on the device: backends for CuPy arrays find it by partial pivoting, whatever the promise."""
    factors = backend.module().factor(call.matrix, call.form)
    return factors, factors.status
