"""The derivative rule under JAX: every backend against finite differences and against a dense solve."""

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from helpers import Subject, dominant, installed, oracle, zero_diagonal

import tridiag

if not installed("jax"):
    pytest.skip("needs jax, which is not installed", allow_module_level=True)

import jax
import jax.numpy as jnp
from jax.test_util import check_grads

N, M = 4, 2
ALL = (0, 1, 2, 3)
on_jax = pytest.mark.only(library="jax")
factors = pytest.mark.only(library="jax", verb="factor")
determinants = pytest.mark.only(library="jax", verb="slogdet")


def systems(*shape: int, dtype: str = "float64", seed: int = 0) -> list[jax.Array]:
    return [jnp.asarray(x) for x in dominant(shape, dtype, seed=seed)]


def by(backend: Subject, **options: Any) -> Any:
    """The solve of a backend; False, where its other promises do not matter, compiles in a fraction of the time."""
    return functools.partial(tridiag.solve, backend=backend.name, **({"pivoting": False} | options))


def matrix(a: Any, b: Any, c: Any, *, periodic: bool = False, where: Any = None) -> Any:
    """The dense matrices (..., n, n): JAX differentiates them by itself. The system axis is last."""
    n = b.shape[-1]
    below, above = np.eye(n, k=-1), np.eye(n, k=1)
    if periodic:
        below[0, -1] = above[-1, 0] = 1
    dense = a[..., None] * below + b[..., None] * np.eye(n) + c[..., None] * above
    return dense if where is None else jnp.where(where[..., None] & where[..., None, :], dense, np.eye(n))


def dense_solve(a: Any, b: Any, c: Any, d: Any, *, transpose: bool = False, where: Any = None, **options: Any) -> Any:
    full = matrix(a, b, c, where=where, **options)
    if where is not None:
        d = jnp.where(where, d, 0)
    full = jnp.swapaxes(full, -1, -2) if transpose else full
    shape = jnp.broadcast_shapes(full.shape[:-1], d.shape)
    return jnp.linalg.solve(jnp.broadcast_to(full, (*shape, shape[-1])), jnp.broadcast_to(d, shape)[..., None])[..., 0]


def loss(function: Any) -> Any:
    """A real function of the arguments with derivatives of every order."""
    weights = jnp.asarray(np.random.default_rng(1).uniform(1, 2, 64))
    return lambda *x: jnp.sum(weights[: (y := function(*x)).size].reshape(y.shape) * jnp.abs(y) ** 2)


@functools.lru_cache(8)
def gradient(function: Any) -> Any:
    return jax.jit(jax.grad(loss(function), argnums=ALL))


def right_gradients(function: Any, arguments: Any) -> Any:
    """Of a dense function, not compiled as a whole: its operations are, and serve every backend."""
    return jax.grad(loss(function), argnums=ALL)(*arguments)


def assert_same_gradients(function: Any, wanted: Any, arguments: Any, rtol: float = 1e-9) -> None:
    found, right = gradient(function)(*arguments), right_gradients(wanted, arguments)
    for name, x, y, given in zip("abcd", found, right, arguments, strict=True):
        assert x.shape == given.shape and x.dtype == given.dtype, name
        np.testing.assert_allclose(x, y, rtol=rtol, atol=1e-12, err_msg=name)


@on_jax
@pytest.mark.parametrize("order", [1, 2])
def test_finite_differences_forward_and_reverse(backend, order):
    check_grads(jax.jit(by(backend)), systems(M, N), order=order, modes=("fwd", "rev"), atol=1e-3, rtol=1e-3)


@pytest.mark.only(library="jax", pivoting="auto")
def test_finite_differences_where_pivoting_is_needed(backend):
    arguments = [jnp.asarray(x) for x in zero_diagonal((M, N))]
    function = jax.jit(by(backend, pivoting="auto"))
    check_grads(function, arguments, order=1, modes=("fwd", "rev"), atol=1e-3, rtol=1e-3)


@on_jax
@pytest.mark.parametrize("options", [{"transpose": True}, {"axis": 0}], ids=str)
def test_options_differentiate(backend, options):
    arguments = systems(N, N)
    turned = (lambda f: lambda *x: f(*(v.T for v in x)).T) if "axis" in options else (lambda f: f)
    dense = functools.partial(dense_solve, transpose=options.get("transpose", False))
    assert_same_gradients(by(backend, **options), turned(dense), arguments)


