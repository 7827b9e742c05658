"""PyTorch's spelling of the array operations."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from tridiag.libraries import place as place
from tridiag.libraries.arrays import Entry, Taken, dtype_name, refuse_dtype
from tridiag.libraries.indexing import Loops


class Operations(Loops):
    zero = staticmethod(torch.zeros_like)
    one = staticmethod(torch.ones_like)
    broadcast = staticmethod(torch.broadcast_to)
    all = staticmethod(torch.all)
    any = staticmethod(torch.any)
    unsqueeze = staticmethod(torch.unsqueeze)
    transpose = staticmethod(torch.permute)
    reshape = staticmethod(torch.reshape)
    copy = staticmethod(torch.clone)
    exp = staticmethod(torch.exp)
    log = staticmethod(torch.log)
    cos = staticmethod(torch.cos)
    sin = staticmethod(torch.sin)
    rint = staticmethod(torch.round)
    larger = staticmethod(torch.maximum)
    clip = staticmethod(torch.clamp)

    @staticmethod
    def vanished(x: Any) -> Any:
        """0, with the derivative of x."""
        x = torch.where(torch.isfinite(x), x, 0)
        return x - x.detach()

    @classmethod
    def some(cls, x: Any) -> bool:
        """Whether any is true; True under `torch.vmap`, where it cannot be known."""
        try:
            return bool(torch.any(x))
        except RuntimeError:
            if not transformed():
                raise
            return True

    @staticmethod
    def converted(x: Any, like: Any) -> Any:
        """x in the dtype of another tensor."""
        return x.to(like.dtype)

    @staticmethod
    def exponent_of(x: Any) -> Any:
        """e with x = m 2**e, m from 1/2 to 1, in double precision; 0 of 0."""
        return torch.frexp(x.detach()).exponent.to(torch.float64)

    @staticmethod
    def range_of_sizes(x: Any) -> tuple[Any, Any]:
        """The smallest and the largest absolute value."""
        return torch.linalg.vector_norm(x, -math.inf), torch.linalg.vector_norm(x, math.inf)

    @staticmethod
    def parts_of(x: Any) -> tuple[Any, Any]:
        """m and e with x = m 2**e, m from 3/4 to 3/2, for normal positive x; some numbers for others."""
        kind, digits, middle = (
            (torch.int64, 52, 0x3FE8 << 48) if x.dtype == torch.float64 else (torch.int32, 23, 0x3F40 << 16)
        )
        bits = x.view(kind)
        exponent = (bits - middle) >> digits
        return (bits - (exponent << digits)).view(x.dtype), exponent.to(x.dtype)

    @staticmethod
    def power_of_two(exponent: Any) -> Any:
        """2**exponent for integers in the range of normal numbers, by the bits: `torch.ldexp` may round."""
        bits, digits, bias = (torch.int64, 52, 1023) if exponent.dtype == torch.float64 else (torch.int32, 23, 127)
        return ((exponent + bias).to(bits) << digits).view(exponent.dtype)

    @staticmethod
    def where(condition: Any, x: Any, y: Any) -> Any:
        if isinstance(condition, bool):
            return x if condition else y
        return torch.where(condition, x, y)

    @staticmethod
    def size(x: Any) -> Any:
        """|Re x| + |Im x|, LAPACK's measure of a pivot."""
        return x.real.abs() + x.imag.abs() if x.is_complex() else x.abs()

    @staticmethod
    def quotient(x: Any, y: Any) -> Any:
        """x / y, at the ends of the range as well, where torch's way to divide complex numbers under- or overflows."""
        if not y.is_complex():
            return x / y
        info, size = torch.finfo(y.dtype), Operations.size
        small, large = zip(*((size(z) < info.tiny / info.eps, size(z) > 1 / info.tiny) for z in (x, y)), strict=True)
        if not any(where.any() for where in (*small, *large)):
            return x / y
        one = torch.ones((), dtype=y.real.dtype, device=y.device)
        above, below = (torch.where(less, one / info.eps, one / 4) for less in small)
        return x * above / (y * below) * (below / above)

    @staticmethod
    def sign(x: Any) -> Any:
        return torch.where(x.isnan(), x, torch.sgn(x))  # torch calls the sign of NaN 0

    @staticmethod
    def running_maximum(x: Any, axis: int, reverse: bool) -> Any:
        """The largest value up to each, from one end of the axis or the other."""
        turned = x.flip(axis) if reverse else x
        found = turned.cummax(axis).values
        return found.flip(axis) if reverse else found

    @staticmethod
    def log_abs(x: Any) -> Any:
        return x.abs().log()

    @staticmethod
    def row(x: Any, i: int, axis: int) -> Any:
        return x.select(axis, i if x.shape[axis] != 1 else 0)

    @staticmethod
    def slice(x: Any, part: slice, axis: int) -> Any:
        return x.narrow(axis, part.start, part.stop - part.start)

    @staticmethod
    def store(x: Any, i: int, axis: int, row: Any) -> None:
        x.select(axis, i).copy_(row)

    @staticmethod
    def concatenate(parts: Any, axis: int) -> Any:
        return torch.cat(tuple(parts), dim=axis)

    @classmethod
    def moved(cls, x: Any, first: Any, axis: int, backward: bool) -> Any:
        """The rows of x moved to make room for the ``first`` ones, towards the end of the axis or its beginning."""
        n, count = x.shape[axis], first.shape[axis]
        kept = cls.slice(x, slice(count, n) if backward else slice(0, n - count), axis)
        return cls.concatenate((kept, first) if backward else (first, kept), axis)

    @staticmethod
    def take(x: Any, rows: Any, axis: int) -> Any:
        return x.index_select(axis, torch.tensor(rows, device=x.device))

    @staticmethod
    def stretch(x: Any, n: int, axis: int) -> Any:
        return x.expand((*x.shape[:axis], n, *x.shape[axis + 1 :]))

    @staticmethod
    def positions(n: int, rank: int, axis: int, like: Any) -> Any:
        return torch.arange(n, device=like.device).reshape((1,) * axis + (n,) + (1,) * (rank - 1 - axis))

    @staticmethod
    def at_most(x: Any, y: Any) -> Any:
        return x <= y

    @staticmethod
    def maximum(x: Any, axis: int) -> Any:
        return x.amax(dim=axis)

    @staticmethod
    def limits(x: Any) -> tuple[float, float]:
        info = torch.finfo(x.dtype)
        return float(info.eps), float(info.tiny)

    @staticmethod
    def empty(shape: Any, like: Any) -> Any:
        return torch.empty(shape, dtype=like.dtype, device=like.device)

    @staticmethod
    def solved(matrix: Any, right: Any) -> Any:
        """matrix^-1 right, of one dense matrix and one vector."""
        return torch.linalg.solve(matrix, right)

    @staticmethod
    def placed(x: Any, like: Any) -> Any:
        """A NumPy array as a tensor where another one is."""
        return torch.as_tensor(x, device=like.device)

    @staticmethod
    def full(shape: Any, value: int, like: Any) -> Any:
        return like.new_full(shape, value)

    @staticmethod
    def nan(x: Any) -> Any:
        return torch.full((), float("nan"), dtype=x.dtype, device=x.device)

    @staticmethod
    def zero_status(x: Any) -> Any:
        return torch.zeros(x.shape, dtype=torch.int32, device=x.device)

    # the rest is of matrices whose rows and columns lie before all other axes

    @staticmethod
    def product(x: Any, y: Any) -> Any:
        return torch.einsum("ij...,jk...->ik...", x, y)

    @staticmethod
    def contracted(x: Any, y: Any) -> Any:
        """x y^T, of matrices alone."""
        return x @ y.T

    @staticmethod
    def stack(rows: Any) -> Any:
        return torch.stack(torch.broadcast_tensors(*rows))

    @staticmethod
    def join(x: Any, y: Any) -> Any:
        """Along the first axis; all others broadcast."""
        shape = torch.broadcast_shapes(x.shape[1:], y.shape[1:])
        return torch.cat([part.expand(len(part), *shape) for part in (x, y)])

    @staticmethod
    def keep(x: Any) -> Any:
        return x

    @staticmethod
    def identity(like: Any) -> Any:
        one = torch.eye(len(like), dtype=like.dtype, device=like.device)
        return one.reshape(*like.shape[:2], *(1,) * (like.ndim - 2))

    @staticmethod
    def symmetric(x: Any) -> Any:
        return (x + x.swapaxes(0, 1)) / 2


