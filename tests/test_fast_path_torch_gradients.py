"""That gradients of solves of plain tensors are those of the long way, and what asks for more goes that way."""

import functools
from typing import Any

import numpy as np
import pytest
from helpers import dominant, installed

import tridiag
from tridiag.calls import fast_path

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.skipif(not installed("numba"), reason="needs numba, which is not installed"),
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
]
forward_ad, functional = torch.autograd.forward_ad, torch.func

N = 17


@pytest.fixture(autouse=True)
def anew() -> None:
    fast_path.forget()


def tensors(shape: Any, dtype: str = "float64") -> list[Any]:
    return [torch.from_numpy(x) for x in dominant(shape, dtype)]


def with_gradients(shapes: Any, dtype: str = "float64", places: Any = range(4)) -> list[Any]:
    given = [tensors(shape, dtype)[k] for k, shape in enumerate(shapes)]
    return [x.requires_grad_(k in places) for k, x in enumerate(given)]


DIFFERENTIATED: dict[str, Any] = {
    "all": lambda: (with_gradients([(5, N)] * 4), {}),
    "a vector": lambda: (with_gradients([(N,)] * 4), {}),
    "right sides only": lambda: (with_gradients([(5, N)] * 4, places=[3]), {}),
    "the matrix only": lambda: (with_gradients([(5, N)] * 4, places=[0, 1, 2]), {}),
    "a shared matrix": lambda: (with_gradients([(N,)] * 3 + [(5, N)]), {}),
    "a shared right side": lambda: (with_gradients([(5, N)] * 3 + [(N,)]), {}),
    "numbers": lambda: ([1.0, with_gradients([(N,)] * 4)[1], 1.0, with_gradients([(N,)] * 4)[3]], {}),
    "integers": lambda: ([*with_gradients([(5, N)] * 3), torch.arange(5 * N).reshape(5, N)], {}),
    "two dtypes": lambda: ([*with_gradients([(N,)] * 3), tensors((N,), "float32")[3].requires_grad_()], {}),
    "columns": lambda: (with_gradients([(N, 5)] * 4), {"axis": 0}),
    "turned": lambda: ([x.mT for x in with_gradients([(N, 5)] * 4)], {}),
    "a mask": lambda: (with_gradients([(5, N)] * 4), {"where": torch.arange(N) % 5 != 2}),
    "corners": lambda: (with_gradients([(5, N)] * 4), {"periodic": True, "transpose": True}),
    "complex": lambda: (with_gradients([(5, N)] * 4, "complex128"), {}),
    "parameters": lambda: ([torch.nn.Parameter(x) for x in tensors((5, N))], {}),
}


def factored(a: Any, b: Any, c: Any, d: Any, transpose: bool = False, **options: Any) -> Any:
    return tridiag.factor(a, b, c, **options).solve(d, transpose)


def gradients(way: str, verb: Any = tridiag.solve) -> Any:
    """The solution, its gradients and what follows for those of another function of them."""
    given, options = DIFFERENTIATED[way]()
    wanted = [x for x in given if isinstance(x, torch.Tensor) and x.requires_grad]
    x = verb(*given, **options)
    weights = torch.linspace(1, 2, x.numel(), dtype=x.real.dtype).reshape(x.shape).to(x.dtype)
    first = torch.autograd.grad(x, wanted, weights, retain_graph=True)
    again = torch.autograd.grad(x, wanted, weights, create_graph=True)
    total = sum((y.real * y.real).sum() for y in again)
    second = torch.autograd.grad(total, wanted) if total.requires_grad else ()  # the solution is linear in d
    return [y.detach().resolve_conj().numpy() for y in (x, *first, *again, *second)]


def same_bits(found: Any, wanted: Any) -> bool:
    told = [[(y.dtype, y.shape, y.tobytes()) for y in some] for some in (found, wanted)]
    return told[0] == told[1]


@pytest.mark.parametrize("way", DIFFERENTIATED)
def test_gradients_of_the_short_way(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To second order they are what they are on the long way."""
    with monkeypatch.context() as patch:
        patch.setattr(fast_path, "of_tensors", lambda verb, x: None)
        wanted = gradients(way)
    monkeypatch.setattr("tridiag.systems.prepare", None)
    assert same_bits(gradients(way), wanted)


@pytest.mark.parametrize("short_way", [True, False])
@pytest.mark.parametrize("way", DIFFERENTIATED)
def test_gradients_with_factors(way: str, short_way: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of `solve`, in the matrices too, of which there are copies."""
    wanted = gradients(way)
    if not short_way:
        monkeypatch.setattr(fast_path, "of_tensors", lambda verb, x: None)
    for x, y in zip(gradients(way, factored), wanted, strict=True):
        assert x.dtype == y.dtype
        tolerance = 1e-12 if x.dtype.itemsize // (1 + (x.dtype.kind == "c")) == 8 else 1e-5
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance * abs(y).max())