@pytest.mark.only(library="jax", periodic=True)
@pytest.mark.parametrize("transpose", [False, True])
def test_periodic_systems_differentiate(backend, transpose):
    options = {"periodic": True, "transpose": transpose}
    assert_same_gradients(by(backend, **options), functools.partial(dense_solve, **options), systems(M, N))


@on_jax
@pytest.mark.only(dtype="complex128")
@pytest.mark.parametrize("real_matrix", [False, True])
def test_complex_systems_differentiate(backend, real_matrix):
    arguments = systems(M, N, dtype="complex128")
    if real_matrix:
        arguments = [*systems(M, N)[:3], arguments[3]]
    assert_same_gradients(by(backend), dense_solve, arguments)


@on_jax
@pytest.mark.only(dtype="complex128")
def test_complex_finite_differences(backend):
    arguments = systems(N, dtype="complex128")
    check_grads(jax.jit(by(backend)), arguments, order=1, modes=("fwd", "rev"), atol=1e-3, rtol=1e-3)


@on_jax
def test_hessian(backend):
    a, b, c, d = systems(N)

    def hessian(function):
        return jax.hessian(lambda b: loss(function)(a, b, c, d))

    np.testing.assert_allclose(jax.jit(hessian(by(backend)))(b), hessian(dense_solve)(b), rtol=1e-9, atol=1e-12)


@on_jax
@pytest.mark.parametrize("inner", [ALL, (1, 3)], ids=str)
def test_second_order_in_every_mix_of_modes(backend, inner):
    """With constant directions, of which reverse over forward differentiates none."""
    arguments = systems(N)
    directions = [jnp.cos(x) for x in systems(N, seed=1)]
    chosen = tuple(directions[k] for k in inner)

    def products(function):
        """Hessian times the directions."""

        def some(x):
            full = dict(enumerate(arguments)) | dict(zip(inner, x, strict=True))
            return loss(function)(*full.values())

        x = tuple(arguments[k] for k in inner)
        return (
            jax.jvp(jax.grad(some), (x,), (chosen,))[1],
            jax.grad(lambda x: jax.jvp(some, (x,), (chosen,))[1])(x),
            jax.grad(lambda x: sum(jnp.vdot(u, v) for u, v in zip(jax.grad(some)(x), chosen, strict=True)))(x),
            jax.jvp(lambda x: jax.jvp(some, (x,), (chosen,))[1], (x,), (chosen,))[1],
        )

    found, wanted = jax.jit(lambda: products(by(backend)))(), products(dense_solve)
    for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


@on_jax
def test_gradients_of_the_weights_of_a_gradient(backend):
    """A derivative that reaches the adjoint solve through its right side alone."""
    arguments, weights = systems(N), jnp.arange(1.0, N + 1)

    def outer(function):
        def inner(weights):
            return jax.grad(lambda *x: jnp.vdot(weights, function(*x)), ALL)(*arguments)

        return jax.grad(lambda weights: sum(jnp.sin(x).sum() for x in inner(weights)))

    np.testing.assert_allclose(jax.jit(outer(by(backend)))(weights), outer(dense_solve)(weights), rtol=1e-9)


@on_jax
def test_a_solve_transposes_as_a_linear_function_of_its_right_side(backend):
    a, b, c, d = systems(M, N)
    turned = jax.jit(lambda g: jax.linear_transpose(lambda d: by(backend)(a, b, c, d), d)(g)[0])
    np.testing.assert_allclose(turned(d), dense_solve(a, b, c, d, transpose=True), rtol=1e-10)


