"""Cases of Kalman filters, against the textbook's in more precision."""

from __future__ import annotations

import numpy as np

from guarded import Ran, hostile_models, scratch
from guarded.draw import Draw, in_numpy
from guarded.oracles import EPS, Array
from tridiag import kalman

MODELS = ((1, 1), (2, 1), (2, 1), (3, 2))  # states, values observed
LARGER = ((9, 1), (17, 3), (2, 9))  # whose filters and smoothers XLA compiles for minutes


def inverse(a: Array) -> tuple[Array, Array]:
    """Inverses of positive definite matrices, and the logarithms of their determinants, by Gauss and Jordan."""
    m = a.shape[-1]
    work = np.concatenate((a, np.broadcast_to(np.eye(m, dtype=a.dtype), a.shape)), -1)
    logarithm = np.zeros(a.shape[:-2], a.dtype)
    for k in range(m):
        pivot = work[..., k, k]
        logarithm = logarithm + np.log(pivot)
        row = work[..., k, :] / pivot[..., None]
        work = work - work[..., :, k, None] * row[..., None, :]
        work[..., k, :] = row
    return work[..., m:], logarithm


def run(draw: Draw, library: str) -> Ran:
    """filter, smoother and log_likelihood, of models that are well conditioned; or others."""
    if draw.chance("hostile", 0.3, "numbers"):
        return hostile_models.run(draw, library)
    verb = draw.choose("verb of kalman", ("log_likelihood", "filter", "smoother"))
    dtype = draw.choose("dtype", ("float64", "float32"))
    k, p = draw.choose("model", MODELS + LARGER * (library != "jax"), "numbers")
    rng, stream = draw.values, draw.stream("series")
    n, count = (
        draw.shrunk("n", stream.choice((1, 2, 3, 5, 8, 12))),
        draw.shrunk("batch", stream.choice((1, 2, 7, 8, 9, 17, 33))),
    )
    own, timed = draw.chance("own model", 0.4, "broadcast"), draw.chance("in time", 0.4, "broadcast")
    series_axis = (count,) if own else (1,) if timed and n == count else ()  # which tells time from as many series
    head = (*series_axis, *((n if timed else 1,) if own or timed else ()))

    def spd(size: int, *shape: int) -> Array:
        x = rng.normal(size=(*shape, size, size)) / 2
        return x @ x.swapaxes(-1, -2) + 0.5 * np.eye(size)

    model = {
        "F": rng.normal(size=(*head, k, k)) * 0.6 / np.sqrt(k), "H": rng.normal(size=(*head, p, k)),
        "Q": spd(k, *head), "R": spd(p, *head), "m0": rng.normal(size=k), "P0": spd(k),
    }  # fmt: skip
    model = {name: x.astype(dtype) for name, x in model.items()}
    y = rng.normal(size=(count, n, p)).astype(dtype)
    if verb != "smoother" and draw.chance("of low rank", 0.3, "numbers"):  # whose covariances the smoother inverts
        model |= {name: low_rank(draw, name, model[name]) for name in ("Q", "P0")}
    if draw.chance("infinite", 0.1, "planted"):
        model[draw.choose("where infinite", ("P0", "R"), "planted")][..., 0, 0] = np.inf
    elif draw.chance("missing", 0.4, "planted"):
        y[rng.random(y.shape) < 0.2] = np.nan
    wide = {
        name: np.broadcast_to(x, (count, n, *x.shape[-2:])).astype(np.longdouble)
        for name, x in model.items()
        if name in "FHQR"
    }
    if timed and n > 1 and draw.chance("unread", 0.7, "planted"):
        for name in ("F", "Q"):
            model[name][..., n - 1, :, :] = np.nan
    given = {name: draw.operand(name, x, library) for name, x in model.items()}
    draw.words.insert(0, f"kalman.{verb} {library} k={k} p={p} n={n} series={count} own={own} timed={timed}")
    observed = draw.operand("y", y, library)
    with scratch.arrays():
        if np.isinf(model["R"]).any():
            return refused(draw, verb, observed, given)
        result = getattr(kalman, verb)(observed, **given)
    found = [in_numpy(x) for x in (result if isinstance(result, tuple) else (result,))]
    draw.finish()
    if np.isposinf(model["P0"]).any():  # a state that is unknown at first
        plain = getattr(kalman, verb)(y, **model, backend="numpy_scan")
        for x, right in zip(found, plain if isinstance(plain, tuple) else (plain,), strict=True):
            np.testing.assert_allclose(x, right, EPS[dtype] ** 0.5, EPS[dtype] ** 0.5)
        return Ran(f"kalman.{verb}", library, systems=count)
    with np.errstate(all="ignore"):
        wanted = textbook(
            verb, y.astype(np.longdouble), wide, model["m0"].astype(np.longdouble), model["P0"].astype(np.longdouble)
        )
    # conditions of S are below some hundred, and every step forgets half: errors are those of a few steps of k + p sums
    for x, right in zip(found, wanted, strict=True):
        scale = 1 + abs(right).max(initial=0)
        if x.shape != right.shape or not (abs(x - right) <= 3000 * EPS[dtype] * scale).all():
            raise AssertionError(
                f"off by {float(abs(x - right).max() / scale / EPS[dtype]):.3g} eps"
                if x.shape == right.shape
                else f"shape {x.shape}, not {right.shape}"
            )
    return Ran(f"kalman.{verb}", library, systems=count)


