"""NumPy's spelling of the array operations, and how its arguments become systems."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from tridiag.libraries import place as place
from tridiag.libraries.arrays import Entry, Taken, check_sequence, name_in_words, refuse_dtype
from tridiag.libraries.indexing import Indexing

SCALARS = (int, float, complex)


def in_double(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """The function by way of double precision: NumPy's own of float32 are up to 2.5 (exp) and 3.9 units off (log)."""

    def rounded(x: Any) -> Any:
        return function(x.astype(np.float64)).astype(np.float32) if x.dtype == np.float32 else function(x)

    return rounded


class Operations(Indexing):
    """Methods of the class are those of its heirs too: of libraries that spell their functions as NumPy does."""

    xp: ClassVar[Any] = np
    where: Any = staticmethod(np.where)
    zero = vanished = staticmethod(np.zeros_like)
    one = staticmethod(np.ones_like)
    broadcast = staticmethod(np.broadcast_to)
    all = staticmethod(np.all)
    any = staticmethod(np.any)
    sign = staticmethod(np.sign)
    unsqueeze = staticmethod(np.expand_dims)
    transpose = staticmethod(np.transpose)
    reshape = staticmethod(np.reshape)
    copy = staticmethod(np.array)
    exp = staticmethod(in_double(np.exp))
    log = staticmethod(in_double(np.log))
    cos = staticmethod(np.cos)
    sin = staticmethod(np.sin)
    rint = staticmethod(np.rint)
    larger = staticmethod(np.maximum)
    clip = staticmethod(np.clip)

    @classmethod
    def some(cls, x: Any) -> bool:
        """Whether any is true."""
        return bool(cls.any(x))

    @staticmethod
    def converted(x: Any, like: Any) -> Any:
        """x in the dtype of another array."""
        return x.astype(like.dtype)

    @staticmethod
    def exponent_of(x: Any) -> Any:
        """e with x = m 2**e, m from 1/2 to 1, in double precision; 0 of 0."""
        return np.frexp(x)[1].astype(np.float64)

    @staticmethod
    def range_of_sizes(x: Any) -> tuple[Any, Any]:
        """The smallest and the largest absolute value."""
        sizes = abs(x)
        return sizes.min(), sizes.max()

    @staticmethod
    def parts_of(x: Any) -> tuple[Any, Any]:
        """m and e with x = m 2**e, m from 3/4 to 3/2, for normal positive x; some numbers for others."""
        kind, digits, middle = (np.int64, 52, 0x3FE8 << 48) if x.dtype == np.float64 else (np.int32, 23, 0x3F40 << 16)
        bits: Any = np.asarray(x).view(kind)
        exponent = (bits - middle) >> digits
        return (bits - (exponent << digits)).view(x.dtype), exponent.astype(x.dtype)

    @staticmethod
    def power_of_two(exponent: Any) -> Any:
        """2**exponent for integers in the range of normal numbers."""
        return np.ldexp(np.ones((), exponent.dtype), exponent.astype(np.int32))

    @staticmethod
    def size(x: Any) -> Any:
        """|Re x| + |Im x|, LAPACK's measure of a pivot."""
        return abs(x.real) + abs(x.imag) if x.dtype.kind == "c" else abs(x)

    @staticmethod
    def quotient(x: Any, y: Any) -> Any:
        """x / y, at the ends of the range as well, where NumPy's way to divide complex numbers under- or overflows."""
        if not np.iscomplexobj(y):
            return x / y
        info, size = np.finfo(y.dtype), Operations.size
        small, large = zip(*((size(z) < info.tiny / info.eps, size(z) > 1 / info.tiny) for z in (x, y)), strict=True)
        if not any(where.any() for where in (*small, *large)):
            return x / y
        above, below = (np.where(less, 1 / info.eps, info.dtype.type(0.25)) for less in small)
        return x * above / (y * below) * (below / above)

    @staticmethod
    def running_maximum(x: Any, axis: int, reverse: bool) -> Any:
        """The largest value up to each, from one end of the axis or the other."""
        turned = np.flip(x, axis) if reverse else x
        found = np.maximum.accumulate(turned, axis)
        return np.flip(found, axis) if reverse else found

    @classmethod
    def log_abs(cls, x: Any) -> Any:
        return cls.log(abs(x))

    @classmethod
    def concatenate(cls, parts: Any, axis: int) -> Any:
        return cls.xp.concatenate(parts, axis=axis)

    @classmethod
    def moved(cls, x: Any, first: Any, axis: int, backward: bool) -> Any:
        """The rows of x moved to make room for the ``first`` ones, towards the end of the axis or its beginning."""
        n, count = x.shape[axis], first.shape[axis]
        kept = cls.slice(x, slice(count, n) if backward else slice(0, n - count), axis)
        return cls.concatenate((kept, first) if backward else (first, kept), axis)

    @classmethod
    def take(cls, x: Any, rows: Any, axis: int) -> Any:
        return cls.xp.take(x, rows, axis)

    @classmethod
    def stretch(cls, x: Any, n: int, axis: int) -> Any:
        return cls.broadcast(x, (*x.shape[:axis], n, *x.shape[axis + 1 :]))

    @classmethod
    def positions(cls, n: int, rank: int, axis: int, like: Any) -> Any:
        return cls.xp.arange(n).reshape((1,) * axis + (n,) + (1,) * (rank - 1 - axis))

    @classmethod
    def empty(cls, shape: Any, like: Any) -> Any:
        return cls.xp.empty(shape, like.dtype)

    @classmethod
    def solved(cls, matrix: Any, right: Any) -> Any:
        """matrix^-1 right, of one dense matrix and one vector."""
        return cls.xp.linalg.solve(matrix, right)

    @staticmethod
    def placed(x: Any, like: Any) -> Any:
        """A NumPy array where another one is."""
        return x

    @classmethod
    def full(cls, shape: Any, value: int, like: Any) -> Any:
        return cls.xp.full(shape, value, like.dtype)

    @classmethod
    def nan(cls, x: Any) -> Any:
        return cls.xp.full((), np.nan, x.dtype)

    @classmethod
    def zero_status(cls, x: Any) -> Any:
        return cls.xp.zeros(x.shape, np.int32)

    # the rest is of matrices whose rows and columns lie before all other axes

    @classmethod
    def product(cls, x: Any, y: Any) -> Any:
        return cls.xp.einsum("ij...,jk...->ik...", x, y)

    @classmethod
    def stack(cls, rows: Any) -> Any:
        return cls.xp.stack(cls.xp.broadcast_arrays(*rows))

    @classmethod
    def join(cls, x: Any, y: Any) -> Any:
        """Along the first axis; all others broadcast."""
        shape = np.broadcast_shapes(x.shape[1:], y.shape[1:])
        return cls.xp.concatenate([cls.broadcast(part, (len(part), *shape)) for part in (x, y)])

    @staticmethod
    def keep(x: Any) -> Any:
        return x

    @classmethod
    def identity(cls, like: Any) -> Any:
        return cls.xp.eye(len(like), dtype=like.dtype).reshape(*like.shape[:2], *(1,) * (like.ndim - 2))

    @staticmethod
    def symmetric(x: Any) -> Any:
        return (x + x.swapaxes(0, 1)) / 2


