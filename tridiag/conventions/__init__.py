"""From the conventions of other libraries to the arguments of `tridiag.solve`.

``tridiag.solve(**from_jax(dl, d, du, b))`` stands for ``jax.lax.linalg.tridiagonal_solve(dl, d, du, b)``: each function
takes the arguments of a call in their order, of cuSPARSE the buffers and then the numbers, and gives a dictionary of
``a``, ``b``, ``c``, ``d`` and ``axis``. The solution has the shape that it has there. Without the right side the
dictionary is for `tridiag.factor` and `tridiag.slogdet`. Entries arrive bit for bit, and what is not read there lies
where it is not read here.
"""

from tridiag.conventions.cusparse import from_cusparse_interleaved, from_cusparse_strided
from tridiag.conventions.jax import from_jax
from tridiag.conventions.scipy import from_lapack, from_scipy_banded, from_scipy_hermitian
from tridiag.conventions.tensorflow import from_tensorflow

__all__ = [
    "from_cusparse_interleaved",
    "from_cusparse_strided",
    "from_jax",
    "from_lapack",
    "from_scipy_banded",
    "from_scipy_hermitian",
    "from_tensorflow",
]
