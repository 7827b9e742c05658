"""Factors of plain matrices that are tensors of PyTorch, and solves with them, whose facts are known.

A factorization keeps the calls that it was solved with, by the facts of their right sides: all else that decides
belongs to it. So one with such right sides looks at these alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from tridiag.backends.numba_thomas import Checked, Threaded
from tridiag.calls.fast_path.factored import Eliminated, Made, factored_of, known_alike
from tridiag.calls.fast_path.tensors import (
    addresses_of,
    attributes_of,
    disturbed,
    extents_of,
    facts_of_all,
    is_dense,
    needs_gradient,
    reaches_of,
)
from tridiag.calls.fast_path.torch_systems import BoundSolve, arrays_of, solve
from tridiag.calls.fast_path.windows import WindowFactors, suits
from tridiag.kernels.jobs.batches import contiguous
from tridiag.kernels.runtime.python_call import check

KEPT = 8  # calls of one factorization
DECIDED = [0]  # how often everything was decided anew


class Met(NamedTuple):
    """A solve of right sides of some dtype, shape and strides, without a gradient and with a result of its own."""

    call: Any  # whose ``run`` takes a, b, c, where, d, x and more
    more: tuple[Any, ...]
    reach: int  # bytes of d from its first entry on
    size: int  # bytes of an entry
    alike: bool  # whether the result lies as d does
    shape: tuple[int, ...]
    looked_at: bool  # whether another way is taken where some system may be singular
    decided: int


class Held:
    """Matrices and their factors; the calls that were met, and the latest one that was bound to the factors."""

    __slots__ = ("differentiated", "factors", "kind", "latest", "matrix", "met", "windows")

    def __init__(self, eliminated: Eliminated, windows: WindowFactors | None) -> None:
        self.matrix, self.factors, self.kind = eliminated.matrix, eliminated.factors, eliminated.kind
        self.windows = windows
        self.differentiated = any(getattr(x, "requires_grad", False) for x in self.matrix)
        self.latest: tuple[Any, Any] = (None, None)  # a call without them and with them; one object, for threads
        self.met: dict[Any, Met] = {}

    def bind(self, call: BoundSolve, d: Any, options: tuple[Any, ...]) -> BoundSolve:
        """The call of d with these factors; ``options``: as `torch_systems.bound_solve` takes them behind the axis."""
        unbound, found = self.latest
        if unbound is not call:
            found = call._replace(options=call.options._replace(factors=self.factors)) if call.factored else call
            self.latest = call, found
            self.keep(found, d, *options[-3:])
        bound: BoundSolve = found
        return bound

    def keep(self, bound: BoundSolve, d: Any, transpose: Any, asked: Any, overwrite_d: Any) -> None:
        """Meet a call, if it is one to be met again."""
        own = type(transpose) is bool and (asked is None or type(asked) is bool) and overwrite_d is False
        if not own or bound.casts or bound.reaches[5][1] or not isinstance(bound.call, (Checked, Threaded)):
            return
        shape, (reach, size) = bound.options.form.shape, bound.reaches[3]
        alike = d.shape == shape and d.stride() == contiguous(shape, 1)
        call: Any = bound.call
        factors, looked_at = bound.options.factors, bound.options.check
        if self.windows and not bound.factored:
            from tridiag.calls.fast_path import window_factors  # which imports kernels

            result = np.dtype(self.kind.dtype), shape, contiguous(shape, size)
            if suits(self.kind, bound.options.form, extents_of((*attributes_of(d), d.stride())), result):
                call, factors = window_factors.bound_solve(self.windows.windows, result[0]), self.windows
                looked_at = True  # where rows at cuts do not hold it is solved anew
        met = Met(call, arrays_of(factors), reach, size, alike, shape, looked_at, DECIDED[0])
        if len(self.met) >= KEPT:
            self.met.clear()
        self.met[d.dtype, d.shape, d.stride(), transpose, asked] = met

    def again(self, d: Any, transpose: bool, asked: bool | None) -> Any:
        """The solution of a call that was met; None: it was not, or d is more than its entries, or one is singular."""
        met = self.met.get((d.dtype, d.shape, d.stride(), transpose, asked))
        if met is None or met.decided != DECIDED[0] or disturbed() or not d.is_cpu or d.layout is not torch.strided:
            return None
        address = d.data_ptr()
        if (d.requires_grad or self.differentiated) and torch.is_grad_enabled():
            return None
        held = d.untyped_storage().nbytes() >= met.reach + d.storage_offset() * met.size
        if not (held and address) or d.is_neg() or d.is_conj():
            return None
        x = torch.empty_like(d) if met.alike else d.new_empty(met.shape)
        a, b, c, where = self.matrix
        mask = None if where is None else where.data_ptr()
        found = met.call.run(a.data_ptr(), b.data_ptr(), c.data_ptr(), mask, address, x.data_ptr(), *met.more)
        return None if found and check(found) and met.looked_at else x


def solve_factored(given: tuple[Any, ...], d: Any, transpose: Any, out: Any, asked: Any, overwrite_d: Any) -> Any:
    """The solution with factors that are ``given`` as by `known`; None where this is not the way to it."""
    known, a, b, c, where, held = given
    if out is None and overwrite_d is False and type(transpose) is bool and (asked is None or type(asked) is bool):
        try:
            x = held.again(d, transpose, asked)
        except (TypeError, RuntimeError):  # a tensor without strides or memory
            x = None
        if x is not None:
            return x
    axis, *options = known.options
    return solve(a, b, c, d, where, out, axis, known, *options, transpose, asked, overwrite_d, factors=held)


def known(status: Any, eliminated: Eliminated, windows: WindowFactors | None) -> tuple[Any, ...] | None:
    """As `tridiag.calls.fast_path.factored.known` of tensors."""
    if status.device.type != "cpu" or status.any():
        return None
    *bands, where = facts_of_all(eliminated.matrix)
    held = Held(eliminated, windows)
    return known_alike((tuple(bands), where), eliminated, windows), *eliminated.matrix, held


def factors(a: Any, b: Any, c: Any, where: Any, axis: Any, *options: Any) -> tuple[Any, Any] | None:
    """As `tridiag.calls.fast_path.factored.factored_of`, of tensors of one dtype in host memory."""
    given = [a, b, c] if where is None else [a, b, c, where]
    facts = facts_of_all(given)
    if disturbed() or not all([is_dense(fact) and fact[2].type == "cpu" for fact in facts]):
        return None
    exact = not (b.is_floating_point() or b.is_complex())  # PyTorch and NumPy promote such to other dtypes
    if exact or not a.dtype is b.dtype is c.dtype or addresses_of(given, reaches_of(*facts)) is None:
        return None
    own = [x.clone() for x in given] if needs_gradient(given) else given
    try:
        arrays = [x.detach().numpy() for x in own]
    except TypeError:  # of a dtype that NumPy has not
        return None
    found = factored_of(*arrays, *[None] * (4 - len(arrays)), axis, *options, "torch")
    if found is None or own is given:
        return found
    made, bound = found
    parts = made if isinstance(made, Made) else bound.parts(made)
    return parts._replace(matrix=(*own, *[None] * (4 - len(own)))), bound
