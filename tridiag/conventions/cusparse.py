"""The arguments of cuSPARSE's gtsv2 routines."""

from __future__ import annotations

import math
from typing import Any

from tridiag.conventions.padding import cut
from tridiag.conventions.system import arrays, system

Array = Any
STRIDED, INTERLEAVED = "dl, d, du, x, m and perhaps stride", "dl, d, du, x, m"


def from_cusparse_strided(
    dl: Array, d: Array, du: Array, x: Array, m: int, stride: int | None = None
) -> dict[str, Any]:
    r"""The buffers of ``cusparse<t>gtsv2StridedBatch``, or of ``cusparse<t>gtsv2``: one system after another.

    .. math:: a_i = dl_{i + s k}, \quad b_i = d_{i + s k}, \quad c_i = du_{i + s k}, \quad d_i = x_{i + s k}

    in system k, where s is the stride.

    Parameters
    ----------
    dl, d, du : array
        The diagonals of all systems, each ``stride`` entries after the one before; or m entries for all of them, as
        gtsv2 takes them. The first of ``dl`` and the last of ``du`` are never read here, and need not be 0.
    x : array
        The right sides alike; gtsv2 calls it B.
    m : int
        The rows of a system.
    stride : int
        From a system to the next (batchStride, ldb); m if it is not given.

    Returns
    -------
    dict
        ``a``, ``b``, ``c``, ``d`` and ``axis`` of `tridiag.solve`, (batch, m): views of the buffers. With
        ``overwrite_d=True`` the solution goes to ``x``, as cuSPARSE's does.

    Raises
    ------
    ValueError, TypeError
        A buffer does not hold whole systems, the stride is less than m, or the buffers are of different libraries.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> dl, d, du = np.tile([0.0, 2.0, 2.0], 2), np.full(6, 4.0), np.tile([1.0, 1.0, 0.0], 2)
    >>> x = np.array([5.0, 7.0, 6.0, 10.0, 14.0, 12.0])
    >>> tridiag.solve(**tridiag.conventions.from_cusparse_strided(dl, d, du, x, 3))
    array([[1., 1., 1.],
           [2., 2., 2.]])

    Notes
    -----
    NVIDIA's cuSPARSE, gtsv2 and gtsv2StridedBatch. CuPy arrays of the shape (batch, m) need nothing of this.
    """
    check_number("m", m, STRIDED)
    stride = m if stride is None else stride
    check_number("stride", stride, STRIDED)
    if not 1 <= m <= stride:
        raise ValueError(f"m is {m} and stride {stride}; wanted at least one row, and a stride of at least m")
    buffers = dict(zip(("dl", "d", "du", "x"), arrays(dl=dl, d=d, du=du, x=x), strict=True))
    lengths = {name: m if math.prod(buffer.shape) == m else stride for name, buffer in buffers.items()}
    *diagonals, right = (cut(name, x, (-1, lengths[name]))[:, :m] for name, x in buffers.items())
    return system(diagonals, "x", right, columns=False)


def from_cusparse_interleaved(dl: Array, d: Array, du: Array, x: Array, m: int) -> dict[str, Any]:
    r"""The buffers of ``cusparse<t>gtsvInterleavedBatch``: the rows of all systems side by side.

    .. math:: a_i = dl_{k + i B}, \quad b_i = d_{k + i B}, \quad c_i = du_{k + i B}, \quad d_i = x_{k + i B}

    in system k of B.

    Parameters
    ----------
    dl, d, du, x : array
        The diagonals and the right sides: entry i of every system, then entry i + 1. Row 0 of ``dl`` and row m-1 of
        ``du`` are never read here, and need not be 0.
    m : int
        The rows of a system.

    Returns
    -------
    dict
        ``a``, ``b``, ``c``, ``d`` and ``axis`` of `tridiag.solve`, (m, batch): views of the buffers. The diagonals,
        which cuSPARSE overwrites, are only read; with ``overwrite_d=True`` the solution goes to ``x``, as cuSPARSE's
        does.

    Raises
    ------
    ValueError, TypeError
        A buffer does not hold whole rows, or the buffers are of different libraries.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> dl, d, du = np.repeat([0.0, 2.0, 2.0], 2), np.full(6, 4.0), np.repeat([1.0, 1.0, 0.0], 2)
    >>> x = np.array([5.0, 10.0, 7.0, 14.0, 6.0, 12.0])
    >>> tridiag.solve(**tridiag.conventions.from_cusparse_interleaved(dl, d, du, x, 3))
    array([[1., 2.],
           [1., 2.],
           [1., 2.]])

    Notes
    -----
    NVIDIA's cuSPARSE, gtsvInterleavedBatch. CuPy arrays of the shape (m, batch) need only ``axis=0``.
    """
    check_number("m", m, INTERLEAVED)
    if m < 1:
        raise ValueError(f"m is {m}; wanted at least one row")
    buffers = zip(("dl", "d", "du", "x"), arrays(dl=dl, d=d, du=du, x=x), strict=True)
    *diagonals, right = (cut(name, buffer, (m, -1)) for name, buffer in buffers)
    return system(diagonals, "x", right, columns=False, axis=0)


def check_number(name: str, x: Any, order: str) -> None:
    """Refuse the order of cuSPARSE, where m comes first: numbers are behind the buffers here."""
    is_array = bool(getattr(x, "shape", ()))
    if is_array or not hasattr(x, "__index__"):
        found = "an array" if is_array else repr(x)
        raise TypeError(f"{name} is {found}; wanted a whole number, and the arguments in the order {order}")
