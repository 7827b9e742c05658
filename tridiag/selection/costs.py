"""How long a backend takes: measured on a grid of rows and systems, and read between its points.

What has been measured on this machine (`tridiag.tuning`) is read at the first choice; else what comes with the
package, a file of ``data`` for each number of threads. A curve is of one backend and one kind of problem. It keeps the
logarithms of times, which are nearly planes between its points. Beyond them the time grows as the unknowns do.
"""

from __future__ import annotations

import bisect
import math
import sys
from collections.abc import Iterator
from typing import Any

from tridiag.backends import BACKENDS, BLOCKS, SYSTEMS, Backend, Problem
from tridiag.problems.state_space import KALMAN

FORMAT = 2
DTYPES = {
    "float32": ("float32", 1),
    "float64": ("float64", 1),
    "complex64": ("float32", 2),
    "complex128": ("float64", 2),
}
WHOLE = {"complex64": 16, "complex128": 8}  # fewer side by side fill no vector, and cost what rows that lie anyhow do
OTHER = {"float32": "float64", "float64": "float32"}
SLOW_SCANS = "0.11.1"  # this jaxlib, on CPU: each step of a loop over rows touches its whole result (jax issue 40101)
LOOPS = ("jax_scan", "jax_fori")
TOUCHED = 1e10  # bytes a second that they touch so
SIDES = {BLOCKS: 3, "matrix_recurrence": 3, **dict.fromkeys(KALMAN, 4)}  # of small square matrices that are measured
ALIGNMENT = "smith_waterman"
OWN = (*SIDES, ALIGNMENT)  # verbs that have curves of their own for each library


class Curve:
    """Times at points (rows, systems, seconds): no longer at any than for more systems of as many rows."""

    def __init__(self, points: list[tuple[int, int, float]]) -> None:
        self.rows, self.systems = sorted({n for n, _, _ in points}), sorted({m for _, m, _ in points})
        self.logs = {(self.rows.index(n), self.systems.index(m)): math.log2(seconds) for n, m, seconds in points}
        self.cap()
        begins = self.rows[:1] == self.systems[:1] == [1] and (0, 0) in self.logs
        if not begins or not all(map(math.isfinite, self.logs.values())):
            raise ValueError("a curve begins with one system of one row, and its times are positive numbers")

    def cap(self) -> None:
        """Systems can be solved in the time of more of them: where they took longer, that was no property of theirs."""
        for i in range(len(self.rows)):
            least = math.inf
            for j in reversed(range(len(self.systems))):
                if (i, j) in self.logs:
                    least = self.logs[i, j] = min(least, self.logs[i, j])

    def seconds(self, rows: int, systems: int) -> float:
        (i, u, beyond), (j, v, further) = place(self.rows, rows), place(self.systems, systems)
        corners = ((1 - u) * (1 - v), i, j), (u * (1 - v), i + 1, j), ((1 - u) * v, i, j + 1), (u * v, i + 1, j + 1)
        return float(2 ** sum(weight * self.log(i, j) for weight, i, j in corners if weight)) * beyond * further

    def log(self, i: int, j: int) -> float:
        """At a point; where nothing was measured, from the points before it: on, as the unknowns or in their plane."""
        if (i, j) not in self.logs:
            on = [self.log(i - 1, j) + math.log2(self.rows[i] / self.rows[i - 1])] if i else []
            on += [self.log(i, j - 1) + math.log2(self.systems[j] / self.systems[j - 1])] if j else []
            plane = self.log(i - 1, j) + self.log(i, j - 1) - self.log(i - 1, j - 1) if i and j else on[0]
            self.logs[i, j] = min(max(plane, min(on)), max(on))
        return self.logs[i, j]


def place(sizes: list[int], n: int) -> tuple[int, float, float]:
    """The size before n, how far n is towards the next by its logarithm, and how many times the last size it is."""
    k = bisect.bisect(sizes, n) - 1
    if k + 1 == len(sizes):
        return k, 0.0, n / sizes[k]
    return k, math.log(n / sizes[k]) / math.log(sizes[k + 1] / sizes[k]), 1.0