def transformed() -> bool:
    """Whether tensors may be more than their entries: inside `torch.func`, or where derivatives are taken forward."""
    return forward_ad._current_level >= 0 or torch._C._functorch.peek_interpreter_stack() is not None


def differentiated(*arrays: Any) -> bool:
    """Whether a result of these tensors needs a gradient."""
    return torch.is_grad_enabled() and any([x.requires_grad for x in arrays])


def connected(y: Any, arguments: Any) -> Any:
    """A result that no entry counts in, as part of the graph of the arguments: their gradients are 0, and not None."""
    for x in arguments:
        if isinstance(x, torch.Tensor) and x.requires_grad:
            zero = x.reshape(-1)[:0].sum()
            y = y + (zero if y.is_complex() else zero.real)
    return y


INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = torch.float16, torch.bfloat16, torch.float32, torch.float64  # others promote with none
# which old versions have not
UNSIGNED = tuple(getattr(torch, name) for name in ("uint16", "uint32", "uint64") if hasattr(torch, name))
NUMBERS = {int: torch.float64, float: torch.float64, complex: torch.complex128}  # wide enough for Python's


META = "give it memory first, as torch.empty_like(..., device='cpu') and Module.to_empty do"


def taking(names: Sequence[str], kinds: Sequence[type]) -> Callable[..., Taken]:
    """How arguments of these types are taken."""
    return functools.partial(take, names)


