"""Verbs of arrays that a JAX trace does not know, as those that a function closes over, are part of its program."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import dominant

import tridiag

jax = pytest.importorskip("jax")
jnp = jax.numpy

SYSTEM = [jnp.asarray(x) for x in dominant((5, 17), "float64")]
a, b, c, d = SYSTEM
SINGLE = d.astype("float32")
ROWS = [x.T for x in SYSTEM]
MATRIX = tridiag.factor(a, b, c)
RING = tridiag.factor(a, b, c, periodic=True)

CALLS: dict[str, Callable[..., Any]] = {
    "solve": lambda **options: tridiag.solve(a, b, c, d, **options),
    "axis": lambda **options: tridiag.solve(*ROWS, axis=0, **options),
    "periodic": lambda **options: tridiag.solve(a, b, c, d, periodic=True, **options),
    "dtypes": lambda **options: tridiag.solve(a, b, c, SINGLE, **options),
    "where": lambda **options: tridiag.solve(a, b, c, d, where=np.arange(17) < 9, **options),
    "backend": lambda **options: tridiag.solve(a, b, c, d, backend="jax_lax", **options),
    "kept factors": lambda **options: MATRIX.solve(d, **options),
    "transposed factors": lambda **options: MATRIX.solve(d, transpose=True, **options),
    "other right sides": lambda **options: MATRIX.solve(SINGLE, **options),
    "complex right sides": lambda **options: MATRIX.solve(d * 1j, **options),
    "no factors": lambda **options: RING.solve(d, **options),
    "new factors": lambda **options: tridiag.factor(a, b, c).solve(d, **options),
    "factors of NumPy arrays too": lambda **options: tridiag.factor(-1.0, np.asarray(b), c).solve(d, **options),
    "factors of a named backend": lambda **options: tridiag.factor(a, b, c, backend="jax_scan").solve(d, **options),
}

TRACES: dict[str, Callable[..., Any]] = {
    "jit": lambda call: jax.jit(call)(),
    "cond": lambda call: jax.lax.cond(True, call, lambda: jnp.zeros_like(call())),
    "scan": lambda call: jax.lax.scan(lambda total, _: (total + call(), None), 0 * call(), None, length=1)[0],
    "jit of grad": lambda call: jax.jit(jax.jacfwd(lambda factor: factor * call()))(1.0),
}

IN_EVERY_TRACE = "solve", "kept factors", "new factors"


def once(name: str, trace: str) -> Any:
    """All calls in one trace, and some in all, run at once: what a trace is of makes no difference to a call."""
    waits = trace != "jit" and name not in IN_EVERY_TRACE
    return pytest.param(name, trace, marks=[pytest.mark.slow] if waits else [])


@pytest.mark.parametrize(("name", "trace"), [once(name, trace) for name in CALLS for trace in TRACES])
def test_solutions(name: str, trace: str) -> None:
    """Values cannot be read in a trace, which the arguments do not tell."""
    np.testing.assert_allclose(TRACES[trace](CALLS[name]), CALLS[name](), rtol=1e-6)


@pytest.mark.parametrize("name", CALLS)
def test_shapes_alone(name: str) -> None:
    assert jax.eval_shape(CALLS[name]).shape == CALLS[name]().shape


@pytest.mark.parametrize("name", CALLS)
def test_a_check_that_was_asked_for_is_refused(name: str) -> None:
    """It would be left out in silence."""
    with pytest.raises(ValueError, match=r"check=True reads values.*factor\(\.\.\.\)\.status"):
        jax.jit(lambda: CALLS[name](check=True))()
    np.testing.assert_array_equal(CALLS[name](check=True), CALLS[name]())


@pytest.mark.parametrize("verb", ["solve", "factor"])
def test_singular_systems_are_nan(verb: str) -> None:
    """They raise before the trace and after it."""
    zero = b * (jnp.arange(5) != 3)[:, None]

    def call() -> Any:
        return tridiag.solve(0.0, zero, 0.0, d) if verb == "solve" else tridiag.factor(0.0, zero, 0.0).solve(d)

    for _ in range(2):
        with pytest.raises(tridiag.SingularSystemError):
            call()
        assert np.isnan(jax.jit(call)()).any(axis=-1).tolist() == [False, False, False, True, False]
