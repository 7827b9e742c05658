"""Labelled arrays: dimensions by their names, in any order; labels stay; what does not fit is told."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tridiag

xr = pytest.importorskip("xarray")
pytest.importorskip("numba")
import tridiag.xarray as labelled  # noqa: E402

Z, X, T = np.array([5.0, 15.0, 30.0, 50.0]), ["a", "b", "c"], [10, 20]


def field(*dims: str, seed: int = 0, **more: Any) -> Any:
    """Random numbers with labels, a coordinate beside them, a name and attributes."""
    labels = {"z": Z, "x": X, "t": T}
    shape = [len(labels[name]) for name in dims]
    coords: dict[str, Any] = {name: labels[name] for name in dims}
    if "z" in dims:
        coords["layer"] = ("z", np.arange(4))
    numbers = np.random.default_rng(seed).uniform(1, 2, shape)
    return xr.DataArray(numbers, coords, dims, **{"name": "heat", "attrs": {"units": "K"}, **more})


D = field("t", "z", "x")
A, B, C = -field("z", "x", seed=1), field("z", "x", seed=2) + 5, -field("z", "x", seed=3)
WANTED = tridiag.solve(A.values, B.values, C.values, D.values, axis=1)


@pytest.mark.parametrize("order", [*itertools.permutations("tzx")], ids="".join)
@pytest.mark.parametrize("matrix", [("z", "x"), ("x", "z")])
def test_dimensions_lie_in_any_order(order: tuple[str, ...], matrix: tuple[str, ...]) -> None:
    """The result lies as the right side does, which is not copied to another order."""
    d = D.transpose(*order)
    x = labelled.solve(A.transpose(*matrix), B, C.transpose(*matrix), d, dim="z")
    assert x.dims == order
    xr.testing.assert_allclose(x, D.copy(data=WANTED).transpose(*order))
    y = labelled.matmul(A, B, C.transpose(*matrix), x, dim="z")
    xr.testing.assert_allclose(y, d)


def test_labels_stay() -> None:
    """Those of the right side, whatever the coefficients are called."""
    d = D.assign_coords(station="north").drop_vars("layer")
    x = labelled.solve(A.rename("lower"), B.assign_attrs(units="1/s"), C, d, dim="z")
    xr.testing.assert_identical(x, d.copy(data=WANTED))
    assert x.name == "heat" and x.attrs == {"units": "K"}
    stacked = D.stack(point=("t", "x"))
    found = labelled.solve(-1.0, 4.0, -1.0, stacked, dim="z")
    xr.testing.assert_identical(found.coords.to_dataset(), stacked.coords.to_dataset())
    assert found.dims == stacked.dims and list(found.indexes["point"].names) == ["t", "x"]


def test_what_the_right_side_lacks_comes_behind_it() -> None:
    """With its labels, as in arithmetic of xarray."""
    x = labelled.solve(A, B, C, D.isel(t=0, x=0, drop=True), dim="z")
    wanted = tridiag.solve(A.values, B.values, C.values, D.values[0, :, :1], axis=0)
    assert x.dims == ("z", "x") and x.name == "heat" and list(x.x.values) == X
    np.testing.assert_array_equal(x.values, wanted)
    x = labelled.solve(A, B, C, 1.0, dim="z")
    assert x.name is None and x.dims == ("z", "x") and list(x.coords) == ["z", "x", "layer"]


def test_scalars_arrays_without_names_and_fewer_dimensions() -> None:
    a, b = A.isel(x=0, drop=True), field("x", seed=4) + 5
    for given, plain in (
        ((-1.0, b, -1.0, D), (-1.0, b.values[None, :], -1.0)),
        ((a, 6.0, a.values, D), (a.values, 6.0, a.values)),
        (
            (a, field("t", seed=5) + 5, list(a.values), D),
            (a.values, field("t", seed=5).values[:, None, None] + 5, a.values),
        ),
        ((xr.DataArray(-1.0), 5, np.float64(-1), D), (-1.0, 5.0, -1.0)),
    ):
        x = labelled.solve(*given, dim="z")
        np.testing.assert_allclose(x.values, tridiag.solve(*plain, D.values, axis=1), rtol=1e-14)
        assert x.dims == D.dims


def test_masks_and_options() -> None:
    keep = D.isel(t=0) > 1.3
    options = {"periodic": True, "transpose": True}
    plain = {"where": keep.values, "axis": 1, **options}
    given = [v.values for v in (A, B, C, D)]
    x = labelled.solve(A, B, C, D, dim="z", where=keep.transpose("x", "z"), **options)
    np.testing.assert_array_equal(x.values, tridiag.solve(*given, **plain))
    y = labelled.matmul(A, B, C, D, dim="z", where=keep, **options)
    np.testing.assert_array_equal(y.values, tridiag.matmul(*given, **plain))
    x = labelled.solve(A, B, C, D, dim="z", where=np.array([True, False, True, True]))
    assert not x.isel(z=1).any() and x.isel(z=0).all()


def test_determinants() -> None:
    sign, logarithm = labelled.slogdet(A, B, C.transpose("x", "z"), dim="z")
    wanted = tridiag.slogdet(A.values, B.values, C.values, axis=0)
    assert (sign.name, logarithm.name) == ("sign", "logabsdet")
    assert sign.dims == ("x",) and list(sign.coords) == ["x"]
    np.testing.assert_array_equal(sign, wanted[0])
    np.testing.assert_allclose(logarithm, wanted[1], rtol=1e-14)


@pytest.mark.parametrize("reverse", [False, True])
def test_recurrences(reverse: bool) -> None:
    options = {"reverse": reverse, "return_final": True}
    a, init = field("x", "z", seed=1), field("x", "t", seed=2)
    y, final = labelled.linear_recurrence(a, D, init, dim="z", **options)
    plain = tridiag.linear_recurrence(a.values.T, D.values, init.values.T, axis=1, **options)
    xr.testing.assert_identical(y, D.copy(data=plain[0]))
    xr.testing.assert_identical(final, D.isel(z=0, drop=True).copy(data=plain[1]))
    y, final = labelled.linear_recurrence((a, 0.5), D, (init, 1.0), dim="z", **options)
    plain = tridiag.linear_recurrence((a.values.T, 0.5), D.values, (init.values.T, 1.0), axis=1, **options)
    np.testing.assert_array_equal(y, plain[0])
    for one, wanted in zip(final, plain[1], strict=True):
        assert one.dims == ("t", "x")
        np.testing.assert_array_equal(one, wanted)
    y, final = labelled.log_linear_recurrence(a, D, field("x"), dim="z", **options)
    plain = tridiag.log_linear_recurrence(a.values.T, D.values, field("x").values, axis=1, **options)
    np.testing.assert_array_equal(y, plain[0])
    np.testing.assert_array_equal(final, plain[1])
    y = labelled.logcumsumexp(D, dim="z", reverse=reverse)
    xr.testing.assert_identical(y, D.copy(data=tridiag.logcumsumexp(D.values, axis=1, reverse=reverse)))


def test_the_accessor() -> None:
    for found, wanted in (
        (D.tridiag.solve(A, B, C, dim="z"), labelled.solve(A, B, C, D, dim="z")),
        (D.tridiag.matmul(A, B, C, dim="z", transpose=True), labelled.matmul(A, B, C, D, dim="z", transpose=True)),
        (D.tridiag.linear_recurrence(0.5, dim="t"), labelled.linear_recurrence(0.5, D, dim="t")),
        (D.tridiag.log_linear_recurrence(A, 1.0, dim="z"), labelled.log_linear_recurrence(A, D, 1.0, dim="z")),
        (D.tridiag.logcumsumexp(dim="x"), labelled.logcumsumexp(D, dim="x")),
    ):
        xr.testing.assert_identical(found, wanted)


def test_no_argument_is_written_or_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verb gets views, whatever the order; ``overwrite_d`` writes to the right side, as elsewhere."""
    given: dict[str, Any] = {}

    def solve(a: Any, b: Any, c: Any, d: Any, **options: Any) -> Any:
        given.update(a=a, b=b, c=c, d=d)
        return tridiag.solve(a, b, c, d, **options)

    monkeypatch.setattr("tridiag.xarray.systems.solve", solve)
    before = D.copy(deep=True)
    d = D.transpose("x", "t", "z")
    labelled.solve(A, B, C, d, dim="z")
    for name, x in {"a": A, "b": B, "c": C, "d": D}.items():
        assert np.shares_memory(given[name], x.values)
    xr.testing.assert_identical(D, before)
    d = D.copy(deep=True)
    x = labelled.solve(A, B, C, d, dim="z", overwrite_d=True)
    assert np.shares_memory(x.values, d.values)


