"""Smoothers of models whose states carry more with them: those of the step before, or disturbances."""

from __future__ import annotations

from typing import Any, NamedTuple

from tridiag.calls.state_space import Call, Intercepts, check_values, is_readable, parameters_of, prepare
from tridiag.kalman.execute import Smoothed
from tridiag.kalman.filters import smoother
from tridiag.kalman.intercepts import wider
from tridiag.libraries.arrays import module_of
from tridiag.problems.state_space import INTERCEPTS, PARAMETERS, SMOOTHER

Array = Any


class Given(NamedTuple):
    """The arguments of such a smoother."""

    call: Call
    options: dict[str, Any]  # those that are no part of a model

    def smoothed(self, F: Array, H: Array, Q: Array, R: Array, P0: Array) -> Smoothed:
        """By a model with more states behind those of the caller, that are 0 at first but for P0."""
        call = self.call
        ops, more = module_of(call.library).Operations, F.shape[-1] - call.form.states
        added: dict[str, Any] = dict(zip(INTERCEPTS, call.intercepts, strict=True))
        if call.intercepts.state is not None:
            added["state_intercept"] = wider(ops, call.intercepts.state, 0, more)
        larger = {"F": F, "H": H, "Q": Q, "R": R, "m0": longer(ops, call.model.m0, more), "P0": P0}
        told = is_readable(call.library, call.problem.device, P0)  # of each series by itself, what is unknown in it
        return smoother(call.y, **larger, **added, **self.options, diffuse=None if told else call.form.diffuse)


def given(verb: str, y: Array, model: dict[str, Any]) -> Given:
    """The arguments of a smoother, once their values were looked at under the names that the caller knows."""
    options = {name: x for name, x in model.items() if name not in (*PARAMETERS, *INTERCEPTS, "diffuse")}
    intercepts = Intercepts(*(model.get(name) for name in INTERCEPTS))
    parameters = parameters_of(verb, model)
    call = prepare(SMOOTHER, y, tuple(parameters.values()), "auto", intercepts, model.get("diffuse"))
    return Given(call._replace(form=check_values(call, {"y": y} | parameters)), options)


def longer(ops: Any, x: Array, more: int) -> Array:
    """Vectors with zeros behind them."""
    return ops.concatenate((x, ops.full((*x.shape[:-1], more), 0, x)), x.ndim - 1)
