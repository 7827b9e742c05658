"""The facts of arguments, and what is done to these before they go to a kernel."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from tridiag.calls.outputs import self_overlaps
from tridiag.calls.plan import Plan
from tridiag.calls.singular import raise_if_singular
from tridiag.kernels.jobs.batches import contiguous, is_packed
from tridiag.kernels.runtime.call_table import (
    ARRAYS,
    CONVERTED,
    Converted,
    Guard,
    Keepable,
    Kept,
    Layout,
    Number,
    Same,
    Several,
    kept_call,
)
from tridiag.libraries import numpy as library
from tridiag.libraries.arrays import Entry
from tridiag.problems.forms import Form, Shape

T = TypeVar("T")
Array = np.ndarray[Any, Any]
Facts = tuple[np.dtype[Any], Shape, Shape]
Casts = tuple[tuple[int, Callable[[Any], Array]], ...]  # what becomes of which arguments
SCALARS = {np.float32, np.float64}
NUMBERS = {int, float, *SCALARS} if np.__version__ >= "2" else set()  # promote by their types; before NumPy 2 by values
facts_of: Callable[[Array], Facts] = attrgetter("dtype", "shape", "strides")


def one_each(kind: type[T]) -> Callable[..., T]:
    """Make one object of all that is equal, told by its identity: to hash all facts takes as long as a small call."""
    kind.__eq__, kind.__hash__ = object.__eq__, object.__hash__  # type: ignore[method-assign]
    return functools.lru_cache(1024, typed=True)(kind)


def facts_of_all(given: Any) -> tuple[Any, ...]:
    """Those of arrays; of anything else its type."""
    return tuple([facts_of(y) if type(y) is np.ndarray else type(y) for y in given])


def cast(given: list[Any], casts: Casts) -> list[Any] | None:
    """The arguments, some of them in another dtype; None where an integer of Python has more than 64 bits."""
    try:
        for k, function in casts:
            given[k] = function(given[k])
    except OverflowError:
        return None
    return given


def raise_if_singular_plain(x: Array, matrix: Iterable[Any], shapes: tuple[Any, ...], form: Form) -> None:
    """`raise_if_singular` of a, b, c and where as they were given; ``shapes``: those that they have in the form."""
    a, b, c, where = (y if y is None else y.reshape(shape) for y, shape in zip(matrix, shapes, strict=True))
    raise_if_singular(x, None, (a, b, c, where), form)


def surely_disjoint(x: Array, others: tuple[Any, ...]) -> bool:
    """Whether x surely shares no memory with the arrays of others: owners do not, others tell by their ends."""
    owns, arrays = x.flags.owndata, [y for y in others if type(y) is np.ndarray]
    return all([(owns and y.flags.owndata and y is not x) or not np.may_share_memory(x, y) for y in arrays])


def may_be_bound(facts: tuple[Any, ...]) -> bool:
    """Whether all arguments are arrays, or numbers that promote by their types."""
    return all(not isinstance(fact, type) or fact in NUMBERS for fact in facts)


def entry_of(fact: Any) -> Entry:
    """What a plan is made from."""
    return (np.asarray(fact()).dtype, ()) if isinstance(fact, type) else fact[:2]


def promotion(facts: tuple[Any, ...]) -> Any:
    """The dtype to which arguments promote, where there are numbers among them."""
    if not any(isinstance(fact, type) for fact in facts):
        return None
    return np.result_type(*(fact() if isinstance(fact, type) else fact[0] for fact in facts))


def casts_of(plan: Plan, facts: tuple[Any, ...]) -> Casts | None:
    """Which arguments get another dtype; None where more is to be done than that."""
    wanted = {k: dtype for k, dtype, _ in plan.steps if entry_of(facts[k])[0] != np.dtype(dtype)}
    lies_otherwise = any(not isinstance(facts[k], type) and not is_contiguous(facts[k]) for k in wanted)
    if plan.casts or plan.empty or lies_otherwise:
        return None
    numbers = {k: entry_of(fact)[0].name for k, fact in enumerate(facts) if isinstance(fact, type)}
    return tuple((k, casting(facts[k], dtype)) for k, dtype in (numbers | wanted).items())


def casting(fact: Any, dtype: str) -> Callable[[Any], Array]:
    """The cast of an argument; what is in the range of double precision needs no care for it."""
    if fact is int:
        return lambda x: library.cast(np.int64(x), dtype)  # which raises where there are more bits
    double = dtype in ("float64", "complex128")
    return functools.partial(np.asarray, dtype=np.dtype(dtype)) if double else lambda x: library.cast(x, dtype)


def is_contiguous(facts: Facts) -> bool:
    """Whether an array in another dtype lies as it does."""
    dtype, shape, strides = facts
    return strides == contiguous(shape, dtype.itemsize)


def extents_of(fact: Any, plan: Plan | None = None, k: int = 0) -> Facts:
    """The facts of an argument as the kernel takes it: number ``k`` of a plan, if there is one."""
    dtype, shape = entry_of(fact)
    wanted = np.dtype(next((name for other, name, _ in plan.steps if other == k), dtype) if plan else dtype)
    if isinstance(fact, type):
        return wanted, (), ()
    return (dtype, shape, fact[2]) if wanted == dtype else (wanted, shape, contiguous(shape, wanted.itemsize))


def brought_side_by_side(operands: Sequence[Facts], axes: Sequence[int]) -> tuple[list[Facts], list[int]]:
    """Operands whose last ``axes`` lie side by side, by copies where they do not; and which are copied."""
    apart = [
        not is_packed(shape, steps, last, dtype.itemsize)
        for (dtype, shape, steps), last in zip(operands, axes, strict=True)
    ]
    copies = [
        (dtype, shape, contiguous(shape, dtype.itemsize) if copied else steps)
        for (dtype, shape, steps), copied in zip(operands, apart, strict=True)
    ]
    return copies, [k for k, copied in enumerate(apart) if copied]


def fits(facts: Facts, result: Facts) -> bool:
    """Whether an array can hold the solution, each entry in a place of its own."""
    return facts[:2] == result[:2] and not self_overlaps(*facts[1:], facts[0].itemsize)


def kept_call_of(
    call: Any,
    given: tuple[Any, ...],
    casts: Casts,
    wanted: Any,
    sources: tuple[int, ...],
    out: int,
    checked: bool,
    guard: Guard | None = None,
) -> Keepable | None:
    """A bound call for a `CallTable`; None where Python has more to do than to make a result.

    ``given``: the facts of arguments, and what has to be the very same; a tuple where the verb takes one. ``casts``:
    those of the arguments that have facts, one by one. ``wanted``: dtype and shape of the result. ``sources``, ``out``
    and ``guard``: see `kept_call`.
    """
    if not hasattr(call, "run"):
        return None
    one_by_one = [x for argument in given for x in (argument if type(argument) is Group else (argument,))]
    facts, functions = iter(range(len(one_by_one))), dict(casts)
    arguments = [
        x if isinstance(x, Same) else argument_of(x, wanted[0], functions.get(next(facts))) for x in one_by_one
    ]
    if None in arguments:
        return None
    result = wanted if isinstance(wanted, Several) else Layout(wanted[0], wanted[1], ())
    groups = [len(x) if type(x) is Group else None for x in given]

    def of_threads(threads: int) -> Kept | None:
        return kept_call(arguments, groups, call.run, sources, result, out, checked, guard, threads)

    return functools.lru_cache(1)(of_threads) if call.threaded else of_threads(0)


def argument_of(fact: Any, dtype: np.dtype[Any], function: Callable[[Any], Array] | None) -> Any:
    """An argument for `kept_call`, whose kernel computes with a dtype; None where Python is to convert it first.

    ``function``: the cast of it, if there is one.
    """
    if fact in (int, float) and dtype.name in ("float32", "float64"):
        return Number(fact, dtype)
    if isinstance(fact, type):
        return Number(fact, dtype) if fact in SCALARS and np.dtype(fact) == dtype else None
    layout = Layout(*fact)
    if function is None:
        return layout
    if layout.dtype not in ARRAYS or math.prod(layout.shape) > CONVERTED:
        return None
    return Converted(layout) if function(np.empty(0, layout.dtype)).dtype == np.float64 else None


class Group(tuple[Any, ...]):
    """The facts of the items of an argument that is a tuple."""


def steps_in(shape: Shape, strides: Shape, lifted: Shape) -> Shape:
    """The strides of an array with ones put into its shape, or taken out."""
    if shape == lifted:
        return strides
    found = iter([step for length, step in zip(shape, strides, strict=True) if length != 1])
    return tuple([next(found) if length != 1 else 0 for length in lifted])
