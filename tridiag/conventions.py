"""From the conventions of other libraries to the arguments of `tridiag.solve`.

``tridiag.solve(**from_jax(dl, d, du, b))`` stands for ``jax.lax.linalg.tridiagonal_solve(dl, d, du, b)``: each function
takes the arguments of a call in their order, and gives a dictionary of ``a``, ``b``, ``c``, ``d`` and ``axis``. The
solution has the shape that it has there. Without the right side the dictionary is for `tridiag.factor` and
`tridiag.slogdet`. Entries arrive bit for bit, and what is not read there lies where it is not read here.
"""

from __future__ import annotations

import math
from typing import Any

from tridiag.calls.plan import NO_MASK
from tridiag.calls.torch_compile import compiling
from tridiag.libraries.arrays import taking
from tridiag.libraries.padding import (
    check_length,
    check_rows,
    compact,
    cut,
    earlier,
    later,
    of_dense,
    padded_before,
    padded_behind,
    rows_of,
)

Array = Any
Shape = tuple[int, ...]

__all__ = [
    "from_cusparse_interleaved",
    "from_cusparse_strided",
    "from_jax",
    "from_lapack",
    "from_scipy_banded",
    "from_scipy_hermitian",
    "from_tensorflow",
]

FORMATS = ("compact", "sequence", "matrix")  # of TensorFlow


def from_scipy_banded(ab: Array, b: Array | None = None) -> dict[str, Any]:
    r"""The arguments of ``scipy.linalg.solve_banded((1, 1), ab, b)``.

    .. math:: ab_{1 + i - j, \, j} = A_{ij}

    Parameters
    ----------
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
        ``ab`` has not three rows, ``b`` has not n, or they are of different libraries.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> ab = np.array([[np.nan, 1.0, 1.0], [4.0, 4.0, 4.0], [2.0, 2.0, np.nan]])
    >>> tridiag.solve(**tridiag.conventions.from_scipy_banded(ab, np.array([5.0, 7.0, 6.0])))
    array([1., 1., 1.])

    Notes
    -----
    The matrix diagonal ordered form of `scipy.linalg.solve_banded`.
    """
    ab, b = arrays(ab=ab, b=b)
    check_rows("ab", ab, 3, "the super-diagonal, the diagonal and the sub-diagonal")
    diagonals = later(ab[..., 2, :]), ab[..., 1, :], earlier(ab[..., 0, :])
    return system(diagonals, "b", b, columns=b is not None and b.ndim > 1)


def from_scipy_hermitian(ab: Array, b: Array | None = None, lower: bool = False) -> dict[str, Any]:
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


def from_jax(dl: Array, d: Array, du: Array, b: Array | None = None) -> dict[str, Any]:
    r"""The arguments of ``jax.lax.linalg.tridiagonal_solve(dl, d, du, b)``.

    .. math:: dl_i x_{i-1} + d_i x_i + du_i x_{i+1} = b_i

    Parameters
    ----------
    dl, d, du : array
        (..., n): the diagonals, which are those of `tridiag.solve` already. ``dl[..., 0]`` and ``du[..., n-1]`` are
        never read.
    b : array
        (..., n, k): k right sides for each matrix.

    Returns
    -------
    dict
        ``a``, ``b``, ``c``, ``d`` and ``axis`` of `tridiag.solve`; nothing is copied. Under `jax.jit` they are traced
        like any arrays.

    Raises
    ------
    ValueError, TypeError
        The diagonals have different lengths, ``b`` has not n rows and one axis more than they, or they are of different
        libraries.

    Examples
    --------
    >>> import jax.numpy as jnp, tridiag
    >>> dl, d, du = jnp.full(3, 2.0), jnp.full(3, 4.0), jnp.full(3, 1.0)
    >>> tridiag.solve(**tridiag.conventions.from_jax(dl, d, du, jnp.array([[5.0], [7.0], [6.0]]))).round(6).tolist()
    [[1.0], [1.0], [1.0]]

    Notes
    -----
    `jax.lax.linalg.tridiagonal_solve`, which reads the two entries outside the matrix neither.
    """
    dl, d, du, b = arrays(dl=dl, d=d, du=du, b=b)
    for name, beside in (("dl", dl), ("du", du)):
        check_length(name, beside, "d", d, (rows_of(d),))
    if b is not None and b.ndim != d.ndim + 1:
        raise ValueError(
            f"b has shape {tuple(b.shape)} and d {tuple(d.shape)}; wanted right sides (..., n, k), one axis more than "
            f"d: pass b[..., None] where each matrix has one"
        )
    return system((dl, d, du), "b", b, columns=True)


def from_tensorflow(diagonals: Any, rhs: Array | None = None, diagonals_format: str = "compact") -> dict[str, Any]:
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

    Returns
    -------
    dict
        ``a``, ``b``, ``c``, ``d`` and ``axis`` of `tridiag.solve`; nothing is copied but what has to be padded.

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
    return system((padded_before(below, diagonal), diagonal, padded_behind(above, diagonal)), "rhs", rhs, columns)


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
    stride = m if stride is None else stride
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
    if m < 1:
        raise ValueError(f"m is {m}; wanted at least one row")
    buffers = zip(("dl", "d", "du", "x"), arrays(dl=dl, d=d, du=du, x=x), strict=True)
    *diagonals, right = (cut(name, buffer, (m, -1)) for name, buffer in buffers)
    return system(diagonals, "x", right, columns=False, axis=0)


# ------------------------------------------------------------------------------------------------- what they share


def arrays(**given: Any) -> list[Any]:
    """The arguments as arrays of their one library; None as it is."""
    if compiling(*given.values()):
        return [*given.values()]
    present = {name: x for name, x in given.items() if x is not None}
    _, take = taking(tuple(present), *map(type, present.values()), NO_MASK)
    taken = dict(zip(present, take([*present.values()], None)[0], strict=True))
    for name, x in taken.items():
        if not getattr(x, "shape", ()):
            raise ValueError(f"{name} is a number; wanted an array, whose last axis is that of the rows")
    return [taken.get(name) for name in given]


def system(diagonals: Any, name: str, right: Any, columns: bool, axis: int = -1) -> dict[str, Any]:
    """The arguments of a verb; right sides that are columns lie along the last axis but one, and share their matrix."""
    a, b, c = diagonals
    if right is None:
        return {"a": a, "b": b, "c": c, "axis": axis}
    if columns:
        a, b, c, axis = a[..., None], b[..., None], c[..., None], -2
    if right.ndim < abs(axis) or right.shape[axis] != b.shape[axis]:
        wanted = "(..., n, k)" if columns else "(..., n)"
        raise ValueError(
            f"{name} has shape {tuple(right.shape)}; wanted {wanted} with n = {b.shape[axis]}, the rows of the matrix"
        )
    return {"a": a, "b": b, "c": c, "d": right, "axis": axis}


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
