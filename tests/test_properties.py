"""That any shapes, axes, strides, dtypes and masks that go together give the solution of the dense systems."""

from typing import Any

import numpy as np
import pytest
from helpers import DTYPES, EPS, REAL, Subject, aligned, assert_solves, dense, noise
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

MODEST = settings(
    deadline=None, derandomize=True, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
FEW = settings(MODEST, max_examples=12)  # under JAX every shape is a compilation
FIXED = [  # shape and axis
    ((20,), 0), ((4, 20), -1), ((20, 4), 0), ((3, 1), -1), ((3, 2), -1), ((3, 3), 1), ((2, 5, 3), 1), ((2, 3, 5), 2),
    ((5, 2, 3), -3), ((1, 7), -1), ((17, 4), -1), ((2, 2, 2, 5), -1),
]  # fmt: skip


@st.composite
def shapes(draw: Any) -> tuple[tuple[int, ...], int]:
    rank = draw(st.integers(1, 4))
    shape = [draw(st.integers(1, 4)) for _ in range(rank)]
    axis = draw(st.integers(-rank, rank - 1))
    shape[axis] = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 9, 17, 40]))
    return tuple(shape), axis


@st.composite
def systems(draw: Any, dtype: str) -> tuple[list[np.ndarray], dict[str, Any]]:
    """a, b, c, d with their options: each argument lacks some axes, and lies in memory in its own way."""
    shape, axis = draw(shapes())
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    matrix_dtype = draw(st.sampled_from([dtype, REAL.get(dtype, dtype)]))
    a, b, c = (noise(rng, reduced(draw, shape, axis), matrix_dtype) for _ in range(3))
    if draw(st.booleans()):
        b = b + np.where(b.real < 0, -4, 4).astype(matrix_dtype)
    d = noise(rng, shape if draw(st.booleans()) else thinned(draw, shape), dtype)
    options = {"axis": axis, "transpose": draw(st.booleans()), "periodic": shape[axis] >= 3 and draw(st.booleans())}
    if draw(st.booleans()):
        options["where"] = stride(draw, rng.uniform(size=reduced(draw, shape, axis)) < 0.7)
    arrays = [stride(draw, x) for x in (a, b, c, d)]
    options["periodic"] &= lifted_shape(arrays, options)[axis] >= 3
    return arrays, options


def reduced(draw: Any, shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    """The shape of an argument: the system axis alone, or some axes of length 1."""
    return (shape[axis],) if draw(st.integers(0, 4)) == 0 else thinned(draw, shape)


def thinned(draw: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(k if draw(st.integers(0, 3)) else 1 for k in shape)


def lifted_shape(arrays: list[np.ndarray], options: dict[str, Any]) -> tuple[int, ...]:
    """The shape of the solution."""
    masks = [options["where"]] if "where" in options else []
    (whole, *_), axis = aligned([*arrays, *masks], options["axis"])
    return np.moveaxis(whole, -1, axis).shape


def stride(draw: Any, x: np.ndarray) -> np.ndarray:
    """The same values elsewhere in memory."""
    how = draw(st.sampled_from(["C", "F", "reversed", "strided", "read-only"]))
    if how == "reversed":
        flip = tuple(slice(None, None, -1) for _ in x.shape)
        return np.ascontiguousarray(x[flip])[flip]
    if how == "strided":
        return np.repeat(x, 2, axis=0)[::2]
    x = np.array(x, order="F" if how == "F" else "C")
    x.flags.writeable = how != "read-only"
    return x


def regular(arrays: list[np.ndarray], options: dict[str, Any]) -> bool:
    """Far enough from singular for the promise."""
    like = np.ones(lifted_shape(arrays, options))
    (*diagonals, keep, _), _ = aligned([*arrays[:3], options.get("where", True), like], options["axis"])
    matrix = dense(*diagonals, where=keep, periodic=options["periodic"])
    condition = np.linalg.cond(matrix.astype(complex if np.iscomplexobj(matrix) else float))
    real = REAL.get(arrays[3].dtype.name, arrays[3].dtype.name)
    return bool((condition < 1e-4 / EPS[real]).all())


@pytest.mark.only(library="numpy", pivoting="auto")
@pytest.mark.parametrize("dtype", DTYPES)
@MODEST
@given(data=st.data())
def test_systems_of_any_form(backend: Subject, dtype: str, data: st.DataObject) -> None:
    arrays, options = data.draw(systems(dtype))
    if not backend.can(periodic=options["periodic"]) or not regular(arrays, options):
        return
    copies = [x.copy() for x in arrays]
    x = backend.solve(*arrays, **options)
    assert x.shape == lifted_shape(arrays, options) and x.dtype == arrays[3].dtype
    assert_solves(x, *arrays, **options)
    for given_array, copy in zip(arrays, copies, strict=True):
        np.testing.assert_array_equal(given_array, copy)


@pytest.mark.only(library="numpy", pivoting="auto")
@pytest.mark.parametrize("dtype", DTYPES)
@MODEST
@given(data=st.data())
def test_out_of_any_form(backend: Subject, dtype: str, data: st.DataObject) -> None:
    """A solution as good as without ``out``; other layouts may be other kernels, whose last bits differ."""
    arrays, options = data.draw(systems(dtype))
    if not backend.can(periodic=options["periodic"]):
        return
    wanted = backend.solve(*arrays, check=False, **options)
    out = stride(data.draw, np.full(wanted.shape, 7.0, wanted.dtype))
    if out.flags.writeable:
        assert backend.solve(*arrays, check=False, out=out, **options) is out
        if out.strides == wanted.strides:
            np.testing.assert_array_equal(out, wanted)
        elif regular(arrays, options):
            assert_solves(out, *arrays, **options)


@pytest.mark.only(library="jax")
@FEW
@given(form=st.sampled_from(FIXED), seed=st.integers(0, 1000))
def test_systems_of_fixed_shapes(backend: Subject, form: Any, seed: int) -> None:
    shape, axis = form
    rng = np.random.default_rng(seed)
    a, b, c, d = (noise(rng, shape, "float64") for _ in range(4))
    b = b + np.where(b < 0, -4, 4)
    where = rng.uniform(size=shape) < 0.7 if len(shape) == 2 else None
    assert_solves(backend.solve(a, b, c, d, axis=axis, where=where), a, b, c, d, axis=axis, where=where)
