"""A system for each thread, by Thomas elimination: CUDA C through CuPy, 8 flops and a division an unknown.

Systems of up to 64 rows in float32, 32 in float64 stay in registers: one read and one write of global memory. Longer
ones keep c' and d' in scratch memory: 9 words an unknown. Stability: certificate on the way, partial pivoting and
refinement of what has none (`tridiag.cuda.solvers`). Cyclic systems are pivoted throughout.

Block tridiagonal systems, blocks of up to 8 rows, have a group of lanes: a column of the rows at work for each, partial
pivoting as in `tridiag.algorithms.block_elimination`. Blocks of m rows are read once for as many right sides as there
are lanes beside 3 m; pivot rows, m (3 m + 1) words a block row with one right side, are written and read again.

Source: Thomas (1949), as in Higham, Accuracy and Stability of Numerical Algorithms, chapter 9.
"""

from __future__ import annotations

import functools
from typing import Any

from tridiag.algorithms.matrix_rows import Matrix
from tridiag.cuda import factor as factor
from tridiag.cuda import on
from tridiag.cuda import program_of_solve as program_of
from tridiag.cuda import slogdet as slogdet
from tridiag.cuda import solve_block as solve_block
from tridiag.cuda import status_of_jax_arrays as status_of_jax_arrays
from tridiag.problems.forms import Form

program_of_solve = functools.partial(program_of, "thomas")


def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Any = None) -> tuple[Any, Any]:
    return on(d).solve("thomas", matrix, d, form, out), None
