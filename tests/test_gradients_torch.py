"""The derivative rule under PyTorch: both orders, forward and reverse, vmap, and what may be written in place."""

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from helpers import Subject, dominant, installed, oracle, to_numpy, zero_diagonal

import tridiag
from tridiag import kalman
from tridiag.calls import fast_path

if not installed("torch"):
    pytest.skip("needs torch, which is not installed", allow_module_level=True)

import torch
from torch.autograd import gradcheck, gradgradcheck

# torch's own forward mode compiles its decompositions with what it has deprecated
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")

N, M = 4, 2
ALL = (0, 1, 2, 3)
on_torch = pytest.mark.only(library="torch")
factors = pytest.mark.only(library="torch", verb="factor")
determinants = pytest.mark.only(library="torch", verb="slogdet")


def systems(*shape: int, dtype: str = "float64", seed: int = 0, grad: bool = False) -> list[torch.Tensor]:
    return [torch.tensor(x, requires_grad=grad) for x in dominant(shape, dtype, seed=seed)]


def by(backend: Subject, **options: Any) -> Any:
    return functools.partial(tridiag.solve, backend=backend.name, **{"pivoting": backend.usual} | options)


def matrix(a: Any, b: Any, c: Any, *, periodic: bool = False, where: Any = None) -> torch.Tensor:
    """The dense matrices (..., n, n): torch differentiates them by itself. The system axis is last."""
    a, b, c = torch.broadcast_tensors(a, b, c)
    n, eye = b.shape[-1], torch.eye(b.shape[-1], dtype=b.dtype)
    dense = torch.diag_embed(b) + torch.diag_embed(a[..., 1:], -1) + torch.diag_embed(c[..., :-1], 1)
    if periodic:
        dense = dense + a[..., :1, None] * eye[0][:, None] * eye[n - 1]
        dense = dense + c[..., -1:, None] * eye[n - 1][:, None] * eye[0]
    if where is not None:
        dense = torch.where(where[..., None] & where[..., None, :], dense, eye)
    return dense


def dense_solve(a: Any, b: Any, c: Any, d: Any, *, transpose: bool = False, where: Any = None, **options: Any) -> Any:
    full = matrix(a, b, c, where=where, **options).to(d.dtype)
    if where is not None:
        d = torch.where(where, d, torch.zeros_like(d))
    x = torch.linalg.solve(full.mT if transpose else full, d[..., None])[..., 0]
    return x if where is None else torch.where(where, x, torch.zeros_like(x))


def loss(x: torch.Tensor) -> torch.Tensor:
    weights = torch.linspace(1, 2, x.numel(), dtype=torch.float64).reshape(x.shape)
    return (weights * (x * x.conj()).real).sum()


def gradients(function: Any, arguments: Any) -> Any:
    arguments = [x.detach().requires_grad_() for x in arguments]
    return torch.autograd.grad(loss(function(*arguments)), arguments)


def assert_close(x: Any, y: Any, rtol: float = 1e-9, told: str = "") -> None:
    np.testing.assert_allclose(to_numpy(x), to_numpy(y), rtol, 1e-12, err_msg=told)


def assert_same_gradients(function: Any, wanted: Any, arguments: Any) -> None:
    found, right = gradients(function, arguments), gradients(wanted, arguments)
    for name, x, y, given in zip("abcd", found, right, arguments, strict=True):
        assert x.shape == given.shape and x.dtype == given.dtype, name
        assert_close(x, y, told=name)


@on_torch
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_finite_differences_to_second_order_forward_and_reverse(backend, dtype):
    arguments = systems(M, N, dtype=dtype, grad=True)
    assert gradcheck(by(backend), arguments, check_forward_ad=True)
    arguments = systems(N, dtype=dtype, grad=True)
    assert gradgradcheck(by(backend), arguments, check_fwd_over_rev=True)


@pytest.mark.only(library="torch", pivoting="auto")
def test_finite_differences_where_pivoting_is_needed(backend):
    arguments = [torch.tensor(x, requires_grad=True) for x in zero_diagonal((M, N))]
    assert gradcheck(by(backend), arguments, check_forward_ad=True)
    assert gradgradcheck(by(backend), [x[0].detach().requires_grad_() for x in arguments], check_fwd_over_rev=True)


