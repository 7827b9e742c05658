"""Labelled arrays of xarray as plain ones whose axes fit, and results labelled as one of the arguments is."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import xarray as xr

from tridiag.calls.sequences import named

Array = Any
SYSTEMS = {"solve": "d", "matmul": "x", "slogdet": "b"}
# the verbs of `tridiag.xarray`, and the argument of each that labels its result
LABELLING = SYSTEMS | dict.fromkeys(("linear_recurrence", "log_linear_recurrence", "logcumsumexp"), "x")
ALIKE = 0.6  # from which on a name is nearly another


class Labels:
    """The arguments of a verb, whose first is the one that labels the result: its right side, if it has one."""

    def __init__(
        self,
        arguments: Mapping[str, Any],
        dim: Hashable,
        states: Mapping[str, Any] | None = None,
        right_side: bool = True,
    ) -> None:
        given = {name: checked(name, x) for name, x in arguments.items() if x is not None}
        before = {name: checked(name, x) for name, x in (states or {}).items()}
        self.dim = dim
        self.labelled = aligned({name: x for name, x in (*given.items(), *before.items()) if is_labelled(x)})
        rows = {name: x for name, x in self.labelled.items() if name in given}
        self.dims = tuple(dict.fromkeys(name for x in rows.values() for name in x.dims))
        first = next(iter(given))
        check_dimensions(rows, dim, first if right_side else None)
        self.leading = self.labelled.get(first)
        self.data = {name: self.lifted(name, x) for name, x in given.items()}
        self.states = {name: self.lifted_state(name, x) for name, x in before.items()}

    @property
    def axis(self) -> int:
        return self.dims.index(self.dim)

    def lifted(self, name: str, x: Any) -> Any:
        """An argument without names, which the verb broadcasts as the names say."""
        if name in self.labelled:
            x = self.labelled[name]
            return x.data if x.dims == (self.dim,) else in_order(x, self.dims)
        if np.ndim(x) > 1:
            raise TypeError(
                f"{name} is a {type(x).__name__} of {np.ndim(x)} axes without names; wanted a DataArray, a number, "
                f"or a 1-D array along {self.dim!r}"
            )
        return x

    def lifted_state(self, name: str, x: Any) -> Any:
        """A value before the first step, which has no axis of the steps."""
        dims = tuple(known for known in self.dims if known != self.dim)
        if name not in self.labelled:
            if np.ndim(x):
                raise TypeError(f"{name} is a {type(x).__name__} of axes without names; wanted a DataArray or a number")
            return x
        x = self.labelled[name]
        if unknown := [known for known in x.dims if known not in dims]:
            raise ValueError(f"{name} has the dimensions {x.dims}; wanted some of {dims}: without {unknown}")
        return in_order(x, dims)

    def coordinates(self) -> Any:
        """Those of the argument that labels the result, and of the dimensions that it lacks."""
        first, *others = self.labelled.values() if self.leading is None else (self.leading, *self.labelled.values())
        found, dims = first.coords.to_dataset(), {*first.dims}
        for x in others:
            own = x.coords.to_dataset()
            dropped = [name for name, y in own.variables.items() if name in found.variables or dims.issuperset(y.dims)]
            found = found.merge(own.drop_vars(dropped), join="exact", compat="override")
            dims.update(x.dims)
        return found

    def named(self, data: Any) -> Any:
        """A result of all dimensions."""
        leading = self.leading
        name, attributes = (None, None) if leading is None else (leading.name, leading.attrs)
        return xr.DataArray(data, self.coordinates().coords, self.dims, name, attributes)

    def reduced(self, data: Any, name: Hashable = None, attributes: Any = None) -> Any:
        """A result without the dimension of the systems."""
        dims = tuple(known for known in self.dims if known != self.dim)
        coordinates = self.coordinates()
        coordinates = coordinates.drop_vars([key for key, y in coordinates.variables.items() if self.dim in y.dims])
        return xr.DataArray(data, coordinates.coords, dims, name, attributes)

    def final(self, data: Any) -> Any:
        """The last values of a recurrence, of one or several."""
        if isinstance(data, tuple):
            return tuple(self.final(value) for value in data)
        leading = self.leading
        return self.reduced(data) if leading is None else self.reduced(data, leading.name, leading.attrs)


def is_labelled(x: Any) -> bool:
    return isinstance(x, xr.DataArray)


def checked(name: str, x: Any) -> Any:
    """An argument, which is no other thing of xarray than a DataArray."""
    if isinstance(x, xr.Dataset):
        raise TypeError(
            f"{name} is a Dataset; wanted a DataArray: one of its variables, or map the call over all of them"
        )
    return np.asarray(x) if isinstance(x, list | tuple) else x


def aligned(labelled: dict[str, Any]) -> dict[str, Any]:
    """The labelled arguments, whose labels have to be the same."""
    if not labelled:
        raise TypeError("no argument is a DataArray; call the verb of tridiag, with axis, for arrays without names")
    try:
        found = xr.align(*labelled.values(), join="exact", copy=False)
    except ValueError as error:
        raise ValueError(
            f"the labels or lengths of {', '.join(labelled)} differ along a dimension ({error}); bring them to the "
            "same labels first, as xarray.align(..., join='inner') does"
        ) from error
    return dict(zip(labelled, found, strict=True))


def check_dimensions(rows: Mapping[str, Any], dim: Hashable, right_side: str | None) -> None:
    """Refuse arguments that lack ``dim`` where another name of theirs is surely meant for it.

    These are all of them, the right side, and one with a dimension of the same length and nearly the same name.
    """
    here = {known: x.sizes[known] for x in rows.values() for known in x.dims}
    if dim not in here:
        told = tuple(sorted(here, key=lambda known: -likeness(known, dim)))
        raise ValueError(f"dim is {dim!r}; wanted a dimension of the arguments, which have {told}")
    for name, x in rows.items():
        if not x.dims or dim in x.dims:
            continue
        others = {known for other, z in rows.items() if other != name for known in z.dims}
        alone = [known for known in x.dims if known not in others]
        nearest = max(alone, key=lambda known: (here[known] == here[dim], likeness(known, dim)), default=None)
        alike = nearest is not None and likeness(nearest, dim) >= ALIKE and here[nearest] == here[dim]
        if name != right_side and not alike:
            continue
        renamed = "" if nearest is None else f": {name}.rename({{{nearest!r}: {dim!r}}})?"
        along = next(other for other, z in rows.items() if dim in z.dims)
        raise ValueError(
            f"{name} has the dimensions {x.dims}, and {along} lies along dim={dim!r}{renamed}; what is the same in all "
            f"rows is {name}.broadcast_like({along})"
        )


def likeness(known: Hashable, dim: Hashable) -> float:
    """How much of two names is the same, from 0 to 1."""
    return difflib.SequenceMatcher(None, str(known).casefold(), str(dim).casefold()).ratio()


def in_order(x: Any, dims: tuple[Hashable, ...]) -> Any:
    """The data of a labelled array with an axis for each of some dimensions, of length 1 where it has none.

    Axes in front are left out where a verb puts them in: everything but a 1-D array is aligned to the right.
    """
    if not x.dims:
        return x.data
    order = [x.dims.index(known) for known in dims if known in x.dims]
    data = x.data if order == sorted(order) else x.data.transpose(order)
    place = tuple(slice(None) if known in x.dims else None for known in dims)
    while len(place) > max(1, data.ndim) and place[0] is None and not (len(place) == 2 and data.ndim == 1):
        place = place[1:]
    return data if None not in place else data[place]


def sequence(
    verb: Callable[..., Any], arguments: Mapping[str, Any], init: Any, dim: Hashable, options: dict[str, Any]
) -> Any:
    """A recurrence of labelled arrays."""
    labels, told = of_sequence(arguments, init, dim)
    found = verb(**told, axis=labels.axis, **options)
    if options.get("return_final"):
        return labels.named(found[0]), labels.final(found[1])
    return labels.named(found)


def of_sequence(arguments: Mapping[str, Any], init: Any, dim: Hashable) -> tuple[Labels, dict[str, Any]]:
    """The labels of a recurrence, and its arguments without them."""
    states = {} if init is None else named("init", init)
    given: dict[str, Any] = {}
    for name, x in arguments.items():
        given.update(named(name, x) if name == "a" else {name: x})
    labels = Labels(given, dim, states)
    return labels, {**gathered(labels.data, arguments), **gathered(labels.states, {"init": init})}


def without_labels(verb: str, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call of `tridiag.xarray` as those of the verb of `tridiag` that it is."""
    rest = {**without_axis(given)}
    dim, first = rest.pop("dim"), LABELLING[verb]
    names = (first, *(name for name in ("a", "log_a", "b", "c", "where") if name in rest and name != first))
    arguments = {name: rest.pop(name) for name in names}
    if verb in SYSTEMS:
        labels = Labels(arguments, dim, right_side=verb != "slogdet")
        told = labels.data
    else:
        labels, told = of_sequence(arguments, rest.pop("init", None), dim)
    return {**rest, **told, "axis": labels.axis}


def without_axis(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a verb, without those that labels take the place of."""
    if "axis" in options:
        raise TypeError("axis is not for labelled arrays, whose axes have names; pass dim")
    if "out" in options:
        raise TypeError(
            "out is not for labelled arrays; leave it out, or call the verb of tridiag with the .data of each"
        )
    return options


def gathered(values: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Values under the names of arguments, tuples where these are."""
    return {
        name: tuple(values[f"{name}[{k}]"] for k in range(len(x))) if isinstance(x, tuple) else values[name]
        for name, x in arguments.items()
        if x is not None
    }
