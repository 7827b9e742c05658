"""`scan` over any axis against `jax.lax.scan` over rows that were moved to the front."""

import functools
import gc
import sys
import weakref
from typing import Any

import numpy as np
import pytest

import tridiag

jax = pytest.importorskip("jax")
jnp = jax.numpy
lax = jax.lax

RNG = np.random.default_rng(0)
X = jnp.asarray(RNG.uniform(-1, 1, (3, 4, 5)))


def decay(carry: Any, row: Any) -> tuple[Any, Any]:
    carry = jnp.tanh(0.5 * carry + row)
    return carry, carry * row


def moved(f: Any, init: Any, x: Any, axis: int, **options: Any) -> tuple[Any, Any]:
    """The reference."""
    carry, y = lax.scan(f, init, jnp.moveaxis(x, axis, 0), **options)
    return carry, jnp.moveaxis(y, 0, axis)


def start(axis: int) -> Any:
    return jnp.full(np.delete(X.shape, axis), 0.25)


def assert_same(found: Any, right: Any) -> None:
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-13, atol=1e-13), found, right)


# -------------------------------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_values(axis: int, reverse: bool) -> None:
    right = moved(decay, start(axis), X, axis, reverse=reverse)
    assert_same(tridiag.scan(decay, start(axis), X, axis=axis, reverse=reverse), right)
    compiled = jax.jit(lambda init, x: tridiag.scan(decay, init, x, axis=axis, reverse=reverse))
    assert_same(compiled(start(axis), X), right)


@pytest.mark.parametrize("unroll", [2, 3, True])
def test_unrolled(unroll: Any) -> None:
    assert_same(tridiag.scan(decay, start(2), X, axis=2, unroll=unroll), moved(decay, start(2), X, 2))


def test_an_axis_for_every_array_of_a_tree() -> None:
    a, b, c = X, jnp.moveaxis(X, 2, 0), jnp.arange(5)

    def f(carry: Any, row: Any) -> tuple[Any, Any]:
        carry = {"sum": carry["sum"] + row["pair"][0] * row["pair"][1], "count": carry["count"] + row["count"]}
        return carry, (carry["sum"], row["count"])

    init = {"sum": jnp.zeros((3, 4)), "count": 0}
    xs = {"pair": (a, b), "count": c}
    carry, (sums, counts) = tridiag.scan(f, init, xs, axis={"pair": (-1, 0), "count": 0}, out_axis=(1, 0))
    np.testing.assert_allclose(sums, np.moveaxis(np.cumsum(X**2, axis=2), 2, 1), rtol=1e-12)
    np.testing.assert_allclose(carry["sum"], (X**2).sum(2), rtol=1e-12)
    assert counts.dtype == c.dtype and counts.tolist() == [0, 1, 2, 3, 4] and int(carry["count"]) == 10
    again = tridiag.scan(f, init, {"pair": (a, a), "count": c}, axis={"pair": -1, "count": 0})
    np.testing.assert_allclose(again[1][0], np.moveaxis(sums, 1, 0), rtol=1e-12)


def test_where_results_go() -> None:
    """As ``axis``, unless ``out_axis`` says where."""
    assert tridiag.scan(decay, start(2), X, axis=2)[1].shape == (3, 4, 5)
    for out_axis, shape in ((0, (5, 3, 4)), (1, (3, 5, 4)), (-1, (3, 4, 5))):
        assert tridiag.scan(decay, start(2), X, axis=2, out_axis=out_axis)[1].shape == shape


def test_no_inputs_no_results_no_steps() -> None:
    carry, y = tridiag.scan(lambda carry, _: (2 * carry, None), 1.0, None, length=5)
    assert float(carry) == 32 and y is None
    carry, y = tridiag.scan(decay, jnp.ones(3), jnp.ones((3, 0)), axis=1)
    assert carry.tolist() == [1, 1, 1] and y.shape == (3, 0)
    assert tridiag.scan(decay, jnp.ones(3), jnp.ones((3, 1)), axis=1, length=1)[1].shape == (3, 1)


