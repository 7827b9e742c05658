"""The verbs on plain tensors of PyTorch whose facts are known."""

from tridiag.calls.fast_path import (
    torch_factored,
    torch_matrices,
    torch_recurrences,
    torch_selective,
    torch_systems,
)
from tridiag.calls.fast_path.torch_factored import factors, known, solve_factored
from tridiag.calls.fast_path.torch_matrices import matmul, slogdet
from tridiag.calls.fast_path.torch_recurrences import recurrence
from tridiag.calls.fast_path.torch_selective import selective_scan
from tridiag.calls.fast_path.torch_systems import solve

__all__ = ["factors", "forget", "known", "matmul", "recurrence", "selective_scan", "slogdet", "solve", "solve_factored"]


def forget() -> None:
    """Decide anew about calls that were met before."""
    for cache in (
        torch_systems.bound_solve,
        torch_recurrences.bound_recurrence,
        torch_selective.bound_scan,
        torch_matrices.bound_product,
        torch_matrices.bound_determinants,
    ):
        cache.cache_clear()
    torch_factored.DECIDED[0] += 1
