"""Checks of systems of DTensors in four processes: `tests/test_distributed_tensors.py` runs this file.

python tests/distributed_systems.py [checks]
"""

import sys
from collections.abc import Callable
from typing import Any

import distributed_recurrences as distributed_recurrences
import torch
from four_processes import (
    CHECKS,
    COMPLEX,
    DTYPES,
    LENGTHS,
    REAL,
    Words,
    assert_alike,
    assert_near,
    backward_error,
    check,
    eps,
    gradients,
    grid,
    main,
    mesh,
    random,
    spread,
    systems,
)  # fmt: skip
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

import tridiag


@check
def systems_along_the_sharded_axis() -> None:
    """Of every dtype, with rows that the processes do not divide, and processes without rows."""
    for dtype in DTYPES:
        for n in LENGTHS:
            a, b, c, d = systems(3, n, dtype=dtype)
            for options in ({}, {"transpose": True}, {"periodic": True}):
                x = tridiag.solve(*(spread(v, Shard(1)) for v in (a, b, c, d)), **options)
                assert x.placements == (Shard(1),) and x.shape == d.shape and x.dtype == dtype
                assert backward_error(a, b, c, d, x.full_tensor(), **options) <= 8 * eps(x), (dtype, n, options)


@check
def hard_systems() -> None:
    """Without certificate in some part, some of them: zero diagonals, odd lengths; what is at a[0] is not read."""
    for dtype in (torch.float32, REAL, COMPLEX):
        for n in (18, 33):
            a, b, c, d = systems(40, n, dtype=dtype, dominant=False)
            b[::3] = 0 if n % 2 == 0 else b[::3] * 0.01
            b[1::5] = 4
            a[:, 0] = c[:, -1] = float("nan")
            for options in ({}, {"transpose": True}, {"pivoting": True}):
                x = tridiag.solve(*(spread(v, Shard(1)) for v in (a, b, c, d)), **options).full_tensor()
                whole = tridiag.solve(a, b, c, d, **options)
                a0, c0 = (v.nan_to_num(0) for v in (a, c))
                flips = {k: v for k, v in options.items() if k == "transpose"}
                bound = max(8 * eps(x), backward_error(a0, b, c0, d, whole, **flips))
                assert backward_error(a0, b, c0, d, x, **flips) <= bound, (dtype, n, options)


@check
def what_is_broadcast() -> None:
    """Numbers, coefficients along the axis alone, copies of which each process takes its part; any axis."""
    a, b, c, d = systems(4, 21, 3)
    row = b[0, :, 0].clone()
    assert_alike(lambda b, d: tridiag.solve(-1.0, b, 0.5, d, axis=1), [row, d], [Shard(0), Shard(1)])
    assert_alike(lambda b, d: tridiag.solve(-1.0, b, 0.5, d, axis=1), [row, d], [Replicate(), Shard(1)])
    assert_alike(lambda b, d: tridiag.solve(-1.0, b, 0.5, d, axis=1), [b[:, :1], d], [Replicate(), Shard(1)])
    assert_alike(lambda b, d: tridiag.solve(-1.0, b, 0.5, d, axis=1), [b[:1], d], [Shard(1), Replicate()])
    where = random(4, 21, 3, seed=5) < 0.5
    where[1] = where[:, 5:9] = False
    for x in (a, c):
        x[~where] = float("nan")
    masked = spread(where, Shard(1))
    for transpose in (False, True):
        found, wanted = (
            gradients(lambda *v, w=w, t=transpose: tridiag.solve(*v, axis=1, where=w, transpose=t), given, 1.0)
            for given, w in (([spread(v, Shard(1)) for v in (a, b, c, d)], masked), ([a, b, c, d], where))
        )
        for y, z in zip((found[0], *found[1]), (wanted[0], *wanted[1]), strict=True):
            assert_near(y, z, 40)


@check
def gradients_of_systems() -> None:
    places = [Shard(1)] * 4
    for n in LENGTHS:
        for dtype in (REAL, COMPLEX):
            given = systems(3, n, dtype=dtype)
            assert_alike(tridiag.solve, given, places)
            assert_alike(lambda *v: tridiag.solve(*v, transpose=True), given, places)
            assert_alike(lambda *v: tridiag.solve(*v, periodic=True), given, places)
    given = systems(3, 18)
    given[1][0] = 0  # zero diagonals: solved whole
    assert_alike(tridiag.solve, given, places, within=2000)
    assert_alike(lambda *v: tridiag.matmul(*v, periodic=True), systems(3, 9), places)
    assert_alike(lambda *v: tridiag.matmul(*v, transpose=True), systems(3, 5), places)