class Costs:
    """The curves of backends by kind of problem, and what a call from arrays of a library adds to them."""

    def __init__(self, record: dict[str, Any], origin: str) -> None:
        if record["format"] != FORMAT:
            raise ValueError(f"its format is {record['format']}, not {FORMAT}")
        self.origin, self.jaxlib = origin, record["conditions"]["versions"].get("jaxlib")
        self.curves = {
            (name, kind): Curve(points) for name, curves in record["curves"].items() for kind, points in curves.items()
        }
        self.calls = {
            (name, library): min(float(each[library]) for each in alike(name, record["calls"]) if library in each)
            for name, of in record["calls"].items()
            for library in of
        }

    def seconds(self, entry: Backend, problem: Problem) -> float | None:
        """The time that a backend is expected to take, None where nothing is known."""
        if problem.integer:
            return None
        rows, systems, inner = sizes(problem)
        keys = ((entry.name, kind) for kind in kinds(problem, inner < WHOLE.get(problem.dtype, 2)))
        curve = next((self.curves[key] for key in keys if key in self.curves), None)
        if curve is None or not rows * systems:
            return None
        seconds = curve.seconds(rows, systems * DTYPES[problem.dtype][1])
        fault = upstream(entry.name, problem) if self.jaxlib != SLOW_SCANS else 0.0  # else the curve has it
        called = 0.0 if problem.verb in OWN else self.calls.get((entry.name, problem.library), 0.0)
        return seconds + called + fault


def alike(name: str, calls: dict[str, dict[str, float]]) -> list[dict[str, float]]:
    """What calls add to the backends of the same verbs: it is the same for all, their differences are of measuring."""
    return [of for other, of in calls.items() if {*BACKENDS[other].verbs} & {*BACKENDS[name].verbs}]


def sizes(problem: Problem) -> tuple[int, int, int]:
    """Rows, systems, and how many of the systems lie side by side.

    Systems of small matrices count by the entries of these; the rows of an alignment are those of a square as large.
    """
    shape = [known_size(n) for n in problem.shape]
    if problem.verb in SIDES:
        *batch, rows, side = shape
        side = known_size(problem.states) or side
        return rows, -(-math.prod(batch) * side**2 // SIDES[problem.verb] ** 2), 1
    if problem.verb == ALIGNMENT:
        *batch, one, other = shape
        return math.isqrt(one * other), math.prod(batch), 1
    rows, inner = shape[problem.axis], math.prod(shape[problem.axis + 1 :])
    return rows, math.prod(shape[: problem.axis]) * inner, inner


def known_size(n: Any) -> int:
    """A size; of a symbol, that for which PyTorch makes its graph, without a guard. 0 where there is none (JAX)."""
    return n if type(n) is int else int(getattr(getattr(n, "node", None), "hint", None) or 0)


def kinds(problem: Problem, together: bool) -> Iterator[str]:
    """The kinds of problems whose curves tell of a problem, the most alike first."""
    dtype, promise = DTYPES[problem.dtype][0], problem.pivoting is True and problem.verb in SYSTEMS
    for layout in (together, not together):
        for given in (dtype, OTHER[dtype]):
            for shared in (True, False) if problem.shared else (False,):
                for pivoting in (True, False) if promise else (False,):
                    yield kind_of(problem.verb, problem.library, problem.device, layout, shared, pivoting, given)


def kind_of(verb: str, library: str, device: str, together: bool, shared: bool, pivoting: bool, dtype: str) -> str:
    """The name of a kind of problem, which has curves of its own."""
    verb = f"{verb} {library}" if verb in OWN else verb
    options = " shared" * shared + " pivoting" * pivoting
    return f"{verb} {device} {'rows' if together else 'columns'}{options} {dtype}"


def upstream(name: str, problem: Problem) -> float:
    """What a known fault of a library adds, which measurements with another version do not have."""
    jaxlib = sys.modules.get("jaxlib")
    if name not in LOOPS or problem.device != "cpu" or getattr(jaxlib, "__version__", "") != SLOW_SCANS:
        return 0.0
    rows, systems, _ = sizes(problem)
    real, parts = DTYPES[problem.dtype]
    return rows * rows * systems * parts * (8 if real == "float64" else 4) / TOUCHED
