"""`explain`: an object that prints as a table."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tridiag import kalman, recurrences, systems
from tridiag.backends import BACKENDS, Problem
from tridiag.calls import split
from tridiag.calls.execute import EAGER
from tridiag.chunked import chunked, is_chunked
from tridiag.kernels.jobs.systems import few_or_long
from tridiag.overview import table
from tridiag.selection.choose import choose, eligible
from tridiag.selection.costs import sizes
from tridiag.verbs import VERBS, Only, check_verb

OTHERS = ("other backend", "why not, or how long")
ONLY = "its compiled loops, the only implementation"
OPERATIONS = "operations of the library, the only implementation for these arrays"
LEAVES_HARD, HARD = "numba_thomas", "systems without certificate: by the kernel of numba_partition"


@dataclass(frozen=True)
class Explanation:
    """The backend that a call would use, why, and why each other one would not be; prints as a table."""

    backend: str
    why: str
    problem: Problem
    others: dict[str, str | None] = field(default_factory=dict)
    seconds: dict[str, float | None] = field(default_factory=dict)
    exchange: str | None = None
    hard: str | None = None
    runs: str | None = None

    def __repr__(self) -> str:
        return f"{self.head}\n{table(OTHERS, self.rows)}" if self.rows else self.head

    @property
    def head(self) -> str:
        expected = f"; {self.expected(self.backend)}" if self.seconds.get(self.backend) else ""
        more = "".join(f"\n   {line}" for line in (self.runs, self.hard, self.exchange) if line)
        return f"{self.problem.describe()}\n-> {self.backend}: {self.why}{expected}{more}"

    @property
    def rows(self) -> list[tuple[str, str]]:
        """One for each backend that has the verb, and one for all others."""
        without = [name for name in self.others if self.problem.verb not in BACKENDS[name].verbs]
        having = {name: reason for name, reason in self.others.items() if name not in without}
        rows = [(name, reason or f"could; {self.expected(name)}") for name, reason in having.items()]
        return rows + ([(f"{len(without)} more", f"do not have the verb {self.problem.verb}")] if without else [])

    def expected(self, name: str) -> str:
        seconds = self.seconds.get(name)
        return "its time has not been measured" if seconds is None else f"about {format_time(seconds)} are expected"


def format_time(seconds: float) -> str:
    unit, scale = next((pair for pair in (("s", 1.0), ("ms", 1e-3)) if seconds >= pair[1]), ("us", 1e-6))
    return f"{seconds / scale:.3g} {unit}"


def leaves_hard(problem: Problem, masked: bool) -> bool:
    """Whether systems of a problem that have no certificate are left to chunks in lanes."""
    if problem.verb != "solve" or problem.library not in EAGER or problem.symbolic:
        return False
    rows, systems, inner = sizes(problem)
    if masked and inner > 1:
        return False
    usual = problem.pivoting == "auto" and not problem.periodic and not problem.shared
    return usual and few_or_long(rows, systems, np.dtype(problem.dtype))


def name_of(verb: Any) -> str:
    """The name of a public function below `tridiag`."""
    name = getattr(verb, "__name__", repr(verb))
    return f"kalman.{name}" if getattr(verb, "__module__", "").startswith(kalman.__name__) else name


def without_labels(verb: Any, name: str, args: tuple[Any, ...], given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a verb by their names; of arrays with labels as the verb of `tridiag` takes them."""
    labelled = getattr(verb, "__module__", "") == "tridiag.xarray"
    own = getattr(verb, "__self__", None) if labelled else None  # of a method of `DataArray.tridiag`
    labels = importlib.import_module("tridiag.labels") if labelled or "dim" in given else None
    first = labels.LABELLING.get(name) if labels else None
    needed, known, *_ = VERBS[name]
    names = [key for key in (*needed, *known) if own is None or key != first]
    given = dict(zip(names, args, strict=False)) | given
    if labels is None or first is None:
        return given
    given |= {} if own is None else {first: own.array}
    check_arguments(name, (*needed, "dim"), given)
    return dict(labels.without_labels(name, given))


def check_arguments(name: str, needed: Iterable[str], given: Iterable[str]) -> None:
    if missing := [key for key in needed if key not in given]:
        raise TypeError(f"{name} also needs {', '.join(missing)}")


def explain(verb: str | Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Tell which backend a call would use, and why; nothing is solved.

    Parameters
    ----------
    verb : str or function
        Any verb by its name, as "solve", "linear_recurrence", "kalman.filter", or the function itself, one of
        `tridiag.xarray` or of ``.tridiag`` of a DataArray too.
    *args, **kwargs
        The arguments of that call.

    Returns
    -------
    Explanation
        ``backend``, ``why``, ``others`` (the sentence that excludes each other backend, None where it could run too),
        ``seconds`` (what those that can run it are expected to take, None where that has not been measured; rough
        where it is far more than the choice takes: what is far slower was measured at few points), ``exchange`` (where
        the system axis of JAX arrays lies on several devices: what these exchange; else None), ``hard`` (where another
        kernel than that of the backend solves systems that need pivoting: which; else None), ``runs`` (which verb does
        the work of one that is made of another; of Dask arrays what their tasks are; else None). Of Dask arrays all
        else is told of a chunk. Of a verb that has one implementation, as `tridiag.matmul`,
        ``backend`` is that whose compiled loops run it, or a library, by whose operations it runs.

    Raises
    ------
    ValueError, TypeError, BackendError
        There is no such verb; what the call itself would raise before any work.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> tridiag.explain("solve", 1.0, 4.0, 1.0, np.ones(5), backend="numpy").backend
    'numpy_thomas'
    """
    name = verb if isinstance(verb, str) else name_of(verb)
    check_verb(name)
    needed, known, problem_of, more, may_lack, made_of, has_backend = VERBS[name]
    given = without_labels(verb, name, args, kwargs)
    check_arguments(name, (key for key in needed if key not in may_lack), given)
    if unknown := set(given) - {*needed, *known, *more} - ({"backend"} if has_backend else set()):
        raise TypeError(f"{name} has no argument {', '.join(sorted(unknown))}")
    tasks = None
    if is_chunked(*given.values()) and name in (explained := chunked("explanation")).VERBS:
        call = getattr(systems if name in explained.SYSTEMS else recurrences, name)
        call(**given)  # raises, or makes a graph that is dropped
        given, tasks = explained.of_a_chunk(name, given)
    backend = given.pop("backend", "auto") if has_backend else "auto"
    arguments = {key: given.pop(key, None) for key in needed}
    problem = problem_of(name, arguments, **{key: value for key, value in given.items() if key in known})
    if isinstance(problem, Only):
        why = ONLY if problem.runs in BACKENDS else OPERATIONS
        return Explanation(problem.runs, why, problem.problem, runs=tasks)
    chosen, why = choose(problem, backend)
    others = {entry.name: entry.why_not(problem) for entry in BACKENDS.values() if entry is not chosen}
    seconds = {one.name: seconds for one, seconds in eligible(problem)}
    if made_of:
        exchange = split.exchange_of_made(name, arguments, problem)
    else:
        exchange = split.exchange_of(problem.verb, arguments, problem, chosen.name, bool(given.get("transpose")))
    hard = HARD if chosen.name == LEAVES_HARD and leaves_hard(problem, given.get("where") is not None) else None
    return Explanation(
        chosen.name, why, problem, others, seconds, exchange, hard, f"{name} runs {made_of}" if made_of else tasks
    )
