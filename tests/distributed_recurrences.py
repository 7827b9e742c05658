"""Checks of recurrences of DTensors, run by `distributed_systems.py`."""

import math

import torch
from four_processes import (
    COMPLEX,
    LENGTHS,
    PROCESSES,
    REAL,
    Words,
    assert_alike,
    assert_near,
    check,
    random,
    spread,
    systems,
)
from torch.distributed.tensor import Replicate, Shard

import tridiag


@check
def recurrences_along_the_sharded_axis() -> None:
    for n in (*LENGTHS, 40):
        for reverse in (False, True):
            a, x, log = random(3, n), random(3, n, seed=1), random(3, n, seed=2) * 3

            def options(reverse: bool = reverse) -> dict[str, bool]:
                return {"reverse": reverse}

            assert_alike(lambda a, x: tridiag.linear_recurrence(a, x, **options()), [a, x], [Shard(1)] * 2)
            assert_alike(lambda x: tridiag.logcumsumexp(x, **options()), [log], [Shard(1)])
            assert_alike(lambda a, x: tridiag.log_linear_recurrence(a, x, **options()), [a, log], [Shard(1)] * 2)
            start = [Shard(1), Shard(1), Replicate()]
            assert_alike(lambda *v: tridiag.linear_recurrence(*v, **options()), [a, x, a[:, 0]], start)
            assert_alike(lambda *v: tridiag.log_linear_recurrence(*v, **options()), [a, log, a[:, 0]], start)
        given = [random(3, n, dtype=COMPLEX), random(3, n, dtype=COMPLEX, seed=1)]
        assert_alike(tridiag.linear_recurrence, given, [Shard(1)] * 2)
    y, last = tridiag.linear_recurrence(0.5, spread(x, Shard(1)), return_final=True)
    assert torch.equal(last.full_tensor(), y.full_tensor()[:, -1])
    assert_alike(lambda x: tridiag.linear_recurrence(0.5, x, return_final=True)[1], [x], [Shard(1)])
    x = spread(random(3, 9, dtype=torch.float32).bfloat16(), Shard(1))
    assert tridiag.logcumsumexp(x).dtype == torch.bfloat16


@check
def odd_sequences_of_fewer_rows_than_processes() -> None:
    """Sequences computed one process after another, of which one has no row: it takes part, and gives none."""
    x = random(2, 3)
    x[0, 1] = math.nan
    for axis, given in ((1, x), (0, x.mT.contiguous())):
        y = tridiag.linear_recurrence(0.5, spread(given, Shard(axis)), axis=axis)
        wanted = tridiag.linear_recurrence(0.5, given, axis=axis)
        assert torch.equal(y.full_tensor().isnan(), wanted.isnan())
        assert_near(y.full_tensor().nan_to_num(), wanted.nan_to_num())


@check
def products_that_overflow() -> None:
    """Where the sequence does not: products of 200 coefficients are beyond the range."""
    n, ten = 800, 10.0
    for dtype in (REAL, torch.float32, COMPLEX):
        zero = spread(torch.zeros(2, n, dtype=dtype), Shard(1))
        assert not tridiag.linear_recurrence(ten**8, zero).full_tensor().any()
        fixed = tridiag.linear_recurrence(ten, zero - 9, spread(torch.ones(2, dtype=dtype), Replicate()))
        assert (fixed.full_tensor() == 1).all()
    a = torch.full((2, n), 2.0**-5, dtype=REAL)
    a[:, 300:600] = 2.0**5
    a[1] = 1 / a[0]
    init = torch.tensor([2.0**1000, 2.0**-1000], dtype=REAL)
    y = tridiag.linear_recurrence(spread(a, Shard(1)), 0.0 * spread(a, Shard(1)), spread(init, Replicate()))
    assert torch.equal(y.full_tensor(), tridiag.linear_recurrence(a, 0 * a, init))
    x = random(4, n)
    x[1, 300], x[2, 500] = float("inf"), float("nan")
    a = torch.full((4, n), 0.5, dtype=REAL)
    a[:, 0] = float("nan")
    y = tridiag.linear_recurrence(spread(a, Shard(1)), spread(x, Shard(1))).full_tensor()
    torch.testing.assert_close(y, tridiag.linear_recurrence(a, x), equal_nan=True, rtol=1e-14, atol=1e-14)
    log = torch.full((1, n), -float("inf"), dtype=REAL)
    log[0, 400], a[:, 500] = 0, float("inf")
    y = tridiag.log_linear_recurrence(spread(a[:1], Shard(1)), spread(log, Shard(1))).full_tensor()
    torch.testing.assert_close(y, tridiag.log_linear_recurrence(a[:1], log), equal_nan=True)


@check
def words_that_are_exchanged() -> None:
    """Six a system and other process, eight in the gradient; none whose number grows with the rows."""
    others, batch = PROCESSES - 1, 5
    for n in (100, 400):
        given = [spread(x, Shard(1)).requires_grad_() for x in systems(batch, n)]
        with Words() as forward:
            x = tridiag.solve(*given)
        assert forward.large == 6 * batch * others and len(forward.calls) == 2, forward.calls
        g = spread(random(batch, n), Shard(1))
        with Words() as backward:
            torch.autograd.backward(x, g)
        assert backward.large == 8 * batch * others and len(backward.calls) == 2, backward.calls
        x = spread(random(batch, n), Shard(1))
        for words, verb in ((1, tridiag.logcumsumexp), (3, lambda x: tridiag.linear_recurrence(0.5, x))):
            with Words() as counted:
                verb(x)
            assert counted.calls == [(counted.calls[0][0], words * batch * others)], counted.calls