def take(names: Sequence[str], given: list[Any], where: Any) -> Taken:
    """Tensors and Python scalars. Integers become the default dtype, which is a setting."""
    for name, x in zip((*names, "where"), (*given, where), strict=True):
        if isinstance(x, torch.Tensor):
            check_dense(name, x)
    given = [x.item() if isinstance(x, np.generic) else x for x in given]
    place = next((x.device for x in given if isinstance(x, torch.Tensor)), None)
    where = None if where is None else masked(where, place)
    entries = (*map(entry, given), None if where is None else entry(where))
    if place is not None and place.type != "cpu":  # which writes a number itself, so that nothing waits for it
        given = [torch.full((), x, dtype=NUMBERS[type(x)], device=place) if type(x) in NUMBERS else x for x in given]
    return given, where, entries, torch.get_default_dtype()


def check_dense(name: str, x: torch.Tensor) -> None:
    """Refuse a tensor that has no memory with strides: sparse, nested, on the device meta."""
    if x.layout is not torch.strided or x.is_nested:
        layout = "nested" if x.is_nested else str(x.layout).removeprefix("torch.")
        raise TypeError(f"{name} is a tensor of the layout {layout}; pass a dense one, as {name}.to_dense() is")
    if x.is_meta and not torch.compiler.is_compiling():
        refuse_meta(name)


def refuse_meta(name: str) -> None:
    raise TypeError(f"{name} is a tensor on the device meta, which has a shape and no numbers; {META}")


def masked(where: Any, place: torch.device | None) -> Any:
    """A mask as a tensor, which is where the others are."""
    if not isinstance(where, torch.Tensor):
        return torch.as_tensor(where, device=place)
    if place is not None and where.device != place:
        raise TypeError(f"the tensors are on different devices: {place}, {where.device}; move them to one")
    return where


def own(x: Any) -> Any:
    """A copy; that of a tensor has its derivatives."""
    if type(x) in (torch.Tensor, torch.nn.Parameter) and not transformed():
        settled(x)  # refuses what was freed: PyTorch would read it
    return x.clone() if isinstance(x, torch.Tensor) else copy.copy(x)


def settled(x: Any) -> Any:
    """The tensor whose memory holds its values as they read; None as it is."""
    if x is None:
        return None
    x = x.detach().resolve_conj().resolve_neg()
    if type(x) is not torch.Tensor:
        refuse_wrapper(type(x))
    if x.is_contiguous():
        end = x.storage_offset() + x.numel()
    else:
        end = x.storage_offset() + 1 + sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True))
    there = end * x.itemsize <= x.untyped_storage().nbytes() and not x._is_zerotensor()
    return x if there else without_memory(x)


