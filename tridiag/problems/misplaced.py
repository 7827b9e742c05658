"""What a caller may mean whose arguments lie along other axes than the rules of `tridiag.problems.forms` say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Shape = tuple[int, ...]
MOST_MEANT = 8  # coefficients of a higher order that somebody may have passed as one array
BANDS = "a", "b", "c"
COEFFICIENTS = *BANDS, "log_a"


def elsewhere(shapes: Mapping[str, Shape], given: Mapping[str, Shape]) -> str:
    """What to do where the length of a 1-D argument is that of another axis than the one along which it lies."""
    for name, shape in given.items():
        if len(shape) != 1 or shape[0] == 1:
            continue
        at = shapes[name].index(shape[0])
        for other, lengths in shapes.items():
            found = [k for k, length in enumerate(lengths) if length == shape[0] and k != at]
            if found and lengths[at] != shape[0] and len(given[other]) > 1:
                whole = ["None"] * len(lengths)
                whole[found[0]] = ":"
                return (
                    f". 1-D arguments lie along the axis of the rows, here {at}, and {other} has length {shape[0]} "
                    f"along axis {found[0]}: axis={found[0]} if the rows are there, else {name}[{', '.join(whole)}]"
                )
    return ""


def right_side(given: Mapping[str, Shape]) -> str:
    """The name of that argument; coefficients alone may have none."""
    return "x" if "x" in given else "d"


def check_columns(lifted: Mapping[str, Shape], given: Mapping[str, Shape], axis: int) -> None:
    """Refuse columns beside coefficients that have no axis for them: they would be taken for constant rows."""
    right = right_side(given)
    if len(given.get(right, ())) < 2 or lifted[right][axis] != 1:
        return
    if lacking := lacking_last_axis(given):
        if axis == len(given[right]) - 1:
            refuse_columns(given, lacking, axis, axis - 1, with_last_axis(given, lacking))
        return
    names = [name for name in given if name not in (right, "where")]
    bands = [name for name in names if len(given[name]) == 1]
    n = max((given[name][0] for name in bands), default=1)
    if n == 1 or any(len(given[name]) > 1 for name in names):
        return
    for k, length in enumerate(lifted[right]):
        if length == n and k != axis:
            place = ", ".join(":" if i == k else "None" for i in range(len(lifted[right])))
            meant = (
                f"axis={k} if its columns are right sides, as in LAPACK, SciPy and JAX (tridiag.conventions)"
                if set(BANDS) <= set(names)
                else f"axis={k} if the steps are there, {bands[0]}[{place}] if it is one number for each of these"
            )
            refuse_columns(given, bands, axis, k, meant)


def refuse_columns(given: Mapping[str, Shape], bands: Sequence[str], axis: int, k: int, meant: str) -> None:
    """Raise, as the right side has one entry along ``axis`` and as many as there are rows along the axis k."""
    right = right_side(given)
    n = given[right][k]
    raise ValueError(
        f"{right} has shape {given[right]}, length 1 along axis {axis}, where {', '.join(bands)} "
        f"{'has' if len(bands) == 1 else 'have'} {n} rows, and length {n} along axis {k}: {meant}; "
        f"if it is constant along axis {axis}, numpy.broadcast_to says so"
    )


def as_columns(given: Mapping[str, Shape]) -> str:
    """What to do where the right side has one axis more than the coefficients, and fits but for that."""
    lacking = lacking_last_axis(given)
    return f"; {with_last_axis(given, lacking)}" if lacking else ""


def with_last_axis(given: Mapping[str, Shape], lacking: Sequence[str]) -> str:
    """How columns are passed beside a matrix of their own for each batch of them."""
    right = right_side(given)
    ways = f"axis=-2 with {', '.join(f'{name}[..., None]' for name in lacking)} if "
    if set(BANDS) <= set(given):
        return f"{ways}the columns of {right} are right sides, as in JAX and TensorFlow (tridiag.conventions)"
    return f"{ways}the steps of {right} lie there, and all of its last axis has the same {lacking[0]}"


def lacking_last_axis(given: Mapping[str, Shape]) -> list[str]:
    """The coefficients that fit the right side but for its last axis, where each matrix has an axis of its own."""
    right = right_side(given)
    names = [name for name in given if name in COEFFICIENTS and given[name]]
    rank = max((len(given[name]) for name in names), default=0)
    *rows, _ = given.get(right) or (1,)
    if rank < 2 or rank != len(rows) or not set(given) <= {right, "where", *COEFFICIENTS}:
        return []
    for name in names:
        pairs = zip(reversed(given[name]), reversed(rows), strict=False)
        if not all(one in (1, other) or other == 1 for one, other in pairs):
            return []
    n = max(given[name][-1] for name in names)
    return [name for name in names if len(given[name]) > 1] if n == rows[-1] > 1 else []


def as_an_order(shape: Shape) -> str:
    """How coefficients of a higher order are passed, where one array that does not fit could be meant for them."""
    if len(shape) != 1 or not 1 < shape[0] <= MOST_MEANT:
        return ""
    return f"; coefficients of order {shape[0]} are a tuple: ({', '.join(f'a[{k}]' for k in range(shape[0]))})"
