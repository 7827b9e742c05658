"""The arrays of a call, and the arguments made of them."""

from __future__ import annotations

from typing import Any

from tridiag.calls.checks import check_flag
from tridiag.calls.plan import NO_MASK
from tridiag.calls.torch_compile import compiling
from tridiag.libraries.arrays import check_given, taking


def arrays(**given: Any) -> list[Any]:
    """The arguments as arrays of their one library; None as it is, for the last of them, the right sides, alone."""
    if compiling(*given.values()):
        return [*given.values()]
    check_given([*given][:-1], [*map(type, given.values())])
    present = {name: x for name, x in given.items() if x is not None}
    _, take = taking(tuple(present), *map(type, present.values()), NO_MASK)
    taken = dict(zip(present, take([*present.values()], None)[0], strict=True))
    for name, x in taken.items():
        if not getattr(x, "shape", ()):
            raise ValueError(f"{name} is a number; wanted an array, whose last axis is that of the rows")
    return [taken.get(name) for name in given]


def system(diagonals: Any, name: str, right: Any, columns: bool, axis: int = -1) -> dict[str, Any]:
    """The arguments of a verb; right sides that are columns lie along the last axis but one, and share their matrix."""
    a, b, c = diagonals
    if right is None:
        return {"a": a, "b": b, "c": c, "axis": axis}
    if columns:
        a, b, c, axis = a[..., None], b[..., None], c[..., None], -2
    if right.ndim < abs(axis) or right.shape[axis] != b.shape[axis]:
        wanted = "(..., n, k)" if columns else "(..., n)"
        raise ValueError(
            f"{name} has shape {tuple(right.shape)}; wanted {wanted} with n = {b.shape[axis]}, the rows of the matrix"
        )
    return {"a": a, "b": b, "c": c, "d": right, "axis": axis}


def perturbed(found: dict[str, Any], name: str, right: Any, perturb_singular: bool) -> dict[str, Any]:
    """The arguments of a verb, with what `tridiag.solve` calls ``perturb_singular``."""
    check_flag("perturb_singular", perturb_singular)
    if not perturb_singular:
        return found
    if right is None:
        raise ValueError(
            f"perturb_singular is True and {name} is left out; wanted the right sides, for tridiag.solve alone has "
            "singular='perturb'"
        )
    return {**found, "singular": "perturb"}
