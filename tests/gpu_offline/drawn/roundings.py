"""Whether sequences are their definition, followed in extended precision, but for what rounding can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import test_logarithms
import test_matrix_recurrence
import test_recurrences
from helpers import REAL

from drawn import Array
from tridiag.backends import BACKENDS

if TYPE_CHECKING:
    from drawn.sequences import Call


def followed(call: Call, given: list[Array], init: list[Array]) -> Array:
    """The definition, in extended precision."""
    *a, x = given
    if call.rows:
        return test_matrix_recurrence.oracle(a[0], x, init[0] if init else None, reverse=call.reverse)
    return test_recurrences.oracle(tuple(a), x, tuple(init) or None, reverse=call.reverse)


def judge_linear(call: Call, given: list[Array], init: list[Array], y: Array) -> Array:
    """The largest distance of each sequence over what roundings of all terms can do to it: a few for every step."""
    real = np.finfo(REAL.get(call.dtype, call.dtype))
    terms, count = call.order * max(1, call.rows), len(y)
    with np.errstate(all="ignore"):
        right = followed(call, given, init)
        sizes, begin = (
            [abs(v.astype(np.clongdouble if v.dtype.kind == "c" else np.longdouble)) for v in given],
            [abs(v) for v in init],
        )
        size = followed(call, sizes, begin)
        rounded = (1 + terms) * real.eps * size + 4 * real.tiny  # in each step, and carried on by all that follow
        allowed = followed(call, [*sizes[:-1], rounded], []) + 2 * real.eps * size
        allowed *= 2 if y.dtype.kind == "c" else 1
        held = gone_before(call, size < real.max / 8, np.logical_and)
        error = np.where(abs(y - right) == 0, 0, abs(y - right) / allowed)
        error = np.where(held, error, 0)
        lost = ~np.isfinite(right)
        error = np.where(lost, np.where(np.isfinite(y) & lost_by_input(call, given, lost), np.inf, 0), error)
        error = np.where(np.isnan(error), np.inf, error)
    return error.reshape(count, -1).max(1).astype(float)


def gone_before(call: Call, x: Array, function: Any) -> Array:
    """Of each step and all that it follows from."""
    turn = slice(None, None, -1) if call.reverse else slice(None)
    found = function.accumulate(x[:, turn], 1)[:, turn]
    return np.broadcast_to(function.reduce(found, -1, keepdims=True), x.shape) if call.rows else found


def lost_by_input(call: Call, given: list[Array], lost: Array) -> Array:
    """Where something that is not finite was given, or what NaN of the dtype's own cannot be."""
    some = [~np.isfinite(v.reshape(len(lost), -1)).all(1) for v in given]
    return np.any(some, 0).reshape(-1, *[1] * (lost.ndim - 1)) & lost


def judge_logarithms(call: Call, given: list[Array], init: list[Array], y: Array) -> Array:
    """As `judge_linear`; sums of exponentials within the units in the last place that the table of backends has."""
    *log_a, x = given
    info = np.finfo(call.dtype)
    with np.errstate(all="ignore"):
        begin = init[0] if init else None
        right = test_logarithms.oracle(x, log_a[0] if log_a else None, begin, reverse=call.reverse)
        if log_a:
            allowed = info.eps * (4 * np.maximum(1, abs(right)) + 4 * gathered(call, log_a[0], right, begin))
        else:
            allowed = BACKENDS["cupy_scan"].units * np.spacing(np.maximum(1, abs(right)).astype(call.dtype))
        error = abs(y - right) / allowed
        error = np.where(y == right, 0, error)
        error = np.where(np.isnan(right), np.where(np.isnan(y), 0, np.inf), error)
        error = np.where(np.isnan(error) & ~np.isnan(right), np.inf, error)
        error = np.where(abs(right) > info.max / 8, np.where(np.isinf(right) & (y != right), np.inf, 0), error)
    return error.max(1).astype(float)


def gathered(call: Call, log_a: Array, y: Array, init: Any) -> Array:
    """What the rounding of all steps, in units, can do: a step forgets what its input outweighs."""
    turn = slice(None, None, -1) if call.reverse else slice(None)
    log_a, y = log_a[:, turn], y[:, turn]
    first = np.full((len(y), 1), -np.inf) if init is None else init[:, None]
    moved = log_a + np.concatenate((first, y[:, :-1]), 1)
    weight = np.where(np.isfinite(moved) & np.isfinite(y), np.exp(np.minimum(0, moved - y)), 0)
    sizes = np.where(np.isfinite(moved), abs(log_a) + abs(moved), 0)
    return test_recurrences.oracle((weight,), weight * sizes)[:, turn]