def refused(draw: Draw, verb: str, y: Array, model: dict[str, Array]) -> Ran:
    """A noise of infinite variance is named."""
    try:
        getattr(kalman, verb)(y, **model)
    except ValueError as error:
        if "is inf" not in str(error):
            raise
    else:
        raise AssertionError("an infinite variance is taken for another one")
    draw.finish()
    return Ran(f"kalman.{verb}", "numpy", systems=1)


def low_rank(draw: Draw, name: str, x: Array) -> Array:
    """Nothing, or one direction of a covariance."""
    one = draw.values.normal(size=(*x.shape[:-1], 1)).astype(x.dtype)
    return one @ one.swapaxes(-1, -2) * draw.choose(f"rank of {name}", (0, 1), "numbers")


def textbook(verb: str, y: Array, model: dict[str, Array], m0: Array, P0: Array) -> list[Array]:
    """Kalman's filter, with Joseph's form, and the smoother of Rauch, Tung and Striebel."""
    count, n, p = y.shape
    k = len(m0)
    mean, cov = np.broadcast_to(m0, (count, k)), np.broadcast_to(P0, (count, k, k))
    total, kept = np.zeros(count, y.dtype), []
    for t in range(n):
        F, H, Q, R = (model[name][:, t] for name in "FHQR")
        there = ~np.isnan(y[:, t])
        H = np.where(there[..., None], H, 0)
        R = np.where(there[..., None] & there[..., None, :], R, np.eye(p))
        v = np.where(there, y[:, t], 0) - (H @ mean[..., None])[..., 0]
        weight, logarithm = inverse(H @ cov @ H.swapaxes(-1, -2) + R)
        gain = cov @ H.swapaxes(-1, -2) @ weight
        total = (
            total
            - (
                (v[:, None] @ weight @ v[..., None])[:, 0, 0]
                + logarithm
                + there.sum(-1) * np.log(2 * np.longdouble(np.pi))
            )
            / 2
        )
        left = np.eye(k) - gain @ H
        new = (
            mean + (gain @ v[..., None])[..., 0],
            left @ cov @ left.swapaxes(-1, -2) + gain @ R @ gain.swapaxes(-1, -2),
        )
        kept.append((*new, mean, cov))
        mean, cov = (F @ new[0][..., None])[..., 0], F @ new[1] @ F.swapaxes(-1, -2) + Q
    if verb == "log_likelihood":
        return [total]
    if verb == "filter":
        return [*(np.stack(x, 1) for x in zip(*kept, strict=True)), total]
    smooth = [kept[-1][:2]]
    for t in range(n - 2, -1, -1):
        (m, P, _, _), (_, _, ahead, spread), (later, wide) = kept[t], kept[t + 1], smooth[0]
        J = P @ model["F"][:, t].swapaxes(-1, -2) @ inverse(spread)[0]
        smooth.insert(0, (m + (J @ (later - ahead)[..., None])[..., 0], P + J @ (wide - spread) @ J.swapaxes(-1, -2)))
    return [*(np.stack(x, 1) for x in zip(*smooth, strict=True)), total]
