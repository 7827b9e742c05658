"""Loops as textbooks have them, and as one writes them first."""

from __future__ import annotations

from typing import Any

import numpy as np


def thomas(a: Any, b: Any, c: Any, d: Any) -> Any:
    """The solutions of systems along the last axis by `jax.lax.scan` over rows, without pivoting."""
    import jax.numpy as jnp

    return jnp.moveaxis(thomas_of_rows(*(jnp.moveaxis(x, -1, 0) for x in (a, b, c, d))), 0, -1)


def thomas_of_rows(a: Any, b: Any, c: Any, d: Any) -> Any:
    """The same along the first axis: nothing is transposed."""
    import jax.numpy as jnp
    from jax import lax

    zero = jnp.zeros_like(d[0])
    _, eliminated = lax.scan(forward, (zero, zero), (a, b, c, d))
    return lax.scan(backward, zero, eliminated, reverse=True)[1]


def forward(carry: Any, row: Any) -> Any:
    a, b, c, d = row
    pivot = 1 / (b - a * carry[0])
    carry = c * pivot, (d - a * carry[1]) * pivot
    return carry, carry


def backward(x: Any, row: Any) -> Any:
    x = row[1] - row[0] * x
    return x, x


# ---------------------------------------------------------------------------------------------------- systems


def thomas_in_numpy(a: Any, b: Any, c: Any, d: Any) -> Any:
    """Systems along the last axis: a loop in Python over rows, all systems at once."""
    c, d, x = c.copy(), d.copy(), np.empty_like(d)
    c[..., 0] /= b[..., 0]
    d[..., 0] /= b[..., 0]
    for i in range(1, d.shape[-1]):
        pivot = 1 / (b[..., i] - a[..., i] * c[..., i - 1])
        c[..., i] *= pivot
        d[..., i] = (d[..., i] - a[..., i] * d[..., i - 1]) * pivot
    x[..., -1] = d[..., -1]
    for i in range(d.shape[-1] - 2, -1, -1):
        x[..., i] = d[..., i] - c[..., i] * x[..., i + 1]
    return x


def thomas_in_torch(a: Any, b: Any, c: Any, d: Any) -> Any:
    """The same with tensors, which keep what they need for a gradient."""
    import torch

    n = d.shape[-1]
    upper, right, x = [c[..., 0] / b[..., 0]], [d[..., 0] / b[..., 0]], [d[..., 0]] * n
    for i in range(1, n):
        pivot = 1 / (b[..., i] - a[..., i] * upper[-1])
        right.append((d[..., i] - a[..., i] * right[-1]) * pivot)
        upper.append(c[..., i] * pivot)
    x[-1] = right[-1]
    for i in range(n - 2, -1, -1):
        x[i] = right[i] - upper[i] * x[i + 1]
    return torch.stack(x, -1)


def thomas_by_scatter(a: Any, b: Any, c: Any, d: Any) -> Any:
    """`jax.lax.fori_loop` over rows, each one written by `at[...].set`."""
    return thomas_in_place(a, b, c, d, lambda x, i: x[..., i], lambda x, row, i: x.at[..., i].set(row))


def thomas_by_slices(a: Any, b: Any, c: Any, d: Any) -> Any:
    """The same with dynamic slices."""
    from jax import lax

    def read(x: Any, i: Any) -> Any:
        return lax.dynamic_index_in_dim(x, i, -1, keepdims=False)

    return thomas_in_place(a, b, c, d, read, lambda x, row, i: lax.dynamic_update_index_in_dim(x, row, i, -1))


def thomas_in_place(a: Any, b: Any, c: Any, d: Any, read: Any, write: Any) -> Any:
    from jax import lax

    n = d.shape[-1]

    def down(i: Any, carry: Any) -> Any:
        upper, right = carry
        pivot = 1 / (read(b, i) - read(a, i) * read(upper, i - 1))
        new = (read(right, i) - read(a, i) * read(right, i - 1)) * pivot
        return write(upper, read(upper, i) * pivot, i), write(right, new, i)

    def up(k: Any, carry: Any) -> Any:
        upper, x = carry
        i = n - 2 - k
        return upper, write(x, read(x, i) - read(upper, i) * read(x, i + 1), i)

    first = write(c, read(c, 0) / read(b, 0), 0), write(d, read(d, 0) / read(b, 0), 0)
    return lax.fori_loop(0, n - 1, up, lax.fori_loop(1, n, down, first))[1]