def test_labels_that_differ_raise() -> None:
    for other in (B.assign_coords(z=Z + 1), B.isel(z=slice(1, None)), B.isel(z=slice(None, None, -1))):
        with pytest.raises(ValueError, match=r"labels or lengths of d, a, b, c differ along .*'z'"):
            labelled.solve(A, other, C, D, dim="z")
    with pytest.raises(ValueError, match="differ along a dimension"):
        labelled.solve(A, B, C, D, dim="z", where=(D > 1.5).assign_coords(x=["a", "b", "d"]))


def test_a_right_side_along_another_dimension() -> None:
    """A dimension that is called otherwise would become one more axis of the result."""
    told = (
        r"has the dimensions \('t', 'depth', 'x'\), and a lies along dim='z': (d|x)\.rename\(\{'depth': 'z'\}\)\?; what"
    )
    other = D.rename(z="depth")
    for call in (
        lambda: labelled.solve(A, B, C, other, dim="z"),
        lambda: other.tridiag.solve(A, B, C, dim="z"),
        lambda: labelled.matmul(A, B, C, other, dim="z"),
        lambda: labelled.linear_recurrence(xr.DataArray(Z, dims="z"), other, dim="z"),
        lambda: labelled.log_linear_recurrence(A, other, dim="z"),
    ):
        with pytest.raises(ValueError, match=told.replace("and a ", r"and (a|log_a|a\[0\]) ")):
            call()
    with pytest.raises(ValueError, match=r"d has the dimensions \('x',\), and a lies along dim='z'; what is the same"):
        labelled.solve(A, B, C, D.isel(t=0, z=0), dim="z")
    x = labelled.solve(A, B, C, D.isel(t=0, z=0, drop=True).broadcast_like(A), dim="z")
    wanted = tridiag.solve(A.values, B.values, C.values, D.values[0, :1].repeat(4, 0), axis=0)
    np.testing.assert_array_equal(x.transpose("z", "x"), wanted)
    assert labelled.solve(A, B, C, xr.DataArray(1.0), dim="z").dims == ("z", "x")