@check
def gradients_of_gradients() -> None:
    def squared(verb: Callable[..., Any]) -> Callable[..., Any]:
        def function(*given: Any) -> Any:
            given = tuple(x if x.requires_grad else x.detach().requires_grad_() for x in given)
            with torch.enable_grad():
                y = verb(*given)
                return torch.autograd.grad((y * y).sum(), given[0], create_graph=True)[0]

        return function

    for n in LENGTHS:
        assert_alike(squared(tridiag.solve), systems(2, n), [Shard(1)] * 4, within=400)
        assert_alike(squared(lambda *v: tridiag.solve(*v, transpose=True)), systems(2, n), [Shard(1)] * 4, within=400)
        for reverse in (False, True):
            verb = squared(lambda a, x, y, reverse=reverse: tridiag.linear_recurrence(a, x, y, reverse=reverse))
            given = [random(2, n), random(2, n, seed=1), random(2, seed=2)]
            assert_alike(verb, given, [Shard(1), Shard(1), Replicate()], within=400)
        assert_alike(squared(tridiag.logcumsumexp), [random(2, n)], [Shard(1)], within=400)


@check
def singular_systems() -> None:
    """All processes raise alike, and tell which; without a check they are NaN, and no neighbour is."""
    b = 4 + random(3, 4, 10)
    b[1, 2, 5] = b[0, 3, 9] = 0
    d = spread(torch.ones(3, 4, 10).double(), Shard(2))
    try:
        tridiag.solve(0.0, spread(b, Shard(2)), 0.0, d)
        raise AssertionError("it did not raise")
    except tridiag.SingularSystemError as error:
        assert error.indices.tolist() == [[0, 3], [1, 2]] and error.column == 9
        assert str(error).startswith("2 of 12 systems are singular (the first at batch index (0, 3), column 9)"), error
        assert error.x.isnan().full_tensor().any(-1).sum() == 2
    x = tridiag.solve(0.0, spread(b, Shard(2)), 0.0, d, check=False).full_tensor()
    assert x.isnan().any(-1).nonzero().tolist() == [[0, 3], [1, 2]]
    links = torch.tensor([3.0, 1, 4, 1, 5, 9, 2, 6, 5, 0]).double()  # rounding does not make it regular
    a, diagonal, c = -links.roll(1), links.roll(1) + links, -links
    balanced = torch.zeros(10).double()
    balanced[0], balanced[-1] = 1, -1
    for transpose in (False, True):
        try:
            tridiag.solve(*(spread(v, Shard(0)) for v in (a, diagonal, c, balanced)), transpose=transpose)
            raise AssertionError("it did not raise")
        except tridiag.SingularSystemError as error:
            assert error.indices.shape == (1, 0) and error.column == 9
            assert str(error).startswith("the system is singular") and "in column 9" in str(error)
    whole = spread(b, Shard(1))
    try:  # each process has whole systems, and the last two have those
        tridiag.solve(0.0, whole, 0.0, 1.0 + 0 * whole, check=True)
        raise AssertionError("it did not raise")
    except tridiag.SingularSystemError as error:
        own = {2: [[1, 2]], 3: [[0, 3]]}
        assert error.indices.tolist() == own.get(torch.distributed.get_rank(), [])
        if own.get(torch.distributed.get_rank()):
            [place], column = own[torch.distributed.get_rank()], {2: 5, 3: 9}[torch.distributed.get_rank()]
            told = f"1 of 3 systems on this device are singular (the first at batch index {(*place,)} of the whole, "
            assert str(error).startswith(f"{told}column {column})") and error.column == column, error


@check
def whole_systems_exchange_nothing() -> None:
    given = systems(10, 6)  # 3, 3, 3, 1 systems
    tensors = [spread(x, Shard(0)).requires_grad_() for x in given]
    with Words() as counted:
        x = tridiag.solve(*tensors)
        torch.autograd.backward(x, torch.ones_like(x))
        tridiag.slogdet(*tensors[:3])
        tridiag.linear_recurrence((0.5, 0.25), tensors[3], return_final=True)
    assert counted.calls == []
    places = [Shard(0)] * 4
    assert_alike(tridiag.solve, given, places)
    assert_alike(tridiag.matmul, given, places)
    assert_alike(lambda *v: tridiag.slogdet(*v)[1], given[:3], places[:3])
    assert_alike(lambda b, d: tridiag.solve(0.5, b, 0.5, d), [given[1][0], given[3]], [Replicate(), Shard(0)])
    assert_alike(lambda b, d: tridiag.solve(0.5, b, 0.5, d), [given[1], given[3]], [Replicate(), Shard(0)])
    assert_alike(lambda *v: tridiag.linear_recurrence(v[:2], v[2]), given[::2] + given[3:], [Shard(0)] * 3)
    assert_alike(lambda x, y: tridiag.linear_recurrence(0.5, x, y), [given[0], given[1][:, 0]], [Shard(0)] * 2)
    assert_alike(tridiag.solve, given, [Replicate()] * 4)
    assert_alike(tridiag.logcumsumexp, [given[0]], [Replicate()])
    few = [x[:2] for x in given]  # two processes have none
    assert_alike(tridiag.solve, few, places)
    assert_alike(lambda *v: tridiag.slogdet(*v)[1], few[:3], places[:3])
    assert_alike(tridiag.linear_recurrence, few[:2], places[:2])


