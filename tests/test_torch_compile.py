"""`torch.compile` without a graph break: results and gradients are those of eager calls, to the bit."""

import functools
import inspect
import shutil
from typing import Any

import numpy as np
import pytest
from helpers import Subject, dominant, installed, zero_diagonal

import tridiag
from tridiag import SingularSystemError, kalman

if not installed("torch"):
    pytest.skip("needs torch, which is not installed", allow_module_level=True)

import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils import _pytree

# torch compiles decompositions, and what forward mode needs, with what it has deprecated
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script(_method)?. is deprecated:DeprecationWarning")
# it looks at the gradients of what it takes over a break of the graph
over_a_break = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf Tensor:UserWarning"
)
on_torch = pytest.mark.only(library="torch")


@pytest.fixture(autouse=True)
def forget_graphs() -> Any:
    yield
    torch._dynamo.reset()


def tensors(*arrays: Any) -> list[torch.Tensor]:
    return [torch.tensor(x) for x in arrays]


def systems(backend: Subject, *shape: int, **options: Any) -> list[torch.Tensor]:
    return [backend.array(x) for x in dominant(shape, **options)]


def by(backend: Subject, **options: Any) -> Any:
    return functools.partial(tridiag.solve, backend=backend.name, **{"pivoting": backend.usual} | options)


def compiled(function: Any, backend: str = "aot_eager", **options: Any) -> Any:
    return torch.compile(function, backend=backend, **{"fullgraph": True} | options)


def outcome(function: Any, arguments: Any, differentiate: bool = True) -> list[Any]:
    """All results, and the gradients of a real number made of them with respect to all arguments that have one."""
    given = [x.detach().clone().requires_grad_(differentiate and x.is_floating_point()) for x in arguments]
    given = [x.requires_grad_(differentiate) if x.is_complex() else x for x in given]
    results = _pytree.tree_leaves(function(*given))
    total = sum((x * x.conj()).real.sum() for x in results if x.requires_grad)
    wanted = [x for x in given if x.requires_grad]
    return [*results, *(torch.autograd.grad(total, wanted, materialize_grads=True) if wanted else ())]


def assert_same(function: Any, *arguments: torch.Tensor, differentiate: bool = True, **options: Any) -> None:
    found = outcome(compiled(function, **options), arguments, differentiate)
    for x, y in zip(found, outcome(function, arguments, differentiate), strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape
        torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True)


# ------------------------------------------------------------------------------------------------------------ solve

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "transposed": {"transpose": True, "pivoting": False},
    "along axis 0": {"axis": 0, "pivoting": True},
    "periodic": {"periodic": True},
}


@on_torch
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_solve_and_its_gradients(backend: Subject, options: dict[str, Any]) -> None:
    if not backend.can(periodic=options.get("periodic", False), pivoting=options.get("pivoting")):
        pytest.skip("has no such elimination")
    axis = options.get("axis", -1)
    arguments = systems(backend, *((7, 5) if axis == 0 else (5, 7)), axis=axis)
    solve = by(backend, **options)
    assert_same(lambda *x: solve(*x).sin(), *arguments)


@on_torch
def test_masks_and_shared_matrices(backend: Subject) -> None:
    a, b, c, d = systems(backend, 5, 7)
    solve, kept = by(backend), backend.array(np.arange(7) != 1)
    assert_same(lambda a, b, c, d, kept: solve(a, b, c, d, where=kept), a, b, c, d, kept)
    assert_same(solve, a[0], b[0], c[:1, :1], d)


@on_torch
def test_python_scalars_and_dtypes(backend: Subject) -> None:
    *_, c, d = systems(backend, 3, 6)
    solve = by(backend)
    assert_same(lambda d: solve(-1.0, 4.0, -1.0, d), d.bfloat16())
    assert_same(lambda d: solve(-1.0, 4, -1, d), d.int(), differentiate=False)
    if "complex128" in backend.entry.dtypes:
        assert_same(lambda d: solve(-1, 4.0, 1j, d), d)
        assert_same(lambda c, d: solve(-1, 4.0, c, torch.complex(d, c)), c.float(), d.float())