@factors
@pytest.mark.parametrize("options", [{}, {"transpose": True}], ids=str)
def test_a_backend_may_compute_the_whole_rule_in_one_pass(backend, options, monkeypatch):
    """`adjoint` of a backend takes the place of the solve and the three products, where no entry is shared."""
    rows = "...ji,...j->...i" if options else "...ij,...j->...i"

    @jax.named_scope("the four at once")
    def adjoint(entries, g, x, form):
        *entries, where = entries
        w = dense_solve(*entries, g, transpose=not form.transpose, where=where)
        product = jax.vjp(lambda *v: jnp.einsum(rows, matrix(*v, where=where), x), *entries)[1]
        return w, *product(-w)

    monkeypatch.setattr(backend.entry.module(), "adjoint", adjoint, raising=False)
    where = jnp.arange(N) != 2
    solve, right = (functools.partial(f, where=where, **options) for f in (by(backend), dense_solve))
    a, b, c, d = arguments = systems(3, M, N)
    each = jax.jit(jax.vmap(jax.grad(loss(solve), ALL)))
    wanted = jax.vmap(jax.grad(loss(lambda *x: jnp.where(where, right(*x), 0)), ALL))(*arguments)
    for x, y in zip(each(*arguments), wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)

    def in_one_pass(function, *arguments):
        return "the four at once" in jax.jit(function).lower(*arguments).compile().as_text()

    assert in_one_pass(each, *arguments)
    assert not in_one_pass(jax.grad(loss(solve), ALL), a[0], b[0], c[0], d)
    assert not in_one_pass(jax.vmap(jax.grad(loss(solve), ALL), (None, None, None, 0)), a[0], b[0], c[0], d)
    assert not in_one_pass(jax.grad(loss(solve), (1, 3)), *arguments)


