"""The host's side of the CUDA C kernels in `tridiag.kernels`: what is launched, with which numbers, and how.

`tridiag.cuda.solvers` says what is launched; `on_cupy`, `on_torch` and `on_jax` do so on arrays of their libraries.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, NamedTuple

from tridiag.algorithms.matrix_rows import Matrix
from tridiag.algorithms.recurrence import Rows
from tridiag.cuda import launcher, solvers
from tridiag.cuda.record import Program
from tridiag.libraries.arrays import library_of
from tridiag.problems.forms import Blocks, Form, Recurrence


def on(x: Any) -> ModuleType:
    """What runs programs on arrays of its library."""
    return importlib.import_module(f"tridiag.cuda.on_{library_of(x)}")


class Factors(NamedTuple):
    """Only what is known of the matrices: solving anew moves 5 words an unknown, as solving from factors would."""

    status: Any
    pivoted: bool = True  # the status is that of partial pivoting, whatever the promise


def factor(matrix: Matrix, form: Form) -> Factors:
    return Factors(on(matrix[1]).determinants(matrix, form, False)[0])


def status_of_jax_arrays(matrix: Matrix, form: Form) -> Any:
    """All that is kept of matrices, which are whole."""
    return factor(matrix, form).status


def slogdet(matrix: Matrix, form: Form) -> tuple[Any, Any]:
    _, sign, logarithm = on(matrix[1]).determinants(matrix, form, True)
    return sign, logarithm


def solve_block(matrix: tuple[Any, Any, Any], d: Any, form: Blocks) -> Any:
    return on(d).solve_block(matrix, d, form)


def solution(sweep: str, form: Form, shapes: Any, strides: Any, dtypes: tuple[Any, Any]) -> Program:
    """What solves systems on the devices here (`tridiag.cuda.solvers.solution`)."""
    return solvers.solution(sweep, form, shapes, strides, dtypes, launcher.shared_memory())


def program_of_solve(
    sweep: str, form: Form, shapes: Any, strides: Any, dtypes: tuple[Any, Any], in_place: bool = False
) -> Program | None:
    """The same; ``in_place``: x takes the place of d. None where it may not."""
    return None if in_place and not solvers.in_place(form) else solution(sweep, form, shapes, strides, dtypes)


def lending(solve: Callable[..., tuple[Any, Any]]) -> Callable[..., tuple[Any, Any]]:
    """A backend's ``solve`` for CuPy arrays, for those of other libraries too: their memory is lent to CuPy."""

    def solve_to(arrays: tuple[Any, ...], form: Form, out: Any) -> None:
        solve(arrays[:-1], arrays[-1], form, out)

    @functools.wraps(solve)
    def lent(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Any = None) -> tuple[Any, Any]:
        if library_of(d) == "cupy":
            return solve(matrix, d, form, out, factors)
        return on(d).lend(solve_to, (*matrix, d), form, out), None

    return lent


def lending_sequences(order: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The same for a recurrence with so many coefficients."""

    def decorate(recurrence: Callable[..., Any]) -> Callable[..., Any]:
        def run_to(arrays: tuple[Any, ...], form: Recurrence, out: Any) -> None:
            recurrence(arrays[:order], arrays[-1], arrays[order:-1], form, out)

        @functools.wraps(recurrence)
        def lent(coefficients: Rows, x: Any, init: Rows, form: Recurrence, out: Any = None) -> Any:
            if library_of(x) == "cupy":
                return recurrence(coefficients, x, init, form, out)
            return on(x).lend(run_to, (*coefficients, *init, x), form, out)

        return lent

    return decorate
