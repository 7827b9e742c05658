"""Kalman filters of which some states begin with an infinite variance, by compiled kernels: first steps, smoothers.

Of the first steps each series is taken by itself, covariances too: where very many share them,
`tridiag.algorithms.kalman_rows` takes less.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from tridiag.algorithms.kalman_rows import MOST, PATIENCE, Begun
from tridiag.kernels.jobs.kalman import make_regression_job
from tridiag.kernels.jobs.systems import threads
from tridiag.kernels.jobs.unknown import items_of, make_job
from tridiag.kernels.jobs.words import kalman as K
from tridiag.kernels.jobs.words import unknown as U
from tridiag.kernels.runtime.python_call import check
from tridiag.kernels.table import call_of
from tridiag.problems.forms import Shape
from tridiag.problems.state_space import FILTER, Model, StateSpace

MOST_SHARING = 32  # series that share their covariances, for which these are found again and again


def is_worth_it(form: StateSpace) -> bool:
    """Whether the kernel takes no longer than loops over arrays of all series."""
    return math.prod(form.batch) <= MOST_SHARING * math.prod(covariances_of(form))


def covariances_of(form: StateSpace) -> Shape:
    """The batch axes of covariances; those that series share have length 1."""
    return form.cov_batch if form.missing is False else form.batch


class Arrays(NamedTuple):
    """The operands of the kernel, in their order."""

    F: Any
    Q: Any
    H: Any
    R: Any
    y: Any
    m0: Any
    P0: Any
    mean: Any
    parts: Any
    weights: Any
    told: Any
    told_weights: Any
    A: Any
    source: Any
    counts: Any
    deviance: Any
    to_do: Any
    found: Any
    cov: Any
    scratch: Any


def begin(verb: str, y: Any, model: Model, form: StateSpace) -> Begun:
    """Until no state is unknown, and none is hardly known; of NumPy arrays, as a caller has them."""
    n, k, batch = form.n, form.states, form.batch
    workers = threads()
    items = items_of(math.prod(batch), k, workers)
    arrays = allocated(y, model, form, items)
    job = make_job, items, math.prod(batch), k, form.observed, len(form.diffuse), MOST * k, y.dtype, workers
    run, likelihoods, states, following, patience = call_of(*job).run, [], [], None, PATIENCE * k
    known = False

    def do(what: int) -> bool:
        arrays.to_do[0] = what
        check(run(*arrays))
        return bool(arrays.found.all())

    def told() -> list[Any]:
        do(U.TELL_ALL)
        return [arrays.mean.reshape(*batch, k).copy(), arrays.cov.reshape(*batch, k, k).copy()]

    for t in range(n):
        at_step(arrays, y, model, form, t)
        asking = known and not form.each_step
        settled = do((U.PREDICT_AND_ASK if asking else U.PREDICT) if t else U.BEGIN)
        if asking:
            patience -= 1
            if settled or not patience:
                do(U.TELL)
                following = arrays.mean.reshape(*batch, k), shared(arrays.cov.reshape(*batch, k, k), form)
                break
        predicted = told() if verb == FILTER else []
        known = do(U.OBSERVE)
        likelihoods.append(arrays.deviance.reshape(batch) / -2)
        if verb == FILTER:
            states.append((*told(), *predicted))
    found = [np.stack(parts, len(batch)) for parts in zip(*states, strict=True)]
    q = len(form.diffuse)
    source = np.moveaxis(shared(arrays.source.reshape(*batch, q, q), form), (-2, -1), (0, 1))
    return Begun(np.stack(likelihoods, -1), found, following, source)


def shared(x: Any, form: StateSpace) -> Any:
    """Once of all series that share it."""
    return x[tuple([slice(None if length > 1 else 1) for length in covariances_of(form)])]


def allocated(y: Any, model: Model, form: StateSpace, items: int) -> Arrays:
    """With room for the state of every series, and for the work on so many parts of them at a time."""
    k, p, q, count, dtype = form.states, form.observed, len(form.diffuse), math.prod(form.batch), y.dtype
    most = MOST * k + k
    A = np.zeros((count, k, q), dtype)
    A[:, form.diffuse, range(q)] = 1

    def room(*shape: int) -> Any:
        return np.empty((count, *shape), dtype)

    m0, P0 = (
        np.ascontiguousarray(np.broadcast_to(x, (*form.batch, *x.shape[-axes:])))
        for x, axes in ((model.m0, 1), (model.P0, 2))
    )
    return Arrays(
        F=room(k, k), Q=room(k, k), H=room(p, k), R=room(p, p), y=room(p), m0=m0, P0=P0,
        mean=room(k), parts=room(most, k), weights=room(most), told=room(q, k), told_weights=room(q),
        A=A, source=room(q, q), counts=np.empty(count, np.int64), deviance=room(),
        to_do=np.zeros(1 + items, np.int64), found=np.zeros(items, np.int64),
        cov=room(k, k), scratch=np.empty(items * U.room(k, p, q, MOST * k), dtype),
    )  # fmt: skip


def at_step(arrays: Arrays, y: Any, model: Model, form: StateSpace, t: int) -> None:
    """F and Q of the step before t, y, H and R of step t."""
    for target, source, step, axes in (
        (arrays.F, model.F, t - 1, 2),
        (arrays.Q, model.Q, t - 1, 2),
        (arrays.H, model.H, t, 2),
        (arrays.R, model.R, t, 2),
        (arrays.y, y, t, 1),
    ):
        length = source.shape[-1 - axes]
        if step == 0 or (step > 0 and length > 1):
            row = source[(..., step if length > 1 else 0, *(slice(None),) * axes)]
            target.reshape(*form.batch, *row.shape[row.ndim - axes :])[...] = row


def smooth(y: Any, model: Model, form: StateSpace, starts: Any, unseen: Any) -> tuple[Any, Any]:
    """Means and covariances of all steps, but for what is infinite: of NumPy arrays, as a caller has them.

    The first axis of y, and of the starts, has series that share their covariances; ``starts``: the means of these
    before the first step, and unknown columns; ``unseen``: directions of which nothing is observed.
    """
    alike, n, k, batch = len(y), form.n, form.states, form.batch
    mean, cov = np.empty((*batch, n, alike, k), y.dtype), np.empty((*batch, n, k, k), y.dtype)
    own = np.ascontiguousarray(np.moveaxis(y, 0, -2)), *map(np.ascontiguousarray, model[:4])
    own = *own, np.ascontiguousarray(np.moveaxis(starts, 0, -2)), np.ascontiguousarray(model.P0)
    operands = *own, mean, cov, np.ascontiguousarray(unseen)
    job = make_regression_job, form, batch, alike, tuple([x.shape for x in operands]), y.dtype, threads()
    nothing = [None] * (K.OPERANDS + 1 - len(operands))
    check(call_of(*job).run(*operands, *nothing))
    return np.moveaxis(mean, -2, 0), cov
