"""Cases inside `jax.jit`: of few shapes, since each is compiled; numbers, threads and scratch memory vary."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import tridiag
from guarded import Ran
from guarded.draw import Draw, in_numpy
from guarded.judging import check_solution
from guarded.sequences import check as check_sequences
from guarded.systems import Systems, rows_last, values

EVERY = 64  # cases, one is of this kind
SHAPES: tuple[tuple[tuple[int, ...], int], ...] = (((17,), 0), ((9, 33), 1), ((65, 20), 0), ((3, 24, 17), 1))
SOLVES: tuple[dict[str, Any], ...] = ({}, {"pivoting": True}, {"periodic": True}, {"transpose": True})
RECURRENCES = ("linear_recurrence", "second order", "log_linear_recurrence", "logcumsumexp")


@functools.cache
def compiled(verb: str, axis: int, options: tuple[tuple[str, Any], ...], gradient: bool) -> Callable[..., Any]:
    """The verb in `jit`; or how its result moves with its last argument, against a vector of ones, beside it."""
    import jax

    jax.config.update("jax_enable_x64", True)
    more = {"axis": axis, **dict(options)}
    if verb == "second order":

        def call(*arrays: Any) -> Any:
            return tridiag.linear_recurrence(tuple(arrays[:-1]), arrays[-1], **more)
    else:

        def call(*arrays: Any) -> Any:
            return getattr(tridiag, verb)(*arrays, **more)

    def both(*arrays: Any) -> Any:
        result, back = jax.vjp(lambda last: call(*arrays[:-1], last), arrays[-1])
        return result, back(jax.numpy.ones_like(result))[0]

    made: Callable[..., Any] = jax.jit(both if gradient else call)
    return made


def run(draw: Draw, library: str) -> Ran:
    """One call; of some systems also the derivative by the right side, which solves the transposed systems."""
    shape, axis = draw.choose("shape", SHAPES)
    dtype = draw.choose("dtype", ("float64", "float32"))
    if draw.chance("systems", 0.6):
        return run_solve(draw, shape, axis, dtype)
    verb = draw.choose("verb of sequences", RECURRENCES)
    order = {"second order": 2, "logcumsumexp": 0}.get(verb, 1)
    x = draw.values.normal(size=shape).astype(dtype)
    coefficients = [(draw.values.uniform(-0.9, 0.9, shape) / max(1, order)).astype(dtype) for _ in range(order)]
    for k, a in enumerate(coefficients):  # which nothing multiplies
        np.moveaxis(a, axis, 0)[: k + 1] = np.nan
    draw.words.insert(0, f"jit of {verb} {shape} along {axis}, {dtype}")
    given = [draw.operand(f"argument {k}", v) for k, v in enumerate((*coefficients, x))]
    y = in_numpy(compiled(verb, axis, (), False)(*given))
    draw.finish()
    name = "linear_recurrence" if verb == "second order" else verb
    check_sequences(name, y, [], [*coefficients, x], [], axis, False, order)
    return Ran(verb.replace("second order", "linear_recurrence"), "jax", systems=y.size // shape[axis])


def run_solve(draw: Draw, shape: tuple[int, ...], axis: int, dtype: str) -> Ran:
    options = draw.choose("solve", SOLVES, "options")
    family = draw.choose("family", ("dominant", "uniform"), "numbers")
    made = [values(draw, name, family, shape, dtype) for name in "abcd"]
    periodic, transpose = options.get("periodic", False), options.get("transpose", False)
    if not periodic:
        np.moveaxis(made[0], axis, 0)[0] = np.moveaxis(made[2], axis, 0)[-1] = np.nan
    gradient = draw.chance("gradient", 0.4, "options")
    draw.words.insert(0, f"jit of solve {shape} along {axis}, {dtype} {options} {family} gradient={gradient}")
    given = [draw.operand(name, v) for name, v in zip("abcd", made, strict=True)]
    result = compiled("solve", axis, tuple(options.items()), gradient)(*given)
    x, *rest = map(in_numpy, result if gradient else (result,))
    rows = tuple(np.moveaxis(v, axis, -1) for v in made)
    none = np.zeros(rows_last(shape, axis)[:-1], bool)
    systems = Systems({}, shape, axis, rows, np.ones(rows[0].shape, bool), none, none, none, family)  # type: ignore[arg-type]
    ran = check_solution(draw, systems, x, options.get("pivoting", "auto"), periodic, transpose)
    if gradient:
        turned = systems._replace(rows=(*rows[:3], np.ones_like(rows[3])))
        check_solution(draw, turned, rest[0], options.get("pivoting", "auto"), periodic, not transpose)
    return ran
