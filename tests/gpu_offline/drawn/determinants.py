"""`slogdet`."""

from __future__ import annotations

import cupy
import numpy as np
from guarded.accuracy_bars import Matrix, acting, wide

import tridiag
from drawn import Array, Outcome, Refused, Where, same_bits
from drawn.kinds_of_systems import certainly_singular, spoil
from drawn.memory import Memory
from drawn.systems import Call


def slogdet(rng: np.random.Generator, where: Where) -> Outcome:
    call = Call.draw(rng, where, "slogdet")._replace(sides=1, into="", transpose=False, pivoting=True)
    call = call._replace(right=call.dtype)
    kinds, clean = call.systems(rng)
    readable, seed = call.readable(clean.keep), int(rng.integers(2**60))
    readable[3][:] = False
    given, must = spoil(rng, kinds, clean[:4], readable)
    bad = (kinds == "not a number") | (kinds == "infinite")
    found = run(call, np.random.default_rng(seed), given, clean.keep)
    error = judge(acting(clean, call.periodic), *found)
    error[certainly_singular(kinds, clean.keep, call.periodic) & ~((found[0] == 0) & np.isneginf(found[1]))] = np.inf
    changed = ~np.all([same_bits(x, y) for x, y in zip(given, clean[:4], strict=True)], 0)
    error[bad] = np.where(must[bad] & changed[bad] & np.isfinite(found[1][bad]), np.inf, 0)
    if bad.any() and not bad.all():
        again = run(call, np.random.default_rng(seed), clean[:4], clean.keep)
        same = same_bits(found[0], again[0]) & same_bits(found[1], again[1])
        error[~same & ~bad] = np.inf
    return Outcome(str(call), kinds, error)


def run(call: Call, rng: np.random.Generator, bands: list[Array], keep: Array) -> list[Array]:
    """Signs and logarithms."""
    memory = Memory(rng)
    turned = [np.moveaxis(x.reshape(call.shape), -1, call.axis) for x in (*bands[:3], keep)]
    *matrix, mask = map(memory.given, turned)
    options = {"axis": call.axis, "backend": call.backend, "periodic": call.periodic}
    found = tridiag.slogdet(*matrix, where=mask if call.masked else None, **options)
    memory.check()
    if any(x.shape != (call.groups, 1) for x in found) or str(found[0].dtype) != call.dtype:
        raise Refused(f"the results are {[(x.dtype, x.shape) for x in found]}")
    return [cupy.asnumpy(x).reshape(-1) for x in found]


def judge(matrix: Matrix, sign: Array, logarithm: Array) -> Array:
    """Of each matrix the distance from extended precision, over what errors of the entries can do."""
    n, info = matrix.diagonal.shape[1], np.finfo(logarithm.dtype)
    with np.errstate(all="ignore"):
        rows = np.max([abs(x) for x in matrix[:3]], 0)
        smallest = np.where(rows > 0, rows, np.inf).min(1)
        eps = info.eps * np.maximum(1, info.tiny / smallest)  # subnormal numbers have fewer digits
        value, size, scale = determinants(wide(matrix))
        loss = size / abs(value)
        tolerance = 20 * eps * n * loss
        right = np.log(abs(value)) + scale
        of_sign = abs(sign - value / abs(value)) / tolerance
        off = np.maximum(abs(logarithm - right) / (tolerance + 4 * eps * abs(right)), of_sign)
        error = np.where(np.isfinite(logarithm) & np.isfinite(off), off, np.inf)
        return np.where(loss * eps * n <= 1e-3, error, 0).astype(float)


def determinants(matrix: Matrix) -> tuple[Array, Array, Array]:
    """Over the exponentials of the last, and the same of absolute values; corners add two matrices and two products."""
    a, b, c, _ = (x.astype(np.clongdouble if x.dtype.kind == "c" else np.longdouble) for x in matrix)
    parts = [minors(a, b, c)]
    n, corners = b.shape[1], a[:, 0] * c[:, -1]
    if (a[:, 0] != 0).any() or (c[:, -1] != 0).any():
        inner = minors(a[:, 1:-1], b[:, 1:-1], c[:, 1:-1])
        parts.append((-corners * inner[0], abs(corners) * inner[1], inner[2]))
        for band in (a, c):
            power = np.frexp(abs(band))[1]
            product = np.prod(
                np.ldexp(band.real, -power) + (1j * np.ldexp(band.imag, -power) if band.dtype.kind == "c" else 0), 1
            )
            parts.append(((-1) ** (n + 1) * product, abs(product), power.sum(1) * np.log(np.longdouble(2))))
    top = np.max([np.where(size > 0, scale, -np.inf) for _, size, scale in parts], 0)
    top = np.where(np.isfinite(top), top, 0)
    weights = [np.exp(scale - top) for _, _, scale in parts]
    value, size = (sum(part[k] * w for part, w in zip(parts, weights, strict=True)) for k in range(2))
    return value, size, top


def minors(a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    """By the recurrence of leading minors."""
    one, two, scale = b[:, 0], np.ones_like(b[:, 0]), np.zeros(len(b), np.longdouble)
    size, before = abs(one), abs(two)
    for i in range(b.shape[1]):
        if i:
            coupled = a[:, i] * c[:, i - 1]
            one, two = b[:, i] * one - coupled * two, one
            size, before = abs(b[:, i]) * size + abs(coupled) * before, size
        power = np.where((most := np.maximum(size, before)) > 0, most, 1)
        one, two, size, before = one / power, two / power, size / power, before / power
        scale = scale + np.log(power)
    return one, size, scale
