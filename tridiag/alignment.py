"""Smooth local alignment: prepare the arguments, choose a backend, run it, restore the caller's dtype."""

from __future__ import annotations

from typing import Any

from numpy import ndarray

from tridiag.calls import fast_path
from tridiag.calls.pairs import prepare, run
from tridiag.calls.plan import chosen
from tridiag.calls.torch_compile import compiling, graph
from tridiag.libraries.arrays import module_of, place_of

Array = Any


def smith_waterman(
    scores: Array,
    lengths: Array | None = None,
    *,
    gap: Array | float,
    gap_open: Array | float | None = None,
    temperature: Array | float = 1.0,
    ends: str = "any",
    turns: str = "both",
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
        rounding, may count as that. The largest score, or gap, of a pair stays above 2**-900 (float32: 2**-80).
    ends : str
        What an alignment may end with: "any" step, a gap among them; a "match"; or a "later_match", one that is not its
        first, so that no alignment consists of one match alone. All begin with a match. With "later_match" a score
        below -2**47 temperatures (float32: -2**25) may count as -inf.
    turns : str
        Whether a gap may follow one in the other sequence at once, opened anew: "both" ways; "one" way, along the
        second sequence and then along the first; or "none", so that a match lies between. Other than "both" without
        ``gap_open``: as with ``gap_open=gap``.
    backend : str
        "auto", a name of `tridiag.backends`, or a library ("jax"). A named backend runs or raises.

    Returns
    -------
    array
        The scores of the alignments, of the shape of the batch axes; -inf for a pair that has none, as one with an
        empty sequence.

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
    Smith and Waterman (1981), Gotoh (1982) for affine gaps; smoothed after Petti et al. (2023), whose code counts fewer
    alignments: ``ends="later_match"``, and with affine gaps ``turns="one"``, are theirs. The score is -inf, and
    its gradient 0, where all scores are -inf; inf, and its gradient NaN, where one is inf; both are NaN where an
    argument is. All this stays within a pair.
    """
    if type(scores) is ndarray and ends == "any" and turns == "both":
        found = fast_path.smith_waterman(scores, lengths, gap, gap_open, temperature, backend)
        if found is not None:
            return found
    parameters: dict[str, Any] = {"gap": gap, "gap_open": gap_open, "temperature": temperature}
    options = {**parameters, "ends": ends, "turns": turns}
    if compiling(scores):
        return graph().outside(smith_waterman, scores, lengths, backend=backend, **options)
    with place_of((scores, lengths, *parameters.values())):
        pairs = prepare(scores, lengths, **options)
        entry = chosen(pairs.problem, backend, pairs.traced)
        return module_of(pairs.problem.library).cast(run(pairs, entry), pairs.result_dtype)