@on_torch
def test_a_real_matrix_with_complex_right_sides_has_real_gradients(backend):
    arguments = [*systems(M, N)[:3], systems(M, N, dtype="complex128")[3]]
    assert_same_gradients(by(backend), dense_solve, arguments)
    arguments = [x[0].clone().requires_grad_() for x in arguments]
    assert gradcheck(by(backend), arguments, check_forward_ad=True)
    assert gradgradcheck(by(backend), arguments)


@pytest.mark.only(library="torch", periodic=True)
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("transpose", [False, True])
def test_periodic_and_transposed_systems_differentiate(backend, periodic, transpose):
    options = {"periodic": periodic, "transpose": transpose}
    arguments = systems(M, N)
    assert_same_gradients(by(backend, **options), functools.partial(dense_solve, **options), arguments)
    arguments = [x[0].clone().requires_grad_() for x in arguments]
    assert gradcheck(by(backend, **options), arguments, check_forward_ad=True)
    assert gradgradcheck(by(backend, **options), arguments)


@on_torch
def test_other_axes_differentiate(backend):
    turned = [x.mT.contiguous() for x in systems(M, N)]
    assert_same_gradients(by(backend, axis=0), lambda *x: dense_solve(*(v.mT for v in x)).mT, turned)


@pytest.mark.skipif(not installed("numba"), reason="needs numba, which is not installed")
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(
    "options", [{}, {"transpose": True}, {"periodic": True}, {"where": True}, {"axis": 0}], ids=str
)
def test_the_backward_pass_in_one_piece(options, dtype, monkeypatch):
    """`adjoint` of a backend gives what a solve and three products give; where that is differentiated, those are."""
    from tridiag.backends import numba_thomas

    arguments = systems(20, 9, dtype=dtype, grad=True)
    if "where" in options:
        options = {"where": torch.tensor(np.random.default_rng(0).uniform(size=(20, 9)) < 0.7)}
    calls = []
    kernel, bound = numba_thomas.adjoint, numba_thomas.bound_adjoint
    fast_path.forget()
    monkeypatch.setattr(numba_thomas, "adjoint", lambda *x: calls.append(x) or kernel(*x))
    monkeypatch.setattr(numba_thomas, "bound_adjoint", lambda *x: calls.append(x) or bound(*x))

    def gradients(g, **more):
        x = tridiag.solve(*arguments, backend="numba_thomas", **options)
        return torch.autograd.grad(x, arguments, g, **more)

    g = torch.tensor(dominant((3, 20, 9), dtype, seed=1)[3])
    found, batched = gradients(g[0]), torch.func.vmap(gradients)(g)
    assert len(calls) == 2
    apart = [gradients(part, create_graph=True) for part in g]
    assert len(calls) == 2
    for k in ALL:
        torch.testing.assert_close(found[k], apart[0][k], rtol=1e-13, atol=1e-15)
        torch.testing.assert_close(batched[k], torch.stack([x[k] for x in apart]), rtol=1e-13, atol=1e-15)


@on_torch
def test_hessians_and_jacobians(backend):
    a, b, c, d = systems(N)
    for k in range(3):

        def of(function, k=k):
            return lambda x: loss(function(*(x if j == k else v for j, v in enumerate((a, b, c, d)))))  # fmt: skip

        given = (a, b, c)[k]
        assert_close(torch.func.hessian(of(by(backend)))(given), torch.func.hessian(of(dense_solve))(given))
    wanted = torch.func.jacrev(dense_solve, ALL)(a, b, c, d)
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        for x, y in zip(transform(by(backend), ALL)(a, b, c, d), wanted, strict=True):
            assert_close(x, y)


@on_torch
def test_vmap_over_every_subset_of_the_arguments(backend):
    many, one = systems(3, M, N), systems(M, N, seed=1)
    for axes in itertools.product((0, None), repeat=4):
        if set(axes) != {None}:
            arguments = [x if k == 0 else y for x, y, k in zip(many, one, axes, strict=True)]
            found = torch.vmap(by(backend), axes)(*arguments)
            wanted = dense_solve(*(x if k == 0 else x[None] for x, k in zip(arguments, axes, strict=True)))
            assert_close(found, wanted.expand(3, M, N), told=str(axes))


