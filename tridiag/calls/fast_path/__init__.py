"""Calls with plain NumPy arrays whose facts are known: nothing is left to decide, and the kernel is called at once.

A verb asks its table (`CallTable`), which finds calls that were met before, and passes others on to a function of
Python here. The facts (dtypes, shapes, strides, options) decide everything but where the arrays lie. Numbers of Python,
and contiguous arrays of another dtype, are cast to the one that promotion gives. What is out of the ordinary (other
arguments, halves, outputs that might overlap an argument) goes the way of all other calls.

Plain tensors of PyTorch (`torch_verbs`), arrays of CuPy (`cupy_verbs`) and concrete ones of JAX (`jax_verbs`) have ways
of their own; what they are made of is imported with the first of them.
"""

import functools
import importlib
import itertools
import sys
from collections.abc import Callable
from typing import Any

from tridiag.calls.fast_path import (
    alignments,
    blocks,
    factored,
    filters,
    matrices,
    recurrences,
    selective,
    streams,
    systems,
)
from tridiag.calls.fast_path.alignments import smith_waterman
from tridiag.calls.fast_path.blocks import BLOCK_SOLVES
from tridiag.calls.fast_path.factored import (
    FACTORED_SOLVES,
    FACTORINGS,
    BoundFactors,
    Eliminated,
    Kind,
    Made,
    Shapes,
)
from tridiag.calls.fast_path.facts import facts_of
from tridiag.calls.fast_path.filters import kalman
from tridiag.calls.fast_path.matrices import DETERMINANTS, PRODUCTS
from tridiag.calls.fast_path.recurrences import RECURRENCES, bound_recurrence
from tridiag.calls.fast_path.streams import STEPS
from tridiag.calls.fast_path.systems import SOLVES, bound_call
from tridiag.calls.fast_path.windows import WindowFactors

__all__ = [
    "BLOCK_SOLVES",
    "DETERMINANTS",
    "FACTORED_SOLVES",
    "FACTORINGS",
    "PRODUCTS",
    "RECURRENCES",
    "SOLVES",
    "STEPS",
    "BoundFactors",
    "Eliminated",
    "Kind",
    "Made",
    "Shapes",
    "WindowFactors",
    "bound_call",
    "bound_recurrence",
    "facts_of",
    "forget",
    "kalman",
    "of_tensors",
    "short_way",
    "smith_waterman",
]
# by types of arrays of other libraries: what is made for them
KINDS = {
    ("cupy", "ndarray"): "tridiag.calls.fast_path.cupy_verbs",
    ("torch", "Tensor"): "tridiag.calls.fast_path.torch_verbs",
    ("torch.nn.parameter", "Parameter"): "tridiag.calls.fast_path.torch_verbs",
    ("torch.distributed.tensor", "DTensor"): "tridiag.calls.distributed.verbs",
    ("jaxlib._jax", "ArrayImpl"): "tridiag.calls.fast_path.jax_verbs",
    ("jaxlib.xla_extension", "ArrayImpl"): "tridiag.calls.fast_path.jax_verbs",
}
CACHES = (
    systems.bound_call,
    recurrences.bound_recurrence,
    matrices.bound_product,
    matrices.bound_determinants,
    factored.bound_factors,
    factored.bound_factored,
    blocks.bound_blocks,
    alignments.bound_alignment,
    filters.bound_filter,
    selective.bound_scan,
    streams.known_step,
)

TABLES = (
    SOLVES,
    FACTORED_SOLVES,
    FACTORINGS,
    PRODUCTS,
    DETERMINANTS,
    BLOCK_SOLVES,
    alignments.SCORES,
    selective.SCANS,
    *RECURRENCES.values(),
    *itertools.chain(*filters.TABLES.values()),
    *STEPS.values(),
)


def forget() -> None:
    """Decide anew about calls that were met before."""
    for cache in CACHES:
        cache.cache_clear()
    for table in TABLES:
        table.forget()
    for name in set(KINDS.values()):
        if name in sys.modules:
            importlib.import_module(name).forget()


def of_tensors(verb: str, x: Any) -> Callable[..., Any] | None:
    """The short way of a verb if x is a plain array of another library, which then is imported already."""
    kind: type = type(x)
    return short_way(verb, kind)


@functools.lru_cache(256)
def short_way(verb: str, kind: type) -> Callable[..., Any] | None:
    name = KINDS.get((kind.__module__, kind.__name__))
    return None if name is None else getattr(importlib.import_module(name), verb, None)
