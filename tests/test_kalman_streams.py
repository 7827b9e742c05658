"""Single steps of filters by kernels: the results of the other libraries' way, whatever lies where."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from guarded import memory
from helpers import covariance, to_library

from tridiag import kalman
from tridiag.calls import fast_path
from tridiag.kalman import streams
from tridiag.kernels.jobs.kalman import make_step_job
from tridiag.kernels.jobs.systems import WORTH_A_THREAD
from tridiag.kernels.jobs.words.kalman import WRITTEN_OUT
from tridiag.problems.state_space import StateSpace

pytest.importorskip("numba")

pytestmark = pytest.mark.usefixtures("forgetful")

SIZES = (1, 1), (2, 1), (3, 2), (8, 8)
LARGER = (9, 1), (2, 9), (17, 3), (32, 1)  # whose sizes are numbers of the job
DTYPES = {"float64": 1e-12, "float32": 1e-4}
CASES = [
    *((size, "float64") for size in SIZES + LARGER),
    *(pytest.param(size, "float32", marks=[] if size == SIZES[1] else pytest.mark.slow) for size in SIZES + LARGER),
]
PREDICT, UPDATE = VERBS = "predict", "update"


def operands(verb: str, k: int, p: int, batch: tuple[int, ...] = (), own: tuple[int, ...] = ()) -> dict[str, Any]:
    """Of states with batch axes, and a model with ``own``; a value in five is missing."""
    rng = np.random.default_rng(k)
    given = {"mean": rng.normal(size=(*batch, k)), "cov": covariance(rng, *batch, k)}
    if verb == PREDICT:
        return given | {"F": rng.normal(size=(*own, k, k)), "Q": covariance(rng, *own, k)}
    y = rng.normal(size=(*batch, p))
    y[rng.random(y.shape) < 0.2] = np.nan
    return given | {"y": y, "H": rng.normal(size=(*own, p, k)), "R": covariance(rng, *own, p)}


def series_of(given: dict[str, Any], which: int) -> dict[str, Any]:
    """One of some series, each of which has a model of its own."""
    return {name: x[which] for name, x in given.items()}


def one_step(verb: str, given: dict[str, Any], **more: Any) -> Any:
    return getattr(kalman, verb)(**given, **more)


def met(verb: str, given: dict[str, Any]) -> Any:
    """By the table of calls that were met, this one among them."""
    for _ in range(3):
        one_step(verb, given)
    found = recalled(verb, given)
    assert found is not None
    return found


def recalled(verb: str, given: dict[str, Any]) -> Any:
    """By the table alone; None where it has no such call."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fast_path.streams, "known_step", lambda *_: None)
        return fast_path.STEPS[verb].call(*given.values())


