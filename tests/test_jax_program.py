"""What JAX compiles: one custom call, no copy, no callback, no transposed input, no scatter, a cond that stays one."""

import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers import Subject, dominant, installed, oracle

import tridiag
from tridiag import kalman

if not installed("jax"):
    pytest.skip("needs jax, which is not installed", allow_module_level=True)

import jax
import jax.numpy as jnp

from tridiag.algorithms.matrix_rows import residual
from tridiag.backends import BACKENDS
from tridiag.libraries.jax import Operations as ops
from tridiag.problems.forms import Form

N, M = 7, 6


def compiled(function: Any, *arguments: Any, **options: Any) -> str:
    """The program alone, without the names of Python functions."""
    return told(jax.jit(function, **options).lower(*arguments).compile().as_text())


def told(program: str) -> str:
    kept = [part for part in program.split("\n\n") if part.startswith("HloModule") or "{\n" in part]
    return re.sub(r", metadata=\{[^}]*\}", "", "\n\n".join(kept))


def operations(program: str) -> list[str]:
    """The instructions of a compiled program, fused ones too."""
    return re.findall(r"= (?:\([^=]*?\)|\S+) ([a-z][a-z\-]*)\(", program)


def custom_calls(program: str) -> list[str]:
    """The operand and result types of every custom call, and its target."""
    return [line for line in program.splitlines() if " custom-call(" in line]


def copies(program: str, shape: tuple[int, ...]) -> list[str]:
    """The instructions that copy an array of a shape; inside a fusion a copy is how its result is written."""
    parts = [part for part in program.split("\n\n") if not part.lstrip().startswith("%fused")]
    told = f"[{','.join(map(str, shape))}]"
    return [line for part in parts for line in part.splitlines() if " copy(" in line and told in line]


def equations(jaxpr: Any) -> Iterator[Any]:
    """All equations, those of inner programs too."""
    for equation in jaxpr.eqns:
        yield equation
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda v: hasattr(v, "eqns")):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                yield from equations(inner)


def primitives(function: Any, *arguments: Any) -> list[str]:
    return [equation.primitive.name for equation in equations(jax.make_jaxpr(function)(*arguments).jaxpr)]


def test_likelihoods_of_unknown_states_are_short_programs() -> None:
    """A step once, and its derivative once: with 13 unknown states 8000 equations compiled for half a minute."""
    model = kalman.models.seasonal(10, 0.5)
    y = np.ones((60, 1))
    size = len(primitives(jax.grad(lambda Q: kalman.log_likelihood(jnp.asarray(y), **model | {"Q": Q})), model.Q))
    assert size < 3200


def systems(*shape: int, complex_d: bool = False, axis: int = -1) -> list[jax.Array]:
    a, b, c, d = dominant(shape, axis=axis)
    return [jnp.asarray(x) for x in (a, b, c, d + 1j * d if complex_d else d)]


def by(name: str, **options: Any) -> Any:
    return lambda a, b, c, d: tridiag.solve(a, b, c, d, backend=name, **options)


def assert_one_call_and_no_copy(program: str) -> None:
    done = operations(program)
    assert done.count("custom-call") == 1, done
    assert set(done) <= {"parameter", "custom-call", "bitcast", "constant"}, done
    assert "tridiag" in custom_calls(program)[0] and "callback" not in program


# the one backend whose whole program is one kernel; "auto", which takes it where the program is compiled for a CPU
kernel = pytest.mark.parametrize("name", ["numba_thomas", "auto"])


@pytest.fixture(autouse=True)
def numba_is_there(request: pytest.FixtureRequest) -> None:
    if "name" in request.fixturenames and not installed("numba"):
        pytest.skip("needs numba, which is not installed")


@kernel
@pytest.mark.parametrize("periodic", [False, True])
def test_determinants_are_one_call(name: str, periodic: bool) -> None:
    def determinants(a: Any, b: Any, c: Any) -> Any:
        return tridiag.slogdet(a, b, c, periodic=periodic, backend=name)

    assert_one_call_and_no_copy(compiled(determinants, *systems(M, N)[:3]))


@kernel
@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("options", [{}, {"pivoting": True}, {"periodic": True}, {"transpose": True}], ids=str)
def test_a_solve_inside_jit_is_the_kernel_and_nothing_else(name, axis, options):
    arguments = systems(3, N, 4)
    assert_one_call_and_no_copy(compiled(by(name, axis=axis, **options), *arguments))


@kernel
@pytest.mark.parametrize("axis", [-1, 0])
@pytest.mark.parametrize("complex_d", [False, True])
def test_a_shared_matrix_is_never_copied_out(name, axis, complex_d):
    shape = (M, N) if axis == -1 else (N, M)
    a, b, c, _ = systems(N)
    d = systems(*shape, complex_d=complex_d)[3]
    program = compiled(by(name, axis=axis), a, b, c, d)
    assert_one_call_and_no_copy(program)
    sizes = [
        np.prod([int(k) for k in s.split(",")]) for s in re.findall(r"f64\[([\d,]+)\]\{", custom_calls(program)[0])
    ]
    assert sizes.count(N) >= 3, custom_calls(program)[0]


