"""PyTorch's tracers that record what runs, `make_fx` and `torch.jit.trace`: verbs are in the graph, or are refused."""

from collections.abc import Callable

import numpy as np
import pytest
from helpers import dominant, installed

import tridiag
from tridiag import kalman

if not installed("torch"):
    pytest.skip("needs torch, which is not installed", allow_module_level=True)

import torch
import torch.fx
from torch.fx.experimental.proxy_tensor import make_fx

pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.(script|trace)(_method)?. is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning"),  # of shapes, which are fixed in its graph
]
Function = Callable[[torch.Tensor], torch.Tensor]

A, B, C, _ = (torch.tensor(x) for x in dominant((3, 8)))
BLOCKS = [torch.tensor(x) for x in np.random.default_rng(5).normal(size=(3, 3, 4, 2, 2))]
VERBS: dict[str, Function] = {
    "solve": lambda d: tridiag.solve(A, B, C, d),
    "solve with numbers": lambda d: tridiag.solve(-1.0, 4.0, -1.0, d),
    "matmul": lambda d: tridiag.matmul(A, B, C, d),
    "slogdet": lambda d: tridiag.slogdet(A, B + d, C)[1],
    "solve_block": lambda d: tridiag.solve_block(*BLOCKS, d.reshape(3, 4, 2)),
    "linear_recurrence": lambda d: tridiag.linear_recurrence(0.5, d),
    "logcumsumexp": lambda d: tridiag.logcumsumexp(d),
}
TRACERS: dict[str, Callable[[Function, torch.Tensor], Function]] = {
    "make_fx": lambda f, d: make_fx(f)(d),
    "before dispatch": lambda f, d: make_fx(f, pre_dispatch=True)(d),
    "symbolic": lambda f, d: make_fx(f, tracing_mode="symbolic")(d),
    "torch.jit.trace": lambda f, d: torch.jit.trace(f, d),
}


def given(seed: int) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(size=(3, 8)))


@pytest.mark.parametrize("tracer", TRACERS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_recorded_call_computes(verb: str, tracer: str) -> None:
    """What was recorded with some numbers is right for others; a kernel that ran beside it left what memory held."""
    if tracer == "symbolic" and verb in ("solve", "matmul", "slogdet", "solve_block"):
        pytest.skip("PyTorch takes no tensors there but the arguments")
    function, other = VERBS[verb], given(2)
    assert torch.equal(TRACERS[tracer](function, given(1))(other), function(other))


def test_a_recorded_gradient() -> None:
    def gradient(d: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda d: tridiag.solve(A, B, C, d).square().sum())(d)

    assert torch.equal(make_fx(gradient)(given(1))(given(2)), gradient(given(2)))


def test_a_traced_module_can_be_trained() -> None:
    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.b = torch.nn.Parameter(B.clone())

        def forward(self, d: torch.Tensor) -> torch.Tensor:
            return tridiag.solve(A, self.b, C, d)

    layer = Layer()
    traced, gradients = torch.jit.trace(layer, given(1)), []
    for module in (layer, traced):
        layer.b.grad = None
        module(given(2)).square().sum().backward()
        gradients.append(layer.b.grad)
    assert torch.equal(*gradients)


ONE = torch.ones(1, 1, dtype=torch.float64)
UNRECORDED: dict[str, Function] = {
    "factor": lambda d: tridiag.factor(A, B + d, C).solve(d),
    "a factored solve": lambda d: tridiag.factor(A, B, C).solve(d),
    "smith_waterman": lambda d: tridiag.smith_waterman(d[None], gap=-1.0),
    "selective_scan": lambda d: tridiag.selective_scan(d[None, :, None], d[None], d[..., None], d[..., None]),
    "kalman": lambda d: kalman.log_likelihood(d, F=ONE, H=ONE, Q=ONE, R=ONE, m0=ONE[0], P0=ONE),
    "kalman.predict": lambda d: kalman.predict(d[:, 0, None], ONE, F=ONE, Q=ONE)[0],
}


@pytest.mark.parametrize("tracer", ["make_fx", "torch.jit.trace"])
@pytest.mark.parametrize("verb", UNRECORDED)
def test_what_cannot_be_recorded_says_so(verb: str, tracer: str) -> None:
    with pytest.raises(TypeError, match="not its factor, selective_scan, smith_waterman and Kalman filters"):
        TRACERS[tracer](UNRECORDED[verb], given(1))


def test_proxies_are_named() -> None:
    with pytest.raises(TypeError, match=r"d is a torch.fx.proxy.Proxy, which .*make_fx"):
        torch.fx.symbolic_trace(lambda d: tridiag.solve(-1.0, 4.0, -1.0, d))


def test_other_modes_are_no_tracers() -> None:
    """A mode that counts operations gets the numbers of a call without it."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False):
        found = tridiag.factor(A, B, C).solve(given(1))
    assert torch.equal(found, tridiag.factor(A, B, C).solve(given(1)))
