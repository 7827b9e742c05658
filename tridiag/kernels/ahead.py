"""Which kernels the verbs take, for who compiles them ahead of their first call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tridiag.kernels.jobs.kalman import MANY, is_written_out, kernels_for, kernels_for_step
from tridiag.kernels.jobs.recurrences import MOST_IN_VECTORS
from tridiag.kernels.jobs.words.kalman import COMPLETE, MISSING, SHARED
from tridiag.kernels.jobs.words.recurrences import WRITTEN_OUT
from tridiag.kernels.runtime import call_table, object_cache, python_call, shipped
from tridiag.kernels.table import KERNELS, builder_of, kernel, name_of
from tridiag.problems.forms import LARGEST

Named = tuple[Any, ...]  # a family of `tridiag.kernels.table.KERNELS`, a dtype, and what else names one of it

ORDERS = 8  # of linear recurrences
LAYOUTS = ("rows", "masked_rows", "interleaved", "pivoted", "masked")
LONG = ("interleaved", "masked")  # in blocks of rows
FACTORED = ("few_matrices", "multiple_rhs")
DATA = (COMPLETE, SHARED, MISSING)
FILTERS = ("filter_guard",), ("filter_unknown",)  # of models of any size
DTYPES = ("float64", "float32", "complex128", "complex64")
# families of real numbers alone
REAL = (
    "constant", "selective", "selective_adjoint", "logsumexp", "alignment", "filter", "filter_gradient", "filter_guard",
    "filter_unknown", "known_guard", "moments", "predict", "smoother", "smoother_unknown", "update",
)  # fmt: skip


class Taken(NamedTuple):
    """The kernels that a verb takes, and those of its backward pass that it does not take itself.

    A family, and what names one of it after the dtype: a `Size` stands for an order, or a length of vectors, ``STATES``
    for the states and the values observed of a model. Of steps the family is that of kernels written out for a size.
    """

    forward: tuple[Named, ...]
    backward: tuple[Named, ...] = ()


class Size(NamedTuple):
    """Stands for a size of those for which there are such kernels."""

    least: int
    most: int


STATES = object()


def each(family: str, kinds: Sequence[str], *sizes: object) -> tuple[Named, ...]:
    return tuple((family, *sizes, kind) for kind in kinds)


VERBS = {
    "solve": Taken(
        (*each("thomas", (*LAYOUTS, *FACTORED)), *each("row_blocks", LONG), ("cyclic",), ("partition",)),
        (*each("thomas_adjoint", LAYOUTS), *each("row_blocks_adjoint", LONG), ("cyclic_adjoint",)),
    ),
    "factor": Taken(each("thomas", FACTORED), each("thomas_adjoint", FACTORED)),
    "slogdet": Taken((("determinants",),), (("inverse_entries",),)),
    "matmul": Taken((("products",),)),
    "solve_block": Taken((("blocks", Size(1, LARGEST)), ("few_blocks", Size(1, WRITTEN_OUT)))),
    "linear_recurrence": Taken((("recurrence", Size(1, ORDERS)), ("constant", Size(1, MOST_IN_VECTORS)))),
    "matrix_recurrence": Taken((("matrices", Size(2, LARGEST)), ("recurrence", Size(1, 1)))),
    "log_linear_recurrence": Taken((("logsumexp",),)),
    "logcumsumexp": Taken((("logsumexp",),)),
    "selective_scan": Taken((("selective",),), (("selective_adjoint",),)),
    "smith_waterman": Taken(
        each("alignment", ("linear", "affine")),
        each("alignment", ("linear_parameters", "affine_parameters")),
    ),
    "kalman.log_likelihood": Taken((*each("filter", DATA, STATES), *FILTERS), each("filter_gradient", DATA, STATES)),
    "kalman.filter": Taken((*each("moments", (COMPLETE, MISSING), STATES), *FILTERS)),
    "kalman.smoother": Taken(
        (
            *each("smoother", (COMPLETE, MISSING), STATES),
            *FILTERS,
            ("smoother_unknown",),  # this and the next where states are unknown at first
            *each("filter", DATA, STATES),
        )
    ),
    "kalman.predict": Taken((("predict", STATES), ("known_guard",))),
    "kalman.update": Taken((("update", STATES), ("known_guard",))),
}


def kernels_of(
    verbs: Sequence[str],
    dtypes: Sequence[str],
    sizes: Sequence[int],
    states: Sequence[tuple[int, int]],
    backward: bool = False,
) -> list[Named]:
    """The kernels that these verbs take, each once; of a dtype or size that a family does not have there are none."""
    found: dict[Named, None] = {}
    for verb in verbs:
        taken = VERBS[verb]
        for family, *rest in taken.forward + (taken.backward if backward else ()):
            for dtype in dtypes:
                if family not in REAL or np.dtype(dtype).kind == "f":
                    found |= dict.fromkeys(filled(family, dtype, rest, sizes, states))
    return list(found)


def filled(
    family: str, dtype: str, rest: Sequence[Any], sizes: Sequence[int], states: Sequence[tuple[int, int]]
) -> list[Named]:
    """The kernels of a family, one for every size that it is wanted for."""
    if rest and isinstance(rest[0], Size):
        return [(family, dtype, size, *rest[1:]) for size in sizes if rest[0].least <= size <= rest[0].most]
    if rest == [STATES]:
        return [named for pair in states for named in kernels_for_step(family, dtype, *pair)]
    if rest[:1] != [STATES]:
        return [(family, dtype, *rest)]
    some = [pair for pair in states if is_written_out(*pair) or family in MANY]
    return [named for pair in some for named in kernels_for(family, dtype, *pair, rest[1])]


def prepare(named: Named) -> bool:
    """Compile a kernel and keep its code; False where that has been done before."""
    prepare_calls()
    return not kernel(*named).found


def prepare_calls() -> None:
    """The kernels by which Python calls the others."""
    for entry in (python_call.method, call_table.method):
        entry()


def builders(some: Sequence[Named]) -> dict[str, object_cache.Builder]:
    """What builds kernels, those that they call, and those by which Python calls them; by their names."""
    found = dict([python_call.ENTRY, call_table.ENTRY])
    for family, *arguments in some:
        called: str | None = family
        while called:
            found[name_of(called, *arguments)] = builder_of(called, *arguments)
            called = KERNELS[called].calls
    return found


def bring_along(name: str, module: str, code: object_cache.Code, folder: Path) -> Path:
    """Write the code of a kernel that a module has built as the file that comes with a wheel."""
    target = folder / shipped.file_name(name, module)
    target.write_bytes(object_cache.pack(code, target.name))
    return target
