"""Draws of states given observations: those of a series share its covariances, and are smoothed a piece at a time."""

import tracemalloc
from typing import Any

import numpy as np
import pytest
from helpers import to_library, to_numpy

from tridiag import kalman
from tridiag.kalman import pieces
from tridiag.libraries.arrays import module_of

from test_kalman import model  # isort: skip
from test_kalman_verbs import generator  # isort: skip

LIBRARIES = pytest.mark.parametrize("library", ["numpy", "torch"])
UNKNOWN: dict[str, Any] = {**kalman.models.local_linear_trend(0.1, 0.01, noise=1.0)}


def gaps(*shape: int) -> np.ndarray:
    """Series of which some steps, and some observations of steps, are missing."""
    y = np.random.default_rng(1).normal(size=shape)
    y[..., 2, :] = np.nan
    y[..., 4:, 0] = np.nan
    return y


def drawn(library: str, y: np.ndarray, size: Any, given: Any) -> np.ndarray:
    given = {name: given[name] if name == "diffuse" else to_library(library, given[name]) for name in given}
    return to_numpy(kalman.simulation_smoother(to_library(library, y), generator(library), size=size, **given))


MODELS: dict[str, dict[str, Any]] = {
    "two observations": model(2, 2, R=np.array([[1.0, 0.9], [0.9, 1.0]])),
    "an exact one": model(2, 2, R=np.diag([0.0, 0.5])),
    "that changes, in as many steps as there are draws": model(2, 2, time=(7,)),
    "hardly any noise": model(2, 2, R=np.diag([1e-10, 1e-10])),
    "of each series": model(2, 2, 3),
}


@LIBRARIES
@pytest.mark.parametrize("case", MODELS)
def test_what_is_missing_tells_nothing(case: str, library: str) -> None:
    """Draws are what the smoother makes of the difference from what was simulated, with the gaps of the series."""
    pytest.importorskip(library)
    given = MODELS[case]
    y = gaps(3, 7, 2) if case == "of each series" else gaps(7, 2)
    start = {name: to_library(library, x) for name, x in (given | {"m0": np.zeros_like(given["m0"])}).items()}
    simulated = kalman.simulate(generator(library), 7, size=(7,), **start)
    states, seen = (to_numpy(x) for x in simulated)
    wanted = [x + kalman.smoother(y - z, **given).mean for x, z in zip(states, seen, strict=True)]
    np.testing.assert_allclose(drawn(library, y, (7,), given), wanted, rtol=1e-9, atol=1e-10)


