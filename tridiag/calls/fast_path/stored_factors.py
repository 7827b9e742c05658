"""Matrices and their factors in one piece of memory, by one call of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag.backends.numba_thomas import Extents, Factors, bound_factor, checked, keeps_factors
from tridiag.kernels.jobs import copies
from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.storage import Storage
from tridiag.kernels.jobs.systems import granted, make_storing_job, restored
from tridiag.kernels.table import call_of
from tridiag.problems.forms import Form, Shape


def storing(
    form: Form, arrays: Sequence[tuple[np.dtype[Any], Shape]], shapes: Extents, strides: Extents, dtype: np.dtype[Any]
) -> StoredFactoring | None:
    """Factors and copies of such matrices as a function of a, b, c and a storage; None where nothing is kept.

    ``arrays``: the dtypes and shapes of a, b and c, which are contiguous.
    """
    if not keeps_factors(form) or shapes[3] is not None or dtype.kind not in "fc":
        return None
    found, count = bound_factor(form, shapes, strides, dtype), form.matrices
    storage = Storage.of(
        [*arrays, (dtype, found.shape), (np.dtype(np.uint8), (count,)), (np.dtype(np.int32), (count,))]
    )
    facts = form, shapes, strides, (dtype, dtype), storage
    run = checked(form, lambda: call_of(make_storing_job, *facts, granted(form)).run)
    return StoredFactoring(run, found.job, form, storage)


class StoredFactoring(NamedTuple):
    """Factors and copies of matrices of such facts, as a function of a, b, c and a storage."""

    call: Callable[..., bool]
    job: Job
    form: Form
    storage: Storage

    def __call__(self, a: Any, b: Any, c: Any, memory: Any) -> bool:
        """Whether plain elimination or that of a matrix without certificate met a zero pivot."""
        return self.call(a, b, c, None, None, None, None, memory)

    def parts(self, memory: np.ndarray[Any, Any]) -> tuple[list[Any], Factors, Any]:
        """Copies, factors and status."""
        *copies, tiles, kinds, status = self.storage.views(memory)
        status = restored(self.job, status, self.form)
        return copies, Factors(tiles, kinds, status), status


def copying(form: Form, arrays: Sequence[tuple[np.dtype[Any], Shape]]) -> StoredCopies | None:
    """Copies of matrices, that show to be regular, as a function of a, b, c and a storage; ``arrays``: as above."""
    storage = Storage.of(arrays)
    if not copies.suits(form, arrays):
        return None
    run = checked(form, lambda: call_of(copies.make_job, form, storage, granted(form)).run)
    return StoredCopies(run, form, storage)


class StoredCopies(NamedTuple):
    """Copies of matrices of such facts, as a function of a, b, c and a storage."""

    call: Callable[..., bool]
    form: Form
    storage: Storage

    def __call__(self, a: Any, b: Any, c: Any, memory: Any) -> bool:
        """Whether a matrix does not show that it is regular."""
        return self.call(a, b, c, memory)

    def parts(self, memory: np.ndarray[Any, Any]) -> tuple[list[Any], None, Any]:
        """Copies, no factors, and the status of regular matrices."""
        return self.storage.views(memory), None, np.zeros(self.form.matrix_batch, np.int32)