def taking(names: Sequence[str], kinds: Sequence[type]) -> Callable[..., Taken]:
    """How arguments of these types are taken."""
    *entries, mask = kinds
    if {*entries} == {np.ndarray} and mask in (np.ndarray, type(None)):
        return take_arrays
    named = enumerate(zip((*names, "where"), kinds, strict=True))
    return functools.partial(take, [(k, name) for k, (name, kind) in named if issubclass(kind, list | tuple)])


def take_arrays(given: list[Any], where: Any) -> Taken:
    """Arrays as they are: their dtypes and shapes are all that a plan depends on."""
    entries = [(x.dtype, x.shape) for x in given]
    return given, where, (*entries, None if where is None else (where.dtype, where.shape)), None


def take(sequences: Sequence[tuple[int, str]], given: list[Any], where: Any) -> Taken:
    """Everything becomes an array. A scalar promotes as a scalar, before NumPy 2 by its value: hence the setting."""
    for k, name in sequences:
        check_sequence(name, (*given, where)[k], "numpy")
    given = [x if isinstance(x, SCALARS) else np.asarray(x) for x in given]
    try:
        promoted = np.result_type(*given)
    except TypeError:  # with a dtype that `check_dtype` refuses
        promoted = None
    given, where, entries, _ = take_arrays([np.asarray(x) for x in given], None if where is None else np.asarray(where))
    return given, where, entries, promoted


def check_dtype(name: str, entry: Entry) -> None:
    """Refuse what cannot be solved in."""
    dtype = entry[0]
    if dtype.name == "bfloat16":  # of ml_dtypes
        raise TypeError(
            f"{name} has dtype bfloat16, which NumPy promotes with few others; pass {name}.astype(numpy.float32), or a "
            "tensor of PyTorch or an array of JAX, which know it"
        )
    if dtype.kind not in "iufc" or dtype.itemsize > (16 if dtype.kind == "c" else 8):
        refuse_dtype(name, name_in_words(dtype))


def result_dtype(entries: Sequence[Entry], promoted: Any) -> str:
    """NumPy's promotion; integers become float64."""
    if promoted is None:
        promoted = np.result_type(*(np.zeros((), dtype) if shape == () else dtype for dtype, shape in entries))
    return "float64" if promoted.kind in "iu" else str(promoted.name)


def integer_dtype(entries: Sequence[Entry], promoted: Any) -> str | None:
    """That of sums of integers, as `numpy.cumsum` has it; None where some arguments are none."""
    if promoted is None:
        promoted = np.result_type(*(np.zeros((), dtype) if shape == () else dtype for dtype, shape in entries))
    return {"i": "int64", "u": "uint64"}.get(promoted.kind)


def normal(generator: Any, shape: Sequence[int], like: Any) -> Any:
    """Standard normal numbers, drawn by a `numpy.random.Generator`."""
    if not isinstance(generator, np.random.Generator):
        raise TypeError(f"generator is {generator!r}; NumPy arrays want a numpy.random.Generator, as of default_rng()")
    return generator.standard_normal(shape).astype(like.dtype)


def dtype(name: str) -> Any:
    return np.dtype(name)


def has_dtype(entry: Entry, name: str) -> bool:
    return bool(entry[0] == np.dtype(name))


def cast(x: Any, dtype: str) -> Any:
    with np.errstate(over="ignore", under="ignore"):  # as where nothing is cast: no kernel warns
        return np.asarray(x, np.dtype(dtype))


def device(entries: Sequence[Entry], promoted: Any) -> str:
    return "cpu"


def traced(entries: Sequence[Entry]) -> bool:
    return False


def is_traced(x: Any) -> bool:
    return False
