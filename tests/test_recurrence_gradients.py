"""The derivative rule for recurrences: every backend against finite differences, jit, vmap, both orders."""

import functools
from typing import Any

import numpy as np
import pytest
from helpers import Subject, assert_same_bits, noise, to_numpy

import tridiag

pytestmark = [
    pytest.mark.only(verb="linear_recurrence"),
    # torch's own forward mode compiles its decompositions with what it has deprecated
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
]
on_jax = pytest.mark.only(library="jax")
on_torch = pytest.mark.only(library="torch")
N, M = 5, 2


def drawn(*shapes: Any, dtype: str = "float64") -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [noise(rng, shape, dtype) for shape in shapes]


def by(backend: Subject, order: int = 1, **options: Any) -> Any:
    """The verb as a function of the coefficients, x, and perhaps of the values before."""

    def function(*arrays: Any) -> Any:
        a, x, init = tuple(arrays[:order]), arrays[order], tuple(arrays[order + 1 :])
        return tridiag.linear_recurrence(a, x, init or None, backend=backend.name, **options)

    return function


CASES = {  # the shapes of a, x, init
    "plain": ((M, N), (M, N)),
    "from a state": ((M, N), (M, N), (M,)),
    "one coefficient": ((), (M, N), (M,)),
    "shared": ((N,), (M, N), ()),
    "a constant x": ((M, N), (1,), (M,)),
    "one step": ((M, 1), (M, 1), (M,)),
}
OF_ORDER_3 = {"plain": [(M, N)] * 4, "from a state": [(M, N)] * 4 + [(M,)] * 3, "short": [(M, 2)] * 4 + [(M,)] * 3}


# ----------------------------------------------------------------------------------------------------------------- JAX


def check_jax(function: Any, arrays: Any, order: int = 1) -> None:
    jax = pytest.importorskip("jax")
    from jax.test_util import check_grads

    arrays = [jax.numpy.asarray(x) for x in arrays]
    check_grads(jax.jit(function), arrays, order=order, modes=("fwd", "rev"), atol=1e-4, rtol=1e-4)


@on_jax
@pytest.mark.parametrize("case", CASES)
def test_finite_differences_under_jax(backend: Subject, case: str) -> None:
    check_jax(by(backend, reverse=case == "from a state"), drawn(*CASES[case]))


@on_jax
def test_second_differences_under_jax(backend: Subject) -> None:
    check_jax(by(backend), drawn(*CASES["from a state"]), 2)


@pytest.mark.only(library="jax", order=3)
def test_second_differences_of_order_3_under_jax(backend: Subject) -> None:
    check_jax(by(backend, 3), drawn(*OF_ORDER_3["from a state"]), 2)


@pytest.mark.only(library="jax", order=3)
@pytest.mark.parametrize("case", OF_ORDER_3)
def test_finite_differences_of_order_3_under_jax(backend: Subject, case: str) -> None:
    check_jax(by(backend, 3, reverse=case == "short"), drawn(*OF_ORDER_3[case]))


@pytest.mark.parametrize("library", ["jax", "torch"])
def test_gradients_of_states_of_several_shapes(library: str) -> None:
    """Each of the values before the first step may broadcast by itself."""
    pytest.importorskip(library)
    (a, b, x), init = drawn((M, N), (M, N), (M, N)), drawn((M,), ())
    if library == "jax":
        import jax

        found = jax.grad(lambda init: tridiag.linear_recurrence((a, b), jax.numpy.asarray(x), init).sum())(tuple(init))
    else:
        import torch

        given = [torch.tensor(v, requires_grad=True) for v in init]
        tridiag.linear_recurrence((torch.tensor(a), torch.tensor(b)), torch.tensor(x), tuple(given)).sum().backward()
        found = [v.grad for v in given]
    for k, gradient in enumerate(found):
        step = 1e-6 * np.eye(2)[k]
        high, low = (
            tridiag.linear_recurrence((a, b), x, (init[0] + s * step[0], init[1] + s * step[1])).sum() for s in (1, -1)
        )
        np.testing.assert_allclose(np.asarray(gradient).sum(), (high - low) / 2e-6, rtol=1e-6)
        assert gradient.shape == np.shape(init[k])


