"""What the problems of each verb are made of: operands, a judge, the words that they have to move."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tridiag.benchmarking import judges, operands
from tridiag.benchmarking.errors import Array
from tridiag.benchmarking.judges import Posed
from tridiag.benchmarking.operands import SELECTIVE_STATES, Shape, like

CLOSE = {"float64": 1e-9, "float32": 1e-3}  # relative errors: sums of very many logarithms


class Words(NamedTuple):
    """The words that have to be read and written, each once."""

    reads: int
    writes: int

    def plus(self, more: Words) -> Words:
        return Words(self.reads + more.reads, self.writes + more.writes)

    def times(self, count: int) -> Words:
        return Words(self.reads * count, self.writes * count)

    @property
    def total(self) -> int:
        return self.reads + self.writes


class Kind(NamedTuple):
    """What problems of a verb are made of; words and operations are those of an entry of the shape."""

    shapes: Callable[[Shape], tuple[Shape, ...]]  # of the operands that are arrays
    values: Callable[..., tuple[Array, ...]]  # from random numbers and those shapes
    error: Callable[[Posed, Array], float]  # in eps
    limit: float | dict[str, float]  # in eps; or relative, by the dtype
    words: Callable[[int], Words]  # of the last length of the shape
    backward: Callable[[int], Words]  # of the gradient, its cotangent read
    operations: Callable[[int], int] | None = None  # additions, multiplications and divisions
    fixed: tuple[tuple[str, float], ...] = ()  # operands that are scalars
    usual: Shape = (1000, 100)  # where none is given


KINDS = {
    "solve": Kind(
        like(4),
        operands.system,
        judges.solve_error,
        16.0,
        lambda _: Words(4, 1),
        lambda _: Words(5, 4),
        operations=lambda _: 9,
    ),
    "slogdet": Kind(
        like(3), operands.system, judges.determinant_error, 1e3, lambda _: Words(3, 0), lambda _: Words(3, 3)
    ),
    "solve_block": Kind(
        operands.block_shapes,
        operands.blocks,
        judges.block_error,
        1e3,
        lambda m: Words(3 * m + 1, 1),
        lambda m: Words(3 * m + 2, 3 * m + 1),
        usual=(1000, 100, 4),
    ),
    "linear_recurrence": Kind(
        like(2),
        operands.recurrence,
        judges.step_error,
        1e3,
        lambda _: Words(2, 1),
        lambda _: Words(3, 2),
        operations=lambda _: 2,
    ),
    "matrix_recurrence": Kind(
        operands.matrix_shapes,
        operands.matrices,
        judges.matrix_step_error,
        1e3,
        lambda m: Words(m + 1, 1),
        lambda m: Words(m + 2, m + 1),
        operations=lambda m: 2 * m,
        usual=(1000, 100, 4),
    ),
    "selective_scan": Kind(
        operands.selective_shapes,
        operands.selective,
        judges.selective_error,
        100.0,
        lambda _: Words(1 + 2 * SELECTIVE_STATES, 1),
        lambda _: Words(2 + 2 * SELECTIVE_STATES, 1 + 2 * SELECTIVE_STATES),
        operations=lambda _: 5 * SELECTIVE_STATES,
    ),
    "log_linear_recurrence": Kind(
        like(2),
        operands.log_recurrence,
        judges.logarithm_step_error,
        100.0,
        lambda _: Words(2, 1),
        lambda _: Words(3, 2),
    ),
    "logcumsumexp": Kind(
        like(1),
        operands.normal,
        judges.logarithm_error,
        4.0,
        lambda _: Words(1, 1),
        lambda _: Words(3, 1),
    ),
    "kalman.log_likelihood": Kind(
        operands.model_shapes,
        operands.model,
        judges.scalar_error,
        CLOSE,
        lambda _: Words(1, 0),
        lambda _: Words(1, 1),
        usual=(1000, 100, 1),
    ),
    "smith_waterman": Kind(
        like(1),
        operands.normal,
        judges.score_error,
        1e3,
        lambda _: Words(1, 0),
        lambda _: Words(1, 1),
        fixed=(("gap", -1.0),),
    ),
}


class Alike(NamedTuple):
    """A verb that is explained and not timed: of the operands of another kind."""

    kind: str
    shapes: Callable[[Shape], dict[str, Shape]] | None = None  # of its operands by their names; None: as the other has
    more: Callable[[Shape], dict[str, object]] = lambda shape: {}  # other arguments


SERIES = "kalman.log_likelihood"
AHEAD = 10  # steps of a forecast
ALIKE = {
    "factor": Alike("slogdet"),
    "matmul": Alike("solve"),
    "scan": Alike("linear_recurrence", operands.scan_shapes, lambda shape: {"f": lambda carry, row: (carry, row)}),
    "kalman.filter": Alike(SERIES),
    "kalman.smoother": Alike(SERIES),
    "kalman.lag_one_smoother": Alike(SERIES),
    "kalman.disturbance_smoother": Alike(SERIES),
    "kalman.forecast": Alike(SERIES, more=lambda shape: {"steps": AHEAD}),
    "kalman.predict": Alike(SERIES, operands.predict_shapes),
    "kalman.update": Alike(SERIES, operands.update_shapes),
    "kalman.simulate": Alike(
        SERIES, operands.simulation_shapes, lambda shape: {"generator": None, "steps": (1, *shape)[-2]}
    ),
    "kalman.simulation_smoother": Alike(SERIES, more=lambda shape: {"generator": None}),
}


def kind_of(verb: str) -> Kind:
    """What problems of a verb are made of, or those of one like it."""
    return KINDS[ALIKE[verb].kind if verb in ALIKE else verb]
