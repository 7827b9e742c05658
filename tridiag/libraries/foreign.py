"""What is taken as an array, and what is refused by name: types that mean more than their entries, or lie elsewhere.

Taken are arrays of NumPy, JAX, PyTorch and CuPy, numbers, sequences of those, and columns in host memory (`PLAIN`).
Whatever else offers itself as an array would come back as another one, without its units, labels or blocks. Types are
looked at, never values: the answers are kept.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

import numpy as np

Shape = tuple[int, ...]

PLAIN = ("pandas", "polars", "pyarrow")  # whose columns and tables NumPy takes as they are
EAGER = ("EagerTensor", "ResourceVariable")  # of TensorFlow
OFFERS = (
    "__array__", "__array_interface__", "__array_struct__", "__array_ufunc__", "__array_function__",
    "__array_namespace__", "__cuda_array_interface__", "__dlpack__",
)  # fmt: skip
# tensors with which PyTorch compiles; outside of that they have no memory (`tridiag.libraries.torch.settled`)
COMPILING = ("torch._subclasses.fake_tensor.FakeTensor", "torch._subclasses.functional_tensor.FunctionalTensor")

SPARSE = "is a sparse matrix; pass {dense}"
SPARSE_ARRAY = "is a sparse array ({kind}); pass {dense}"
STORED = "is an array in a file or a store ({kind}); read it with {name}[...]"
LAZY = "whose blocks are not computed yet; pass {name}.compute()"
UNITS = "is a quantity with units ({kind}); pass its numbers, in units that go together: "
REFERENCE = "is a mutable reference ({kind}); pass what it holds, {name}[...]"
# the beginning of a type's full name, and what is said of an argument of such a type
NAMED = {
    "scipy.sparse.": SPARSE,
    "cupyx.scipy.sparse.": SPARSE,
    "jax.experimental.sparse.": SPARSE_ARRAY,
    "sparse.": SPARSE_ARRAY,
    "jax.ShapeDtypeStruct": "is a jax.ShapeDtypeStruct, which has no numbers; pass it through jax.eval_shape",
    "jax._src.core.Ref": REFERENCE,
    "numpy.ma.": "is a masked array; pass {masked}",
    "torch.distributed._functional_collectives.": "is a tensor that is still to come ({kind}); pass {name}.wait()",
    "torch.distributed.": "is a tensor whose entries are distributed ({kind}); pass {name}.to_local() where each "
    "device has whole systems, or {name}.full_tensor(); solve, matmul, slogdet and recurrences take DTensors where "
    "all their arrays are, but for singular='perturb'",
    "torch.masked.": "is a masked tensor; pass {name}.get_data(), and the rows to keep as where={name}.get_mask()",
    "torch.nested.": "is a nested tensor, whose rows differ in length; pass torch.nested.to_padded_tensor({name}, 0.0) "
    "and the rows to keep as where=",
    "torch.fx.": "is a {kind}, which stands for a tensor and has neither shape nor numbers; record the function with "
    "torch.fx.experimental.proxy_tensor.make_fx, or with torch.export",
    "dask.array.": "is a Dask array, which solve, matmul, slogdet, linear_recurrence, log_linear_recurrence and "
    f"logcumsumexp take, and this does not, {LAZY}, or map it with dask.array.map_blocks, whole systems in each",
    "dask.": f"is a collection of Dask ({{kind}}), {LAZY}",
    "cubed.": f"is an array of Cubed, {LAZY}, or map tridiag with cubed.map_blocks, whole systems in each",
    "xarray.": "is a labelled array ({kind}), whose axes have names; solve, matmul, slogdet, linear_recurrence, "
    "log_linear_recurrence and logcumsumexp of tridiag.xarray take it, with dim=... in place of axis, and keep the "
    "labels; to other verbs pass {name}.values",
    "pint.": UNITS + "{name}.magnitude",
    "astropy.units.": UNITS + "{name}.value",
    "unyt.": UNITS + "{name}.value",
    "awkward.": "is an array of Awkward, whose rows may differ in length; pass awkward.to_numpy({name})",
    "zarr.": STORED,
    "h5py.": STORED,
    "netCDF4.": STORED,
    "tensorstore.": STORED,
}


# by the name of an argument: what to pass where it is a masked array; of systems the rows to keep
MASKED = {
    "y": "y.filled(numpy.nan): NaN is what was not observed",
    "scores": "scores.filled(-numpy.inf), which forbids what is masked, or lengths= where sequences are padded",
    "x": "x.filled(...) with the numbers that are to stand for what is missing; matmul also takes where=~x.mask",
    "where": "where.filled(False), which takes out what is masked",
    "out": "out.data to write to",
    **dict.fromkeys("abcd", "{name}.data, and the rows to keep as where=~{name}.mask"),
}


DIAGONALS = "abc"


def instead_of_a_mask(name: str) -> str:
    """What to pass in place of a masked array."""
    known = MASKED.get(name, "{name}.filled(...) with the numbers that are to stand for what is missing")
    return known.format(name=name)


def instead_of_sparse(name: str, kind: type) -> str:
    """What to pass in place of a sparse array: of a matrix its diagonals."""
    if name not in DIAGONALS:
        return f"a dense array, as {name}.{'toarray' if hasattr(kind, 'toarray') else 'todense'}() is"
    found = "its three diagonals as dense arrays of length n"
    return found + (", a[1:] = A.diagonal(-1), b = A.diagonal(), c[:-1] = A.diagonal(1)" if takes_offsets(kind) else "")


def takes_offsets(kind: type) -> bool:
    """Whether a sparse matrix has diagonals by their offsets, as SciPy's have."""
    return ".sparse." in full_name(kind) and hasattr(kind, "diagonal")