@pytest.mark.parametrize("name", ["Z", "zz", "z_"])
def test_a_coefficient_along_a_dimension_of_nearly_the_same_name(name: str) -> None:
    told = rf"b has the dimensions .*'{name}'.*, and (d|x) lies along dim='z': b\.rename\(\{{'{name}': 'z'\}}\)\?"
    for given in (B.rename(z=name), B.isel(x=0, drop=True).rename(z=name)):
        for verb in (labelled.solve, labelled.matmul):
            with pytest.raises(ValueError, match=told):
                verb(-1.0, given, -1.0, D, dim="z")
    with pytest.raises(ValueError, match=told.replace("(d|x) lies", "a lies")):
        labelled.slogdet(A, B.rename(z=name), C, dim="z")
    with pytest.raises(ValueError, match=r"where has the dimensions"):
        labelled.solve(A, B, C, D, dim="z", where=(D > 1.5).rename(z=name))


def test_coefficients_that_are_the_same_in_all_rows() -> None:
    """They have axes of their own, or those of others: of other names, or of other lengths."""
    several = xr.DataArray([5.0, 6.0, 7.0, 8.0], dims="case")
    x = labelled.solve(-1.0, several, -1.0, D, dim="z")
    assert x.dims == (*D.dims, "case")
    np.testing.assert_allclose(x.isel(case=2), labelled.solve(-1.0, 7.0, -1.0, D, dim="z"), rtol=1e-14)
    assert labelled.solve(-1.0, several[:3].rename(case="zz"), -1.0, D, dim="z").dims == (*D.dims, "zz")
    assert labelled.solve(-1.0, several[:2].rename(case="t"), -1.0, D, dim="z").dims == D.dims
    sign, _ = labelled.slogdet(A, several, C, dim="z")
    assert {*sign.dims} == {"x", "case"}


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match=r"dim is 'layers'; wanted a dimension of the arguments, .* have \('layer', "):
        labelled.solve(-1.0, 4.0, -1.0, D.drop_vars("layer").rename(z="layer"), dim="layers")
    for verb in (labelled.solve, labelled.matmul):
        with pytest.raises(
            ValueError, match=r"dim is 'depth'; wanted a dimension of the arguments, which have \('t', "
        ):
            verb(A, B, C, D, dim="depth")
        with pytest.raises(TypeError, match="no argument is a DataArray"):
            verb(1.0, 4.0, 1.0, np.ones(3), dim="z")
        with pytest.raises(TypeError, match="b is a ndarray of 2 axes without names"):
            verb(A, B.values, C, D, dim="z")
        with pytest.raises(TypeError, match=r"(d|x) is a Dataset"):
            verb(A, B, C, D.to_dataset(), dim="z")
        with pytest.raises(TypeError, match="axis is not for labelled arrays"):
            verb(A, B, C, D, dim="z", axis=0)
        with pytest.raises(TypeError, match="out is not for labelled arrays"):
            verb(A, B, C, D, dim="z", out=D)
    with pytest.raises(ValueError, match=r"init has the dimensions \('z', 'x'\); wanted some of \('t', 'x'\)"):
        labelled.linear_recurrence(0.5, D, A, dim="z")
    with pytest.raises(TypeError, match="init is a ndarray of axes without names"):
        labelled.linear_recurrence(0.5, D, np.ones(3), dim="z")
    with pytest.raises(tridiag.SingularSystemError):
        labelled.solve(0.0, 0.0, 0.0, D, dim="z")


