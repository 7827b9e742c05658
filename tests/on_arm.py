"""The verbs whose kernels come along with a wheel, against plain loops: run on a machine that may be emulated.

    python tests/on_arm.py [--dtypes DTYPE...] [--verbs VERB...]

Nothing but NumPy, tridiag and what that imports is needed. Ends with 1 where a result is not right, where a kernel was
compiled, or Numba imported: all of them came along. Each verb is told with its largest error, in eps.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tridiag
from tridiag import kalman
from tridiag.kernels.runtime import object_cache, shipped

BAR = 200.0  # eps, of the largest number of a result
EXACT = np.longdouble


def numbers(dtype: str, *shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(dtype)


def system(dtype: str, *shape: int) -> tuple[Any, ...]:
    """Dominant, so that the errors of all of its solutions are small."""
    a, c, d = (numbers(dtype, *shape, seed=k) for k in range(3))
    return a, np.abs(a) + np.abs(c) + 1, c, d


def product(a: Any, b: Any, c: Any, x: Any, periodic: bool = False) -> Any:
    """Of matrices, in their last axis."""
    a, b, c, x = (np.asarray(part, EXACT) for part in (a, b, c, x))
    above, below = np.roll(x, 1, -1), np.roll(x, -1, -1)
    if not periodic:
        above[..., 0] = below[..., -1] = 0
    return a * above + b * x + c * below


def recurred(a: Any, x: Any) -> Any:
    y, a = np.array(x, EXACT), np.broadcast_to(a, x.shape)
    for t in range(1, x.shape[-1]):
        y[..., t] += a[..., t] * y[..., t - 1]
    return y


class Joint:
    """The normal distribution of all states and observations of n steps of a model, and what follows from it."""

    def __init__(self, n: int, F: Any, H: Any, Q: Any, R: Any, m0: Any, P0: Any) -> None:
        means, covs = [m0], [P0]
        for _ in range(1, n):
            means.append(F @ means[-1])
            covs.append(F @ covs[-1] @ F.T + Q)
        power, read = np.linalg.matrix_power, np.kron(np.eye(n), H)
        upper = [[covs[i] @ power(F, j - i).T if j >= i else np.zeros_like(F) for j in range(n)] for i in range(n)]
        above = np.triu(np.block(upper))
        self.means, self.states = np.concatenate(means), above + np.triu(above, 1).T
        self.observed = read @ self.states @ read.T + np.kron(np.eye(n), R)
        self.gain = np.linalg.solve(self.observed, read @ self.states).T
        self.read, self.shape = read, (n, len(F))

    def likelihood(self, y: Any) -> Any:
        rest = y.reshape(len(y), -1) - self.read @ self.means
        fit = (rest * np.linalg.solve(self.observed, rest.T).T).sum(-1)
        return -(fit + np.linalg.slogdet(self.observed)[1] + rest.shape[1] * math.log(2 * math.pi)) / 2

    def smoothed(self, y: Any) -> Any:
        rest = y.reshape(len(y), -1) - self.read @ self.means
        return (self.means + rest @ self.gain.T).reshape(len(y), *self.shape)

    def smoothed_cov(self) -> Any:
        n, k = self.shape
        cov = self.states - self.gain @ self.read @ self.states
        return cov.reshape(n, k, n, k)[np.arange(n), :, np.arange(n)]


def aligned(scores: Any, gap: float) -> Any:
    """Smooth Smith-Waterman at temperature 1: the logarithm of the sum of all weights."""
    rows, columns = scores.shape[-2:]
    best = np.full((*scores.shape[:-2], rows + 1, columns + 1), -np.inf, EXACT)
    for i in range(1, rows + 1):
        for j in range(1, columns + 1):
            begun = np.logaddexp(0, best[..., i - 1, j - 1]) + scores[..., i - 1, j - 1]
            best[..., i, j] = np.logaddexp(begun, np.logaddexp(best[..., i - 1, j], best[..., i, j - 1]) + gap)
    return np.logaddexp.reduce(best[..., 1:, 1:].reshape(*scores.shape[:-2], -1), -1)


Case = tuple[str, Callable[[], Any], Callable[[Any], tuple[Any, Any]]]  # what it is, its result, what is to be equal


def systems(dtype: str) -> Iterator[Case]:
    for told, shape, options in (
        ("rows", (19, 33), {}),
        ("end to end", (50, 7), {}),
        ("pivoted", (19, 33), {"pivoting": True}),
        ("periodic", (11, 20), {"periodic": True}),
        ("long", (100_000,), {}),
    ):
        parts = system(dtype, *shape)
        yield (
            f"solve, {told}",
            lambda parts=parts, options=options: tridiag.solve(*parts, **options),
            lambda x, parts=parts, options=options: (
                product(*parts[:3], x, options.get("periodic", False)), np.asarray(parts[3], EXACT),
            ),
        )  # fmt: skip
    a, b, c, d = system(dtype, 19, 33)
    turned = [np.ascontiguousarray(part.T) for part in (a, b, c, d)]
    yield "solve, side by side", lambda: tridiag.solve(*turned, axis=0), lambda x: (product(a, b, c, x.T), d)
    sides = numbers(dtype, 40, 33, seed=5)
    one = a[0], b[0], c[0]
    yield "solve, many sides", lambda: tridiag.solve(*one, sides), lambda x: (product(*one, x), sides)
    yield "factor", lambda: tridiag.factor(*one).solve(sides), lambda x: (product(*one, x), sides)
    yield "matmul", lambda: tridiag.matmul(a, b, c, d), lambda y: (y, product(a, b, c, d))
    dense = [np.diag(q) + np.diag(p[1:], -1) + np.diag(r[:-1], 1) for p, q, r in zip(a, b, c, strict=True)]
    yield "slogdet", lambda: tridiag.slogdet(a, b, c)[1], lambda y: (y, np.linalg.slogdet(np.float64(dense))[1])
    blocks = [numbers(dtype, 5, 9, 2, 2, seed=k) for k in range(3)]
    blocks[1] += 9 * np.eye(2, dtype=dtype)
    right = numbers(dtype, 5, 9, 2, seed=4)

    def times(x: Any) -> Any:
        padded = np.pad(np.asarray(x, EXACT), ((0, 0), (1, 1), (0, 0)))
        return sum(np.einsum("bnij,bnj->bni", part, padded[:, k : k + 9]) for k, part in enumerate(blocks))

    yield "solve_block", lambda: tridiag.solve_block(*blocks, right), lambda x: (times(x), right)


def sequences(dtype: str) -> Iterator[Case]:
    a, x, one = numbers(dtype, 19, 40, seed=1), numbers(dtype, 19, 40, seed=2), np.dtype(dtype).type(0.5)
    yield "linear_recurrence", lambda: tridiag.linear_recurrence(a, x), lambda y: (y, recurred(a, x))
    yield "linear_recurrence, constant", lambda: tridiag.linear_recurrence(one, x), lambda y: (y, recurred(one, x))
    half = a / 2

    def second(y: Any) -> tuple[Any, Any]:
        found = np.array(x, EXACT)
        for t in range(1, 40):
            found[:, t] += half[:, t] * (found[:, t - 1] + (found[:, t - 2] if t > 1 else 0))
        return y, found

    yield "linear_recurrence, of order 2", lambda: tridiag.linear_recurrence((half, half), x), second
    yield "logcumsumexp", lambda: tridiag.logcumsumexp(x), lambda y: (y, np.logaddexp.accumulate(x.astype(EXACT), -1))

    def logarithms(y: Any) -> tuple[Any, Any]:
        found = np.array(x, EXACT)
        for t in range(1, 40):
            found[:, t] = np.logaddexp(a[:, t] + found[:, t - 1], x[:, t])
        return y, found

    yield "log_linear_recurrence", lambda: tridiag.log_linear_recurrence(a, x), logarithms
    matrices, vectors = numbers(dtype, 5, 40, 2, 2, seed=3) / 2, numbers(dtype, 5, 40, 2, seed=4)

    def products(y: Any) -> tuple[Any, Any]:
        found = np.array(vectors, EXACT)
        for t in range(1, 40):
            found[:, t] += np.einsum("bij,bj->bi", matrices[:, t], found[:, t - 1])
        return y, found

    yield "matrix_recurrence", lambda: tridiag.matrix_recurrence(matrices, vectors), products
    rates, channels, steps = (
        -np.abs(numbers(dtype, 5, 4)),
        numbers(dtype, 3, 40, 5),
        np.abs(numbers(dtype, 3, 40, 5, seed=7)),
    )
    into, read = numbers(dtype, 3, 40, 1, 4, seed=8), numbers(dtype, 3, 40, 1, 4, seed=9)

    def selected(y: Any) -> tuple[Any, Any]:
        states, found = np.zeros((3, 5, 4), EXACT), np.empty((3, 40, 5), EXACT)
        for t in range(40):
            step = steps[:, t, :, None].astype(EXACT)
            states = np.exp(step * rates) * states + step * into[:, t] * channels[:, t, :, None]
            found[:, t] = (read[:, t] * states).sum(-1)
        return y, found

    yield "selective_scan", lambda: tridiag.selective_scan(rates, channels, into, read, step=steps, axis=1), selected
    scores = numbers(dtype, 9, 12, 15, seed=6)
    yield "smith_waterman", lambda: tridiag.smith_waterman(scores, gap=-1.0), lambda y: (y, aligned(scores, -1.0))


def models(dtype: str) -> Iterator[Case]:
    """Kernels of float64 alone come along."""
    model = {
        "F": np.array([[0.9, 0.2], [-0.1, 0.8]]), "H": np.array([[1.0, 0.5]]), "Q": np.diag([0.3, 0.2]),
        "R": np.array([[0.4]]), "m0": np.array([0.1, -0.2]), "P0": np.array([[1.0, 0.1], [0.1, 0.5]]),
    }  # fmt: skip
    y = numbers("float64", 11, 20, 1)
    joint = Joint(20, **model)
    wanted, means, covs = joint.likelihood(y), joint.smoothed(y), joint.smoothed_cov()
    yield "kalman.log_likelihood", lambda: kalman.log_likelihood(y, **model), lambda found: (found, wanted)
    yield "kalman.filter", lambda: kalman.filter(y, **model).log_likelihood, lambda found: (found, wanted)
    yield (
        "kalman.filter, the last step",
        lambda: kalman.filter(y, **model).mean[:, -1],
        lambda found: (found, means[:, -1]),
    )
    yield "kalman.smoother", lambda: kalman.smoother(y, **model).mean, lambda found: (found, means)
    yield "kalman.smoother, covariances", lambda: kalman.smoother(y, **model).cov, lambda found: (found, covs)


def refuse(name: str, *more: Any) -> Any:
    raise RuntimeError(f"{name} did not come along, and compiling it here would take minutes")


def outcome(run: Callable[[], Any], pair: Callable[[Any], tuple[Any, Any]], eps: float) -> tuple[bool, str]:
    """Whether a result is right, and what is told of it."""
    try:
        found, wanted = (np.asarray(part, EXACT) for part in pair(run()))
    except RuntimeError as error:
        return False, str(error)
    error = float(np.abs(found - wanted).max() / np.abs(wanted).max() / eps)
    return error <= BAR, f"{error:.2g} eps"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dtypes", nargs="*", default=["float64", "float32"])
    parser.add_argument("--verbs", nargs="*", help="as they are told (default: all)")
    options = parser.parse_args()
    print(f"kernels for {shipped.kind()} of {shipped.FOLDER}")
    object_cache.compile_in_turn = refuse
    wrong = 0
    for dtype in options.dtypes:
        for told, run, pair in (*systems(dtype), *sequences(dtype), *(models(dtype) if dtype == "float64" else ())):
            if options.verbs and told.partition(",")[0] not in options.verbs:
                continue
            begun = time.perf_counter()
            right, found = outcome(run, pair, float(np.finfo(dtype).eps))
            wrong += not right
            print(
                f"{dtype} {told}: {found}, {time.perf_counter() - begun:.1f} s{'' if right else ' WRONG'}", flush=True
            )
    if "numba" in sys.modules:
        print("Numba was imported")
    return int(wrong > 0 or "numba" in sys.modules)


if __name__ == "__main__":
    sys.exit(main())
