"""cuSPARSE's gtsv2StridedBatch: one system after another, cyclic reduction in parallel, without pivoting.

The diagonals of a matrix that systems share are copied for each. See `tridiag.cuda.cusparse`.
"""

from __future__ import annotations

from typing import Any

from tridiag.algorithms.matrix_rows import Matrix
from tridiag.cuda import cusparse, lending
from tridiag.problems.forms import Form


@lending
def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Any = None) -> tuple[Any, Any]:
    return cusparse.solve(strided, matrix, d, form, out)


def strided(systems: cusparse.Systems) -> Any:
    order = [*(k for k in range(len(systems.shape)) if k != systems.axis), systems.axis]
    right = systems.right
    arrays = [cusparse.copied(part, systems.shape, order, right.dtype) for part in (*systems.diagonals, right)]
    count = arrays[-1].size // systems.n
    cusparse.call("gtsv2StridedBatch", (systems.n,), arrays, (count, systems.n))
    return cusparse.restored(arrays[-1], systems.shape, order)
