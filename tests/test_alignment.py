"""Smooth local alignment: every backend against the sum over all alignments, and its gradients against differences."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers import EPS, SUBJECTS, Subject, installed, to_library

import tridiag
from tridiag.kernels.jobs.alignment import WORTH_A_THREAD

ALIGNERS = [s for s in SUBJECTS if s.can("smith_waterman")]
GAPS = [(-0.7, None), (-0.7, -2.0), (-0.7, -0.3)]
TEMPERATURE = 0.8
DIFFERENTIATED = "jax", "torch"


@pytest.fixture(params=ALIGNERS, ids=str)
def subject(request: pytest.FixtureRequest) -> Subject:
    if reason := request.param.cannot_run_here():
        pytest.skip(reason)
    return request.param


# ------------------------------------------------------------------------------------------------- what is right


def alignments(rows: int, columns: int) -> Iterator[tuple[tuple[str, int, int], ...]]:
    """All local alignments as paths of steps: they begin with a match; M steps along both, X down, Y to the right."""

    def grow(path: tuple[tuple[str, int, int], ...]) -> Iterator[tuple[tuple[str, int, int], ...]]:
        yield path
        _, i, j = path[-1]
        for step, k, m in (("M", i + 1, j + 1), ("X", i + 1, j), ("Y", i, j + 1)):
            if k < rows and m < columns:
                yield from grow((*path, (step, k, m)))

    for i in range(rows):
        for j in range(columns):
            yield from grow((("M", i, j),))


TURNS = {"both": (), "one": ("XY",), "none": ("XY", "YX")}  # what they forbid: a gap of a kind after one of the other


def counts(path: tuple[tuple[str, int, int], ...], ends: str, turns: str) -> bool:
    steps = "".join(step for step, *_ in path)
    if ends != "any" and (steps[-1] != "M" or (ends == "later_match" and len(steps) == 1)):
        return False
    return not any(turn in steps for turn in TURNS[turns])


def enumerated(
    scores: np.ndarray,
    gap: float,
    gap_open: float | None,
    temperature: float,
    ends: str = "any",
    turns: str = "both",
) -> tuple[float, np.ndarray]:
    """The score and the expected alignment by the definition: the sum over all alignments that count."""
    total, matches = 0.0, np.zeros(scores.shape)
    gap_open = gap if gap_open is None else gap_open
    for path in alignments(*scores.shape):
        if not counts(path, ends, turns):
            continue
        worth = 0.0
        for (step, i, j), before in zip(path, ("", *(x[0] for x in path)), strict=False):
            worth += scores[i, j] if step == "M" else gap if step == before else gap_open
        weight = np.exp(worth / temperature)
        total += weight
        for step, i, j in path:
            matches[i, j] += weight * (step == "M")
    return temperature * np.log(total), matches / total


def recursion(scores: np.ndarray, gap: float, gap_open: float | None, temperature: float) -> float:
    """The score by Gotoh's recursion, cell by cell in extended precision."""
    rows, columns = scores.shape
    s = scores.astype(np.longdouble) / temperature
    g = np.longdouble(gap) / temperature
    o = g if gap_open is None else np.longdouble(gap_open) / temperature
    m, x, y = (np.full((rows + 1, columns + 1), -np.inf, np.longdouble) for _ in range(3))
    add = np.logaddexp
    for i in range(1, rows + 1):
        for j in range(1, columns + 1):
            before = add(add(m[i - 1, j - 1], x[i - 1, j - 1]), y[i - 1, j - 1])
            m[i, j] = s[i - 1, j - 1] + add(0, before)
            x[i, j] = add(add(m[i - 1, j], y[i - 1, j]) + o, x[i - 1, j] + g)
            y[i, j] = add(add(m[i, j - 1], x[i, j - 1]) + o, y[i, j - 1] + g)
    return float(temperature * add.reduce(np.concatenate([m, x, y], axis=None)))


def classic(scores: np.ndarray, gap: float, gap_open: float) -> float:
    """The score of Smith and Waterman, with Gotoh's gaps."""
    rows, columns = scores.shape
    m, x, y = (np.full((rows + 1, columns + 1), -np.inf) for _ in range(3))
    for i in range(1, rows + 1):
        for j in range(1, columns + 1):
            m[i, j] = scores[i - 1, j - 1] + max(0, m[i - 1, j - 1], x[i - 1, j - 1], y[i - 1, j - 1])
            x[i, j] = max(m[i - 1, j] + gap_open, y[i - 1, j] + gap_open, x[i - 1, j] + gap)
            y[i, j] = max(m[i, j - 1] + gap_open, x[i, j - 1] + gap_open, y[i, j - 1] + gap)
    return m.max()


def differences(function: Callable[[np.ndarray], float], x: Any, step: float = 1e-5) -> np.ndarray:
    x, found = np.asarray(x, float), np.zeros(np.shape(x))
    for k in np.ndindex(x.shape):
        move = np.zeros(x.shape)
        move[k] = step
        found[k] = (function(x + move) - function(x - move)) / (2 * step)
    return found