def test_numpy_arrays_are_taken_as_jax_takes_them() -> None:
    found = tridiag.scan(decay, np.asarray(start(2)), np.asarray(X), axis=2)
    assert isinstance(found[1], jax.Array)
    assert_same(found, moved(decay, start(2), X, 2))


def test_integers_and_keys_are_rows_too() -> None:
    keys = jax.random.split(jax.random.key(0), (2, 5))
    right = [float(jax.random.uniform(key)) for key in keys[1]]
    found = tridiag.scan(lambda carry, key: (carry, jax.random.uniform(key[1])), 0, keys, axis=1, out_axis=0)[1]
    np.testing.assert_allclose(found, right)
    table = jnp.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(
        tridiag.scan(lambda carry, row: (carry + row, carry), jnp.zeros(3, int), table, axis=1)[0], table.sum(1)
    )


# ------------------------------------------------------------------------------------------------------------- tracing


def test_what_f_closes_over_may_change() -> None:
    class Decay:
        factor = 0.5

        def step(self, carry: Any, row: Any) -> tuple[Any, Any]:
            return self.factor * carry + row, None

    decay = Decay()
    ones = jnp.ones((2, 3))
    assert tridiag.scan(decay.step, jnp.zeros(2), ones, axis=1)[0].tolist() == [1.75, 1.75]
    decay.factor = 1.0
    assert tridiag.scan(decay.step, jnp.zeros(2), ones, axis=1)[0].tolist() == [3, 3]
    gradient = jax.grad(lambda factor: tridiag.scan(lambda c, x: (factor * c + x, c), 0.0, ones[0])[0])
    np.testing.assert_allclose([gradient(0.5), gradient(2.0)], [2, 5])


def test_a_function_is_traced_once_and_not_kept() -> None:
    traced = []

    def f(carry: Any, row: Any) -> tuple[Any, Any]:
        traced.append(row.shape)
        return carry + row, carry

    for _ in range(3):
        tridiag.scan(f, jnp.zeros((3, 4)), X, axis=2)
    assert traced == [(3, 4)]
    gone = weakref.ref(f)
    del f
    gc.collect()
    assert gone() is None


def test_no_tracer_leaks() -> None:
    with jax.checking_leaks():
        jax.jit(jax.grad(lambda w: tridiag.scan(lambda c, x: (w * c + x, c), 0.0, X[0, 0])[0]))(0.5)


def test_rows_are_read_where_they_lie() -> None:
    """The compiled program has no copy of x whose axes are in another order."""

    def total(x: Any) -> Any:
        return tridiag.scan(lambda carry, row: (jnp.tanh(carry + row), None), jnp.zeros(7), x, axis=1)[0]

    text = jax.jit(total).lower(jnp.ones((7, 1001))).compile().as_text()
    assert "[7,1001]" in text and "[1001,7]" not in text


# ----------------------------------------------------------------------------------------------------------- gradients


def losses(axis: int) -> tuple[Any, Any]:
    def value(scanned: Any) -> Any:
        carry, y = scanned
        return (carry**2).sum() + (jnp.sin(y)).sum()

    return (
        lambda init, x: value(tridiag.scan(decay, init, x, axis=axis)),
        lambda init, x: value(moved(decay, init, x, axis)),
    )


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gradients(axis: int) -> None:
    found, right = losses(axis)
    for of in (found, jax.jit(found)):
        assert_same(jax.grad(of, (0, 1))(start(axis), X), jax.grad(right, (0, 1))(start(axis), X))
    tangents = start(axis), X + 1
    assert_same(jax.jvp(found, (start(axis), X), tangents), jax.jvp(right, (start(axis), X), tangents))


def test_second_derivatives() -> None:
    found, right = (lambda x, f=f: f(start(1)[:1, :2], x) for f in losses(1))
    x = X[:1, :3, :2]
    assert_same(jax.hessian(found)(x), jax.hessian(right)(x))
    assert_same(jax.jacrev(jax.grad(found))(x), jax.jacrev(jax.grad(right))(x))