@kernel
def test_vmap_over_d_alone_keeps_one_call_and_the_matrix_unbroadcast(name):
    a, b, c, _ = systems(N)
    d = systems(5, M, N)[3]
    function = jax.vmap(jax.vmap(by(name), (None, None, None, 0)), (None, None, None, 0))
    program = compiled(function, a, b, c, d)
    assert_one_call_and_no_copy(program)
    assert f"f64[1,1,{N}]" in custom_calls(program)[0], custom_calls(program)[0]
    np.testing.assert_allclose(jax.jit(function)(a, b, c, d), oracle(a, b, c, d).astype(float), rtol=1e-12)


def squares(function: Any) -> Any:
    return lambda *x: (function(*x) ** 2).sum()


@kernel
@pytest.mark.parametrize("wanted", [(0, 1, 2, 3), (0, 1, 2), (3,)])
@pytest.mark.parametrize("batched", [False, True])
def test_a_gradient_is_two_calls_and_no_callback(name, wanted, batched):
    function, arguments = jax.value_and_grad(squares(by(name)), argnums=wanted), systems(3, M, N)
    program = compiled(jax.vmap(function) if batched else function, *arguments)
    assert operations(program).count("custom-call") == 2
    assert "callback" not in program
    # what is stacked for JAX is never stacked in memory
    assert not {"transpose", "copy", "concatenate"} & set(operations(program))


@kernel
def test_a_masked_solve_is_the_kernel_and_nothing_else(name):
    a, b, c, d = systems(M, N)
    where = jnp.asarray(np.random.default_rng(0).uniform(size=(M, N)) < 0.7)
    program = compiled(lambda a, b, c, d, w: tridiag.solve(a, b, c, d, where=w, backend=name), a, b, c, d, where)
    assert_one_call_and_no_copy(program)


@kernel
def test_a_donated_right_side_becomes_the_solution_in_place(name):
    a, b, c, d = systems(M, N)
    wanted = oracle(a, b, c, d).astype(float)
    function = jax.jit(by(name, overwrite_d=True), donate_argnums=3)
    program = compiled(by(name, overwrite_d=True), a, b, c, d, donate_argnums=3)
    assert_one_call_and_no_copy(program)
    assert re.search(r"input_output_alias=\{ \{\}: \(3,", program)
    where = d.unsafe_buffer_pointer()
    x = function(a, b, c, d)
    assert x.unsafe_buffer_pointer() == where and d.is_deleted()
    np.testing.assert_allclose(x, wanted, rtol=1e-12)


@kernel
def test_without_leave_a_right_side_is_never_written(name):
    a, b, c, d = systems(M, N)
    before = np.array(d)
    jax.jit(by(name))(a, b, c, d).block_until_ready()
    by(name, overwrite_d=True)(a, b, c, d).block_until_ready()
    jax.jit(by(name, overwrite_d=True))(a, b, c, d).block_until_ready()
    np.testing.assert_array_equal(d, before)


@kernel
def test_an_overwritten_right_side_that_is_not_donated_is_copied_once(name):
    arguments = systems(M, N)
    assert len(copies(compiled(by(name, overwrite_d=True), *arguments), (M, N))) == 1
    assert not copies(compiled(by(name), *arguments), (M, N))
    twice = compiled(lambda a, b, c, d: by(name, overwrite_d=True)(a, b, c, 2 * d), *arguments)
    assert not copies(twice, (M, N))  # nobody else has 2 * d


def fori(step: Any) -> Any:
    return lambda a, b, c, d: jax.lax.fori_loop(0, 3, lambda _, x: step(a, b, c, x), d)


def scan(step: Any) -> Any:
    return lambda a, b, c, d: jax.lax.scan(lambda x, _: (step(a, b, c, x), None), d, length=3)[0]


def scan_with_outputs(step: Any) -> Any:
    def body(a, b, c, x):
        x = step(a, b, c, x)
        return x, x.sum()

    return lambda a, b, c, d: jax.lax.scan(lambda x, _: body(a, b, c, x), d, length=3)[0]


@kernel
@pytest.mark.parametrize("loop", [fori, scan, scan_with_outputs])
@pytest.mark.parametrize("donated", [True, False])
def test_a_time_loop_carries_its_right_side_without_a_copy(name, loop, donated):
    a, b, c, d = systems(M, N)
    run = loop(by(name, overwrite_d=True))
    program = compiled(run, a, b, c, d, donate_argnums=3 if donated else ())
    assert len(copies(program, (M, N))) == (0 if donated else 1)  # before the loop
    x = d
    for _ in range(3):
        x = by(name)(a, b, c, x)
    before = np.array(d)
    np.testing.assert_allclose(jax.jit(run)(a, b, c, d), x, rtol=1e-13)
    np.testing.assert_array_equal(d, before)


