"""The verbs on recurrences: prepare the arguments, choose a backend, run it, restore the caller's dtype."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy import ndarray

from tridiag.backends import not_installed
from tridiag.calls import fast_path, outputs, split
from tridiag.calls.checks import check_axis, check_flag
from tridiag.calls.execute import last, recurrence
from tridiag.calls.fast_path.recurrences import OF_LOGARITHMS, OF_MATRICES, OF_NUMBERS, OF_SUMS
from tridiag.calls.sequences import PREPARERS
from tridiag.calls.torch_compile import compiling, graph
from tridiag.chunked import chunked, is_chunked
from tridiag.problems.forms import normalise_axis

Array = Any


@OF_NUMBERS.entered("x", "a", "x", "init", "out", "axis", "reverse", "return_final", "backend")
def linear_recurrence(
    a: Array | tuple[Array, ...],
    x: Array,
    init: Array | tuple[Array, ...] | None = None,
    *,
    axis: int = -1,
    reverse: bool = False,
    return_final: bool = False,
    backend: str = "auto",
    out: Array | None = None,
    axis_name: str | tuple[str, ...] | None = None,
) -> Array:
    r"""Run many linear recurrences at once.

    .. math:: y_t = \sum_{k=1}^{p} a_{k,t} \, y_{t-k} + x_t, \qquad t = 0 \ldots n - 1

    Parameters
    ----------
    a : array or tuple of arrays
        The coefficient of the value before; a tuple of p arrays makes the recurrence one of order p, the coefficient of
        the latest value first (a list of arrays raises: it could be meant for that, or for a batch). They broadcast
        against ``x`` as in `tridiag.solve`: a 1-D argument lies along ``axis``, and what is constant along an axis is
        not copied out.
    x : array
        What is added in every step. float32, float64, complex64, complex128; float16 and bfloat16 compute in float32.
        Where all arguments are integers so is the result, as in the ``cumsum`` of their library: int64 or uint64 from
        NumPy, int64 from PyTorch, their own dtype from JAX. It is exact, and wraps around beyond
        the range. Those of CuPy become float64.
    init : array or tuple of arrays
        The value before the first step, or the p values, the latest first: of the shape of the result without ``axis``,
        or of one that broadcasts to it. None: they are 0, and the coefficients that would multiply them are never read.
    axis : int
        The axis of the recurrence in the broadcast shape.
    reverse : bool
        Begin with the last row: the value before y[t] is y[t+1].
    return_final : bool
        Return the last value computed as well, or the tuple of the last p, as ``init`` takes them.
    backend : str
        "auto", a name of `tridiag.backends`, or a library ("jax"). A named backend runs or raises.
    out : array
        Takes the result; it may not overlap an argument. Not with JAX arrays.
    axis_name : str or tuple of str
        Inside `jax.shard_map`, the axes of the mesh along which the rows of sequences are spread: every device passes
        as many rows, in the order of the devices, and gets y of these. ``init`` is the same on all, and so is what
        ``return_final`` returns. Arrays that are sharded along ``axis`` outside of `jax.shard_map` need nothing.

    Returns
    -------
    array, or (array, final)
        y, of the broadcast shape of ``a`` and ``x``, in the library and on the device of the arguments.

    Raises
    ------
    BackendError
        The backend named cannot run this problem, or no such backend exists.
    ValueError, TypeError
        Shapes, axis, dtypes, libraries or ``out`` do not fit.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> tridiag.linear_recurrence(0.5, np.ones(4))
    array([1.   , 1.5  , 1.75 , 1.875])
    >>> fibonacci, final = tridiag.linear_recurrence((1.0, 1.0), np.zeros(8), (1.0, 0.0), return_final=True)
    >>> fibonacci
    array([ 1.,  2.,  3.,  5.,  8., 13., 21., 34.])

    Notes
    -----
    Finite where the sequence is, also where products of its coefficients overflow.
    """
    if axis_name is None and type(x) is ndarray:
        y = OF_NUMBERS.call(a, x, init, out, axis, reverse, return_final, backend)
        if y is not None:
            return y
    given = {"a": a, "x": x, "init": init}
    return computed(
        "linear_recurrence", given, return_final, out, axis_name, axis=axis, reverse=reverse, backend=backend
    )


@OF_LOGARITHMS.entered("x", "log_a", "x", "init", "out", "axis", "reverse", "return_final", "backend")
def log_linear_recurrence(
    log_a: Array,
    x: Array,
    init: Array | None = None,
    *,
    axis: int = -1,
    reverse: bool = False,
    return_final: bool = False,
    backend: str = "auto",
    out: Array | None = None,
    axis_name: str | tuple[str, ...] | None = None,
) -> Array:
    r"""Run many first-order recurrences of positive numbers, given and returned as their logarithms.

    .. math:: y_t = \log(\exp(\log a_t + y_{t-1}) + \exp(x_t)), \qquad t = 0 \ldots n - 1

    Parameters
    ----------
    log_a : array
        The logarithm of the coefficient of the value before. It broadcasts against ``x`` as in `linear_recurrence`.
    x : array
        The logarithm of what is added in every step. float32, float64; float16 and bfloat16 compute in float32;
        integers promote as in the library of the arrays (NumPy, JAX or PyTorch).
    init : array
        y before the first step. None: -inf, and the coefficient that would multiply it is never read.
    axis, reverse, return_final, backend, out, axis_name
        As in `linear_recurrence`.

    Returns
    -------
    array, or (array, final)
        y, of the broadcast shape of ``log_a`` and ``x``, in the library and on the device of the arguments.

    Raises
    ------
    BackendError
        The backend named cannot run this problem, or no such backend exists.
    ValueError, TypeError
        Shapes, axis, dtypes, libraries or ``out`` do not fit.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> np.exp(tridiag.log_linear_recurrence(np.log(0.5), np.zeros(4)))
    array([1.   , 1.5  , 1.75 , 1.875])

    Notes
    -----
    Nothing overflows, and no rounding piles up over the steps. Infinities and NaN are as in the definition, where -inf
    is the logarithm of 0. Derivatives are those of one linear recurrence with coefficients between 0 and 1; where y is
    infinite they are 0, and where it is NaN they are NaN, even of a loss that does not read y there.
    """
    if axis_name is None and type(x) is ndarray and log_a is not None:
        y = OF_LOGARITHMS.call(log_a, x, init, out, axis, reverse, return_final, backend)
        if y is not None:
            return y
    given = {"log_a": log_a, "x": x, "init": init}
    return computed(
        "log_linear_recurrence", given, return_final, out, axis_name, axis=axis, reverse=reverse, backend=backend
    )


@OF_SUMS.entered("x", None, "x", None, "out", "axis", "reverse", False, "backend")
def logcumsumexp(
    x: Array,
    *,
    axis: int = -1,
    reverse: bool = False,
    backend: str = "auto",
    out: Array | None = None,
    axis_name: str | tuple[str, ...] | None = None,
) -> Array:
    r"""The logarithm of the cumulative sum of exponentials.

    .. math:: y_t = \log \sum_{s \le t} \exp(x_s)

    Parameters
    ----------
    x : array
        float32, float64, complex64, complex128; float16 and bfloat16 compute in float32; integers promote as in the
        library of the array (NumPy, JAX or PyTorch), booleans raise. An array without axes is its own sum.
    axis : int
        The axis of the sum.
    reverse : bool
        Sum from the last row on.
    backend : str
        "auto", a name of `tridiag.backends`, or a library ("jax"). A named backend runs or raises.
    out : array
        Takes the result; it may not overlap ``x``. Not with JAX arrays.
    axis_name : str or tuple of str
        Inside `jax.shard_map`, as in `linear_recurrence`.

    Returns
    -------
    array
        y, of the shape of ``x``, in its library and on its device.

    Raises
    ------
    BackendError
        The backend named cannot run this problem, or no such backend exists.
    ValueError, TypeError
        Axis, dtype, library or ``out`` do not fit.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> np.exp(tridiag.logcumsumexp(np.log([1.0, 2.0, 3.0])))
    array([1., 3., 6.])
    >>> tridiag.logcumsumexp([-np.inf, 1e300, 0.0])
    array([   -inf, 1.e+300, 1.e+300])

    Notes
    -----
    The error is a unit or two in the last place of max(1, abs(y)), over any number of terms. Infinities, NaN and
    derivatives are as in `log_linear_recurrence`. A sum that goes on from chunk to chunk is
    ``log_linear_recurrence(0.0, x, init, return_final=True)``, of real numbers.

    Of complex numbers the logarithm is principal, with imaginary parts from -pi to pi, where PyTorch may differ by
    multiples of 2 pi. The error is a unit or two times what cancels, sum(abs(exp(x))) / abs(sum(exp(x))). Sequences
    are to be whole in one place. A sum goes on where the last value of a chunk stands before the first of the next.
    """
    if axis_name is None and type(x) is ndarray and x.ndim:
        y = OF_SUMS.call(None, x, None, out, axis, reverse, False, backend)
        if y is not None:
            return y
    if getattr(x, "ndim", 1) == 0 and axis_name is None:
        normalise_axis(check_axis(axis), 1)
        whole = None if out is None else out.reshape(1)
        y = logcumsumexp(x.reshape(1), reverse=reverse, backend=backend, out=whole).reshape(())
        return y if out is None else out
    return computed("logcumsumexp", {"x": x}, False, out, axis_name, axis=axis, reverse=reverse, backend=backend)


@OF_MATRICES.entered("x", "A", "x", "init", "out", -2, "reverse", "return_final", "backend")
def matrix_recurrence(
    A: Array,
    x: Array,
    init: Array | None = None,
    *,
    reverse: bool = False,
    return_final: bool = False,
    backend: str = "auto",
    out: Array | None = None,
    axis_name: str | tuple[str, ...] | None = None,
) -> Array:
    r"""Run many linear recurrences of small vectors at once.

    .. math:: y_t = A_t \, y_{t-1} + x_t, \qquad t = 0 \ldots n - 1

    Parameters
    ----------
    A : array
        The matrices, (..., n, m, m), compiled for m up to 16. The axes before the last two broadcast against those of
        ``x`` before its last, as in NumPy: a matrix for all steps is (m, m), one for each sequence (..., 1, m, m).
    x : array
        What is added in every step, (..., n, m). dtypes as in `tridiag.linear_recurrence`.
    init : array
        The vector before the first step, (..., m). None: it is 0, and the first matrix is never read.
    reverse : bool
        Begin with the last row: the vector before y[t] is y[t+1].
    return_final : bool
        Return the last vector computed as well.
    backend : str
        "auto", a name of `tridiag.backends`, or a library ("jax"). A named backend runs or raises.
    out : array
        Takes the result; it may not overlap an argument. Not with JAX arrays.
    axis_name : str or tuple of str
        Inside `jax.shard_map`, as in `linear_recurrence`.

    Returns
    -------
    array, or (array, final)
        y, (..., n, m), in the library and on the device of the arguments.

    Raises
    ------
    BackendError
        The backend named cannot run this problem, or no such backend exists.
    ValueError, TypeError
        Shapes, dtypes, libraries or ``out`` do not fit.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> quarter_turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    >>> tridiag.matrix_recurrence(quarter_turn, np.zeros((4, 2)), np.array([1.0, 0.0]))
    array([[ 0.,  1.],
           [-1.,  0.],
           [ 0., -1.],
           [ 1.,  0.]])

    Notes
    -----
    2 m^2 flops a step, in n steps; `jax_associative`: in logarithmic depth with m times as many. Finite where the
    sequence is, also where products of its matrices overflow.
    """
    if axis_name is None and type(x) is ndarray and A is not None:
        y = OF_MATRICES.call(A, x, init, out, -2, reverse, return_final, backend)
        if y is not None:
            return y
    given = {"A": A, "x": x, "init": init}
    return computed("matrix_recurrence", given, return_final, out, axis_name, reverse=reverse, backend=backend)


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    *,
    axis: Any = 0,
    out_axis: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    r"""`jax.lax.scan` over any axis.

    .. math:: (c_{t+1}, y_t) = f(c_t, x_t), \qquad t = 0 \ldots n - 1

    Parameters
    ----------
    f : function
        From the carry and a row of every input to the next carry and a row of every result, as `jax.lax.scan` has it.
    init : pytree of arrays
        The carry before the first step.
    xs : pytree of arrays
        The inputs: JAX arrays, or NumPy arrays as JAX takes them. None: there are none, and ``length`` is needed.
    axis : int, or pytree of int
        The axis of the steps in every input: one for all, or a tree of the structure of ``xs`` or of its beginning.
    out_axis : int, or pytree of int
        The same of the results, where the axis is put in. None: as ``axis`` where that is one integer, else 0.
    length : int
        The number of steps, where no input tells it.
    reverse : bool
        Begin with the last row.
    unroll : int or bool
        As `jax.lax.scan`.

    Returns
    -------
    carry, ys
        The last carry, and the results of all steps, each in the place of its row.

    Raises
    ------
    ValueError, TypeError
        Lengths that differ, an axis out of range, arrays of another library; what `jax.lax.scan` raises.
    ImportError
        JAX is not installed.

    Examples
    --------
    >>> import jax.numpy as jnp, tridiag
    >>> x = jnp.arange(6.0).reshape(2, 3)
    >>> total, sums = tridiag.scan(lambda total, row: (total + row, total + row), jnp.zeros(2), x, axis=-1)
    >>> print(sums)
    [[ 0.  1.  3.]
     [ 3.  7. 12.]]

    Notes
    -----
    n steps, one after another. Under `jax.jit` rows are read where they lie; results are stacked, and moved once at the
    end. The gradient takes time in proportion to n.
    """
    if reason := not_installed("jax"):
        raise ImportError(f"tridiag.scan runs in JAX, and {reason}")
    from tridiag.calls import jax_scan

    return jax_scan.scan(f, init, xs, axis, out_axis, length, reverse, unroll)


def computed(
    verb: str, given: dict[str, Any], return_final: bool, out: Any, axis_name: Any = None, **options: Any
) -> Any:
    """A verb on recurrences: prepare its arguments, run it, and return its last values if they are wanted."""
    check_flag("return_final", return_final)
    if axis_name is not None:
        return split.recurrence(verb, given, return_final, out, options, axis_name)
    if compiling(*given.values()):
        return graph().recurrence(verb, given, return_final, out, options)
    way = "recurrence_and_final" if return_final else "recurrence"
    if (short := fast_path.of_tensors(way, given["x"])) is not None:
        y = short(verb, given, out, **options)
        if y is not None:
            return y
    if verb != "matrix_recurrence" and is_chunked(*given.values()):
        return in_chunks(verb, given, return_final, out, options)
    arguments, call = PREPARERS[verb](verb, **given, **options)
    y = recurrence(verb, call, outputs.target(call, arguments, out, False))
    return (y, last(verb, call, y, given)) if return_final else y


def in_chunks(verb: str, given: dict[str, Any], return_final: bool, out: Any, options: dict[str, Any]) -> Any:
    """A verb on recurrences of Dask arrays."""
    verbs = {
        "linear_recurrence": linear_recurrence,
        "log_linear_recurrence": log_linear_recurrence,
        "logcumsumexp": logcumsumexp,
    }
    return chunked("sequences").recurrence(verbs[verb], given, return_final, out, **options)
