"""The operands of every verb: their shapes, and random values for which the problem is well posed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tridiag.benchmarking.errors import Array

STATES = 4  # of a Kalman filter's model
SELECTIVE_STATES = 16  # of a selective scan, in each sequence

Shape = tuple[int, ...]


def like(count: int) -> Callable[[Shape], tuple[Shape, ...]]:
    return lambda shape: (shape,) * count


def system(rng: np.random.Generator, *shapes: Shape) -> tuple[Array, ...]:
    """Diagonally dominant: couplings decay."""
    a, c = rng.uniform(-1, 1, shapes[0]), rng.uniform(-1, 1, shapes[0])
    b = abs(a) + abs(c) + rng.uniform(0.01, 1, shapes[0])
    return (a, b, c, *(rng.standard_normal(shape) for shape in shapes[3:]))


def blocks(rng: np.random.Generator, *shapes: Shape) -> tuple[Array, ...]:
    """Blocks on the diagonal dominate."""
    A, B, C = (rng.uniform(-1, 1, shape) / shape[-1] for shape in shapes[:3])
    return A, B + 3 * np.eye(shapes[1][-1]), C, rng.standard_normal(shapes[3])


def block_shapes(shape: Shape) -> tuple[Shape, ...]:
    return (*[(*shape, shape[-1])] * 3, shape)


def recurrence(rng: np.random.Generator, *shapes: Shape) -> tuple[Array, ...]:
    """The past is forgotten."""
    return rng.uniform(0.5, 1, shapes[0]), rng.standard_normal(shapes[1])


def selective(rng: np.random.Generator, *shapes: Shape) -> tuple[Array, ...]:
    """The same of several states, whose coefficients all steps share."""
    return rng.uniform(0.5, 1, shapes[0]), *(rng.standard_normal(shape) for shape in shapes[1:])


def selective_shapes(shape: Shape) -> tuple[Shape, ...]:
    states = (SELECTIVE_STATES,)
    return states, shape, (*shape, *states), (*shape, *states)


def log_recurrence(rng: np.random.Generator, *shapes: Shape) -> tuple[Array, ...]:
    """The same in logarithms."""
    return np.log(rng.uniform(0.5, 1, shapes[0])), rng.standard_normal(shapes[1])


def normal(rng: np.random.Generator, shape: Shape) -> tuple[Array, ...]:
    return (rng.standard_normal(shape),)


def matrices(rng: np.random.Generator, *shapes: Shape) -> tuple[Array, ...]:
    """Vectors neither grow nor vanish."""
    return rng.uniform(-1, 1, shapes[0]) / np.sqrt(shapes[0][-1]), rng.standard_normal(shapes[1])


def matrix_shapes(shape: Shape) -> tuple[Shape, ...]:
    return (*shape, shape[-1]), shape


def model(rng: np.random.Generator, *shapes: Shape) -> tuple[Array, ...]:
    """A stable one of some states, and observations."""
    noise = rng.normal(size=shapes[1])
    H, R = rng.normal(size=shapes[2]), 0.5 * np.eye(shapes[0][-1])
    Q = noise @ noise.T / STATES + 0.1 * np.eye(STATES)
    y = rng.normal(size=shapes[0])
    return y, 0.9 * np.linalg.qr(noise)[0], H, Q, R, np.zeros(STATES), 10 * np.eye(STATES)


def model_shapes(shape: Shape) -> tuple[Shape, ...]:
    square, observed = (STATES, STATES), shape[-1]
    return shape, square, (observed, STATES), square, (observed, observed), (STATES,), square


def predict_shapes(shape: Shape) -> dict[str, Shape]:
    """Of the states behind observations of a shape, and of the step to the next ones."""
    square = (STATES, STATES)
    return {"mean": (*shape[:-1], STATES), "cov": square, "F": square, "Q": square}


def update_shapes(shape: Shape) -> dict[str, Shape]:
    """Of these states and observations."""
    observed = shape[-1]
    return {"mean": (STATES,), "cov": (STATES, STATES), "y": shape, "H": (observed, STATES), "R": (observed, observed)}


def simulation_shapes(shape: Shape) -> dict[str, Shape]:
    """Of a model for series of a shape."""
    _, *model, m0, P0 = model_shapes(shape)
    return dict(zip("FHQR", model, strict=True)) | {"m0": (*shape[:-2], *m0), "P0": P0}


def scan_shapes(shape: Shape) -> dict[str, Shape]:
    """Of a carry that is a number, and of rows."""
    return {"init": (), "xs": shape}