@pytest.mark.parametrize("verb", [tridiag.solve, factored])
@pytest.mark.parametrize("way", ["right sides only", "a shared matrix", "a mask"])
def test_backward_passes_are_short_too(way: str, verb: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of right sides alone, and of shared matrices, they were the long way: four times as long for 20 systems."""
    monkeypatch.setattr("tridiag.calls.fast_path.torch_systems.cotangents", None)
    given, options = DIFFERENTIATED[way]()
    wanted = [x for x in given if x.requires_grad]
    x = verb(*given, **options)
    assert len(torch.autograd.grad(x.sum(), wanted)) == len(
        wanted
    )  # of equal cotangents, which have no memory of their own


def derivatives_of_other_kinds(given: list[Any], gradient: Any) -> dict[str, Any]:
    """What asks for more than a gradient of plain tensors."""
    a, b, c, d = given
    found = {"vmap": functional.vmap(tridiag.solve)(a, b, c, d)}
    found["grad"] = functional.grad(lambda d: tridiag.solve(a, b, c, d).sum())(d)
    found["jvp"] = functional.jvp(lambda d: tridiag.solve(a, b, c, d), (d,), (d,))[1]
    found["mapped cotangents"] = functional.vmap(gradient)(torch.ones((3, 5, N), dtype=d.dtype))[3]
    with forward_ad.dual_level():
        x = tridiag.solve(a, b, c, forward_ad.make_dual(d, d))
        found["dual"] = forward_ad.unpack_dual(x).tangent
        g = forward_ad.make_dual(torch.ones_like(d), torch.ones_like(d))
        found["a dual cotangent"] = forward_ad.unpack_dual(gradient(g, create_graph=True)[3]).tangent
    return found


def test_other_derivatives_go_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maps over tensors, derivatives in forward mode, and backward passes of mapped or dual cotangents."""
    results = []
    for short in (False, True):
        with monkeypatch.context() as patch:
            if not short:
                patch.setattr(fast_path, "of_tensors", lambda verb, x: None)
            given = with_gradients([(5, N)] * 4)
            x = tridiag.solve(*given)
            gradient = functools.partial(torch.autograd.grad, x, given, retain_graph=True)
            results.append(derivatives_of_other_kinds(tensors((5, N)), gradient))
    for name in results[0]:
        torch.testing.assert_close(results[0][name], results[1][name], rtol=0, atol=0)


def test_memory_that_was_freed_before_the_backward_pass() -> None:
    given = [x.clone().requires_grad_() for x in tensors((5, N))]
    x = tridiag.solve(*given)
    given[1].untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="freed"):
        x.sum().backward()


def test_a_change_before_the_backward_pass() -> None:
    given = with_gradients([(5, N)] * 4)
    right = given[3] * 1
    x = tridiag.solve(*given[:3], right)
    y = (x * x).sum()
    with torch.no_grad():
        tridiag.solve(*tensors((5, N))[:3], tensors((5, N))[3], out=x.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_hooks_of_saved_tensors_are_called() -> None:
    packed = []
    given = with_gradients([(5, N)] * 4)
    with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x) or x.clone(), lambda x: x * 1):
        x = tridiag.solve(*given)
    assert len(packed) == 4
    found = torch.autograd.grad(x.sum(), given)
    wanted = torch.autograd.grad(tridiag.solve(*given).sum(), given)
    assert all(map(torch.equal, found, wanted))


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_determinants_of_the_kernel_differentiate(dtype: str) -> None:
    """To second order as those of the loop over rows; of one entry as well, and where functions are transformed."""
    found = []
    for backend in ("numba_thomas", "torch_thomas"):
        a, b, c, _ = with_gradients([(5, N)] * 4, dtype, places=range(3))
        log = functools.partial(tridiag.slogdet, backend=backend)
        sign, logarithm = log(a, b, c)
        first = torch.autograd.grad((sign.real + logarithm).sum(), (a, b, c), create_graph=True)
        second = torch.autograd.grad(sum((x * x.conj()).real.sum() for x in first), (a, b, c))
        alone = torch.autograd.grad(log(a.detach(), b, c.detach())[1].sum(), b)
        given = (x.detach() for x in (a, b, c))
        mapped = functional.vmap(log)(*given) if dtype == "float64" else ()
        found.append((sign, logarithm, *first, *second, *alone, *mapped))
    for x, y in zip(*found, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-12)