@on_torch
def test_gradients_of_some_arguments_only(backend: Subject) -> None:
    arguments, eager = systems(backend, 5, 7), by(backend)
    solve = compiled(lambda *x: eager(*x))
    for k in range(4):
        found, wanted = [], []
        for function, grads in ((solve, found), (eager, wanted)):
            given = [x.clone().requires_grad_(k == j) for j, x in enumerate(arguments)]
            grads += torch.autograd.grad(function(*given).square().sum(), given[k])
        assert torch.equal(*found, *wanted)
    with torch.no_grad():
        assert not solve(*given).requires_grad


@on_torch
def test_one_graph_for_all_shapes(backend: Subject) -> None:
    counter, eager = CompileCounterWithBackend("aot_eager"), by(backend)
    solve = torch.compile(lambda *x: eager(*x), fullgraph=True, backend=counter, dynamic=True)
    for shape in ((5, 7), (6, 9), (20, 4)):
        arguments = systems(backend, *shape)
        wanted = outcome(eager, arguments)
        for x, y in zip(outcome(solve, arguments), wanted, strict=True):
            assert torch.equal(x, y)
    assert counter.frame_count == 1
    assert [node.op for node in counter.graphs[0].graph.nodes].count("call_function") == 1


def test_shapes_that_change_are_noticed_by_themselves() -> None:
    """The second shape makes a graph for all; a number may change where it is a tensor."""
    counter = CompileCounterWithBackend("aot_eager")
    solve = torch.compile(lambda d, b: tridiag.solve(-1.0, b, -1.0, d), fullgraph=True, backend=counter)
    for k in range(4, 9):
        d = torch.linspace(0, 1, 7 * k, dtype=torch.float64).reshape(k, 7)
        assert torch.equal(solve(d, torch.tensor(k / 2)), tridiag.solve(-1.0, k / 2, -1.0, d))
    assert counter.frame_count == 2


@pytest.mark.skipif(not installed("numba"), reason="needs numba, which is not installed")
def test_the_backward_pass_is_one_operator_where_it_is_one_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    from tridiag.backends import numba_thomas

    calls, kernel = [], numba_thomas.adjoint
    monkeypatch.setattr(numba_thomas, "adjoint", lambda *x: calls.append(x) or kernel(*x))
    outcome(compiled(tridiag.solve), tensors(*dominant((5, 7))))
    assert len(calls) == 1


@on_torch
def test_where_a_solution_goes(backend: Subject) -> None:
    arguments, solve = systems(backend, 5, 7), by(backend)
    in_place = by(backend, overwrite_d=True)

    def into_out(a: Any, b: Any, c: Any, d: Any) -> Any:
        out = torch.empty_like(d)
        return solve(a, b, c, d, out=out), out

    def into_d(a: Any, b: Any, c: Any, d: Any) -> Any:
        d = 2 * d
        return in_place(a, b, c, d), d

    def not_into_d(a: Any, b: Any, c: Any, d: Any) -> Any:
        return in_place(a, b, c, d[0]), d

    for function in (into_out, into_d, not_into_d):
        assert_same(function, *arguments)
    assert_same(lambda *x: (in_place(*x), x), *arguments, differentiate=False)
    assert_same(lambda a, b, c: (in_place(a, b, c, c), c), *arguments[:3], differentiate=False)


@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (2, 1)], ids=str)
def test_nothing_to_solve_and_single_rows(shape: tuple[int, int]) -> None:
    assert_same(tridiag.solve, *(torch.rand(shape) + k for k in (0.0, 4.0, 0.0, 0.0)))


