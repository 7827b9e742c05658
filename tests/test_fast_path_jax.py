"""That calls with concrete JAX arrays are one jitted call each, as good as the long way, and which go that way."""

from typing import Any

import numpy as np
import pytest
from helpers import dominant

import tridiag
from tridiag.calls import fast_path

jax = pytest.importorskip("jax")
jnp = jax.numpy

N = 17


@pytest.fixture(autouse=True)
def anew() -> None:
    fast_path.forget()


def arrays(shape: Any, dtype: str = "float64") -> list[Any]:
    return [jnp.asarray(x) for x in dominant(shape, dtype)]


def singular() -> list[Any]:
    return [x * (jnp.arange(5) != 3)[:, None] for x in arrays((5, N))]


# what is refused, or takes the long way, before any program is compiled
REFUSED: dict[str, Any] = {
    "out": lambda: (arrays((5, N)), {"out": np.zeros((5, N))}),
    "a boolean": lambda: ([True, *arrays((5, N))[1:]], {}),
    "booleans": lambda: ([*arrays((5, N))[:3], arrays((5, N))[3] > 0], {}),
    "a mask that is none": lambda: (arrays((5, N)), {"where": jnp.ones(N)}),
    "a mask that does not fit": lambda: (arrays((5, N)), {"where": jnp.ones(N + 1, bool)}),
    "shapes that do not fit": lambda: ([*arrays((5, N))[:3], arrays((N + 1,))[3]], {}),
    "no boolean": lambda: (arrays((5, N)), {"check": 1}),
    "no hash": lambda: (arrays((5, N)), {"pivoting": []}),
    "no such axis": lambda: (arrays((5, N)), {"axis": 2}),
    "no integer as axis": lambda: (arrays((5, N)), {"axis": 1.0}),
    "no such backend": lambda: (arrays((5, N)), {"backend": "nobody"}),
    "a backend of another library": lambda: (arrays((5, N)), {"backend": "scipy"}),
    "an array that was deleted": lambda: ([*arrays((5, N))[:3], deleted()], {}),
}


def deleted() -> Any:
    x = jnp.ones((5, N))
    x.delete()
    return x


def raised(way: str) -> Any:
    given, options = REFUSED[way]()
    with pytest.raises((ValueError, TypeError, RuntimeError)) as caught:
        tridiag.solve(*given, **options)
    return caught.type, str(caught.value), caught.value.__context__


