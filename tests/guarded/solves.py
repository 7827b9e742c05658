"""Cases of tridiagonal systems: solve, factor, matmul, slogdet, and whether what came out is right."""

from __future__ import annotations

from typing import Any

import numpy as np

import tridiag
from guarded import Ran, scratch
from guarded.draw import DTYPES, HALVES, Draw, in_numpy
from guarded.judging import check_determinants, check_entries, check_matmul, check_solution, ill_conditioned
from guarded.oracles import Array, bands
from guarded.systems import Systems, make
from tridiag.backends import BACKENDS, Problem, numba_thomas
from tridiag.calls.plan import prepare

ROWS_IN_PYTHON, MATRICES_OF_LAPACK = 150, 300  # beyond, backends that loop in Python take too long


def able(verb: str, library: str, dtype: str, systems: Systems, **facts: Any) -> list[str]:
    """The backends that can run this on the CPU, besides "auto", and in reasonable time."""
    n, count = systems.shape[systems.axis], np.prod(systems.shape) / max(1, systems.shape[systems.axis])
    problem = Problem(verb, library, "cpu", dtype, systems.shape, systems.axis, **facts)
    found = [name for name, entry in BACKENDS.items() if entry.why_not(problem) is None]
    slow = {
        "numpy_thomas": n > ROWS_IN_PYTHON,
        "torch_thomas": n > ROWS_IN_PYTHON,
        "scipy_gtsv": count > MATRICES_OF_LAPACK,
    }
    return ["auto", "auto", *[name for name in found if not slow.get(name) and not name.startswith("jax")]]


def run(draw: Draw, library: str) -> Ran:
    verb = draw.choose("verb of systems", ("solve",) * 8 + ("factor", "factor", "matmul", "slogdet"))
    dtype = draw.choose("dtype", DTYPES)
    if verb in ("solve", "factor"):
        dtype = draw.half(library, dtype)
    mixed = draw.chance("mixed", 0.1) and library == "numpy"
    right = {"float64": "complex128", "float32": "complex64"}.get(dtype, dtype) if mixed else dtype
    periodic = draw.chance("periodic", 0.15, "options")
    transpose = draw.chance("transpose", 0.25, "options") and verb != "slogdet"
    systems = make(draw, dtype, right, library, periodic, verb)
    pivoting = draw.choose("pivoting", ("auto", "auto", "auto", True, False), "options")
    axis = systems.axis - (len(systems.shape) if draw.chance("negative axis", 0.5) else 0)
    options: dict[str, Any] = {"axis": axis, "periodic": periodic}
    if "where" in systems.arguments:
        options["where"] = systems.arguments["where"]
    given = [systems.arguments[name] for name in "abcd"]
    draw.words.insert(
        0, f"{verb} {library} {options | {'where': 'where' in options}} transpose={transpose} pivoting={pivoting}"
    )
    if verb == "matmul":
        with scratch.arrays():
            y = tridiag.matmul(*given, transpose=transpose, **options)
        return check_matmul(draw, systems, y, periodic, transpose)
    if verb == "slogdet":
        name = draw.choose("backend", able(verb, library, dtype, systems, pivoting=True, periodic=periodic))
        with scratch.arrays(name):
            found = tridiag.slogdet(*given[:3], backend=name, **options)
            if library != "jax" and name in ("auto", "numba_thomas") and not periodic:
                call = prepare("slogdet", dict(zip("abc", given[:3], strict=True)), **options)
                check_entries(systems, *map(in_numpy, numba_thomas.inverse_entries(call.matrix, call.form)))
        return check_determinants(draw, systems, found, periodic)
    names = able(verb, library, "float32" if dtype in HALVES else dtype, systems, pivoting=pivoting, periodic=periodic)
    options |= {"backend": draw.choose("backend", names), "pivoting": pivoting}
    draw.say(backend=options["backend"])
    with scratch.arrays(options["backend"]):
        x, systems = solved(draw, verb, systems, given, right, library, options, transpose)
    if pivoting is False and (periodic or options["backend"] == "scipy_gtsv"):
        pivoting = True  # as LAPACK does, and elimination with corners may do, whose promise is normwise
    backend = options["backend"]
    return check_solution(draw, systems, x, pivoting, periodic, transpose, backend)._replace(kind=verb)


def solved(
    draw: Draw,
    verb: str,
    systems: Systems,
    given: list[Any],
    right: str,
    library: str,
    options: dict[str, Any],
    transpose: bool,
) -> tuple[Array, Systems]:
    """The solution, wherever it was written, also of calls that raise for singular systems, and which may be those."""
    result = dtype_of(given, right, library)
    place = draw.stream("place").random() if "out" not in draw.drop else 1
    out, more = None, {}
    if place < 0.55:
        out, _ = draw.output("out", systems.shape, result, library)
        more["out"] = out
    elif place < 0.7 and verb == "solve" and in_numpy(given[3]).shape == systems.shape:
        out, held = draw.output("d, overwritten", systems.shape, result, library)
        held.array[...] = in_numpy(given[3])
        given, more = [*given[:3], out], {"overwrite_d": True}
    try:
        if verb == "factor" and options["axis"] >= 0 and 1 < max(map(np.ndim, given[:3])) < len(systems.shape):
            return ambiguous(systems, given, options, transpose), systems
        if verb == "factor":
            x = tridiag.factor(*given[:3], **options).solve(given[3], transpose, **more)
        else:
            check = draw.choose("check", (None, False), "options")
            x = tridiag.solve(*given, transpose=transpose, check=check, **options, **more)
    except tridiag.SingularSystemError as error:
        x = error.x
        found = np.zeros(systems.singular.shape, bool)
        found[tuple(error.indices.T)] = True
        if systems.family != "integers":
            matrix = bands(*systems.rows[:3], systems.keep, options["periodic"], transpose)
            by_rounding = np.zeros(found.shape, bool)
            for at in map(tuple, np.argwhere(found & ~systems.singular)):
                by_rounding[at] = ill_conditioned(matrix, at, systems.rows[1].dtype, options["periodic"])
            if (found != systems.singular | by_rounding).any():
                raise AssertionError(
                    f"indices of singular systems {np.argwhere(found).tolist()}, "
                    f"not {np.argwhere(systems.singular).tolist()}"
                ) from None
            systems = systems._replace(free=systems.free | by_rounding)
    if out is not None and x is not out:
        raise AssertionError("the result is not the array that was given for it")
    if in_numpy(x).dtype != result or tuple(x.shape) != systems.shape:
        raise AssertionError(f"the result is {x.dtype}{tuple(x.shape)}, not {result}{systems.shape}")
    return in_numpy(x), systems


def ambiguous(systems: Systems, given: list[Any], options: dict[str, Any], transpose: bool) -> Array:
    """A matrix of fewer axes than its right sides, by an axis from the front: refused, or taken as `solve` takes it."""
    try:
        return in_numpy(tridiag.factor(*given[:3], **options).solve(given[3], transpose))
    except ValueError:
        return in_numpy(tridiag.solve(*given, transpose=transpose, check=False, **options))


def dtype_of(given: list[Any], right: str, library: str) -> np.dtype[Any]:
    """That of the result: the libraries promote numbers of Python, and integers, each in its way."""
    if library == "numpy":
        found = np.result_type(*(x if isinstance(x, np.ndarray) else 1.0 for x in given))
        return np.dtype("float64") if found.kind in "iu" else found
    whole = all(not x.is_floating_point() and not x.is_complex() for x in given if hasattr(x, "is_complex"))
    return np.dtype("float32" if whole else right)
