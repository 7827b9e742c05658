"""Smooth local alignment: prepare the arguments, choose a backend, run it, restore the caller's dtype."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from tridiag.arrays import Entry, agreed, dtype_name, module_of, working_dtype
from tridiag.backends import Backend, Problem
from tridiag.compiling import compiling, graph
from tridiag.kernels.jobs.alignment import HOTTEST
from tridiag.prepare import chosen, real_dtype

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


def smith_waterman(
    scores: Array,
    lengths: Array | None = None,
    *,
    gap: Array | float,
    gap_open: Array | float | None = None,
    temperature: Array | float = 1.0,
    backend: str = "auto",
) -> Array:
    r"""Score the smooth local alignments of many pairs of sequences at once.

    With temperature T and :math:`\mathrm{smax}(\ldots) = T \log \sum \exp(\ldots / T)`, the score is smax over all
    cells of

    .. math:: H_{ij} = \mathrm{smax}(H_{i-1,j-1} + s_{ij}, \; H_{i-1,j} + gap, \; H_{i,j-1} + gap, \; s_{ij})

    and tends to that of Smith and Waterman as T tends to 0. Its gradient with respect to the scores is the expected
    alignment: the probability of each match.

    Parameters
    ----------
    scores : array
        (..., L1, L2): what it is worth to align element i of the first sequence with element j of the second; -inf
        forbids it. Up to a quarter of the largest number; beyond, sums of them may be NaN. float32 or float64; float16
        and bfloat16 compute in float32; integers promote as in the library of the array (NumPy, JAX or PyTorch).
    lengths : array of int
        (..., 2): the lengths of the two sequences of each pair; scores beyond them are not read. None: all are full.
    gap : float or array
        What each further element of a gap adds, a negative number to penalise it; without ``gap_open`` every element.
        An array has an entry for each pair.
    gap_open : float or array
        What the first element of a gap adds: a gap of length L adds ``gap_open + (L - 1) gap``.
    temperature : float or array
        T, positive and at most 2**960 (float32: 2**96). None is too low: one below about (L1 + L2) 2**-50 of the
        largest score, or of a gap that is worth more (float32: 2**-28), where the score is the classic one but for
        rounding, may count as that.
    backend : str
        "auto", a name of `tridiag.backends`, or a library ("jax"). A named backend runs or raises.

    Returns
    -------
    array
        The scores of the alignments, of the shape of the batch axes; -inf for a pair with an empty sequence.

    Raises
    ------
    BackendError
        The backend named cannot run this problem, or no such backend exists.
    ValueError, TypeError
        Shapes, dtypes or libraries do not fit; a length or a temperature is out of range. Inside a trace, and on GPUs,
        lengths are clipped to their range, and such a temperature gives NaN.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> first, second = (np.frombuffer(word, np.uint8) for word in (b"GATTACA", b"GCATGCA"))
    >>> scores = np.where(first[:, None] == second, 1.0, -1.0)
    >>> round(float(tridiag.smith_waterman(scores, gap=-1.0, temperature=0.01)), 2)
    2.02

    Notes
    -----
    Smith and Waterman (1981), Gotoh (1982) for affine gaps; smoothed as by Petti et al. (2023). The score is -inf, and
    its gradient 0, where all scores are -inf; inf, and its gradient NaN, where one is inf; both are NaN where an
    argument is. All this stays within a pair.
    """
    options = {"gap": gap, "gap_open": gap_open, "temperature": temperature}
    if compiling(scores):
        return graph().outside(smith_waterman, scores, lengths, backend=backend, **options)
    pairs = prepare(scores, lengths, **options)
    entry = chosen(pairs.problem, backend, pairs.traced)
    return module_of(pairs.problem.library).cast(run(pairs, entry), pairs.result_dtype)


def prepare(scores: Any, lengths: Any = None, *, gap: Any, gap_open: Any = None, temperature: Any = 1.0) -> Pairs:
    """Check everything that can be checked without reading values."""
    arguments = {"scores": scores, "gap": gap, "gap_open": gap_open, "temperature": temperature}
    if gap_open is None:
        del arguments["gap_open"]
    for name, x in arguments.items():
        if x is None:
            raise TypeError(f"{name} is None; wanted numbers")
    names, kinds = tuple(arguments), [type(x) for x in arguments.values()]
    owners = dict(zip(names, kinds, strict=True))
    library = agreed(owners if isinstance(lengths, list | tuple) else {**owners, "lengths": type(lengths)})
    module = module_of(library)
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
    )


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
        told = f"lengths[..., {axis}] must lie between 0 and {most}, the length of axis {axis - 2} of scores"
        refuse_where(wrong, lengths[..., axis], told)


def refuse_where(wrong: Any, values: Any, told: str) -> None:
    if wrong.any():
        first = np.argwhere(wrong)[:SHOWN]
        shown = ", ".join(f"{values[tuple(k)]} at {tuple(map(int, k))}" if values.ndim else f"{values}" for k in first)
        raise ValueError(f"{told}; found {shown} in {values.dtype}")


def run(pairs: Pairs, backend: Backend) -> Array:
    """The scores, in the library of the caller, with their derivatives."""
    if 0 in pairs.problem.shape:
        return pairs.scores.sum((-2, -1)) - math.inf
    if pairs.problem.library == "numpy":
        check_values(pairs.problem.shape, pairs.lengths, pairs.parameters[-1])
        lengths = None if pairs.lengths is None else pairs.lengths.astype(np.int32)
        return backend.module().smith_waterman(pairs.scores, lengths, pairs.parameters)[0]
    rule: ModuleType = importlib.import_module(f"tridiag.autodiff.{pairs.problem.library}_alignment")
    return rule.run(pairs, backend)