def in_numpy(verb: str, given: dict[str, Any], **more: Any) -> Any:
    """By NumPy alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "is_alike", lambda *_: False)
        patch.setattr(streams.Step, "compiled", lambda *_: None)
        return one_step(verb, given, **more)


def assert_alike(found: Any, wanted: Any, tolerance: float) -> None:
    for x, y in zip(found, wanted, strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * np.max(abs(y), initial=0, where=y == y))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("size", "dtype"), CASES)
def test_results_are_those_of_numpy(verb: str, size: tuple[int, int], dtype: str) -> None:
    for batch in ((), (1,), (3,), (2, 19)):  # of many states: one after another, or a series in each lane
        for own in ((), batch):
            given = {name: x.astype(dtype) for name, x in operands(verb, *size, batch, own).items()}
            wanted = in_numpy(verb, given)
            for found in (one_step(verb, given), met(verb, given)):
                assert_alike(found, wanted, DTYPES[dtype])
                assert (found[1] == found[1].swapaxes(-1, -2)).all()
                assert (np.diagonal(found[1], axis1=-2, axis2=-1) >= 0).all()


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("shared", ["mean", "cov", "y"])
def test_what_series_share(verb: str, shared: str) -> None:
    """States, covariances or observations in common, and models along another axis."""
    given = operands(verb, 2, 2, (5, 1), (1, 9))
    if shared in given:
        given[shared] = given[shared][0, 0]
    wanted = in_numpy(verb, given)
    assert wanted[1].shape == (5, 9, 2, 2)
    for found in (one_step(verb, given), met(verb, given)):
        assert_alike(found, wanted, 1e-12)


@pytest.mark.parametrize("verb", VERBS)
def test_arrays_that_lie_otherwise(verb: str) -> None:
    """Of other dtypes, with rows that are apart or backwards: as contiguous ones."""
    given = operands(verb, 3, 2, (4,))
    wanted = in_numpy(verb, given)
    apart = {name: np.stack([x, x])[::-1].T[..., 0].T for name, x in given.items()}
    every_other = {name: np.repeat(x, 2, -1)[..., ::2] for name, x in given.items()}
    for other in (apart, every_other):
        for _ in range(3):
            assert_alike(one_step(verb, other), wanted, 1e-12)
    name = "F" if verb == PREDICT else "H"
    whole = given | {name: np.ones(given[name].shape, int)}
    for _ in range(3):
        assert_alike(one_step(verb, whole), in_numpy(verb, whole), 1e-12)
    assert one_step(verb, {name: x.astype("f2") for name, x in given.items()})[0].dtype == np.float16


@pytest.mark.parametrize("verb", VERBS)
def test_intercepts(verb: str) -> None:
    given = operands(verb, 3, 2, (4,))
    name, length = ("state_intercept", 3) if verb == PREDICT else ("obs_intercept", 2)
    for shape in ((length,), (4, length), (7, 4, length)):
        more = {name: np.random.default_rng(1).normal(size=shape)}
        for _ in range(2):
            assert_alike(one_step(verb, given, **more), in_numpy(verb, given, **more), 1e-12)


@pytest.mark.parametrize(
    ("name", "shape", "told"),
    [
        ("y", (), r"y has shape \(\); .* np.array\(\[y\]\)\?"),
        ("mean", (2, 1), r"mean has shape \(2, 1\); wanted \(..., k\), no column: mean\[..., 0\]\?"),
        ("H", (2,), r"H has shape \(2,\); .* ends in \(1, 2\): H\[None\]\?"),
        ("H", (2, 1), r"H has shape \(2, 1\); .*: H.swapaxes\(-1, -2\)\?"),
        ("R", (), r"R has shape \(\); .*: np.eye\(1\) times it\?"),
        ("cov", (2,), r"cov has shape \(2,\); .*: np.diag\(cov\)\?"),
        ("obs_intercept", (1, 1, 1), None),
        ("obs_intercept", (3,), r"obs_intercept has shape \(3,\); .* ends in \(1,\)$"),
        ("H", (3,), r"H has shape \(3,\); .* ends in \(1, 2\)$"),
    ],
)
def test_what_is_told_of_other_shapes(name: str, shape: tuple[int, ...], told: str | None) -> None:
    """What was probably meant."""
    given = operands(UPDATE, 2, 1) | {name: np.ones(shape)}
    with contextlib.nullcontext() if told is None else pytest.raises(ValueError, match=told):
        kalman.update(**given)


SPECIAL = {
    "nothing is certain of one": np.diag([1.0, 0.0]),
    "all is certain": np.zeros((2, 2)),
    "of one direction": np.ones((2, 2)),
    "not a number": np.array([[1.0, np.nan], [np.nan, 1.0]]),
    "tiny": np.diag([1e-300, 1.0]),
    "huge": np.diag([1e200, 1.0]),
}


def noise_of(verb: str) -> str:
    return "Q" if verb == PREDICT else "R"


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("which", ["cov", "noise"])
@pytest.mark.parametrize("case", SPECIAL)
def test_special_covariances(verb: str, which: str, case: str) -> None:
    """What is no number is its own, and no other series feels it."""
    given = operands(verb, 2, 2, (3,), (3,))
    given[noise_of(verb) if which == "noise" else which][1] = SPECIAL[case]
    with np.errstate(all="ignore"):
        wanted = in_numpy(verb, given)
    again = one_step if case == "not a number" else met
    for found in (one_step(verb, given), again(verb, given)):
        assert_alike(found, wanted, 1e-12)
        assert not any(np.isnan(x[[0, 2]]).any() for x in found)


INVALID = {
    "not symmetric": (np.array([[1.0, 0.5], [0.2, 1.0]]), r"\[1, 0, 1\] is 0.5 and .*\[1, 1, 0\] is 0.2"),
    "a negative variance": (np.diag([-1.0, 1.0]), r"\[1, 0, 0\] is -1; a variance is not negative"),
    "a variance of -inf": (np.diag([-np.inf, 1.0]), r"\[1, 0, 0\] is -inf; a variance is not negative"),
    "infinite between": (np.array([[1, np.inf], [np.inf, 1]]), r"\[1, 0, 1\] is inf; wanted a finite covariance"),
    "an infinite variance": (np.diag([np.inf, 1.0]), r"\[.*0, 0\] is inf"),
    "indefinite": (np.array([[1.0, 2.0], [2.0, 1.0]]), r"\[1\] is not positive semidefinite"),
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("which", ["cov", "noise"])
@pytest.mark.parametrize("case", INVALID)
@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_what_is_no_covariance_is_refused(verb: str, which: str, case: str, library: str) -> None:
    """As by `kalman.filter`; in a call that was met before, too."""
    pytest.importorskip(library)
    given, name = operands(verb, 2, 2, (3,), (3,)), noise_of(verb) if which == "noise" else which
    arrays = {key: to_library(library, x) for key, x in given.items()}
    for _ in range(3):
        one_step(verb, arrays)
    bad, told = INVALID[case]
    given[name] = given[name].copy()
    given[name][1] = bad
    for _ in range(3):
        with pytest.raises(ValueError, match=f"{name}.*{told}"):
            one_step(verb, arrays | {name: to_library(library, given[name])})


@pytest.mark.parametrize("verb", VERBS)
def test_large_arrays_are_looked_at_for_unknown_states_alone(verb: str) -> None:
    given = operands(verb, 2, 2, (300,))
    given["cov"][7] = np.diag([1.0, -1.0])
    for _ in range(3):
        one_step(verb, given)
    given["cov"][9, 1, 1] = np.inf
    for _ in range(3):
        with pytest.raises(ValueError, match=r"cov\[1, 1\] is inf"):
            one_step(verb, given)


@pytest.mark.parametrize("verb", VERBS)
def test_as_many_series_as_steps(verb: str) -> None:
    """The last of several covariances is read as the others are."""
    given = operands(verb, 2, 2, (2,), (2,))
    given[noise_of(verb)][-1] = -np.eye(2)
    with pytest.raises(ValueError, match="a variance is not negative"):
        one_step(verb, given)


def test_an_exact_observation_leaves_nothing() -> None:
    """Again and again, from covariances of the step before."""
    mean, cov = np.zeros(2), 100 * np.eye(2)
    H, F = np.array([[1.0, 0.5]]), np.array([[0.5, 0.5], [-0.5, 0.5]])
    for _ in range(9):
        before = cov[0, 0]
        mean, cov, _ = kalman.update(mean, cov, np.ones(1), H=H, R=np.zeros((1, 1)))
        assert (np.diagonal(cov) >= 0).all() and abs(H @ cov @ H.T).max() <= 1e-14 * before
        mean, cov = kalman.predict(mean, cov, F=F, Q=np.diag([1.0, 0.0]))
        assert (np.diagonal(cov) >= 0).all()
    assert np.isfinite(mean).all()


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("batch", [(), (11,)])
def test_a_state_that_is_unknown_is_refused_in_a_call_that_was_met(verb: str, batch: tuple[int, ...]) -> None:
    given = operands(verb, 2, 1, batch)
    assert met(verb, given) is not None
    given["cov"][..., 1, 1] = np.inf
    assert recalled(verb, given) is None
    with pytest.raises(ValueError, match=r"cov\[1, 1\] is inf"):
        one_step(verb, given)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("states", [2, WRITTEN_OUT + 1])
def test_many_series_by_threads(verb: str, states: int) -> None:
    given = operands(verb, states, 1, (WORTH_A_THREAD // (4 if states == 2 else 700),))
    assert_alike(one_step(verb, given), in_numpy(verb, given), 1e-12)
    one = one_step(verb, {name: x[:1] if name in ("mean", "cov", "y") else x for name, x in given.items()})
    for x, alone in zip(one_step(verb, given), one, strict=True):
        np.testing.assert_allclose(x[:1], alone, rtol=0 if states == 2 else 1e-10, atol=1e-10 * (states > 2))


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("states", [2, WRITTEN_OUT + 1])
def test_no_series(verb: str, states: int) -> None:
    assert one_step(verb, operands(verb, states, 1, (0,)))[1].shape == (0, states, states)


def test_kernels_of_larger_models() -> None:
    """Whatever their size, one for few series and one for many."""
    for verb, names in ((PREDICT, ("predict_many", "predict_in_lanes")), (UPDATE, ("filter_many", "filter_in_lanes"))):
        for count, name in zip((1, 40), names, strict=True):
            form = StateSpace(1, 1, 9, (count,), (count,), None, False)
            shapes = [(count, 1), (1, 9, 9), (1, 1, 9), (1, 9, 9), (1, 1, 1), (count, 9), (count, 9, 9)]
            assert make_step_job(verb, form, shapes, np.dtype(float), 1).kernel == (name, "float64")


DEGENERATE = {
    "all is certain": lambda x: 0 * x,
    "of one direction": lambda x: np.ones_like(x),
    "of one state": lambda x: np.diag(np.arange(len(x)) == 1).astype(float),
    "tiny": lambda x: 1e-200 * x,
    "huge": lambda x: 1e150 * x,
    "of sizes far apart": lambda x: x * np.outer(*2 * [10.0 ** np.linspace(-3, 3, len(x))]),
    "infinite noise": lambda x: np.where(np.eye(len(x)) > 0, np.inf, x),
    "not a number": lambda x: np.nan * x,
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("which", ["cov", "noise", "both"])
@pytest.mark.parametrize("case", DEGENERATE)
def test_degenerate_covariances_of_larger_models(
    verb: str, which: str, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One series among few, and among many; no other one feels it."""
    if case == "infinite noise":  # of few matrices it is refused
        monkeypatch.setattr(streams, "check_each", lambda *_: None)
        monkeypatch.setattr(fast_path.streams, "check_each", lambda *_: None)
    for count in (2, 19):
        given, noise = operands(verb, 11, 3, (count,), (count,)), "Q" if verb == PREDICT else "R"
        if case == "infinite noise" and which != "noise":
            continue  # states that are unknown are refused
        for name in {"cov": ("cov",), "noise": (noise,), "both": ("cov", noise)}[which]:
            given[name][1] = DEGENERATE[case](given[name][1])
        if verb == UPDATE:
            given["y"][:] = np.arange(3)
        with np.errstate(all="ignore"):
            wanted = in_numpy(verb, given)
        found = one_step(verb, given)
        for series in range(count):
            assert_alike(*([x[series] for x in those] for those in (found, wanted)), 1e-11)
        assert not any(np.isnan(np.delete(x, 1, 0)).any() for x in found)


