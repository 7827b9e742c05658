"""Where the solution goes: a new array, the caller's ``out``, or ``d`` itself."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import numpy as np

from tridiag.calls.plan import Call
from tridiag.libraries.arrays import agreed, library_of, module_of, owner

ADDRESSED = "cpu", "cuda"  # devices of PyTorch that share one space of addresses
WORK: Any = 10_000  # how long an exact test for overlap may take; beyond it, touching bounds count as overlap


def target(call: Call, arguments: dict[str, Any], out: Any, overwrite_d: bool) -> Any:
    """The array to write to, or None for a new one."""
    if out is not None:
        check_fit(call, arguments, out)
        check_memory(arguments, out)
        return out
    if overwrite_d and call.plan.library != "jax" and may_overwrite(call, arguments):
        return arguments["d"]
    return None


def check_fit(call: Call, arguments: dict[str, Any], out: Any) -> None:
    """Refuse what cannot hold the result."""
    if call.plan.library == "jax":
        message = "out= cannot be written: JAX arrays are immutable"
        if "d" in arguments:
            message += "; to reuse the memory of d pass overwrite_d=True inside jit and donate d (donate_argnums), or "
            message += "carry it through a loop"
        raise TypeError(message)
    kind: type = type(out)
    array = isinstance(out, np.ndarray)
    if not array and library_of(out) in (None, "numpy"):
        raise TypeError(f"out is a {kind.__name__}; wanted an array to write to")
    if owner("out", kind) != call.plan.library:
        agreed({name: type(x) for name, x in {"out": out, **arguments}.items()})
    if not array and not on_device(out) and not hasattr(out, "data_ptr"):
        raise TypeError(f"out is a {kind.__name__}; wanted an array to write to")
    if library_of(out) == "torch":
        module_of("torch").check_dense("out", out)
    if on_device(out) and out.device != call.d.device:
        raise TypeError(f"out is on cuda:{out.device.id}; the result is on cuda:{call.d.device.id}")
    if out.shape != call.plan.form.shape:
        raise ValueError(f"out has shape {tuple(out.shape)}; the result has shape {call.form.shape}")
    if out.dtype != call.plan.out_dtype:
        raise TypeError(f"out has dtype {out.dtype}; the result has dtype {call.result_dtype}")
    if hasattr(out, "data_ptr") and out.requires_grad:
        raise ValueError("out requires a gradient and cannot be written in place; pass out.detach(), or no out")
    if array and not out.flags.writeable:
        raise ValueError("out is read-only; pass an array that may be written")


def check_memory(arguments: dict[str, Any], out: Any) -> None:
    """Refuse what cannot be written without changing something else."""
    if repeats(out):
        raise ValueError("entries of out share memory with each other; pass an array of its own memory")
    if name := overlapped(out, arguments):
        hint = "pass overwrite_d=True and no out to solve in place" if name == "d" else "pass another array"
        hint += " (only overwrite_d writes to d)" if "d" in arguments else ""
        raise ValueError(f"out shares memory with {name}, and no input is ever written; {hint}")


def may_overwrite(call: Call, arguments: dict[str, Any]) -> bool:
    d = arguments["d"]
    if not is_array(d) or d.shape != call.plan.form.shape or d.dtype != call.plan.out_dtype:
        return False
    if repeats(d) or (isinstance(d, np.ndarray) and not d.flags.writeable):
        return False
    return overlapped(d, {name: x for name, x in arguments.items() if name != "d"}) is None


def is_array(x: Any) -> bool:
    """Whether it is an array that can be written to: of NumPy, PyTorch or CuPy."""
    return isinstance(x, np.ndarray) or library_of(x) in ("torch", "cupy")


def on_device(x: Any) -> bool:
    """Whether it is an array of CuPy."""
    return library_of(x) == "cupy"


def repeats(x: Any) -> bool:
    """Whether one place in memory may stand for several entries, as in an expanded tensor."""
    tensor = hasattr(x, "data_ptr")
    if x.is_contiguous() if tensor else x.flags.c_contiguous:
        return False
    return self_overlaps(x.shape, *((x.stride(), 1) if tensor else (x.strides, x.itemsize)))


def self_overlaps(shape: tuple[int, ...], steps: tuple[int, ...], reach: int) -> bool:
    """Whether entries that are so long, and such steps apart, may lie in the same place."""
    for step, length in sorted((abs(step), length) for step, length in zip(steps, shape, strict=True)):
        if length > 1 and step < reach:
            return True
        reach += (length - 1) * step
    return False


def overlapped(x: Any, arguments: Mapping[str, Any]) -> str | None:
    """The first argument that writing to x could change."""
    candidates = candidates_by_bounds
    if isinstance(x, np.ndarray):
        candidates, arguments = overlap_candidates, {name: as_read(y) for name, y in arguments.items()}
    for name in candidates(x, arguments):
        if overlaps(memory(x), memory(arguments[name])):
            return name
    return None


def as_read(y: Any) -> Any:
    """The array that is read of an argument: a buffer, or a column of a table, may lend its memory."""
    made_of_numbers = isinstance(y, np.ndarray | np.generic | int | float | complex | list | tuple) or y is None
    return y if made_of_numbers else np.asarray(y)


def overlap_candidates(x: np.ndarray[Any, Any], arguments: Mapping[str, Any]) -> list[str]:
    """The arrays with an entry between the first and the last one of x. Two owners of memory do not share it."""
    owns = x.flags.owndata
    return [
        name
        for name, y in arguments.items()
        if isinstance(y, np.ndarray) and not (owns and y.flags.owndata and y is not x) and np.may_share_memory(x, y)
    ]


def candidates_by_bounds(x: Any, arguments: Mapping[str, Any]) -> list[str]:
    """The tensors, or the arrays of CuPy, with an entry between the first and the last one of x."""
    low, high = bounds(x)
    found = []
    for name, y in arguments.items():
        first, last = bounds(y) if hasattr(y, "data_ptr") or on_device(y) else (0, 0)
        if first < high and low < last:
            found.append(name)
    return found


def bounds(x: Any) -> tuple[int, int]:
    """Where the memory of an array begins and ends; (0, 0) for one that has none, and no address."""
    if 0 in x.shape or (hasattr(x, "data_ptr") and x.device.type not in ADDRESSED):
        return 0, 0
    address, strides, size = memory_layout(x)
    reaches = [(length - 1) * step for length, step in zip(x.shape, strides, strict=True)]
    return address + sum(min(0, reach) for reach in reaches), address + sum(max(0, reach) for reach in reaches) + size


def memory_layout(x: Any) -> tuple[int, tuple[int, ...], int]:
    """The address of the first entry of a tensor or of an array of CuPy, its strides and the length of an entry."""
    if on_device(x):
        return x.data.ptr, x.strides, x.itemsize
    size = x.element_size()
    return x.data_ptr(), tuple(size * step for step in x.stride()), size


def memory(x: Any) -> np.ndarray[Any, Any]:
    """An array, or where another one lies: bytes with its strides, which are never read."""
    if isinstance(x, np.ndarray):
        return x
    (first, last), (address, strides, size) = bounds(x), memory_layout(x)
    whole: Any = (ctypes.c_uint8 * (last - first)).from_address(first)
    return np.lib.stride_tricks.as_strided(
        np.frombuffer(whole, np.uint8)[address - first :], (*x.shape, size), (*strides, 1), writeable=False
    )


def overlaps(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> bool:
    """Whether an entry of x and an entry of y lie in the same place, or it takes too long to tell."""
    try:
        return bool(np.shares_memory(x, y, max_work=WORK))
    except np.exceptions.TooHardError:
        return True
