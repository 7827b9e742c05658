"""Factors of plain matrices whose facts are known, and solves with them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tridiag.backends import BACKENDS, Backend
from tridiag.calls.execute import are_saved, factors_later, quicker_anew, saves_elimination
from tridiag.calls.fast_path.facts import (
    Array,
    Casts,
    Facts,
    Group,
    cast,
    casts_of,
    extents_of,
    facts_of,
    facts_of_all,
    fits,
    is_contiguous,
    kept_call_of,
    may_be_bound,
    one_each,
    raise_if_singular_plain,
    surely_disjoint,
)
from tridiag.calls.fast_path.matrices import lifted, plan_of_matrices, recalled
from tridiag.calls.fast_path.storage import POOL, SMALLEST
from tridiag.calls.fast_path.windows import WindowFactors, suits
from tridiag.calls.plan import UNASKED, Plan, axis_alone, wants_check
from tridiag.kernels.jobs.batches import contiguous
from tridiag.kernels.jobs.windows import Windows
from tridiag.kernels.runtime.call_table import NOTHING, RESULT, CallTable, Keepable, Same, Several
from tridiag.problems.forms import Form, Shape
from tridiag.selection.choose import choose

Shapes = tuple[Shape, ...]


class Kind(NamedTuple):
    """What factors belong to; other right sides, and other matrices, are solved from a, b and c anew."""

    library: str
    dtype: str
    rows: int
    shapes: Shapes  # of a, b, c and where: `jax.vmap` maps a pytree whose factors lie otherwise
    from_front: bool  # the caller counted the axis so, in the broadcast shape of those
    axis_name: str | tuple[str, ...] | None = None  # inside `jax.shard_map`: along which axes rows follow each other


class Made(NamedTuple):
    """Matrices that nobody else has, their factors and status."""

    matrix: tuple[Any, ...]  # a, b, c, where
    factors: Any
    status: Any


class BoundFactors(NamedTuple):
    """An elimination that waits for its matrices."""

    call: Callable[..., Any]  # of a, b, c, where
    later: bool  # whether it tells the status alone, and no factors are kept
    casts: Casts
    plain: bool  # without exchanges: where it breaks down, it is to be looked at again
    options: dict[str, Any]  # the axis of later right sides, pivoting, periodic
    free: bool  # whether the backend was not named
    name: str  # of the backend
    kind: Kind
    stored: Any  # the same as a function of a, b, c and a storage; or None

    def parts(self, storage: Array) -> Made:
        """What such a storage holds."""
        copies, factors, status = self.stored.parts(storage)
        return self.of_library(Made((*copies, None), factors, status))

    def of_library(self, made: Made) -> Made:
        """With matrices and status as arrays of the caller's library."""
        return made if self.kind.library == "numpy" else of_tensors(made)


class Eliminated(NamedTuple):
    """Matrices that were eliminated, as `tridiag.factor` returns them."""

    matrix: tuple[Any, ...]  # a, b, c, where
    options: dict[str, Any]
    free: bool  # whether the backend was not named
    name: str  # of the backend
    kind: Kind
    factors: Any  # None where nobody has wanted them yet


class Known(NamedTuple):
    """The facts of matrices that were eliminated, with which options, and of their factors."""

    facts: tuple[Any, ...]
    where: Facts | None
    options: tuple[Any, ...]  # axis, pivoting, periodic
    own_axis: int  # of the matrices alone
    free: bool  # whether the backend was not named
    saved: bool  # whether its factors hold most of the matrices eliminated
    name: str
    kind: Kind
    factors: tuple[Facts, ...]  # of the arrays that hold them; () where there are none, or the backend has others
    windows: Windows | None  # of one long matrix, the factors of which it has too
    of_windows: tuple[Facts, ...]  # of the arrays that hold those


same_known = one_each(Known)


