"""Filtered and smoothed states of PyTorch tensors by square roots of covariances, and their derivatives.

Square roots themselves are differentiated only where derivatives are: `tridiag.algorithms.kalman_changes`.
"""

from __future__ import annotations

from typing import Any

import torch

from tridiag.algorithms import kalman_roots_rows, kalman_rows
from tridiag.libraries.torch import Operations as ops
from tridiag.problems.state_space import LIKELIHOOD, Model, StateSpace


def kalman(verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    """The results of a verb, of states that may be differentiated."""
    if form.diffuse:
        return kalman_rows.from_diffuse(ops, verb, y, model, form, whole)
    return whole(verb, y, model, form)


def whole(verb: str, y: Any, model: Model, form: StateSpace) -> Any:
    return kalman_rows.run(ops, verb, y, model, form, by_roots)


def by_roots(_: Any, verb: str, model: Model, y: Any, kept: Any, form: StateSpace) -> Any:
    """As `tridiag.algorithms.kalman_rows.by_roots`."""
    if verb == LIKELIHOOD:
        return kalman_rows.by_roots(ops, verb, model, y, kept, form)
    return States.apply(verb, form, kept, y, *model)


class States(torch.autograd.Function):
    """What a filter or a smoother returns; arrays are as in `tridiag.algorithms.kalman_filter`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(verb: str, form: StateSpace, kept: Any, y: Any, *model: Any) -> Any:
        return kalman_rows.by_roots(ops, verb, Model(*model), y, kept, form)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.verb, ctx.form, ctx.kept, *arrays = inputs
        ctx.save_for_backward(*arrays)
        ctx.save_for_forward(*arrays)

    @staticmethod
    def backward(ctx: Any, *weights: Any) -> Any:
        change, arrays = changes_of(ctx)
        _, pull = torch.func.vjp(change, *map(torch.zeros_like, arrays))
        return None, None, None, *pull(weights)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        change, arrays = changes_of(ctx)
        pairs = zip(tangents[3:], arrays, strict=True)
        return change(*[torch.zeros_like(x) if tangent is None else tangent for tangent, x in pairs])


def changes_of(ctx: Any) -> tuple[Any, Any]:
    """What changes of y and of the model make of the results, and what these are."""
    verb, form, kept, arrays = ctx.verb, ctx.form, ctx.kept, ctx.saved_tensors
    y, *model = arrays
    found = kalman_roots_rows.states(ops, verb, y, Model(*model), kept, form)

    def change(of_y: Any, *of_model: Any) -> Any:
        *states, logarithm = kalman_roots_rows.changes(ops, form, Model(*model), kept, found, of_y, Model(*of_model))
        parts = [x for state in states for x in kalman_rows.stacked(ops, state, form)]
        return *parts, logarithm.expand(form.batch)

    return change, arrays