@on_torch
def test_vmap_over_other_axes_and_within_vmap(backend):
    a, b, c, _ = systems(N)
    d = systems(3, M, N)[3]
    b = b + torch.arange(3.0, dtype=b.dtype)[:, None] * b.sign()
    inner = torch.vmap(by(backend), (None, None, None, 1), 1)
    x = torch.vmap(inner, (None, 1, None, 2), 2)(a, b.T, c, d.permute(2, 1, 0))
    assert_close(x.permute(2, 1, 0), dense_solve(a, b[:, None], c, d))


@on_torch
@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacfwd], ids=["reverse", "forward"])
def test_gradients_within_vmap(backend, transform):
    a, b, c, d = systems(3, N)
    found = torch.vmap(transform(lambda b, d: loss(by(backend)(a[0], b, c[0], d)), (0, 1)))(b, d)
    for k in range(3):
        wanted = torch.func.grad(lambda b, d: loss(dense_solve(a[0], b, c[0], d)), (0, 1))(b[k], d[k])
        for x, y in zip(found, wanted, strict=True):
            assert_close(x[k], y)


@on_torch
def test_nan_in_the_pads_reaches_nothing(backend):
    a, b, c, d = systems(M, N)
    wanted = gradients(dense_solve, [a, b, c, d])
    a[:, 0], c[:, -1] = torch.nan, torch.inf
    found = gradients(by(backend), [a, b, c, d])
    assert not found[0][:, 0].any() and not found[2][:, -1].any()
    for x, y in zip(found, wanted, strict=True):
        assert_close(x, y)
    ones = [torch.ones_like(x) for x in (a, b, c, d)]
    _, clean = torch.func.jvp(by(backend), (a, b, c, d), tuple(ones))
    ones[0][:, 0], ones[2][:, -1] = torch.nan, torch.nan
    _, dirty = torch.func.jvp(by(backend), (a, b, c, d), tuple(ones))
    assert torch.equal(clean, dirty) and clean.isfinite().all()


@on_torch
@pytest.mark.parametrize("options", [{}, {"transpose": True}, {"periodic": True}], ids=str)
def test_nan_in_masked_rows_reaches_nothing(backend, options):
    if not backend.can(periodic="periodic" in options):
        pytest.skip("has no elimination for the corners of a periodic matrix")
    arguments = systems(M, 5)
    where = torch.tensor([[True, False, True, True, True], [False, True, True, False, True]])
    wanted = gradients(functools.partial(dense_solve, where=where, **options), arguments)
    filled = [torch.where(where, x, torch.nan) for x in arguments]
    solve = by(backend, where=where, **options)
    assert not solve(*filled)[~where].any()
    for name, x, y in zip("abcd", gradients(solve, filled), wanted, strict=True):
        assert not x[~where].any(), name
        assert_close(x, y, told=name)
    ones = [torch.where(where, 1.0, torch.nan).double() for _ in filled]
    x, x_dot = torch.func.jvp(solve, tuple(filled), tuple(ones))
    assert x_dot.isfinite().all() and not x_dot[~where].any()


@on_torch
def test_masks_differentiate_by_finite_differences(backend):
    where = torch.tensor([True, False, True, True])
    solve = by(backend, where=where)
    assert gradcheck(solve, systems(N, grad=True), check_forward_ad=True)
    assert gradgradcheck(solve, systems(N, grad=True), check_fwd_over_rev=True)


@on_torch
def test_one_bad_system_reaches_no_other_gradient(backend):
    a, b, c, d = systems(3, N)
    wanted = gradients(by(backend), [a, b, c, d])
    for bad in (torch.nan, torch.inf, 0.0):
        dirty = [x.clone() for x in (a, b, c, d)]
        for x in dirty[:3]:
            x[1] = bad
        found = gradients(by(backend, check=False), dirty)
        for x, y in zip(found, wanted, strict=True):
            assert torch.equal(x[::2], y[::2])


@on_torch
def test_shared_arguments_collect_their_gradients(backend):
    rng = np.random.default_rng(3)
    shapes = [(1,), (M, 1, N), (N,), (3, N)]
    a, b, c, d = (torch.tensor(rng.uniform(-1, 1, shape)) for shape in shapes)
    assert_same_gradients(by(backend), dense_solve, [a, 3 + b, c, d])