def normal(*shape: int, seed: int = 0, dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


def align(subject: Subject, scores: Any, lengths: Any = None, **options: Any) -> np.ndarray:
    options = {name: x if isinstance(x, str) else subject.array(x) for name, x in options.items()}
    given = subject.array(scores), subject.array(lengths)
    return subject.numpy(tridiag.smith_waterman(*given, backend=subject.name, **options))


def gradients(
    subject: Subject, scores: Any, lengths: Any = None, rules: Any = None, /, **options: Any
) -> tuple[np.ndarray, ...]:
    """The gradients of the sum of all scores, by the scores and then by every option that is given."""
    values = [scores, *options.values()]

    def total(x: Any, *parameters: Any) -> Any:
        given = dict(zip(options, parameters, strict=True)) | (rules or {})
        return tridiag.smith_waterman(x, subject.array(lengths), backend=subject.name, **given).sum()

    if subject.library == "jax":
        import jax

        found = jax.grad(total, tuple(range(len(values))))(*(subject.array(np.asarray(x)) for x in values))
    else:
        given = [subject.array(np.asarray(x)).requires_grad_() for x in values]
        total(*given).backward()
        found = [x.grad for x in given]
    return tuple(subject.numpy(x) for x in found)


def named(gap: Any, gap_open: Any, temperature: Any = TEMPERATURE) -> dict[str, Any]:
    given = {"gap": gap, "gap_open": gap_open, "temperature": temperature}
    return {name: x for name, x in given.items() if x is not None}


# ------------------------------------------------------------------------------------------------- scores


@pytest.mark.parametrize(("gap", "gap_open"), GAPS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 1), (2, 4), (5, 5)])
def test_the_sum_over_all_alignments(subject: Subject, shape: tuple[int, int], gap: float, gap_open: Any) -> None:
    scores = normal(2, *shape)
    wanted = [enumerated(x, gap, gap_open, TEMPERATURE) for x in scores]
    found = align(subject, scores, **named(gap, gap_open))
    np.testing.assert_allclose(found, [score for score, _ in wanted], rtol=1e-12, atol=1e-12)
    if subject.library in DIFFERENTIATED:
        by_scores, *_ = gradients(subject, scores, **named(gap, gap_open))
        np.testing.assert_allclose(by_scores, [matches for _, matches in wanted], atol=1e-12)


# what counts, and whether gaps are affine; the first is that of those who port
SOME = [("later_match", "one", True), ("match", "both", False)]
OTHERS = [("match", "none", True), ("any", "one", True), ("later_match", "both", False), ("match", "one", False)]


@pytest.mark.parametrize(
    ("ends", "turns", "is_affine"), SOME + [pytest.param(*rules, marks=pytest.mark.slow) for rules in OTHERS]
)
def test_alignments_that_do_not_count(subject: Subject, ends: str, turns: str, is_affine: bool) -> None:
    """Scores and all gradients are those of the sum over the others; without any the score is -inf, its gradient 0."""
    scores, lengths = normal(5, 4, 4), np.array([[4, 4], [3, 4], [4, 2], [1, 4], [3, 1]])
    options, rules = named(-0.7, -1.1 if is_affine else None), {"ends": ends, "turns": turns}
    scores[2, 0, 0] = 5.0

    def total(k: int, x: np.ndarray | None = None, **given: float) -> tuple[float, np.ndarray]:
        given = {"gap_open": None, **options, **given}
        inside = (scores[k] if x is None else x)[: lengths[k, 0], : lengths[k, 1]]
        if turns != "both" and given["gap_open"] is None:
            given["gap_open"] = given["gap"]
        return enumerated(inside, **given, **rules)

    some = [k for k in range(5) if ends != "later_match" or lengths[k].min() > 1]
    wanted = [total(k)[0] if k in some else -np.inf for k in range(5)]
    found = align(subject, scores, lengths, **options, **rules)
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
    if subject.library not in DIFFERENTIATED:
        return
    given = {name: np.full(5, x) for name, x in options.items()}
    by_scores, *others = gradients(subject, scores, lengths, rules, **given)
    for k in range(5):
        matches, (rows, columns) = np.zeros((4, 4)), lengths[k]
        if k in some:
            matches[:rows, :columns] = total(k)[1]
        np.testing.assert_allclose(by_scores[k], matches, atol=1e-12)
        for name, by in zip(options, others, strict=True):
            slope = (
                differences(lambda x, k=k, name=name: total(k, **{name: float(x)})[0], options[name])
                if k in some
                else 0
            )
            np.testing.assert_allclose(by[k], slope, rtol=1e-6, atol=1e-8, err_msg=name)


