"""`explain`: an object that prints as a table."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from tridiag import kalman
from tridiag.backends import BACKENDS, Problem
from tridiag.calls import sequences, split
from tridiag.calls.blocks import prepare_blocks
from tridiag.calls.execute import EAGER
from tridiag.calls.pairs import prepare as prepare_pairs
from tridiag.calls.plan import axis_alone, prepare
from tridiag.calls.selective import prepare as prepare_selective
from tridiag.calls.state_space import prepare as prepare_series
from tridiag.kernels.jobs.systems import few_or_long
from tridiag.overview import table
from tridiag.problems.state_space import FILTER, INTERCEPTS, LIKELIHOOD, PARAMETERS, SMOOTHER, STATES
from tridiag.selection.choose import choose, eligible
from tridiag.selection.costs import sizes

MODEL = ("y", *PARAMETERS)
OTHERS = ("other backend", "why not, or how long")
LEAVES_HARD, HARD = "numba_thomas", "systems without certificate: by the kernel of numba_partition"


class Verb(NamedTuple):
    """What `explain` must know of a verb."""

    needed: tuple[str, ...]  # the first arguments
    options: tuple[str, ...]  # the others that its choice depends on
    problem: Callable[..., Problem]  # from the verb's name, the first arguments by their names, and options
    more: tuple[str, ...] = ()  # those on which it does not depend
    may_lack: tuple[str, ...] = ()  # those of the first that may be left out


def system(verb: str, arguments: dict[str, Any], **options: Any) -> Problem:
    if verb == "slogdet":
        options["pivoting"] = True
    if verb == "factor":
        options["axis"] = axis_alone((*arguments.values(), options.get("where")), options.get("axis", -1))
    return prepare(verb, arguments, **options).problem


def block_system(verb: str, arguments: dict[str, Any]) -> Problem:
    return prepare_blocks(**arguments).problem


def recurrence(verb: str, arguments: dict[str, Any], **options: Any) -> Problem:
    return sequences.prepare(verb, **arguments, **options)[1].problem


def matrices(verb: str, arguments: dict[str, Any], **options: Any) -> Problem:
    return sequences.prepare_matrices(verb, **arguments, **options)[1].problem


def logarithms(verb: str, arguments: dict[str, Any], **options: Any) -> Problem:
    return sequences.prepare_logarithms(verb, **arguments, **options)[1].problem


def state_space(verb: str, arguments: dict[str, Any], method: str = "auto", diffuse: Any = None) -> Problem:
    parameters = tuple(arguments[name] for name in PARAMETERS)
    return prepare_series(verb, arguments["y"], parameters, method, diffuse=diffuse).problem


def selective(verb: str, arguments: dict[str, Any], **options: Any) -> Problem:
    optional = {name: value for name in ("step", "init") if (value := options.pop(name, None)) is not None}
    return prepare_selective({**arguments, **optional}, **options).problem


def likelihood(verb: str, arguments: dict[str, Any], each_step: bool = False, burn: int = 0, **options: Any) -> Problem:
    """That of each step is found from the states of a filter."""
    return state_space(FILTER if each_step or burn else verb, arguments, **options)


def pairs(verb: str, arguments: dict[str, Any], **options: Any) -> Problem:
    return prepare_pairs(**arguments, **options).problem


VERBS = {
    "solve": Verb(
        ("a", "b", "c", "d"),
        ("axis", "pivoting", "periodic", "where", "transpose", "overwrite_d"),
        system,
        ("check", "out", "singular"),
    ),
    "factor": Verb(("a", "b", "c"), ("axis", "pivoting", "periodic", "where"), system),
    "slogdet": Verb(("a", "b", "c"), ("axis", "periodic", "where"), system),
    "solve_block": Verb(("A", "B", "C", "d"), (), block_system),
    "linear_recurrence": Verb(("a", "x"), ("init", "axis", "reverse"), recurrence, ("return_final", "out")),
    "matrix_recurrence": Verb(("A", "x"), ("init", "reverse"), matrices, ("return_final", "out")),
    "log_linear_recurrence": Verb(("log_a", "x"), ("init", "axis", "reverse"), logarithms, ("return_final", "out")),
    "logcumsumexp": Verb(("x",), ("axis", "reverse"), logarithms, ("out",)),
    "selective_scan": Verb(
        ("a", "x", "B", "C"), ("init", "step", "axis", "reverse"), selective, ("return_final", "out")
    ),
    **dict.fromkeys(
        (FILTER, SMOOTHER), Verb(MODEL, ("method", "diffuse"), state_space, tuple(INTERCEPTS), tuple(STATES))
    ),
    LIKELIHOOD: Verb(MODEL, ("method", "diffuse", "each_step", "burn"), likelihood, tuple(INTERCEPTS), tuple(STATES)),
    "smith_waterman": Verb(("scores", "gap"), ("lengths", "gap_open", "temperature", "ends", "turns"), pairs),
}
RUNS = {  # verbs that are made of one of these
    "kalman.forecast": FILTER,
    "kalman.lag_one_smoother": f"{SMOOTHER} of twice as many states",
    "kalman.disturbance_smoother": f"{SMOOTHER} of 2 k + p states",
    "kalman.simulate": "matrix_recurrence",
    "kalman.simulation_smoother": SMOOTHER,
}


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

    def __repr__(self) -> str:
        return f"{self.head}\n{table(OTHERS, self.rows)}"

    @property
    def head(self) -> str:
        expected = f"; {self.expected(self.backend)}" if self.seconds.get(self.backend) else ""
        more = "".join(f"\n   {line}" for line in (self.hard, self.exchange) if line)
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


def explain(verb: str | Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Tell which backend a call would use, and why; nothing is solved.

    Parameters
    ----------
    verb : str or function
        "solve", "factor", "slogdet", "linear_recurrence", "logcumsumexp", "kalman.filter", "smith_waterman" and so on.
    *args, **kwargs
        The arguments of that call.

    Returns
    -------
    Explanation
        ``backend``, ``why``, ``others`` (the sentence that excludes each other backend, None where it could run too),
        ``seconds`` (what those that can run it are expected to take, None where that has not been measured; rough
        where it is far more than the choice takes: what is far slower was measured at few points), ``exchange`` (where
        the system axis of JAX arrays lies on several devices: what these exchange; else None), ``hard`` (where another
        kernel than that of the backend solves systems that need pivoting: which; else None).

    Raises
    ------
    ValueError, TypeError, BackendError
        What the call itself would raise before any work.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> tridiag.explain("solve", 1.0, 4.0, 1.0, np.ones(5), backend="numpy").backend
    'numpy_thomas'
    """
    name = verb if isinstance(verb, str) else name_of(verb)
    if name not in VERBS:
        near = difflib.get_close_matches(name, VERBS, 1)
        instead = f"; {name} runs {RUNS[name]}" if name in RUNS else f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(
            f"explain knows the verbs {', '.join(VERBS)}, not {name!r} (matmul, scan, kalman.predict and kalman.update "
            f"have one implementation){instead}"
        )
    needed, known, problem_of, more, may_lack = VERBS[name]
    given = dict(zip((*needed, *known), args, strict=False)) | kwargs
    backend = given.pop("backend", "auto")
    if missing := [key for key in needed if key not in given and key not in may_lack]:
        raise TypeError(f"{name} also needs {', '.join(missing)}")
    if unknown := set(given) - {*needed, *known, *more}:
        raise TypeError(f"{name} has no argument {', '.join(sorted(unknown))}")
    arguments = {key: given.pop(key, None) for key in needed}
    problem = problem_of(name, arguments, **{key: value for key, value in given.items() if key in known})
    chosen, why = choose(problem, backend)
    others = {entry.name: entry.why_not(problem) for entry in BACKENDS.values() if entry is not chosen}
    seconds = {one.name: seconds for one, seconds in eligible(problem)}
    exchange = split.exchange_of(problem.verb, arguments, problem, chosen.name, bool(given.get("transpose")))
    hard = HARD if chosen.name == LEAVES_HARD and leaves_hard(problem, given.get("where") is not None) else None
    return Explanation(chosen.name, why, problem, others, seconds, exchange, hard)