@on_torch
@pytest.mark.parametrize("dtype", ["float32", "complex64", "bfloat16"])
def test_gradients_keep_the_dtype(backend, dtype):
    dtype = getattr(torch, dtype)
    arguments = [x.to(dtype) for x in systems(N)]
    found = gradients(by(backend), arguments)
    assert {x.dtype for x in found} == {dtype}
    exact = torch.complex128 if dtype.is_complex else torch.float64
    for x, y in zip(found, gradients(dense_solve, [x.to(exact) for x in arguments]), strict=True):
        rtol = 0.1 if dtype is torch.bfloat16 else 1e-3
        np.testing.assert_allclose(to_numpy(x.to(exact)), to_numpy(y), rtol=rtol, atol=1e-2)


@on_torch
def test_only_what_is_asked_is_differentiated(backend):
    a, b, c, d = systems(M, N)
    assert not by(backend)(a, b, c, d).requires_grad
    for k in range(4):
        given = [x.detach().requires_grad_(j == k) for j, x in enumerate((a, b, c, d))]
        (found,) = torch.autograd.grad(loss(by(backend)(*given)), given[k])
        assert_close(found, gradients(dense_solve, [a, b, c, d])[k])
    with torch.no_grad():
        assert not by(backend)(*given).requires_grad


@factors
@pytest.mark.parametrize("transpose", [False, True])
def test_a_factorization_differentiates(backend, transpose):
    def solve(a, b, c, d):
        return tridiag.factor(a, b, c, backend=backend.name).solve(d, transpose=transpose)

    wanted = functools.partial(dense_solve, transpose=transpose)
    assert_same_gradients(solve, wanted, systems(M, N))
    assert gradgradcheck(solve, systems(N, grad=True))
    a, b, c, d = systems(3, N)
    found = torch.vmap(solve, (None, None, None, 0))(a[0], b[0], c[0], d)
    assert_close(found, wanted(a[0], b[0], c[0], d))


@factors
@pytest.mark.parametrize("transpose", [False, True])
def test_a_factorization_inside_a_transformation(backend, transpose):
    """Made there it keeps nothing, and solves, multiplies and tells as `solve` and others do."""
    a, b, c, d = systems(3, N)

    def made(b):
        return tridiag.factor(a[0], b, c[0], backend=backend.name, pivoting=backend.usual)

    def found(b, d):
        return loss(made(b).solve(d, transpose=transpose) + made(b) @ d)

    def wanted(b, d):
        return loss(dense_solve(a[0], b, c[0], d, transpose=transpose) + matrix(a[0], b, c[0]) @ d)

    def determinant(b):
        return torch.linalg.slogdet(matrix(a[0], b, c[0]))[1]

    for transform in (torch.func.grad, torch.func.hessian):
        assert_close(
            torch.func.vmap(transform(found))(b, d),
            torch.stack([transform(wanted)(b[k], d[k]) for k in range(3)]),  # torch's own Hessians within vmap are NaN
        )
    _, turned = torch.func.jvp(found, (b[0], d[0]), (c[0], a[0]))
    assert_close(turned, torch.func.jvp(wanted, (b[0], d[0]), (c[0], a[0]))[1])
    assert_close(torch.func.grad(lambda b: made(b).slogdet()[1])(b[0]), torch.func.grad(determinant)(b[0]))
    singular = torch.func.vmap(lambda b: made(b).status)(b * torch.tensor([[1.0], [0.0], [1.0]]).double())
    assert (singular != 0).tolist() == [False, N % 2 == 1, False]


@factors
def test_a_factorization_serves_many_gradients(backend):
    a, b, c, d = systems(M, N, grad=True)
    made = tridiag.factor(a, b, c, backend=backend.name)
    total = loss(made.solve(d)) + loss(made.solve(2 - d, transpose=True))
    right = loss(dense_solve(a, b, c, d)) + loss(dense_solve(a, b, c, 2 - d, transpose=True))
    for x, y in zip(torch.autograd.grad(total, (a, b, c, d)), torch.autograd.grad(right, (a, b, c, d)), strict=True):
        assert_close(x, y)


def batches(count: int, *rest: int) -> torch.Tensor:
    """Ones, of a batch of so many systems, sequences or series, in double precision."""
    return torch.ones(count, *rest, dtype=torch.float64)


