"""Factors of matrices of JAX arrays on one CPU device, and solves from them, by custom calls of `numba_thomas`.

An array of factors has a row for each matrix, so that it can be mapped, sliced and stacked as the diagonals are; what
became of the rows, `tridiag.kernels.thomas.stamps` tell a solve. Factors are words, not numbers: nothing is to compute
with them, and they have no derivatives.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tridiag.algorithms.matrix_rows import Matrix
from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.systems import FEWEST_MATRICES, adjoint_of, granted, make_job, restored
from tridiag.kernels.jobs.words.job import POINTERS
from tridiag.kernels.jobs.words.systems import A_, B_, C_, D_, FACTORED, FACTORING, WHERE_, X_, Systems
from tridiag.problems.forms import Form
from tridiag.xla.custom_call import custom_call, facts_of
from tridiag.xla.partitioning import may_be_sharded
from tridiag.xla.split_factors import Factors, Moved

NUMBERS = 3  # of a row: a / pivot, 1 / pivot, c'
STAMP = 2  # numbers of 32 bits


def on_one_device(form: Form) -> bool:
    """Whether whole matrices are where they are traced."""
    return form.cut is None and not may_be_sharded() and not jax.sharding.get_abstract_mesh().manual_axes


def words_of(dtype: Any, n: int) -> tuple[Any, int]:
    """The kind and the number of words of the factors of a matrix."""
    parts = 2 if np.dtype(dtype).kind == "c" else 1
    return np.dtype(f"u{np.dtype(dtype).itemsize // parts}"), NUMBERS * n * parts


def in_order(job: Job, form: Form) -> bool:
    """Whether a kernel has the matrices one behind the other as arrays with a row for each have them."""
    words = Systems.view(job.words)
    return list(job.order) == sorted(job.order) and int(words.matrices) == math.prod(form.matrix_batch)


def factor(matrix: Matrix, form: Form) -> Factors:
    """Factors, stamps and status."""
    form = form._replace(shape=form.matrix_shape, transpose=False)
    operands = tuple(matrix)
    job = job_of(operands, form)
    if not in_order(job, form):
        operands = tuple(x if x is None else jnp.broadcast_to(x, form.shape) for x in matrix)
        job = job_of(operands, form)
    kind, count = words_of(operands[1].dtype, form.n)
    like = jax.typeof(operands[1])
    results = {
        Systems.factors.word: like.update(shape=(*form.matrix_batch, count), dtype=kind),
        Systems.stamps.word: like.update(shape=(*form.matrix_batch, STAMP), dtype=np.dtype(np.uint32)),
        Systems.certificates.word: like.update(shape=(form.matrices,), dtype=np.dtype(np.uint8)),
        Systems.status.word: like.update(shape=(form.matrices,), dtype=np.dtype(np.int32)),
    }
    given = {POINTERS + k: x for k, x in enumerate(operands)}
    tiles, stamps, _, status = custom_call(job, given, results)
    return Factors(None, restored(job, status, form), tiles, stamps)


def job_of(operands: tuple[Any, ...], form: Form) -> Job:
    """That of factoring."""
    a, b, c, where = operands
    form, shapes, strides, (dtype, _) = facts_of(form, a, b, c, where, b)
    sides: tuple[None, None] = None, None
    return make_job(form, (*shapes[:D_], *sides), (*strides[:D_], *sides), (dtype, dtype), FACTORING, granted(form))


def job_from(matrix: Matrix, d: Any, form: Form, factors: Factors) -> tuple[Job, dict[int, Any]] | None:
    """The job that solves from factors, and its operands; None where these are not of such matrices."""
    a, b, c, where = matrix
    kind, count = words_of(b.dtype, form.n)
    belong = factors.tiles.shape == (*form.matrix_batch, count) and factors.tiles.dtype == kind
    few = isinstance(factors, Moved) and form.matrices < FEWEST_MATRICES
    if few or not (belong and on_one_device(form) and form.pivoting == "auto"):
        return None
    job = make_job(*facts_of(form, a, b, c, where, d), FACTORED, granted(form))
    if not in_order(job, form):
        return None
    operands = {POINTERS + k: x for k, x in ((A_, a), (B_, b), (C_, c), (D_, d), (WHERE_, where))}
    return job, operands | {Systems.factors.word: factors.tiles, Systems.stamps.word: factors.stamps}


def solve(matrix: Matrix, d: Any, form: Form, factors: Factors) -> Any:
    """The solution from factors; None where these are not of such matrices."""
    found = job_from(matrix, d, form, factors)
    if found is None:
        return None
    job, operands = found
    result = {POINTERS + X_: jax.typeof(d).update(shape=form.shape)}
    alias = {3: 0} if form.overwrite_d and d.shape == form.shape else None
    return custom_call(job, operands, result, alias)[0]


def adjoint(matrix: Matrix, g: Any, x: Any, form: Form, factors: Factors) -> tuple[Any, ...] | None:
    """w from factors and the gradients of a, b and c, in one custom call; None where there are none for it.

    There is one right side for each matrix.
    """
    found = job_from(matrix, g, form._replace(transpose=not form.transpose, overwrite_d=False), factors)
    if found is None:
        return None
    job, operands = found
    places = [POINTERS + X_, *(Systems.gradients.word + k for k in range(3))]
    return custom_call(adjoint_of(job), operands | {Systems.solution.word: x}, dict.fromkeys(places, jax.typeof(x)))
