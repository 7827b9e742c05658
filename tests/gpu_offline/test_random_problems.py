"""Some thousand random problems for the CUDA C kernels on the CPU build, of every verb; a million is a command away."""

from __future__ import annotations

import itertools

import cpu_build
import numpy as np
import planted
import pytest
import random_problems
from drawn import conditions, series
from helpers import STANDIN

pytestmark = [
    pytest.mark.skipif(cpu_build.why_not() is not None, reason=str(cpu_build.why_not())),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # the oracles compute with what is infinite
]


@pytest.mark.parametrize("verb", random_problems.VERBS)
def test_none_is_wrong(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = random_problems.run(500, 0, verb)
    assert not found.wrong, capsys.readouterr().out


def test_a_call_is_made_again_from_its_seed() -> None:
    """The same problems, and the same errors to the last bit."""
    (seed, verb) = next(random_problems.calls(7, "solve"))
    first, again = (random_problems.ask(seed, verb, random_problems.CPU_BUILD) for _ in range(2))
    assert first.told == again.told
    np.testing.assert_array_equal(first.error, again.error)


def test_a_covariance_that_rounding_has_made_indefinite_is_in_bad_condition() -> None:
    """An eps of its variances makes it definite, and the derivatives 1e5 times smaller."""
    outcome = random_problems.ask(31418306, "kalman.gradient", random_problems.CPU_BUILD)
    assert outcome.error.max() <= 1


@pytest.mark.parametrize("seed", [52013816, 52005006, 47002473, 47022463, 47029810, 47051180])
def test_determinants_of_entries_that_are_wide_apart(seed: int) -> None:
    """Multipliers of elimination lose digits to underflow, and scales that bring entries together lose others."""
    outcome = random_problems.ask(seed, "slogdet", random_problems.CPU_BUILD)
    assert outcome.error.max() <= 1


@pytest.mark.parametrize("seed", [47002473, 47019266, 47037257])
def test_a_pivot_that_has_underflowed_makes_no_matrix_singular(seed: int) -> None:
    outcome = random_problems.ask(seed, "slogdet", random_problems.CPU_BUILD)
    assert np.isfinite(outcome.error).all()


@pytest.mark.parametrize("seed", [31000587, 31003293])
def test_without_pivots_a_quotient_of_a_row_may_leave_the_range(seed: int) -> None:
    """Of matrices that are dominant in columns, and c is 1e47 and 1e407 times b in a row."""
    outcome = random_problems.ask(seed, "solve", random_problems.CPU_BUILD)
    assert outcome.error.max() <= 1


def test_a_row_of_a_vague_state_that_separated_noise_turns() -> None:
    """Along that of the observation before it, after which variances are 1e-5 of what they were."""
    outcome = random_problems.ask(770369, "kalman.filter", random_problems.CPU_BUILD)
    assert outcome.error.max() <= 1


@pytest.mark.parametrize(
    ("verb", "dtype", "seed"),
    [
        ("filter", "float32", 15),
        ("filter", "float64", 0),
        ("smoother", "float32", 15),
        ("smoother", "float64", 0),
        ("log_likelihood", "float32", 13),
        ("log_likelihood", "float64", 1),
        ("gradient", "float32", 4),
        ("gradient", "float64", 0),
    ],
)
def test_rows_that_are_nearly_parallel_once_noise_is_separated(verb: str, dtype: str, seed: int) -> None:
    """What the second of them sees of a vague state has lost digits, as the rows that are given do not tell."""
    rng, call = np.random.default_rng(seed), series.Call(verb, dtype, 200, 1 + seed % 3, 2, 2, False)
    y, parameters = series.made(rng, call, np.full(call.count, "vague", object))
    noise, sight = parameters["R"], parameters["H"]
    noise[:, :, 0, 1] = noise[:, :, 1, 0] = np.sqrt(noise[:, :, 0, 0] * noise[:, :, 1, 1]) / 2
    along = noise[:, :, 1, 0] / noise[:, :, 0, 0] + rng.normal(size=(call.count, 1)).astype(dtype)
    sight[:, :, 1] = along[..., None] * sight[:, :, 0] + rng.uniform(-0.01, 0.01, (call.count, 1, 2)).astype(dtype)
    right = conditions.by_loops(call, (y, parameters), np.longdouble)
    error = conditions.distance(call, (y, parameters), series.run(rng, call, (y, parameters)), right)
    conditions.excuse(call, (y, parameters), right, error, np.flatnonzero(error > 1))
    assert error.max() <= 1


MISTAKES = {  # the verb that shows it, the source, what it is changed from and to
    "a certificate whatever the growth": ("solve", "chunks.cu", "certifies(grown, pivot, chunk.diagonal[j]) & ", ""),
    "products that vanish": (
        "linear_recurrence",
        "scans.cu",
        "before.times + after.times};\n    rescale(found.factor, found.times);",
        "before.times};",
    ),
    "a sum beyond the bounds": ("logcumsumexp", "scans.cu", "!is_far(y.largest)", "y.largest < far<T>()"),
    "a row that is left": ("solve_block", "blocks.cu", "rows[2 * M - 1] = T(0);", ""),
    "no exponent beside another": (
        "smith_waterman",
        "alignment.cu",
        "const bool first = x.e >= y.e;",
        "const bool first = true;",
    ),
    "a power of 2 that is left out": ("slogdet", "pivoted.cu", "exponent + (x - x == T(0) ? own : 0)", "exponent"),
    "another block between the corners": (
        "slogdet",
        "pivoted.cu",
        "all.above), inner.last)",
        "all.above), inner.before)",
    ),
    "digits that are lost": ("kalman.log_likelihood", "filter.cu", "else if (lost) {", "else if (false) {"),
}


@pytest.mark.skipif(not STANDIN, reason="mistakes are planted in the CPU build")
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_shows(name: str) -> None:
    verb, source, old, new = MISTAKES[name]
    planted.plant({source: planted.replacing(old, new)})
    try:
        outcomes = (random_problems.ask(*call, random_problems.CPU_BUILD) for call in random_problems.calls(0, verb))
        assert any((outcome.error > 1).any() for outcome in itertools.islice(outcomes, 40))
    finally:
        planted.uproot()
