"""How wrong a result is, in eps."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def backward_errors(
    a: Array, b: Array, c: Array, d: Array, x: Array, axis: int, periodic: bool = False, by_rows: bool = True
) -> Array:
    """The componentwise backward error of each system (Oettli and Prager) in eps; residuals in double precision.

    Without ``by_rows`` residuals are measured by the largest row of a system: what partial pivoting alone keeps small.
    """
    double = np.promote_types(x.dtype, float)
    below, above = np.roll(x, 1, axis).astype(double), np.roll(x, -1, axis).astype(double)
    if not periodic:
        np.moveaxis(below, axis, 0)[0] = 0
        np.moveaxis(above, axis, 0)[-1] = 0
    residual, scale = d.astype(double), np.abs(d).astype(float)
    for coefficient, value in ((a, below), (b, x), (c, above)):
        term = coefficient * value
        residual -= term
        scale += np.abs(term)
    if not by_rows:
        scale = np.broadcast_to(scale.max(axis, keepdims=True, initial=0), scale.shape)
    error = np.divide(np.abs(residual), scale, out=np.zeros(d.shape), where=scale != 0)
    return error.max(axis) / np.finfo(x.dtype).eps


def relative_error(x: Any, wanted: Any) -> float:
    """The largest error in eps of the largest entry."""
    x = np.asarray(x)
    return float(np.abs(x - wanted).max() / np.abs(wanted).max() / np.finfo(x.dtype).eps)