def walk(count: int, verb: str, variance: torch.Tensor, **options: Any) -> Any:
    """A verb on random walks of four steps."""
    one = batches(1, 1)
    return getattr(kalman, verb)(batches(count, 4, 1), F=one, H=one, Q=variance, R=one, m0=one[0], P0=one, **options)


CALLS: dict[
    str, tuple[Any, tuple[int, ...]]
] = {  # a verb on so many systems and what they share, and the shape of this
    "solve": (lambda k, b: tridiag.solve(1.0, b, 1.0, batches(k, 5)), (5,)),
    "periodic": (lambda k, b: tridiag.solve(1.0, b, 1.0, batches(k, 5), periodic=True), (5,)),
    "perturbed": (lambda k, b: tridiag.solve(1.0, b, 1.0, batches(k, 5), singular="perturb"), (5,)),
    "to out": (lambda k, b: tridiag.solve(1.0, b, 1.0, batches(k, 5), out=batches(k, 5)), (5,)),
    "factor": (lambda k, b: tridiag.factor(1.0, b, 1.0).solve(batches(k, 5)), (5,)),
    "rcond": (lambda k, c: tridiag.factor(1.0, 4 * batches(k, 5), c).rcond, (5,)),
    "matmul": (lambda k, b: tridiag.matmul(1.0, b, 1.0, batches(k, 5)), (5,)),
    "slogdet": (lambda k, c: tridiag.slogdet(1.0, 4 * batches(k, 5), c)[1], (5,)),
    "complex slogdet": (lambda k, c: tridiag.slogdet(1.0, 4 * batches(k, 5), 1j * c)[1], (5,)),
    "solve_block": (lambda k, b: tridiag.solve_block(batches(2, 2), b, batches(2, 2), batches(k, 5, 2)), (2, 2)),
    "linear_recurrence": (lambda k, a: tridiag.linear_recurrence(a, batches(k, 5)), ()),
    "second order": (lambda k, a: tridiag.linear_recurrence((a, a), batches(k, 5)), ()),
    "last": (lambda k, a: tridiag.linear_recurrence(a, batches(k, 5), return_final=True)[1], ()),
    "log_linear_recurrence": (lambda k, a: tridiag.log_linear_recurrence(a, batches(k, 5)), ()),
    "matrix_recurrence": (lambda k, a: tridiag.matrix_recurrence(a, batches(k, 5, 2)), (2, 2)),
    "selective_scan": (lambda k, a: tridiag.selective_scan(a, batches(k, 5), 1.0, batches(2)), (2,)),
    "smith_waterman": (lambda k, gap: tridiag.smith_waterman(batches(k, 5, 4), gap=gap), ()),
    "log_likelihood": (lambda k, q: walk(k, "log_likelihood", q), (1, 1)),
    "each step": (lambda k, q: walk(k, "log_likelihood", q, each_step=True), (1, 1)),
    "intercept": (lambda k, u: walk(k, "log_likelihood", batches(1, 1), state_intercept=u), (1,)),
    "filter": (lambda k, q: walk(k, "filter", q).mean, (1, 1)),
    "smoother": (lambda k, q: walk(k, "smoother", q).mean, (1, 1)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_batch_of_none_has_gradients_of_zero(name):
    call, shape = CALLS[name]
    for count in (2, 0):
        shared = torch.full(shape, 3.0, dtype=torch.float64, requires_grad=True)
        result = call(count, shared)
        assert result.shape[0] == count
        (gradient,) = torch.autograd.grad(result.sum(), shared)
        assert count or not gradient.any()


@on_torch
def test_out_takes_a_solution_that_still_differentiates(backend):
    a, b, c, d = systems(M, N)
    b.requires_grad_()
    out = torch.empty_like(d)
    x = by(backend, out=out)(a, b, c, d)
    assert x is out and x.requires_grad
    (found,) = torch.autograd.grad(loss(x), b)
    assert_close(found, gradients(dense_solve, [a, b, c, d])[1])


@on_torch
def test_out_that_requires_a_gradient_raises(backend):
    a, b, c, d = systems(M, N)
    before = d.clone()
    with pytest.raises(ValueError, match=r"requires a gradient .* out\.detach\(\)"):
        by(backend, out=torch.empty_like(d).requires_grad_())(a, b, c, d)
    assert torch.equal(d, before)


@on_torch
def test_overwriting_an_intermediate_right_side_differentiates(backend):
    a, b, c, d = systems(M, N, grad=True)
    intermediate = 2 * d
    x = by(backend, overwrite_d=True)(a, b, c, intermediate)
    found = torch.autograd.grad(loss(x), (a, b, c, d))
    for x, y in zip(found, gradients(lambda a, b, c, d: dense_solve(a, b, c, 2 * d), [a, b, c, d]), strict=True):
        assert_close(x, y)


@on_torch
def test_overwriting_a_saved_tensor_is_noticed(backend):
    """As with torch's own in-place operations: a gradient that needs the old values raises, it is never wrong."""
    a, b, c, d = systems(M, N)
    weight = torch.ones_like(d, requires_grad=True)
    product = weight * d  # whose gradient in weight needs d
    x = by(backend, overwrite_d=True)(a, b, c, d)
    assert x is d
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


@determinants
@pytest.mark.parametrize("options", [{}, {"periodic": True}], ids=str)
def test_log_determinants_differentiate(backend, options):
    a, b, c, _ = [torch.tensor(x, requires_grad=True) for x in zero_diagonal((M, N))]
    sign, log = tridiag.slogdet(a, b + 0.1, c, backend=backend.name, **options)
    right = torch.linalg.slogdet(matrix(a, b + 0.1, c, **options))
    assert torch.equal(sign, right[0])
    for x, y in zip(
        torch.autograd.grad(log.sum(), (a, b, c)), torch.autograd.grad(right[1].sum(), (a, b, c)), strict=True
    ):
        assert_close(x, y)


@determinants
def test_log_determinants_do_not_see_pads_and_masked_rows(backend):
    a, b, c, _ = systems(M, N)
    where = torch.tensor([True, True, False, True])
    wanted = None
    for bad in (1.0, torch.nan):
        given = [torch.where(where, x, bad) for x in (a, b, c)]
        given[0][:, 0], given[2][:, -1] = bad, bad
        given = [x.requires_grad_() for x in given]
        log = tridiag.slogdet(*given, where=where, backend=backend.name)[1]
        found = torch.autograd.grad(log.sum(), given)
        assert not any(x[:, 2].any() for x in found) and not found[0][:, 0].any()
        for x, y in zip(found, wanted or found, strict=True):
            assert torch.equal(x, y)
        wanted = found


@on_torch
def test_a_training_step_works(backend):
    """Module parameters, an optimiser, a loop: the loss falls."""
    a, b, c, d = systems(M, N)
    target = torch.tensor(oracle(*map(to_numpy, (a, b, c, d))).astype(float))
    guess = torch.nn.Parameter(torch.zeros(N, dtype=torch.float64))
    optimiser, losses = torch.optim.Adam([guess], lr=0.05), []
    for _ in range(30):
        optimiser.zero_grad()
        error = ((by(backend)(a, b + b.sign() * guess.exp(), c, d) - target) ** 2).sum()
        error.backward()
        optimiser.step()
        losses.append(error.item())
    assert losses[-1] < losses[0] / 3


@pytest.mark.only(library="torch", dtype="complex128")
def test_lazy_conjugates_and_negatives_are_written_as_they_read(backend):
    """Their memory holds other values than they show."""
    b = torch.randn(4, dtype=torch.complex128) + 5
    raw = torch.randn(4, dtype=torch.complex128)
    wanted = by(backend)(1.0, b, 1.0, raw.conj().resolve_conj())
    for lazy in (torch.conj(raw.clone()), torch.conj(torch.zeros_like(raw))):
        given = {"overwrite_d": True} if lazy.any() else {"out": lazy}
        d = lazy if lazy.any() else raw.conj()
        x = by(backend, **given)(1.0, b, 1.0, d)
        assert x is lazy
        torch.testing.assert_close(x, wanted)
    negative = torch.conj(raw.clone()).imag
    assert negative.is_neg()
    wanted = by(backend)(1.0, b.real, 1.0, negative.clone())
    torch.testing.assert_close(by(backend, overwrite_d=True)(1.0, b.real, 1.0, negative), wanted)