@on_jax
def test_jacobians_forward_and_reverse_agree(backend):
    arguments = systems(N)
    forward = jax.jit(jax.jacfwd(by(backend), ALL))(*arguments)
    reverse = jax.jit(jax.jacrev(by(backend), ALL))(*arguments)
    wanted = jax.jacfwd(dense_solve, ALL)(*arguments)
    for x, y, z in zip(forward, reverse, wanted, strict=True):
        np.testing.assert_allclose(x, z, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(y, z, rtol=1e-9, atol=1e-12)


SUBSETS = [axes for axes in itertools.product((0, None), repeat=4) if any(k == 0 for k in axes)]


@on_jax
def test_vmap_over_every_subset_of_the_arguments(backend):
    many, one = systems(3, M, N), systems(M, N, seed=1)

    @jax.jit
    def every(many, one):
        chosen = [[x if k == 0 else y for x, y, k in zip(many, one, axes, strict=True)] for axes in SUBSETS]
        return [jax.vmap(by(backend), axes)(*x) for x, axes in zip(chosen, SUBSETS, strict=True)]

    for axes, x in zip(SUBSETS, every(many, one), strict=True):
        arguments = [u if k == 0 else v for u, v, k in zip(many, one, axes, strict=True)]
        wanted = dense_solve(*(v if k == 0 else v[None] for v, k in zip(arguments, axes, strict=True)))
        np.testing.assert_allclose(x, wanted, rtol=1e-10, err_msg=str(axes))


@on_jax
def test_vmap_over_other_axes_and_within_vmap(backend):
    a, b, c, _ = systems(N)
    d = systems(3, M, N)[3]
    b = b + jnp.arange(3.0)[:, None] * jnp.sign(b)
    wanted = dense_solve(a, b[:, None], c, d)
    inner = jax.vmap(by(backend), (None, None, None, 1), 1)
    outer = jax.jit(jax.vmap(inner, (None, 1, None, 2), 2))
    x = outer(a, b.T, c, d.transpose(2, 1, 0))
    np.testing.assert_allclose(x.transpose(2, 1, 0), wanted, rtol=1e-10)


@on_jax
def test_gradients_within_vmap_and_vmap_within_gradients(backend):
    a, b, c, d = systems(3, N)
    each = jax.jit(jax.vmap(jax.grad(loss(by(backend)), (1, 3)), (None, 0, None, 0)))(a[0], b, c[0], d)
    wanted = jax.vmap(jax.grad(loss(dense_solve), (1, 3)), (None, 0, None, 0))(a[0], b, c[0], d)
    batched = jax.vmap(by(backend), (None, 0, None, 0))
    whole = jax.jit(jax.grad(lambda b, d: sum(map(loss(lambda x: x), batched(a[0], b, c[0], d))), (0, 1)))(b, d)
    for x, y, z in zip(each, whole, wanted, strict=True):
        np.testing.assert_allclose(x, z, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(y, z, rtol=1e-9, atol=1e-12)


@on_jax
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_scan_over_time_differentiates(backend, checkpoint):
    if checkpoint and backend.interpreted:
        pytest.skip("JAX interprets kernels by callbacks, and checkpoints none")
    a, b, c, d = systems(N)

    def march(function):
        function = jax.checkpoint(function) if checkpoint else function
        return lambda a, b, c, d: jax.lax.scan(lambda x, _: (function(a, b, c, x), None), d, length=3)[0]

    assert_same_gradients(march(by(backend)), march(dense_solve), [a, b, c, d])


@on_jax
def test_nan_in_the_pads_reaches_nothing(backend):
    a, b, c, d = systems(M, N)
    wanted = right_gradients(dense_solve, [a, b, c, d])
    a, c = a.at[:, 0].set(jnp.nan), c.at[:, -1].set(jnp.nan)
    found = gradient(by(backend))(a, b, c, d)
    assert not found[0][:, 0].any() and not found[2][:, -1].any()
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
    tangents = [jnp.ones_like(x) for x in (a, b, c, d)]
    clean = jax.jit(lambda x, t: jax.jvp(by(backend), x, t))((a, b, c, d), tuple(tangents))
    tangents[0], tangents[2] = tangents[0].at[:, 0].set(jnp.nan), tangents[2].at[:, -1].set(jnp.inf)
    dirty = jax.jit(lambda x, t: jax.jvp(by(backend), x, t))((a, b, c, d), tuple(tangents))
    for x, y in zip(clean, dirty, strict=True):
        assert np.isfinite(x).all()
        np.testing.assert_array_equal(x, y)


@on_jax
@pytest.mark.parametrize("options", [{}, {"transpose": True}], ids=str)
def test_nan_in_masked_rows_reaches_nothing(backend, options):
    arguments = systems(M, N)
    where = jnp.asarray([[True, False, True, True], [False, True, True, False]])
    solve = functools.partial(by(backend), where=where, **options)
    right = functools.partial(dense_solve, where=where, **options)
    wanted = right_gradients(lambda *x: jnp.where(where, right(*x), 0), arguments)
    filled = [jnp.where(where, x, jnp.nan) for x in arguments]
    assert not jax.jit(solve)(*filled)[~where].any()
    found = gradient(solve)(*filled)
    for name, x, y in zip("abcd", found, wanted, strict=True):
        assert not x[~where].any(), name
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12, err_msg=name)


@on_jax
def test_one_bad_system_reaches_no_other_gradient(backend):
    a, b, c, d = systems(3, N)
    function = gradient(by(backend))
    wanted = function(a, b, c, d)
    for bad in (jnp.nan, jnp.inf, 0.0):
        a2, b2, c2 = (x.at[1].set(bad) for x in (a, b, c))
        found = function(a2, b2, c2, d.at[1].set(1.0))
        for x, y in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(x[::2], y[::2])


@on_jax
def test_shared_arguments_collect_their_gradients(backend):
    rng = np.random.default_rng(3)
    shapes = [(1,), (M, 1, N), (N,), (3, N)]
    a, b, c, d = (jnp.asarray(rng.uniform(-1, 1, shape)) for shape in shapes)
    assert_same_gradients(by(backend), dense_solve, [a, 3 + b, c, d])
    scalar = gradient(by(backend))(0.5, 3 + b, c, d)[0]
    right = right_gradients(dense_solve, [jnp.full(N, 0.5), 3 + b, c, d])[0].sum()
    assert scalar.shape == ()
    np.testing.assert_allclose(scalar, right, rtol=1e-9)


@on_jax
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradients_keep_the_dtype(backend, dtype):
    arguments = [jnp.asarray(x, dtype) for x in dominant((N,), "float32")]
    found = gradient(by(backend))(*arguments)
    assert {str(x.dtype) for x in found} == {dtype}
    wanted = right_gradients(dense_solve, [x.astype("float64") for x in arguments])
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x.astype(y.dtype), y, rtol=0.1 if dtype == "bfloat16" else 1e-3, atol=1e-2)


@factors
def test_a_factorization_differentiates(backend):
    a, b, c, d = systems(M, N)
    more = jnp.stack((d, 2 - d))

    def solve(a, b, c, d):
        return tridiag.factor(a, b, c, backend=backend.name, pivoting=False).solve(d)

    assert_same_gradients(solve, dense_solve, [a, b, c, d])
    assert_same_gradients(solve, dense_solve, [a, b, c, more])

    def both(function):
        return lambda a, b, c, d: loss(lambda x: x)(function(a, b, c, d)) * jnp.sum(a + b)

    check_grads(jax.jit(both(solve)), [a[0], b[0], c[0], d[0]], order=2, modes=("rev",), atol=1e-3, rtol=1e-3)


