"""Where the solution goes: a new array, the caller's ``out``, or ``d`` itself."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from tridiag.arrays import agreed, owner
from tridiag.prepare import Call

WORK: Any = 10_000  # how long an exact test for overlap may take; beyond it, touching bounds count as overlap


def target(call: Call, arguments: dict[str, Any], out: Any, overwrite_d: bool) -> Any:
    """The array to write to, or None for a new one."""
    if out is not None:
        check_out(call, arguments, out)
        return out
    if overwrite_d and call.plan.library in ("numpy", "torch") and may_overwrite(call, arguments):
        return arguments["d"]
    return None


def check_out(call: Call, arguments: dict[str, Any], out: Any) -> None:
    if call.plan.library == "jax":
        told = "out= cannot be written: JAX arrays are immutable"
        if "d" in arguments:
            told += "; to reuse the memory of d pass overwrite_d=True inside jit and donate d (donate_argnums), or "
            told += "carry it through a loop"
        raise TypeError(told)
    kind: type = type(out)
    if owner("out", kind) != call.plan.library:
        agreed({name: type(x) for name, x in {"out": out, **arguments}.items()})
    array = isinstance(out, np.ndarray)
    if not array and not hasattr(out, "data_ptr"):
        raise TypeError(f"out is a {type(out).__name__}; wanted an array to write to")
    if out.shape != call.plan.form.shape:
        raise ValueError(f"out has shape {tuple(out.shape)}; the result has shape {call.form.shape}")
    if out.dtype != call.plan.out_dtype:
        raise TypeError(f"out has dtype {out.dtype}; the result has dtype {call.result_dtype}")
    if not array and out.requires_grad:
        raise ValueError("out requires a gradient and cannot be written in place; pass out.detach(), or no out")
    if array and not out.flags.writeable:
        raise ValueError("out is read-only; pass an array that may be written")
    if repeats(out):
        raise ValueError("entries of out share memory with each other; pass an array of its own memory")
    if name := overlapped(out, arguments):
        hint = "pass overwrite_d=True and no out to solve in place" if name == "d" else "pass another array"
        hint += " (only overwrite_d writes to d)" if "d" in arguments else ""
        raise ValueError(f"out shares memory with {name}, and no input is ever written; {hint}")


def may_overwrite(call: Call, arguments: dict[str, Any]) -> bool:
    d = arguments["d"]
    if not hasattr(d, "dtype") or d.shape != call.plan.form.shape or d.dtype != call.plan.out_dtype:
        return False
    if repeats(d) or (isinstance(d, np.ndarray) and not d.flags.writeable):
        return False
    return overlapped(d, {name: x for name, x in arguments.items() if name != "d"}) is None


def repeats(x: Any) -> bool:
    """Whether one place in memory may stand for several entries, as in an expanded tensor."""
    array = isinstance(x, np.ndarray)
    if x.flags.c_contiguous if array else x.is_contiguous():
        return False
    return meet(x.shape, *((x.strides, x.itemsize) if array else (x.stride(), 1)))


def meet(shape: tuple[int, ...], steps: tuple[int, ...], reach: int) -> bool:
    """Whether entries that are so long, and such steps apart, may lie in the same place."""
    for step, length in sorted((abs(step), length) for step, length in zip(steps, shape, strict=True)):
        if length > 1 and step < reach:
            return True
        reach += (length - 1) * step
    return False


def overlapped(x: Any, arguments: Mapping[str, Any]) -> str | None:
    """The first argument that writing to x could change."""
    for name in near_array(x, arguments) if isinstance(x, np.ndarray) else near_tensor(x, arguments):
        if share(memory(x), memory(arguments[name])):
            return name
    return None


def near_array(x: np.ndarray[Any, Any], arguments: Mapping[str, Any]) -> list[str]:
    """The arrays with an entry between the first and the last one of x. Two owners of memory do not share it."""
    owns = x.flags.owndata
    return [
        name
        for name, y in arguments.items()
        if isinstance(y, np.ndarray) and not (owns and y.flags.owndata and y is not x) and np.may_share_memory(x, y)
    ]


def near_tensor(x: Any, arguments: Mapping[str, Any]) -> list[str]:
    """The tensors in host memory with an entry between the first and the last one of x."""
    low, high = bounds(x)
    found = []
    for name, y in arguments.items():
        first, last = bounds(y) if hasattr(y, "data_ptr") else (0, 0)
        if first < high and low < last:
            found.append(name)
    return found


def bounds(x: Any) -> tuple[int, int]:
    """Where the memory of a tensor begins and ends; (0, 0) for one that has none in this host."""
    if x.device.type != "cpu" or x.numel() == 0:
        return 0, 0
    address = x.data_ptr()
    reach = sum([(length - 1) * step for length, step in zip(x.shape, x.stride(), strict=True)])
    return address, address + (reach + 1) * x.element_size()


def memory(x: Any) -> np.ndarray[Any, Any]:
    """An array, or the memory of a tensor as bytes with its strides."""
    if isinstance(x, np.ndarray):
        return x
    first, last = bounds(x)
    size = x.element_size()
    strides = tuple(size * step for step in x.stride())
    whole: Any = (ctypes.c_uint8 * (last - first)).from_address(first)
    return np.lib.stride_tricks.as_strided(
        np.frombuffer(whole, np.uint8), (*x.shape, size), (*strides, 1), writeable=False
    )


def share(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> bool:
    """Whether an entry of x and an entry of y lie in the same place, or it takes too long to tell."""
    try:
        return bool(np.shares_memory(x, y, max_work=WORK))
    except np.exceptions.TooHardError:
        return True
