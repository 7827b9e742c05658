"""Series and states drawn at random from a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag.algorithms import kalman_square_roots
from tridiag.calls.checks import check_count
from tridiag.calls.state_space import NO_INTERCEPTS, Call, Intercepts, check_values, parameters_of, prepare
from tridiag.calls.torch_compile import compiling, graph
from tridiag.kalman.filters import smoother
from tridiag.kalman.intercepts import recurrence_of, times
from tridiag.kalman.larger import given
from tridiag.kalman.pieces import by_pieces, draws_of_a_piece, without_missing
from tridiag.libraries.arrays import library_of, module_of, place_of
from tridiag.problems.state_space import CHANGING, INTERCEPTS, PARAMETERS, SMOOTHER, STATES
from tridiag.recurrences import matrix_recurrence

Array = Any


class Simulated(NamedTuple):
    """What `simulate` returns; a pytree under JAX."""

    states: Array  # (*size, ..., n, k)
    y: Array  # (*size, ..., n, p)


def simulate(generator: Any, steps: int, *, size: int | Sequence[int] = (), **model: Any) -> Simulated:
    r"""Draw series and their states from a model.

    .. math:: x_{t+1} = F_t x_t + c_t + \mathcal N(0, Q_t), \qquad y_t = H_t x_t + d_t + \mathcal N(0, R_t)

    Parameters
    ----------
    generator
        What draws, of the library of the arrays: `numpy.random.Generator`, a key of `jax.random`, `torch.Generator`,
        `cupy.random.Generator`. NumPy arrays beside a key are taken as JAX takes them.
    steps : int
        The length of the series, n.
    size : int or tuple of int
        How many are drawn of each model, along axes of their own, which come first.
    **model
        F, H, Q, R, m0, P0, and perhaps state_intercept and obs_intercept, as in `tridiag.kalman.filter`, and diffuse,
        which may name no state. Covariances may be singular. Up to 16 states are compiled.

    Returns
    -------
    Simulated
        ``states`` (\*size, ..., n, k) and ``y`` (\*size, ..., n, p), where ``...`` are the batch axes of the model.

    Raises
    ------
    ValueError, TypeError
        As `tridiag.kalman.filter`; a variance is infinite; the generator is of another library.

    Examples
    --------
    >>> import numpy as np
    >>> from tridiag import kalman
    >>> walk = dict(F=np.eye(1), H=np.eye(1), Q=np.eye(1), R=np.eye(1), m0=np.zeros(1), P0=np.eye(1))
    >>> found = kalman.simulate(np.random.default_rng(0), 100, size=(5,), **walk)
    >>> found.states.shape, found.y.shape
    ((5, 100, 1), (5, 100, 1))

    Notes
    -----
    The states are one `tridiag.matrix_recurrence`; all has gradients in the model, with the same numbers drawn.
    """
    if compiling(tuple(model.values())):
        return graph().outside(simulate, generator, steps, size=size, **model)
    steps = check_count("steps", steps, 1, "the length of the series")
    arrays = parameters_of("simulate", model, PARAMETERS)
    if unknown := sorted(set(model) - {*PARAMETERS, *INTERCEPTS, "diffuse"}):
        raise TypeError(f"simulate has no argument {', '.join(unknown)}")
    with place_of(arrays.values()):
        return simulated(generator, steps, size, arrays, model)


def simulated(
    generator: Any, steps: int, size: int | Sequence[int], arrays: dict[str, Any], model: dict[str, Any]
) -> Simulated:
    """From the parameters of a model, and all its arguments."""
    call = call_of(generator, steps, arrays, model)
    module = module_of(call.library)
    return Simulated(*(module.cast(x, call.dtype) for x in drawn(generator, call, lengths(size))))


def call_of(generator: Any, steps: int, arrays: dict[str, Any], model: dict[str, Any]) -> Call:
    """A model as a smoother of so many steps takes it, no state of which is unknown at first."""
    intercepts = Intercepts(*(model.get(name) for name in INTERCEPTS))
    y = beside(generator, blank_like(arrays, steps))
    call = prepare(SMOOTHER, y, tuple(arrays.values()), "auto", intercepts, model.get("diffuse"))
    if call.form.diffuse:
        raise ValueError(
            f"P0 has an infinite variance, from which nothing can be drawn, of states {list(call.form.diffuse)}, which "
            'are unknown at first; give one that is finite, as model | {"P0": ...}'
        )
    check_values(call, {"y": y} | arrays)
    return call


def simulation_smoother(y: Array, generator: Any, *, size: int | Sequence[int] = (), **model: Any) -> Array:
    r"""Draw the states of series at random, given all that was observed.

    .. math:: x \sim p(x \mid y)

    Parameters
    ----------
    y : array
        The observations, (..., n, p), as in `tridiag.kalman.filter`; NaN is missing.
    generator, size
        As in `tridiag.kalman.simulate`, but that ``y`` comes first, as in all verbs that have it.
    **model
        F, H, Q, R, m0, P0 and the options of `tridiag.kalman.smoother`.

    Returns
    -------
    array
        (\*size, ..., n, k).

    Raises
    ------
    ValueError, TypeError, BackendError
        As `tridiag.kalman.smoother` and `tridiag.kalman.simulate`.

    Examples
    --------
    >>> import numpy as np
    >>> from tridiag import kalman
    >>> walk = dict(F=np.eye(1), H=np.eye(1), Q=np.eye(1), R=np.eye(1), m0=np.zeros(1), P0=np.eye(1))
    >>> kalman.simulation_smoother(np.zeros((50, 1)), np.random.default_rng(0), size=(7,), **walk).shape
    (7, 50, 1)

    Notes
    -----
    A series is simulated, and what the smoother makes of its difference from y is added to its states (J. Durbin and
    S. J. Koopman, Biometrika 89, 2002). All that are drawn share their covariances, whatever is missing. The smoother
    takes so many at a time that it needs about 64 MiB of memory, or one. A state that is unknown at first may begin
    anywhere in what is simulated.
    """
    if compiling(y):
        return graph().outside(simulation_smoother, y, generator, size=size, **model)
    if not hasattr(y, "__len__") and hasattr(generator, "__len__"):
        raise TypeError(f"y is {y!r}; simulation_smoother takes y first, and then the generator")
    with place_of((y, *model.values())):
        return drawn_given(y, generator, size, model)


def drawn_given(y: Array, generator: Any, size: int | Sequence[int], model: dict[str, Any]) -> Array:
    """States given observations, from all arguments of a smoother."""
    arguments, axes = given("simulation_smoother", beside(generator, y), model), lengths(size)
    call, module = arguments.call, module_of(arguments.call.library)
    ops, form, count = module.Operations, call.form, math.prod(axes)
    P0, m0 = call.model.P0, call.model.m0
    known = np.isin(np.arange(form.states), form.diffuse, invert=True)
    P0 = ops.where(ops.placed(known[:, None] & known, P0), P0, ops.zero(P0))
    begun = call.model._replace(m0=ops.zero(m0), P0=P0)
    states, seen = drawn(generator, call._replace(model=begun, intercepts=NO_INTERCEPTS), axes)
    apart = call.y - seen
    if form.missing is not False and count > 1:
        call, apart = without_missing(call, apart)
    changing = call.model._asdict() | dict(zip(INTERCEPTS, call.intercepts, strict=True))
    shared: dict[str, Any] = {name: changing[name][None] for name in CHANGING if changing[name] is not None}
    start: dict[str, Any] = {name: model.get(name) for name in (*STATES, "diffuse")}

    def smoothed(y: Array) -> Array:
        mean: Array = smoother(y, **shared, **start, **arguments.options).mean
        return mean

    traced = any(map(module.is_traced, (apart, *shared.values(), *start.values())))
    apart = apart.reshape(count, *form.batch, form.n, form.observed)
    found = by_pieces(smoothed, apart, draws_of_a_piece(call, traced), ops, traced)
    result: Array = module.cast(states + found.reshape(states.shape), call.dtype)
    return result


def lengths(size: int | Sequence[int]) -> tuple[int, ...]:
    """Of the axes along which a model is drawn again and again, as NumPy takes them."""
    each = size if isinstance(size, Sequence) else (size,)
    return tuple(check_count("size", length, 0, "how many are drawn along an axis") for length in each)


def blank_like(arrays: dict[str, Any], steps: int) -> Any:
    """Observations of as many steps, of the library of a model."""
    H = arrays["H"] if hasattr(arrays["H"], "dtype") else np.asarray(arrays["H"])
    if H.ndim < 2:
        raise ValueError(f"H has shape {tuple(H.shape)}; wanted a matrix, (p, k) or (..., time, p, k)")
    return module_of(library_of(H) or "numpy").Operations.full((steps, H.shape[-2]), 0, H)


def beside(generator: Any, y: Array) -> Array:
    """Observations as they are taken: a key of JAX makes NumPy arrays JAX's, as any of its arrays would."""
    if library_of(generator) != "jax" or type(y) is not np.ndarray:
        return y
    return module_of("jax").Operations.placed(y, generator)