@pytest.mark.parametrize("mapped", [0, 1, 2])
def test_vmap(mapped: int) -> None:
    """Along any axis of what is scanned, of its gradient, and with a carry for all."""
    init = jnp.full(4, 0.25)
    stack = jnp.stack([X[0], X[1], X[2]], mapped)
    found, right = losses(1)
    for f, g in ((found, right), (jax.grad(found, 1), jax.grad(right, 1))):
        assert_same(jax.vmap(f, (None, mapped))(init, stack), jnp.stack([g(init, x) for x in (X[0], X[1], X[2])]))


def read_only(carry: Any, row: Any) -> tuple[Any, Any]:
    return carry, carry + row


def swapped(carry: Any, row: Any) -> tuple[Any, Any]:
    return (carry[1], carry[0], carry[2] + row), (carry[0], row)


MAPPED = {
    "plain": lambda scan, x: scan(read_only, jnp.ones(5), x),
    "a weak carry": lambda scan, x: scan(read_only, 1.0, x),
    "only the length": lambda scan, x: scan(lambda c, _: (c, c * x[0]), jnp.ones(5), None, length=3),
    "closed over": lambda scan, x: scan(lambda c, row: (c, (row * x[0], c)), jnp.ones(5), X[0]),
    "a tree": lambda scan, x: scan(swapped, (jnp.ones(5), jnp.zeros(5), jnp.zeros(5)), x),
    "reverse": lambda scan, x: scan(read_only, jnp.ones(5), x, reverse=True),
    "unrolled": lambda scan, x: scan(read_only, jnp.ones(5), x, unroll=2),
    "no steps": lambda scan, x: scan(read_only, jnp.ones(5), x[:0]),
    "an object": lambda scan, x: scan(functools.partial(read_only), jnp.ones(5), x),
    "tangents": lambda scan, x: jax.jvp(lambda c: scan(read_only, c, x), (jnp.ones(5),), (jnp.ones(5),)),
    "tangents of rows": lambda scan, x: jax.jvp(lambda x: scan(read_only, jnp.ones(5), x), (x,), (x,)),
    "cotangents": lambda scan, x: jax.vjp(lambda c: scan(read_only, c, x)[0], jnp.ones(5))[1](jnp.ones(5)),
    "linearized": lambda scan, x: jax.linearize(lambda c: scan(read_only, c, x), jnp.ones(5))[0],
    "compiled": lambda scan, x: jax.jit(lambda x: scan(read_only, jnp.ones(5), x))(x),
    "nested": lambda scan, x: scan(lambda c, row: (scan(read_only, c, x)[0], row), jnp.ones(5), X[0]),
}


def shared(function: Any) -> list[tuple[Any, Any]]:
    """Of every result whether `vmap` finds that all share it, and its type."""
    results = jax.eval_shape(jax.vmap(function), X)
    found = []
    for k, result in enumerate(jax.tree.leaves(results)):
        try:
            jax.eval_shape(jax.vmap(lambda x, k=k: jax.tree.leaves(function(x))[k], out_axes=None), X)
        except ValueError:
            found.append((False, result))
        else:
            found.append((True, result))
    return [(alike, (result.shape, result.dtype, result.weak_type)) for alike, result in found]


@pytest.mark.parametrize("case", MAPPED)
def test_what_does_not_depend_on_the_batch_is_shared(case: str) -> None:
    """As `jax.lax.scan` has it: ``out_axes=None`` raises for what is batched."""
    function = MAPPED[case]
    found = shared(lambda x: function(tridiag.scan, x))
    assert found == shared(lambda x: function(lax.scan, x)) and any(alike for alike, _ in found)


def loops(jaxpr: Any) -> list[Any]:
    """The equations of a program that are scans, in order."""
    found = []
    for equation in jaxpr.eqns:
        found += [equation] if equation.primitive.name == "scan" else []
        for inner in (getattr(value, "jaxpr", None) for value in equation.params.values()):
            found += loops(inner) if hasattr(inner, "eqns") else []
    return found


def test_no_loop_of_a_gradient_carries_whole_arrays() -> None:
    """It would take time that is quadratic in n."""
    found, _ = losses(1)
    x = jnp.ones((3, 1000))
    program = jax.make_jaxpr(jax.grad(found, (0, 1)))(jnp.ones(3), x)
    parts = [(loop.invars, loop.params["num_consts"], loop.params["num_carry"]) for loop in loops(program.jaxpr)]
    carried = [variable.aval.size for inputs, first, count in parts for variable in inputs[first : first + count]]
    assert 0 < max(carried) <= 3


