"""The verbs on arrays of xarray: axes by their names, in any order; coordinates, names and attributes stay.

Import this module, and every ``DataArray`` has the same verbs behind ``.tridiag``, as
``d.tridiag.solve(a, b, c, dim="z")``. Arguments are DataArrays, numbers, and 1-D arrays that lie along ``dim``. Arrays
of Dask inside of them stay lazy.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import xarray as xr

from tridiag import recurrences, systems
from tridiag.labels import Labels, sequence, without_axis

Array = Any
__all__ = [
    "TridiagAccessor",
    "linear_recurrence",
    "log_linear_recurrence",
    "logcumsumexp",
    "matmul",
    "slogdet",
    "solve",
]
UNLABELLED = "factor", "solve_block", "matrix_recurrence", "scan", "selective_scan", "smith_waterman"


def solve(
    a: Array, b: Array, c: Array, d: Array, *, dim: Hashable, where: Array | None = None, **options: Any
) -> Array:
    r"""Solve many tridiagonal systems along a dimension.

    .. math:: a_i x_{i-1} + b_i x_i + c_i x_{i+1} = d_i, \qquad i = 0 \ldots n - 1

    Parameters
    ----------
    a, b, c, d : DataArray, number or 1-D array
        As in `tridiag.solve`. Dimensions are matched by their names, in any order; what an argument lacks is shared,
        coefficients that lack ``dim`` are the same in all rows. 1-D arrays without names lie along ``dim``. At least
        one of the arguments is a DataArray.
    dim : hashable
        The dimension of the systems.
    where : DataArray or 1-D array of booleans
        Rows where it is False are taken out.
    **options
        ``backend``, ``pivoting``, ``periodic``, ``transpose``, ``check`` and ``overwrite_d`` of `tridiag.solve`.

    Returns
    -------
    DataArray
        x, with the dimensions of d before those that d lacks; coordinates, name and attributes are those of d. Lazy
        where an argument is.

    Raises
    ------
    ValueError
        Labels or lengths along a dimension differ; no argument has ``dim``, or d has other dimensions alone; another
        argument without ``dim`` has one of its length and nearly its name.
    SingularSystemError, BackendError, TypeError
        As `tridiag.solve`.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> import tridiag.xarray
    >>> d = xr.DataArray(np.full((3, 2), 2.0), dims=("z", "x"), coords={"z": [5.0, 15.0, 25.0]}, name="heat")
    >>> b = xr.DataArray([4.0, 5.0], dims="x")
    >>> x = tridiag.xarray.solve(-1.0, b, -1.0, d, dim="z")
    >>> x.dims, x.name, x.z.values
    (('z', 'x'), 'heat', array([ 5., 15., 25.]))
    >>> x.isel(x=0).values.round(4)
    array([0.7143, 0.8571, 0.7143])

    Notes
    -----
    No array is transposed or copied: the axis moves.
    """
    labels = Labels({"d": d, "a": a, "b": b, "c": c, "where": where}, dim)
    data, axis = labels.data, labels.axis
    x = systems.solve(
        data["a"], data["b"], data["c"], data["d"], where=data.get("where"), axis=axis, **without_axis(options)
    )
    return labels.named(x)


def matmul(
    a: Array, b: Array, c: Array, x: Array, *, dim: Hashable, where: Array | None = None, **options: Any
) -> Array:
    r"""Multiply tridiagonal matrices with vectors along a dimension.

    .. math:: y_i = a_i x_{i-1} + b_i x_i + c_i x_{i+1}

    Parameters
    ----------
    a, b, c, x, dim, where
        As in `tridiag.xarray.solve`.
    **options
        ``periodic`` and ``transpose`` of `tridiag.matmul`.

    Returns
    -------
    DataArray
        y, labelled as x.

    Raises
    ------
    ValueError, TypeError
        As `tridiag.xarray.solve`.

    Examples
    --------
    >>> import xarray as xr
    >>> import tridiag.xarray
    >>> tridiag.xarray.matmul(-1.0, 2.0, -1.0, xr.DataArray([1.0, 2.0, 4.0], dims="z"), dim="z").values
    array([ 0., -1.,  6.])

    Notes
    -----
    `tridiag.matmul` along the axis of that name.
    """
    labels = Labels({"x": x, "a": a, "b": b, "c": c, "where": where}, dim)
    data, axis = labels.data, labels.axis
    y = systems.matmul(
        data["a"], data["b"], data["c"], data["x"], where=data.get("where"), axis=axis, **without_axis(options)
    )
    return labels.named(y)


def slogdet(
    a: Array, b: Array, c: Array, *, dim: Hashable, where: Array | None = None, **options: Any
) -> tuple[Array, Array]:
    r"""Sign and logarithm of the absolute value of the determinants of tridiagonal matrices along a dimension.

    .. math:: \det A = \mathrm{sign} \cdot \exp(\mathrm{logabsdet})

    Parameters
    ----------
    a, b, c, dim, where
        As in `tridiag.xarray.solve`.
    **options
        ``periodic`` and ``backend`` of `tridiag.slogdet`.

    Returns
    -------
    sign, logabsdet : DataArray
        Of those names, without ``dim``.

    Raises
    ------
    ValueError, TypeError
        As `tridiag.xarray.solve`.

    Examples
    --------
    >>> import xarray as xr
    >>> import tridiag.xarray
    >>> b = xr.DataArray([[2.0, 2.0], [3.0, 3.0]], dims=("z", "x"), coords={"x": [7, 8]})
    >>> sign, logabsdet = tridiag.xarray.slogdet(1.0, b, 1.0, dim="z")
    >>> logabsdet.dims, logabsdet.values.round(4)
    (('x',), array([1.6094, 1.6094]))

    Notes
    -----
    `tridiag.slogdet` along the axis of that name.
    """
    labels = Labels({"b": b, "a": a, "c": c, "where": where}, dim, right_side=False)
    data = labels.data
    sign, logarithm = systems.slogdet(
        data["a"], data["b"], data["c"], where=data.get("where"), axis=labels.axis, **without_axis(options)
    )
    return labels.reduced(sign, "sign"), labels.reduced(logarithm, "logabsdet")


def linear_recurrence(
    a: Array | tuple[Array, ...],
    x: Array,
    init: Array | tuple[Array, ...] | None = None,
    *,
    dim: Hashable,
    **options: Any,
) -> Array:
    r"""Run many linear recurrences along a dimension.

    .. math:: y_t = \sum_{k=1}^{p} a_{k,t} \, y_{t-k} + x_t, \qquad t = 0 \ldots n - 1

    Parameters
    ----------
    a : DataArray, number or 1-D array, or a tuple of them
        The coefficients, as in `tridiag.linear_recurrence`; dimensions are matched by their names.
    x : DataArray, number or 1-D array
        What is added in every step.
    init : DataArray or number, or a tuple of them
        The values before the first step: without ``dim``.
    dim : hashable
        The dimension of the steps.
    **options
        ``reverse``, ``return_final`` and ``backend`` of `tridiag.linear_recurrence`.

    Returns
    -------
    DataArray, or (DataArray, final)
        y, labelled as x. ``final``, a DataArray or a tuple of them, is without ``dim``.

    Raises
    ------
    ValueError, TypeError
        As `tridiag.xarray.solve`.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> import tridiag.xarray
    >>> tridiag.xarray.linear_recurrence(0.5, xr.DataArray(np.ones(4), dims="time"), dim="time").values
    array([1.   , 1.5  , 1.75 , 1.875])

    Notes
    -----
    `tridiag.linear_recurrence` along the axis of that name.
    """
    return sequence(recurrences.linear_recurrence, {"x": x, "a": a}, init, dim, without_axis(options))


def log_linear_recurrence(log_a: Array, x: Array, init: Array | None = None, *, dim: Hashable, **options: Any) -> Array:
    r"""Run many first-order recurrences of positive numbers, given as their logarithms, along a dimension.

    .. math:: y_t = \log(\exp(\log a_t + y_{t-1}) + \exp(x_t)), \qquad t = 0 \ldots n - 1

    Parameters
    ----------
    log_a, x, init, dim
        As in `tridiag.xarray.linear_recurrence`.
    **options
        ``reverse``, ``return_final`` and ``backend`` of `tridiag.log_linear_recurrence`.

    Returns
    -------
    DataArray, or (DataArray, final)
        y, labelled as x, and the last value without ``dim``.

    Raises
    ------
    ValueError, TypeError
        As `tridiag.xarray.solve`.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> import tridiag.xarray
    >>> x = xr.DataArray(np.zeros(4), dims="time")
    >>> np.exp(tridiag.xarray.log_linear_recurrence(np.log(0.5), x, dim="time")).values
    array([1.   , 1.5  , 1.75 , 1.875])

    Notes
    -----
    `tridiag.log_linear_recurrence` along the axis of that name.
    """
    return sequence(recurrences.log_linear_recurrence, {"x": x, "log_a": log_a}, init, dim, without_axis(options))


def logcumsumexp(x: Array, *, dim: Hashable, **options: Any) -> Array:
    r"""The logarithm of the cumulative sum of exponentials along a dimension.

    .. math:: y_t = \log \sum_{s \le t} \exp(x_s)

    Parameters
    ----------
    x : DataArray
        Logarithms.
    dim : hashable
        The dimension of the sum.
    **options
        ``reverse`` and ``backend`` of `tridiag.logcumsumexp`.

    Returns
    -------
    DataArray
        y, labelled as x.

    Raises
    ------
    ValueError, TypeError
        As `tridiag.xarray.solve`.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> import tridiag.xarray
    >>> x = xr.DataArray(np.log([1.0, 2.0, 3.0]), dims="time")
    >>> np.exp(tridiag.xarray.logcumsumexp(x, dim="time")).values
    array([1., 3., 6.])

    Notes
    -----
    `tridiag.logcumsumexp` along the axis of that name.
    """
    return sequence(recurrences.logcumsumexp, {"x": x}, None, dim, without_axis(options))


def __getattr__(name: str) -> Any:
    raise AttributeError(f"module 'tridiag.xarray' has no attribute {name!r}{instead(name)}")


def instead(name: str) -> str:
    """What to do for a verb that is not for labelled arrays."""
    if name not in UNLABELLED:
        return ""
    verbs = ", ".join(verb for verb in __all__ if verb[0].islower())
    return (
        f"; by labels there are {verbs}. Call tridiag.{name} with the .data of each array, dimensions in one order; "
        "axis is d.get_axis_num(dim)"
    )


@xr.register_dataarray_accessor("tridiag")
class TridiagAccessor:
    """The verbs of `tridiag.xarray` behind a DataArray, which is their d or x.

    Examples
    --------
    >>> import numpy as np, xarray as xr
    >>> import tridiag.xarray
    >>> d = xr.DataArray(np.full(3, 2.0), dims="z")
    >>> d.tridiag.solve(-1.0, 4.0, -1.0, dim="z").values.round(4)
    array([0.7143, 0.8571, 0.7143])
    """

    def __init__(self, array: Array) -> None:
        self.array = array

    def __getattr__(self, name: str) -> Any:
        meant = f"; call tridiag.xarray.{name}, of the diagonals" if name in __all__ else instead(name)
        raise AttributeError(f"DataArray.tridiag has no attribute {name!r}{meant}")

    def solve(self, a: Array, b: Array, c: Array, *, dim: Hashable, **options: Any) -> Array:
        """x of systems whose right sides these are: `tridiag.xarray.solve`."""
        return solve(a, b, c, self.array, dim=dim, **options)

    def matmul(self, a: Array, b: Array, c: Array, *, dim: Hashable, **options: Any) -> Array:
        """Tridiagonal matrices times these vectors: `tridiag.xarray.matmul`."""
        return matmul(a, b, c, self.array, dim=dim, **options)

    def linear_recurrence(self, a: Array, init: Array | None = None, *, dim: Hashable, **options: Any) -> Array:
        """Recurrences to which this is added in every step: `tridiag.xarray.linear_recurrence`."""
        return linear_recurrence(a, self.array, init, dim=dim, **options)

    def log_linear_recurrence(self, log_a: Array, init: Array | None = None, *, dim: Hashable, **options: Any) -> Array:
        """As `linear_recurrence`, of logarithms: `tridiag.xarray.log_linear_recurrence`."""
        return log_linear_recurrence(log_a, self.array, init, dim=dim, **options)

    def logcumsumexp(self, *, dim: Hashable, **options: Any) -> Array:
        """The logarithm of the cumulative sum of exponentials of this: `tridiag.xarray.logcumsumexp`."""
        return logcumsumexp(self.array, dim=dim, **options)
