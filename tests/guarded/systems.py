"""Tridiagonal systems of cases: shapes, numbers, masks, what is planted in them, and how they are given."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from guarded.draw import HALVES, Draw
from guarded.oracles import Array, real_of

FAMILIES = ("dominant",) * 5 + ("uniform",) * 4 + ("integers", "scaled", "graded", "uniform")


class Systems(NamedTuple):
    """Arrays of full rank as they are given, and as they are: broadcast, rows last."""

    arguments: dict[str, Any]
    shape: tuple[int, ...]
    axis: int
    rows: tuple[Array, Array, Array, Array]  # a, b, c, d
    keep: Array
    spoilt: Array  # for each system, whether NaN was planted where it must stay
    singular: Array  # ... or its matrix was made singular
    free: Array  # ... or an entry of it made infinite, so that it may have any solution, or none
    family: str


def values(draw: Draw, name: str, family: str, shape: tuple[int, ...], dtype: str) -> Array:
    """The entries of one band, or of the right side, before anything is planted."""
    rng, kind = draw.values, np.dtype(dtype).kind
    if family == "integers":
        x = rng.integers(-3 if name == "b" else -2, 4 if name == "b" else 3, shape).astype(float)
        if name == "d" and draw.stream("unit").random() < 0.5:
            x = np.zeros(shape)
            x.reshape(-1)[:: max(1, x.size // 3)] = 1
    else:
        x = rng.uniform(-1, 1, shape)
        if kind == "c":
            x = (x + 1j * rng.uniform(-1, 1, shape)) * 0.7
        if name == "b" and family != "uniform":
            x = (2.1 + abs(x)) * rng.choice((-1, 1), shape)
        if family in ("scaled", "graded"):
            power = 20 if real_of(dtype) == "float32" else 150
            many = draw.stream("scale" if name != "d" else "scale of d").randint(-power, power)
            x = x * 2.0 ** (many if family == "scaled" else 0)
    return x.astype(dtype)


def shapes(draw: Draw, shape: tuple[int, ...], axis: int) -> dict[str, tuple[int, ...]]:
    """Which axes each argument has: a matrix that systems share, constant bands, right sides that are fewer."""
    rng, rank = draw.stream("broadcast"), len(shape)
    if "broadcast" in draw.drop or rng.random() < 0.4:
        return dict.fromkeys("abcd", shape)
    found = {}
    shared = [k for k in range(rank) if k != axis and (rng.random() < 0.4 or (k == 0 and fewer_axes(draw)))]
    for name in "abc":
        drop = [k for k in range(rank) if (k in shared or (rng.random() < 0.15)) and k != axis]
        drop += [axis] if rng.random() < 0.1 else []
        found[name] = tuple(1 if k in drop else length for k, length in enumerate(shape))
    whole = draw.chance("out", 0.6) or rng.random() < 0.8
    found["d"] = shape if whole else tuple(1 if rng.random() < 0.3 and k != axis else n for k, n in enumerate(shape))
    return found


def fewer_axes(draw: Draw) -> bool:
    """Whether all bands of the matrix lack the first axes of the right sides, where they are of length 1 in them."""
    return draw.chance("fewer axes", 0.15, "broadcast")


def make(draw: Draw, dtype: str, right: str, library: str, periodic: bool, verb: str) -> Systems:
    by_rows = verb == "slogdet" and library == "torch"  # in a loop of Python
    n, batch = draw.sizes(most=2999, longest=150) if by_rows else draw.sizes()
    n = max(3, n) if periodic else n
    axis = draw.axis(len(batch) + 1)
    shape = (*batch[:axis], n, *batch[axis:])
    family = "dominant" if dtype in HALVES else draw.choose("family", FAMILIES, "numbers")
    own = shapes(draw, shape, axis)
    if verb == "slogdet":  # whose results are of the shape of the matrices
        own |= {"b": shape, "d": shape}
    if verb == "factor":  # which has to know how many rows there are
        own["b"] = tuple(n if k == axis else length for k, length in enumerate(own["b"]))
    kinds = dict.fromkeys("abc", dtype) | {"d": right}
    made = {name: values(draw, name, family, own[name], kinds[name]) for name in "abcd"}
    full = tuple(max(lengths) for lengths in zip(*own.values(), strict=True))
    if family == "graded" and all(own[name] == full for name in "abcd"):
        scale = 2.0 ** draw.values.integers(-10, 10, full)
        made = {name: (x * scale).astype(x.dtype) for name, x in made.items()}
    keep = masks(draw, full, axis)
    systems = [np.broadcast_to(np.moveaxis(made[name], axis, -1), rows_last(full, axis)) for name in "abcd"]
    spoilt, singular, free = plant(draw, made, full, axis, keep, periodic, verb, family)
    arguments: dict[str, Any] = {}
    whole = verb != "slogdet" and draw.chance("whole numbers", 0.04, "numbers") and dtype not in HALVES
    for name, x in made.items():
        constant = tuple(k for k, length in enumerate(full) if x.shape[k] == 1 and length > 1)
        if whole and draw.stream(f"whole {name}").random() < 0.6 and (rounded := integers(draw, x)) is not None:
            x = rounded
            systems["abcd".index(name)] = np.broadcast_to(np.moveaxis(x, axis, -1), rows_last(full, axis))
            if name != "d" and family != "dominant":  # which rounding away from 0 leaves dominant
                family = "integers"
        given = lie(draw, name, x, full, axis, constant)
        constant = constant if isinstance(given, np.ndarray) and given.shape == full else ()
        arguments[name] = draw.operand(name, given, library, constant)
    if keep is not None:
        arguments["where"] = draw.operand("where", keep, library)
    kept = (
        np.ones(rows_last(full, axis), bool)
        if keep is None
        else np.broadcast_to(np.moveaxis(keep, axis, -1), rows_last(full, axis))
    )
    draw.say(shape=list(full), axis=axis, family=family)
    if dtype in HALVES:
        systems = [x.astype("float32") for x in systems]
    return Systems(arguments, full, axis, tuple(systems), kept, spoilt, singular, free, family)


def integers(draw: Draw, x: Array) -> Array | None:
    """The same, or about the same, in some dtype of integers, where there is one that holds it."""
    if x.dtype.kind == "c" or not np.isfinite(x).all() or not (abs(x) < 100).all():
        return None
    kinds = ("int64", "int32", "int16", "int8", *(("uint8",) if (x >= 0).all() else ()))
    kind = draw.stream("kind of integers").choice(kinds)
    return np.where(x > 0, np.ceil(x), np.floor(x)).astype(kind)


def rows_last(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return (*shape[:axis], *shape[axis + 1 :], shape[axis])


def lie(draw: Draw, name: str, x: Array, full: tuple[int, ...], axis: int, constant: tuple[int, ...]) -> Any:
    """An argument as the caller has it: as it is, expanded by strides of 0, 1-D along the axis, or a number."""
    rng = draw.stream(f"lie {name}")
    if "broadcast" in draw.drop or not constant or name == "d":
        return x
    leading = next((k for k, length in enumerate(x.shape) if length > 1), 0)
    leading = min(leading, axis, x.ndim - 2)
    if leading > 0 and fewer_axes(draw):
        return x.reshape(x.shape[leading:])
    if rng.random() < 0.4:
        return np.broadcast_to(x, full)
    if x.size == 1 and full[axis] > 1 and not np.isnan(x).any() and rng.random() < 0.7:
        return x.reshape(-1)[0].item()
    if x.size == x.shape[axis] and rng.random() < 0.7:
        return x.reshape(-1)
    return x.reshape(x.shape[leading:]) if leading > 0 and rng.random() < 0.5 else x


def masks(draw: Draw, full: tuple[int, ...], axis: int) -> Array | None:
    rng = draw.stream("mask")
    if "mask" in draw.drop or rng.random() > 0.25:
        return None
    shape = tuple(1 if k != axis and rng.random() < 0.3 else n for k, n in enumerate(full))
    keep = draw.values.random(shape) < rng.choice((0.0, 0.3, 0.7, 0.95))
    if rng.random() < 0.4:  # as the bottom of an ocean has it
        keep = np.sort(keep, axis=axis)[(slice(None),) * axis + (slice(None, None, -1),)]
    if rng.random() < 0.3 and len(full) > 1:
        keep = keep & (draw.values.random(tuple(1 if k == axis else n for k, n in enumerate(shape))) < 0.7)
    return keep


def plant(
    draw: Draw,
    made: dict[str, Array],
    full: tuple[int, ...],
    axis: int,
    keep: Array | None,
    periodic: bool,
    verb: str,
    family: str,
) -> tuple[Array, Array, Array]:
    """NaN where nothing is read; and where it must stay, in a few systems; rows of zeros in others, or infinity."""
    batch = rows_last(full, axis)[:-1]
    spoilt, singular, free = np.zeros((3, *batch), bool)
    if "planted" not in draw.drop:
        ends = {"a": 0, "c": full[axis] - 1} if not periodic and full[axis] > 1 else {}
        for name, at in ends.items():
            if made[name].shape[axis] == full[axis] and draw.chance(f"end {name}", 0.7):
                np.moveaxis(made[name], axis, -1)[..., at] = np.nan
        if keep is not None and draw.chance("behind masks", 0.7):
            for name, x in made.items():
                if x.shape == full:
                    np.copyto(x, np.nan, where=~read_by(name, keep, full, axis))
    seed = draw.stream("which")
    if verb in ("solve", "factor") and all(batch) and batch:
        if draw.chance("singular", 0.08) and all(made[name].shape == full for name in "abc") and keep is None:
            at = tuple(seed.randrange(length) for length in batch)
            k = seed.randrange(full[axis])
            for name in "abc":
                np.moveaxis(made[name], axis, -1)[at][k] = 0
            singular[at] = True
        if draw.chance("planted", 0.1) and keep is None:
            name = seed.choice("abcd" if family != "integers" else "bd")
            at = tuple(seed.randrange(length) for length in batch)
            if made[name].shape == full and not singular[at]:
                k = seed.randrange(full[axis])
                if (name, k) not in (("a", 0), ("c", full[axis] - 1)):
                    infinite = draw.chance("infinite", 0.4, "planted")
                    np.moveaxis(made[name], axis, -1)[at][k] = seed.choice((np.inf, -np.inf)) if infinite else np.nan
                    (free if infinite and name != "d" else spoilt)[at] = True
    return spoilt, singular, free


def read_by(name: str, keep: Array, full: tuple[int, ...], axis: int) -> Array:
    """The entries of an argument that are read: those of rows that stay, and of couplings between such rows."""
    rows = np.broadcast_to(keep, full)
    if name in "ac":
        rows = rows & np.roll(rows, 1 if name == "a" else -1, axis)
    return rows
