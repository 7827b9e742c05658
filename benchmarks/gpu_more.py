"""The contestants of `gpu.py` beside solves and recurrences: determinants, factors, blocks, filters, alignments."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cupy
import numpy as np
from gpu_contestants import ACCURATE, BLOCK, MAKERS, SPARE, UNREFINED, OnDevice, Problem, contestant, copy

import tridiag
from tridiag import kalman
from tridiag.backends import BACKENDS, KALMAN
from tridiag.problems.state_space import PARAMETERS

SOME = 1000  # systems whose solutions are judged
FEW = 2  # pairs, and matrices, that the CPU computes again
GAPS = {"linear": (-1.0, 1.0), "affine": (-1.0, -3.0, 1.0)}  # gap, perhaps gap_open, temperature


@dataclass(frozen=True)
class HardProblem(Problem):
    """Systems that need pivots: all entries are uniform in (-1, 1)."""

    @cached_property
    def given(self) -> tuple[Any, ...]:
        """a, b, c, d."""
        return tuple(map(self.filled, np.random.default_rng(0).uniform(-1, 1, (4, min(BLOCK, self.unknowns)))))


@dataclass(frozen=True)
class BlockProblem(Problem):
    """Block tridiagonal systems, (systems, block rows), with blocks of ``rows`` rows that dominate."""

    rows: int = 2

    @property
    def unknowns(self) -> int:
        return super().unknowns * self.rows

    @property
    def words(self) -> int:
        """That are read and written for each unknown."""
        return 3 * self.rows + 2

    @property
    def bytes_needed(self) -> int:
        return (SPARE + 4 * self.rows) * self.unknowns * np.dtype(self.dtype).itemsize

    @cached_property
    def given(self) -> tuple[Any, ...]:
        """A, B, C, d."""
        rng, m = np.random.default_rng(0), self.rows
        numbers = rng.uniform(-1, 1, BLOCK)
        A, B, C = (self.entries(np.roll(numbers, k), (*self.shape, m, m)) for k in range(3))
        B += cupy.asarray(4 * m * np.eye(m), self.dtype)
        return A, B, C, self.entries(np.roll(numbers, 3), (*self.shape, m))

    def entries(self, numbers: np.ndarray[Any, Any], shape: tuple[int, ...]) -> Any:
        return Problem((int(np.prod(shape)),), dtype=self.dtype).filled(numbers).reshape(shape)

    def error(self, x: Any) -> float:
        """The largest componentwise backward error of some systems, in eps; residuals in double precision."""
        A, B, C, d, x = (v[:SOME].astype("float64") for v in (*self.given, x))
        A[:, 0], C[:, -1] = 0, 0
        terms = [(A, cupy.roll(x, 1, 1)), (B, x), (C, cupy.roll(x, -1, 1))]
        residual = abs(d - sum(cupy.einsum("...ij,...j->...i", a, v) for a, v in terms))
        scale = abs(d) + sum(cupy.einsum("...ij,...j->...i", abs(a), abs(v)) for a, v in terms)
        return float((residual / scale).max()) / float(np.finfo(self.dtype).eps)


@dataclass(frozen=True)
class PairProblem(Problem):
    """Scores of pairs, (pairs, rows, columns); an unknown is a cell."""

    @cached_property
    def given(self) -> tuple[Any, ...]:
        return (self.filled(np.random.default_rng(0).normal(size=min(BLOCK, self.unknowns))),)


@dataclass(frozen=True)
class SeriesProblem(Problem):
    """Series of one observed value, (series, steps), that share a model of ``states`` states."""

    states: int = 2

    @property
    def bytes_needed(self) -> int:
        return (SPARE + self.words("kalman.filter")) * self.unknowns * np.dtype(self.dtype).itemsize

    def words(self, verb: str) -> int:
        """That are read and written in each step."""
        each = {"kalman.log_likelihood": 0, "kalman.smoother": 1}.get(verb, 2)
        return 1 + each * self.states * (self.states + 1)

    @cached_property
    def given(self) -> tuple[Any, ...]:
        """y, F, H, Q, R, m0, P0: states that follow each other, the first of which is seen."""
        k, rng = self.states, np.random.default_rng(0)
        model = 0.5 * np.eye(k) + 0.4 * np.eye(k, k, 1), np.eye(1, k), np.eye(k), np.eye(1), np.zeros(k), np.eye(k)
        y = self.filled(rng.normal(size=min(BLOCK, self.unknowns)))[..., None]
        return (y, *(cupy.asarray(x.astype(self.dtype)) for x in model))


@contestant("slogdet")
def determinants(problem: Problem) -> OnDevice:
    *matrix, _ = problem.given
    return OnDevice(
        functools.partial(tridiag.slogdet, *matrix, axis=problem.axis),
        functools.partial(error_of_determinants, problem),
        UNREFINED,
    )


def error_of_determinants(problem: Problem, found: Any) -> float:
    """Of the logarithms of the first matrices, in eps of the largest."""
    *matrix, _ = (cupy.moveaxis(v, problem.axis, -1)[:FEW].get().astype(float) for v in problem.given)
    sign, logarithm = tridiag.slogdet(*matrix, backend="numpy_thomas")
    signs, logarithms = (x[:FEW].get() for x in found)
    if not (signs == sign).all():
        return float("inf")
    apart = np.max(abs(logarithms - logarithm)) / max(1.0, np.max(abs(logarithm)))
    return float(apart) / float(np.finfo(problem.dtype).eps)


@contestant("factor")
def factors(problem: Problem) -> OnDevice:
    """With its copies of the matrices."""
    *matrix, _ = problem.given
    return OnDevice(
        functools.partial(tridiag.factor, *matrix, axis=problem.axis), lambda found: float(abs(found.status).max()), 0
    )


@contestant("solve_block")
def solved_blocks(problem: BlockProblem) -> OnDevice:
    return OnDevice(functools.partial(tridiag.solve_block, *problem.given), problem.error, ACCURATE * problem.rows)


def filtered(problem: SeriesProblem, verb: str) -> OnDevice:
    y, *model = problem.given
    call = functools.partial(function_of(verb), y, **dict(zip(PARAMETERS, model, strict=True)))
    return OnDevice(call, functools.partial(error_of_series, problem, verb), UNREFINED)


def function_of(verb: str) -> Any:
    return getattr(kalman, verb.partition(".")[2])


def error_of_series(problem: SeriesProblem, verb: str, found: Any) -> float:
    """Of the first series, in eps of the largest number of each result."""
    y, *model = (x.get().astype(float) for x in problem.given)
    right = function_of(verb)(y[:FEW], **dict(zip(PARAMETERS, model, strict=True)), backend="numpy_scan")
    pairs = zip(found, right, strict=True) if isinstance(right, tuple) else [(found, right)]
    apart = [np.max(abs(x[:FEW].get() - z)) / np.max(abs(z)) for x, z in pairs]
    return float(max(apart)) / float(np.finfo(problem.dtype).eps)


def error_of_gradients(problem: SeriesProblem, of_y: Any) -> float:
    """Of log-likelihoods of the first series in their first steps, over what differences of them may be off by."""
    y, *model = (x.get().astype(float) for x in problem.given)
    given, step = dict(zip(PARAMETERS, model, strict=True)), 1e-4
    apart = 0.0
    for t in range(min(FEW, problem.shape[1])):
        ahead, behind = (y[:FEW] + sign * step * (np.arange(y.shape[1]) == t)[:, None] for sign in (1, -1))
        above, below = (kalman.log_likelihood(x, **given, backend="numpy_scan") for x in (ahead, behind))
        right = (above - below) / (2 * step)
        apart = max(apart, float(np.max(abs(of_y[:FEW, t, 0].get() - right) / (1 + abs(right)))))
    return apart / 1e-4


def parameters_of(scores: Any, gaps: str) -> tuple[Any, ...]:
    """Of each pair."""
    return tuple(cupy.full(len(scores), x, scores.dtype) for x in GAPS[gaps])


def error_of_pairs(scores: Any, gaps: str, found: Sequence[Any]) -> float:
    """Of the first pairs, in eps of the largest number; scores, and gradients where there are any."""
    few = scores[:FEW].get().astype(float)
    given = tuple(np.full(len(few), x) for x in GAPS[gaps])
    right = BACKENDS["numba_wavefront"].module().smith_waterman(few, None, given, len(found) - 1)
    apart = [np.max(abs(x[:FEW].get() - y)) / max(1.0, np.max(abs(y))) for x, y in zip(found, right, strict=True)]
    return float(max(apart)) / float(np.finfo(scores.dtype).eps)


def aligned(problem: PairProblem, gaps: str, derivatives: int) -> OnDevice:
    (scores,) = problem.given
    module, given = BACKENDS["cupy_wavefront"].module(), parameters_of(scores, gaps)
    call = functools.partial(module.smith_waterman, scores, None, given, derivatives)
    return OnDevice(call, functools.partial(error_of_pairs, scores, gaps), UNREFINED)


for _verb in KALMAN:
    MAKERS[_verb] = functools.partial(filtered, verb=_verb)
for _gaps in GAPS:
    MAKERS[f"smith_waterman, {_gaps}"] = functools.partial(aligned, gaps=_gaps, derivatives=0)
    MAKERS[f"smith_waterman with gradient, {_gaps}"] = functools.partial(aligned, gaps=_gaps, derivatives=1)
_series = [SeriesProblem((), states=k).words(verb) for k in (1, 2, 4, 8) for verb in KALMAN]
for _words in (1, *(BlockProblem((), rows=m).words for m in (2, 4, 8)), *_series):
    MAKERS[f"copy of {_words} words"] = functools.partial(copy, words=_words)
