"""Whether a call goes into a graph of PyTorch, and what then takes it; Dynamo reads all of this."""

from __future__ import annotations

from types import ModuleType
from typing import Any


def compiling(*arguments: Any) -> bool:
    """Whether a graph of PyTorch is being made of this call, and an argument, or one of a tuple, is a tensor.

    `sys.modules` is not asked: Dynamo would go through all that is imported, while more is.
    """
    if not holds_tensor(arguments):
        return False
    import torch

    return bool(torch.compiler.is_compiling()) or recorded()


def recorded() -> bool:
    """Whether operations are recorded while they run, by `make_fx` or `torch.jit.trace`: a kernel is none of them."""
    import torch

    core = torch._C
    early = core._dispatch_tls_is_dispatch_key_included(core.DispatchKey.PreDispatch)  # with pre_dispatch=True
    if not early and not core._len_torch_dispatch_stack():
        return core._get_tracing_state() is not None
    proxies = core._TorchDispatchModeKey.PROXY
    found = torch._ops._get_dispatch_mode_pre_dispatch(proxies) if early else core._get_dispatch_mode(proxies)
    return found is not None


def holds_tensor(x: Any) -> bool:
    return any(holds_tensor(y) for y in x) if isinstance(x, tuple) else hasattr(x, "requires_grad")


def graph() -> ModuleType:
    """The verbs inside a graph."""
    from tridiag.derivatives import torch_graph

    return torch_graph
