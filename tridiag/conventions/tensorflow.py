"""The arguments of ``tf.linalg.tridiagonal_solve``."""

from __future__ import annotations

from typing import Any

from tridiag.conventions.padding import (
    check_length,
    compact,
    of_dense,
    padded_before,
    padded_behind,
    rows_of,
)
from tridiag.conventions.system import arrays, perturbed, system

Array = Any
FORMATS = ("compact", "sequence", "matrix")  # of TensorFlow


def from_tensorflow(
    diagonals: Any, rhs: Array | None = None, diagonals_format: str = "compact", *, perturb_singular: bool = False
) -> dict[str, Any]:
    r"""The arguments of ``tf.linalg.tridiagonal_solve(diagonals, rhs, diagonals_format=...)``.

    .. math:: diagonals_{2, i} \, x_{i-1} + diagonals_{1, i} \, x_i + diagonals_{0, i} \, x_{i+1} = rhs_i

    Parameters
    ----------
    diagonals : array, or three arrays
        Of a library that `tridiag.solve` takes; eager tensors of TensorFlow become NumPy arrays.
        "compact": (..., 3, n), the super-diagonal, the diagonal and the sub-diagonal. "sequence": these three, (..., n)
        each, or (..., n-1) the two beside the diagonal. "matrix": (..., n, n), of which only these three are read.
        Entry n-1 of the super-diagonal and entry 0 of the sub-diagonal are never read.
    rhs : array
        (..., n), or (..., n, k) with one axis more than the diagonal: k right sides for each matrix. What TensorFlow
        transposes or conjugates first, as ``transpose_rhs`` and ``conjugate_rhs``, pass transposed or conjugated.
    diagonals_format : str
        "compact", "sequence" or "matrix".
    perturb_singular : bool
        As in `tridiag.conventions.from_jax`.

    Returns
    -------
    dict
        ``a``, ``b``, ``c``, ``d``, ``axis`` and perhaps ``singular`` of `tridiag.solve`; nothing is copied but what has
        to be padded.

    Raises
    ------
    ValueError, TypeError
        The shapes are not those of the format, there is no such format, or the arrays are of different libraries.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> diagonals = np.array([[1.0, 1.0, np.nan], [4.0, 4.0, 4.0], [np.nan, 2.0, 2.0]])
    >>> tridiag.solve(**tridiag.conventions.from_tensorflow(diagonals, np.array([5.0, 7.0, 6.0])))
    array([1., 1., 1.])

    Notes
    -----
    `tf.linalg.tridiagonal_solve`.
    """
    if diagonals_format not in FORMATS:
        raise ValueError(f"diagonals_format is {diagonals_format!r}; wanted one of {', '.join(map(repr, FORMATS))}")
    if diagonals_format == "sequence":
        above, diagonal, below, rhs = sequence(diagonals, rhs)
    else:
        diagonals, rhs = arrays(diagonals=diagonals, rhs=rhs)
        above, diagonal, below = compact(diagonals) if diagonals_format == "compact" else of_dense(diagonals)
    if rhs is not None and rhs.ndim not in (diagonal.ndim, diagonal.ndim + 1):
        raise ValueError(
            f"rhs has shape {tuple(rhs.shape)} and the diagonal {tuple(diagonal.shape)}; wanted (..., n), or "
            f"(..., n, k) with one axis more"
        )
    columns = rhs is not None and rhs.ndim > diagonal.ndim
    bands = padded_before(below, diagonal), diagonal, padded_behind(above, diagonal)
    return perturbed(system(bands, "rhs", rhs, columns), "rhs", rhs, perturb_singular)


def sequence(diagonals: Any, rhs: Array | None) -> list[Any]:
    """Three arrays and the right side."""
    if not isinstance(diagonals, tuple | list) or len(diagonals) != 3:
        raise ValueError(
            "diagonals is no sequence of three arrays; wanted the super-diagonal, the diagonal and the sub-diagonal"
        )
    names = "the super-diagonal", "the diagonal", "the sub-diagonal", "rhs"
    taken = arrays(**dict(zip(names, (*diagonals, rhs), strict=True)))
    n = rows_of(taken[1])
    for k in (0, 2):
        check_length(names[k], taken[k], names[1], taken[1], (max(n - 1, 0), n))
    return taken