def test_a_gradient_stacks_no_rows_that_it_has() -> None:
    """Of a product with the row, the way back needs the carry, which is stacked, and the row, which was moved."""

    def last(x: Any) -> Any:
        return tridiag.scan(lambda carry, row: (carry * row, None), jnp.ones(3), x, axis=1)[0].sum()

    forward, back = loops(jax.make_jaxpr(jax.grad(last))(jnp.ones((3, 7))).jaxpr)
    assert [variable.aval.shape for variable in forward.outvars] == [(3,), (7, 3)]
    assert [variable.aval.shape for variable in back.outvars] == [(3,), (7, 3)]


# -------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("kind", "text", "xs", "options"),
    [
        (ValueError, r"differ: xs\[0\]: 3, xs\[1\]: 4", (X, X), {"axis": (0, 1)}),
        (ValueError, "differ: length: 7, xs: 3", X, {"length": 7}),
        (ValueError, r"axis 3 is out of range: xs\['a'\] has shape \(3, 4, 5\)", {"a": X}, {"axis": 3}),
        (ValueError, r"axis 0 is out of range: xs has shape \(\)", 1.0, {}),
        (ValueError, "out_axis 4 is out of range: a stacked result has shape", X, {"out_axis": 4}),
        (ValueError, "does not fit xs", X, {"axis": (0, 1)}),
        (ValueError, "does not fit the results of f", X, {"out_axis": (0, 1)}),
        (ValueError, "xs holds no array, and length is None", None, {}),
        (ValueError, "length is -1", None, {"length": -1}),
        (TypeError, "axis is 1.5; wanted one integer", X, {"axis": 1.5}),
        (TypeError, "out_axis is 'last'", X, {"out_axis": "last"}),
        (TypeError, "length is 3.0", X, {"length": 3.0}),
        (TypeError, "reverse is 'yes'", X, {"reverse": "yes"}),
        (TypeError, "xs is a masked array", np.ma.masked_array(np.ones(3)), {}),
    ],
)
def test_bad_input(kind: type[Exception], text: str, xs: Any, options: Any) -> None:
    def f(carry: Any, row: Any) -> tuple[Any, Any]:
        return carry, jax.tree.leaves(row)[0] if row is not None else None

    with pytest.raises(kind, match=text):
        tridiag.scan(f, 0.0, xs, **options)


@pytest.mark.parametrize(
    ("f", "init"),
    [
        (lambda state, row: ((state[0], state[1] + jnp.ones(2)), row), (1.0, 2.0)),
        (lambda state, row: ({**state, "b": state["b"] + 1.5}, row), {"a": 1.0, "b": jnp.ones(2, int)}),
        (lambda state, row: ((state, state), row), 1.0),
        (functools.partial(lambda w, state, row: ((state, state), row), 1.0), 1.0),
        (lambda state, row: state, 1.0),
        (lambda state: state, 1.0),
    ],
)
def test_functions_that_do_not_fit_get_the_messages_of_jax(f: Any, init: Any) -> None:
    """With the caller's name for the carry, and the path to the entry that differs."""
    with pytest.raises(TypeError) as right:
        lax.scan(f, init, X)
    with pytest.raises(TypeError) as found:
        tridiag.scan(f, init, X)
    assert str(found.value) == str(right.value)


def test_f_is_no_function() -> None:
    with pytest.raises(TypeError, match="f is 3; wanted a function"):
        tridiag.scan(3, 0.0, X)


def test_arrays_of_another_library() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"xs\['a'\] is a torch array, and scan runs in JAX"):
        tridiag.scan(decay, 0.0, {"a": torch.ones(3)})
    with pytest.raises(TypeError, match="init is a torch array"):
        tridiag.scan(decay, torch.ones(3), X)


def test_without_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["tridiag.backends"], "installed", lambda library: False)
    with pytest.raises(ImportError, match="needs jax, which is not installed"):
        tridiag.scan(decay, 0.0, X)