@factors
@pytest.mark.parametrize("options", [{}, {"periodic": True}, {"pivoting": False}], ids=str)
def test_a_factorization_passes_through_jit_and_vmap(backend, options):
    a, b, c, d = systems(3, N)
    options = {"backend": backend.name} | options
    made = jax.jit(lambda a, b, c: tridiag.factor(a, b, c, **options))(a, b, c)
    for transpose in (False, True):
        wanted = oracle(a, b, c, d, transpose=transpose, periodic=options.get("periodic", False)).astype(float)
        x = jax.jit(lambda f, d: f.solve(d, transpose=transpose))(made, d)  # noqa: B023
        np.testing.assert_allclose(x, wanted, rtol=1e-11)
    one = jax.jit(jax.vmap(lambda a, b, c, d: tridiag.factor(a, b, c, **options).solve(d, transpose=True)))
    np.testing.assert_allclose(one(a, b, c, d), wanted, rtol=1e-11)
    assert not made.status.any()


@factors
def test_a_stacked_factorization_solves_within_vmap(backend):
    """A factorization made by one vmap is the argument of another."""
    a, b, c, d = systems(3, N)
    made = jax.jit(jax.vmap(lambda a, b, c: tridiag.factor(a, b, c, backend=backend.name)))(a, b, c)
    x = jax.jit(jax.vmap(lambda f, d: f.solve(d)))(made, d)
    np.testing.assert_allclose(x, oracle(a, b, c, d).astype(float), rtol=1e-11)


@factors
def test_gradients_with_respect_to_a_factorization_are_those_of_its_matrix(backend):
    a, b, c, d = systems(N)
    made = tridiag.factor(a, b, c, backend=backend.name, pivoting=False)
    found = jax.jit(jax.grad(lambda f: loss(f.solve)(d), allow_int=True))(made)
    wanted = right_gradients(dense_solve, [a, b, c, d])[:3]
    for x, y in zip(jax.tree.leaves(found)[:3], wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


@determinants
@pytest.mark.parametrize("options", [{}, {"periodic": True}], ids=str)
def test_log_determinants_differentiate(backend, options):
    a, b, c, _ = [jnp.asarray(x) for x in zero_diagonal((M, N))]
    b = b + 0.1

    def found(a, b, c):
        return tridiag.slogdet(a, b, c, backend=backend.name, **options)[1].sum()

    def wanted(a, b, c):
        return jnp.linalg.slogdet(matrix(a, b, c, **options))[1].sum()

    for x, y in zip(*(jax.jit(jax.grad(f, (0, 1, 2)))(a, b, c) for f in (found, wanted)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["numba_thomas", "jax_scan"])
@pytest.mark.parametrize("periodic", [False, True])
def test_signs_of_complex_determinants_differentiate(periodic: bool, name: str) -> None:
    """Along a direction, forward and in reverse, against the directions that dense determinants have there."""
    pytest.importorskip("numba")
    rng = np.random.default_rng(0)
    given, along = (
        [jnp.asarray(x * np.exp(2j * np.pi * rng.uniform(size=(M, N)))) for x in systems(M, N)[:3]] for _ in range(2)
    )

    def found(a, b, c):
        return tridiag.slogdet(a, b, c, periodic=periodic, backend=name)[0]

    whole, change = (matrix(*bands, periodic=periodic) for bands in (given, along))
    sign, turned = jax.jvp(found, given, along)
    rate = jnp.trace(jnp.linalg.solve(whole, change), axis1=-2, axis2=-1)
    np.testing.assert_allclose(turned, sign * 1j * rate.imag, rtol=1e-9, atol=1e-12)
    back = jax.grad(lambda *bands: found(*bands).imag.sum(), (0, 1, 2))(*given)
    pulled = sum((x * y).real.sum() for x, y in zip(back, along, strict=True))
    np.testing.assert_allclose(pulled, turned.imag.sum(), rtol=1e-9)


@determinants
def test_log_determinants_do_not_see_pads_and_masked_rows(backend):
    a, b, c, _ = systems(M, N)
    where = jnp.asarray([True, True, False, True])

    def log(a, b, c):
        return tridiag.slogdet(a, b, c, where=where, backend=backend.name)[1].sum()

    wanted = jax.jit(jax.grad(log, (0, 1, 2)))(a, b, c)
    a, b, c = (jnp.where(where, x, jnp.nan) for x in (a, b, c))
    found = jax.jit(jax.grad(log, (0, 1, 2)))(a.at[:, 0].set(jnp.nan), b, c.at[:, -1].set(jnp.nan))
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12)
