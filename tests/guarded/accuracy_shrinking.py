"""A system made as small and as simple as it can be while something stays true of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from guarded.accuracy_breeding import Array, Systems

SECONDS = 20  # of CPU, beyond which a system stays as it is
AT_ONCE = 32  # candidates of a call


def shrunk(one: Systems, above: Callable[[Systems], Array], masked: bool, least: int) -> Systems:
    """``above`` says of each system by how much it is above its bar; 1 and less is not."""
    until = time.process_time() + SECONDS
    while time.process_time() < until:
        better = shorter(one, above, least) or simpler(one, above, masked)
        if better is None:
            return one
        one = better
    return one


def shorter(one: Systems, above: Callable[[Systems], Array], least: int) -> Systems | None:
    """The system without some of its rows, as many as can be."""
    n = one.b.shape[1]
    for count in sorted({n - 1, n // 2, n // 4, 2, 1} - {0}, reverse=True):
        if not 0 < count <= n - least:
            continue
        starts = range(0, n - count + 1, max(1, (n - count + 1) // AT_ONCE))
        kept = [np.r_[0:at, at + count : n] for at in starts][:AT_ONCE]
        candidates = Systems.join([Systems(*(x[:, rows] for x in one)) for rows in kept])
        excess = above(candidates)
        if (excess > 1).any():
            k = int(excess.argmax())
            return candidates.take(slice(k, k + 1))
    return None


def simpler(one: Systems, above: Callable[[Systems], Array], masked: bool) -> Systems | None:
    """The system with one entry simpler than it was."""
    candidates = [changed(one, band, row, value) for band, row, value in changes(one)]
    if masked and not one.keep.all():
        for row in np.flatnonzero(~one.keep[0]):
            keep = one.keep.copy()
            keep[0, row] = True
            candidates.insert(0, one._replace(keep=keep))
    for at in range(0, len(candidates), AT_ONCE):
        some = Systems.join(candidates[at : at + AT_ONCE])
        held = np.flatnonzero(above(some) > 1)
        if len(held):
            k = int(held[0])
            return some.take(slice(k, k + 1))
    return None


def changed(one: Systems, band: int, row: int, value: Any) -> Systems:
    bands = [x.copy() for x in one]
    bands[band][0, row] = value
    return Systems(*bands)


def changes(one: Systems) -> Iterator[tuple[int, int, Any]]:
    """Simpler values of each entry, the simplest first."""
    found = []
    for band in range(4):
        for row, value in enumerate(one[band][0]):
            for other in simpler_values(value):
                if cost(other) < cost(value):
                    found.append((cost(other) - cost(value), band, row, other))
    yield from ((band, row, other) for _, band, row, other in sorted(found, key=lambda x: x[0]))


def simpler_values(value: Any) -> Iterator[Any]:
    yield from (0.0, 1.0)
    if value.imag:
        yield from (value.real, value.imag)
    if value == 0 or not np.isfinite(value):
        return
    size = float(abs(value))
    yield 2.0 ** np.round(np.log2(size))
    yield 10.0 ** np.round(np.log10(size))
    for digits in (1, 2, 3, 5, 8):
        yield (
            complex(*(float(f"{x:.{digits - 1}e}") for x in (value.real, value.imag)))
            if value.imag
            else float(f"{value.real:.{digits - 1}e}")
        )
    if value.imag == 0:
        yield abs(value.real)


def cost(value: Any) -> float:
    """How much there is to read."""
    value = complex(value)
    parts = (float(f"{x:.12g}") for x in (value.real, value.imag))
    return sum(0 if x == 0 else len(f"{abs(x):g}".replace("e-0", "e-")) + 8 * (len(f"{abs(x):.12g}") > 6) + (x < 0) / 2
               + (x != 1) / 4 for x in parts)  # fmt: skip


def written(call: Any, one: Systems) -> str:
    """A program that solves the system alone."""
    names = ["a", "b", "c", "d"]
    bands = [[as_text(v) for v in x[0]] for x in one[:4]]
    lines = [f"{name} = np.array({x}, '{call.dtype}')" for name, x in zip(names, bands, strict=True)]
    options = f"backend='{call.backend}', pivoting={call.pivoting!r}"
    options += ", periodic=True" if call.periodic else ""
    options += f", where={one.keep[0].tolist()}" if call.masked and not one.keep.all() else ""
    turned = "transpose=True" if call.transpose else ""
    if call.layout == "factor":
        lines.append(f"tridiag.factor(a, b, c, {options}).solve({', '.join(['d', *[turned][: len(turned)]])})")
    else:
        lines.append(f"tridiag.solve(a, b, c, d, {options}{', ' * bool(turned)}{turned})")
    return "\n".join(lines)


def as_text(value: Any) -> Any:
    value = value.item()
    return value if isinstance(value, complex) and value.imag else float(value.real)