# ---------------------------------------------------------------------------------------------------- logarithms


def by_global_maximum(x: Any, module: Any) -> Any:
    """logcumsumexp along the last axis; terms far below the maximum of all are lost."""
    top = module.max(x, -1, keepdims=True)
    return top + module.log(module.cumsum(module.exp(x - top), -1))


def by_scan(x: Any) -> Any:
    """logcumsumexp along the last axis by `jax.lax.scan`."""
    import jax.numpy as jnp
    from jax import lax

    def step(y: Any, row: Any) -> Any:
        y = jnp.logaddexp(y, row)
        return y, y

    return jnp.moveaxis(lax.scan(step, jnp.full_like(x[..., 0], -jnp.inf), jnp.moveaxis(x, -1, 0))[1], 0, -1)


# ---------------------------------------------------------------------------------------------------- state space


def likelihood(missing: bool = False) -> Any:
    """A function: the log-likelihood of one series, one value observed in a step, by `jax.lax.scan`."""
    import jax
    import jax.numpy as jnp

    def of_one(y: Any, F: Any, H: Any, Q: Any, R: Any, m0: Any, P0: Any) -> Any:
        def step(carry: Any, value: Any) -> Any:
            mean, cov, total = carry
            seen = ~jnp.isnan(value[0]) if missing else True
            S, v = (H @ cov @ H.T + R)[0, 0], jnp.where(seen, value[0], 0) - (H @ mean)[0]
            gain = (cov @ H.T)[:, 0] / S
            new = mean + gain * v, cov - jnp.outer(gain, H @ cov), total - (jnp.log(2 * jnp.pi * S) + v * v / S) / 2
            if missing:
                new = tuple(jnp.where(seen, x, old) for x, old in zip(new, carry, strict=True))
            mean, cov, total = new
            return (F @ mean, F @ cov @ F.T + Q, total), None

        return jax.lax.scan(step, (m0, P0, jnp.zeros((), y.dtype)), y)[0][2]

    return of_one


# ---------------------------------------------------------------------------------------------------- alignment


def align_by_scan(scores: Any, gap: float) -> Any:
    """The scores of alignments by `jax.lax.scan` over the anti-diagonals of one pair, vmapped."""
    import jax
    import jax.numpy as jnp

    def of_one(s: Any) -> Any:
        rows, columns = s.shape
        i, none = jnp.arange(rows), jnp.full(rows, -1e30, s.dtype)

        def shift(x: Any) -> Any:
            return jnp.concatenate([none[:1], x[:-1]])

        def step(carry: Any, k: Any) -> Any:
            before, last = carry
            j = k - i
            w = s[i, jnp.clip(j, 0, columns - 1)]
            terms = shift(before) + w, shift(last) + gap, last + gap, w
            here = jnp.where((j >= 0) & (j < columns), jax.scipy.special.logsumexp(jnp.stack(terms), axis=0), -1e30)
            return (last, here), here

        cells = jax.lax.scan(step, (none, none), jnp.arange(rows + columns - 1))[1]
        return jax.scipy.special.logsumexp(cells)

    return jax.vmap(of_one)(scores)


def align_in_torch(scores: Any, gap: float, step: Any = None) -> Any:
    """The same as a loop over anti-diagonals, all pairs at once; ``step`` is `torch_step`, or that compiled."""
    import torch

    pairs, rows, columns = scores.shape
    before = last = scores.new_full((pairs, rows), -1e30)
    cells = []
    for k in torch.arange(rows + columns - 1, device=scores.device):
        before, last = last, (step or torch_step)(scores, before, last, k, gap)
        cells.append(last)
    return torch.logsumexp(torch.cat(cells, 1), 1)


def torch_step(scores: Any, before: Any, last: Any, k: Any, gap: float) -> Any:
    """The anti-diagonal k from the two before it."""
    import torch

    rows, columns = scores.shape[1:]
    i, none = torch.arange(rows, device=scores.device), torch.full_like(last, -1e30)
    j = k - i
    w = scores[:, i, j.clamp(0, columns - 1)]
    shifted = [torch.cat((none[:, :1], x[:, :-1]), 1) for x in (before, last)]
    longer = torch.logsumexp(torch.stack((shifted[0] + w, shifted[1] + gap, last + gap, w)), 0)
    return torch.where((j >= 0) & (j < columns), longer, none)
