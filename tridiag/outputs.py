"""Where the solution goes: a new array, the caller's ``out``, or ``d`` itself."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tridiag.arrays import common_library, dtype_name
from tridiag.prepare import Call

WORK: Any = 10_000  # how long an exact test for overlap may take; beyond it, touching bounds count as overlap


def target(call: Call, arguments: dict[str, Any], out: Any, overwrite_d: bool) -> Any:
    """The array to write to, or None for a new one."""
    if out is not None:
        check_out(call, arguments, out)
        return out
    if overwrite_d and call.library in ("numpy", "torch") and may_overwrite(call, arguments):
        return arguments["d"]
    return None


def check_out(call: Call, arguments: dict[str, Any], out: Any) -> None:
    if call.library == "jax":
        raise TypeError(
            "out= cannot be written: JAX arrays are immutable; to reuse the memory of d pass overwrite_d=True "
            "inside jit and donate d (donate_argnums), or carry it through a loop"
        )
    common_library({"out": out, **arguments})
    if not isinstance(out, np.ndarray) and not hasattr(out, "data_ptr"):
        raise TypeError(f"out is a {type(out).__name__}; wanted an array to write to")
    if tuple(out.shape) != call.form.shape:
        raise ValueError(f"out has shape {tuple(out.shape)}; the solution has shape {call.form.shape}")
    if not has_dtype(out, call.result_dtype):
        raise TypeError(f"out has dtype {out.dtype}; the solution has dtype {call.result_dtype}")
    if getattr(out, "requires_grad", False):
        raise ValueError("out requires a gradient and cannot be written in place; pass out.detach(), or no out")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise ValueError("out is read-only; pass an array that may be written")
    if repeats(out):
        raise ValueError("entries of out share memory with each other; pass an array of its own memory")
    for name, x in arguments.items():
        if overlaps(out, x):
            hint = "pass overwrite_d=True to solve in place" if name == "d" else "pass another array"
            raise ValueError(
                f"out shares memory with {name}, and no input is ever written; {hint} (only overwrite_d writes to d)"
            )


def has_dtype(x: Any, dtype: str) -> bool:
    """Whether x can take results of that dtype as they are: in this machine's byte order."""
    return dtype_name(x.dtype) == dtype and getattr(x.dtype, "isnative", True)


def may_overwrite(call: Call, arguments: dict[str, Any]) -> bool:
    d = arguments["d"]
    if not hasattr(d, "dtype") or tuple(d.shape) != call.form.shape or not has_dtype(d, call.result_dtype):
        return False
    if repeats(d) or (isinstance(d, np.ndarray) and not d.flags.writeable):
        return False
    return not any(overlaps(d, x) for name, x in arguments.items() if name != "d")


def repeats(x: Any) -> bool:
    """Whether one place in memory may stand for several entries, as in an expanded tensor."""
    steps, reach = (x.strides, x.itemsize) if isinstance(x, np.ndarray) else (x.stride(), 1)
    for step, length in sorted((abs(step), length) for step, length in zip(steps, x.shape, strict=True)):
        if length > 1 and step < reach:
            return True
        reach += (length - 1) * step
    return False


def overlaps(x: Any, y: Any) -> bool:
    """Whether writing to x could change y."""
    x, y = memory(x), memory(y)
    if x is None or y is None or not np.may_share_memory(x, y):
        return False
    try:
        return bool(np.shares_memory(x, y, max_work=WORK))
    except np.exceptions.TooHardError:
        return True


def memory(x: Any) -> np.ndarray[Any, Any] | None:
    """The memory of a host array as bytes with its strides."""
    if isinstance(x, np.ndarray):
        return x
    if hasattr(x, "data_ptr"):
        return torch_memory(x)
    return None


def torch_memory(x: Any) -> np.ndarray[Any, Any] | None:
    if x.device.type != "cpu" or x.numel() == 0:
        return None
    size = x.element_size()
    strides = tuple(size * s for s in x.stride())
    span = sum((k - 1) * s for k, s in zip(x.shape, strides, strict=True)) + size

    whole = np.frombuffer((ctypes.c_uint8 * span).from_address(x.data_ptr()), np.uint8)
    return np.lib.stride_tricks.as_strided(whole, (*x.shape, size), (*strides, 1), writeable=False)
