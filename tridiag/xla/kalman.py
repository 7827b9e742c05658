"""The compiled Kalman filters for JAX arrays on CPU: one XLA custom call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from tridiag.kernels.jobs.kalman import kind_of, make_job
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.jobs.words.job import POINTERS
from tridiag.libraries.jax import vary_alike
from tridiag.problems.state_space import Model, StateSpace, entries
from tridiag.xla.custom_call import target


def log_likelihood(y: Any, model: Model, form: StateSpace, missing: bool) -> Any:
    kind = kind_of(form, missing)
    return call("filter", kind, (y, *model), form, {K.Filter.result.word: form.batch})[0]


def gradient(y: Any, model: Model, form: StateSpace, missing: bool, in_y: bool) -> tuple[Any, Any]:
    """The derivatives of each log-likelihood in its own parameters in turn, and in its y where that is wanted."""
    kind, count = kind_of(form, missing), entries(form)
    results = {POINTERS + K.OF_MODEL: (*form.batch, count)}
    if in_y:
        results[POINTERS + K.OF_Y] = (*form.batch, form.n, form.observed)
    if kind == K.SHARED:
        results[K.Filter.of_covariances.word] = (count,)
    found = dict(zip(results, call("filter_gradient", kind, (y, *model), form, results), strict=True))
    of_model = found[POINTERS + K.OF_MODEL] + found.get(K.Filter.of_covariances.word, 0)
    return of_model, found.get(POINTERS + K.OF_Y)


def call(family: str, kind: str, operands: Sequence[Any], form: StateSpace, results: dict[int, Any]) -> Any:
    """The custom call; results go by the places of their addresses in the job."""
    dtype = np.dtype(operands[0].dtype)
    shapes = [x.shape for x in operands]
    shapes += [results.get(POINTERS + operand, ()) for operand in range(K.INPUTS, K.OPERANDS)]
    job = make_job(family, kind, form, tuple(shapes), dtype)
    places = [*range(POINTERS, POINTERS + K.INPUTS), *results]
    kinds = tuple(jax.ShapeDtypeStruct(shape, dtype) for shape in results.values())
    words = np.array([*job.words, job.helpers, 0, *places])
    found = jax.ffi.ffi_call(target(*job.kernel), kinds)(*operands, job=words)
    return vary_alike((*found, operands[0]))[:-1]
