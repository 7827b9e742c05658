"""That a verb which CPython enters in compiled code is to its users the function that is written in the module."""

import copy
import inspect
import pickle
import pydoc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import in_threads

import tridiag
from tridiag.calls import fast_path

N = 6
VERBS: dict[str, Callable[..., Any]] = {
    "solve": lambda verb, x, **options: verb(1.0, 4.0, 1.0, x, **options),
    "matmul": lambda verb, x, **options: verb(1.0, 4.0, 1.0, x, **options),
    "slogdet": lambda verb, x, **options: verb(1.0, x, 1.0, **options),
    "solve_block": lambda verb, x, **options: verb(*(3 * [4 + x[..., None, None]]), x[..., None], **options),
    "linear_recurrence": lambda verb, x, **options: verb(0.5, x, **options),
    "log_linear_recurrence": lambda verb, x, **options: verb(-0.5, x, **options),
    "logcumsumexp": lambda verb, x, **options: verb(x, **options),
    "matrix_recurrence": lambda verb, x, **options: verb(np.eye(2)[None], x[..., None].repeat(2, -1), **options),
    "selective_scan": lambda verb, x, **options: verb(0.5, x, 1.0, np.ones(2), **options),
}  # fmt: skip


def right_side() -> np.ndarray:
    return np.linspace(1.0, 2.0, 3 * N).reshape(3, N)


@pytest.fixture(params=VERBS)
def name(request: pytest.FixtureRequest) -> str:
    """A verb whose table has calls, so that it is entered in compiled code."""
    for _ in range(4):
        VERBS[request.param](getattr(tridiag, request.param), right_side())
    return str(request.param)


