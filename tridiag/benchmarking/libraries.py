"""How arrays of a library are made, how a function of them is called so that a clock sees all of its work."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tridiag.backends import not_installed
from tridiag.kernels.jobs.systems import threads
from tridiag.libraries.arrays import library_of

LIBRARIES = ("numpy", "jax", "torch", "cupy")
DEVICES = ("cpu", "cuda")
ONLY = {"numpy": "cpu", "cupy": "cuda"}  # the one kind of device that a library has
DIFFERENTIABLE = ("jax", "torch")
Function = Callable[..., Any]


def load(library: str) -> Any:
    """The module of a library; float64 is on in JAX, PyTorch takes as many threads as `tridiag`."""
    if reason := not_installed(library):
        raise ImportError(reason)
    module = importlib.import_module(library)
    if library == "jax":
        module.config.update("jax_enable_x64", True)
        return importlib.import_module("jax.numpy")
    if library == "torch":
        module.set_num_threads(threads())
    return module


def array(library: str, x: Any, device: str | None = None) -> Any:
    """A NumPy array in a library, on its default device or another; what is no array as it is."""
    if not isinstance(x, np.ndarray):
        return x
    if device and device != ONLY.get(library, device):
        raise ValueError(f"{library} arrays lie on {ONLY[library]}, not on {device}; take --library jax or torch")
    try:
        return made(library, x, device)
    except (RuntimeError, AssertionError) as error:  # what JAX and CuPy say; what PyTorch says without CUDA
        reason = str(error).partition("\n")[0].rstrip(".")
        place = device or "its usual device"
        wanted = "take another --device or a smaller --shape"
        raise ValueError(f"{library} makes no array on {place}: {reason}; {wanted}") from error


def made(library: str, x: np.ndarray[Any, Any], device: str | None) -> Any:
    """The same, as its library tells what is wrong."""
    if library == "numpy":
        return x
    module = load(library)
    if library == "torch":
        return module.as_tensor(x, device=device)
    if library == "jax" and device:
        jax = importlib.import_module("jax")
        return jax.device_put(x, jax.devices(device)[0])
    return module.asarray(x)


def zeros(library: str, shape: tuple[int, ...], dtype: str, device: str | None = None) -> Any:
    """An array that has its kind only: in NumPy and PyTorch it takes no memory."""
    if library == "numpy":
        return np.broadcast_to(array(library, np.zeros((), dtype), device), shape)
    if library == "torch":
        return array(library, np.zeros((), dtype), device).expand(shape)
    return array(library, np.zeros(shape, dtype), device)


def device_of(x: Any) -> str:
    """ "cpu", or what its library calls another kind of device."""
    library = library_of(x)
    if library == "torch":
        return str(x.device.type)
    if library == "jax":
        return "cpu" if next(iter(x.devices())).platform == "cpu" else "cuda"
    return "cuda" if library == "cupy" else "cpu"


def called(library: str, function: Function, arrays: Sequence[Any]) -> Callable[[], Any]:
    """A call of a function of arrays that ends when its result is there; under JAX it is compiled."""
    if library == "jax":
        jax = importlib.import_module("jax")
        compiled = jax.jit(function)
        return lambda: jax.block_until_ready(compiled(*arrays))
    if device_of(arrays[0]) == "cpu":
        return lambda: function(*arrays)
    wait = load(library).cuda.synchronize if library == "torch" else load(library).cuda.get_current_stream().synchronize

    def call() -> Any:
        result = function(*arrays)
        wait()
        return result

    return call


def with_gradient(library: str, function: Function) -> Function:
    """A function of the same arrays and a cotangent, which returns the result, and its gradient in every array."""
    if library not in DIFFERENTIABLE:
        raise ValueError(f"{library} arrays have no gradients; take --library {' or '.join(DIFFERENTIABLE)}")
    if library == "jax":
        vjp = importlib.import_module("jax").vjp

        def both(*arrays: Any) -> Any:
            result, pull = vjp(function, *arrays[:-1])
            return result, pull(arrays[-1])

        return both
    grad = load("torch").autograd.grad

    def recorded(*arrays: Any) -> Any:
        given = [x.requires_grad_() for x in arrays[:-1]]
        result = function(*given)
        return result, grad(result, given, arrays[-1])

    return recorded
