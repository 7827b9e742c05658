"""CuPy has no derivatives: run the backend, and look for singular systems where asked to; nothing else waits."""

from __future__ import annotations

from typing import Any

from tridiag.backends import Backend
from tridiag.calls.plan import Call
from tridiag.derivatives.eager_numpy import reciprocal_condition as reciprocal_condition
from tridiag.derivatives.eager_numpy import recurrence as recurrence
from tridiag.derivatives.eager_numpy import slogdet as slogdet
from tridiag.derivatives.eager_numpy import solve as solve
from tridiag.derivatives.eager_numpy import solve_block as solve_block
from tridiag.derivatives.eager_numpy import solve_perturbed as solve_perturbed


def factor(call: Call, backend: Backend) -> tuple[Any, Any]:
    """The status stays on the device: backends for CuPy arrays find it by partial pivoting, whatever the promise."""
    factors = backend.module().factor(call.matrix, call.form)
    return factors, factors.status
