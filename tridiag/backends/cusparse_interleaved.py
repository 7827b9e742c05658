"""cuSPARSE's gtsvInterleavedBatch: the rows of all systems side by side, a thread for each system, O(8n) flops.

Thomas with pivoting=False, else LU with partial pivoting; both replace all four arrays, so the diagonals are copied
for every system, shared ones too. See `tridiag.cuda.cusparse`. Which systems become NaN where LU meets a zero pivot,
and that no other system is harmed, is to be confirmed on a GPU.
"""

from __future__ import annotations

from typing import Any

from tridiag.algorithms.matrix_rows import Matrix
from tridiag.cuda import cusparse, lending
from tridiag.problems.forms import Form

ALGORITHMS = {False: 0, True: 1}  # Thomas, LU


@lending
def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Any = None) -> tuple[Any, Any]:
    return cusparse.solve(lambda systems: interleaved(systems, ALGORITHMS[bool(form.pivoting)]), matrix, d, form, out)


def interleaved(systems: cusparse.Systems, algorithm: int) -> Any:
    order = [systems.axis, *(k for k in range(len(systems.shape)) if k != systems.axis)]
    right = systems.right
    arrays = [cusparse.copied(part, systems.shape, order, right.dtype) for part in (*systems.diagonals, right)]
    count = arrays[-1].size // systems.n
    cusparse.call("gtsvInterleavedBatch", (algorithm, systems.n), arrays, (count,))
    return cusparse.restored(arrays[-1], systems.shape, order)
