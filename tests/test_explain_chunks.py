"""`explain` of arrays that others hold: Dask arrays, whose tasks call verbs on their chunks, and arrays with labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tridiag

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
pytest.importorskip("numba")
MATRIX = -1.0, 4.0, -1.0
WHOLE, LONG, SHORT = (6, 4000), (3, 1000), (3, 100)  # chunks of an array of 12 x 4000


@pytest.fixture(autouse=True)
def nothing_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: Any, **options: Any) -> Any:
        raise AssertionError("computed by explain")

    monkeypatch.setattr("dask.threaded.get", refuse)
    monkeypatch.setattr("dask.local.get_sync", refuse)


def cut(chunks: tuple[int, int], value: float = 1.0) -> Any:
    return da.full((12, 4000), value, chunks=chunks)


def test_chunks_with_whole_systems() -> None:
    """The backend is that of a chunk, told as NumPy arrays of its shape tell it."""
    found = tridiag.explain("solve", *MATRIX, cut(WHOLE))
    alone = tridiag.explain("solve", *MATRIX, np.ones(WHOLE))
    assert (found.backend, found.problem) == (alone.backend, alone.problem)
    assert "a task of Dask for each of 2 chunks, which hold whole systems" in repr(found)
    assert tridiag.explain(tridiag.solve, *MATRIX, cut(WHOLE), backend="numpy").backend == "numpy_thomas"


@pytest.mark.parametrize(
    ("chunks", "told"),
    [
        (LONG, "the system axis is cut into 4, each solved alone, and the rows around the cuts again"),
        (SHORT, "the system axis is cut into 40, joined by tridiag.parts; systems that fail are solved whole, by this"),
    ],
)
def test_cut_systems(chunks: tuple[int, int], told: str) -> None:
    found = tridiag.explain("solve", *MATRIX, cut(chunks), periodic=True, where=np.ones(4000, bool))
    assert told in repr(found)
    assert found.problem.shape == (chunks if chunks == LONG else (3, 4000))


def test_chunks_that_are_solved_twice() -> None:
    """Where what is solved may not be held, and can be made again."""
    with dask.config.set({"tridiag.hold": 0}):
        told = repr(tridiag.explain("solve", *MATRIX, da.ones((2, 4000), chunks=LONG)))
    assert "each solved alone, and again for the result, as too much would be held (tridiag.hold)" in told


@pytest.mark.parametrize("verb", ["matmul", "slogdet", "linear_recurrence", "log_linear_recurrence", "logcumsumexp"])
@pytest.mark.parametrize("chunks", [WHOLE, SHORT])
def test_every_verb_that_takes_dask_arrays(verb: str, chunks: tuple[int, int]) -> None:
    x = cut(chunks, 0.5)
    arguments = {
        "matmul": (*MATRIX, x), "slogdet": (-1.0, x + 4.0, -1.0), "linear_recurrence": (0.5, x),
        "log_linear_recurrence": (x, x), "logcumsumexp": (x,),
    }[verb]  # fmt: skip
    found = tridiag.explain(verb, *arguments)
    assert found.problem.shape == chunks and found.problem.library == "numpy"
    assert ("cut into 40" if chunks == SHORT else "hold") in repr(found)


def test_several_coefficients_and_first_values() -> None:
    a = (cut(SHORT, 0.5), 0.1)
    found = tridiag.explain("linear_recurrence", a, cut((6, 100)), init=(np.zeros(12), 0.0), reverse=True)
    assert found.problem.order == 2 and found.problem.shape == SHORT


def test_what_the_call_refuses_is_refused() -> None:
    with pytest.raises(tridiag.BackendError, match="the system axis is cut into 4 chunks"):
        tridiag.explain("solve", *MATRIX, cut(LONG), backend="numba")
    with pytest.raises(TypeError, match="out is for arrays that can be written to"):
        tridiag.explain("solve", *MATRIX, cut(LONG), out=np.empty((12, 4000)))
    with pytest.raises(TypeError, match=r"is a Dask array, which solve, .* and this does not"):
        tridiag.explain("factor", -1.0, cut(WHOLE, 4.0), -1.0)


# -------------------------------------------------------------------------------------------------------- labels


def test_labelled_arrays() -> None:
    """By the function of `tridiag.xarray`, the method of an array, or the name and ``dim``."""
    xr = pytest.importorskip("xarray")
    import tridiag.xarray as labelled

    d = xr.DataArray(np.ones((5, 40, 3)), dims=("time", "z", "x"))
    b = xr.DataArray(np.full((3, 40), 4.0), dims=("x", "z"))
    plain = tridiag.explain("solve", -1.0, b.values.T, -1.0, d.values, axis=1, periodic=True)
    for found in (
        tridiag.explain(labelled.solve, -1.0, b, -1.0, d, dim="z", periodic=True),
        tridiag.explain(d.tridiag.solve, -1.0, b, -1.0, dim="z", periodic=True),
        tridiag.explain("solve", -1.0, b, -1.0, d=d, dim="z", periodic=True),
    ):
        assert found == plain
    sequences = [
        tridiag.explain(labelled.linear_recurrence, (0.5, 0.1), d, (0.0, d[:, 0]), dim="z"),
        tridiag.explain(d.tridiag.linear_recurrence, (0.5, 0.1), init=(0.0, d[:, 0]), dim="z", return_final=True),
    ]
    assert all((one.problem.order, one.problem.axis) == (2, 1) for one in sequences)
    assert tridiag.explain(labelled.slogdet, -1.0, b, -1.0, dim="z").problem.axis == 1
    assert tridiag.explain(d.tridiag.logcumsumexp, dim="x").problem.axis == 2
    assert tridiag.explain(labelled.matmul, -1.0, b, -1.0, d, dim="z").backend == "numba_thomas"


def test_labelled_dask_arrays() -> None:
    xr = pytest.importorskip("xarray")
    import tridiag.xarray as labelled

    d = xr.DataArray(cut(LONG), dims=("x", "z"))
    assert "cut into 4" in repr(tridiag.explain(labelled.solve, *MATRIX, d, dim="z"))


def test_labels_that_the_call_refuses_are_refused() -> None:
    xr = pytest.importorskip("xarray")
    import tridiag.xarray as labelled

    d = xr.DataArray(np.ones((5, 40)), dims=("x", "z"))
    with pytest.raises(ValueError, match="wanted a dimension of the arguments"):
        tridiag.explain(labelled.solve, *MATRIX, d, dim="depth")
    with pytest.raises(TypeError, match="axis is not for labelled arrays"):
        tridiag.explain(labelled.solve, *MATRIX, d, dim="z", axis=1)
    with pytest.raises(TypeError, match="solve also needs dim"):
        tridiag.explain(labelled.solve, *MATRIX, d)
    with pytest.raises(TypeError, match="solve has no argument nonsense"):
        tridiag.explain(labelled.solve, *MATRIX, d, dim="z", nonsense=1)
    with pytest.raises(TypeError, match="factor has no argument dim"):
        tridiag.explain("factor", *MATRIX, dim="z")
