"""How each array library runs a backend, and what it is told of derivatives.

The one rule of a solve: with x = A^-1 d and cotangent g, w = A^-T g:

    d: w,   b_i: -w_i x_i,   a_i: -w_i x_{i-1},   c_i: -w_i x_{i+1}

A module of `RUNNERS` holds

    solve(call, backend, check, out, factors) -> x         raises where a system is singular and ``check`` is asked for
    solve_perturbed(call, backend, eps) -> x               none is singular (`tridiag.algorithms.perturbation`)
    reciprocal_condition(call, backend, status) -> rcond   (`tridiag.algorithms.condition`)
    recurrence(verb, call, backend, out) -> y
    solve_block(call, backend) -> x
    slogdet(call, backend) -> (sign, logabsdet)
    factor(call, backend) -> (factors, status)

where ``call`` is a `tridiag.calls.plan.Call`. NumPy and CuPy have no derivatives; for JAX and PyTorch the results carry
theirs.
"""

from __future__ import annotations

import functools
import importlib
from types import ModuleType

RUNNERS = {"numpy": "eager_numpy", "cupy": "eager_cupy", "jax": "jax_verbs", "torch": "torch_verbs"}


@functools.cache
def runner_of(library: str) -> ModuleType:
    """The module that runs the verbs on arrays of a library."""
    return importlib.import_module(f"tridiag.derivatives.{RUNNERS[library]}")


@functools.cache
def selective_of(library: str) -> ModuleType:
    """The module that runs selective scans of arrays of a library, with derivatives where it has any."""
    return importlib.import_module(
        f"tridiag.derivatives.{'eager' if library in ('numpy', 'cupy') else library}_selective"
    )


@functools.cache
def alignment_of(library: str) -> ModuleType:
    """The module that runs alignments of arrays of a library with derivatives."""
    return importlib.import_module(f"tridiag.derivatives.{library}_alignment")
