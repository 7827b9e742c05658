"""Cases of selective scans: states in lanes, and sequences side by side."""

from __future__ import annotations

from typing import Any

import numpy as np

import tridiag
from guarded import Ran, scratch
from guarded.draw import Draw, in_numpy
from guarded.oracles import EPS, TINY, Array

STATES = (1, 1, 2, 3, 4, 8, 9, 16, 17, 33)  # about the lanes of a vector, and two of them


def run(draw: Draw, library: str) -> Ran:
    dtype, states = draw.choose("dtype", ("float64", "float32")), draw.choose("states", STATES, "numbers")
    n, batch = draw.sizes(most=max(1, 3000 // states), longest=300)
    rng, axis = draw.values, draw.axis(len(batch) + 1)
    full = (*batch[:axis], n, *batch[axis:])
    sized, reverse = draw.chance("sizes", 0.5, "options"), draw.chance("reverse", 0.3, "options")
    final, started = draw.chance("final", 0.3, "options"), draw.chance("init", 0.5, "options")

    def shape(name: str, last: tuple[int, ...] = (states,), lengths: tuple[int, ...] = full) -> tuple[int, ...]:
        """Of an operand, which may be constant along some axes."""
        whole = (*lengths, *last)
        return tuple(1 if draw.chance(f"{name} {k}", 0.3, "broadcast") else m for k, m in enumerate(whole))

    given = {name: rng.uniform(-1, 1, shape(name)) for name in ("a", "B")}
    given["C"] = rng.uniform(-1, 1, (*shape("C", ()), states))
    given["x"] = rng.normal(size=full)
    if sized:
        given["a"] = -abs(given["a"])
        given["step"] = rng.uniform(0, 1, shape("step", ()))
    if started:
        given["init"] = rng.normal(size=shape("init", lengths=batch))
    given = {name: v.astype(dtype) for name, v in given.items()}
    if not started and given["a"].shape[axis] == n and n > 1 and draw.chance("unread", 0.7, "planted"):
        np.moveaxis(given["a"], axis, 0)[-1 if reverse else 0] = np.nan
    constant = {name: tuple(k for k, m in enumerate(v.shape) if m == 1) for name, v in given.items()}
    taken = {name: draw.operand(name, v, library, constant[name]) for name, v in given.items()}
    options: dict[str, Any] = {"axis": axis, "reverse": reverse, "return_final": final}
    out = None
    if draw.chance("out", 0.6):
        out, _ = draw.output("out", full, dtype, library)
        options["out"] = out
    draw.words.insert(0, f"selective_scan {library} {list(full)} {states} states {options | {'out': out is not None}}")
    with scratch.arrays():
        found = tridiag.selective_scan(**taken, **options)
    y, last = found if final else (found, None)
    if out is not None and y is not out:
        raise AssertionError("the result is not the array that was given for it")
    y, last = in_numpy(y), None if last is None else in_numpy(last)
    draw.finish()
    check(given, y, last, states, axis, reverse)
    return Ran("selective_scan", library, systems=y.size // n)


def check(given: dict[str, Array], y: Array, last: Array | None, states: int, axis: int, reverse: bool) -> None:
    """Against the definition, step by step, within what rounding can do to the sizes of all terms."""
    a, x, B, C = (given[name].astype(float) for name in "axBC")
    x, n = x[..., None], y.shape[axis]
    if "step" in given:
        step = given["step"].astype(float)[..., None]
        a, x = np.exp(step * a), step * x
    a, x, B, C = (np.moveaxis(np.broadcast_to(v, (*y.shape, states)), axis, 0) for v in (a, x, B, C))
    h = np.zeros(x.shape[1:]) + given.get("init", np.zeros(1)).astype(float)
    size, path, eps = abs(h), 0 * h, EPS[y.dtype.name]
    rows = np.moveaxis(y, axis, 0)
    for k, t in enumerate(reversed(range(n)) if reverse else range(n)):
        decay = np.zeros(1) if k == 0 and "init" not in given else a[t]
        h, size = decay * h + x[t] * B[t], abs(decay) * size + abs(x[t] * B[t])
        path = abs(decay) * path + size
        allowed = eps * ((4 * path + (8 + states) * size) * abs(C[t])).sum(-1) + (k + 4) * TINY[y.dtype.name]
        if not (abs(rows[t] - (C[t] * h).sum(-1)) <= allowed).all():
            raise AssertionError(f"values of step {t} are wrong by up to {abs(rows[t] - (C[t] * h).sum(-1)).max():.3g}")
    if last is not None and not (abs(last - h) <= eps * (4 * path + 8 * size) + (n + 4) * TINY[y.dtype.name]).all():
        raise AssertionError(f"the last states are wrong by up to {abs(last - h).max():.3g}")
