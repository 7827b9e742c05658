"""Whether a call goes into a graph of PyTorch, and what then takes it; Dynamo reads all of this."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tridiag.libraries.torch_tracers import recorded


def compiling(*arguments: Any) -> bool:
    """Whether a graph of PyTorch is being made of this call, and an argument, or one of a tuple, is a tensor.

    `sys.modules` is not asked: Dynamo would go through all that is imported, while more is.
    """
    if not holds_tensor(arguments):
        return False
    import torch

    return bool(torch.compiler.is_compiling()) or recorded()


def holds_tensor(given: tuple[Any, ...]) -> bool:
    return any([hasattr(x, "requires_grad") or (isinstance(x, tuple) and holds_tensor(x)) for x in given])


def graph() -> ModuleType:
    """The verbs inside a graph."""
    from tridiag.derivatives import torch_graph

    return torch_graph
