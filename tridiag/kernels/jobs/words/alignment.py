"""The job of an alignment, for `tridiag.kernels.alignment.kernel`."""

from __future__ import annotations

from typing import NamedTuple

from tridiag.kernels.jobs.words.job import Job
from tridiag.kernels.jobs.words.record import Word, Words


class Alignment(Job):
    """Scores and their gradient are contiguous, a matrix a pair; other arrays hold a number for each, lengths two.

    A parameter may be one number for all. An output whose address is 0 is not wanted.
    """

    scores, lengths = Word(), Word()
    parameters = Words(3)  # gap, gap_open, temperature
    score, gradient = Word(), Word()
    by_parameters = Words(3)  # the gradients of these
    pairs, shape = Word(), Words(2)  # ``shape``: rows and columns
    block = Word()  # rows whose cells are kept for the backward pass at a time
    fresh = Word()  # not zero where the gradient is fresh memory
    # not zero once a group had scores too far apart for `tridiag.kernels.alignment.shared_exponents`, and where not
    # all alignments count
    cell_exponents = Word()
    apart = Words(3)  # bytes from the parameter of a pair to that of the next; 0: one for all


ENDS = "any", "match", "later_match"
TURNS = "both", "one", "none"


class Rules(NamedTuple):
    """Which alignments count, see `tridiag.smith_waterman`."""

    ends: str = ENDS[0]
    turns: str = TURNS[0]


USUAL = Rules()


class Kind(NamedTuple):
    """What kernels of alignments differ in."""

    affine: bool
    parameters: bool  # whether their gradients are wanted
    rules: Rules = USUAL

    @property
    def name(self) -> str:
        """As the table of kernels has it; of the rules those that leave something out."""
        words = ["affine" if self.affine else "linear", *["parameters"] * self.parameters]
        return "_".join((*words, *(rule for rule, usual in zip(self.rules, USUAL, strict=True) if rule != usual)))

    @classmethod
    def named(cls, name: str) -> Kind:
        ends, turns = (next((x for x in reversed(known) if x in name), known[0]) for known in (ENDS, TURNS))
        return cls("affine" in name, "parameters" in name, Rules(ends, turns))


# by the bytes of a real, the highest temperature: scores so many temperatures below 0 that they count as nothing are
# finite numbers still
HOTTEST = {4: 2.0**96, 8: 2.0**960}