@pytest.mark.parametrize("count", [1, 19])
def test_no_variance_is_negative_where_all_cancels(count: int) -> None:
    """What is certain of a sum of states stays so, exactly, step for step."""
    k, rng = 12, np.random.default_rng(0)
    F = rng.normal(size=(count, k, k))
    F[:, 0] = F[:, 1] = 1.0  # two states that become the same
    F[:, 2] = 0
    mean, cov = np.zeros((count, k)), 100 * covariance(rng, count, k)
    H = np.zeros((2, k))
    H[0, :2], H[1, 3] = (1, -1), 1
    for _ in range(9):
        mean, cov = kalman.predict(mean, cov, F=F, Q=np.zeros((k, k)))
        assert (np.diagonal(cov, axis1=-2, axis2=-1) >= 0).all() and not cov[:, 2].any()
        mean, cov, _ = kalman.update(mean, cov, np.ones(2), H=H, R=np.diag([1.0, 0.0]))
        assert (np.diagonal(cov, axis1=-2, axis2=-1) >= 0).all()
    assert np.isfinite(mean).all()


@pytest.mark.parametrize("verb", VERBS)
def test_some_observations_of_larger_models_are_missing(verb: str) -> None:
    """All of a series, or some, as of that series alone."""
    given = operands(verb, 10, 3, (21,), (21,))
    if verb == UPDATE:
        given["y"][4] = np.nan
        given["y"][5, 1] = np.nan
    found = one_step(verb, given)
    for series in (0, 4, 5, 20):
        assert_alike([x[series] for x in found], one_step(verb, series_of(given, series)), 1e-11)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("size", SIZES + LARGER)
