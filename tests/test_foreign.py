"""That what is no array of a known library, or more than one, is refused by name, and gives no wrong number."""

import array
import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tridiag
from tridiag import conventions, kalman

ONES = np.ones(6)
WALK = dict(F=[[1.0]], H=[[1.0]], Q=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
VERBS: dict[str, Callable[[Any], Any]] = {
    "solve": lambda x: tridiag.solve(1.0, 4.0, 1.0, x),
    "solve, a coefficient": lambda x: tridiag.solve(1.0, x, 1.0, 1.0),
    "solve, where": lambda x: tridiag.solve(1.0, 4.0, 1.0, ONES, where=x),
    "solve, a list": lambda x: tridiag.solve(1.0, 4.0, 1.0, [[x], [x]]),
    "factor": lambda x: tridiag.factor(1.0, x, 1.0),
    "factor, then solve": lambda x: tridiag.factor(1.0, 4 * ONES, 1.0).solve(x),
    "matmul": lambda x: tridiag.matmul(1.0, 4.0, 1.0, x),
    "slogdet": lambda x: tridiag.slogdet(1.0, x, 1.0),
    "solve_block": lambda x: tridiag.solve_block(np.eye(6), np.eye(6), np.eye(6), x),
    "linear_recurrence": lambda x: tridiag.linear_recurrence(0.5, x),
    "linear_recurrence, init": lambda x: tridiag.linear_recurrence((0.5, 0.5), ONES, (x, x)),
    "log_linear_recurrence": lambda x: tridiag.log_linear_recurrence(x, ONES),
    "logcumsumexp": tridiag.logcumsumexp,
    "matrix_recurrence": lambda x: tridiag.matrix_recurrence(np.eye(6), x),
    "selective_scan": lambda x: tridiag.selective_scan(0.5, x, 1.0, np.ones(2)),
    "kalman": lambda x: kalman.log_likelihood(x, **WALK),
    "smith_waterman": lambda x: tridiag.smith_waterman(x, gap=-1.0),
    "smith_waterman, lengths": lambda x: tridiag.smith_waterman(np.ones((6, 6)), x, gap=-1.0),
    "conventions": lambda x: conventions.from_lapack(ONES[1:], x, ONES[1:]),
    "scan": lambda x: tridiag.scan(lambda carry, row: (carry, row), 0.0, {"x": x}),
}


class Offering:
    """What NumPy would take for an array."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.ones(6)


class OnDevice:
    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        raise AssertionError("not called")


class Measured(np.ndarray):
    """A subclass with operations of its own, as one with units is."""

    def __array_ufunc__(self, *given: Any, **options: Any) -> Any:
        raise AssertionError("not called")


def pretended(name: str) -> Any:
    """An object of a library that need not be here."""
    module, _, kind = name.rpartition(".")
    return type(kind, (Offering,), {"__module__": module})()


PRETENDED = {
    "pint.registry.Quantity": r"is a quantity with units \(pint.registry.Quantity\); pass .*\.magnitude",
    "unyt.array.unyt_quantity": "is a quantity with units",
    "awkward.highlevel.Array": r"is an array of Awkward, .* awkward.to_numpy\(",
    "zarr.core.array.Array": r"is an array in a file or a store \(zarr.core.array.Array\); read it with .*\[...\]",
    "h5py._hl.dataset.Dataset": "is an array in a file or a store",
    "netCDF4._netCDF4.Variable": "is an array in a file or a store",
    "tensorstore.TensorStore": "is an array in a file or a store",
    "cubed.array_api.array_object.Array": r"is an array of Cubed, .* pass .*\.compute\(\)",
    "dask.dataframe.dask_expr._collection.Series": "is a collection of Dask",
    "sparse.numba_backend._coo.core.COO": "is a sparse array .*; pass (its three diagonals|a dense array)",
    "cupyx.scipy.sparse.csr_matrix": "is a sparse matrix; pass (its three diagonals|a dense array)",
    "sympy.matrices.dense.MutableDenseMatrix": r"is a .*, which is no array of NumPy.*; .* numpy.asarray\(",
    "tensorflow.python.ops.ragged.ragged_tensor.RaggedTensor": "is a .*, which is no array",
}


def made(name: str) -> Any:
    """A value of a type that is refused, with six entries."""
    if name == "an offer":
        return Offering()
    if name == "on a device":
        return OnDevice()
    if name == "measured":
        return ONES.view(Measured)
    if name == "masked":
        return np.ma.masked_array(ONES)
    if name == "dask":
        return pytest.importorskip("dask.array").ones(6)
    if name == "scipy.sparse":
        return pytest.importorskip("scipy.sparse").eye_array(6).tocsr()
    if name == "jax.sparse":
        return pytest.importorskip("jax.experimental.sparse").BCOO.fromdense(ONES)
    xarray = pytest.importorskip("xarray")
    if name == "DataArray":
        return xarray.DataArray(ONES)
    return xarray.Variable("x", ONES) if name == "Variable" else xarray.Dataset({"y": ("x", ONES)})


MADE = {
    "an offer": r"is a test_foreign.Offering, which is no array .* numpy.asarray\(",
    "on a device": "is a test_foreign.OnDevice, which is no array",
    "measured": "is a test_foreign.Measured, whose operations are its own",
    "masked": r"is a masked array; pass \S+\.(data, and the rows to keep as where=~|filled\()",
    "dask": r"is a Dask array, .* and this does not, .* pass .*\.compute\(\), or .* dask.array.map_blocks",
    "scipy.sparse": "is a sparse matrix; pass (its three diagonals|a dense array)",
    "jax.sparse": "is a sparse array .*; pass (its three diagonals|a dense array)",
    "DataArray": r"is a labelled array .* solve, .* of tridiag\.xarray .* dim=\.\.\. .* pass .*\.values",
    "Variable": "is a labelled array",
    "Dataset": "is a labelled array",
}

TAKE_DASK = ("solve", "matmul", "slogdet", "linear_recurrence", "log_linear_recurrence", "logcumsumexp")


@pytest.mark.parametrize("verb", VERBS)
def test_strangers_are_refused_by_name(verb: str) -> None:
    """Of every library that is here, and of others by the name of their types; argument and way are told."""
    if verb == "scan":
        pytest.importorskip("jax")
    for name, told in {**MADE, **PRETENDED}.items():
        if (verb, name) == ("scan", "jax.sparse"):
            continue  # a pytree, whose leaves are scanned as `jax.lax.scan` does
        if name == "dask" and verb.partition(",")[0] in TAKE_DASK and verb != "solve, a list":
            continue  # test_dask.py
        try:
            value = made(name) if name in MADE else pretended(name)
        except pytest.skip.Exception:
            continue
        with pytest.raises(TypeError, match=rf"^\w+(\[\S*\])* {told}"):
            VERBS[verb](value)


NO_ARRAYS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a generator": (
        lambda: (x for x in ONES),
        TypeError,
        r"is a generator, .* only once; .* numpy.fromiter\(.*, float",
    ),
    "a map": (lambda: map(float, ONES), TypeError, "is a map, whose values can be read only once"),
    "a dict": (lambda: {"d": ONES}, TypeError, "is a dict; wanted (numbers|booleans)"),
    "a set": (lambda: {1.0, 2.0}, TypeError, "is a set; wanted (numbers|booleans)"),
    "a word": (lambda: "ones", TypeError, "is a str; wanted (numbers|booleans)"),
    "a list with None": (lambda: [1.0, None] * 3, TypeError, "is None; wanted a number"),
    "lists of two lengths": (
        lambda: [[1.0, 2.0], [1.0, 2.0, 3.0]],
        ValueError,
        r"is a list whose parts differ in shape: .*\[0\] has \(2,\), .*\[1\] has \(3,\); pad them to one shape",
    ),
    "a number among rows": (lambda: [[1.0, 2.0], 1.0], ValueError, "is a list whose parts differ in shape"),
}


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("scan", "conventions")])
def test_what_is_no_array_is_named(verb: str) -> None:
    """Not an error of NumPy's from within, which tells no argument."""
    for made, kind, told in NO_ARRAYS.values():
        with pytest.raises(kind, match=rf"^\w+(\[\S*\])* {told}"):
            VERBS[verb](made())


@pytest.mark.parametrize("verb", [verb for verb in VERBS if "where" not in verb and "lengths" not in verb])
@pytest.mark.parametrize("library", ["numpy", "jax", "torch"])
def test_none_is_named(verb: str, library: str) -> None:
    if verb in ("scan", "conventions") or (library != "numpy" and verb != "solve, a coefficient"):
        pytest.skip("None is an empty tree to a scan; of other libraries one verb")
    if library == "numpy":
        with pytest.raises(TypeError, match=r"^\w+(\[\S*\])* is None; wanted"):
            VERBS[verb](None)
    else:
        ones = pytest.importorskip("jax.numpy" if library == "jax" else library).ones(6)
        with pytest.raises(TypeError, match=r"^b is None; wanted"):
            tridiag.solve(1.0, None, 1.0, ones)
        with pytest.raises((TypeError, ValueError), match=r"^b is a list whose parts|\(b: list, d: torch\)"):
            tridiag.solve(1.0, [[1.0, 2.0], [1.0]], 1.0, ones)


MASKED = {
    "solve": r"where=~d\.mask",
    "kalman": r"pass y\.filled\(numpy\.nan\): NaN is what was not observed$",
    "linear_recurrence": r"pass x\.filled\(",
    "smith_waterman": r"pass scores\.filled\(-numpy\.inf\)",
    "solve, where": r"pass where\.filled\(False\)",
}


@pytest.mark.parametrize("verb", MASKED)
def test_masked_arrays_are_told_what_the_verb_has(verb: str) -> None:
    with pytest.raises(TypeError, match=MASKED[verb]):
        VERBS[verb](made("masked"))


def test_the_vectors_of_a_product_are_called_x() -> None:
    """As in its signature; in errors of shapes, dtypes and columns."""
    torch = pytest.importorskip("torch")
    for ones in (np.ones, torch.ones):
        for error, told, x in (
            (ValueError, r"b \(7,\), c \(\), x \(2, 6\); x has length 6", ones((2, 6))),
            (ValueError, r"x has shape \(7, 1\), length 1 along axis 1, where b has 7 rows", ones((7, 1))),
            (TypeError, "x has dtype bool", ones((2, 7), dtype={np.ones: bool, torch.ones: torch.bool}[ones])),
        ):
            with pytest.raises(error, match=told):
                tridiag.matmul(1.0, ones(7), 1.0, x)


def test_they_take_no_result() -> None:
    for name in MADE:
        try:
            out = made(name)
        except pytest.skip.Exception:
            continue
        with pytest.raises(TypeError, match=r"^out is a"):
            tridiag.solve(1.0, 4.0, 1.0, ONES, out=out)


def test_what_is_taken() -> None:
    """As NumPy takes it: subclasses without a meaning of their own, buffers, sequences, columns."""
    wanted = tridiag.solve(1.0, 4.0, 1.0, ONES)
    rows = [np.ones(6), array.array("d", ONES), memoryview(ONES), [1.0] * 6, (1,) * 6, range(1, 7)]
    rows += [ONES.view(np.recarray), ONES.view(type("Plain", (np.ndarray,), {})), list(ONES)]
    for d in rows[:5] + rows[6:]:
        np.testing.assert_array_equal(tridiag.solve(1.0, 4.0, 1.0, d), wanted)
    assert tridiag.solve(1.0, 4.0, 1.0, ONES[None].view(np.matrix)).shape == (1, 6)
    assert tridiag.solve(1.0, 4.0, 1.0, [ONES, ONES]).shape == (2, 6)
    assert tridiag.solve(1.0, [4.0] * 6, np.float64(1), np.ones((1, 6)), where=[True] * 6).shape == (1, 6)


def test_columns_of_pandas() -> None:
    """They are copied, and never written to."""
    pandas = pytest.importorskip("pandas")
    wanted = tridiag.solve(1.0, 4.0, 1.0, ONES)
    series = pandas.Series(ONES)
    for options in ({}, {"overwrite_d": True}):
        x = tridiag.solve(1.0, 4.0, 1.0, series, **options)
        assert type(x) is np.ndarray
        np.testing.assert_array_equal(x, wanted)
    assert (series == 1).all()
    assert tridiag.solve(1.0, 4.0, 1.0, pandas.DataFrame(np.ones((2, 6))), overwrite_d=True).shape == (2, 6)
    with pytest.raises(TypeError, match="out is a Series; wanted an array to write to"):
        tridiag.solve(1.0, 4.0, 1.0, ONES, out=series)


def test_eager_tensors_of_tensorflow_become_numpy_arrays() -> None:
    made = type("EagerTensor", (Offering,), {"__module__": "tensorflow.python.framework.ops"})()
    assert type(tridiag.solve(1.0, 4.0, 1.0, made)) is np.ndarray


def test_lists_of_arrays_of_another_library() -> None:
    """NumPy would make an array of them, and lose their device and their derivatives."""
    for library in ("torch", "jax.numpy"):
        ones = pytest.importorskip(library).ones(6)
        name = library.partition(".")[0]
        with pytest.raises(TypeError, match=rf"d\[0\] is a {name} array in a list; pass one array, as {name}.stack"):
            tridiag.solve(1.0, 4.0, 1.0, [ones, ones])


# --------------------------------------------------------------------------------------------------------- PyTorch

TENSORS = {
    "sparse": (TypeError, r"d is a tensor of the layout sparse_coo; pass a dense one, as d.to_dense\(\) is"),
    "compressed": (TypeError, "d is a tensor of the layout sparse_csr"),
    "nested": (TypeError, "d is a tensor of the layout nested"),
    "jagged": (TypeError, "d is a nested tensor, .* pass torch.nested.to_padded_tensor"),
    "masked": (TypeError, r"d is a masked tensor; pass d.get_data\(\), .* where=d.get_mask\(\)"),
    "quantized": (TypeError, "d has dtype qint8"),
    "meta": (TypeError, "d is a tensor on the device meta, which has a shape and no numbers; give it memory first"),
    "fake": (TypeError, "a FakeTensor has no memory to compute in"),
    "wrapped": (TypeError, "d is a .*Wrapped, whose operations are its own"),
    "freed": (ValueError, r"the memory of a tensor of shape \(2, 6\) was freed: its storage holds 0 bytes"),
    "shrunk": (ValueError, "its storage holds 40 bytes"),
}


def tensor(name: str) -> Any:
    """A tensor without the memory that kernels would read."""
    import torch

    x = torch.ones(2, 6).double()
    if name in ("freed", "shrunk"):
        x.untyped_storage().resize_(0 if name == "freed" else 40)
    elif name == "fake":
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            x = torch.ones(2, 6).double()
    elif name == "wrapped":

        class Wrapped(torch.Tensor):
            @classmethod
            def __torch_dispatch__(cls, *given: Any) -> Any:
                raise AssertionError("not called")

        x = torch.Tensor._make_wrapper_subclass(Wrapped, (2, 6))
    elif name == "masked":
        x = importlib.import_module("torch.masked").masked_tensor(x, x > 2)
    elif name in ("nested", "jagged"):
        layout = torch.jagged if name == "jagged" else torch.strided
        x = torch.nested.nested_tensor([x[0], x[0, :4]], layout=layout)
    elif name == "quantized":
        x = torch.quantize_per_tensor(x.float(), 0.1, 0, torch.qint8)
    elif name == "meta":
        x = x.to("meta")
    else:
        x = x.to_sparse() if name == "sparse" else x.to_sparse_csr()
    return x


@pytest.mark.filterwarnings("ignore")  # of prototypes
@pytest.mark.parametrize("name", TENSORS)
def test_tensors_without_memory(name: str) -> None:
    pytest.importorskip("torch")
    kind, told = TENSORS[name]
    d = tensor(name)
    with pytest.raises(kind, match=told):
        tridiag.solve(1.0, 4.0, 1.0, d)
    for verb in ("linear_recurrence", "logcumsumexp", "smith_waterman"):
        with pytest.raises((TypeError, ValueError)):
            VERBS[verb](d)


@pytest.mark.filterwarnings("ignore")  # of prototypes
@pytest.mark.parametrize("name", ["sparse", "meta"])
@pytest.mark.parametrize("verb", ["solve", "factor", "matmul", "linear_recurrence", "logcumsumexp"])
def test_results_are_written_to_no_tensor_without_memory(verb: str, name: str) -> None:
    """A product would be written to nothing, without a word."""
    torch = pytest.importorskip("torch")
    out, d = tensor(name), torch.ones(6, dtype=torch.float64)
    calls: dict[str, Callable[[], Any]] = {
        "solve": lambda: tridiag.solve(1.0, 4.0, 1.0, d, out=out),
        "factor": lambda: tridiag.factor(1.0, 4 * d, 1.0).solve(d, out=out),
        "matmul": lambda: tridiag.matmul(1.0, 4.0, 1.0, d, out=out),
        "linear_recurrence": lambda: tridiag.linear_recurrence(0.5, d, out=out),
        "logcumsumexp": lambda: tridiag.logcumsumexp(d, out=out),
    }
    for _ in range(2):
        with pytest.raises(TypeError, match=r"out is a tensor o(f the layout sparse|n the device meta)"):
            calls[verb]()


def test_a_product_of_tensors_some_of_which_have_no_memory() -> None:
    """They have all of them where PyTorch traces: there matmul is traced through."""
    pytest.importorskip("torch")
    with pytest.raises(TypeError, match="a FakeTensor has no memory to compute in"):
        tridiag.matmul(1.0, 4.0, 1.0, tensor("fake"))


def test_arrays_of_jax_that_hold_no_numbers() -> None:
    """Random keys and mutable references, traced or not, in every verb."""
    jax = pytest.importorskip("jax")
    keys = jax.random.split(jax.random.key(0), 6)
    for verb in ("solve", "matmul", "linear_recurrence", "logcumsumexp"):
        for call in (VERBS[verb], jax.jit(VERBS[verb])):
            with pytest.raises(TypeError, match="has dtype key<fry>; wanted a numeric dtype"):
                call(keys)
            if hasattr(jax, "new_ref"):
                with pytest.raises(TypeError, match=r"is a mutable reference \(.*\); pass what it holds, .\[...\]"):
                    call(jax.new_ref(jax.numpy.ones(6)))


def test_freed_tensors_are_not_written_to() -> None:
    torch = pytest.importorskip("torch")
    for x in (tensor("freed"), tensor("shrunk")):
        with pytest.raises(ValueError, match="was freed"):
            tridiag.solve(1.0, 4.0, 1.0, torch.ones(2, 6).double(), out=x)
        with pytest.raises(ValueError, match="was freed"):
            tridiag.solve(1.0, 4.0, 1.0, x, overwrite_d=True)


def test_zeros_that_take_no_memory() -> None:
    """Derivatives make them."""
    torch = pytest.importorskip("torch")
    assert not tridiag.solve(1.0, 4.0, 1.0, torch._efficientzerotensor((6,))).any()


def test_subclasses_of_tensors_with_memory() -> None:
    torch = pytest.importorskip("torch")
    x = torch.ones(2, 6)
    wanted = tridiag.solve(1.0, 4.0, 1.0, x)
    for d in (x.as_subclass(type("Plain", (torch.Tensor,), {})), torch.nn.Parameter(x)):
        assert torch.equal(tridiag.solve(1.0, 4.0, 1.0, d).detach().as_subclass(torch.Tensor), wanted)


@pytest.fixture
def group(tmp_path: Any) -> Iterator[Any]:
    """A mesh of one process."""
    distributed = pytest.importorskip("torch.distributed")
    if not distributed.is_available() or not distributed.is_gloo_available():
        pytest.skip("needs gloo")
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    from torch.distributed.device_mesh import init_device_mesh

    yield init_device_mesh("cpu", (1,))
    distributed.destroy_process_group()


@pytest.mark.skipif(sys.platform != "linux", reason="gloo")
def test_distributed_tensors(group: Any) -> None:
    """Their own memory is at address 0; verbs that do not know them, and mixtures, say so (`four_processes.py`)."""
    import torch
    from torch.distributed.tensor import Shard, distribute_tensor

    x = distribute_tensor(torch.ones(2, 6), group, [Shard(0)])
    told = r"is a tensor whose entries are distributed \(torch.distributed.*DTensor\); pass \S+\.to_local\(\)"
    known = {"solve", "matmul", "slogdet", "linear_recurrence", "logcumsumexp"}
    for verb in [name for name in VERBS if name not in ("scan", "solve, where", "solve, a list", *known)]:
        with pytest.raises(TypeError, match=rf"{told}|log_a is a Tensor|x is a ndarray and log_a a DTensor"):
            VERBS[verb](x)
    with pytest.raises(TypeError, match=f"out {told}"):
        tridiag.solve(1.0, 4.0, 1.0, torch.ones(2, 6), out=x)
    wanted = tridiag.solve(1.0, 4.0, 1.0, torch.ones(2, 6))
    assert torch.equal(tridiag.solve(1.0, 4.0, 1.0, x.to_local()), wanted)
    assert torch.equal(tridiag.solve(1.0, 4.0, 1.0, x).to_local(), wanted)
