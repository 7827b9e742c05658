"""The arguments of SciPy's band solvers and of LAPACK's ?gtsv."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from tridiag.conventions.padding import (
    check_length,
    check_rows,
    earlier,
    later,
    padded_before,
    padded_behind,
    rows_of,
)
from tridiag.conventions.system import arrays, system

Array = Any


def from_scipy_banded(l_and_u: Any = (1, 1), ab: Array | None = None, b: Array | None = None) -> dict[str, Any]:
    r"""The arguments of ``scipy.linalg.solve_banded((1, 1), ab, b)``, whose first may be left out: ``(ab, b)``.

    .. math:: ab_{1 + i - j, \, j} = A_{ij}

    Parameters
    ----------
    l_and_u : (int, int)
        (1, 1), the numbers of diagonals below and above the main one.
    ab : array
        (..., 3, n): the super-diagonal, the diagonal and the sub-diagonal, each entry in the column of the unknown that
        it multiplies. ``ab[..., 0, 0]`` and ``ab[..., 2, n-1]`` are never read. Any dtype of `tridiag.solve`.
    b : array
        (n,), or (..., n, k): k right sides for each matrix.

    Returns
    -------
    dict
        ``a``, ``b``, ``c``, ``d`` and ``axis`` of `tridiag.solve`; ``a`` and ``c`` are copies.

    Raises
    ------
    ValueError, TypeError
        ``l_and_u`` is another pair, ``ab`` has not three rows, ``b`` has not n, or they are of different libraries.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> ab = np.array([[np.nan, 1.0, 1.0], [4.0, 4.0, 4.0], [2.0, 2.0, np.nan]])
    >>> tridiag.solve(**tridiag.conventions.from_scipy_banded((1, 1), ab, np.array([5.0, 7.0, 6.0])))
    array([1., 1., 1.])

    Notes
    -----
    The matrix diagonal ordered form of `scipy.linalg.solve_banded`.
    """
    if is_pair(l_and_u):
        check_bands(l_and_u)
    elif ab is None or b is None:
        ab, b = l_and_u, b if ab is None else ab
    else:
        raise TypeError("l_and_u is no pair of numbers; wanted ((1, 1), ab, b) as of solve_banded, or (ab, b)")
    if ab is None:
        raise TypeError("from_scipy_banded also needs ab, the diagonals as solve_banded takes them")
    ab, b = arrays(ab=ab, b=b)
    check_rows("ab", ab, 3, "the super-diagonal, the diagonal and the sub-diagonal")
    diagonals = later(ab[..., 2, :]), ab[..., 1, :], earlier(ab[..., 0, :])
    return system(diagonals, "b", b, columns=b is not None and b.ndim > 1)


def is_pair(x: Any) -> bool:
    """Whether it is two whole numbers, and no array of diagonals."""
    return isinstance(x, tuple | list) and len(x) == 2 and all(isinstance(number, Integral) for number in x)


def check_bands(l_and_u: Any) -> None:
    if tuple(l_and_u) != (1, 1):
        raise ValueError(f"l_and_u is {tuple(l_and_u)}; wanted (1, 1), one diagonal below the main one and one above")


def from_scipy_hermitian(ab: Array, b: Array | None = None, *, lower: bool = False) -> dict[str, Any]:
    r"""The arguments of ``scipy.linalg.solveh_banded(ab, b, lower=lower)`` for two rows.

    .. math:: ab_{1 + i - j, \, j} = A_{ij}, \; i \le j, \qquad \text{lower: } ab_{i - j, \, j} = A_{ij}, \; i \ge j

    Parameters
    ----------
    ab : array
        (..., 2, n): the super-diagonal and the diagonal, ``ab[..., 0, 0]`` never read; or with ``lower`` the diagonal
        and the sub-diagonal, ``ab[..., 1, n-1]`` never read. Of the diagonal the real part is taken, as SciPy does.
    b : array
        (n,), or (..., n, k): k right sides for each matrix.
    lower : bool
        Which half of the matrix ``ab`` holds.

    Returns
    -------
    dict
        ``a``, ``b``, ``c``, ``d`` and ``axis`` of `tridiag.solve`. The matrix need not be positive definite.

    Raises
    ------
    ValueError, TypeError
        ``ab`` has not two rows, ``b`` has not n, or they are of different libraries.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> ab = np.array([[np.nan, 1.0, 1.0], [4.0, 4.0, 4.0]])
    >>> tridiag.solve(**tridiag.conventions.from_scipy_hermitian(ab, np.array([5.0, 6.0, 5.0])))
    array([1., 1., 1.])

    Notes
    -----
    The upper and the lower form of `scipy.linalg.solveh_banded`.
    """
    ab, b = arrays(ab=ab, b=b)
    held = "the diagonal and the sub-diagonal" if lower else "the super-diagonal and the diagonal"
    check_rows("ab", ab, 2, held)
    diagonal, beside = (ab[..., 0, :], ab[..., 1, :]) if lower else (ab[..., 1, :], ab[..., 0, :])
    sides = (later(beside), beside.conj()) if lower else (beside.conj(), earlier(beside))
    return system((sides[0], diagonal.real, sides[1]), "b", b, columns=b is not None and b.ndim > 1)


def from_lapack(dl: Array, d: Array, du: Array, b: Array | None = None) -> dict[str, Any]:
    r"""The arguments of LAPACK's xGTSV, as ``scipy.linalg.lapack.dgtsv(dl, d, du, b)``.

    .. math:: dl_i x_i + d_{i+1} x_{i+1} + du_{i+1} x_{i+2} = b_{i+1}

    Parameters
    ----------
    dl, du : array
        (n-1,): the diagonals beside the main one, without padding; or (..., n-1).
    d : array
        (n,) or (..., n): the diagonal. Any dtype of `tridiag.solve`.
    b : array
        (n,), or (..., n, k): k right sides for each matrix.

    Returns
    -------
    dict
        ``a``, ``b``, ``c``, ``d`` and ``axis`` of `tridiag.solve`; ``a`` begins and ``c`` ends with a 0 that is never
        read.

    Raises
    ------
    ValueError, TypeError
        ``dl`` or ``du`` has not one entry less than ``d``, ``b`` has not n rows, or they are of different libraries.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> dl, d, du = np.full(2, 2.0), np.full(3, 4.0), np.full(2, 1.0)
    >>> tridiag.solve(**tridiag.conventions.from_lapack(dl, d, du, np.array([5.0, 7.0, 6.0])))
    array([1., 1., 1.])

    Notes
    -----
    xGTSV of LAPACK, which SciPy's wrapper refuses for n = 1; here that is a system like any other.
    """
    dl, d, du, b = arrays(dl=dl, d=d, du=du, b=b)
    for name, beside in (("dl", dl), ("du", du)):
        check_length(name, beside, "d", d, (max(rows_of(d) - 1, 0),))
    return system((padded_before(dl, d), d, padded_behind(du, d)), "b", b, columns=b is not None and b.ndim > 1)
