"""What calls with plain tensors of PyTorch have in common, whose facts are known.

The kernel gets the addresses of their memory: an array that shares it, as `torch.Tensor.numpy` makes it, would keep
PyTorch from ever resizing it. A tensor that is more than its entries (a subclass, one that is traced, mapped or a dual
number, one that is conjugated when it is read), and one without memory, goes the way of all calls; so does everything
while a mode of PyTorch listens.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad
from torch.autograd.graph import increment_version

from tridiag.calls.fast_path.facts import Facts
from tridiag.calls.outputs import ADDRESSED
from tridiag.calls.plan import Plan
from tridiag.kernels.jobs.batches import contiguous
from tridiag.libraries.arrays import dtype_name
from tridiag.libraries.torch import cast

KINDS = (torch.Tensor, torch.nn.Parameter)
NUMBERS = (int, float, complex)
Casts = tuple[tuple[int, str], ...]  # which arguments get another dtype, and which
Reaches = tuple[tuple[int, int], ...]  # of tensors: the bytes from their first entry on, and those of an entry
attributes_of: Callable[[Any], tuple[Any, ...]] = attrgetter("dtype", "shape", "device", "layout")
LISTENERS = ("_len_torch_function_stack", "_len_torch_dispatch_stack", "_get_tracing_state")
listeners = [getattr(torch._C, name, lambda: True) for name in LISTENERS]
listeners.append(getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", lambda: True))
functions_heard, operators_heard, traced, transformed = listeners


def disturbed() -> bool:
    """Whether something listens to operations on tensors: a mode, a transform, a trace, derivatives in forward mode."""
    heard = functions_heard() or operators_heard() or transformed() or traced()
    return bool(heard) or getattr(forward_ad, "_current_level", 0) >= 0


def needs_gradient(given: list[Any]) -> bool:
    """Whether a tensor among these has a gradient."""
    return torch.is_grad_enabled() and any([type(x) in KINDS and x.requires_grad for x in given])


def are_plain(given: list[Any]) -> bool:
    """Whether these tensors are no more than their entries, which nothing differentiates or listens to."""
    return all([type(x) in KINDS for x in given]) and not (needs_gradient(given) or disturbed())


def facts_of_all(given: Sequence[Any]) -> tuple[Any, ...]:
    """The dtype, shape, device, layout and strides of tensors; the types of what is none, and None as it is."""
    return tuple([(*attributes_of(x), x.stride()) if type(x) in KINDS else x if x is None else type(x) for x in given])


def may_be_bound(facts: Sequence[Any], beside: Sequence[Any]) -> bool:
    """Whether all arguments are dense tensors in one place, or numbers where that is host memory.

    ``beside``: the facts of a mask and of a result; None where there is none.
    """
    tensors = [fact for fact in facts if not isinstance(fact, type)] + [fact for fact in beside if fact is not None]
    numbers = [fact for fact in facts if isinstance(fact, type)]
    if not all(fact in NUMBERS for fact in numbers) or not all(map(is_dense, tensors)):
        return False
    devices = {fact[2] for fact in tensors}
    return len(devices) == 1 and (not numbers or devices.pop().type == "cpu")


def is_dense(fact: Any) -> bool:
    """Whether it is a tensor with strides in memory that has addresses."""
    return not isinstance(fact, type) and fact[2].type in ADDRESSED and fact[3] is torch.strided


def call_of(program: Any, device: torch.device) -> Callable[..., bool]:
    """A program of `tridiag.cuda` as a call of the addresses of its operands."""
    on_torch = importlib.import_module("tridiag.cuda.on_torch")  # which imports CuPy
    return functools.partial(on_torch.run_at, program, device)


def entry_of(fact: Any) -> Any:
    """What a plan is made from."""
    return fact if fact is None else (fact, ()) if isinstance(fact, type) else fact[:3]


def casts_of(plan: Plan, facts: Sequence[Any]) -> Casts | None:
    """Which arguments get another dtype; None where more is to be done than that."""
    found = []
    for k, wanted, _ in plan.steps:
        fact = facts[k]
        if not isinstance(fact, type) and dtype_name(fact[0]) == wanted:
            continue
        if not isinstance(fact, type) and fact[4] != contiguous(fact[1], 1):
            return None
        found.append((k, wanted))
    return None if plan.casts or plan.empty else tuple(found)


def extents_of(fact: Any, wanted: str | None = None) -> Facts:
    """The dtype, shape and strides of what a kernel gets: in another dtype perhaps, or of a number."""
    if isinstance(fact, type):
        return np.dtype(wanted), (), ()
    own, shape = dtype_name(fact[0]), tuple(fact[1])
    dtype = np.dtype(wanted or own)
    if dtype.name != own:
        return dtype, shape, contiguous(shape, dtype.itemsize)
    return dtype, shape, tuple([dtype.itemsize * step for step in fact[4]])


def reaches_of(*facts: Any) -> Reaches:
    """How many bytes each tensor takes from its first entry on, and an entry of it; none of what is no tensor."""
    return tuple(map(reach_of, facts))


def reach_of(fact: Any) -> tuple[int, int]:
    if fact is None or isinstance(fact, type):
        return 0, 0
    size = fact[0].itemsize
    return size * sum([(length - 1) * step for length, step in zip(fact[1], fact[4], strict=True)], 1), size


def addresses_of(given: Sequence[Any], reaches: Reaches) -> list[Any] | None:
    """Where the entries of tensors begin; None of what is no tensor.

    None at all where one has no memory for all its entries, as when that was freed, or is read in another way.
    """
    found: list[Any] = []
    for x, (reach, size) in zip(given, reaches, strict=True):
        address = x.data_ptr() if size else None
        if size:
            held = x.untyped_storage().nbytes() >= reach + x.storage_offset() * size
            if not (held and address) or x.is_neg() or x.is_conj():
                return None
        found.append(address)
    return found


def convert(given: list[Any], addresses: list[Any], casts: Casts) -> None:
    """Give some arguments another dtype."""
    for k, dtype in casts:
        given[k] = cast(given[k], dtype)
        addresses[k] = given[k].data_ptr()


def take_result(out: Any, reach: int, others: Sequence[Any], reaches: Reaches) -> bool:
    """Whether a result may go there: it needs no gradient, counts its versions, and surely changes nothing else.

    If so, a gradient that needs the old values will raise.
    """
    if out.requires_grad or out.is_inference():
        return False
    first = out.data_ptr()
    for address, (length, _) in zip(others, reaches, strict=True):
        if address is not None and address < first + reach and first < address + length:
            return False
    increment_version(out)
    return True
