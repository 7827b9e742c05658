"""That calls with plain tensors take a short way, which is as good as the long one, and which tensors are not plain."""

import contextlib
from typing import Any

import numpy as np
import pytest
from helpers import dominant, installed

import tridiag
from tridiag.calls import fast_path

torch = pytest.importorskip("torch")
forward_ad = torch.autograd.forward_ad
pytestmark = pytest.mark.skipif(not installed("numba"), reason="needs numba, which is not installed")

N = 17


class Special(torch.Tensor):
    """A kind of tensor that is no plain one."""


@pytest.fixture(autouse=True)
def anew() -> None:
    fast_path.forget()


def tensors(shape: Any, dtype: str = "float64") -> list[Any]:
    return [torch.from_numpy(x) for x in dominant(shape, dtype)]


def integers(shape: Any) -> Any:
    return torch.arange(int(np.prod(shape))).reshape(shape)


def freed() -> Any:
    x = torch.ones(N, dtype=torch.float64)
    x.untyped_storage().resize_(0)
    return x


def singular(shape: Any) -> list[Any]:
    return [x * (torch.arange(5) != 3)[:, None] for x in tensors(shape)]


ZERO = torch.zeros(N, dtype=torch.float64)
ONE = torch.ones(N, dtype=torch.float64)
# arguments and options; each is made anew for every call
SOLVES: dict[str, Any] = {
    "plain": lambda: (tensors((5, N)), {}),
    "single precision": lambda: (tensors((5, N), "float32"), {}),
    "complex": lambda: (tensors((5, N), "complex128"), {}),
    "a complex right side": lambda: ([*tensors((5, N))[:3], tensors((5, N), "complex128")[3]], {}),
    "a shared matrix": lambda: ([*tensors((N,))[:3], tensors((5, N))[3]], {}),
    "a shared right side": lambda: ([*tensors((5, N))[:3], tensors((N,))[3]], {}),
    "columns": lambda: (tensors((N, 5)), {"axis": 0}),
    "a matrix along columns": lambda: ([*tensors((N,))[:3], tensors((N, 4))[3]], {"axis": 0}),
    "every other entry": lambda: ([x[::2, ::2] for x in tensors((9, N))], {}),
    "turned": lambda: ([x.mT for x in tensors((N, 5))], {}),
    "expanded": lambda: ([x.expand(5, N) for x in tensors((N,))], {}),
    "options": lambda: (tensors((5, N)), {"pivoting": True, "transpose": True, "check": True}),
    "corners": lambda: (tensors((5, N)), {"periodic": True}),
    "a named backend": lambda: (tensors((5, N)), {"backend": "numba"}),
    "another backend": lambda: (tensors((5, N)), {"backend": "torch"}),
    "in place": lambda: (tensors((5, N)), {"overwrite_d": True}),
    "in place of a shared right side": lambda: ([*tensors((5, N))[:3], tensors((N,))[3]], {"overwrite_d": True}),
    "in place of the diagonal": lambda: ([ZERO + 1, x := ZERO + 4, ZERO + 1, x], {"overwrite_d": True}),
    "a singular system": lambda: (singular((5, N)), {}),
    "a singular system in place": lambda: (singular((5, N)), {"overwrite_d": True}),
    "a singular system, unchecked": lambda: (singular((5, N)), {"check": False}),
    "a singular matrix of integers": lambda: ([ZERO.int(), 0, ZERO, tensors((5, N))[3]], {}),
    "a mask": lambda: (tensors((5, N)), {"where": torch.arange(N) % 5 != 2}),
    "a mask of numpy": lambda: (tensors((5, N)), {"where": np.arange(N) % 5 != 2}),
    "a mask that is none": lambda: (tensors((5, N)), {"where": torch.ones(N)}),
    "a mask that does not fit": lambda: (tensors((5, N)), {"where": torch.ones(N + 1, dtype=torch.bool)}),
    "numbers": lambda: ([-1.0, 4, -1.0, tensors((5, N))[3]], {}),
    "numbers beside single precision": lambda: ([-1.0, 4, 1e300, tensors((N,), "float32")[3]], {}),
    "numbers of numpy": lambda: ([np.float64(-1), 4, np.float32(1), tensors((N,), "float32")[3]], {}),
    "a complex number": lambda: ([1j, 4.0, 1.0, tensors((N,), "float32")[3]], {}),
    "a boolean": lambda: ([True, 4.0, 1.0, ONE], {}),
    "an integer of 65 bits": lambda: ([2**64, 4.0, 1.0, ONE], {}),
    "a huge integer": lambda: ([10**400, 4.0, 1.0, ONE], {}),
    "integers": lambda: ([*tensors((5, N))[:3], integers((5, N))], {}),
    "integers in columns": lambda: ([*tensors((5, N))[:3], integers((N, 5)).mT], {}),
    "integers alone": lambda: ([1, integers(N) + 40, 1, integers(N)], {}),
    "two dtypes": lambda: ([ONE.float(), *tensors((5, N))[1:]], {}),
    "half precision": lambda: ([x.half() for x in tensors((5, N))], {}),
    "bfloat16": lambda: ([x.bfloat16() for x in tensors((5, N))], {}),
    "no systems": lambda: ([torch.ones((0, N))] * 4, {}),
    "no rows": lambda: ([torch.ones((3, 0))] * 4, {}),
    "shapes that do not fit": lambda: ([ONE, *tensors((N + 1,))[1:]], {}),
    "no boolean": lambda: (tensors((N,)), {"check": 1}),
    "no hash": lambda: (tensors((N,)), {"pivoting": []}),
    "no such axis": lambda: (tensors((N,)), {"axis": 1}),
    "no such backend": lambda: (tensors((N,)), {"backend": "nobody"}),
    "an array of numpy": lambda: ([np.ones(N), *tensors((N,))[1:]], {}),
    "conjugated": lambda: ([x.conj() for x in tensors((5, N), "complex128")], {}),
    "negated": lambda: (
        [x.conj().imag + 0 if k else x.conj().imag for k, x in enumerate(tensors((5, N), "complex128"))],
        {},
    ),
    "zeros without memory": lambda: ([torch._efficientzerotensor(N, dtype=torch.float64), *tensors((5, N))[1:]], {}),
    "memory that was freed": lambda: ([freed(), *tensors((5, N))[1:]], {}),
    "a subclass": lambda: ([x.as_subclass(Special) for x in tensors((5, N))], {}),
    "sparse": lambda: ([*tensors((5, N))[:3], tensors((5, N))[3].to_sparse()], {}),
    "on no device": lambda: ([x.to("meta") for x in tensors((5, N))], {}),
    "on two devices": lambda: ([*tensors((5, N))[:3], tensors((5, N))[3].to("meta")], {}),
    "parameters": lambda: ([torch.nn.Parameter(x, requires_grad=False) for x in tensors((5, N))], {}),
}
PLACES: dict[str, Any] = {
    "no out": lambda given: None,
    "a new tensor": lambda given: torch.zeros(5, N, dtype=torch.float64),
    "turned": lambda given: torch.zeros(N, 5, dtype=torch.float64).mT,
    "the right side": lambda given: given[-1],
    "the diagonal": lambda given: given[min(1, len(given) - 1)],
    "another dtype": lambda given: torch.zeros(5, N),
    "another shape": lambda given: torch.zeros(3, 5, N, dtype=torch.float64),
    "expanded": lambda given: torch.zeros(1, N, dtype=torch.float64).expand(5, N),
    "with a gradient": lambda given: torch.zeros(5, N, dtype=torch.float64, requires_grad=True),
    "no tensor": lambda given: np.zeros((5, N)),
}
X = torch.from_numpy(np.random.default_rng(2).normal(size=(5, N)))
ROW = torch.linspace(0.1, 0.9, N, dtype=torch.float64)
MATRICES = torch.from_numpy(np.random.default_rng(3).normal(size=(4, 2, 2)))
RECURRENCES: dict[str, Any] = {
    "one sequence": lambda: ("linear_recurrence", (ROW, X[0]), {}),
    "many": lambda: ("linear_recurrence", (X / 9, X), {}),
    "the first axis, in reverse": lambda: ("linear_recurrence", (ROW, X.mT), {"axis": 0, "reverse": True}),
    "a number": lambda: ("linear_recurrence", (0.5, X), {}),
    "from a number": lambda: ("linear_recurrence", (ROW, X, 2), {}),
    "from a row": lambda: ("linear_recurrence", (ROW, X, torch.arange(5)), {}),
    "from a row that does not fit": lambda: ("linear_recurrence", (ROW, X, torch.arange(4.0)), {}),
    "second order": lambda: ("linear_recurrence", ((ROW, 0.1), X), {}),
    "second order, from two": lambda: ("linear_recurrence", ((ROW, ROW[:1]), X, (1.0, torch.ones(5))), {}),
    "second order, from one": lambda: ("linear_recurrence", ((ROW, ROW), X, 1.0), {}),
    "no order": lambda: ("linear_recurrence", ((), X), {}),
    "no coefficient": lambda: ("linear_recurrence", (None, X, X), {}),
    "a list": lambda: ("linear_recurrence", ([ROW, ROW], X), {}),
    "single precision": lambda: ("linear_recurrence", (1e300, X.float()), {}),
    "two dtypes": lambda: ("linear_recurrence", (ROW.float(), X), {}),
    "integers": lambda: ("linear_recurrence", (1, torch.arange(9)), {}),
    "integers beside a number": lambda: ("linear_recurrence", (1.0, torch.arange(9)), {}),
    "half precision": lambda: ("linear_recurrence", (ROW.half(), X.half()), {}),
    "complex sequences": lambda: ("linear_recurrence", (ROW, X * 1j), {}),
    "no sequences": lambda: ("linear_recurrence", (ROW, X[:0]), {}),
    "no such axis": lambda: ("linear_recurrence", (ROW, X), {"axis": 2}),
    "no boolean": lambda: ("linear_recurrence", (ROW, X), {"reverse": 1}),
    "no hash": lambda: ("linear_recurrence", (ROW, X), {"backend": []}),
    "the last value": lambda: ("linear_recurrence", (ROW, X), {"return_final": True}),
    "another backend": lambda: ("linear_recurrence", (ROW, X), {"backend": "torch"}),
    "logarithms": lambda: ("log_linear_recurrence", (ROW, X, 0.0), {}),
    "logarithms, a tuple": lambda: ("log_linear_recurrence", ((ROW,), X), {}),
    "logarithms, none": lambda: ("log_linear_recurrence", (None, X), {}),
    "sums": lambda: ("logcumsumexp", (X,), {}),
    "sums along columns": lambda: ("logcumsumexp", (X,), {"axis": 0, "reverse": True}),
    "sums of complex numbers": lambda: ("logcumsumexp", (X * 1j,), {}),
    "turning vectors": lambda: ("matrix_recurrence", (MATRICES, X[:4, :2]), {}),
    "turning vectors, from one": lambda: ("matrix_recurrence", (MATRICES, X[:4, :2], ROW[:2]), {"reverse": True}),
    "turning many vectors": lambda: ("matrix_recurrence", (MATRICES[0], X[:, :16].reshape(5, 8, 2)), {}),
    "turning complex vectors": lambda: ("matrix_recurrence", (MATRICES, X[:4, :2] * 1j), {}),
    "matrices": lambda: ("matrix_recurrence", (torch.eye(2), torch.ones(4, 2)), {}),
    "scan": lambda: ("selective_scan", (ROW[:4], X, X[0, :, None], torch.ones(4)), {}),
    "scan, last": lambda: ("selective_scan", (0.5, X, X[..., None], 1.0, ROW[:1]), {"return_final": True}),
    "scan of numbers in half precision": lambda: ("selective_scan", (ROW.half(), X.half(), 1.0, 1.0), {}),
    "scan, states apart": lambda: ("selective_scan", (ROW[::2], X, 1.0, 1.0), {"reverse": True}),
    "scan of complex numbers": lambda: ("selective_scan", (ROW, X * 1j, 1.0, 1.0), {}),
    "scan, none": lambda: ("selective_scan", (None, X, 1.0, 1.0), {}),
    "memory that was freed": lambda: ("linear_recurrence", (freed(), X), {}),
}
OF_SOLVES = "solve", "factored", "factored again", "matmul", "slogdet"
CALLS = {f"{verb}, {way}": make for verb in OF_SOLVES for way, make in SOLVES.items()} | RECURRENCES


