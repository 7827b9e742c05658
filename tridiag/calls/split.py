"""Systems, sequences and series that lie on several devices, inside `jax.shard_map`: each passes its own rows."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from tridiag.backends import LOGARITHMS, Problem
from tridiag.calls import execute, state_space
from tridiag.calls.plan import Call, prepare, wants_check
from tridiag.calls.sequences import PREPARERS, check_logarithms
from tridiag.libraries.arrays import module_of
from tridiag.problems.forms import Cut
from tridiag.problems.state_space import FILTER, KALMAN, LIKELIHOOD, MATRICES, SMOOTHER

Array = Any
PARTS = {  # backends that need not gather the rows of a verb
    "solve": ("numba_thomas", "numba_partition"),
    "slogdet": ("numba_thomas", "jax_scan"),
    "factor": ("numba_thomas",),
    **dict.fromkeys(
        ("linear_recurrence", "matrix_recurrence", "log_linear_recurrence", "logcumsumexp"), ("numba_scan",)
    ),
    "kalman.log_likelihood": ("numba_scan",),
    **dict.fromkeys(("kalman.filter", "kalman.smoother"), ("jax_scan",)),
}
WORDS = {  # for what has rows, and for what is gathered
    "solve": ("system", "systems without certificate"),
    "slogdet": ("system", "systems that may be singular"),
    "factor": ("system", "systems without certificate"),
}


def solve(
    arguments: dict[str, Any],
    where: Any,
    out: Any,
    check: bool | None,
    options: dict[str, Any],
    axis_name: str | tuple[str, ...],
) -> Array:
    """As `tridiag.solve` with ``axis_name``."""
    call = system("solve", arguments, where, out, options, axis_name)
    wants_check(call.plan, check)
    return execute.solve(call, call.plan.backend, False)


def slogdet(
    arguments: dict[str, Any], where: Any, options: dict[str, Any], axis_name: str | tuple[str, ...]
) -> tuple[Array, Array]:
    """As `tridiag.slogdet` with ``axis_name``."""
    call = system("slogdet", arguments, where, None, options, axis_name)
    sign, logarithm = execute.determinants(call)
    return on_all(call.form, axis_name, sign), on_all(call.form, axis_name, logarithm)


def on_all(form: Any, axis_name: str | tuple[str, ...], x: Array) -> Array:
    """What is of whole systems, and the same on all devices: JAX is told so where there is but one."""
    from tridiag.libraries.jax import not_spread

    return x if form.cut else not_spread(x, axis_name if isinstance(axis_name, tuple) else (axis_name,))


def system(verb: str, arguments: dict[str, Any], where: Any, out: Any, options: dict[str, Any], axis_name: Any) -> Call:
    """A prepared call whose rows are those of a device."""
    cut, periodic = cut_over(axis_name, verb), options["periodic"]
    call = prepare(verb, arguments, where=where, **{**options, "periodic": False})
    check_inside(call, out, axis_name)
    if periodic and call.form.n * cut.parts < 3:
        raise ValueError(f"periodic=True needs at least 3 rows, and the system has {call.form.n * cut.parts}")
    return with_cut(call, cut, periodic=periodic)


def recurrence(
    verb: str,
    given: dict[str, Any],
    return_final: bool,
    out: Any,
    options: dict[str, Any],
    axis_name: str | tuple[str, ...],
) -> Any:
    """As a verb on recurrences with ``axis_name``."""
    cut = cut_over(axis_name, verb)
    _, call = PREPARERS[verb](verb, **given, **options)
    check_inside(call, out, axis_name)
    if verb in LOGARITHMS:
        check_logarithms(verb, call.plan, cut=True)
    call = with_cut(call, cut)
    y = execute.recurrence(verb, call)
    if not return_final:
        return y
    last = execute.last(verb, call, y, given)
    if isinstance(last, tuple):
        return y, tuple(on_all(call.form, axis_name, x) for x in last)
    return y, on_all(call.form, axis_name, last)


def series(call: state_space.Call, arguments: tuple[Any, ...], axis_name: Any) -> state_space.Call:
    """A prepared call of a filter whose steps are those of a device."""
    cut = cut_over(axis_name, call.problem.verb)
    if call.form.diffuse:
        raise ValueError(
            "states that are unknown at first are for whole series, and with axis_name each device has some of their "
            "steps; give a finite P0, or pass sharded arrays outside of jax.shard_map"
        )
    check_traced(call.library, any(map(module_of(call.library).is_traced, arguments)), axis_name)
    from tridiag.libraries.jax import spread

    form = call.form._replace(cut=cut if cut.parts > 1 else None)
    return call._replace(form=form, y=spread(call.y, cut.names))


def over_devices(x: Array, cut: Cut) -> Array:
    """The sum of what devices have, the same on all."""
    from jax import lax

    return lax.psum(x, cut.names)


def check_inside(call: Call, out: Any, axis_name: Any) -> None:
    if out is not None:
        raise TypeError("out does not go with axis_name: JAX arrays are not written to")
    check_traced(call.library, call.traced, axis_name)


def check_traced(library: str, traced: bool, axis_name: Any) -> None:
    if not traced or library != "jax":
        raise TypeError(f"axis_name={axis_name!r} is for JAX arrays inside jax.shard_map, and these are of {library}")


def cut_over(axis_name: Any, verb: str = "solve") -> Cut:
    """How rows are spread over the axes of the mesh of `jax.shard_map`."""
    names = axis_name if isinstance(axis_name, tuple) else (axis_name,)
    if not names or not all(isinstance(name, str) for name in names):
        raise TypeError(f"axis_name is {axis_name!r}; wanted the name of an axis of a mesh, or a tuple of such")
    if len({*names}) < len(names):
        raise ValueError(f"axis_name={axis_name!r} names an axis of the mesh twice; name each once")
    jax = sys.modules.get("jax")
    mesh = jax.sharding.get_abstract_mesh() if jax else None
    manual = tuple(getattr(mesh, "manual_axes", ()))
    unknown = [name for name in names if name not in manual]
    if mesh is None or unknown:
        raise ValueError(
            f"axis_name={axis_name!r}: {', '.join(unknown or names)} is no axis of jax.shard_map here"
            + (f", which has {', '.join(manual)}" if manual else f"; call tridiag.{verb} inside of it")
        )
    return Cut.along(names, mesh.shape)


def with_cut(call: Call, cut: Cut, **more: Any) -> Call:
    """The call whose rows are those of a device; one device has whole systems."""
    form = call.form._replace(cut=cut if cut.parts > 1 else None, **more)
    from tridiag.libraries.jax import spread

    if call.d is None:  # all arrays of a call vary over the axes over which one of them does
        a, b, *rest = call.matrix
        call = call._replace(matrix=(a, spread(b, cut.names), *rest))
    else:
        call = call._replace(d=spread(call.d, cut.names))
    return call._replace(plan=call.plan._replace(form=form))


def exchange_of(
    verb: str, arguments: dict[str, Any], problem: Problem, backend: str, transpose: bool = False
) -> str | None:
    """What devices exchange that have rows of the same systems, in a sentence; None where they have whole ones."""
    if verb in KALMAN:
        return exchange_of_steps(verb, arguments, problem, backend)
    if verb == "smith_waterman":
        both = [rows_over(arguments["scores"], problem._replace(axis=axis)) for axis in (-2, -1)]
        pieces = math.prod(one[0] for one in both if one is not None)
        return f"the scores of a pair lie on {pieces} devices, and are gathered" if pieces > 1 else None
    spread = [found for x in arguments.values() if (found := rows_over(x, problem)) is not None]
    if not spread:
        return None
    devices, systems = max(spread)
    one, fail = WORDS.get(verb, ("sequence", "doubtful sequences"))
    lie = f"the rows of a {one} lie on {devices} devices"
    if backend not in PARTS.get(verb, ()) or problem.device != "cpu":
        return f"{lie}, and are gathered"
    from tridiag.xla import split, split_determinants, split_recurrences

    n = problem.shape[problem.axis]
    rows = -(-n // devices)
    if verb == "slogdet":
        told = split_determinants.exchange(devices, systems, problem.periodic, problem.dtype)
    elif verb == "solve":
        if whole := split.exchange_of_whole(devices, systems, n, problem.periodic, problem.pivoting):
            return f"{lie}: {whole}"
        told = split.exchange(devices, systems, rows, problem.periodic, transpose, problem.dtype)
    elif verb == "factor":
        told = split.exchange_of_factors(devices, systems)
    else:
        told = split_recurrences.exchange(verb, devices, systems, rows, problem.order, problem.shape, problem.dtype)
    return f"{lie}: {told}" + f"; {fail} are gathered alone" * (verb != "logcumsumexp")


def exchange_of_steps(verb: str, arguments: dict[str, Any], problem: Problem, backend: str) -> str | None:
    """The same of series and their models."""
    found = rows_over(arguments["y"], problem)
    if found is None:
        return None
    steps = f"the steps of a series lie on {found[0]} devices"
    if backend not in PARTS.get(verb, ()) or problem.diffuse:
        return f"{steps}, and are gathered"
    from tridiag.xla import split_kalman

    told = f"{steps}: {split_kalman.exchange(verb, found[0], np.shape(arguments['F'])[-1], problem.shape[-1])}"
    changes = any(len(np.shape(arguments[name])) > 2 and np.shape(arguments[name])[-3] > 1 for name in MATRICES)
    gathering = "; derivatives gather them"
    if verb == LIKELIHOOD:
        gathering = "; the gradient of a model that changes with time gathers them" * changes
    return f"{told}; where digits may be lost all series are gathered{gathering}"


def exchange_of_made(verb: str, arguments: dict[str, Any], problem: Problem) -> str | None:
    """The same of a verb that runs another one of series."""
    found = rows_over(arguments["y"], problem) if "y" in arguments else None
    if found is None:
        return None
    steps = f"the steps of a series lie on {found[0]} devices"
    if problem.verb == FILTER:  # the steps to come are put behind them
        return f"{steps}, and are gathered"
    return f"{steps}: exchanged as those of {SMOOTHER}, whose results are gathered"


def rows_over(x: Any, problem: Problem) -> tuple[int, int] | None:
    """Over how many devices the system axis of a JAX array is spread, if it is, and the systems of each."""
    spec, rank = getattr(getattr(x, "sharding", None), "spec", None), getattr(x, "ndim", 0)
    axis = problem.axis % len(problem.shape) - len(problem.shape)
    if spec is None or (rank > 1 and rank + axis < 0) or rank == 0:
        return None
    axis = axis if rank > 1 else -1
    devices = Cut.along((tuple(spec) + (None,) * rank)[:rank][axis], x.sharding.mesh.shape).parts
    shape = x.sharding.shard_shape(x.shape)
    return (devices, math.prod(shape) // shape[axis]) if devices > 1 else None