def wanted(name: str) -> str:
    """What an argument is made of."""
    if name.partition("[")[0] == "where":
        return "booleans: an array, or a list of booleans, True for rows to keep"
    return "numbers: an array, one number, or a list of numbers"


def refusal(kind: type) -> str | None:
    """What is said of an argument of this type, as a template of its name; None: it is taken."""
    names = [full_name(base) for base in kind.__mro__]
    for begins, reason in NAMED.items():
        if any(f"{name}.".startswith(begins) for name in names):
            return reason
    if overrides(kind):
        return (
            "is a {kind}, whose operations are its own: they would be lost; pass the plain array of its numbers, as "
            + ("numpy.asarray({name})" if issubclass(kind, np.ndarray) else "a torch.Tensor")
        )
    return None


def refusal_of_stranger(kind: type) -> str | None:
    """The same for a type of none of the libraries."""
    if issubclass(kind, Iterator):
        return "is a {kind}, whose values can be read only once; pass an array, as numpy.fromiter({name}, float) makes"
    if issubclass(kind, str | bytes | Mapping | Set):
        return "is a {kind}; wanted {wanted}"
    roots = {base.__module__.partition(".")[0] for base in kind.__mro__}
    eager = "tensorflow" in roots and any(base.__name__ in EAGER for base in kind.__mro__)
    if eager or roots.intersection(PLAIN) or issubclass(kind, np.ndarray | np.generic):
        return None
    if any(hasattr(kind, offer) for offer in OFFERS):
        return (
            "is a {kind}, which is no array of NumPy, JAX, PyTorch or CuPy; convert it, as with numpy.asarray({name}), "
            "if its numbers are all that it means"
        )
    return None


def overrides(kind: type) -> bool:
    """Whether a subclass gives operations on arrays another meaning, as one with units does."""
    if issubclass(kind, np.ndarray):
        return any(getattr(kind, name) is not getattr(np.ndarray, name) for name in OFFERS[3:5])
    tensor: Any = getattr(sys.modules.get("torch"), "Tensor", None)
    if tensor is None or not issubclass(kind, tensor) or full_name(kind) in COMPILING:
        return False
    return getattr(kind, "__torch_dispatch__", None) is not tensor.__torch_dispatch__


def full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def check_elements(name: str, x: Any, owner: Callable[[str, type], str | None], taken: tuple[str, ...]) -> Shape:
    """The shape of a list or tuple that holds, at any depth, numbers and arrays of the libraries ``taken``.

    What holds anything else, or parts that differ in shape, is refused.
    """
    shapes: dict[Shape, str] = {}  # of the parts, and the first that has it
    for kind in {*map(type, x)}:
        parts = [(f"{name}[{k}]", part) for k, part in enumerate(x) if type(part) is kind]
        if kind in (list, tuple):
            for label, part in parts:
                shapes.setdefault(check_elements(label, part, owner, taken), label)
            continue
        first = parts[0][0]
        if kind is type(None):
            raise TypeError(f"{first} is None; wanted a number")
        library = owner(first, kind)
        if library is not None and library not in taken:
            raise TypeError(
                f"{first} is a {library} array in a {type(x).__name__}; pass one array, as {library}.stack makes it"
            )
        if library is None or hasattr(kind, "shape"):
            for label, part in parts if library else parts[:1]:
                shapes.setdefault(tuple(getattr(part, "shape", ())), label)
    if len(shapes) > 1:
        told = ", ".join(f"{label} has {shape}" for shape, label in [*shapes.items()][:2])
        raise ValueError(f"{name} is a {type(x).__name__} whose parts differ in shape: {told}; pad them to one shape")
    return (len(x), *next(iter(shapes), ()))