def factored(a: Any, b: Any, c: Any, d: Any, *, out: Any = None, **options: Any) -> Any:
    """The solution with factors, of the second solve with them."""
    of_solve = {name: options.pop(name) for name in ("transpose", "check", "overwrite_d") if name in options}
    matrix = tridiag.factor(a, b, c, **options)
    matrix.solve(d.clone() if isinstance(d, torch.Tensor) else d, **of_solve | {"check": False, "overwrite_d": False})
    return matrix.solve(d, out=out, **of_solve)


def factored_again(a: Any, b: Any, c: Any, d: Any, *, out: Any = None, **options: Any) -> Any:
    """The solution with factors that solved for such right sides, with such options, before."""
    of_solve = {name: options.pop(name) for name in ("transpose", "check") if name in options}
    overwrite_d = options.pop("overwrite_d", False)
    matrix = tridiag.factor(a, b, c, **options)
    with contextlib.suppress(ValueError, TypeError, RuntimeError, tridiag.BackendError):
        matrix.solve(d.clone() if isinstance(d, torch.Tensor) else d, **of_solve)
    return matrix.solve(d, out=out, overwrite_d=overwrite_d, **of_solve)


def product(a: Any, b: Any, c: Any, x: Any, *, out: Any = None, **options: Any) -> Any:
    """That of the matrix of a solve and its right side."""
    return tridiag.matmul(a, b, c, x, out=out, **kept(options, "axis", "periodic", "where", "transpose"))