@pytest.mark.parametrize("way", REFUSED)
def test_refusals_are_those_of_the_long_way(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = raised(way)
    monkeypatch.setattr(fast_path, "of_tensors", lambda verb, x: None)
    assert found == raised(way)


def told(given: list[Any]) -> Any:
    """What comes of a solve: the bits, or what was raised."""
    try:
        x = tridiag.solve(*given)
    except tridiag.SingularSystemError as error:
        return str(error), error.indices.tolist(), type(error.x), np.asarray(error.x).tobytes()
    return type(x), x.dtype, x.weak_type, x.sharding, x.committed, np.asarray(x).tobytes()


def test_a_solve_is_that_of_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits, and the same error where a system is singular, from one program."""
    found = [told(arrays((5, N))), told(singular())]
    assert tridiag.solve(*singular(), check=False).shape == (5, N)
    with monkeypatch.context() as patch:
        patch.setattr("tridiag.systems.prepare", None)
        assert told(arrays((5, N))) == found[0]
    monkeypatch.setattr(fast_path, "of_tensors", lambda verb, x: None)
    assert found == [told(arrays((5, N))), told(singular())]


FACTORED: dict[str, Any] = {
    "plain": lambda: (arrays((5, N))[:3], {}),
    "a mask, columns": lambda: (arrays((N, 5))[:3], {"axis": 0, "where": jnp.arange(N)[:, None] % 5 != 2}),
    "one, along columns": lambda: ([1.0, arrays((N,))[1], 1.0], {"axis": 1}),
    "a named backend": lambda: (arrays((5, N))[:3], {"backend": "jax_scan", "pivoting": True}),
    "singular": lambda: (singular()[:3], {"pivoting": False}),
    "no such backend": lambda: (arrays((5, N))[:3], {"backend": "nobody"}),
    "no hash": lambda: (arrays((5, N))[:3], {"pivoting": []}),
    "no such axis": lambda: (arrays((5, N))[:3], {"axis": 2}),
    "shapes that do not fit": lambda: ([*arrays((5, N))[:2], arrays((N + 1,))[2]], {}),
    "halves": lambda: ([x.astype("float16") for x in arrays((5, N))[:3]], {}),
    "no rows": lambda: ([jnp.ones((3, 0))] * 3, {}),
    "an array of numpy": lambda: ([np.ones(N), *arrays((5, N))[1:3]], {}),
}


def eliminated(way: str) -> Any:
    """What comes of `factor`, twice: the tree with the bits of its leaves, or what was raised."""
    for _ in range(2):
        given, options = FACTORED[way]()
        try:
            matrix = tridiag.factor(*given, **options)
        except (ValueError, TypeError, tridiag.BackendError) as error:
            return type(error), str(error)
    leaves, tree = jax.tree.flatten(matrix)
    return repr(matrix), str(tree), [(x.dtype, x.shape, np.asarray(x).tobytes()) for x in map(jnp.asarray, leaves)]


@pytest.mark.parametrize("way", FACTORED)
def test_factor_is_that_of_the_long_way(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = eliminated(way)
    monkeypatch.setattr(fast_path, "of_tensors", lambda verb, x: None)
    assert found == eliminated(way)


@pytest.mark.parametrize("axis", [0, -1])
def test_factor_and_its_solve_are_one_program_each(axis: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once an axis that is counted from the front cost a solve five times as much."""
    a, b, c, d = arrays((5, N))
    wanted = tridiag.solve(a, b, c, d, axis=axis)
    monkeypatch.setattr("tridiag.systems.prepare", None)
    monkeypatch.setattr("tridiag.factorization.prepare", None)
    x = tridiag.factor(a, b, c, axis=axis).solve(d)  # from factors, which round otherwise
    assert abs(x - wanted).max() <= 8 * jnp.finfo(x.dtype).eps * abs(wanted).max()


def test_matmul_is_one_program(monkeypatch: pytest.MonkeyPatch) -> None:
    a, _, c, x = arrays((5, N))
    monkeypatch.setattr("tridiag.systems.prepare", None)
    found = tridiag.matmul(a, 4, c, x)
    wanted = 4 * np.asarray(x)
    wanted[:, 1:] += np.asarray(a * jnp.roll(x, 1, -1))[:, 1:]
    wanted[:, :-1] += np.asarray(c * jnp.roll(x, -1, -1))[:, :-1]
    np.testing.assert_allclose(found, wanted, rtol=1e-14, atol=1e-14)


OTHERS: dict[str, Any] = {
    "an array of numpy": lambda a, b, c, d: (np.asarray(a), b, c, d),
    "a number of numpy": lambda a, b, c, d: (np.float64(1), b, c, d),
    "a boolean": lambda a, b, c, d: (True, b, c, d),
    "half precision": lambda a, b, c, d: [x.astype("float16") for x in (a, b, c, d)],
    "no systems": lambda a, b, c, d: (a[:0], b[:0], c[:0], d[:0]),
    "a key": lambda a, b, c, d: (jax.random.key(0), b, c, d),
}


def short(given: Any) -> Any:
    from tridiag.calls.fast_path import jax_verbs

    return jax_verbs.solve(*given, None, None, -1, "auto", "auto", False, False, None, False)


@pytest.mark.parametrize("way", OTHERS)
def test_what_goes_the_long_way(way: str) -> None:
    assert short(OTHERS[way](*arrays((5, N)))) is None


def test_tracers_go_the_long_way() -> None:
    """Of programs, derivatives and maps: as the right side, and beside one that is concrete."""
    a, b, c, d = arrays((5, N))
    seen = []

    def traced(x: Any) -> Any:
        seen.append(fast_path.of_tensors("solve", x))
        assert short((x, b, c, d)) is None
        return x.sum()

    jax.make_jaxpr(traced)(a)
    jax.make_jaxpr(jax.grad(traced))(a)
    jax.make_jaxpr(jax.vmap(traced))(a[None])
    assert seen == [None] * len(seen)


RECURRENCES: dict[str, Any] = {
    "no coefficient": lambda a, x: ("linear_recurrence", (None, x, x), {}),
    "no order": lambda a, x: ("linear_recurrence", ((), x), {}),
    "a list": lambda a, x: ("linear_recurrence", ([a, a], x), {}),
    "second order, from one": lambda a, x: ("linear_recurrence", ((a, a), x, 1.0), {}),
    "from a row that does not fit": lambda a, x: ("linear_recurrence", (a, x, jnp.arange(4.0)), {}),
    "out": lambda a, x: ("linear_recurrence", (a, x), {"out": x}),
    "no boolean": lambda a, x: ("linear_recurrence", (a, x), {"reverse": 1}),
    "no hash": lambda a, x: ("linear_recurrence", (a, x), {"backend": []}),
    "logarithms, none": lambda a, x: ("log_linear_recurrence", (None, x), {}),
    "complex logarithms": lambda a, x: ("log_linear_recurrence", (a, x.astype(complex)), {}),
    "matrices that do not fit": lambda a, x: ("matrix_recurrence", (a, x), {}),
}


@pytest.mark.parametrize("way", RECURRENCES)
def test_refusals_of_recurrences_are_those_of_the_long_way(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verb, arguments, options = RECURRENCES[way](*arrays((5, N))[2:])
    outcomes = []
    for patched in (False, True):
        if patched:
            monkeypatch.setattr(fast_path, "of_tensors", lambda verb, x: None)
        with pytest.raises((ValueError, TypeError)) as caught:
            getattr(tridiag, verb)(*arguments, **options)
        outcomes.append((caught.type, str(caught.value), caught.value.__context__))
    assert outcomes[0] == outcomes[1]


def test_a_recurrence_is_that_of_the_long_way(monkeypatch: pytest.MonkeyPatch) -> None:
    a, _, _, x = arrays((5, N))
    found = tridiag.linear_recurrence(a, x)
    with monkeypatch.context() as patch:
        patch.setattr("tridiag.recurrences.PREPARERS", None)
        assert np.asarray(tridiag.linear_recurrence(a, x)).tobytes() == np.asarray(found).tobytes()
    monkeypatch.setattr(fast_path, "of_tensors", lambda verb, x: None)
    assert np.asarray(tridiag.linear_recurrence(a, x)).tobytes() == np.asarray(found).tobytes()
