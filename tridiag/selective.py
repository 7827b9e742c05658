"""Selective scans: prepare the arguments, choose a backend, run it, restore the caller's dtype."""

from __future__ import annotations

from typing import Any

from numpy import ndarray

from tridiag.calls import fast_path
from tridiag.calls.checks import check_flag
from tridiag.calls.fast_path.selective import SCANS
from tridiag.calls.selective import prepare, run
from tridiag.calls.torch_compile import compiling, graph
from tridiag.problems.selective import Operands

Array = Any


@SCANS.entered("x", "a", "x", "B", "C", "step", "init", "out", "axis", "reverse", "return_final", "backend")
def selective_scan(
    a: Array,
    x: Array,
    B: Array,
    C: Array,
    init: Array | None = None,
    *,
    step: Array | None = None,
    axis: int = -1,
    reverse: bool = False,
    return_final: bool = False,
    backend: str = "auto",
    out: Array | None = None,
) -> Array:
    r"""Run linear recurrences with several states each, and return what is read from the states, which are not stored.

    .. math::
       h_t = a_t \, h_{t-1} + B_t \, x_t, \qquad y_t = \sum_{\mathrm{states}} C_t \, h_t

    With ``step`` the recurrence is a differential equation that was discretised, as in Mamba:

    .. math:: h_t = \exp(step_t \, a_t) \, h_{t-1} + step_t \, B_t \, x_t

    Parameters
    ----------
    a, B, C : array
        What multiplies the states, the input, and the states where they are read: (..., states), the axes before the
        last broadcast against those of ``x`` as in NumPy. Nothing is copied out to full size: with channels along the
        last axis of ``x``, ``a`` of shape (channels, states) holds for all steps, ``B`` and ``C`` of (batch, n, 1,
        states) for all channels. A number is one for all.
    x : array
        The input, (..., n) or with its steps along another axis; 1-D it lies along ``axis``. float32, float64,
        complex64, complex128; integers promote to such.
    init : array
        The states before the first step: the shape of the result without ``axis``, and the states last, or a shape that
        broadcasts to it. None: they are 0, and the coefficients that would multiply them are never read.
    step : array
        The size of each step, of axes as those of ``x``.
    axis : int
        The axis of the steps in the result, which has no axis of states.
    reverse : bool
        Begin with the last row.
    return_final : bool
        Return the last states as well, as ``init`` takes them.
    backend : str
        "auto", a name of `tridiag.backends`, or a library ("jax"). A named backend runs or raises.
    out : array
        Takes the result; it may not overlap an argument. Not with JAX arrays.

    Returns
    -------
    array, or (array, final)
        y, of the broadcast shape of all arguments without their states, in their library and on their device.

    Raises
    ------
    BackendError
        The backend named cannot run this problem, or no such backend exists.
    ValueError, TypeError
        Shapes, axis, dtypes, libraries or ``out`` do not fit.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> tridiag.selective_scan(np.array([0.5, 0.0]), np.ones(4), 1.0, np.array([1.0, 10.0]))
    array([11.   , 11.5  , 11.75 , 11.875])

    Notes
    -----
    Gu and Dao (2023), "Mamba", algorithm 2. Where x, B and C are float16 or bfloat16, so is the result, with ``a`` and
    ``step`` of float32 too: all is computed, and the last states are returned, in float32; results are rounded once.
    Memory holds the arguments, the result, and the states of one step (of some, where it is not compiled). Gradients in
    JAX and PyTorch keep those of about 2 sqrt(n) steps, or of every 64th one where they are compiled, and compute the
    others again; second derivatives and those taken forward in PyTorch keep them all. Products of coefficients are
    never formed.
    """
    if type(x) is ndarray:
        y = SCANS.call(a, x, B, C, step, init, out, axis, reverse, return_final, backend)
        if y is not None:
            return y
    check_flag("return_final", return_final)
    given = Operands(a, x, B, C, step, init)._asdict()
    if compiling(*given.values()):
        options = {"axis": axis, "reverse": reverse, "return_final": return_final, "backend": backend, "out": out}
        return graph().outside(selective_scan, a, x, B, C, init, step=step, **options)
    if (short := fast_path.of_tensors("selective_scan", x)) is not None:
        y = short(*given.values(), out, axis, reverse, return_final, backend)
        if y is not None:
            return y
    arguments = {name: value for name, value in given.items() if value is not None or name in ("a", "x", "B", "C")}
    return run(prepare(arguments, axis=axis, reverse=reverse, backend=backend), arguments, out, return_final)