def determinants(a: Any, b: Any, c: Any, d: Any, *, out: Any = None, **options: Any) -> Any:
    """Those of the matrices of a solve."""
    return tridiag.slogdet(a, b, c, **kept(options, "axis", "periodic", "where", "backend"))


def kept(options: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: option for name, option in options.items() if name in names}


OTHERWISE = {"factored": factored, "factored again": factored_again, "matmul": product, "slogdet": determinants}


def verb_of(name: str) -> Any:
    return OTHERWISE.get(name) or getattr(tridiag, name)


def made(way: str) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    verb = way.partition(",")[0]
    verb, *rest = (verb, *CALLS[way]()) if verb in OF_SOLVES else CALLS[way]()
    arguments, options = rest
    return verb, tuple(arguments), options


def told_of(x: Any, arguments: Any, out: Any) -> Any:
    values = x if isinstance(x, tuple) else (x,)
    return [
        (type(v), v.dtype, v.shape, v.is_inference(), v.requires_grad, [v is y for y in (*arguments, out)], bits(v))
        for v in values
    ]


def bits(x: Any) -> Any:
    if not isinstance(x, torch.Tensor) or x.device.type == "meta" or x.is_sparse or not x.untyped_storage().nbytes():
        return None
    x = x.view(torch.uint8) if x.dtype == torch.bfloat16 else x
    return x.numpy(force=True).tobytes()