def refuse_wrapper(kind: Any) -> None:
    """Tensors that hold others, or none, have no memory of their own."""
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise TypeError(f"a {kind.__name__} has no memory to compute in; outside of torch.compile pass a torch.Tensor")


def check_memory(tensors: Any) -> None:
    """Refuse those that have none beside such that have: outside of what PyTorch traces with them."""
    kinds = {type(x) for x in tensors if x is not None}
    for kind in kinds if len(kinds) > 1 else ():
        refuse_wrapper(kind)


def without_memory(x: Any) -> Any:
    """A tensor that needs none, as derivatives make some of zeros, in memory; one that was freed is refused."""
    if x.numel() and not x._is_zerotensor():
        raise ValueError(
            f"the memory of a tensor of shape {tuple(x.shape)} was freed: its storage holds "
            f"{x.untyped_storage().nbytes()} bytes; gather its entries first, as with FSDP's summon_full_params"
        )
    return x.clone()


def entry(x: Any) -> Entry:
    return (x.dtype, x.shape, x.device) if isinstance(x, torch.Tensor) else (type(x), ())


def check_dtype(name: str, entry: Entry) -> None:
    """Refuse what cannot be solved in."""
    dtype = entry[0]
    if dtype in (bool, torch.bool):
        refuse_dtype(name, "bool")
    if dtype in UNSIGNED:
        raise TypeError(
            f"{name} has dtype {dtype_name(dtype)}, which PyTorch promotes with no other; convert it first, "
            f"to int64 or what is computed in: {name}.to(torch.int64)"
        )
    if isinstance(dtype, torch.dtype) and not (dtype in FLOATS or dtype.is_complex or dtype in INTEGERS):
        refuse_dtype(name, dtype_name(dtype))


def result_dtype(entries: Sequence[Entry], default: torch.dtype) -> str:
    """torch's promotion of the tensors; a Python scalar only changes the kind; integers become the default dtype."""
    dtypes = [entry[0] for entry in entries]
    dtype = functools.reduce(torch.promote_types, (dtype for dtype in dtypes if isinstance(dtype, torch.dtype)))
    if not (dtype.is_floating_point or dtype.is_complex):
        dtype = default
    if any(isinstance(dtype, type) and issubclass(dtype, complex) for dtype in dtypes):
        dtype = dtype.to_complex()
    return dtype_name(dtype)


def integer_dtype(entries: Sequence[Entry], default: torch.dtype) -> str | None:
    """That of sums of integers, as `torch.cumsum` has it; None where some arguments are none."""
    return "int64" if all(entry[0] in (int, *INTEGERS) for entry in entries) else None


def normal(generator: Any, shape: Sequence[int], like: Any) -> Any:
    """Standard normal numbers, drawn by a `torch.Generator`."""
    if not isinstance(generator, torch.Generator):
        raise TypeError(f"generator is {generator!r}; PyTorch tensors want a torch.Generator")
    return torch.randn(*shape, generator=generator, dtype=like.dtype, device=like.device)


def dtype(name: str) -> Any:
    return getattr(torch, name)


def has_dtype(entry: Entry, name: str) -> bool:
    return entry[0] is getattr(torch, name)


def is_traced(x: Any) -> bool:
    """Whether the values of x are not here: inside `torch.func`, or of a tensor that has none."""
    return isinstance(x, torch.Tensor) and (transformed() or x.is_meta)


def cast(x: Any, dtype: str) -> Any:
    if isinstance(x, torch.Tensor):
        return x.to(getattr(torch, dtype))
    return torch.as_tensor(x, dtype=getattr(torch, dtype))


def device(entries: Sequence[Entry], default: torch.dtype) -> str:
    """The device type of all tensors."""
    found = {str(device) for _, _, *devices in entries for device in devices}
    if len(found) > 1:
        raise TypeError(f"the tensors are on different devices: {', '.join(sorted(found))}; move them to one")
    return found.pop().partition(":")[0]


def traced(entries: Sequence[Entry]) -> bool:
    return False
