"""The compiled Kalman filters for JAX arrays on CPU: one XLA custom call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tridiag.algorithms.kalman_filter import Estimate
from tridiag.algorithms.kalman_stretches import Follow
from tridiag.kernels.jobs.kalman import kind_of, make_job, workers_for
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.jobs.words.job import POINTERS
from tridiag.libraries.jax import vary_alike
from tridiag.problems.state_space import Model, StateSpace, entries
from tridiag.xla.custom_call import helpers_of, target


def log_likelihood(y: Any, model: Model, form: StateSpace, missing: bool) -> Any:
    kind = kind_of(form, missing)
    return call("filter", kind, (y, *model), form, {K.Filter.result.word: form.batch})[0]


def gradient(
    y: Any, model: Model, form: StateSpace, missing: bool, in_y: bool, ahead: Estimate | None = None
) -> tuple[Any, Any]:
    """The derivatives of each log-likelihood in its own parameters in turn, and in its y where that is wanted.

    ``ahead``: what later observations tell of the state that is predicted behind the last step, r and N as in
    `tridiag.algorithms.kalman_scan`.
    """
    kind, count = kind_of(form, missing, ahead is not None), entries(form)
    results = {POINTERS + K.OF_MODEL: (*form.batch, count)}
    if in_y:
        results[POINTERS + K.OF_Y] = (*form.batch, form.n, form.observed)
    if kind == K.SHARED:
        results[K.Filter.of_covariances.word] = (count,)
    more = {} if ahead is None else {K.AHEAD: packed(ahead)}
    found = dict(zip(results, call("filter_gradient", kind, (y, *model), form, results, more), strict=True))
    of_model = found[POINTERS + K.OF_MODEL] + found.get(K.Filter.of_covariances.word, 0)
    return of_model, found.get(POINTERS + K.OF_Y)


class Stretch(NamedTuple):
    """What steps make of the state before them, of each series: `tridiag.algorithms.kalman_stretches`.

    Arrays are as in `tridiag.algorithms.kalman_filter`, but that there is no axis of time.
    """

    behind: Estimate  # the state that is predicted behind the steps
    follow: Follow
    reach: Any  # the largest variances of observations, before they are known, as in `Doubt`
    least: Any  # the smallest of those that were observed
    loss: Any  # above 0 where digits may be lost


def stretch(y: Any, model: Model, form: StateSpace, missing: bool) -> tuple[Any, Any]:
    """The log-likelihoods, and what the steps make of the state before them."""
    k, p = form.states, form.observed
    half = k * (k + 1) // 2
    count = k + half + k * k + k + half + 2 * p + 1
    kind = K.MISSING if missing else K.COMPLETE
    results = {POINTERS + K.STRETCH: (*form.batch, count), K.Filter.result.word: form.batch}
    found, value = call("stretch", kind, (y, *model), form, results)
    ends = np.cumsum([k, half, k * k, k, half, p, p])
    mean, cov, A, eta, J, reach, least, loss = jnp.split(jnp.moveaxis(found, -1, 0), ends)
    A = A.reshape(k, k, *A.shape[1:])
    return value, Stretch(Estimate(mean, symmetric(cov, k)), Follow(A, eta, symmetric(J, k)), reach, least, loss[0])


def triangle(x: Any) -> Any:
    """The upper triangle of a symmetric matrix."""
    return x[np.triu_indices(len(x))]


def symmetric(x: Any, k: int) -> Any:
    """A matrix from its upper triangle."""
    places = np.zeros((k, k), int)
    places[np.triu_indices(k)] = np.arange(k * (k + 1) // 2)
    return x[np.maximum(places, places.T)]


def packed(ahead: Estimate) -> Any:
    """Batch axes first, then a vector and the upper triangle of a matrix."""
    return jnp.moveaxis(jnp.concatenate((ahead.mean, triangle(ahead.cov))), 0, -1)


def call(
    family: str, kind: str, operands: Sequence[Any], form: StateSpace, results: dict[int, Any], more: Any = None
) -> Any:
    """The custom call; results go by the places of their addresses in the job, ``more`` operands by their numbers."""
    more = more or {}
    dtype = np.dtype(operands[0].dtype)
    shapes = [x.shape for x in operands]
    given = {operand: x.shape for operand, x in more.items()}
    shapes += [given.get(operand, results.get(POINTERS + operand, ())) for operand in range(K.INPUTS, K.OPERANDS)]
    job = make_job(family, kind, form, tuple(shapes), dtype, workers_for(kind, form))
    places = [*range(POINTERS, POINTERS + K.INPUTS), *(POINTERS + operand for operand in more), *results]
    kinds = tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in results.values())
    words = np.array([*job.words, helpers_of(job), 0, *places])
    found = jax.ffi.ffi_call(target(*job.kernel), kinds)(*operands, *more.values(), job=words)
    return vary_alike((*found, operands[0]))[:-1]