@LIBRARIES
@pytest.mark.parametrize("case", ["known", "unknown"])
def test_draws_do_not_depend_on_pieces(case: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(library)
    y, given = (gaps(9, 1), UNKNOWN) if case == "unknown" else (gaps(3, 9, 2), model(2, 2))
    wanted, lengths, smoother = drawn(library, y, (2, 4), given), [], kalman.samples.smoother

    def counted(y: Any, **given: Any) -> Any:
        lengths.append(len(y))
        return smoother(y, **given)

    monkeypatch.setattr(kalman.samples, "smoother", counted)
    for length, pieces_of in ((1, [1] * 8), (3, [3] * 3), (8, [8])):
        lengths.clear()
        monkeypatch.setattr(kalman.samples, "draws_of_a_piece", lambda *_, length=length: length)
        np.testing.assert_allclose(drawn(library, y, (2, 4), given), wanted, rtol=1e-10, atol=1e-12)
        assert lengths == pieces_of


def test_memory_of_many_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a piece, beside what is returned and what it is drawn from."""
    monkeypatch.setattr(pieces, "MOST", 2**20)
    y = gaps(100, 1)
    drawn("numpy", y, 2, UNKNOWN)
    tracemalloc.start()
    try:
        found = drawn("numpy", y, 200, UNKNOWN)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < pieces.MOST + 4 * found.nbytes  # all at once: 3 times as much


def test_draws_of_an_empty_series() -> None:
    assert drawn("numpy", np.zeros((0, 2)), (3,), model(2, 2)).shape == (3, 0, 2)


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_pieces_cover_all(library: str) -> None:
    pytest.importorskip(library)
    ops = module_of(library).Operations
    for count in (0, 1, 2, 7):
        x = to_library(library, np.arange(2.0 * count).reshape(count, 2))
        for length in range(1, 9):
            found = pieces.by_pieces(lambda part: 3 * part, x, length, ops, traced=False)
            np.testing.assert_array_equal(to_numpy(found), 3 * to_numpy(x))


def test_pieces_inside_jit() -> None:
    """One program for all pieces, with derivatives."""
    jax = pytest.importorskip("jax")
    ops, calls = module_of("jax").Operations, []

    def squares(part: Any) -> Any:
        calls.append(part.shape)
        return part**2

    def total(x: Any) -> Any:
        return pieces.by_pieces(squares, x, 3, ops, traced=True).sum()

    x = np.arange(14.0).reshape(7, 2)
    np.testing.assert_allclose(jax.jit(jax.grad(total))(x), 2 * x)
    assert set(calls) == {(3, 2)} and len(calls) < 3


@LIBRARIES
def test_series_share_what_is_unknown(library: str) -> None:
    """Series that miss nothing, with means of their own: each is as alone, and NaN stays in one of them."""
    pytest.importorskip(library)
    rng = np.random.default_rng(2)
    y, m0 = rng.normal(size=(3, 2, 12, 1)), rng.normal(size=(3, 2, 2))
    m0[1, 0, 0] = np.nan
    given = {name: x for name, x in UNKNOWN.items() if name != "m0"} | {"P0": np.diag([1.0, np.inf]), "diffuse": (1,)}
    placed = {name: x if name == "diffuse" else to_library(library, x) for name, x in given.items()}
    found = kalman.smoother(to_library(library, y), m0=to_library(library, m0), **placed)
    for place in np.ndindex(3, 2):
        alone = kalman.smoother(y[place], m0=m0[place], **given)
        for part, own in zip(found, alone, strict=True):
            np.testing.assert_allclose(to_numpy(part)[place], own, rtol=1e-9, atol=1e-9)


def test_a_key_of_jax_draws_from_a_model_of_numpy_arrays() -> None:
    """As NumPy arrays beside any JAX array are taken, inside `vmap` over keys too."""
    jax = pytest.importorskip("jax")
    numbers = model(2, 1)
    arrays = {name: jax.numpy.asarray(x) for name, x in numbers.items()}
    key, y = jax.random.key(3), gaps(6, 1)
    states, observed = kalman.simulate(key, 6, size=2, **numbers)
    assert isinstance(observed, jax.Array)
    np.testing.assert_array_equal(states, kalman.simulate(key, 6, size=2, **arrays).states)
    assert jax.vmap(lambda key: kalman.simulate(key, 6, **numbers).y)(jax.random.split(key, 3)).shape == (3, 6, 1)
    found = kalman.simulation_smoother(y, key, **numbers)
    np.testing.assert_array_equal(found, kalman.simulation_smoother(jax.numpy.asarray(y), key, **arrays))
    with pytest.raises(TypeError, match="y is a masked array"):
        kalman.simulation_smoother(np.ma.masked_invalid(y), key, **numbers)


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("name", ["Q", "R", "P0"])
def test_nothing_is_drawn_from_what_is_no_covariance(name: str, library: str) -> None:
    """A negative variance once drew as zero does."""
    pytest.importorskip(library)
    given = {key: to_library(library, x) for key, x in model(2, 2).items()}
    for bad, told in (
        (np.diag([1.0, -1.0]), "-1; a variance is not negative"),
        (np.diag([1.0, np.inf]), "P0 has an infinite" if name == "P0" else "inf; wanted a finite covariance"),
        (np.array([[1.0, 2.0], [2.0, 1.0]]), "not positive semidefinite"),
    ):
        with pytest.raises(ValueError, match=f"{name}.* {told}" if name not in told else told):
            kalman.simulate(generator(library), 6, **given | {name: to_library(library, bad)})