def ported(x: np.ndarray, gap: float, gap_open: float, temperature: float) -> float:
    """The score as Petti et al.'s code finds it, sw_affine with restricted and penalised turns; their names."""
    rows, columns = x.shape
    hij = np.full((rows + 1, columns + 1, 3), -np.inf)  # the last row and column: no cells before the first

    def soft_maximum(values: Any) -> float:
        return temperature * np.logaddexp.reduce(np.asarray(values) / temperature)

    for i in range(rows - 1):
        for j in range(columns - 1):
            aligned = [*(hij[i - 1, j - 1] + x[i, j]), x[i, j]]
            right = hij[i, j - 1, :2] + [gap_open, gap]
            down = hij[i - 1, j] + [gap_open, gap_open, gap]
            hij[i, j] = soft_maximum(aligned), soft_maximum(right), soft_maximum(down)
    return soft_maximum([hij[i, j, k] + x[i + 1, j + 1] for i, j, k in np.ndindex(rows - 1, columns - 1, 3)])


@pytest.mark.parametrize("dtype", [pytest.param("float32", marks=pytest.mark.slow), "float64"])
def test_those_who_port_get_their_numbers(subject: Subject, dtype: str) -> None:
    """Every alignment of theirs begins with a match, ends with another, and turns from right to down alone."""
    scores = normal(20, 9, 12, dtype=dtype)
    found = align(subject, scores, gap=-0.4, gap_open=-1.3, temperature=TEMPERATURE, ends="later_match", turns="one")
    np.testing.assert_allclose(found, [ported(x, -0.4, -1.3, TEMPERATURE) for x in scores], rtol=40 * EPS[dtype])


def test_forbidden_matches_are_no_ends(subject: Subject) -> None:
    """A pair whose only second matches are forbidden has no alignment; a low score is no such."""
    scores = np.full((3, 3, 3), -np.inf)
    scores[:, 0, 0], scores[1, 1, 2], scores[2, 2, 2] = 2.0, -3.0, -1e9
    rules = {"ends": "later_match", "turns": "one"}
    found = align(subject, scores, gap=-1.0, gap_open=-1.0, **rules)
    np.testing.assert_allclose(found, [-np.inf, 2 - 1 - 3, 2 - 1 - 1 - 1e9], rtol=1e-12)
    if subject.library in DIFFERENTIATED:
        by_scores, *_ = gradients(subject, scores, None, rules, gap=np.full(3, -1.0), gap_open=np.full(3, -1.0))
        matches = np.zeros((3, 3, 3))
        matches[1:, 0, 0] = matches[1, 1, 2] = matches[2, 2, 2] = 1
        np.testing.assert_allclose(by_scores, matches, atol=1e-12)


