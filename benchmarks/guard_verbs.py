"""Problems of `guard_lines.py` in float64 whose reference is a loop of `plain_loops`, with the threads of `tridiag`."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # else the loops' threads spin on into the next contestant

import numba
import numpy as np
from plain_loops import LOOPS

import tridiag
from tridiag.benchmarking import operands
from tridiag.benchmarking.errors import Array, relative_error
from tridiag.benchmarking.operands import Shape
from tridiag.benchmarking.race import Contestant
from tridiag.kernels.jobs.systems import threads

PLAUSIBLE = 1e5  # eps: of values that remember hundreds of steps
ORDER_2 = 1.2, -0.5  # constant coefficients
LOOP = "plain loop"


class Verb(NamedTuple):
    shapes: Callable[[Shape], tuple[Shape, ...]]  # of the operands
    values: Callable[..., tuple[Any, ...]]  # from random numbers and those shapes
    call: Callable[..., Any]  # of the operands, and of an array for the result
    loop: str


def logarithm(a: Array, b: Array, c: Array, out: Array) -> Array:
    return tridiag.slogdet(a, b, c)[1]


def of_order_2(rng: np.random.Generator, *shapes: Shape) -> tuple[Any, ...]:
    return (*ORDER_2, *operands.normal(rng, *shapes))


def masked_system(rng: np.random.Generator, *shapes: Shape) -> tuple[Any, ...]:
    """And a mask that takes one row in ten out."""
    return (*operands.system(rng, *shapes), rng.random(shapes[0]) < 0.9)


VERBS = {
    "solve, where=mask, axis=0": Verb(
        operands.like(4),
        masked_system,
        lambda *x, out: tridiag.solve(*x[:4], axis=0, where=x[4], out=out),
        "solve_masked_columns",
    ),
    "slogdet": Verb(operands.like(3), operands.system, logarithm, "slogdet"),
    "matmul": Verb(operands.like(4), operands.system, lambda *x, out: tridiag.matmul(*x), "matmul"),
    "solve_block": Verb(
        operands.block_shapes, operands.blocks, lambda *x, out: tridiag.solve_block(*x), "solve_blocks"
    ),
    "matrix_recurrence": Verb(
        operands.matrix_shapes, operands.matrices, tridiag.matrix_recurrence, "matrix_recurrence"
    ),
    "log_linear_recurrence": Verb(
        operands.like(2), operands.log_recurrence, tridiag.log_linear_recurrence, "log_recurrence_rows"
    ),
    "linear_recurrence, axis=0": Verb(
        operands.like(2),
        operands.recurrence,
        lambda *x, out: tridiag.linear_recurrence(*x, axis=0, out=out),
        "recurrence_columns",
    ),
    "linear_recurrence of order 2": Verb(
        operands.like(1),
        of_order_2,
        lambda a1, a2, x, out: tridiag.linear_recurrence((a1, a2), x, out=out),
        "filter_of_order_2",
    ),
}


@dataclass(frozen=True)
class Problem:
    """Arrays of one verb; made when first asked for, and the same for both contestants."""

    name: str
    shape: Shape

    @property
    def verb(self) -> Verb:
        return VERBS[self.name]

    @cached_property
    def given(self) -> tuple[Any, ...]:
        return self.verb.values(np.random.default_rng(0), *self.verb.shapes(self.shape))

    @property
    def results(self) -> tuple[Array, ...]:
        """What the loop writes; of determinants the sign, then the logarithm."""
        count = 2 if self.name == "slogdet" else 1
        shape = self.shape[:1] if self.name == "slogdet" else self.shape
        return tuple(np.full(shape, np.nan) for _ in range(count))

    @cached_property
    def exact(self) -> Array:
        return self.by_the_loop()()

    def by_the_loop(self) -> Callable[[], Array]:
        numba.set_num_threads(min(threads(), numba.config.NUMBA_NUM_THREADS))
        (_, parallel), results = LOOPS[self.verb.loop], self.results

        def call() -> Array:
            parallel(*self.given, *results)
            return results[-1]

        return call

    def contestant(self, call: Callable[[], Array]) -> Contestant:
        return Contestant(call, lambda found: relative_error(found, self.exact), PLAUSIBLE)


def ours(problem: Problem) -> Contestant:
    call, given, (*_, out) = problem.verb.call, problem.given, problem.results
    return problem.contestant(lambda: call(*given, out=out))


def theirs(problem: Problem) -> Contestant:
    return problem.contestant(problem.by_the_loop())


MAKERS: dict[str, Callable[[Any], Contestant]] = {LOOP: theirs, **dict.fromkeys(VERBS, ours)}
