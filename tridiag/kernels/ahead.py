"""Which kernels the verbs take, for who compiles them ahead of their first call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tridiag.kernels.jobs.words.kalman import COMPLETE, MISSING, SHARED
from tridiag.kernels.runtime import call_table, python_call
from tridiag.kernels.table import kernel

Named = tuple[Any, ...]  # a family of `tridiag.kernels.table.KERNELS`, a dtype, and what else names one of it

LAYOUTS = ("rows", "interleaved", "pivoted")
FACTORED = ("few_matrices", "multiple_rhs")
DATA = (COMPLETE, SHARED, MISSING)
SYSTEMS = ("float64", "float32", "complex128", "complex64")
REAL = SYSTEMS[:2]


class Taken(NamedTuple):
    """The kernels that a verb takes, and those of its backward pass that it does not take itself.

    A family, and what names one of it after the dtype: ``SIZE`` stands for an order, or a length of vectors, ``STATES``
    for the states and the values observed of a model.
    """

    forward: tuple[Named, ...]
    backward: tuple[Named, ...] = ()
    dtypes: tuple[str, ...] = SYSTEMS


SIZE, STATES = object(), object()


def each(family: str, kinds: Sequence[str], *sizes: object) -> tuple[Named, ...]:
    return tuple((family, *sizes, kind) for kind in kinds)


VERBS = {
    "solve": Taken(
        (*each("thomas", (*LAYOUTS, *FACTORED)), ("row_blocks", "interleaved"), ("cyclic",), ("partition",)),
        (*each("thomas_adjoint", LAYOUTS), ("row_blocks_adjoint", "interleaved"), ("cyclic_adjoint",)),
    ),
    "factor": Taken(each("thomas", FACTORED)),
    "slogdet": Taken((("determinants",),)),
    "matmul": Taken((("products",),)),
    "solve_block": Taken((("blocks", SIZE), ("few_blocks", SIZE)), dtypes=REAL),
    "linear_recurrence": Taken((("recurrence", SIZE), ("constant", SIZE))),
    "matrix_recurrence": Taken((("matrices", SIZE),)),
    "log_linear_recurrence": Taken((("logsumexp",),), dtypes=REAL),
    "logcumsumexp": Taken((("logsumexp",),), dtypes=REAL),
    "smith_waterman": Taken(
        each("alignment", ("linear", "affine")),
        each("alignment", ("linear_parameters", "affine_parameters")),
        REAL,
    ),
    "kalman.log_likelihood": Taken(
        (*each("filter", DATA, STATES), ("filter_guard",)), each("filter_gradient", DATA, STATES), REAL
    ),
    "kalman.filter": Taken((*each("moments", (COMPLETE, MISSING), STATES), ("filter_guard",)), dtypes=REAL),
    "kalman.smoother": Taken((*each("smoother", (COMPLETE, MISSING), STATES), ("filter_guard",)), dtypes=REAL),
}


def kernels_of(
    verbs: Sequence[str],
    dtypes: Sequence[str],
    sizes: Sequence[int],
    states: Sequence[tuple[int, int]],
    backward: bool = False,
) -> list[Named]:
    """The kernels that these verbs take, each once; of a dtype that a verb does not have there are none."""
    found: dict[Named, None] = {}
    for verb in verbs:
        taken = VERBS[verb]
        for family, *rest in taken.forward + (taken.backward if backward else ()):
            for dtype in dtypes:
                if dtype in taken.dtypes:
                    for arguments in filled(rest, sizes, states):
                        found[family, dtype, *arguments] = None
    return list(found)


def filled(rest: Sequence[Any], sizes: Sequence[int], states: Sequence[tuple[int, int]]) -> list[tuple[Any, ...]]:
    """What names a kernel after its dtype, for every size that it is wanted for."""
    if rest[:1] == [SIZE]:
        return [(size, *rest[1:]) for size in sizes]
    return [(*pair, *rest[1:]) for pair in states] if rest[:1] == [STATES] else [tuple(rest)]


def prepare(named: Named) -> bool:
    """Compile a kernel and keep its code; False where that has been done before."""
    for entry in (python_call.method, call_table.method):  # of calls from Python
        entry()
    return not kernel(*named).found