def frames_of(call: Callable[[], Any]) -> list[str]:
    """The functions of the package that Python ran."""
    seen: list[str] = []

    def listen(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and "tridiag" in frame.f_globals.get("__name__", ""):
            seen.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(listen)
    try:
        call()
    finally:
        sys.setprofile(before)
    return seen


def test_a_call_that_was_met_runs_no_python(name: str) -> None:
    verb, x = getattr(tridiag, name), right_side()
    call = lambda: VERBS[name](verb, x)  # noqa: E731
    for _ in range(4):
        call()
    assert frames_of(call) == []


def test_it_is_the_function_to_whoever_looks(name: str) -> None:
    verb = getattr(tridiag, name)
    module = sys.modules[verb.__module__]
    assert (verb.__name__, verb.__qualname__) == (name, name)
    assert getattr(module, name) is verb
    assert pickle.loads(pickle.dumps(verb)) is copy.deepcopy(verb) is copy.copy(verb) is verb
    assert inspect.isroutine(verb)
    assert callable(verb)
    assert weakref.ref(verb)() is verb
    assert list(inspect.signature(verb).parameters)[: verb.__code__.co_argcount] == list(
        verb.__code__.co_varnames[: verb.__code__.co_argcount]
    )
    assert "backend" in verb.__kwdefaults__ or name == "matmul"
    assert verb.__annotations__["return"]
    assert inspect.getsource(verb).count(f"def {name}(") == 1
    text = pydoc.render_doc(verb, renderer=pydoc.plaintext)
    assert f"{name}(" in text
    assert "Raises" in text
    assert name in repr(verb)
    assert verb == verb
    assert {verb: 1}[verb] == 1
    with pytest.raises(AttributeError, match="no_such"):
        verb.no_such  # noqa: B018


def test_a_class_may_have_it_as_an_attribute_but_not_as_a_method() -> None:
    """What it is called with is what was written."""

    class Model:
        scan = staticmethod(tridiag.linear_recurrence)

    np.testing.assert_array_equal(Model().scan(1.0, np.ones(3)), [1.0, 2.0, 3.0])


BAD: dict[str, tuple[Callable[..., Any], str]] = {
    "a name that it has not": (lambda f, x: f(0.5, x, outt=x), "unexpected keyword argument 'outt'"),
    "twice": (lambda f, x: f(0.5, x, x=x), "multiple values for argument 'x'"),
    "by position": (lambda f, x: f(0.5, x, None, -1), "takes from 2 to 3 positional arguments but 4 were given"),
    "too few": (lambda f, x: f(0.5), "missing 1 required positional argument: 'x'"),
    "none": (lambda f, x: f(), "missing 2 required positional arguments: 'a' and 'x'"),
    "one by name": (lambda f, x: f(x=x), "missing 1 required positional argument: 'a'"),
    "an axis that is none": (lambda f, x: f(0.5, x, axis=1.5), "axis"),
    "no number": (lambda f, x: f("0.5", x), "a"),
}


@pytest.mark.parametrize("way", BAD)
def test_what_is_wrong_is_told_as_before(way: str) -> None:
    for _ in range(4):
        tridiag.linear_recurrence(0.5, right_side())
    call, message = BAD[way]
    with pytest.raises(TypeError, match=message):
        call(tridiag.linear_recurrence, right_side())


WAYS: dict[str, Callable[..., Any]] = {
    "by position": lambda f, a, x, init, y: f(a, x, init, out=y, axis=0, reverse=True),
    "by name": lambda f, a, x, init, y: f(init=init, x=x, a=a, reverse=True, axis=0, out=y),
    "in another order": lambda f, a, x, init, y: f(a, out=y, reverse=True, init=init, x=x, axis=0),
    "names made at run time": lambda f, a, x, init, y: f(
        a, x, **{"".join(k): value for k, value in (("in it", init), ("o ut", y), ("ax is", 0), ("rev erse", True))
                 for k in [k.split()]}
    ),
    "a dictionary": lambda f, a, x, init, y: f(*(a, x, init), **{"out": y, "axis": 0, "reverse": True}),
    "all defaults said": lambda f, a, x, init, y: f(
        a, x, init, axis=0, reverse=True, return_final=False, backend="auto", out=y, axis_name=None
    ),
    "by map": lambda f, a, x, init, y: next(map(lambda *z: f(*z, out=y, axis=0, reverse=True), [a], [x], [init])),
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_arguments_are_found_however_they_are_given(way: str) -> None:
    rng = np.random.default_rng(3)
    a, x, init = rng.uniform(-1, 1, (5, 4)), rng.uniform(-1, 1, (5, 4)), rng.uniform(-1, 1, 4)
    wanted, before = np.empty((5, 4)), init
    for t in range(4, -1, -1):
        before = wanted[t] = a[t] * before + x[t]
    for _ in range(5):
        y = np.zeros((5, 4))
        assert WAYS[way](tridiag.linear_recurrence, a, x, init, y) is y
        np.testing.assert_allclose(y, wanted, rtol=1e-13)


def test_an_option_that_the_table_does_not_get_is_no_call_of_it() -> None:
    """A perturbed singular system is not the NaN of one that was met."""
    zero, d = np.zeros((2, 4)), np.ones((2, 4))
    for _ in range(4):
        assert np.isnan(tridiag.solve(zero, zero, zero, d, check=False)).all()
    assert np.isfinite(tridiag.solve(zero, zero, zero, d, singular="perturb")).all()
    assert np.isnan(tridiag.solve(zero, zero, zero, d, check=False, singular="nan")).all()


def test_arguments_are_kept_by_nobody(name: str) -> None:
    verb = getattr(tridiag, name)
    x = right_side()
    for _ in range(3):
        VERBS[name](verb, x)
    alive = weakref.ref(x)
    del x
    assert alive() is None


def test_many_threads_at_once() -> None:
    """Each gets the result of its own arguments."""
    wrong: list[Any] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for n in rng.integers(2, 40, 300):
            x = rng.uniform(0, 1, (int(n), 2))
            y = tridiag.linear_recurrence(1.0, x, axis=0)
            if not np.allclose(y, np.cumsum(x, axis=0)):
                wrong.append(n)

    in_threads(work, 8)
    assert wrong == []


def test_calls_by_turns() -> None:
    """What is remembered of the latest call is of that one alone: other layouts, names, numbers, tables forgotten."""
    rng = np.random.default_rng(5)
    a, x = rng.uniform(-1, 1, (2, 6, 4))
    f = tridiag.linear_recurrence
    ways: list[tuple[Callable[[Any], Any], Any]] = [
        (lambda y: f(a, x, out=y), (a, x, 0)),
        (lambda y: f(a, x, axis=0, out=y), (a, x, 1)),
        (lambda y: f(a, x, out=y, axis=0), (a, x, 1)),
        (lambda y: f(a[:, ::-1], x, out=y), (a[:, ::-1], x, 0)),
        (lambda y: f(0.5, x, out=y), (np.full_like(x, 0.5), x, 0)),
        (lambda y: f(a, x, reverse=True, out=y)[:, ::-1], (a[:, ::-1], x[:, ::-1], 0)),
        (lambda y: f(a=a, x=x, out=y), (a, x, 0)),
    ]

    def wanted(a: Any, x: Any, by_columns: int) -> Any:
        a, x = (a.T, x.T) if by_columns else (a, x)
        y, before = np.empty_like(x), np.zeros(len(x))
        for t in range(x.shape[1]):
            before = y[:, t] = a[:, t] * before + x[:, t]
        return y.T if by_columns else y

    for turn in rng.permutation(12 * len(ways)):
        call, given = ways[turn % len(ways)]
        np.testing.assert_allclose(call(np.empty_like(x)), wanted(*given), rtol=1e-13)
        if turn % 9 == 0:
            fast_path.forget()
        if turn % 3 == 0:  # an output that overlaps what is read is refused, whoever remembers the call
            overlapping = np.concatenate([x, x])
            with pytest.raises(ValueError, match="shares memory"):
                f(a, overlapping[:6], out=overlapping[1:7])


def test_names_that_are_made_and_freed() -> None:
    """The names of the latest call are known by their address, which nothing else has meanwhile."""
    x, y = np.ones((2, 3)), np.empty((2, 3))
    for k in range(200):
        names: dict[str, Any] = {"out": y} if k % 2 else {"axis": 0}
        found = tridiag.linear_recurrence(1.0, x, **names)
        assert (found is y) == bool(k % 2)
        assert found[-1, -1] == (3.0 if k % 2 else 2.0)
