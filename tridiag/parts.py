"""Systems whose rows lie in several places: chunks of an array, processes, hosts. Each part is reduced and finished.

Three pure functions of arrays in host memory, for those who have an engine of their own (Dask, MPI, Ray,
`torch.distributed`): each place reduces its rows to six numbers a system, somebody joins these, and each place finishes
its rows. JAX arrays that are sharded along the system axis need none of this: `tridiag.solve` does it.
"""

from __future__ import annotations

from typing import Any

from tridiag.calls import parts as calls

Array = Any


def reduce(a: Array, b: Array, c: Array, d: Array, *, axis: int = -1, where: Array | None = None) -> Array:
    r"""How the first and the last unknown of some rows of systems depend on the ones before and behind these rows.

    .. math:: x_{m-1} = r_0 + r_1 x_{-1} + r_2 x_m, \qquad x_0 = r_3 + r_4 x_{-1} + r_5 x_{m-1}

    Parameters
    ----------
    a, b, c, d : array
        Rows 0 to m-1 of the part, as `tridiag.solve` takes them: NumPy arrays or torch tensors in host memory. ``a[0]``
        couples the first row to the part before, ``c[m-1]`` the last row to the one behind.
    axis : int
        The system axis in the broadcast shape.
    where : boolean array
        Rows where it is False are taken out.

    Returns
    -------
    array
        r, of shape (6, \*batch). NaN for a system without certificate of plain elimination in these rows: it is to be
        solved whole.

    Raises
    ------
    ValueError, TypeError
        Shapes, axis, dtypes or libraries do not fit, there are no rows, or the arrays are not in host memory.

    Examples
    --------
    Two parts of one system, as if they lay in two places:

    >>> import numpy as np
    >>> from tridiag import parts, solve
    >>> a, b, c, d = np.ones(6), np.full(6, 4.0), np.ones(6), np.arange(6.0)
    >>> places = [slice(0, 2), slice(2, 6)]
    >>> told = [parts.reduce(a[k], b[k], c[k], d[k]) for k in places]
    >>> values = parts.join(np.stack(told))
    >>> x = [parts.finish(a[k], b[k], c[k], d[k], v) for k, v in zip(places, values)]
    >>> np.allclose(np.concatenate(x), solve(a, b, c, d))
    True

    Notes
    -----
    One sweep over the four arrays, which writes nothing as long as they (H. H. Wang, A parallel method for tridiagonal
    equations, 1981). A singular part is NaN: the system need not be singular.
    """
    return calls.reduce({"a": a, "b": b, "c": c, "d": d}, axis, where)


def join(ends: Array, *, periodic: bool = False) -> Array:
    r"""The unknowns at the ends of all parts, from what `reduce` has told of each.

    .. math:: x_{m-1} = r_0 + r_1 x_{-1} + r_2 x_m, \qquad x_0 = r_3 + r_4 x_{-1} + r_5 x_{m-1}

    for every part, where :math:`x_{-1}` is the last unknown of the part before and :math:`x_m` the first of the part
    behind.

    Parameters
    ----------
    ends : array
        (P, 6, \*batch): what `reduce` returned for parts 0 to P-1 of the same systems, stacked.
    periodic : bool
        Part 0 follows part P-1; otherwise ``a[0]`` of the first part and ``c[m-1]`` of the last do not count.

    Returns
    -------
    array
        (P, 4, \*batch): for each part the unknown before it, its first, its last, and the one behind it; 0 where there
        is none. NaN for systems that some part could not be reduced of, and for those that may be singular, but for
        rounding: they are to be solved whole.

    Raises
    ------
    ValueError, TypeError
        The shape or the dtype is not that of relations.

    Examples
    --------
    >>> import numpy as np
    >>> from tridiag import parts
    >>> told = parts.reduce(1.0, 4.0, 1.0, np.full((3, 2), 6.0))  # three parts of one system, two rows each
    >>> parts.join(told.T).round(4)
    array([[0.    , 1.2676, 0.9296, 1.0141],
           [0.9296, 1.0141, 1.0141, 0.9296],
           [1.0141, 0.9296, 1.2676, 0.    ]])

    Notes
    -----
    A tridiagonal system of the P last unknowns, solved by `tridiag.solve`.
    """
    return calls.join(ends, periodic)


def finish(
    a: Array, b: Array, c: Array, d: Array, values: Array, *, axis: int = -1, where: Array | None = None
) -> Array:
    r"""The unknowns of some rows of systems, from those at their ends.

    .. math:: a_i x_{i-1} + b_i x_i + c_i x_{i+1} = d_i, \qquad i = 0 \ldots m - 1

    Parameters
    ----------
    a, b, c, d, axis, where
        As `reduce` had them.
    values : array
        (4, \*batch): the unknown before the rows, the first, the last, and the one behind them, as `join` returns them.

    Returns
    -------
    array
        x of these rows, of the broadcast shape. NaN for systems that could not be joined, and for those whose rows at
        the ends of the part, or of the chunks that it is solved in, have a componentwise residual of more than 7 eps:
        they are to be solved whole.

    Raises
    ------
    ValueError, TypeError
        As `reduce`; or ``values`` has another shape.

    Examples
    --------
    >>> import numpy as np
    >>> from tridiag import parts
    >>> parts.finish(1.0, 4.0, 1.0, np.array([6.0, 6.0]), np.array([1.0, 1.0, 1.0, 1.0]))
    array([1., 1.])

    Notes
    -----
    Plain Thomas, whose row certificate `reduce` has found: what is in doubt are the rows at the ends alone.
    """
    return calls.finish({"a": a, "b": b, "c": c, "d": d}, values, axis, where)