class BoundFactored(NamedTuple):
    """A solve with factors that waits for its arrays."""

    call: Callable[..., bool]  # of a, b, c, where, d, x, and ``arrays``; whether some system may be singular
    arrays: tuple[int, ...]  # which ones of those of factors it takes, behind None
    whole: Callable[..., bool] | None  # of a, b, c, where, d, x: what solves anew where windows would not do
    casts: Casts
    form: Form
    shapes: tuple[Any, ...]  # of a, b, c, where in the form
    dtype: np.dtype[Any]  # of x
    in_place: bool
    check: bool
    kept: Keepable | None


def factored_of(a: Any, b: Any, c: Any, where: Array | None, axis: Any, *options: Any) -> tuple[Any, Any] | None:
    """A storage, or what was made of the matrices, and what is known of them; None where this is not the way."""
    found = recalled(bound_factors, [a, b, c], where, axis, options)
    if found is None:
        return None
    bound, kept = found
    if bound.stored is None:
        made = eliminated(bound, [np.array(x) if type(x) is np.ndarray else x for x in (a, b, c)], where)
        return None if made is None else (made, bound)
    memory = POOL.take(bound.stored.storage.size)
    doubtful = bound.stored(a, b, c, memory)
    if bound.later and doubtful:
        made = eliminated(bound, bound.stored.storage.views(memory), None)
        return None if made is None else (made, bound)
    if bound.plain and not bound.later:
        made = bound.parts(memory)
        return None if made.status.any() else (made, bound)
    if kept:
        FACTORINGS.keep(kept)
    return memory, bound


FACTORINGS = CallTable(factored_of)  # of a, b, c, where, axis, and the options


def eliminated(bound: BoundFactors, own: list[Any], where: Array | None) -> Made | None:
    """Factors and status of matrices that nobody else has, but for a mask; None where this is not the way."""
    given = cast([*own], bound.casts) if bound.casts else own
    if given is None:
        return None
    mask = None if where is None else np.array(where)
    found = bound.call(*given, mask)
    made, status = (None, found) if bound.later else (found, np.array(found.status))
    if bound.plain and status.any():
        return None
    return bound.of_library(Made((*own, mask), made, status))


def of_tensors(made: Made) -> Made:
    """Matrices and status as tensors of PyTorch, which share the memory of the arrays."""
    import torch

    *matrix, status = (x if x is None else torch.from_numpy(x) for x in (*made.matrix, made.status))
    return Made(tuple(matrix), made.factors, status)


@functools.lru_cache(1024, typed=True)
def bound_factors(
    facts: tuple[Any, ...],
    where: Facts | None,
    axis: int,
    backend: str,
    pivoting: bool | str,
    periodic: bool,
    library: str = "numpy",
) -> tuple[BoundFactors, Keepable | None] | None:
    """The elimination of a, b, c with these facts, if their backend calls its kernel with arrays as they are.

    And what a table may keep of it. ``library``: of the caller's arrays, of which these are views.
    """
    arrays = [fact for fact in (*facts, where) if isinstance(fact, tuple)]
    if not may_be_bound(facts) or not all(map(is_contiguous, arrays)):
        return None  # copies lie otherwise
    shapes = tuple(fact[1] if isinstance(fact, tuple) else () for fact in (*facts, where))
    one = max(map(len, shapes)) <= 1
    plan = plan_of_matrices("factor", facts, where, -1 if one else axis, pivoting, periodic, False, UNASKED)
    plan = plan._replace(library=library, problem=plan.problem._replace(library=library))
    entry, form, casts = choose(plan.problem, backend).backend, plan.form, casts_of(plan, facts)
    if casts is None or not hasattr(entry.module(), "bound_factor"):
        return None
    later = factors_later(plan, entry.name) if backend == "auto" else None
    bind = later.module().bound_zero_pivots if later else entry.module().bound_factor
    matrix = [extents_of(fact, plan, k) for k, fact in enumerate(facts)]
    extents = lifted(form, (*matrix, where, None, None))
    call = bind(form, *extents, matrix[1][0])
    placed = axis if one else form.axis - len(form.shape)
    kind, free = Kind(library, plan.problem.dtype, form.n, shapes, not one and axis >= 0), backend == "auto"
    asked = {"axis": placed, "pivoting": pivoting, "periodic": periodic}
    stored = None
    if not casts and where is None and len(arrays) == 3:
        from tridiag.calls.fast_path import stored_factors  # which imports kernels

        matrices = [fact[:2] for fact in facts]
        storing = stored_factors.copying if later else stored_factors.storing
        stored = storing(form, matrices, *(() if later else (*extents, matrix[1][0])))
    bound = BoundFactors(call, later is not None, casts, form.pivoting is False, asked, free, entry.name, kind, stored)
    plainly = bound.plain and not bound.later  # what is found is looked at
    if stored is None or stored.storage.size > SMALLEST or library != "numpy" or plainly:
        return bound, None
    given = *facts, *map(Same, (None, axis, backend, pivoting, periodic))
    sources = (0, 1, 2, RESULT) if later else (0, 1, 2, *[NOTHING] * 4, RESULT)
    result = Several(np.dtype(np.uint8), ((stored.storage.size,),), bound)
    return bound, kept_call_of(stored.call, given, casts, result, sources, RESULT, bound.later)