def outcome(way: str, place: str) -> Any:
    """What comes of the second call: the result and which argument it is, or what was raised, and all arguments."""
    for _ in range(2):
        verb, arguments, options = made(way)
        arguments = tuple(x.clone() if x is X or x is ROW else x for x in arguments)
        out = PLACES[place](arguments)
        counted = [x for x in arguments if type(x) is torch.Tensor]
        versions = [x._version for x in counted]
        try:
            told: Any = told_of(verb_of(verb)(*arguments, out=out, **options), arguments, out)
        except (ValueError, TypeError, OverflowError, RuntimeError, tridiag.BackendError) as error:
            told = type(error), str(error), error.__context__, bits(getattr(error, "x", None))
        changed = [x._version - v for x, v in zip(counted, versions, strict=True)]
    return told, changed, [bits(x) for x in (*arguments, out)]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("way", CALLS)
def test_the_short_way_is_as_good_as_the_long_one(way: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same bits, the same tensor, the same refusal, the same count of changes."""
    if way.endswith("memory that was freed") and place in ("the right side", "the diagonal"):
        pytest.skip("what is refused first is of no interest")
    found = outcome(way, place)
    monkeypatch.setattr(fast_path, "of_tensors", lambda verb, x: None)
    assert found == outcome(way, place)


SHORT = (
    "solve, plain", "solve, single precision", "solve, a shared matrix", "solve, columns", "solve, turned",
    "solve, in place", "solve, a mask", "solve, numbers", "solve, integers", "solve, two dtypes", "solve, parameters",
    "many", "a number", "from a row", "second order, from two", "integers beside a number", "logarithms", "sums",
    "turning vectors", "turning vectors, from one", "factored, plain", "factored, columns", "factored, a shared matrix",
    "factored, in place", "factored, a mask", "factored, corners", "factored, parameters", "factored, complex",
    "factored again, plain", "factored again, a mask", "factored again, a shared matrix", "factored again, columns",
    "scan", "scan, last", "matmul, plain", "matmul, single precision", "matmul, complex", "matmul, a shared matrix",
    "matmul, columns", "matmul, turned", "matmul, a mask", "matmul, corners", "matmul, numbers", "matmul, two dtypes",
    "matmul, options", "slogdet, plain", "slogdet, complex", "slogdet, columns", "slogdet, every other entry",
    "slogdet, a mask", "slogdet, corners", "slogdet, two dtypes", "slogdet, parameters",
)  # fmt: skip


def only_short(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tridiag.systems.prepare", None)
    patch.setattr("tridiag.factorization.prepare", None)
    patch.setattr("tridiag.recurrences.PREPARERS", None)
    patch.setattr("tridiag.selective.prepare", None)


@pytest.mark.parametrize("way", SHORT)
def test_the_short_way_is_taken(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    only_short(monkeypatch)
    verb, arguments, options = made(way)
    verb_of(verb)(*arguments, **options)


def test_the_short_way_is_taken_in_inference_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    given = tensors((5, N))
    with torch.inference_mode():
        wanted = tridiag.solve(*given)
        assert wanted.is_inference()
        only_short(monkeypatch)
        assert torch.equal(tridiag.solve(*given), wanted)


@pytest.fixture
def solved() -> tuple[Any, ...]:
    """Factors that solved for such right sides before, the solution, and those."""
    given = tensors((5, N))
    matrix = tridiag.factor(*given[:3])
    return matrix, matrix.solve(given[3]), *given


def test_a_right_side_is_looked_at_alone(solved: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """What else decides belongs to the factors: of a call that was met before nothing is bound again."""
    matrix, wanted, *_, d = solved
    monkeypatch.setattr("tridiag.calls.fast_path.torch_factored.solve", None)
    monkeypatch.setattr("tridiag.factorization.prepare", None)
    x = matrix.solve(d)
    assert torch.equal(x, wanted) and x.data_ptr() != d.data_ptr() and not x.requires_grad
    with torch.inference_mode():
        assert matrix.solve(d.clone()).is_inference()
    with pytest.raises(TypeError):
        matrix.solve(d.float())


def test_calls_are_decided_anew_where_that_is_wanted(solved: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    matrix, wanted, *_, d = solved
    seen: list[Any] = []
    monkeypatch.setattr("tridiag.calls.fast_path.torch_factored.solve", lambda *given, **more: seen.append(given))
    fast_path.forget()
    assert torch.equal(matrix.solve(d), wanted) and seen


OTHERS: dict[str, Any] = {
    "a gradient": lambda d: d.clone().requires_grad_(),
    "a subclass": lambda d: d.as_subclass(Special),
    "negated": torch._neg_view,
    "memory that was freed": lambda d: freed_like(d),
    "a right side of a larger one": lambda d: torch.cat([d, d])[5:],
    "infinite": lambda d: d / 0,
}


def freed_like(d: Any) -> Any:
    x = d.clone()
    x.untyped_storage().resize_(8)
    return x


@pytest.mark.parametrize("kind", OTHERS)
def test_right_sides_alike_but_for_what_they_are(
    kind: str, solved: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the dtype, shape and strides of one that was met, and yet more than its entries: as on the long way."""
    matrix, *_, d = solved

    def found() -> Any:
        try:
            x = matrix.solve(OTHERS[kind](d))
        except (RuntimeError, ValueError, TypeError) as error:
            return type(error), str(error)
        return type(x), x.requires_grad, x.detach().numpy(force=True).tobytes()

    short = found()
    monkeypatch.setattr(fast_path, "of_tensors", lambda verb, x: None)
    assert short == found()


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_derivatives_of_right_sides_of_factors_that_were_met(solved: tuple[Any, ...]) -> None:
    """Backwards, forwards, mapped, and of the matrices: with respect to what needs them, whoever solved before."""
    matrix, wanted, a, b, c, d = solved
    right = d.clone().requires_grad_()
    matrix.solve(right).sum().backward()
    torch.testing.assert_close(right.grad, tridiag.solve(a, b, c, torch.ones_like(d), transpose=True))
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(matrix.solve(forward_ad.make_dual(d, d))).tangent
    torch.testing.assert_close(tangent, wanted)
    mapped = torch.func.vmap(matrix.solve)(torch.stack([d, 2 * d]))
    torch.testing.assert_close(mapped, torch.stack([wanted, 2 * wanted]))
    diagonal = b.clone().requires_grad_()
    other = tridiag.factor(a, diagonal, c)
    with torch.no_grad():
        assert torch.equal(other.solve(d), other.solve(d))
    other.solve(d).sum().backward()
    assert diagonal.grad is not None and diagonal.grad.abs().sum() > 0


def test_what_listens_is_heard() -> None:
    """Modes see the operations of the long way, and a tensor that is but described gives one that is."""
    seen = []

    class Listener(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(function)
            return function(*args, **(kwargs or {}))

    given = tensors((5, N))
    wanted = tridiag.solve(*given)
    with Listener():
        assert torch.equal(tridiag.solve(*given), wanted)
    assert torch.Tensor.numpy not in seen and seen


@pytest.mark.parametrize("short_way", [True, False])
def test_few_long_matrices_are_factored_where_that_is_wanted(short_way: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As NumPy's: one right side each is solved anew by what is quicker, unless a backend was named."""
    if not short_way:
        monkeypatch.setattr(fast_path, "of_tensors", lambda verb, x: None)
    given = [torch.from_numpy(np.resize(x[0].numpy(), (1, 20_000))) for x in tensors((5, N))]
    named, matrix = tridiag.factor(*given[:3], backend="numba_thomas"), tridiag.factor(*given[:3])
    for transpose in (False, True):
        x = matrix.solve(given[3], transpose)
        assert torch.equal(x, tridiag.solve(*given, transpose=transpose, backend="numba_partition"))
        torch.testing.assert_close(x, named.solve(given[3], transpose), rtol=1e-12, atol=1e-12)
    assert named._factors is not None and matrix._factors is None
    sides = given[3] * torch.arange(1.0, 4.0)[:, None]
    assert torch.equal(matrix.solve(sides), named.solve(sides)) and matrix._factors is not None
    assert torch.equal(matrix.solve(sides), named.solve(sides))


@pytest.mark.parametrize("pivoting", [False, True, "auto"])
@pytest.mark.parametrize("short_way", [True, False])
def test_few_long_matrices_have_a_status(
    short_way: bool, pivoting: bool | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not short_way:
        monkeypatch.setattr(fast_path, "of_tensors", lambda verb, x: None)
    a, b, c = (torch.ones(2, 6000, dtype=torch.float64) * k for k in (-1.0, 2.0, -1.0))
    b[1, 0] = b[1, -1] = 1
    b[1, 3000] = a[1, 3001] = c[1, 2999] = 0
    for mask, wanted in ((None, [0, 3001]), (torch.arange(6000) != 3000, [0, 0])):
        status = tridiag.factor(a, b, c, where=mask, pivoting=pivoting).status
        assert status.dtype == torch.int32 and status.tolist() == wanted
