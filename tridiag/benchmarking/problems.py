"""A problem of any verb: its operands, whether a result of it is right, and the words that it has to move."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from tridiag import kalman
from tridiag.alignment import smith_waterman
from tridiag.benchmarking import libraries
from tridiag.benchmarking.errors import Array
from tridiag.benchmarking.kinds import ALIKE, Alike, Kind, Words, kind_of
from tridiag.benchmarking.operands import Shape
from tridiag.benchmarking.race import Contestant
from tridiag.benchmarking.reference import align
from tridiag.calls.singular import to_host
from tridiag.factorization import factor
from tridiag.recurrences import linear_recurrence, log_linear_recurrence, logcumsumexp, matrix_recurrence
from tridiag.report import Explanation, explain
from tridiag.selective import selective_scan
from tridiag.systems import slogdet, solve, solve_block
from tridiag.verbs import VERBS

SYSTEMS = solve, factor, slogdet, solve_block
SEQUENCES = linear_recurrence, matrix_recurrence, log_linear_recurrence, logcumsumexp, selective_scan, smith_waterman
MODELS = kalman.filter, kalman.smoother, kalman.log_likelihood
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{verb.__name__: verb for verb in (*SYSTEMS, *SEQUENCES)},
    **{f"kalman.{verb.__name__}": verb for verb in MODELS},
}
STEP = 1e-6  # of a directional derivative
SLOPE = {"float64": 1e-6, "float32": 1e-3}  # of directional derivatives, found by differences


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
    periodic: bool = False

    @property
    def kind(self) -> Kind:
        return kind_of(self.verb)

    @property
    def options(self) -> dict[str, Any]:
        """The options that the verb has."""
        known = VERBS[self.verb].options
        found = {name: value for name, value in (("axis", self.axis), ("pivoting", self.pivoting)) if name in known}
        return found | ({"periodic": True} if self.periodic else {})

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

    def describe(self) -> str:
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
        verb = FUNCTIONS[self.verb]

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
        alike = ALIKE.get(self.verb, Alike(self.verb))
        more, kind = alike.more(self.shape), self.kind
        if alike.shapes:
            shapes = alike.shapes(self.shape)
        else:
            names = [name for name in VERBS[self.verb].needed if name not in (*more, *dict(kind.fixed))]
            shapes = dict(zip(names, kind.shapes(self.shape), strict=True))
            more |= dict(kind.fixed)
        arrays = {name: libraries.zeros(self.library, x, self.dtype, self.device) for name, x in shapes.items()}
        named = {"backend": backend} if backend != "auto" else {}
        return explain(self.verb, **arrays, **more, **self.options, **named)


def even(gradient: Array, operand: Array) -> Array:
    """The symmetric part, where the operand is symmetric and has to remain so: a covariance."""
    return (gradient + gradient.T) / 2 if operand.ndim == 2 and np.array_equal(operand, operand.T) else gradient