def drawn(generator: Any, call: Call, size: tuple[int, ...]) -> tuple[Array, Array]:
    """States and observations of a model."""
    module, model, form = module_of(call.library), call.model, call.form
    ops, axis, n = module.Operations, len(form.batch), form.n
    z = module.normal(generator, (*size, *form.batch, n, form.states + form.observed), model.F)
    noise = z[..., : form.states]  # that of the last step moves nothing: it is for the first state
    if n == 0:
        return noise, z[..., form.states :]
    first = noise[..., n - 1, :]
    moved = times(root(ops, model.Q), noise)
    if call.intercepts.state is not None:
        moved = moved + call.intercepts.state
    F, before = recurrence_of(call, moved)
    start = model.m0 + times(root(ops, model.P0), first)
    before = ops.concatenate((start[..., None, :], before[..., 1:, :]), axis + len(size))
    states = matrix_recurrence(F, before)
    y = times(model.H, states) + times(root(ops, model.R), z[..., form.states :])
    return states, y if call.intercepts.obs is None else y + call.intercepts.obs


def root(ops: Any, cov: Array) -> Array:
    """A matrix B with B B^T = cov, which may be singular: L of L D L^T times the square roots of D."""
    count = cov.ndim - 2
    turned = ops.transpose(cov, (count, count + 1, *range(count)))
    found = kalman_square_roots.root_of(ops, ops.symmetric(turned))
    columns = []
    for j, weight in enumerate(found.weights):
        there = weight > 0
        size = ops.where(there, ops.where(there, weight, ops.one(weight)) ** 0.5, ops.zero(weight))
        columns.append(kalman_square_roots.whole(ops, found, j) * size)
    both = ops.stack(columns)
    result: Array = ops.transpose(both, (*range(2, both.ndim), 1, 0))
    return result
