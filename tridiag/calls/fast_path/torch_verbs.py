"""The verbs on plain tensors of PyTorch whose facts are known."""

from tridiag.calls.fast_path import torch_recurrences, torch_selective, torch_systems
from tridiag.calls.fast_path.torch_recurrences import recurrence
from tridiag.calls.fast_path.torch_selective import selective_scan
from tridiag.calls.fast_path.torch_systems import factors, known, solve, solve_factored

__all__ = ["factors", "forget", "known", "recurrence", "selective_scan", "solve", "solve_factored"]


def forget() -> None:
    """Decide anew about calls that were met before."""
    for cache in (torch_systems.bound_solve, torch_recurrences.bound_recurrence, torch_selective.bound_scan):
        cache.cache_clear()