def test_a_singular_system_raises_as_in_eager_mode() -> None:
    a, b, c, d = tensors(*zero_diagonal((2, 7)))
    b[1] = 4.0
    with pytest.raises(SingularSystemError, match="1 of 2 systems are singular") as raised:
        compiled(tridiag.solve)(a, b, c, d)
    assert raised.value.indices.tolist() == [[0]]
    x = compiled(lambda *x: tridiag.solve(*x, check=False))(a, b, c, d)
    assert x[0].isnan().all() and x[1].isfinite().all()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda d: tridiag.solve(d[:, :3], 4.0, 1.0, d), "full length is wanted; pad a with one entry in front"),
        (lambda d: tridiag.solve(1.0, 4.0, 1.0, d, backend="nobody"), "there is no backend 'nobody'"),
        (lambda d: tridiag.solve(1.0, 4.0, 1.0, d, out=d.float()), "out has dtype torch.float32; the result has"),
        (lambda d: tridiag.solve(1.0, 4.0, 1.0, d, out=d[0]), r"out has shape \(4,\); the result has shape"),
        (lambda d: tridiag.solve(1.0, True, 1.0, d), "b has dtype bool"),
        (lambda d: tridiag.linear_recurrence(d, d, d), "init has shape"),
        (lambda d: tridiag.linear_recurrence(d, d, return_final=1), "return_final is 1; wanted True or False"),
    ],
)
def test_bad_input_is_told_as_in_eager_mode(call: Any, told: str) -> None:
    """In the message of what Dynamo raises, where that is raised first."""
    d = torch.ones(3, 4, dtype=torch.float64)
    with pytest.raises((TypeError, ValueError), match=told):
        call(d)
    with pytest.raises(Exception, match=told):
        compiled(call)(d)


def test_transformed_calls() -> None:
    a, b, c, d = tensors(*dominant((3, 5)))

    def loss(*x: Any) -> Any:
        return tridiag.solve(*x).square().sum()

    for function in (
        torch.func.grad(loss, (0, 1, 2, 3)),
        torch.func.vmap(torch.func.grad(loss, (0, 1, 2, 3))),
        torch.func.vmap(tridiag.solve),
        lambda *x: torch.func.jvp(tridiag.solve, x, x),
    ):
        assert_same(function, a, b, c, d, differentiate=False)


@pytest.mark.slow
def test_transformed_calls_of_second_order() -> None:
    a, b, c, d = (x[0] for x in tensors(*dominant((3, 5))))
    of_b = torch.func.hessian(lambda b: tridiag.solve(a, b, c, d).square().sum())
    assert_same(of_b, b, differentiate=False)
    of_x = torch.func.jacfwd(torch.func.jacrev(lambda x: tridiag.logcumsumexp(x).square().sum()))
    assert_same(of_x, d, differentiate=False)


# ------------------------------------------------------------------------------------------------------ other verbs


@pytest.mark.only(library="torch", verb="linear_recurrence", order=2, dtype="complex128")
def test_linear_recurrences(backend: Subject) -> None:
    a, x, c, _ = tensors(*dominant((4, 6)))
    name = backend.name
    assert_same(lambda a, x: tridiag.linear_recurrence(a, x, axis=0, backend=name), a, x)

    def second_order(a: Any, x: Any, init: Any) -> Any:
        coefficients, init = (a, 0.1), (init, 2.0 * init)
        return tridiag.linear_recurrence(coefficients, x, init, reverse=True, return_final=True, backend=name)

    assert_same(second_order, a[0], x, c[:, 0])
    assert_same(second_order, a[0], x * (1 + 1j), c[:, 0], dynamic=True)


@pytest.mark.only(library="torch", verb="matrix_recurrence")
def test_matrix_recurrences(backend: Subject) -> None:
    rng = np.random.default_rng(0)
    A, x, init = tensors(*(rng.uniform(-1, 1, shape) for shape in ((3, 5, 2, 2), (3, 5, 2), (3, 2))))

    def run(A: Any, x: Any, init: Any) -> Any:
        return tridiag.matrix_recurrence(A, x, init, return_final=True, backend=backend.name, out=torch.empty_like(x))

    assert_same(run, A, x, init)
    assert_same(lambda A, x: tridiag.matrix_recurrence(A, x, reverse=True, backend=backend.name), A[0, 0], x)


