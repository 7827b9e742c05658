"""Linear Gaussian state-space models: the shapes of their arrays.

x[t+1] = F[t] x[t] + N(0, Q[t]),  y[t] = H[t] x[t] + N(0, R[t]),  x[0] = N(m0, P0)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from tridiag.problems.forms import Cut, Shape

FILTER, SMOOTHER, LIKELIHOOD = KALMAN = "kalman.filter", "kalman.smoother", "kalman.log_likelihood"
MATRICES = {"F": "kk", "H": "pk", "Q": "kk", "R": "pp"}  # that may change with time, and their rows and columns
INTERCEPTS = {"state_intercept": "k", "obs_intercept": "p"}  # vectors that may change with time, and may not be given
CHANGING = MATRICES | INTERCEPTS
STATES = {"m0": "k", "P0": "kk"}  # of the first step
UNREAD = "F", "Q", "state_intercept"  # of whose steps in time the last is not read
STEP = {"mean": "k", "cov": "kk", "y": "p"} | CHANGING  # the axes of a single one
PARAMETERS = (*MATRICES, *STATES)
COVARIANCES = ("Q", "R", "P0")
LETTERS = {"k": "states", "p": "values observed in a step"}


class Model(NamedTuple):
    """The parameters of a model, every one with as many batch axes as the observations."""

    F: Any
    H: Any
    Q: Any
    R: Any
    m0: Any
    P0: Any


class StateSpace(NamedTuple):
    """What a backend must know beside the arrays; static and hashable."""

    n: int
    observed: int  # values observed in a step: p
    states: int  # k
    batch: Shape  # of the result
    cov_batch: Shape  # of what covariances depend on if nothing is missing: where this is 1, series share them
    missing: bool | None  # whether any observation is NaN; None: not known before the program runs
    checked: bool  # whether covariances were seen to be valid; else invalid ones make their series NaN
    diffuse: tuple[int, ...] = ()  # the states whose variance in P0 may be infinite
    each_step: bool = False  # whether the log-likelihood of every step is wanted, of a model with such states
    cut: Cut | None = None  # inside `jax.shard_map`, where the steps at hand are those of a device


def own_shapes(form: StateSpace) -> list[Shape]:
    """The shapes of all parameters of one model at one time."""
    k, p = form.states, form.observed
    return [(k, k), (p, k), (k, k), (p, p), (k,), (k, k)]


def entries(form: StateSpace) -> int:
    """How many numbers such a model has."""
    return sum(math.prod(shape) for shape in own_shapes(form))


def results_of(verb: str, form: StateSpace) -> list[Shape]:
    """The shapes of the states that a verb wants, and of log-likelihoods."""
    rows, pairs = (*form.batch, form.n, form.states), {LIKELIHOOD: 0, SMOOTHER: 1}.get(verb, 2)
    return [rows, (*rows, form.states)] * pairs + [form.batch]


def derivatives_of(form: StateSpace, in_y: bool) -> list[Shape]:
    """The shapes of the derivatives of log-likelihoods: in y, where they are wanted, and in all that a model has."""
    return [(*form.batch, form.n, form.observed)] * in_y + [(*form.batch, entries(form))]


def rank_of(name: str) -> int:
    """How many axes belong to one model: rows and columns, and time where the parameter may change with it."""
    return 1 + len(CHANGING[name]) if name in CHANGING else len(STATES[name])


def one_axis(y: Shape) -> str:
    """What is told of observations without an axis for those of a step."""
    return (
        f"y has shape {y}; wanted (..., n, p): time, and the values observed in a step; y[:, None]? "
        "(of a pandas Series y.to_frame())"
    )


def align(shapes: Mapping[str, Shape]) -> tuple[dict[str, Shape], Shape, Shape]:
    """The lifted shapes of y and of what is given, the batch shape, and that of what covariances depend on."""
    y = shapes["y"]
    if len(y) < 2:
        raise ValueError(one_axis(y))
    if y[-1] == 0:
        raise ValueError(f"y has shape {y}; wanted at least one value observed in a step")
    states = states_of(shapes)
    lengths = {"k": states, "p": y[-1]}
    check_matrices(shapes, lengths, y)
    batches, given = {"y": y[:-2]}, [name for name in (*PARAMETERS, *INTERCEPTS) if name in shapes]
    for name in given:
        batches[name] = shapes[name][: max(0, len(shapes[name]) - rank_of(name))]
    rank = max(map(len, batches.values()))
    batches = {name: (1,) * (rank - len(batch)) + batch for name, batch in batches.items()}
    full = common(batches, shapes)
    lifted = {"y": (*batches["y"], *y[-2:])}
    for name in given:
        own = shapes[name][-rank_of(name) :]
        lifted[name] = (*batches[name], *(1,) * (rank_of(name) - len(own)), *own)
    return lifted, full, common({name: batches[name] for name in given if name in PARAMETERS and name != "m0"}, shapes)


def align_step(shapes: Mapping[str, Shape]) -> tuple[dict[str, Shape], Shape]:
    """The lifted shapes of the arrays of a single step, and the batch shape."""
    lengths = {}
    for name, letter in (("mean", "k"), ("y", "p")):
        if name in shapes:
            if not shapes[name] or not shapes[name][-1]:
                hint = f": np.array([{name}])?" if not shapes[name] else ""
                raise ValueError(f"{name} has shape {shapes[name]}; wanted (..., {letter}), at least one value{hint}")
            lengths[letter] = shapes[name][-1]
    column, states = shapes["mean"][-2:], shapes["cov"][-1:]
    if column == (*states, 1) and states != (1,):
        raise ValueError(f"mean has shape {shapes['mean']}; wanted (..., k), no column: mean[..., 0]?")
    for name, shape in shapes.items():
        checked_ending(name, shape, STEP[name], lengths)
    batch = common({name: shape[: len(shape) - len(STEP[name])] for name, shape in shapes.items()}, shapes)
    lifted = {name: (*(1,) * (len(batch) + len(STEP[name]) - len(shape)), *shape) for name, shape in shapes.items()}
    return lifted, batch


def states_of(shapes: Mapping[str, Shape]) -> int:
    """The number of states, which F tells."""
    if len(shapes["F"]) < 2 or shapes["F"][-1] != shapes["F"][-2]:
        hint = ": np.array([[F]])?" if not shapes["F"] else ""
        raise ValueError(f"F has shape {shapes['F']}; wanted a square matrix, (k, k) or (..., time, k, k){hint}")
    if shapes["F"][-1] == 0:
        raise ValueError(f"F has shape {shapes['F']}; wanted at least one state")
    return shapes["F"][-1]


def check_matrices(shapes: Mapping[str, Shape], lengths: Mapping[str, int], y: Shape) -> None:
    n, series = y[-2], y[-3] if len(y) > 2 else None
    check_order(y, shapes["H"], lengths)
    for name, letters in (MATRICES | STATES | INTERCEPTS).items():
        if name not in shapes:
            continue
        wanted = checked_ending(name, shapes[name], letters, lengths)
        if name in CHANGING:
            check_time(name, shapes[name], wanted, n, series)


def check_order(y: Shape, H: Shape, lengths: Mapping[str, int]) -> None:
    """Refuse observations whose last axis is time, by what H says: series of one value each, or the axes exchanged."""
    rows, columns = H[-2:] if len(H) > 1 else (0, 0)
    if columns == lengths["k"] and rows != y[-1] and rows in (1, y[-2]):
        meant = "y[..., None]" if rows == 1 and y[-2] != 1 else "y.swapaxes(-1, -2)"
        raise ValueError(
            f"y has shape {y}, (..., n, p): {y[-1]} values observed in each of {y[-2]} steps; H has shape {H}, for "
            f"{rows}; where time is the last axis of y, pass {meant}{columns_are_series(y, rows)}"
        )


def columns_are_series(y: Shape, rows: int) -> str:
    """What to pass of a table with a series in each column."""
    return "; where its columns are series of one value, y.T[..., None]" if rows == 1 and len(y) == 2 else ""


def checked_ending(name: str, shape: Shape, letters: str, lengths: Mapping[str, int]) -> Shape:
    """The lengths of the last axes of a parameter, which it has."""
    wanted = tuple(lengths[letter] for letter in letters)
    if shape[-len(wanted) :] != wanted:
        sizes = " and ".join(f"{lengths[x]} {LETTERS[x]}" for x in dict.fromkeys(letters))
        raise ValueError(f"{name} has shape {shape}; with {sizes} it ends in {wanted}{meant(name, shape, wanted)}")
    return wanted


def meant(name: str, shape: Shape, wanted: Shape) -> str:
    """What is probably to be passed in place of a vector or matrix of another shape, as a question; or nothing."""
    first, last = wanted[0], wanted[-1]
    if len(wanted) == 1:
        column = f"{name}[..., 0]" if shape[-2:] == (last, 1) else ""
        found = column if shape else f"np.full({last}, {name})"
    elif first == last:
        found = {(): f"np.eye({last}) times it", wanted[1:]: f"np.diag({name})"}.get(shape, "")
    elif shape[-2:] == wanted[::-1]:
        found = f"{name}.swapaxes(-1, -2)"
    else:
        found = f"{name}[None]" if shape == (last,) and first == 1 else ""
    return found and f": {found}?"


def check_time(name: str, shape: Shape, wanted: Shape, n: int, series: int | None) -> None:
    """That the axis before those of one step is time, and that it is not the series that are meant."""
    before = shape[: -len(wanted)]
    if name in UNREAD and before[-1:] == (n - 1,) and n - 1 not in (1, series):
        last = f"{name}[..., -1:{', :' * len(wanted)}]"
        raise ValueError(
            f"{name} has shape {shape}: the axis of time has length {n - 1}, and y has {n} steps; wanted {n}, the last "
            f"of which is never read: np.concatenate([{name}, {last}], axis={-1 - len(wanted)})"
        )
    if before and before[-1] not in (1, n):
        ending, axes = ", ".join(map(str, wanted)), ", :" * len(wanted)
        rows = "its rows" if len(wanted) == 2 else "its last"
        raise ValueError(
            f"{name} has shape {shape}: the axis before {rows} is time, of length n = {n} or 1; "
            f"a model per series needs its time axis too: (series, 1, {ending}), which is {name}[..., None{axes}]"
        )
    if before == (n,) and n == series and n > 1:
        raise ValueError(
            f"{name} has shape {shape}, and y has {n} steps and as many series: {name}[None] has a time axis and "
            f"serves all series, {name}[:, None] is a model per series, the same at all times; write the one meant"
        )


def common(batches: Mapping[str, Shape], shapes: Mapping[str, Shape]) -> Shape:
    """The broadcast of batch axes."""
    try:
        return tuple(np.broadcast_shapes(*batches.values()))
    except ValueError:
        listed = ", ".join(f"{name} {shapes[name]}" for name in batches)
        message = f"the batch axes do not broadcast: {listed}; every one must have the full length or 1"
        raise ValueError(message) from None
