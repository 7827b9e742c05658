"""Whether a call is being compiled by PyTorch, and what then takes it; Dynamo reads all of this."""

from __future__ import annotations

from types import ModuleType
from typing import Any


def compiling(*arguments: Any) -> bool:
    """Whether `torch.compile` or `torch.export` traces this call, and an argument, or one of a tuple, is a tensor.

    `sys.modules` is not asked: Dynamo would go through all that is imported, while more is.
    """
    if not holds_tensor(arguments):
        return False
    import torch

    return bool(torch.compiler.is_compiling())


def holds_tensor(x: Any) -> bool:
    return any(holds_tensor(y) for y in x) if isinstance(x, tuple) else hasattr(x, "requires_grad")


def graph() -> ModuleType:
    """The verbs inside a graph."""
    from tridiag.derivatives import torch_graph

    return torch_graph
