"""Cases of recurrences along any axis, linear and of logarithms."""

from __future__ import annotations

from typing import Any

import numpy as np

import tridiag
from guarded import Ran, scratch
from guarded.draw import DTYPES, HALVES, Draw, in_numpy
from guarded.oracles import EPS, HUGE, TINY, Array, log_recurrence, real_of, recurrence
from guarded.systems import lie, rows_last
from tridiag.backends import BACKENDS, Problem

VERBS = ("linear_recurrence",) * 5 + ("log_linear_recurrence", "log_linear_recurrence", "logcumsumexp", "logcumsumexp")
ORDERS = (1, 1, 1, 1, 2, 2, 2, 3, 4)
ROWS_IN_PYTHON = 150


def run(draw: Draw, library: str) -> Ran:
    verb = draw.choose("verb of sequences", VERBS)
    linear = verb == "linear_recurrence"
    dtype = draw.choose("dtype", DTYPES if linear else ("float64", "float32"))
    dtype = draw.half(library, dtype)
    order = draw.choose("order", ORDERS, "options") if linear else 1
    n, batch = draw.sizes()
    axis = draw.axis(len(batch) + 1)
    full = (*batch[:axis], n, *batch[axis:])
    reverse = draw.chance("reverse", 0.3, "options")
    final = draw.chance("final", 0.2, "options") and verb != "logcumsumexp"
    started = draw.chance("init", 0.4, "options") and verb != "logcumsumexp"
    x, coefficients = inputs(draw, verb, full, axis, order, dtype)
    init = starts(draw, full, axis, order, dtype) if started else []
    spoil(draw, verb, x, coefficients, axis, reverse, started, order)
    if dtype not in HALVES and draw.chance("whole numbers", 0.04, "numbers"):
        x = integers(draw, x, dtype, library, verb)
    wide = [np.broadcast_to(v, full) for v in (*coefficients, x)]
    given = []
    for k, a in enumerate(coefficients):
        constant = tuple(i for i, length in enumerate(full) if a.shape[i] == 1 and length > 1)
        shown = lie(draw, f"a{k + 1}", a, full, axis, constant)
        if not isinstance(shown, np.ndarray) and x.dtype.kind == "i" and (library, dtype) != ("numpy", "float64"):
            shown = a  # a number of Python would leave the dtype to the integers
        constant = constant if isinstance(shown, np.ndarray) and shown.shape == full else ()
        given.append(draw.operand(f"a{k + 1}", shown, library, constant))
    taken = draw.operand("x", x, library)
    values = [draw.operand(f"y[{-1 - k}]", v, library) for k, v in enumerate(init)]
    options: dict[str, Any] = {
        "axis": axis - (len(full) if draw.chance("negative axis", 0.5) else 0),
        "reverse": reverse,
    }
    names = able(verb, library, "float32" if dtype in HALVES else dtype, full, axis, order)
    options["backend"] = draw.choose("backend", names)
    out = None
    if draw.chance("out", 0.6):
        out, _ = draw.output("out", full, dtype, library)
        options["out"] = out
    draw.words.insert(
        0,
        f"{verb} {library} order {order} shape {list(full)} init={started} final={final} "
        f"{options | {'out': out is not None}}",
    )
    with scratch.arrays(options["backend"]):
        y, last = call(verb, given, taken, values, final, options)
    if out is not None and y is not out:
        raise AssertionError("the result is not the array that was given for it")
    y, last = in_numpy(y), [in_numpy(v) for v in last]
    if y.dtype != dtype or y.shape != full:
        raise AssertionError(f"the result is {y.dtype}{y.shape}, not {dtype}{full}")
    draw.finish()
    check(verb, y, last, wide, init, axis, reverse, order)
    return Ran(verb, library, systems=y.size // n)


def inputs(
    draw: Draw, verb: str, full: tuple[int, ...], axis: int, order: int, dtype: str
) -> tuple[Array, list[Array]]:
    """x, and coefficients, which may be constant along axes."""
    rng, stream = draw.values, draw.stream("numbers")
    shapes = []
    for _ in range(0 if verb == "logcumsumexp" else order):
        drop = [k for k in range(len(full)) if stream.random() < 0.2 and "broadcast" not in draw.drop]
        shapes.append(tuple(1 if k in drop else length for k, length in enumerate(full)))
    if verb != "linear_recurrence":
        spread = stream.choice((0.5, 3.0, 30.0, 300.0)) if "numbers" not in draw.drop else 1.0
        x = rng.normal(scale=spread, size=full).astype(dtype)
        coefficients = [rng.normal(-0.1, 1.0, s).astype(dtype) for s in shapes]
        for v in (x, *coefficients):
            if draw.chance("zeros", 0.15, "planted"):  # whose logarithm is -inf
                v[rng.random(v.shape) < 0.1] = -np.inf
        return x, coefficients
    reach = stream.choice((0.5, 0.9, 1.0, 1.0, 1.3)) if "numbers" not in draw.drop else 0.5
    kind = np.dtype(dtype).kind
    made = [rng.uniform(-reach, reach, s) / order for s in shapes]
    x = rng.normal(size=full)
    if kind == "c":
        made = [(a + 1j * rng.uniform(-reach, reach, a.shape) / order) * 0.7 for a in made]
        x = x + 1j * rng.normal(size=full)
    if draw.chance("zeros", 0.1, "planted"):
        for a in made:
            a[rng.random(a.shape) < 0.2] = 0
    return x.astype(dtype), [a.astype(dtype) for a in made]


def integers(draw: Draw, x: Array, dtype: str, library: str, verb: str) -> Array:
    """x rounded, in some dtype of integers with which the result has the same dtype all the same."""
    if x.dtype.kind == "c" or not np.isfinite(x).all() or (library == "torch" and verb == "logcumsumexp"):
        return x
    if dtype == "float32" and verb == "logcumsumexp":
        return x
    kind = draw.stream("kind of integers").choice(
        ("int8", "int16", *(("int32", "int64") if dtype == "float64" else ()))
    )
    return np.clip(np.round(x), -100, 100).astype(kind)


def starts(draw: Draw, full: tuple[int, ...], axis: int, order: int, dtype: str) -> list[Array]:
    batch = rows_last(full, axis)[:-1]
    rng = draw.values
    found = []
    for k in range(order):
        one = draw.chance(f"init {k}", 0.2, "broadcast")
        x = rng.normal(size=tuple(1 for _ in batch) if one else batch)
        found.append((x + 1j * rng.normal(size=x.shape) if np.dtype(dtype).kind == "c" else x).astype(dtype))
    return found


def spoil(
    draw: Draw, verb: str, x: Array, coefficients: list[Array], axis: int, reverse: bool, started: bool, order: int
) -> None:
    """NaN in coefficients that nothing multiplies; and, in a few sequences, NaN or infinity where it must stay."""
    n, stream = x.shape[axis], draw.stream("which")
    if not started and draw.chance("unread", 0.7, "planted"):
        for k, a in enumerate(coefficients):
            if a.shape[axis] == n and n > 1:
                rows = np.moveaxis(a, axis, 0)
                rows[slice(max(0, n - 1 - k), n) if reverse else slice(0, k + 1)] = np.nan
    if draw.chance("planted", 0.12) and x.size:
        rows = np.moveaxis(x, axis, -1)
        at = tuple(stream.randrange(length) for length in rows.shape)
        rows[at] = stream.choice((np.nan, np.nan, np.inf))
        if coefficients and draw.chance("infinite", 0.3, "planted"):
            rows = np.moveaxis(stream.choice(coefficients), axis, -1)
            rows[tuple(stream.randrange(length) for length in rows.shape)] = stream.choice((np.inf, -np.inf))


def able(verb: str, library: str, dtype: str, full: tuple[int, ...], axis: int, order: int) -> list[str]:
    problem = Problem(verb, library, "cpu", dtype, full, axis, None, order=order)
    found = [name for name, entry in BACKENDS.items() if entry.why_not(problem) is None and not name.startswith("jax")]
    return ["auto", "auto", *[name for name in found if name.startswith("numba") or full[axis] <= ROWS_IN_PYTHON]]


def call(
    verb: str, given: list[Any], x: Any, init: list[Any], final: bool, options: dict[str, Any]
) -> tuple[Any, list[Any]]:
    """The result, and the last values where they were asked for."""
    if verb == "logcumsumexp":
        return tridiag.logcumsumexp(x, **options), []
    if verb == "log_linear_recurrence":
        y = tridiag.log_linear_recurrence(given[0], x, init[0] if init else None, return_final=final, **options)
    else:
        start = (tuple(init) if len(given) > 1 else init[0]) if init else None
        y = tridiag.linear_recurrence(
            tuple(given) if len(given) > 1 else given[0], x, start, return_final=final, **options
        )
    if not final:
        return y, []
    return y[0], list(y[1]) if isinstance(y[1], tuple) else [y[1]]


def check(
    verb: str, y: Array, last: list[Array], wide: list[Array], init: list[Array], axis: int, reverse: bool, order: int
) -> None:
    """Against the definition, sequence by sequence, within what rounding can do."""
    real, n = real_of(y.dtype), y.shape[axis]
    kind: Any = np.complex128 if y.dtype.kind == "c" else np.float64

    def rows(v: Array) -> Array:
        v = np.moveaxis(v, axis, -1).astype(kind)
        return np.ascontiguousarray((v[..., ::-1] if reverse else v).reshape(-1, n))

    found, (*coefficients, x) = rows(y), map(rows, wide)
    batch = rows_last(y.shape, axis)[:-1]
    begin = [np.broadcast_to(v, batch).reshape(-1).astype(kind) for v in init]
    with np.errstate(all="ignore"):
        if verb == "linear_recurrence":
            before = np.stack(begin, -1) if begin else np.zeros((len(x), order), kind)
            wanted, size, path = recurrence(np.stack(coefficients, -1), x, before, bool(begin))
            # each term has been through two roundings a step, whatever the order in which blocks are put together
            allowed = EPS[real] * (3 * path + 8 * size) * (2 if y.dtype.kind == "c" else 1) + (n + 4) * TINY[real] * (
                1 + size
            )
            allowed = np.where(size < HUGE[real] / 4, allowed, np.inf)
            must = np.isnan(wanted) & ~(size >= HUGE[real] / 4)
            infinite = np.isinf(x).any(1) | np.any([np.isinf(a).any(1) for a in coefficients], axis=0)
            must |= ~np.isfinite(wanted) & infinite[:, None]
            stays = ~np.isfinite(found)
        else:
            log_a = coefficients[0] if coefficients else np.zeros_like(x)
            wanted, bound = log_recurrence(log_a, x, begin[0] if begin else np.full(len(x), -np.inf), bool(begin))
            allowed = EPS[real] * (4 * np.maximum(1, abs(wanted)) + 4 * bound)
            must, stays = np.isnan(wanted), np.isnan(found)
            allowed = np.where(np.isinf(wanted), 0, allowed)
        if y.dtype.name in HALVES:  # to which results in single precision were rounded
            allowed = allowed + np.where(abs(wanted) < 6e4, EPS[y.dtype.name] * abs(wanted) + 1e-7, np.inf)
        wrong = np.where(
            np.isfinite(wanted),
            ~(abs(found - wanted) <= allowed),
            (found != wanted) & np.isinf(wanted) & (verb != "linear_recurrence"),
        )
        wrong = np.where(np.isinf(allowed), False, wrong) | (must & ~stays)
    if wrong.any():
        s, t = map(int, np.argwhere(wrong)[0])
        raise AssertionError(
            f"{wrong.sum()} of {wrong.size} values are wrong, first step {t} of sequence {s}: "
            f"{found[s, t]}, not {wanted[s, t]} "
            f"(off by {abs(found[s, t] - wanted[s, t]):.3g}, allowed {allowed[s, t]:.3g})"
        )
    for k, v in enumerate(last):
        if k < n and not np.array_equal(
            np.broadcast_to(v, batch).reshape(-1), found[:, n - 1 - k].astype(v.dtype), equal_nan=True
        ):
            raise AssertionError(f"final value {k} is not that of the sequence")