@check
def both_axes_of_a_mesh() -> None:
    """Systems over one dimension of the mesh, their rows over the other."""
    places = [(Shard(0), Shard(1))] * 4
    assert_alike(tridiag.solve, systems(5, 11), places, over=grid())
    assert_alike(tridiag.solve, systems(3, 11), [(Shard(1), Shard(0))] * 4, over=grid())
    assert_alike(tridiag.solve, systems(1, 11), places, over=grid())  # half of the processes have no systems
    b, d = random(11) + 4, random(5, 11, seed=1)
    both = [(Replicate(), Shard(0)), (Shard(0), Shard(1))]
    assert_alike(lambda b, d: tridiag.solve(1.0, b, 1.0, d), [b, d], both, over=grid())
    assert_alike(tridiag.logcumsumexp, [d], places[:1], over=grid())
    assert_alike(lambda x: tridiag.linear_recurrence(0.5, x, return_final=True)[1], [d], places[:1], over=grid())
    b = spread(torch.zeros(5, 4).double(), Shard(0), Shard(1), over=grid())
    try:
        tridiag.solve(0.0, b, 0.0, 1 + b, check=True)
        raise AssertionError("it did not raise")
    except tridiag.SingularSystemError as error:
        first = 0 if torch.distributed.get_rank() < 2 else 3
        assert error.indices[:, 0].tolist() == [0, 1, 2, 3, 4][first : first + (3 if first == 0 else 2)]


@check
def what_is_refused() -> None:
    d, four = random(8, 8), 4 + random(8, 8)
    x = spread(d, Shard(1))

    def refused(told: str, function: Callable[..., Any], *given: Any, **options: Any) -> None:
        try:
            function(*given, **options)
        except (TypeError, ValueError) as error:
            assert told in str(error), error
        else:
            raise AssertionError(told)

    solve = tridiag.solve
    partial = DTensor.from_local(d, mesh(), [Partial()])
    refused("d has placement", solve, 1.0, 4.0, 1.0, partial)
    refused("d.redistribute(placements=[...])", solve, 1.0, 4.0, 1.0, partial)
    refused("b is a Tensor and d a DTensor", solve, 1.0, four, 1.0, x)
    refused("b is a tensor whose entries are distributed", solve, 1.0, spread(four, Shard(1)), 1.0, d)
    refused("redistribute one to the mesh", solve, 1.0, spread(four, Shard(1), Replicate(), over=grid()), 1.0, x)
    refused("cuts axis", solve, 1.0, spread(four, Shard(0)), 1.0, x)
    refused("length 1 along axis 1 and is sharded", solve, 1.0, spread(four[:, :1], Shard(1)), 1.0, x)
    refused("sharded over 2 dimensions", solve, 1.0, 4.0, 1.0, spread(d, Shard(1), Shard(1), over=grid()))
    refused("solves whole systems", solve, 1.0, 4.0, 1.0, x, backend="torch_thomas")
    refused("out.copy_(", solve, 1.0, 4.0, 1.0, x, out=x)
    refused("whole matrices", tridiag.slogdet, 1.0, x, 1.0)
    refused("of order 2 takes whole sequences", tridiag.linear_recurrence, (0.5, 0.5), x)
    refused("axis 2 is out of range", solve, 1.0, 4.0, 1.0, x, axis=2)
    odd = DTensor.from_local(d[:, :4], mesh(), [Shard(1)], shape=(8, 18), stride=(18, 1))
    refused("d.to_local() has shape", solve, 1.0, 4.0, 1.0, odd)
    for verb in (tridiag.factor, lambda a, b, c: tridiag.solve_block(a, b, c, b)):
        refused("is a tensor whose entries are distributed", verb, 1.0, x, 1.0)


if __name__ == "__main__":
    main(sys.argv[1:] or list(CHECKS))