def known(status: Any, eliminated: Eliminated, windows: WindowFactors | None) -> tuple[Any, ...] | None:
    """What solves with factors of some NumPy arrays depend on: what is known, the arrays, the factors.

    Matrices whose factors nobody has wanted yet have None. None where one is singular.
    """
    *bands, where = eliminated.matrix
    if status.any() or not (where is None or type(where) is np.ndarray):
        return None
    mask = None if where is None else facts_of(where)
    alike = known_alike((facts_of_all(bands), mask), eliminated, windows)
    return alike, *eliminated.matrix, *arrays_of(eliminated.factors), *arrays_of(windows)


def known_alike(facts: tuple[Any, ...], eliminated: Eliminated, windows: WindowFactors | None) -> Known:
    """What is known of matrices of any library with such ``facts``, and a mask, or None, with such."""
    matrix, options, free, name, kind, factors = eliminated
    placed = options["axis"], options["pivoting"], options["periodic"]
    own = axis_alone(matrix, placed[0]), free, are_saved(factors), name, kind
    found = None if windows is None else windows.windows
    arrays = facts_of_all(arrays_of(factors)), found, facts_of_all(arrays_of(windows))
    return same_known(*facts, placed, *own, *arrays)


def arrays_of(found: Any) -> tuple[Array, ...]:
    """Those of factors whose arrays the kernel of their backend takes."""
    return (found.tiles, found.kinds) if hasattr(found, "tiles") else ()


def solver_of(plan: Plan, known: Known) -> tuple[Backend, bool] | None:
    """What solves right sides of matrices that are known, and whether from factors; None: the general way finds out."""
    kind, own = known.kind, BACKENDS[known.name]
    if kind.from_front and len(plan.form.shape) > max(map(len, kind.shapes)):
        return None  # which raises
    if (plan.problem.dtype, plan.form.n) != (kind.dtype, kind.rows):
        return None  # of another kind than the factors
    if known.free and (other := quicker_anew(plan, known.name, known.saved)):
        return other, False
    if not saves_elimination(plan, known.name):
        return own, False
    return (own, True) if known.factors else None


