"""Whether a call is being compiled by PyTorch, and what then takes it; Dynamo reads all of this."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


def compiling(*arguments: Any) -> bool:
    """Whether `torch.compile` or `torch.export` traces this call, and an argument, or one of a tuple, is a tensor."""
    asked = getattr(sys.modules.get("torch.compiler"), "is_compiling", None)
    return asked is not None and asked() and holds_tensor(arguments)


def holds_tensor(x: Any) -> bool:
    return any(holds_tensor(y) for y in x) if isinstance(x, tuple) else isinstance(x, sys.modules["torch"].Tensor)


def graph() -> ModuleType:
    """The verbs inside a graph."""
    from tridiag.derivatives import torch_graph

    return torch_graph
