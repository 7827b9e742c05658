"""A problem of any verb: its operands, whether a result of it is right, and the words that it has to move."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

import tridiag
from tridiag.benchmarking import libraries
from tridiag.benchmarking.errors import Array, backward_errors
from tridiag.benchmarking.race import Contestant
from tridiag.benchmarking.textbook import align
from tridiag.report import VERBS, Explanation
from tridiag.singular import to_host

STATES = 4  # of a Kalman filter's model
SAMPLE = 4  # pairs whose alignment is judged
STEP = 1e-6  # of a directional derivative
CLOSE = {"float64": 1e-9, "float32": 1e-3}  # relative errors: sums of very many logarithms
SLOPE = {"float64": 1e-6, "float32": 1e-3}  # of directional derivatives, found by differences

Shape = tuple[int, ...]


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
    error: Callable[[Problem, Array], float]  # in eps
    limit: float | dict[str, float]  # in eps; or relative, by the dtype
    words: Callable[[int], Words]  # of the last length of the shape
    backward: Callable[[int], Words]  # of the gradient, its cotangent read
    operations: Callable[[int], int] | None = None  # additions, multiplications and divisions
    fixed: tuple[tuple[str, float], ...] = ()  # operands that are scalars


@dataclass(frozen=True)
class Problem:
    """Arrays of a library for a verb; made when first asked for, and the same for all contestants."""

    verb: str
    shape: Shape
    axis: int = -1
    dtype: str = "float64"
    library: str = "numpy"
    pivoting: bool | str = "auto"
    gradient: bool = False
    device: str | None = None

    @property
    def kind(self) -> Kind:
        return KINDS[ALIKE.get(self.verb, self.verb)]

    @property
    def options(self) -> dict[str, Any]:
        """The options that the verb has."""
        known = VERBS[self.verb].options
        return {name: value for name, value in (("axis", self.axis), ("pivoting", self.pivoting)) if name in known}

    @property
    def eps(self) -> float:
        return float(np.finfo(self.dtype).eps)

    @property
    def limit(self) -> float:
        """The largest error of a right result, in eps."""
        limit = self.kind.limit
        return limit[np.dtype(self.dtype).name] / self.eps if isinstance(limit, dict) else limit

    @property
    def words(self) -> Words:
        """Of the whole problem."""
        last = self.shape[-1]
        forward = self.kind.words(last)
        return (forward.plus(self.kind.backward(last)) if self.gradient else forward).times(math.prod(self.shape))

    def told(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"{self.verb} of {self.shape}{options}, {self.dtype}{' with gradient' if self.gradient else ''}"

    @cached_property
    def host(self) -> tuple[Array, ...]:
        """The operands as NumPy arrays."""
        values = self.kind.values(np.random.default_rng(0), *self.kind.shapes(self.shape))
        return tuple(x.astype(self.dtype) for x in values)

    @cached_property
    def given(self) -> tuple[Any, ...]:
        """The same in the library."""
        return tuple(libraries.array(self.library, x, self.device) for x in self.host)

    @cached_property
    def out(self) -> Any:
        return libraries.array(self.library, np.full(self.shape, np.nan, self.dtype), self.device)

    def arguments(self, arrays: Sequence[Any]) -> dict[str, Any]:
        """Those of the verb, by their names."""
        fixed = dict(self.kind.fixed)
        return dict(zip((name for name in VERBS[self.verb].needed if name not in fixed), arrays, strict=True)) | fixed

    def function(self, backend: str, **more: Any) -> Callable[..., Any]:
        """The verb as a function of its arrays; where it has several results, the last one."""
        verb: Any = functools.reduce(getattr, self.verb.split("."), tridiag)

        def function(*arrays: Any) -> Any:
            result = verb(**self.arguments(arrays), **self.options, backend=backend, **more)
            return result[-1] if isinstance(result, tuple) else result

        return function

    def contestant(self, backend: str = "auto") -> Contestant:
        """The package: into memory that is there already, where the library has such a thing."""
        takes_out = self.library != "jax" and "out" in VERBS[self.verb].more and not self.gradient
        return self.by(self.function(backend, **({"out": self.out} if takes_out else {})))

    def by(self, function: Callable[..., Any], limit: float | None = None) -> Contestant:
        """Any function of the arrays; or it and its gradient."""
        arrays = self.given
        if self.gradient:
            if np.dtype(self.dtype).kind != "f":
                raise ValueError(f"gradients are judged, and so timed, in float32 and float64, not in {self.dtype}")
            function = libraries.with_gradient(self.library, function)
            arrays += (libraries.array(self.library, self.cotangent, self.device),)
        limit = self.limit if limit is None else limit
        return Contestant(libraries.called(self.library, function, arrays), self.error, limit)

    def of(self, library: str) -> Problem:
        """The same numbers in another library."""
        found = replace(self, library=library)
        found.__dict__["host"] = self.host
        return found

    @cached_property
    def exact(self) -> list[Array]:
        """The operands in double precision."""
        return [x.astype(np.promote_types(x.dtype, float)) for x in self.host]

    def reference(self, *arrays: Array) -> Array:
        """The verb by the reference backend, which is a loop in NumPy, or by the textbook."""
        if self.verb == "smith_waterman":
            return np.asarray(align(arrays[0], **dict(self.kind.fixed)))
        return np.asarray(self.function("numpy")(*arrays))

    @cached_property
    def wanted(self) -> Array:
        return self.reference(*self.exact)

    @cached_property
    def cotangent(self) -> Array:
        return np.asarray(np.random.default_rng(1).standard_normal(self.wanted.shape), self.dtype)

    def error(self, result: Any) -> float:
        """In eps; that of gradients counts where it takes more of what is allowed of the package."""
        if not self.gradient:
            return self.kind.error(self, to_host(result))
        value, gradients = result
        slope = self.slope_error([to_host(x) for x in gradients]) / SLOPE[self.dtype] * self.limit
        return float(np.maximum(self.kind.error(self, to_host(value)), slope))

    def slope_error(self, gradients: list[Array]) -> float:
        """The relative error of the slope in the direction in which every entry of the gradient counts."""
        gradients = [even(x, operand) for x, operand in zip(gradients, self.host, strict=True)]
        ways = [np.where(x == 0, 1.0, np.sign(x)) for x in gradients]
        ahead, behind = (
            (self.reference(*(x + step * way for x, way in zip(self.exact, ways, strict=True))) * self.cotangent).sum()
            for step in (STEP, -STEP)
        )
        slope = sum(float(abs(x.astype(float)).sum()) for x in gradients)
        return float(abs((ahead - behind) / (2 * STEP) / slope - 1))

    def explain(self, backend: str = "auto") -> Explanation:
        """What the package says of the call, from arrays that are the same in kind."""
        shapes = self.kind.shapes(self.shape)
        arrays = [libraries.zeros(self.library, shape, self.dtype, self.device) for shape in shapes]
        return tridiag.explain(self.verb, **self.arguments(arrays), **self.options, backend=backend)


# ---------------------------------------------------------------------------------------------------- operands


def like(count: int) -> Callable[[Shape], tuple[Shape, ...]]:
    return lambda shape: (shape,) * count


def system(rng: np.random.Generator, *shapes: Shape) -> tuple[Array, ...]:
    """Diagonally dominant: couplings decay."""
    a, c = rng.uniform(-1, 1, shapes[0]), rng.uniform(-1, 1, shapes[0])
    b = abs(a) + abs(c) + rng.uniform(0.01, 1, shapes[0])
    return (a, b, c, *(rng.standard_normal(shape) for shape in shapes[3:]))


def blocks(rng: np.random.Generator, *shapes: Shape) -> tuple[Array, ...]:
    """Blocks on the diagonal dominate."""
    A, B, C = (rng.uniform(-1, 1, shape) / shape[-1] for shape in shapes[:3])
    return A, B + 3 * np.eye(shapes[1][-1]), C, rng.standard_normal(shapes[3])


def matrices(rng: np.random.Generator, *shapes: Shape) -> tuple[Array, ...]:
    """Vectors neither grow nor vanish."""
    return rng.uniform(-1, 1, shapes[0]) / np.sqrt(shapes[0][-1]), rng.standard_normal(shapes[1])


def model(rng: np.random.Generator, *shapes: Shape) -> tuple[Array, ...]:
    """A stable one of some states, and observations."""
    noise = rng.normal(size=shapes[1])
    H, R = rng.normal(size=shapes[2]), 0.5 * np.eye(shapes[0][-1])
    Q = noise @ noise.T / STATES + 0.1 * np.eye(STATES)
    y = rng.normal(size=shapes[0])
    return y, 0.9 * np.linalg.qr(noise)[0], H, Q, R, np.zeros(STATES), 10 * np.eye(STATES)


def model_shapes(shape: Shape) -> tuple[Shape, ...]:
    square, observed = (STATES, STATES), shape[-1]
    return shape, square, (observed, STATES), square, (observed, observed), (STATES,), square


# ---------------------------------------------------------------------------------------------------- errors


def even(gradient: Array, operand: Array) -> Array:
    """The symmetric part, where the operand is symmetric and has to remain so: a covariance."""
    return (gradient + gradient.T) / 2 if operand.ndim == 2 and np.array_equal(operand, operand.T) else gradient


def largest(errors: Array, problem: Problem) -> float:
    return float(errors.max(initial=0)) / problem.eps


def solve_error(problem: Problem, x: Array) -> float:
    a, b, c, d = problem.host
    return float(backward_errors(a, b, c, d, x, problem.axis).max(initial=0))


def determinant_error(problem: Problem, log: Array) -> float:
    """Of the sum of the logarithms of the pivots, of what they add up to without signs."""
    a, b, c = (np.moveaxis(x, problem.axis, 0) for x in problem.exact)
    logs, pivot = [np.log(abs(b[0]))], b[0]
    for above, (x, y) in zip(c[:-1], zip(a[1:], b[1:], strict=True), strict=True):
        pivot = y - x * above / pivot
        logs.append(np.log(abs(pivot)))
    return largest(abs(log - sum(logs)) / sum(map(abs, logs)), problem)


def block_error(problem: Problem, x: Array) -> float:
    """The componentwise residual, of what its terms add up to without signs."""
    *bands, d = problem.exact
    values = np.zeros_like(d), x.astype(d.dtype), np.zeros_like(d)
    values[0][..., 1:, :], values[2][..., :-1, :] = x[..., :-1, :], x[..., 1:, :]
    terms = [np.einsum("...ij,...j->...i", block, value) for block, value in zip(bands, values, strict=True)]
    sizes = [np.einsum("...ij,...j->...i", abs(block), abs(value)) for block, value in zip(bands, values, strict=True)]
    return largest(abs(d - sum(terms)) / (abs(d) + sum(sizes)), problem)


def step_error(problem: Problem, y: Array) -> float:
    """Of every step, y[t] = a[t] y[t-1] + x[t], of what its terms add up to without signs."""
    a, x = (np.moveaxis(v, problem.axis, 0) for v in problem.exact)
    y = np.moveaxis(y.astype(x.dtype), problem.axis, 0)
    term = a[1:] * y[:-1]
    later = abs(y[1:] - term - x[1:]) / (abs(y[1:]) + abs(term) + abs(x[1:]))
    return max(largest(abs(y[:1] - x[:1]), problem), largest(later, problem))


def matrix_step_error(problem: Problem, y: Array) -> float:
    A, x = problem.exact
    y = y.astype(x.dtype)
    term, size = (np.einsum("...ij,...j->...i", f(A[..., 1:, :, :]), f(y[..., :-1, :])) for f in (np.asarray, abs))
    later = abs(y[..., 1:, :] - term - x[..., 1:, :]) / (abs(y[..., 1:, :]) + size + abs(x[..., 1:, :]))
    return max(largest(abs(y[..., 0, :] - x[..., 0, :]), problem), largest(later, problem))


def logarithm_step_error(problem: Problem, y: Array) -> float:
    log_a, x = (np.moveaxis(v, problem.axis, 0) for v in problem.exact)
    y = np.moveaxis(y.astype(float), problem.axis, 0)
    later = abs(y[1:] - np.logaddexp(log_a[1:] + y[:-1], x[1:])) / np.maximum(1, abs(y[1:]))
    return max(largest(abs(y[:1] - x[:1]), problem), largest(later, problem))


def logarithm_error(problem: Problem, y: Array) -> float:
    """Against sums in long double: none of these terms overflows."""
    wanted = np.log(np.cumsum(np.exp(problem.exact[0].astype(np.longdouble)), axis=problem.axis))
    return largest((abs(y - wanted) / np.maximum(1, abs(wanted))).astype(float), problem)


def scalar_error(problem: Problem, found: Array) -> float:
    """Of one number for each series."""
    return largest(abs(found / problem.wanted - 1), problem)


def score_error(problem: Problem, score: Array) -> float:
    """Of some pairs."""
    scores = problem.exact[0].reshape(-1, *problem.shape[-2:])[:SAMPLE]
    return largest(abs(score.reshape(-1)[:SAMPLE] / problem.reference(scores) - 1), problem)


KINDS = {
    "solve": Kind(
        like(4), system, solve_error, 16.0, lambda _: Words(4, 1), lambda _: Words(5, 4), operations=lambda _: 9
    ),
    "slogdet": Kind(like(3), system, determinant_error, 1e3, lambda _: Words(3, 0), lambda _: Words(3, 3)),
    "solve_block": Kind(
        lambda shape: (*[(*shape, shape[-1])] * 3, shape),
        blocks,
        block_error,
        1e3,
        lambda m: Words(3 * m + 1, 1),
        lambda m: Words(3 * m + 2, 3 * m + 1),
    ),
    "linear_recurrence": Kind(
        like(2),
        lambda rng, *shapes: (rng.uniform(0.5, 1, shapes[0]), rng.standard_normal(shapes[1])),
        step_error,
        1e3,
        lambda _: Words(2, 1),
        lambda _: Words(3, 2),
        operations=lambda _: 2,
    ),
    "matrix_recurrence": Kind(
        lambda shape: ((*shape, shape[-1]), shape),
        matrices,
        matrix_step_error,
        1e3,
        lambda m: Words(m + 1, 1),
        lambda m: Words(m + 2, m + 1),
        operations=lambda m: 2 * m,
    ),
    "log_linear_recurrence": Kind(
        like(2),
        lambda rng, *shapes: (np.log(rng.uniform(0.5, 1, shapes[0])), rng.standard_normal(shapes[1])),
        logarithm_step_error,
        100.0,
        lambda _: Words(2, 1),
        lambda _: Words(3, 2),
    ),
    "logcumsumexp": Kind(
        like(1),
        lambda rng, shape: (rng.standard_normal(shape),),
        logarithm_error,
        4.0,
        lambda _: Words(1, 1),
        lambda _: Words(3, 1),
    ),
    "kalman.log_likelihood": Kind(
        model_shapes, model, scalar_error, CLOSE, lambda _: Words(1, 0), lambda _: Words(1, 1)
    ),
    "smith_waterman": Kind(
        like(1),
        lambda rng, shape: (rng.standard_normal(shape),),
        score_error,
        1e3,
        lambda _: Words(1, 0),
        lambda _: Words(1, 1),
        fixed=(("gap", -1.0),),
    ),
}

# verbs of the same operands, which are explained and not timed
ALIKE = {
    "factor": "slogdet",
    "kalman.filter": "kalman.log_likelihood",
    "kalman.smoother": "kalman.log_likelihood",
}
