"""Alignments of plain arrays whose facts are known."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tridiag.calls import pairs
from tridiag.calls.fast_path.facts import Array, casting, facts_of_all, kept_call_of, may_be_bound
from tridiag.kernels.jobs.alignment import all_three
from tridiag.kernels.jobs.batches import is_packed
from tridiag.kernels.jobs.words.alignment import HOTTEST
from tridiag.kernels.runtime.call_table import NOTHING, RESULT, CallTable, Keepable, Same
from tridiag.problems.forms import Shape
from tridiag.selection.choose import choose

COLDEST, WARMEST = 2.0**-126, HOTTEST[4]  # numbers of Python from and to which are temperatures in any dtype
NO_GRADIENTS = (None,) * 4


class BoundAlignment(NamedTuple):
    """Alignments that wait for their arrays."""

    call: Callable[..., bool]  # of the scores, the lengths, the parameters, their scores, and no gradients
    casts: tuple[Callable[[Any], Any] | None, ...]  # of the parameters
    shape: Shape  # of the scores
    batch: Shape
    hottest: float  # the highest temperature
    kept: Keepable | None


def smith_waterman(
    scores: Array, lengths: Any, gap: Any, gap_open: Any, temperature: Any, backend: str
) -> Array | None:
    """The scores of the alignments, or None where this is not the way to them."""
    if type(temperature) is float and COLDEST <= temperature <= WARMEST:
        found: Array | None = SCORES.call(scores, lengths, gap, gap_open, temperature, backend)
        return found
    return aligned(scores, lengths, gap, gap_open, temperature, backend, False)


def aligned(
    scores: Array, lengths: Any, gap: Any, gap_open: Any, temperature: Any, backend: str, usual: bool = True
) -> Array | None:
    """The same for a call that was not met before; ``usual``: with a temperature that is in range in any dtype."""
    if gap is None or not (lengths is None or type(lengths) is np.ndarray):
        return None
    given = [gap, temperature] if gap_open is None else [gap, gap_open, temperature]
    facts = facts_of_all((scores, *given)), None if lengths is None else (lengths.dtype, lengths.shape)
    try:
        bound = bound_alignment(*facts, backend)
    except TypeError:  # refused, or an option that has no hash and is refused next
        return None
    if bound is None:
        return None
    try:
        parameters = [function(x) if function else x for function, x in zip(bound.casts, given, strict=True)]
    except OverflowError:
        return None
    last = parameters[-1]
    if lengths is not None or (type(last) is np.ndarray and last.ndim):
        pairs.check_values(bound.shape, lengths, np.asarray(last))
    elif last <= 0 or last > bound.hottest:
        return None  # which is refused next
    if lengths is not None:
        lengths = np.ascontiguousarray(np.broadcast_to(lengths.astype(np.int32), (*bound.batch, 2)))
    made = np.empty(bound.batch, scores.dtype)
    numbers = all_three([spread(x, bound.batch, scores.dtype) for x in parameters])
    bound.call(np.ascontiguousarray(scores), lengths, *numbers, made, *NO_GRADIENTS)
    if usual and bound.kept:
        SCORES.keep(bound.kept)
    return made


SCORES = CallTable(aligned)  # of scores, lengths, gap, gap_open, temperature and the backend


def spread(x: Any, batch: Shape, dtype: np.dtype[Any]) -> Array:
    """One number for each pair, or one for all."""
    if type(x) is not np.ndarray or x.shape in ((), batch):
        return np.ascontiguousarray(x, dtype)
    made = np.empty(batch, dtype)
    made[...] = x
    return made


@functools.lru_cache(1024, typed=True)
def bound_alignment(facts: tuple[Any, ...], lengths: Any, backend: str) -> BoundAlignment | None:
    """The alignment of scores with parameters of these facts, in the dtype of the scores."""
    if not may_be_bound(facts):
        return None
    scores, *parameters = (stand_in(fact) for fact in facts)
    names = ("gap", "temperature") if len(parameters) == 2 else ("gap", "gap_open", "temperature")
    taken = None if lengths is None else stand_in(lengths)
    prepared = pairs.prepare(scores, taken, **dict(zip(names, parameters, strict=True)))
    shape, dtype = prepared.problem.shape, np.dtype(prepared.result_dtype)
    if 0 in shape or facts[0][0] != dtype or dtype.name != prepared.problem.dtype:
        return None
    module, batch = choose(prepared.problem, backend).backend.module(), shape[:-2]
    if not hasattr(module, "bound_alignment"):
        return None
    casts = tuple(cast_of(fact, dtype.name) for fact in facts[1:])
    shared = tuple(isinstance(fact, type) or fact[1] == () for fact in facts[1:])
    call = module.bound_alignment(shape, dtype, shared)
    kept = kept_alignment(call, facts, batch, backend) if lengths is None else None
    return BoundAlignment(call, casts, shape, batch, HOTTEST[dtype.itemsize], kept)


def kept_alignment(call: Any, facts: tuple[Any, ...], batch: Shape, backend: str) -> Keepable | None:
    """Bound alignments of whole sequences for the table, where arrays are contiguous and of one dtype."""
    (dtype, _, _), (*gaps, temperature), arrays = facts[0], facts[1:], [x for x in facts if isinstance(x, tuple)]
    packed = all(is_packed(shape, steps, len(shape), dtype.itemsize) for _, shape, steps in arrays)
    plain = all(own == dtype and shape in ((), batch) for own, shape, _ in arrays[1:])
    if temperature is not float or not (packed and plain):
        return None
    given = facts[0], Same(None), gaps[0], (*gaps, Same(None))[1], temperature, Same(backend)
    sources = 0, NOTHING, 2, 1 + len(gaps), 4, RESULT, *(NOTHING,) * len(NO_GRADIENTS)
    return kept_call_of(call, given, (), (dtype, batch), sources, RESULT, False)


def cast_of(fact: Any, dtype: str) -> Callable[[Any], Any] | None:
    """The cast of a parameter; None where it is none: a number of double precision."""
    return None if fact is float and dtype == "float64" else casting(fact, dtype)


def stand_in(fact: Any) -> Any:
    """What has the facts of an argument, and needs no memory."""
    return fact() if isinstance(fact, type) else np.broadcast_to(np.zeros((), fact[0]), fact[1])
