"""A chunk of rows in the registers of each thread, cyclic reduction among the chunks: CUDA C through CuPy.

One read and one write of global memory, about 25 flops an unknown. Systems longer than a block holds are cut into
pieces: about 12 words an unknown. Stability: certificate on the way, the unknowns between the chunks corrected once
from their residuals; partial pivoting and refinement of what has no certificate (`tridiag.cuda.solvers`). Cyclic
systems are pivoted throughout. With pivoting=False every chunk is eliminated by itself, from both ends: that is for
matrices all of whose diagonal blocks can do without pivoting, as those of dominant and of definite matrices do; of
others, and of singular ones, solutions may be large or not finite.

Sources: Laszlo, Giles and Appleyard (2016); Hockney and Jesshope (1981) for cyclic reduction; Austin, Berndt and
Moulton (2004) for the pieces.
"""

from __future__ import annotations

import functools
from typing import Any

from tridiag.algorithms.matrix_rows import Matrix
from tridiag.cuda import factor as factor
from tridiag.cuda import on
from tridiag.cuda import program_of_solve as program_of
from tridiag.cuda import slogdet as slogdet
from tridiag.cuda import status_of_jax_arrays as status_of_jax_arrays
from tridiag.problems.forms import Form

program_of_solve = functools.partial(program_of, "chunks")


def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Any = None) -> tuple[Any, Any]:
    return on(d).solve("chunks", matrix, d, form, out), None
