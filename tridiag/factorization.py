"""A matrix eliminated once, for many right sides that come one after the other."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from tridiag import outputs, systems
from tridiag.backends import BACKENDS
from tridiag.compiling import compiling, graph
from tridiag.dispatch import choose
from tridiag.prepare import Call, prepare, wants_check
from tridiag.singular import exact_status, to_host

Array = Any


class Factorization:
    """The elimination of many tridiagonal matrices, made by `tridiag.factor`.

    Under JAX it is a pytree; its differentiable leaves are a, b and c, the factors are constants.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> matrix = tridiag.factor(-1.0, np.full(3, 4.0), -1.0)
    >>> matrix.solve(np.array([3.0, 2.0, 3.0]))
    array([1., 1., 1.])
    >>> int(matrix.status)
    0
    """

    def __init__(
        self,
        matrix: tuple[Any, ...],
        options: dict[str, Any],
        name: str,
        kind: tuple[str, str, int],
        factors: Any,
        status: Any,
    ) -> None:
        self._matrix = matrix
        self._options = options
        self._name = name
        self._kind = kind  # library, dtype, rows: other right sides are solved from the matrix anew
        self._factors = factors
        self._status = status

    @property
    def status(self) -> Array:
        """For each matrix 0, or 1 + the row of the zero pivot that elimination with partial pivoting met."""
        return self._status

    @property
    def backend(self) -> str:
        """The name of the backend that made it."""
        return self._name

    def solve(self, d: Array, transpose: bool = False, out: Array | None = None) -> Array:
        r"""Solve with new right sides.

        .. math:: A x = d, \qquad \text{or } A^T x = d

        Parameters
        ----------
        d : array
            The right sides; they broadcast with the matrix as in `tridiag.solve`.
        transpose : bool
            Solve with the transposed matrix.
        out : array
            Takes the solution; see `tridiag.solve`.

        Returns
        -------
        array
            x; bad input and singular systems raise as in `tridiag.solve` with ``check=None``.
        """
        if compiling(d):
            return graph().outside(self.solve, d, transpose, out)
        arguments = dict(zip("abc", self._matrix, strict=False)) | {"d": d}
        where = self._matrix[3]
        call = prepare("solve", arguments, where=where, transpose=transpose, **self._options)
        if where is not None:
            arguments["where"] = where
        destination = outputs.target(call, arguments, out, False)
        check = wants_check(call.plan, None)
        same = (call.library, systems.matrix_dtype(call), call.form.n) == self._kind
        factors = self._factors if same else None
        backend = BACKENDS[self._name] if call.library == self._kind[0] else choose(call.problem).backend
        return systems.run(call, backend, check, destination, factors)

    def slogdet(self) -> tuple[Array, Array]:
        """Sign and logarithm of the absolute value of the determinants, as `tridiag.slogdet`."""
        axis = axis_alone(self._matrix, self._options["axis"])
        periodic = self._options["periodic"]
        return systems.slogdet(*self._matrix[:3], where=self._matrix[3], axis=axis, periodic=periodic)


def factor(
    a: Array,
    b: Array,
    c: Array,
    *,
    axis: int = -1,
    backend: str = "auto",
    pivoting: bool | str = "auto",
    periodic: bool = False,
    where: Array | None = None,
) -> Factorization:
    r"""Eliminate tridiagonal matrices once, to solve for many right sides later.

    .. math:: A = L U \quad\text{or}\quad P A = L U

    Parameters
    ----------
    a, b, c : array
        The diagonals, as in `tridiag.solve`; they are copied.
    axis, backend, pivoting, periodic, where
        As in `tridiag.solve`, and with the same promises.

    Returns
    -------
    Factorization
        With ``solve(d, transpose=False, out=None)``, ``slogdet()`` and ``status``.

    Raises
    ------
    ValueError, TypeError, BackendError
        As `tridiag.solve`. A singular matrix raises nothing here: it shows in ``status``.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> matrix = tridiag.factor([0.0, 1.0], [2.0, 2.0], [1.0, 0.0])
    >>> matrix.solve(np.eye(2)).round(4)
    array([[ 0.6667, -0.3333],
           [-0.3333,  0.6667]])

    Notes
    -----
    LAPACK's xGTTRF and xGTTRS. Certified systems keep (a / pivot, 1 / pivot, c / pivot), and no division is left. A
    system that needs pivoting keeps a, b, c, which refinement reads anyway, and is eliminated again: that reads fewer
    words than its factors would.
    """
    if compiling(a, b, c):
        options: dict[str, Any] = {"axis": axis, "pivoting": pivoting, "periodic": periodic, "where": where}
        return graph().outside(factor, a, b, c, backend=backend, **options)
    arguments = {"a": a, "b": b, "c": c}
    own_axis = axis_alone((a, b, c, where), axis)
    call = prepare("factor", arguments, axis=own_axis, pivoting=pivoting, periodic=periodic, where=where)
    entry = choose(call.problem, backend).backend
    options = {"axis": axis, "pivoting": pivoting, "periodic": periodic}
    kind = call.library, call.problem.dtype, call.form.n
    with call.place():
        matrix = own(call, (a, b, c, where))
        if 0 in call.form.matrix_shape:
            ops = call.module().Operations
            status = ops.zero_status(ops.full(call.form.matrix_batch, 0, call.matrix[1]))
            return Factorization(matrix, options, entry.name, kind, None, status)
        owned = prepare(
            "factor", dict(zip("abc", matrix, strict=False)), where=matrix[3], **{**options, "axis": own_axis}
        )
        factors, status = systems.derivatives_of(call.library).factor(owned, entry)
        return Factorization(matrix, options, entry.name, kind, factors, status)


def axis_alone(matrix: tuple[Any, ...], axis: int) -> int:
    """The axis of the matrix by itself: a 1-D matrix lies along that axis of the right sides, whichever it will be."""
    return -1 if all(np.ndim(x) <= 1 for x in matrix if x is not None) else axis


def own(call: Call, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Copies of the caller's arrays, at their own size; JAX arrays are immutable."""
    if call.library == "jax":
        return given
    if call.library in ("torch", "cupy"):
        clone = "clone" if call.library == "torch" else "copy"
        return tuple(getattr(x, clone)() if hasattr(x, clone) else copy.copy(x) for x in given)
    return tuple(x if x is None or np.isscalar(x) else np.array(x) for x in given)


def settle_status(status: Any, call: Call) -> Any:
    """Singular is about partial pivoting: systems where plain elimination broke down are looked at again."""
    status = np.array(to_host(status))
    suspects = status != 0
    if call.form.pivoting is False and suspects.any():
        form = call.form._replace(shape=call.form.matrix_shape)
        status[suspects] = exact_status(suspects, call.matrix, form)
    return status