@pytest.mark.only(library="torch", verb="log_linear_recurrence")
def test_recurrences_of_logarithms(backend: Subject) -> None:
    log_a, x, init, _ = tensors(*dominant((4, 6)))
    name = backend.name
    assert_same(lambda x: tridiag.logcumsumexp(x, axis=0, reverse=True, backend=name), x)
    assert_same(lambda x: tridiag.logcumsumexp(x, backend=name), x.half())
    assert_same(
        lambda *x: tridiag.log_linear_recurrence(*x, return_final=True, backend=name),
        log_a,
        x,
        init[:, 0],
        dynamic=True,
    )


@pytest.mark.only(library="torch", verb="solve_block")
def test_block_tridiagonal_systems(backend: Subject) -> None:
    rng = np.random.default_rng(0)
    A, B, C, d = tensors(*(rng.uniform(-1, 1, (3, 5, 2, 2)) for _ in range(3)), rng.uniform(-1, 1, (3, 5, 2)))
    B = B + 4 * torch.eye(2)
    assert_same(lambda *x: tridiag.solve_block(*x, backend=backend.name), A, B, C, d)
    assert_same(lambda *x: tridiag.solve_block(*x, backend=backend.name), A[0], B[0], C[0], d * 1j, dynamic=True)


@pytest.mark.only(library="torch", verb="slogdet")
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_log_determinants(backend: Subject, dtype: str) -> None:
    a, b, c, _ = tensors(*dominant((4, 6), dtype))
    where = torch.tensor([True, True, False, True, True, True])
    assert_same(lambda *x: tridiag.slogdet(*x, backend=backend.name), a, b[0], c, dynamic=True)
    assert_same(lambda *x: tridiag.slogdet(*x, where=where, axis=0, backend=backend.name), a.mT, b.mT, c.mT)
    assert_same(lambda a, b: tridiag.slogdet(a, b, 1.0, periodic=True, backend=backend.name), a, b)


@over_a_break
@pytest.mark.only(library="torch", verb="factor")
def test_factorizations_break_the_graph(backend: Subject) -> None:
    def solve(a: Any, b: Any, c: Any, d: Any) -> Any:
        made = tridiag.factor(a, b.sin() + 4, c, backend=backend.name)
        return made.solve(2 * d) + made.solve(d, transpose=True).square()

    assert_same(solve, *systems(backend, 5, 7), fullgraph=False)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="outside") as refused:
        compiled(solve)(*systems(backend, 5, 7))
    if "reason" in inspect.signature(torch.compiler.disable).parameters:  # which PyTorch 2.4 has not
        assert "tridiag's factor, selective_scan, smith_waterman and Kalman filters" in str(refused.value)


@over_a_break
@pytest.mark.only(library="torch", verb="smith_waterman")
def test_alignments_break_the_graph(backend: Subject) -> None:
    scores = systems(backend, 3, 5)[0]
    assert_same(lambda x: tridiag.smith_waterman(x, gap=-1.0, backend=backend.name).sin(), scores, fullgraph=False)


@over_a_break
@pytest.mark.only(library="torch", verb="selective_scan")
def test_selective_scans_break_the_graph(backend: Subject) -> None:
    a, x, *_ = systems(backend, 3, 5)

    def scan(a: Any, x: Any) -> Any:
        return tridiag.selective_scan(a[..., None], x, a[..., None], 1.0, backend=backend.name).sin()

    assert_same(scan, a, x, fullgraph=False)


@over_a_break
@pytest.mark.only(library="torch", verb="kalman.log_likelihood")
def test_kalman_filters_break_the_graph(backend: Subject) -> None:
    eye, y = torch.eye(2, dtype=torch.float64), systems(backend, 6, 1)[0]

    def likelihoods(y: Any, noise: Any) -> Any:
        model = {"F": eye, "H": eye[:1], "Q": noise * eye, "R": eye[:1, :1], "m0": eye[0], "P0": eye}
        each = kalman.log_likelihood(y.sin(), **model, each_step=True)
        return kalman.log_likelihood(y.sin(), **model, backend=backend.name) + kalman.filter(y, **model).mean, each

    assert_same(likelihoods, y, torch.tensor(0.5, dtype=torch.float64), fullgraph=False)