@pytest.mark.parametrize(("gap", "gap_open"), GAPS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_recursion(subject: Subject, dtype: str, gap: float, gap_open: Any) -> None:
    """More pairs than lanes, and not a multiple; the batch of two axes; a temperature for each pair."""
    scores, temperature = normal(3, 7, 12, 9, dtype=dtype), np.linspace(0.2, 3, 21).reshape(3, 7).astype(dtype)
    found = align(subject, scores, gap=gap, gap_open=gap_open, temperature=temperature)
    assert found.shape == (3, 7) and found.dtype == dtype
    wanted = [recursion(scores[k], gap, gap_open, temperature[k]) for k in np.ndindex(3, 7)]
    np.testing.assert_allclose(found.ravel(), wanted, rtol=40 * EPS[dtype])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_affine_gaps_that_cost_as_much_as_linear_ones(subject: Subject, dtype: str) -> None:
    scores = normal(5, 20, 30, dtype=dtype)
    linear, affine = (align(subject, scores, gap=-0.5, gap_open=x) for x in (None, -0.5))
    np.testing.assert_allclose(affine, linear, rtol=4 * EPS[dtype])


@pytest.mark.parametrize("gap_open", [None, -2.0])
def test_lengths(subject: Subject, gap_open: Any) -> None:
    """Scores beyond them are not read; a pair with an empty sequence has no alignment."""
    rng = np.random.default_rng(1)
    scores, lengths = normal(20, 6, 7), np.stack([rng.integers(0, 7, 20), rng.integers(0, 8, 20)], axis=1)
    lengths[:3] = (6, 7), (0, 7), (6, 0)
    wanted, padded = [], scores.copy()
    for k, (rows, columns) in enumerate(lengths):
        padded[k, rows:], padded[k, :, columns:] = np.nan, np.inf
        wanted.append(recursion(scores[k, :rows, :columns], -0.7, gap_open, 1.0) if rows * columns else -np.inf)
    np.testing.assert_allclose(align(subject, padded, lengths, gap=-0.7, gap_open=gap_open), wanted, rtol=1e-13)
    if subject.library in DIFFERENTIATED:
        for found in gradients(subject, padded, lengths, **named(-0.7, gap_open, 1.0)):
            assert np.isfinite(found).all()
        by_scores = gradients(subject, padded, lengths, gap=-0.7)[0]
        assert all(not x[r:].any() and not x[:, c:].any() for x, (r, c) in zip(by_scores, lengths, strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("gap_open", [-1.0, -5.0])
def test_low_temperatures_are_the_classic_score(subject: Subject, dtype: str, gap_open: float) -> None:
    scores = np.round(3 * normal(3, 40, 50, seed=2)).astype(dtype)
    wanted = [classic(x, -1.0, gap_open) for x in scores]
    found = align(subject, scores, gap=-1.0, gap_open=gap_open, temperature=1e-4)
    np.testing.assert_allclose(found, wanted, atol=0.01)


def test_long_sequences_leave_no_range(subject: Subject) -> None:
    """A score of thousands of temperatures, in single precision."""
    scores = np.full((1, 400, 400), -3.0, np.float32)
    scores[0, np.arange(400), np.arange(400)] = 20.0
    np.testing.assert_allclose(align(subject, scores, gap=-5.0), 8000, rtol=1e-5)


@pytest.mark.parametrize("gap_open", [None, -2.0])
def test_infinities_and_nan(subject: Subject, gap_open: Any) -> None:
    scores = normal(4, 5, 6)
    scores[0], scores[1, 2, 3], scores[2, 1, 1] = -np.inf, -np.inf, np.nan
    found = align(subject, scores, gap=-1.0, gap_open=gap_open)
    assert found[0] == -np.inf and np.isnan(found[2]) and np.isfinite(found[[1, 3]]).all()
    np.testing.assert_allclose(found[1], recursion(scores[1], -1.0, gap_open, 1.0), rtol=1e-13)
    if subject.library in DIFFERENTIATED:
        by_scores, *rest = gradients(subject, scores, **named(-1.0, gap_open, 1.0))
        assert not by_scores[0].any() and by_scores[1, 2, 3] == 0 and np.isfinite(by_scores[[1, 3]]).all()
        without_nan = scores[[0, 1, 0, 1]]  # as many pairs: nothing is compiled for it
        _, *rest = gradients(subject, without_nan, **named(-1.0, gap_open, 1.0))
        assert all(np.isfinite(x) for x in rest)


@pytest.mark.parametrize("gap_open", [None, -2.0])
def test_a_score_without_bound(subject: Subject, gap_open: Any) -> None:
    """inf is the score of that pair, and of no other, where it counts; NaN beside it is more."""
    scores = normal(5, 5, 6)
    scores[1, 4, 5], scores[2, 2, 2], scores[2, 0, 0], scores[3, 4, 5] = np.inf, np.inf, np.nan, np.inf
    lengths = np.array([[5, 6]] * 3 + [[4, 6], [5, 6]])
    found = align(subject, scores, lengths, gap=-1.0, gap_open=gap_open)
    assert found[1] == np.inf and np.isnan(found[2])
    rest = [recursion(scores[k][: lengths[k, 0]], -1.0, gap_open, 1.0) for k in (0, 3, 4)]
    np.testing.assert_allclose(found[[0, 3, 4]], rest, rtol=1e-13)
    if subject.library in DIFFERENTIATED:
        for by in gradients(subject, scores, lengths, **named(np.full(5, -1.0), gap_open, np.ones(5)))[:2]:
            assert np.isnan(by[1]).all() and np.isfinite(by[[0, 3, 4]]).all()


def test_gaps_that_are_forbidden(subject: Subject) -> None:
    """The best diagonal is left."""
    scores = normal(3, 5, 6)
    found = align(subject, scores, gap=-np.inf, temperature=1e-3)
    diagonals = [[np.diag(x, k) for k in range(-4, 6)] for x in scores]
    best = [
        max(d[i:j].sum() for d in rows for i in range(len(d)) for j in range(i + 1, len(d) + 1)) for rows in diagonals
    ]
    np.testing.assert_allclose(found, best, atol=1e-2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int32"])
def test_other_dtypes(subject: Subject, dtype: str) -> None:
    if dtype == "bfloat16" and subject.library not in DIFFERENTIATED:
        pytest.skip("NumPy and CuPy have no bfloat16")
    scores = subject.array(np.round(2 * normal(3, 6, 7)), dtype)
    found = tridiag.smith_waterman(scores, gap=-1.0, backend=subject.name)
    full = "float32" if subject.library == "torch" else "float64"
    assert str(found.dtype).removeprefix("torch.") == (full if dtype == "int32" else dtype)
    wanted = [recursion(x, -1.0, None, 1.0) for x in np.round(2 * normal(3, 6, 7))]
    np.testing.assert_allclose(subject.numpy(found), wanted, rtol=1e-6 if dtype == "int32" else 1e-2)


@pytest.mark.parametrize("shape", [(0, 4, 5), (3, 0, 5), (3, 4, 0)])
def test_no_pairs_and_no_cells(subject: Subject, shape: tuple[int, ...]) -> None:
    found = align(subject, np.ones(shape), gap=-1.0)
    assert found.shape == shape[:1] and (found == -np.inf).all()


def test_one_pair_has_no_batch_axis(subject: Subject) -> None:
    scores = normal(4, 5)
    found = align(subject, scores, np.array([3, 5]), gap=-1.0)
    np.testing.assert_allclose(found, recursion(scores[:3], -1.0, None, 1.0), rtol=1e-13)


def test_arrays_that_are_not_contiguous(subject: Subject) -> None:
    scores = normal(9, 8, 7)
    turned = subject.array(scores).swapaxes(0, 2)
    given = subject.numpy(turned)
    found = subject.numpy(tridiag.smith_waterman(turned, gap=-1.0, backend=subject.name))
    np.testing.assert_allclose(found, [recursion(x, -1.0, None, 1.0) for x in given], rtol=1e-13)


# ------------------------------------------------------------------------------------- temperatures without end

COLD = {  # by dtype: from where rounding begins to hide the temperature to the least number
    "float32": (1e-6, 1e-12, 1e-30, 1.2e-38, 1e-44),
    "float64": (1e-14, 1e-15, 1e-16, 1e-20, 1e-100, 1e-300, 2.3e-308, 5e-324),
}
EXACT = {"float32": 1e-6, "float64": 1e-13}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("gap_open", [None, -5.0])
def test_no_temperature_is_too_low(subject: Subject, dtype: str, gap_open: Any) -> None:
    """The score is that of Smith and Waterman, at all temperatures at once; its gradient that of low temperatures."""
    scores = np.round(3 * normal(40, 50, seed=2)).astype(dtype)
    cold = np.array(COLD[dtype], dtype)
    wanted = classic(scores, -1.0, -1.0 if gap_open is None else gap_open)
    many = np.broadcast_to(scores, (len(cold), 40, 50)).copy()
    found = align(subject, many, gap=-1.0, gap_open=gap_open, temperature=cold)
    np.testing.assert_allclose(found, wanted, rtol=EXACT[dtype])
    if subject.library in DIFFERENTIATED:
        given = {"gap": np.full(len(cold), -1.0, dtype)}
        if gap_open is not None:
            given["gap_open"] = np.full(len(cold), gap_open, dtype)
        found = gradients(subject, many, **given, temperature=cold)
        right = gradients(subject, many, **given, temperature=np.full(len(cold), 1e-2, dtype))
        for by, limit in zip(found[:-1], right[:-1], strict=True):
            np.testing.assert_allclose(by, limit, atol=2e-4)
        assert np.isfinite(found[-1]).all()  # the logarithm of the number of the best; a difference of scores


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("gap_open", [None, -2.0])
def test_what_is_forbidden_stays_so_at_low_temperatures(subject: Subject, dtype: str, gap_open: Any) -> None:
    """A path through -inf, or a very low score, is worth nothing, however much lies on both sides; all may be low."""
    scores = np.full((4, 8, 8), -1.0, dtype)
    for k, block in enumerate((-np.inf, -1e6, -5.0)):
        scores[k, np.arange(8), np.arange(8)] = 2.0
        scores[k, 3:5] = block
    scores[3] = -3.0
    options = {"gap": -1e4, "gap_open": None if gap_open is None else -1e4}
    for temperature in (1e-3, 1e-6, 1e-7, 1e-14, 1e-30):
        found = align(subject, scores, **options, temperature=temperature)
        np.testing.assert_allclose(found, [6.0, 6.0, 6.0, -3.0], atol=0.02 if temperature == 1e-3 else 2e-4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_smallest_scores_at_the_smallest_temperatures(subject: Subject, dtype: str) -> None:
    """Down to the documented end of the range; XLA takes subnormal numbers for zero."""
    scores, unit = normal(3, 5, 6, dtype=dtype), 2.0 ** (-80 if dtype == "float32" else -900)
    right = align(subject, scores, gap=-0.5, temperature=1e-30)
    info = np.finfo(dtype)
    for temperature in (info.smallest_subnormal, info.tiny, 4 * info.tiny)[subject.library == "jax" :]:
        found = align(subject, scores * np.asarray(unit, dtype), gap=-0.5 * unit, temperature=temperature)
        np.testing.assert_allclose(found / unit, right, rtol=40 * EPS[dtype])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_temperatures_of_any_size_with_scores_of_any_size(subject: Subject, dtype: str) -> None:
    """The score is homogeneous: scores, gaps and the temperature times a power of two are the score times that."""
    scores, tiny, huge = normal(2, 9, 11, dtype=dtype), *((-30, 60) if dtype == "float32" else (-300, 800))
    scores[1, 3] = -np.inf
    for temperature in (1e-3, 1.0, 50.0):
        right = align(subject, scores, gap=-1.0, gap_open=-2.0, temperature=temperature)
        for power in (tiny, huge):
            unit = float(2.0**power)
            given = {"gap": -unit, "gap_open": -2 * unit, "temperature": temperature * unit}
            found = align(subject, scores * np.asarray(unit, dtype), **given)
            np.testing.assert_allclose(found / unit, right, rtol=40 * EPS[dtype])


def test_ties_share_the_gradient(subject: Subject) -> None:
    """By the number of best alignments through each cell."""
    if subject.library not in DIFFERENTIATED:
        pytest.skip("NumPy and CuPy have no gradients")
    scores = np.zeros((3, 3, 3))
    scores[0, 0, 0] = scores[0, 2, 2] = 1.0  # in different places
    scores[1, 0, 0] = 1.0
    scores[2] = np.eye(3)
    for temperature in (1e-2, 1e-14, 1e-200):
        (found,) = gradients(subject, scores, gap=-5.0, temperature=temperature)[:1]
        right = gradients(subject, scores, gap=-5.0, temperature=5e-2)[0]
        np.testing.assert_allclose(found, right, atol=1e-6)


# ------------------------------------------------------------------------------------------------- gradients


@pytest.mark.parametrize(("gap", "gap_open"), GAPS)
def test_gradients_are_differences(subject: Subject, gap: float, gap_open: Any) -> None:
    if subject.library not in DIFFERENTIATED:
        pytest.skip("NumPy and CuPy have no gradients")
    scores, options = normal(3, 4, 5), named(gap, gap_open)
    by_scores, *others = gradients(subject, scores, **options)

    def total(x: Any, **more: Any) -> float:
        given = {"gap_open": None, **options, **more}
        return sum(recursion(y, given["gap"], given["gap_open"], given["temperature"]) for y in x)

    np.testing.assert_allclose(by_scores, differences(total, scores), atol=1e-8)
    for name, found in zip(options, others, strict=True):
        wanted = differences(lambda x, name=name: total(scores, **{name: float(x)}), options[name])
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-8, err_msg=name)


@pytest.mark.parametrize("gap_open", [None, -2.0])
def test_the_gradient_alone_is_that_beside_others(subject: Subject, gap_open: Any) -> None:
    """Which kernel runs depends on what is asked for."""
    if subject.library not in DIFFERENTIATED:
        pytest.skip("NumPy and CuPy have no gradients")
    scores = normal(18, 9, 11)
    both = gradients(subject, scores, **named(-1.0, gap_open, 1.0))[0]
    if subject.library == "jax":
        import jax

        options = {"gap": -1.0, "gap_open": gap_open, "backend": subject.name}
        alone = jax.jit(jax.grad(lambda x: tridiag.smith_waterman(x, **options).sum()))(scores)
    else:
        x = subject.array(scores).requires_grad_()
        tridiag.smith_waterman(x, gap=-1.0, gap_open=gap_open, backend=subject.name).sum().backward()
        alone = subject.numpy(x.grad)
    np.testing.assert_allclose(alone, both, atol=1e-14)


@pytest.mark.parametrize(
    ("gap_open", "rules"),
    [(None, {}), (-2.0, {}), (None, {"ends": "match"}), (-2.0, {"ends": "later_match", "turns": "one"})],
)
def test_blocks_are_computed_again(gap_open: Any, rules: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The cells of long sequences do not all fit: those of some rows at a time are kept."""
    pytest.importorskip("torch")
    from tridiag.kernels.jobs import alignment
    from tridiag.kernels.table import call_of

    subject = next(s for s in ALIGNERS if str(s) == "numba_wavefront-torch")
    scores = normal(3, 23, 10)
    lengths = np.array([[23, 10], [17, 9], [2, 10]])
    whole = gradients(subject, scores, lengths, rules, **named(-1.0, gap_open, 1.0))
    call_of.cache_clear()
    monkeypatch.setattr(alignment, "KEPT", 0)
    blocks = gradients(subject, scores, lengths, rules, **named(-1.0, gap_open, 1.0))
    call_of.cache_clear()
    for found, wanted in zip(blocks, whole, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-14)


# in temperatures: what matches and gaps are worth, the first element of a gap last; the first few share exponents
MODERATE = [(1.0, -1.0, -2.0), (1.5, -0.05, -20.0), (4.0, -3.0, -0.5)]
EXTREME = [(5.0, -12.0, -4.0), (30.0, -1.0, -5.0), (300.0, -80.0, -200.0), (1.0, -40.0, -0.1), (1.0, 0.5, 1.0)]


@pytest.mark.parametrize("parameters", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_exponents_of_runs_and_of_cells(parameters: int) -> None:
    """Both kinds of arithmetic, where numbers leave no trace of the other kind's range, against logarithms."""
    pytest.importorskip("jax")
    import jax
    import jax.numpy as jnp

    from tridiag.backends import jax_wavefront, numba_wavefront

    right = jax.jit(lambda *x: jax_wavefront.smith_waterman(x[0], x[1], x[2:], 2))
    rng, shape = np.random.default_rng(0), (18, 30, 33)
    lengths = np.stack([rng.integers(1, 31, 18), rng.integers(1, 34, 18)], axis=1).astype("int32")
    lengths[::3] = 30, 33
    diagonal = np.abs(np.arange(30)[:, None] - np.arange(33) + 6 * (np.arange(30)[:, None] > 15)) == 0
    for size, *gaps in MODERATE + EXTREME:
        scores = size * rng.normal(size=shape)
        scores[:6] = np.where(diagonal, 2 * size, -10 * size)  # one path, with a gap
        scores[6:9][rng.random((3, 30, 33)) < 0.5] = -np.inf
        for dtype in ("float32", "float64"):
            given = [x.astype(dtype) for x in (scores, *(np.full(18, x) for x in (*gaps[: parameters - 1], 1.0)))]
            values, weights = given[0], tuple(given[1:])
            score, *wanted = right(jnp.asarray(values, float), lengths, *(jnp.asarray(x, float) for x in weights))
            found = numba_wavefront.smith_waterman(values, lengths, weights, 2)
            alone = numba_wavefront.smith_waterman(values, lengths, weights, 1)
            wanted, found = [score, *wanted, score, wanted[0]], [*found, *alone]
            limit = 50 * np.finfo(dtype).eps * (1 if dtype == "float32" else 100)  # logarithms lose some digits
            for k, (x, y) in enumerate(zip(found, wanted, strict=True)):
                of_temperature = k == parameters + 1  # a difference of scores
                atol = limit * float(abs(score).max()) if of_temperature else limit
                np.testing.assert_allclose(x, y, rtol=limit, atol=atol, err_msg=f"{size, *gaps} {dtype} {k}")


def test_threads_share_the_pairs() -> None:
    """The result of a batch is that of its pairs, whoever computes them."""
    scores = normal(40, 40, 40)
    assert scores.size > WORTH_A_THREAD
    together = tridiag.smith_waterman(scores, gap=-1.0, backend="numba")
    apart = [tridiag.smith_waterman(x, gap=-1.0, backend="numba") for x in scores]
    np.testing.assert_array_equal(together, apart)


JAX = [s for s in ALIGNERS if s.library == "jax"]


@pytest.mark.parametrize("subject", JAX, ids=str, indirect=True)
@pytest.mark.parametrize("gap_open", [pytest.param(None, marks=pytest.mark.slow), -2.0])
def test_forward_mode_second_order_and_vmap(subject: Subject, gap_open: Any) -> None:
    import jax
    import jax.numpy as jnp

    scores, direction = normal(3, 4, 5), normal(3, 4, 5, seed=1)
    scores[1] = 0.0  # ties

    def total(x: Any, gap: Any = -1.0) -> Any:
        return tridiag.smith_waterman(x, gap=gap, gap_open=gap_open, backend=subject.name).sum()

    gradient = jax.grad(total)(scores)
    np.testing.assert_allclose(jax.jvp(total, (scores,), (direction,))[1], (gradient * direction).sum(), rtol=1e-12)
    step = 1e-5
    wanted = (jax.grad(total)(scores + step * direction) - jax.grad(total)(scores - step * direction)) / (2 * step)
    np.testing.assert_allclose(jax.jvp(jax.grad(total), (scores,), (direction,))[1], wanted, atol=1e-8)
    np.testing.assert_allclose(jax.grad(lambda x: (jax.grad(total)(x) * direction).sum())(scores), wanted, atol=1e-8)
    gaps = jnp.array([-1.0, -0.5])
    apart = jnp.stack([jax.grad(total)(scores, gap) for gap in gaps])
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(total), (None, 0)))(scores, gaps), apart, atol=1e-13)
    pairs = jax.vmap(lambda x: tridiag.smith_waterman(x, gap=-1.0, gap_open=gap_open, backend=subject.name))(scores)
    np.testing.assert_allclose(pairs, align(subject, scores, gap=-1.0, gap_open=gap_open), rtol=1e-14)


@pytest.mark.parametrize("subject", JAX, ids=str, indirect=True)
@pytest.mark.parametrize("dtype", ["int64", pytest.param("uint64", marks=pytest.mark.slow), "int8"])
def test_inside_a_trace_nothing_raises(subject: Subject, dtype: str) -> None:
    """Lengths are clipped, in their own dtype; a temperature out of range makes that pair NaN."""
    import jax

    scores, info = normal(7, 4, 5), np.iinfo(dtype)
    least, wrapping = max(int(info.min), 3 - 2**32), min(int(info.max), 2**32 + 2)
    pairs = [[9, 9], [0, 5], [4, 5], [wrapping, 5], [least, 5], [4, 5], [int(info.max), 5]]
    lengths = np.array(pairs, dtype)
    temperature = np.array([1.0, 1.0, -1.0, 1.0, 1.0, np.inf, 1.0])
    call = jax.jit(lambda *x: tridiag.smith_waterman(*x[:2], gap=-1.0, temperature=x[2], backend=subject.name))
    found = call(scores, lengths, temperature)
    for k in (0, 3, 6):
        np.testing.assert_allclose(found[k], recursion(scores[k], -1.0, None, 1.0), rtol=1e-13)
    assert (found[np.array([1, 4])] == -np.inf).all() and np.isnan(found[np.array([2, 5])]).all()


def test_torch_says_that_it_is_differentiated_once() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones((2, 3, 4), dtype=torch.float64, requires_grad=True)
    for power in (1, 2):
        score = (tridiag.smith_waterman(x, gap=-1.0) ** power).sum()
        (gradient,) = torch.autograd.grad(score, x, create_graph=True)
        with pytest.raises(RuntimeError, match="differentiable once in PyTorch"):
            (gradient.sum() + x.sum()).backward()


def test_torch_vmap() -> None:
    torch = pytest.importorskip("torch")
    scores = torch.tensor(normal(4, 3, 5, 6))
    call = torch.vmap(lambda x: tridiag.smith_waterman(x, gap=-1.0))
    assert torch.equal(call(scores), tridiag.smith_waterman(scores, gap=-1.0))


# ------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("library", sorted({s.library for s in ALIGNERS}))
@pytest.mark.parametrize(
    ("error", "message", "given"),
    [
        (ValueError, r"scores has shape \(4,\); wanted \(\.\.\., L1, L2\)", {"scores": np.ones(4)}),
        (ValueError, r"gap has shape \(4,\); wanted one value, or one for each pair: \(3,\)", {"gap": np.ones(4)}),
        (ValueError, r"temperature has shape \(3, 1\)", {"temperature": np.ones((3, 1))}),
        (ValueError, r"lengths has shape \(3, 1\); wanted two for each pair", {"lengths": np.ones((3, 1), int)}),
        (TypeError, "lengths has dtype float64; wanted integers", {"lengths": np.ones((3, 2))}),
        (ValueError, r"lengths.*0\] must lie between 0 and 4.*5 at \(1,\)", {"lengths": [[1, 2], [5, 1], [4, 5]]}),
        (ValueError, r"lengths.*1\] must lie between 0 and 5.*-1 at \(2,\)", {"lengths": [[1, 2], [4, 1], [4, -1]]}),
        (ValueError, "temperature must be positive; found 0.0 .*in float64", {"temperature": 0.0}),
        (ValueError, r"temperature must .*; found -2.0 at \(1,\)", {"temperature": np.array([1.0, -2.0, 1.0])}),
        (ValueError, r"temperature must not exceed 9.7e\+288; found inf", {"temperature": np.inf}),
        (ValueError, r"temperature must not exceed .*; found 1e\+308", {"temperature": 1e308}),
        (ValueError, "positive; found 0.0 .*in float32", {"scores": np.ones((3, 4, 5), "f4"), "temperature": 1e-60}),
        (ValueError, "found 4294967298 at .* in int64", {"lengths": np.array([[4, 5], [2**32 + 2, 2], [1, 1]])}),
        (ValueError, "found 2147483648 at .* in int64", {"lengths": [[4, 5], [2**31, 2], [1, 1]]}),
        (ValueError, "between 0 and 5, .*found 255 .*in uint8", {"lengths": np.array([[3, 255]], "u1")}),
        (ValueError, "found -1 .*in int8", {"lengths": np.array([[-1, 2]], "i1")}),
        (TypeError, "lengths has dtype bool; wanted integers", {"lengths": np.ones((3, 2), bool)}),
        (TypeError, "complex128; wanted real numbers", {"scores": np.ones((3, 4, 5), complex)}),
        (ValueError, "ends is 'matches'; wanted one of 'any', 'match', 'later_match'", {"ends": "matches"}),
        (ValueError, "turns is None; wanted one of 'both', 'one', 'none'", {"turns": None}),
        (TypeError, "gap is None", {"gap": None}),
        (TypeError, "gap is None", {"gap": None, "gap_open": -1.0}),
        (TypeError, "temperature is None", {"temperature": None}),
        (TypeError, "scores is None", {"scores": None}),
        (tridiag.BackendError, "no backend 'nonsense'", {"backend": "nonsense"}),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(library: str, error: type[Exception], message: str, given: dict[str, Any]) -> None:
    if not installed(library):
        pytest.skip(f"needs {library}")
    reads = library != "cupy" or "found" not in message or isinstance(given.get("lengths"), list)  # not from a device
    call = {"scores": np.ones((3, 4, 5)), "gap": -1.0, **given}
    call = {name: to_library(library, x) if isinstance(x, np.ndarray) else x for name, x in call.items()}
    with pytest.raises(error, match=message) if reads else contextlib.nullcontext():
        tridiag.smith_waterman(call.pop("scores"), call.pop("lengths", None), **call)


def test_libraries_are_not_mixed() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"different libraries.*scores: torch.*lengths: numpy"):
        tridiag.smith_waterman(torch.ones(3, 4, 5), np.ones((3, 2), int), gap=-1.0)


GENERIC = """
import numpy as np, tridiag
scores = np.random.default_rng(0).normal(size=(3, 20, 20)).astype("float32")
print(*tridiag.smith_waterman(scores, gap=-1.0))
"""


@pytest.mark.slow
def test_a_processor_without_wide_vectors(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same code for the plainest processor."""
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    run = subprocess.run([sys.executable, "-c", GENERIC], capture_output=True, text=True, check=True)
    scores = normal(3, 20, 20, dtype="float32")
    wanted = [recursion(x, -1.0, None, 1.0) for x in scores]
    np.testing.assert_allclose([float(x) for x in run.stdout.split()], wanted, rtol=1e-5)
