"""The arguments of ``jax.lax.linalg.tridiagonal_solve``."""

from __future__ import annotations

from typing import Any

from tridiag.conventions.padding import (
    check_length,
    rows_of,
)
from tridiag.conventions.system import arrays, perturbed, system

Array = Any


def from_jax(
    dl: Array, d: Array, du: Array, b: Array | None = None, *, perturb_singular: bool = False
) -> dict[str, Any]:
    r"""The arguments of ``jax.lax.linalg.tridiagonal_solve(dl, d, du, b)``.

    .. math:: dl_i x_{i-1} + d_i x_i + du_i x_{i+1} = b_i

    Parameters
    ----------
    dl, d, du : array
        (..., n): the diagonals, which are those of `tridiag.solve` already. ``dl[..., 0]`` and ``du[..., n-1]`` are
        never read.
    b : array
        (..., n, k): k right sides for each matrix.
    perturb_singular : bool
        True is ``singular="perturb"`` of `tridiag.solve`. The solutions of singular systems are as large as JAX's, and
        other numbers; nearly singular systems keep their own solutions.

    Returns
    -------
    dict
        ``a``, ``b``, ``c``, ``d``, ``axis`` and perhaps ``singular`` of `tridiag.solve`; nothing is copied. Under
        `jax.jit` they are traced like any arrays.

    Raises
    ------
    ValueError, TypeError
        The diagonals have different lengths, ``b`` has not n rows and one axis more than they, or they are of different
        libraries.

    Examples
    --------
    >>> import jax.numpy as jnp, tridiag
    >>> dl, d, du = jnp.full(3, 2.0), jnp.full(3, 4.0), jnp.full(3, 1.0)
    >>> tridiag.solve(**tridiag.conventions.from_jax(dl, d, du, jnp.array([[5.0], [7.0], [6.0]]))).round(6).tolist()
    [[1.0], [1.0], [1.0]]

    Notes
    -----
    `jax.lax.linalg.tridiagonal_solve`, which reads the two entries outside the matrix neither.
    """
    dl, d, du, b = arrays(dl=dl, d=d, du=du, b=b)
    for name, beside in (("dl", dl), ("du", du)):
        check_length(name, beside, "d", d, (rows_of(d),))
    if b is not None and b.ndim != d.ndim + 1:
        raise ValueError(
            f"b has shape {tuple(b.shape)} and d {tuple(d.shape)}; wanted right sides (..., n, k), one axis more than "
            f"d: pass b[..., None] where each matrix has one"
        )
    return perturbed(system((dl, d, du), "b", b, columns=True), "b", b, perturb_singular)