@on_jax
def test_complex_finite_differences_under_jax(backend: Subject) -> None:
    check_jax(by(backend), drawn(*CASES["from a state"], dtype="complex128"))


@on_jax
def test_vmap_under_jax_over_any_argument(backend: Subject) -> None:
    import jax

    function, arrays = by(backend, axis=0), list(map(jax.numpy.asarray, drawn((3, N, M), (3, N, M), (3, M))))
    for dims in ((0, 0, 0), (None, 0, None), (0, None, None)):
        given = [v if dim == 0 else v[0] for v, dim in zip(arrays, dims, strict=True)]
        found = jax.jit(jax.vmap(function, in_axes=dims))(*given)
        for k in range(3):
            right = function(*(v[k] if dim == 0 else v for v, dim in zip(given, dims, strict=True)))
            np.testing.assert_allclose(found[k], right, rtol=1e-12)


@on_jax
def test_gradients_under_vmap_and_jit(backend: Subject) -> None:
    import jax

    function = by(backend)
    gradient = jax.jit(jax.grad(lambda *v: (function(*v) ** 2).sum(), argnums=(0, 1, 2)))
    arrays = list(map(jax.numpy.asarray, drawn((3, M, N), (3, M, N), (3, M))))
    found = jax.jit(jax.vmap(gradient))(*arrays)
    for k in range(3):
        for x, y in zip(found, gradient(*(v[k] for v in arrays)), strict=True):
            np.testing.assert_allclose(x[k], y, rtol=1e-12)


@on_jax
@pytest.mark.parametrize("reverse", [False, True])
def test_the_gradient_of_what_is_never_read_is_zero_under_jax(backend: Subject, reverse: bool) -> None:
    import jax

    a, x = drawn((M, N), (M, N))
    a[:, -1 if reverse else 0] = np.nan
    function = by(backend, reverse=reverse)
    gradient = jax.jit(jax.grad(lambda *v: (function(*v) ** 2).sum(), argnums=(0, 1)))
    of_a, of_x = gradient(*map(jax.numpy.asarray, (a, x)))
    assert not of_a[:, -1 if reverse else 0].any()
    assert np.isfinite(of_a).all() and np.isfinite(of_x).all()


def never_read(order: int) -> list[np.ndarray]:
    """Coefficients with NaN where they would multiply what is not given, and x; a step more than a vector has."""
    *a, x = drawn(*[(17, 9)] * (order + 1))
    for k, v in enumerate(a, 1):
        v[:, :k] = np.nan
    return [*a, x]


@pytest.mark.only(library="jax", order=3)
def test_the_gradients_of_what_is_never_read_are_zero_under_jax(backend: Subject) -> None:
    import jax

    function = by(backend, 3, return_final=True)

    def loss(*arrays: Any) -> Any:
        y, final = function(*arrays)
        return (y**2).sum() + sum(map(jax.numpy.sum, final))

    gradients = jax.jit(jax.grad(loss, argnums=(0, 1, 2, 3)))(*map(jax.numpy.asarray, never_read(3)))
    assert np.isfinite(gradients).all()
    assert not any(gradient[:, :k].any() for k, gradient in enumerate(gradients[:3], 1))


@on_jax
def test_the_final_value_has_a_gradient(backend: Subject) -> None:
    import jax

    a, x = map(jax.numpy.asarray, drawn((M, N), (M, N)))
    final = functools.partial(tridiag.linear_recurrence, backend=backend.name, return_final=True)
    found = jax.grad(lambda x: final(a, x)[1].sum())(x)
    weights = np.cumprod(np.asarray(a)[:, :0:-1], axis=1)[:, ::-1]
    np.testing.assert_allclose(found, np.concatenate((weights, np.ones((M, 1))), axis=1), rtol=1e-12)


@on_jax
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gradients_of_halves_under_jax(backend: Subject, dtype: str) -> None:
    import jax

    a, x = (jax.numpy.asarray(v, dtype) for v in drawn((M, N), (M, N)))
    gradients = jax.jit(jax.grad(lambda *v: by(backend)(*v).sum().astype("float32"), argnums=(0, 1)))(a, x)
    assert all(g.dtype == dtype for g in gradients)


