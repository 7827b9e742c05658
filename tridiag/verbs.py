"""The public verbs: what each takes, and the problem that a call of it is."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tridiag.backends import Problem, not_installed
from tridiag.calls import execute, sequences
from tridiag.calls.blocks import prepare_blocks
from tridiag.calls.checks import check_count
from tridiag.calls.pairs import prepare as prepare_pairs
from tridiag.calls.plan import axis_alone, prepare
from tridiag.calls.selective import prepare as prepare_selective
from tridiag.calls.state_space import parameters_of, taken
from tridiag.calls.state_space import prepare as prepare_series
from tridiag.kalman import disturbances, forecasts, samples, streams
from tridiag.kalman.larger import given
from tridiag.kalman.pieces import draws_of_a_piece
from tridiag.libraries.arrays import module_of
from tridiag.problems.state_space import FILTER, INTERCEPTS, LIKELIHOOD, PARAMETERS, SMOOTHER, STATES, one_axis

MODEL = ("y", *PARAMETERS)
ADDED, UNKNOWN = tuple(INTERCEPTS), tuple(STATES)
START = "method", "diffuse"
FORECAST, LAG_ONE, DISTURBANCES = "kalman.forecast", "kalman.lag_one_smoother", "kalman.disturbance_smoother"


class Only(NamedTuple):
    """What runs a verb of which there is one implementation: a problem, and the backend or library that runs it."""

    problem: Problem
    runs: str


class Verb(NamedTuple):
    """What is known of a verb."""

    needed: tuple[str, ...]  # the first arguments
    options: tuple[str, ...]  # the others that its choice depends on
    problem: Callable[..., Problem | Only]  # from the verb's name, the first arguments by their names, and options
    more: tuple[str, ...] = ()  # those on which it does not depend
    may_lack: tuple[str, ...] = ()  # those of the first that may be left out
    made_of: str = ""  # the verb that it runs, and of what
    has_backend: bool = True  # whether a backend can be named


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


def product(verb: str, arguments: dict[str, Any], **options: Any) -> Only:
    call = prepare(verb, arguments, **options)
    return Only(call.problem, "numba_thomas" if execute.product_by_kernel(call) else call.library)


def rows_of_scan(verb: str, arguments: dict[str, Any], **options: Any) -> Only:
    if reason := not_installed("jax"):
        raise ImportError(f"tridiag.scan runs in JAX, and {reason}")
    from tridiag.calls import jax_scan

    given = {"axis": 0, "out_axis": None, "length": None, "reverse": False, "unroll": 1} | options
    inputs, course = jax_scan.course_of(**arguments, **given)
    (dtype, shape, platform), axis = jax_scan.facts_of(inputs, course.length), course.axes[:1] or (0,)
    return Only(Problem(verb, "jax", platform, dtype, shape, axis[0], None), "jax")


def single_step(verb: str, arguments: dict[str, Any], **intercepts: Any) -> Only:
    step, name = streams.step_of(arguments, intercepts), verb.rpartition(".")[2]
    shape = (*step.batch, step.arrays["mean"].shape[-1])
    problem = Problem(verb, step.library, step.device, step.dtype, shape, len(shape) - 1, None, states=shape[-1])
    return Only(problem, "numba_scan" if step.takes_kernel(name) else step.library)


def forecast(verb: str, arguments: dict[str, Any], **options: Any) -> Problem:
    """The filter over the steps to come too."""
    y, steps = arguments["y"], check_count("steps", arguments["steps"], 0, "how many steps are forecast")
    model = {name: arguments[name] for name in PARAMETERS}
    parameters_of("forecast", model)
    given = taken({"y": y})
    like = given.arrays["y"]
    if like.ndim < 2:
        raise ValueError(one_axis(tuple(like.shape)))
    forecasts.check_lengths(model, like.shape[-2], steps)
    longer = (*like.shape[:-2], like.shape[-2] + steps, like.shape[-1])
    blank = module_of(given.library).Operations.full(longer, math.nan, given.working()["y"])
    return state_space(FILTER, model | {"y": blank}, **options)


def wider(verb: str, arguments: dict[str, Any], **options: Any) -> Problem:
    """The smoother of states that carry more with them."""
    call = given(verb.rpartition(".")[2], arguments["y"], model_of(arguments, options)).call
    more = call.form.states if verb == LAG_ONE else sum(map(len, disturbances.noises(call)))
    states = max(call.form.states + more, call.form.observed)
    return call.problem._replace(states=states, method=options.get("method", "auto"))


def simulation(verb: str, arguments: dict[str, Any], size: Any = (), **options: Any) -> Problem:
    """The recurrence of the states."""
    steps = check_count("steps", arguments["steps"], 1, "the length of the series")
    parameters = parameters_of("simulate", model_of(arguments, {}), PARAMETERS)
    call = samples.call_of(arguments["generator"], steps, parameters, model_of(arguments, options))
    shape = (*samples.lengths(size), *call.form.batch, steps, call.form.states)
    _, library, device, dtype, *_ = call.problem
    return Problem("matrix_recurrence", library, device, dtype, shape, len(shape) - 2, None)


def simulation_given(verb: str, arguments: dict[str, Any], size: Any = (), **options: Any) -> Problem:
    """The smoother, of as many draws as it takes at a time."""
    y = samples.beside(arguments["generator"], arguments["y"])
    call = given(verb.rpartition(".")[2], y, model_of(arguments, options)).call
    draws = min(math.prod(samples.lengths(size)), draws_of_a_piece(call, module_of(call.library).is_traced(call.y)))
    problem = call.problem._replace(method=options.get("method", "auto"))
    return problem._replace(shape=(draws, *problem.shape), axis=problem.axis + 1)


def model_of(arguments: dict[str, Any], options: dict[str, Any]) -> dict[str, Any]:
    return {name: arguments[name] for name in PARAMETERS} | options


VERBS = {
    "solve": Verb(
        ("a", "b", "c", "d"),
        ("axis", "pivoting", "periodic", "where", "transpose", "overwrite_d"),
        system,
        ("check", "out", "singular"),
    ),
    "factor": Verb(("a", "b", "c"), ("axis", "pivoting", "periodic", "where"), system),
    "slogdet": Verb(("a", "b", "c"), ("axis", "periodic", "where"), system),
    "matmul": Verb(
        ("a", "b", "c", "x"), ("axis", "periodic", "where", "transpose"), product, ("out",), has_backend=False
    ),
    "solve_block": Verb(("A", "B", "C", "d"), (), block_system),
    "linear_recurrence": Verb(("a", "x"), ("init", "axis", "reverse"), recurrence, ("return_final", "out")),
    "matrix_recurrence": Verb(("A", "x"), ("init", "reverse"), matrices, ("return_final", "out")),
    "log_linear_recurrence": Verb(("log_a", "x"), ("init", "axis", "reverse"), logarithms, ("return_final", "out")),
    "logcumsumexp": Verb(("x",), ("axis", "reverse"), logarithms, ("out",)),
    "selective_scan": Verb(
        ("a", "x", "B", "C"), ("init", "step", "axis", "reverse"), selective, ("return_final", "out")
    ),
    "smith_waterman": Verb(("scores", "gap"), ("lengths", "gap_open", "temperature", "ends", "turns"), pairs),
    "scan": Verb(
        ("f", "init", "xs"), ("axis", "out_axis", "length", "reverse", "unroll"), rows_of_scan, has_backend=False
    ),
    FILTER: Verb(MODEL, START, state_space, ADDED, UNKNOWN),
    SMOOTHER: Verb(MODEL, START, state_space, ADDED, UNKNOWN),
    LIKELIHOOD: Verb(MODEL, (*START, "each_step", "burn"), likelihood, ADDED, UNKNOWN),
    LAG_ONE: Verb(MODEL, START, wider, ADDED, UNKNOWN, f"{SMOOTHER} of twice as many states"),
    DISTURBANCES: Verb(
        MODEL, START, wider, ADDED, UNKNOWN, f"{SMOOTHER} of states that carry the noise of their step with them"
    ),
    FORECAST: Verb(
        ("y", "steps", *PARAMETERS), START, forecast, ADDED, UNKNOWN, f"{FILTER} over the steps to come too"
    ),
    "kalman.predict": Verb(("mean", "cov", "F", "Q"), ("state_intercept",), single_step, has_backend=False),
    "kalman.update": Verb(("mean", "cov", "y", "H", "R"), ("obs_intercept",), single_step, has_backend=False),
    "kalman.simulate": Verb(
        ("generator", "steps", *PARAMETERS),
        ("size", "diffuse"),
        simulation,
        ADDED,
        made_of="matrix_recurrence",
        has_backend=False,
    ),
    "kalman.simulation_smoother": Verb(
        ("y", "generator", *PARAMETERS), ("size", *START), simulation_given, ADDED, UNKNOWN, f"{SMOOTHER} of draws"
    ),
}


def check_verb(name: str, known: Iterable[str] = VERBS, whose: str = "tridiag") -> None:
    """Refuse what is no verb, or none of those that somebody knows; the nearest is named."""
    known = tuple(known)
    if name in known:
        return
    if name in VERBS:
        made_of = VERBS[name].made_of
        raise ValueError(
            f"{whose} does not take the verb {name!r}{f', which runs {made_of}' if made_of else ''}; "
            f"it takes {', '.join(known)}"
        )
    raise ValueError(f"there is no verb {name!r}{nearest(name, known)} The verbs are {', '.join(known)}")


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence: the verb that may have been meant, as a question; of `kalman` without that word too."""
    spellings = {spelling: verb for verb in known for spelling in (verb.rpartition(".")[2], verb)}
    found = difflib.get_close_matches(name.lower().replace("-", "_"), spellings, 1)
    return f"; did you mean {spellings[found[0]]!r}?" if found else "."
