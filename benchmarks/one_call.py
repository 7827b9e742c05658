"""What one small call takes, of every verb, from NumPy, PyTorch and JAX: what Python and the choices cost.

    python benchmarks/one_call.py [--only NAME]... [--rounds N] [--json FILE]

64 rows in float64, new results, arrays that are there; PyTorch and JAX outside of any trace. Beside the microseconds
stands the ratio to ``a + b + c + d`` of the same library, which computes it by three operations; with gradients that to
a node of PyTorch's autograd that computes nothing. Answers are those of the NumPy backends, of dense matrices, or of a
plain loop. The record of a whole run goes to ``benchmarks/results/one_call/``, a file a processor. Exits with 1 where a
figure is short of its bar or an answer is wrong. Needs PyTorch, JAX and rich.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from bars import Bar, at_most
from lines import Line, run
from plain_loops import LOOPS

import tridiag
from tridiag import kalman
from tridiag.benchmarking.errors import Array, relative_error
from tridiag.benchmarking.race import Contestant

RESULTS = Path(__file__).parent / "results" / "one_call"
N, M, LARGER = 64, 2, 6  # rows; of blocks
ACCURATE = 1e4  # eps of the largest entry
SUM, NODE = "a + b + c + d", "a node that computes nothing"

Operands = SimpleNamespace


def operands(n: int) -> Operands:
    """Arrays of every verb."""
    rng = np.random.default_rng(0)
    a, c, d, x = rng.uniform(-1, 1, (4, n))
    blocks, larger = (
        {name: rng.uniform(-1, 1, (n, m, m)) + k * m * np.eye(m) for name, k in (("A", 0), ("B", 4), ("C", 0))}
        for m in (M, LARGER)
    )
    model = {"F": 0.9 * np.eye(M), "H": np.ones((1, M)), "Q": np.eye(M), "R": np.eye(1), "P0": np.eye(M)}
    return Operands(
        a=a, b=abs(a) + abs(c) + 1, c=c, d=d, x=x, z=d + 1j * x, where=np.arange(n) % 7 != 5, q=rng.uniform(0.5, 1, n),
        v=rng.standard_normal((n, M)), **blocks, **model, m0=np.zeros(M), y=d[:, None], i=np.arange(n) % 5,
        scores=rng.standard_normal((8, max(1, n // 8))), matrix=None, larger=larger, w=rng.standard_normal((n, LARGER)),
    )  # fmt: skip


def model(v: Operands) -> dict[str, Any]:
    return {name: getattr(v, name) for name in ("F", "H", "Q", "R", "m0", "P0")}


def dense(v: Operands) -> Array:
    return np.diag(v.b) + np.diag(v.a[1:], -1) + np.diag(v.c[:-1], 1)


def scores(v: Operands) -> float:
    found = np.empty(1)
    LOOPS["smith_waterman"][0](v.scores[None], -1.0, found)
    return float(found[0])


def updated(v: Operands) -> Array:
    gain = v.P0 @ v.H.T @ np.linalg.inv(v.H @ v.P0 @ v.H.T + v.R)
    return v.m0 + gain @ (v.y[0] - v.H @ v.m0)


class Verb(NamedTuple):
    call: Callable[..., Any]  # of operands, and perhaps of a backend
    bar: float | None = 7.0  # microseconds
    wanted: Callable[[Operands], Any] | None = None  # None: what NumPy's backends make of it


SOLVE = Verb(lambda v, **how: tridiag.solve(v.a, v.b, v.c, v.d, **how))
RECURRENCE = Verb(lambda v, **how: tridiag.linear_recurrence(v.q, v.x, **how))
SUMS = Verb(lambda v, **how: tridiag.logcumsumexp(v.x, **how))
MATMUL = Verb(lambda v: tridiag.matmul(v.a, v.b, v.c, v.x), wanted=lambda v: dense(v) @ v.x)
SLOGDET = Verb(lambda v: tridiag.slogdet(v.a, v.b, v.c)[1], wanted=lambda v: np.linalg.slogdet(dense(v))[1])
FACTORED = Verb(lambda v: v.matrix.solve(v.d), wanted=lambda v: np.linalg.solve(dense(v), v.d))
NUMPY = {
    "solve": SOLVE,
    "solve, complex": Verb(lambda v, **how: tridiag.solve(v.a, v.b, v.c, v.z, **how)),
    "solve, periodic": Verb(lambda v, **how: tridiag.solve(v.a, v.b, v.c, v.d, periodic=True, **how)),
    "solve, masked": Verb(lambda v, **how: tridiag.solve(v.a, v.b, v.c, v.d, where=v.where, **how)),
    "solve, transposed": Verb(lambda v, **how: tridiag.solve(v.a, v.b, v.c, v.d, transpose=True, **how)),
    "solve, numbers": Verb(lambda v, **how: tridiag.solve(-1.0, 4.0, -1.0, v.d, **how)),
    "solve, integer d": Verb(lambda v, **how: tridiag.solve(v.a, v.b, v.c, v.i, **how)),
    "solve, pivoting": Verb(lambda v, **how: tridiag.solve(v.a, v.b, v.c, v.d, pivoting=True, **how)),
    "factor": Verb(lambda v: tridiag.factor(v.a, v.b, v.c), 15.0, lambda v: np.linalg.solve(dense(v), v.d)),
    "factor(...).solve": FACTORED,
    "slogdet": SLOGDET,
    "matmul": MATMUL,
    "solve_block, of 2": Verb(lambda v, **how: tridiag.solve_block(v.A, v.B, v.C, v.v, **how)),
    "solve_block, of 6": Verb(
        lambda v, **how: tridiag.solve_block(*v.larger.values(), v.w, **how), None
    ),  # 384 unknowns
    "linear_recurrence": RECURRENCE,
    "linear_recurrence, a number": Verb(lambda v, **how: tridiag.linear_recurrence(0.5, v.x, **how)),
    "linear_recurrence, order 2": Verb(lambda v, **how: tridiag.linear_recurrence((v.q, -0.5), v.x, **how)),
    "linear_recurrence, final": Verb(lambda v, **how: tridiag.linear_recurrence(v.q, v.x, return_final=True, **how)[0]),
    "log_linear_recurrence": Verb(lambda v, **how: tridiag.log_linear_recurrence(v.a, v.x, **how)),
    "logcumsumexp": SUMS,
    "matrix_recurrence": Verb(lambda v, **how: tridiag.matrix_recurrence(v.A, v.v, **how)),
    "smith_waterman": Verb(lambda v: tridiag.smith_waterman(v.scores, gap=-1.0), wanted=scores),
    "kalman.log_likelihood": Verb(lambda v, **how: kalman.log_likelihood(v.y, **model(v), **how), None),
    "kalman.filter": Verb(lambda v, **how: kalman.filter(v.y, **model(v), **how).mean, None),
    "kalman.predict": Verb(
        lambda v: kalman.predict(v.m0, v.P0, F=v.F, Q=v.Q).cov, 15.0, lambda v: v.F @ v.P0 @ v.F.T + v.Q
    ),
    "kalman.update": Verb(lambda v: kalman.update(v.m0, v.P0, v.y[0], H=v.H, R=v.R).mean, 15.0, updated),
    "kalman.smoother": Verb(lambda v, **how: kalman.smoother(v.y, **model(v), **how).mean, None),
}
TORCH = {
    "solve": SOLVE._replace(bar=20.0),
    "solve forward, backward": SOLVE._replace(bar=110.0),
    "linear_recurrence": RECURRENCE._replace(bar=20.0),
    "logcumsumexp": SUMS._replace(bar=20.0),
    "slogdet": SLOGDET._replace(bar=None),
    "matmul": MATMUL._replace(bar=None),
}
JAX = {
    "solve": SOLVE._replace(bar=35.0),
    "linear_recurrence": RECURRENCE._replace(bar=25.0),
    "logcumsumexp": SUMS._replace(bar=None),
    "slogdet": SLOGDET._replace(bar=None),
    "matmul": MATMUL._replace(bar=None),
}
VERBS = {"numpy": NUMPY, "torch": TORCH, "jax": JAX}


@dataclass(frozen=True)
class Problem:
    """A verb from a library; operands are made when first asked for, and the same for all contestants."""

    name: str
    library: str
    shape: tuple[int, ...] = (N,)

    @property
    def verb(self) -> Verb:
        return VERBS[self.library][self.name]

    @cached_property
    def host(self) -> Operands:
        made = operands(*self.shape)
        made.matrix = tridiag.factor(made.a, made.b, made.c)
        return made

    @cached_property
    def given(self) -> Operands:
        return Operands(**{name: self.moved(x) for name, x in vars(self.host).items()})

    def moved(self, x: Any) -> Any:
        if self.library == "numpy" or not isinstance(x, np.ndarray):
            return x
        if self.library == "torch":
            import torch

            return torch.tensor(x)
        import jax

        jax.config.update("jax_enable_x64", True)
        return jax.block_until_ready(jax.numpy.array(x))

    @property
    def wanted(self) -> Array:
        made = self.verb.wanted
        return np.asarray(made(self.host) if made else self.verb.call(self.host, backend="numpy"))


def waiting(problem: Problem, call: Callable[[], Any]) -> Callable[[], Any]:
    """The call, with its result there."""
    if problem.library != "jax":
        return call
    import jax

    return lambda: jax.block_until_ready(call())


def ours(problem: Problem) -> Contestant:
    given, wanted, call = problem.given, problem.wanted, problem.verb.call
    if "backward" in problem.name:
        return with_gradients(problem)
    if problem.name == "factor":
        return Contestant(lambda: call(given), lambda found: relative_error(found.solve(given.d), wanted), ACCURATE)
    return Contestant(waiting(problem, lambda: call(given)), lambda x: relative_error(x, wanted), ACCURATE)


def with_gradients(problem: Problem) -> Contestant:
    """Of the sum of the solution, by all four arguments."""
    return backward(problem, tridiag.solve, np.linalg.solve(dense(problem.host).T, np.ones(problem.shape)))


def backward(problem: Problem, function: Callable[..., Any], wanted: Array) -> Contestant:
    """The gradients of the sum of what a function makes of all four arguments; ``wanted``: that by the last."""
    leaves = [getattr(problem.given, name).requires_grad_() for name in "abcd"]

    def call() -> Any:
        for leaf in leaves:
            leaf.grad = None
        function(*leaves).sum().backward()
        return leaves[-1].grad

    return Contestant(call, lambda found: relative_error(found, wanted), ACCURATE)


def theirs(problem: Problem) -> Contestant:
    v = problem.given
    arrays = [x.detach() if problem.library == "torch" else x for x in (v.a, v.b, v.c, v.d)]
    a, b, c, d = arrays
    total = sum(np.asarray(x) for x in arrays)
    return Contestant(waiting(problem, lambda: a + b + c + d), lambda x: relative_error(x, total), ACCURATE)


def empty_node(problem: Problem) -> Contestant:
    """What PyTorch takes for a node of its own with these four arguments, whose passes copy and compute nothing."""
    import torch

    class Copy(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *given: Any) -> Any:
            ctx.save_for_backward(*given)
            return given[-1].clone()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return tuple([g.clone() for _ in ctx.saved_tensors])

    return backward(problem, Copy.apply, np.ones(problem.shape))


MAKERS = {"call": ours, SUM: theirs, NODE: empty_node}


def line(library: str, name: str, verb: Verb) -> Line:
    microseconds = Bar("call", ("call",), lambda x: 1e6 * x, verb.bar, unit=" us")
    problem, beside = Problem(name, library), NODE if "backward" in name else SUM
    return Line(f"{library}: {name}", f"{library}: {name}", problem, (microseconds, at_most(None, "call", beside)))


LINES = [line(library, name, verb) for library, verbs in VERBS.items() for name, verb in verbs.items()]


def main(arguments: list[str] | None = None) -> int:
    return run(__doc__, LINES, MAKERS, RESULTS, arguments)


if __name__ == "__main__":
    sys.exit(main())