@over_a_break
@pytest.mark.filterwarnings("ignore:Dynamo detected a call to a `functools.lru_cache`-wrapped function:UserWarning")
@pytest.mark.parametrize("imported", [False, True])
def test_structures_are_made_inside(imported: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo goes through no other module, whether JAX is imported or not."""
    if imported:
        pytest.importorskip("jax")
    monkeypatch.setattr(kalman.models.Structure, "in_jax", imported)

    def likelihood(y: Any, level: Any) -> Any:
        structure = kalman.models.local_level(level, noise=level) + kalman.models.seasonal(4, level)
        return kalman.log_likelihood(y, **structure)

    y, level = torch.ones(6, 1, dtype=torch.float64), torch.tensor(0.5, dtype=torch.float64)
    assert_same(likelihood, y, level, fullgraph=False)


GENERATOR = torch.Generator()
EYE = torch.eye(1, dtype=torch.float64)
LEVEL = {"F": EYE, "H": EYE, "Q": EYE, "R": EYE, "m0": EYE[0], "P0": EYE}
MADE_OF_FILTERS = {
    "forecast": lambda y: kalman.forecast(y, 2, **LEVEL).mean,
    "lag_one_smoother": lambda y: kalman.lag_one_smoother(y, **LEVEL).mean,
    "disturbance_smoother": lambda y: kalman.disturbance_smoother(y, **LEVEL).state,
    "simulation_smoother": lambda y: kalman.simulation_smoother(y, GENERATOR, **LEVEL),
    "simulate": lambda y: kalman.simulate(GENERATOR, 2, **LEVEL | {"m0": y[0]}).y,
    "predict": lambda y: kalman.predict(y[0], EYE, F=EYE, Q=EYE).mean,
    "update": lambda y: kalman.update(EYE[0], EYE, y[0], H=EYE, R=EYE).mean,
}


@pytest.mark.parametrize("verb", MADE_OF_FILTERS)
def test_verbs_made_of_filters_say_that_they_break_the_graph(verb: str) -> None:
    with pytest.raises(torch._dynamo.exc.Unsupported, match="outside") as refused:
        torch.compile(MADE_OF_FILTERS[verb], fullgraph=True, backend="eager")(torch.ones(3, 1, dtype=torch.float64))
    if "reason" in inspect.signature(torch.compiler.disable).parameters:  # which PyTorch 2.4 has not
        assert "Put the call outside of torch.compile, or leave out fullgraph=True" in str(refused.value)


def test_products() -> None:
    a, b, c, x = tensors(*dominant((4, 6)))
    assert_same(lambda *x: tridiag.matmul(*x, transpose=True), a, b, c, x)
    assert_same(lambda b, x: tridiag.matmul(-1.0, b, 1.0, x, where=x > 0, periodic=True), b[0], x)


# ------------------------------------------------------------------------------------------------------- operators


def operator_cases() -> dict[str, tuple[Any, ...]]:
    """Operands of every operator: with a mask, with shared entries, of a real matrix beside complex right sides."""
    a, b, c, d = tensors(*dominant((3, 5)))
    kept = torch.ones(1, 5, dtype=torch.bool)
    told = 1, False, False, "auto", "torch_thomas"
    matrices = torch.tensor(np.random.default_rng(0).uniform(-0.2, 0.2, (3, 5, 2, 2)))
    own = matrices[:1] + torch.eye(2)
    course = 1, False, False, "torch_scan"
    return {
        "solve": (a, b, c, kept, d, *told, True),
        "solve of complex right sides": (a[:1], b[:1], c[:1], None, d * 1j, *told, False),
        "adjoint": (a, b, c, None, d, d, *told[:-1], "numba_thomas"),
        "solve_block": (matrices[:1], own, matrices[:1], matrices, False, "torch_thomas"),
        "slogdet": (a, b, c, kept, *told[:2], "torch_thomas"),
        "linear_recurrence": ([a, b[:1]], d, [a[:, :1], b[:, :1]], *course),
        "log_linear_recurrence": ([a], d, [], *course),
        "logcumsumexp": ([], d, [], *course),
        "matrix_recurrence": ([matrices[:1]], matrices[..., 0], [matrices[:, :1, 0]], *course),
    }


@pytest.mark.parametrize("case", operator_cases())
def test_operators_keep_the_promises_of_operators(case: str) -> None:
    """Schema, fake and derivative, also for symbolic shapes; `tridiag.solve` is not in between."""
    from tridiag.derivatives import torch_operators

    if case == "adjoint" and not installed("numba"):
        pytest.skip("needs numba, which is not installed")

    def prepared(x: Any) -> Any:
        if isinstance(x, list):
            return [prepared(y) for y in x]
        wanted = isinstance(x, torch.Tensor) and x.dtype != torch.bool and case != "adjoint"
        return x.clone().requires_grad_() if wanted else x

    name = case.partition(" ")[0]
    assert name in vars(torch_operators) or name in torch_operators.SEQUENCES
    told = torch.library.opcheck(getattr(torch.ops.tridiag, name).default, tuple(map(prepared, operator_cases()[case])))
    assert set(told.values()) == {"SUCCESS"}


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.diagonal = torch.nn.Parameter(torch.full((6,), 4.0, dtype=torch.float64))

    def forward(self, d: torch.Tensor) -> torch.Tensor:
        return tridiag.linear_recurrence(0.5, tridiag.solve(-1.0, self.diagonal, -1.0, d))


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_model_is_one_for_all_batches_and_can_be_trained(strict: bool) -> None:
    layer, d = Layer(), torch.linspace(0, 1, 30, dtype=torch.float64).reshape(5, 6)
    size = torch.export.Dim("size", min=2)
    exported = torch.export.export(layer, (d,), dynamic_shapes={"d": {0: size}}, strict=strict).module()
    for given in (d, d.repeat(20, 1)):
        (found,) = torch.autograd.grad(exported(given).square().sum(), list(exported.parameters()))
        (wanted,) = torch.autograd.grad(layer(given).square().sum(), list(layer.parameters()))
        assert torch.equal(exported(given), layer(given)) and torch.equal(found, wanted)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, with which torch compiles for the CPU")
def test_inductor() -> None:
    """What surrounds a solve is compiled by torch, which may round it in another way."""

    def function(a: Any, b: Any, c: Any, d: Any) -> Any:
        return tridiag.solve(a.sin(), b + 1, c, 2 * d).square()

    arguments = tensors(*dominant((5, 7)))
    found = outcome(compiled(function, backend="inductor"), arguments)
    for x, y in zip(found, outcome(function, arguments), strict=True):
        torch.testing.assert_close(x, y, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("verb", [tridiag.logcumsumexp, functools.partial(tridiag.linear_recurrence, 0.5)])
def test_an_exported_recurrence_takes_no_sequences(verb: Any) -> None:
    class Layer(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return verb(x)

    sizes = ({0: torch.export.Dim("size")},)
    exported = torch.export.export(Layer(), (torch.randn(3, 6),), dynamic_shapes=sizes).module()
    assert exported(torch.randn(0, 6)).shape == (0, 6)
    x = torch.randn(5, 6)
    assert torch.equal(exported(x), verb(x))


def test_a_product_into_out() -> None:
    """Is written, and returned; an argument is refused."""
    a, b, c, x = torch.rand(4, 3, 10, dtype=torch.float64)
    function = torch.compile(lambda out: tridiag.matmul(a, b, c, x, out=out), backend="eager")
    out = torch.empty_like(x)
    assert function(out) is out
    torch.testing.assert_close(out, tridiag.matmul(a, b, c, x))
    with pytest.raises(Exception, match="one of the arguments"):
        function(x)