# --------------------------------------------------------------------------------------------------------------- torch


def check_torch(function: Any, arrays: Any) -> None:
    torch = pytest.importorskip("torch")
    given = [torch.tensor(x, requires_grad=True) for x in arrays]
    torch.autograd.gradcheck(function, given, check_forward_ad=True)
    torch.autograd.gradgradcheck(function, given, check_fwd_over_rev=True)


@on_torch
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("case", CASES)
def test_finite_differences_under_torch(backend: Subject, case: str, dtype: str) -> None:
    check_torch(by(backend, reverse=case == "from a state"), drawn(*CASES[case], dtype=dtype))


@pytest.mark.only(library="torch", order=3)
@pytest.mark.parametrize("case", OF_ORDER_3)
def test_finite_differences_of_order_3_under_torch(backend: Subject, case: str) -> None:
    check_torch(by(backend, 3, reverse=case == "short"), drawn(*OF_ORDER_3[case]))


@on_torch
@pytest.mark.only(dtype="complex128")
def test_a_real_coefficient_of_complex_sequences_has_a_real_gradient(backend: Subject) -> None:
    (a,), (x,) = drawn((M, N)), drawn((M, N), dtype="complex128")
    check_torch(by(backend), (a, x))


@on_torch
def test_gradients_under_vmap_of_torch(backend: Subject) -> None:
    import torch

    function = by(backend)
    arrays = list(map(torch.tensor, drawn((3, M, N), (3, M, N), (3, M))))
    gradient = torch.func.grad(lambda *v: (function(*v) ** 2).sum(), argnums=(0, 1, 2))
    for dims in ((0, 0, 0), (None, 0, 0)):
        given = [v if dim == 0 else v[0] for v, dim in zip(arrays, dims, strict=True)]
        found = torch.func.vmap(gradient, in_dims=dims)(*given)
        for k in range(3):
            right = gradient(*(v[k] if dim == 0 else v for v, dim in zip(given, dims, strict=True)))
            for x, y in zip(found, right, strict=True):
                torch.testing.assert_close(x[k], y)


@on_torch
def test_the_gradient_of_what_is_never_read_is_zero_under_torch(backend: Subject) -> None:
    import torch

    a, x = map(torch.tensor, drawn((M, N), (M, N)))
    a[:, 0] = torch.nan
    a.requires_grad_(), x.requires_grad_()
    of_a, of_x = torch.autograd.grad((by(backend)(a, x) ** 2).sum(), (a, x))
    assert not of_a[:, 0].any() and of_a.isfinite().all() and of_x.isfinite().all()


@pytest.mark.only(library="torch", order=3)
def test_the_gradients_of_what_is_never_read_are_zero_under_torch(backend: Subject) -> None:
    import torch

    arrays = [torch.tensor(x, requires_grad=True) for x in never_read(3)]
    y, final = by(backend, 3, return_final=True)(*arrays)
    gradients = torch.autograd.grad((y**2).sum() + sum(value.sum() for value in final), arrays)
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert not any(gradient[:, :k].any() for k, gradient in enumerate(gradients[:3], 1))


@on_torch
def test_out_that_a_gradient_needs_raises(backend: Subject) -> None:
    import torch

    a, x = map(torch.tensor, drawn((M, N), (M, N)))
    y = by(backend)(a, x.requires_grad_())
    loss = (y**2).sum()
    tridiag.linear_recurrence(a, x.detach() + 1, backend=backend.name, out=y.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@on_torch
def test_out_with_a_gradient_elsewhere(backend: Subject) -> None:
    import torch

    a, x = map(torch.tensor, drawn((M, N), (M, N)))
    out = torch.zeros(M, N, dtype=torch.float64)
    with torch.no_grad():
        tridiag.linear_recurrence(a, x.requires_grad_(), backend=backend.name, out=out)
    assert_same_bits(to_numpy(out), to_numpy(by(backend)(a, x.detach())))
