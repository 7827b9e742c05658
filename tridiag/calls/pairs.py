"""Pairs of sequences from the caller's arguments to the normal form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tridiag.backends import Backend, Problem
from tridiag.calls.plan import real_dtype
from tridiag.derivatives import alignment_of
from tridiag.kernels.jobs.words.alignment import ENDS, HOTTEST, TURNS, USUAL, Rules
from tridiag.libraries.arrays import (
    Entry,
    agreed,
    check_given,
    check_sequence,
    connected_in,
    dtype_name,
    module_of,
    working_dtype,
)

Array = Any
VERB = "smith_waterman"
SHOWN = 5  # bad values that an error message names


class Pairs(NamedTuple):
    """Checked arguments, in the working dtype, the parameters with an entry for each pair."""

    problem: Problem
    result_dtype: str
    traced: bool
    scores: Any  # (..., L1, L2)
    lengths: Any  # (..., 2), of any kind of integers, or None: all are full
    parameters: tuple[Any, ...]  # gap, perhaps gap_open, and temperature, of the shape of the batch
    rules: Rules  # which alignments count


def prepare(
    scores: Any,
    lengths: Any = None,
    *,
    gap: Any,
    gap_open: Any = None,
    temperature: Any = 1.0,
    ends: str = "any",
    turns: str = "both",
) -> Pairs:
    """Check everything that can be checked without reading values."""
    rules = check_rules(ends, turns)
    if gap_open is None and turns != USUAL.turns:  # gaps along the two sequences have to be told apart
        gap_open = gap
    arguments = {"scores": scores, "gap": gap, "gap_open": gap_open, "temperature": temperature}
    if gap_open is None:
        del arguments["gap_open"]
    names, kinds = tuple(arguments), [type(x) for x in arguments.values()]
    check_given(names, kinds)
    owners = dict(zip(names, kinds, strict=True))
    library = agreed(owners if isinstance(lengths, list | tuple) else {**owners, "lengths": type(lengths)})
    module = module_of(library)
    check_sequence("lengths", lengths, "numpy", library)
    original = lengths
    given, lengths, entries, settings = module.taking(names, (*kinds, type(lengths)))([*arguments.values()], lengths)
    facts = dict(zip(names, entries[:-1], strict=True))
    for name, entry in facts.items():
        module.check_dtype(name, entry)
    shapes = {name: tuple(entry[1]) for name, entry in facts.items()}
    shape = shapes["scores"]
    check_shapes(shapes, entries[-1])
    if isinstance(original, list | tuple | np.ndarray):  # JAX may take them for narrower ones
        check_lengths(shape, np.asarray(original))
    dtype = real_dtype(module, facts, settings)
    problem = Problem(VERB, library, module.device(facts.values(), settings), working_dtype(dtype), shape, -1, None)
    first, *parameters = (module.cast(x, working_dtype(dtype)) for x in given)
    broadcast = module.Operations.broadcast
    return Pairs(
        problem,
        dtype,
        module.traced([entry for entry in entries if entry is not None]),
        first,
        None if lengths is None else broadcast(lengths, (*shape[:-2], 2)),
        tuple(broadcast(x, shape[:-2]) for x in parameters),
        rules,
    )


def check_rules(ends: str, turns: str) -> Rules:
    """Which alignments count, by words that are known."""
    for name, given, known in (("ends", ends, ENDS), ("turns", turns, TURNS)):
        if not isinstance(given, str) or given not in known:
            raise ValueError(f"{name} is {given!r}; wanted one of {', '.join(map(repr, known))}")
    return Rules(ends, turns)


def check_shapes(shapes: Mapping[str, tuple[int, ...]], lengths: Entry | None) -> None:
    """Parameters and lengths have an entry for each pair, or broadcast to that."""
    scores = shapes["scores"]
    if len(scores) < 2:
        raise ValueError(f"scores has shape {scores}; wanted (..., L1, L2), a matrix for each pair of sequences")
    for name, shape in shapes.items():
        if name != "scores" and not fits(shape, scores[:-2]):
            raise ValueError(f"{name} has shape {shape}; wanted one value, or one for each pair: {scores[:-2]}")
    if lengths is not None:
        name, shape = dtype_name(lengths[0]), tuple(lengths[1])
        if not name.startswith(("int", "uint")):
            raise TypeError(f"lengths has dtype {name}; wanted integers")
        if shape[-1:] != (2,) or not fits(shape[:-1], scores[:-2]):
            raise ValueError(f"lengths has shape {shape}; wanted two for each pair: {(*scores[:-2], 2)}")


def fits(shape: tuple[int, ...], full: tuple[int, ...]) -> bool:
    """Whether a shape broadcasts to the full one."""
    pairs = zip(reversed(shape), reversed(full), strict=False)
    return len(shape) <= len(full) and all(length in (1, wanted) for length, wanted in pairs)


def check_values(shape: tuple[int, ...], lengths: Any, temperature: Any) -> None:
    """Refuse lengths and temperatures out of range, in NumPy arrays; NaN propagates."""
    if lengths is not None:
        check_lengths(shape, lengths)
    refuse_where(temperature <= 0, temperature, "temperature must be positive")
    most = HOTTEST[temperature.dtype.itemsize]
    refuse_where(temperature > most, temperature, f"temperature must not exceed {most:.1e}")


def check_lengths(shape: tuple[int, ...], lengths: Any) -> None:
    for axis, most in enumerate(shape[-2:]):
        wrong = (lengths[..., axis] < 0) | (lengths[..., axis] > most)
        message = f"lengths[..., {axis}] must lie between 0 and {most}, the length of axis {axis - 2} of scores"
        refuse_where(wrong, lengths[..., axis], message)


def refuse_where(wrong: Any, values: Any, message: str) -> None:
    if wrong.any():
        if not any(values.strides):  # one number was given
            wrong, values = wrong.any(), values[(0,) * values.ndim]
        first = np.argwhere(wrong)[:SHOWN]
        shown = ", ".join(f"{values[tuple(k)]} at {tuple(map(int, k))}" if values.ndim else f"{values}" for k in first)
        raise ValueError(f"{message}; found {shown} in {values.dtype}")


def run(pairs: Pairs, backend: Backend) -> Array:
    """The scores, in the library of the caller, with their derivatives."""
    if 0 in pairs.problem.shape:
        return connected_in(pairs.problem.library, pairs.scores.sum((-2, -1)) - math.inf, pairs.parameters)
    if pairs.problem.library == "cupy":
        return backend.module().smith_waterman(pairs.scores, pairs.lengths, pairs.parameters, 0, pairs.rules)[0]
    if pairs.problem.library == "numpy":
        check_values(pairs.problem.shape, pairs.lengths, pairs.parameters[-1])
        lengths = None if pairs.lengths is None else pairs.lengths.astype(np.int32)
        return backend.module().smith_waterman(pairs.scores, lengths, pairs.parameters, 0, pairs.rules)[0]
    return alignment_of(pairs.problem.library).run(pairs, backend)