def solve_factored(
    given: tuple[Any, ...], d: Array, transpose: Any, out: Any, check: Any, overwrite_d: Any
) -> Array | None:
    """The solution with factors that are ``given`` as by `known`, or None where this is not the way to it."""
    if not (out is None or type(out) is np.ndarray):
        return None
    known, a, b, c, where, *factors = given
    place = None if out is None else facts_of(out)
    try:
        bound = bound_factored(known, facts_of(d), place, transpose, check, overwrite_d)
    except (TypeError, ValueError):  # refused, or an option that has no hash and is refused next
        return None
    if bound is None:
        return None
    x = d if bound.in_place else out
    if x is None:
        x = np.empty(bound.form.shape, bound.dtype)
    elif not (x.flags.writeable and surely_disjoint(x, (a, b, c, where, None if bound.in_place else d))):
        return None
    if bound.casts:
        operands = cast([a, b, c, d], bound.casts)
        if operands is None:
            return None
        a, b, c, d = operands
    more = (None, *[factors[k] for k in bound.arrays]) if bound.arrays else ()
    doubtful = bound.call(a, b, c, where, d, x, *more)
    if doubtful and bound.whole:
        doubtful = bound.whole(a, b, c, where, d, x)
    if doubtful and bound.check:
        raise_if_singular_plain(x, (a, b, c, where), bound.shapes, bound.form)
    elif bound.kept:
        FACTORED_SOLVES.keep(bound.kept)
    return x


FACTORED_SOLVES = CallTable(solve_factored)  # of what `known` gives, d, transpose, out, check and overwrite_d


@functools.lru_cache(1024, typed=True)
def bound_factored(
    known: Known, d: Facts, out: Facts | None, transpose: bool, check: bool | None, overwrite_d: bool
) -> BoundFactored | None:
    """The solve of right sides with these facts, if their backend calls its kernel with arrays as they are."""
    (axis, pivoting, periodic), facts = known.options, (*known.facts, d)
    if not may_be_bound(facts):
        return None
    plan = plan_of_matrices("solve", facts, known.where, axis, pivoting, periodic, transpose, UNASKED, overwrite_d)
    casts, form, checked = casts_of(plan, facts), plan.form, wants_check(plan, check)
    solver = None if casts is None else solver_of(plan, known)
    if casts is None or solver is None:
        return None
    result = plan.out_dtype, form.shape, contiguous(form.shape, plan.out_dtype.itemsize)
    if out is not None and not fits(out, result):
        return None
    in_place = out is None and bool(overwrite_d) and fits(d, result)
    *matrix, right = (extents_of(fact, plan, k) for k, fact in enumerate(facts))
    operands = (*matrix, known.where, right, d if in_place else out or result)
    places = form, *lifted(form, operands), (matrix[1][0], right[0])
    (entry, factored), count = solver, len(known.factors)
    module, arrays = entry.module(), tuple(range(count)) if factored else ()
    call, whole = module.bound_factored_solve(*places) if factored else module.bound_solve(*places), None
    if known.windows and not (factored or in_place) and suits(kind := known.kind, plan.form, d, out or result):
        from tridiag.calls.fast_path import window_factors  # which imports kernels

        arrays, whole = (count, count + 1), call
        call = window_factors.bound_solve(known.windows, np.dtype(kind.dtype))
    arguments = d, Same(transpose), out or Same(None), Same(check), Same(overwrite_d)
    kept = None
    if not (in_place and checked):
        kept = kept_factored(call, known, arguments, casts, result, arrays, in_place, checked or whole is not None)
    return BoundFactored(call, arrays, whole, casts, form, places[1][:4], plan.out_dtype, in_place, checked, kept)


def kept_factored(
    call: Any,
    known: Known,
    arguments: tuple[Any, ...],
    casts: Casts,
    result: Facts,
    arrays: tuple[int, ...],
    in_place: bool,
    checked: bool,
) -> Keepable | None:
    """A bound solve for the table; ``arguments``: d, transpose, out, check and overwrite_d."""
    given = Group((Same(known), *known.facts, known.where or Same(None), *known.factors, *known.of_windows))
    right = len(given)  # the place of d, behind those
    takes = right if in_place else RESULT if isinstance(arguments[2], Same) else right + 2
    more = (NOTHING, *[5 + k for k in arrays]) if arrays else ()
    sources = 1, 2, 3, 4 if known.where else NOTHING, right, takes, *more
    facts = sum(not isinstance(x, Same) for x in given)
    moved = tuple((k if k < len(known.facts) else facts, function) for k, function in casts)
    return kept_call_of(call, (given, *arguments), moved, result, sources, takes, checked)
