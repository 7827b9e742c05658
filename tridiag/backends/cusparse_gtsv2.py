"""cuSPARSE's gtsv2, a call for each matrix with all its right sides: for few long systems.

With pivoting=True by diagonal pivoting in chunks, else gtsv2_nopivot, cyclic reduction. The diagonals are only read.
See `tridiag.cuda.cusparse`. What gtsv2 gives for a singular matrix is to be confirmed on a GPU.
"""

from __future__ import annotations

from typing import Any

from tridiag.algorithms.matrix_rows import Matrix
from tridiag.cuda import cusparse, lending
from tridiag.problems.forms import Form

ROUTINES = {False: "gtsv2_nopivot", True: "gtsv2"}


@lending
def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Any = None) -> tuple[Any, Any]:
    return cusparse.solve(lambda systems: one_by_one(systems, ROUTINES[bool(form.pivoting)]), matrix, d, form, out)


def one_by_one(systems: cusparse.Systems, routine: str) -> Any:
    n, right, batch = systems.n, systems.right, [k for k in range(len(systems.shape)) if k != systems.axis]
    order = [*sorted(batch, key=lambda k: systems.matrix_shape[k] == 1), systems.axis]  # those of the matrices first
    *diagonals, x = (
        cusparse.copied(part, shape, order, right.dtype)
        for part, shape in ((*((v, systems.matrix_shape) for v in systems.diagonals), (right, systems.shape)))
    )
    matrices = [diagonal.reshape(-1, n) for diagonal in diagonals]
    sides = x.reshape(len(matrices[0]), -1, n)
    for k in range(len(sides)):
        cusparse.call(routine, (n, sides.shape[1]), (*(diagonal[k] for diagonal in matrices), sides[k]), (n,))
    return cusparse.restored(x, systems.shape, order)
