"""Where tensors are, on a device that has no values: numbers go there, and a mask has to be there."""

import pytest
from helpers import installed

import tridiag
from tridiag.backends import BACKENDS

if not installed("torch"):
    pytest.skip("needs torch, which is not installed", allow_module_level=True)

import torch

from tridiag.calls.outputs import overlapped
from tridiag.libraries.torch import take


@pytest.fixture(autouse=True)
def pretend(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device without numbers stands for a GPU: backends run there, and its tensors are taken."""
    monkeypatch.setattr("tridiag.libraries.torch.refuse_meta", lambda name: None)
    for name in ("torch_thomas", "torch_scan"):
        monkeypatch.setitem(BACKENDS[name].__dict__, "devices", ("meta",))


def test_numbers_go_where_the_tensors_are() -> None:
    d = torch.empty(4, 6, device="meta")
    given, where, entries, _ = take("abcd", [1, d, 2.0, 3j], True)
    assert {x.device for x in (*given, where)} == {d.device} and where.dtype == torch.bool
    assert [entry[0] for entry in entries] == [int, torch.float32, float, complex, torch.bool]
    x = d.clone().requires_grad_()
    y = tridiag.linear_recurrence((0.5, 2), tridiag.matmul(1.0, x[0], -1, x, where=True), (1.0, 2.0))
    assert y.device == d.device and y.dtype == torch.float32
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert grad.device == d.device


def test_a_mask_elsewhere_is_refused() -> None:
    d, where = torch.empty(4, 6, device="meta"), torch.ones(6, dtype=torch.bool)
    with pytest.raises(TypeError, match="different devices: meta, cpu; move them to one"):
        tridiag.solve(1.0, 4.0, 1.0, d, where=where)


def test_a_graph_holds_a_solve_on_the_device_of_its_tensors() -> None:
    """No backend runs: what a graph knows of an operator is all that there is on this device."""
    b, d = (
        torch.full((6,), 4.0, device="meta", requires_grad=True),
        torch.empty(4, 6, device="meta", requires_grad=True),
    )
    solve = torch.compile(tridiag.solve, fullgraph=True, backend="aot_eager")
    x = solve(-1.0, b, -1.0, d)
    assert x.device == d.device and x.shape == d.shape
    for grad, given in zip(torch.autograd.grad(x.sum(), (b, d)), (b, d), strict=True):
        assert grad.device == given.device and grad.shape == given.shape
    torch._dynamo.reset()


class OnGpu(torch.Tensor):
    """In host memory, and says otherwise."""

    device = property(lambda self: torch.device("cuda"))


def test_memory_of_a_gpu_is_seen_to_be_shared() -> None:
    x = torch.zeros(4, 6).as_subclass(OnGpu)
    assert overlapped(x, {"b": torch.ones(4, 6), "c": x[1:]}) == "c"
    assert overlapped(x[:2], {"c": x[2:]}) is None