def test_no_memory_but_that_of_the_operands(verb: str, size: tuple[int, int]) -> None:
    rooms = memory.Rooms()
    held = {name: rooms.copy(x) for name, x in operands(verb, *size, (9,), (9,)).items()}
    for one in held.values():
        one.lock()
    for _ in range(3):
        found = one_step(verb, {name: one.array for name, one in held.items()})
    rooms.give_back()
    assert_alike(found, in_numpy(verb, operands(verb, *size, (9,), (9,))), 1e-12)


@pytest.mark.parametrize("verb", VERBS)
def test_tensors_with_and_without_gradients(verb: str) -> None:
    """Kernels have no derivatives: with these, and in `torch.func`, PyTorch's own operations compute."""
    torch = pytest.importorskip("torch")
    given = operands(verb, 3, 2, (4,))
    wanted = in_numpy(verb, given)
    tensors = {name: torch.tensor(x) for name, x in given.items()}
    found = one_step(verb, tensors)
    assert_alike([x.numpy() for x in found], wanted, 1e-12)
    tensors["cov"].requires_grad_()
    found = one_step(verb, tensors)
    assert_alike([x.detach().numpy() for x in found], wanted, 1e-12)
    found[0].nansum().backward() if verb == UPDATE else found[1].sum().backward()
    assert tensors["cov"].grad.isfinite().all() and tensors["cov"].grad.any()
    with torch.no_grad():
        assert not any(x.requires_grad for x in one_step(verb, tensors))
    names = "mean", "cov", *(["y"] if verb == UPDATE else [])
    model = {name: x for name, x in tensors.items() if name not in names}
    mapped = torch.func.vmap(lambda *x: tuple(one_step(verb, dict(zip(names, x, strict=True)) | model)))
    assert_alike([x.detach().numpy() for x in mapped(*(tensors[name] for name in names))], wanted, 1e-12)


@pytest.mark.parametrize("verb", VERBS)
def test_arrays_of_jax_inside_and_outside_of_programs(verb: str) -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True) if hasattr(jax, "enable_x64") else jax.experimental.enable_x64():
        given = {name: jax.numpy.asarray(x) for name, x in operands(verb, 3, 2, (4,)).items()}
        wanted = in_numpy(verb, operands(verb, 3, 2, (4,)))
        for run in (one_step, jax.jit(one_step, static_argnums=0)):
            assert_alike([np.asarray(x) for x in run(verb, given)], wanted, 1e-12)

        def total(cov: Any) -> Any:
            return one_step(verb, given | {"cov": cov})[0 if verb == UPDATE else 1].sum()

        slopes = [jax.grad(f)(given["cov"]) for f in (total, jax.jit(total))]
        np.testing.assert_allclose(*map(np.asarray, slopes), rtol=1e-9, atol=1e-12)