@kernel
def test_a_gradient_through_an_overwritten_right_side(name):
    arguments = systems(M, N)
    before = np.array(arguments[3])

    def gradients(function):
        return jax.jit(jax.grad(lambda *x: (x[3] * function(*x)).sum(), (0, 1, 2, 3)))(*arguments)

    found, wanted = gradients(by(name, overwrite_d=True)), gradients(by(name))
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(arguments[3], before)


@pytest.mark.each
@pytest.mark.only(library="jax")
def test_no_backend_calls_back_to_python(backend: Subject):
    """But those that launch kernels of Numba or cuSPARSE on a GPU; CUDA C is launched by a handler."""
    if backend.interpreted:
        pytest.skip("JAX interprets kernels by callbacks")
    program = compiled(by(backend.name, pivoting=backend.usual), *systems(M, N))
    launched = "cupy" in backend.entry.needs and not backend.name.startswith("cupy_")
    assert ("callback" in program) == launched


@pytest.mark.each
@pytest.mark.only(library="jax")
def test_vmap_keeps_a_cond_a_cond(backend: Subject):
    """The pivoted elimination stays behind its branch; a select would run both sides."""
    function = by(backend.name, pivoting=backend.usual)
    plain, batched = primitives(function, *systems(M, N)), primitives(jax.vmap(function), *systems(2, M, N))
    assert batched.count("cond") == plain.count("cond")
    branches = backend.name in ("jax_scan", "jax_lax", "jax_pallas")  # on what is certified, or by platform
    assert (plain.count("cond") > 0) == branches


@pytest.mark.parametrize("pivoting", [False, "auto"])
def test_scan_reads_rows_where_they_lie(pivoting):
    """Inputs of shape (M, N) are never turned to (N, M) before the loop; only the stacked solution is turned, once."""
    arguments = systems(M, N)
    jaxpr = jax.make_jaxpr(by("jax_scan", pivoting=pivoting))(*arguments).jaxpr
    turned = [e for e in equations(jaxpr) if e.primitive.name == "transpose" and e.invars[0].aval.shape == (M, N)]
    assert not turned
    program = compiled(by("jax_scan", pivoting=False), *arguments)
    copies = [line for line in program.splitlines() if " copy(" in line and f"[{M},{N}]" in line]
    assert len(copies) <= 1, copies


def test_fori_writes_rows_in_place():
    done = operations(compiled(by("jax_fori", pivoting=False), *systems(M, N)))
    assert "dynamic-update-slice" in done
    assert "scatter" not in done


def test_the_residual_of_what_is_not_a_number_is_not_a_number() -> None:
    """XLA's own maximum loses NaN on some CPUs, and an iterate that is NaN would be taken for a better one."""
    shape, rows = (3, 1000, 7), (0, 500, 999)
    form, d = Form(shape, shape, 1), np.ones(shape)
    x = np.ones((len(rows), *shape))
    for k, row in enumerate(rows):
        x[k, 1, row, 2] = np.nan

    def errors(x: Any) -> Any:
        return jax.vmap(lambda x: residual(ops, (d, d, d), x, d, form)[1])(x)

    lost = np.isnan(jax.jit(errors)(x))
    assert lost[:, 1, 2].all() and lost.sum() == len(rows)


@pytest.mark.parametrize("pivoting", [False, True, "auto"])
def test_lax_tells_the_truth_about_pivoting_on_a_gpu(pivoting):
    """There many systems go to a routine of cuSPARSE that does not pivot."""
    traced = jax.jit(by("jax_lax", pivoting=pivoting)).trace(*systems(M, N))
    assert "gtsv" in traced.lower(lowering_platforms=("cpu",)).as_text()
    problem = tridiag.explain("solve", *systems(M, N), pivoting=pivoting).problem._replace(device="cuda")
    why_not = BACKENDS["jax_lax"].why_not(problem)
    if pivoting is False:
        assert why_not is None and "gtsv2" in traced.lower(lowering_platforms=("cuda",)).as_text()
        return
    assert why_not == f"cannot keep the promise pivoting={pivoting!r} on cuda; it runs with pivoting=False"
    with pytest.raises(tridiag.BackendError, match="compiled for another platform than the CPU"):
        traced.lower(lowering_platforms=("cuda",))


@pytest.mark.parametrize("name", ["jax_scan", "jax_fori", "auto"])
def test_an_exported_program_takes_any_number_of_systems(name: str) -> None:
    from jax import export

    def solve(d: Any) -> Any:
        return tridiag.solve(-1.0, 4.0, -1.0, d, backend=name, pivoting=False, check=False)

    (count,) = export.symbolic_shape("n")
    program = export.export(jax.jit(solve))(jax.ShapeDtypeStruct((count, N), jnp.float32))
    d = np.ones((M, N), np.float32)
    np.testing.assert_allclose(program.call(d), solve(jnp.asarray(d)), rtol=1e-6)


def test_kernels_need_known_sizes() -> None:
    from jax import export

    (count,) = export.symbolic_shape("n")
    given = jax.ShapeDtypeStruct((count, N), jnp.float32)
    with pytest.raises(tridiag.BackendError, match=r"numba_thomas needs sizes that are known.*that can: jax_scan"):
        jax.eval_shape(by("numba_thomas"), given, given, given, given)