def test_verbs_without_labels_say_what_to_do() -> None:
    d = xr.DataArray(np.ones((4, 6)), dims=("x", "z"))
    for owner, verb in ((d.tridiag, "factor"), (tridiag.xarray, "factor"), (d.tridiag, "scan")):
        with pytest.raises(
            AttributeError, match=rf"by labels there are .*solve.* Call tridiag\.{verb} with the \.data of"
        ):
            getattr(owner, verb)
    with pytest.raises(
        AttributeError, match=r"no attribute 'slogdet'; call tridiag\.xarray\.slogdet, of the diagonals"
    ):
        d.tridiag.slogdet  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'nonesuch'$"):
        d.tridiag.nonesuch  # noqa: B018
    matrix = tridiag.factor(1.0, np.full(6, 4.0), 1.0, axis=d.get_axis_num("z"))
    np.testing.assert_allclose(matrix.solve(d.data), d.tridiag.solve(1.0, 4.0, 1.0, dim="z"))


@pytest.mark.parametrize("chunks", [{"t": 1, "x": 2}, {"z": 1, "x": 2}])
def test_lazy_in_lazy_out(chunks: dict[str, int]) -> None:
    """Nothing is computed, chunks stay as they are."""
    da = pytest.importorskip("dask.array")
    d = D.chunk(chunks)
    for found, wanted in (
        (labelled.solve(A, B.transpose("x", "z"), C, d, dim="z"), labelled.solve(A, B, C, D, dim="z")),
        (labelled.solve(A.chunk({"x": 2}), B, -1.0, d, dim="z"), labelled.solve(A, B, -1.0, D, dim="z")),
        (labelled.matmul(A, B, C, d, dim="z"), labelled.matmul(A, B, C, D, dim="z")),
        (labelled.linear_recurrence(A, d, dim="z"), labelled.linear_recurrence(A, D, dim="z")),
        (d.tridiag.logcumsumexp(dim="z"), labelled.logcumsumexp(D, dim="z")),
    ):
        assert isinstance(found.data, da.Array) and found.chunks == d.chunks
        xr.testing.assert_allclose(found, wanted)
        assert found.attrs == wanted.attrs
    lazy = labelled.slogdet(A, B.chunk({"x": 1}), C, dim="z")
    for one, other in zip(lazy, labelled.slogdet(A, B, C, dim="z"), strict=True):
        assert isinstance(one.data, da.Array)
        xr.testing.assert_allclose(one, other)
