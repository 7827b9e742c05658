"""Arrays on four devices: no array is gathered. Run by `test_sharding.py`, in their own process."""

import functools
import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import dominant
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from test_gradients_jax import ALL, dense_solve
from test_jax_program import compiled, copies, custom_calls, operations

import tridiag

DEVICES = 4
SHAPE = (8, 4, 20)
EVERYTHING = P("p", "q")
NOTHING = P()


@pytest.fixture(params=[AxisType.Auto, AxisType.Explicit], ids=str)
def mesh(request: pytest.FixtureRequest) -> Mesh:
    return jax.make_mesh((2, 2), ("p", "q"), axis_types=(request.param,) * 2)


@pytest.fixture
def automatic() -> Mesh:
    return jax.make_mesh((2, 2), ("p", "q"), axis_types=(AxisType.Auto,) * 2)


def solve(*arguments: Any, **options: Any) -> Any:
    return tridiag.solve(*arguments, backend="numba_thomas", **options)


def systems(shape: tuple[int, ...] = SHAPE) -> list[np.ndarray]:
    return dominant(shape)


def place(mesh: Mesh, arrays: Any, specs: Any) -> list[jax.Array]:
    return [jax.device_put(jnp.asarray(x), NamedSharding(mesh, s)) for x, s in zip(arrays, specs, strict=True)]


def collectives(program: str) -> set[str]:
    kinds = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
    return {kind for done in operations(program) for kind in kinds if done.startswith(kind)}


def padded(spec: Any, rank: int = len(SHAPE)) -> tuple[Any, ...]:
    """The axes of a mesh for every axis of an array."""
    axes = [None if axis is None else axis if isinstance(axis, tuple) else (axis,) for axis in spec]
    return (*axes, *(None,) * (rank - len(axes)))


class Case(NamedTuple):
    specs: tuple[Any, ...]
    found: Any = EVERYTHING
    take: tuple[Any, ...] = ((),) * 4  # the part of a, b, c, d that is given
    batched: Any = None  # in_axes

    def arguments(self, mesh: Mesh) -> list[jax.Array]:
        return place(mesh, [x[k] for x, k in zip(systems(), self.take, strict=True)], self.specs)

    def wrapped(self, function: Any) -> Any:
        return function if self.batched is None else jax.vmap(function, self.batched)


FIRST, ROW, RIGHT_SIDES = (0,), (0, 0), (None, None, None, 0)
CASES = {
    "systems": Case((EVERYTHING,) * 4),
    "one axis on both": Case((P(("p", "q")),) * 4, P(("p", "q"))),
    "last axis on both": Case((P(None, ("p", "q")),) * 4, P(None, ("p", "q"))),
    "replicated": Case((NOTHING,) * 4, NOTHING),
    "one matrix": Case((NOTHING, NOTHING, NOTHING, EVERYTHING), take=(ROW, ROW, ROW, ())),
    "matrices of q": Case((P("q"), P("q"), P("q"), EVERYTHING), take=(FIRST, FIRST, FIRST, ())),
    "one off-diagonal": Case((NOTHING, EVERYTHING, NOTHING, EVERYTHING), take=(ROW, (), ROW, ())),
    "vmap": Case((EVERYTHING,) * 4, batched=0),
    "vmap over right sides": Case((P("q"),) * 3 + (EVERYTHING,), take=(FIRST,) * 3 + ((),), batched=RIGHT_SIDES),
    "vmap of one matrix": Case((NOTHING,) * 3 + (EVERYTHING,), take=(ROW,) * 3 + ((),), batched=RIGHT_SIDES),
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@cases
def test_every_device_solves_its_systems(mesh, case):
    arguments = case.arguments(mesh)
    function = jax.jit(case.wrapped(solve))
    x = function(*arguments)
    np.testing.assert_allclose(x, case.wrapped(dense_solve)(*map(np.asarray, arguments)), rtol=1e-12)
    assert padded(x.sharding.spec) == padded(case.found)
    program = compiled(case.wrapped(solve), *arguments)
    assert not collectives(program)
    assert len(custom_calls(program)) == 1
    shape = x.sharding.shard_shape(x.shape)
    assert f"= f64[{','.join(map(str, shape))}]" in custom_calls(program)[0]


@cases
def test_gradients_gather_nothing(mesh, case):
    arguments = case.arguments(mesh)
    function, right = (jax.grad(loss_of(case.wrapped(f)), ALL) for f in (solve, dense_solve))
    wanted = right(*map(np.asarray, arguments))
    for x, y in zip(jax.jit(function)(*arguments), wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
    program = compiled(function, *arguments)
    assert collectives(program) <= {"all-reduce"}  # a sum over the systems that share an entry
    assert len(custom_calls(program)) == 2


def loss_of(function: Any) -> Any:
    return lambda *x: jnp.sum(jnp.sin(function(*x)))


@pytest.mark.parametrize(
    "options", [{"axis": 0}, {"periodic": True}, {"transpose": True}, {"where": True}, {"complex": True}], ids=str
)
def test_options_of_sharded_systems(mesh, options):
    a, b, c, d = systems()
    spec, local = P("p", "q"), "4,2,20"
    if options.pop("complex", False):
        d = d + 1j * d[::-1]
    if "where" in options:
        options = {"where": np.random.default_rng(0).uniform(size=SHAPE) < 0.7}
    wanted = tridiag.solve(a, b, c, d, **({} if "axis" in options else options))
    if "axis" in options:
        a, b, c, d, wanted = (np.moveaxis(x, -1, 0) for x in (a, b, c, d, wanted))
        spec, local = P(None, "p", "q"), "20,4,2"
    arguments = place(mesh, (a, b, c, d), (spec,) * 4)
    if "where" in options:
        arguments, options = [*arguments, *place(mesh, (options["where"],), (spec,))], {}

    def function(a, b, c, d, where=None):
        return solve(a, b, c, d, where=where, **options)

    np.testing.assert_allclose(jax.jit(function)(*arguments), wanted, rtol=1e-12)
    program = compiled(function, *arguments)
    assert not collectives(program)
    assert f"[{local}]" in custom_calls(program)[0]


@pytest.mark.parametrize("rows", [20, 80])
@pytest.mark.parametrize("batch", [("p", None), (None, None)], ids=str)
def test_no_array_is_gathered_whose_system_axis_is_sharded(mesh, batch, rows):
    """But two numbers of each system from the only neighbour and a flag, and what is doubtful: `split_rows.py`.

    Systems of few rows are exchanged, each to be solved by one device.
    """
    given = systems((*SHAPE[:2], rows))
    arguments = place(mesh, given, (P(*batch, "q"),) * 4)
    x = jax.jit(solve)(*arguments)
    np.testing.assert_allclose(x, dense_solve(*given), rtol=1e-12)
    assert x.sharding.is_equivalent_to(arguments[3].sharding, 3)
    program = compiled(solve, *arguments)
    program = program[program.index("ENTRY") :]
    if rows == 20:
        assert collectives(program) == {"all-to-all"}
    else:
        assert collectives(program) == {"collective-permute", "all-reduce"}
        assert f"f64[2,{SHAPE[0] // 2 if batch[0] else SHAPE[0]},{SHAPE[1]},1]" in program
    found = jax.jit(jax.grad(loss_of(solve), ALL))(*arguments)
    for y, z in zip(found, jax.grad(loss_of(dense_solve), ALL)(*given), strict=True):
        np.testing.assert_allclose(y, z, rtol=1e-9, atol=1e-12)


def test_differently_sharded_arguments_meet(automatic):
    arguments = place(automatic, systems(), (P("p"), NOTHING, P(None, "q"), P("p")))
    np.testing.assert_allclose(jax.jit(solve)(*arguments), dense_solve(*systems()), rtol=1e-12)
    assert not collectives(compiled(solve, *arguments))


def test_a_time_loop_stays_where_it_is(mesh):
    def march(a, b, c, d):
        return jax.lax.scan(lambda x, _: (solve(a, b, c, x, overwrite_d=True), None), d, length=3)[0]

    arguments = place(mesh, systems(), (EVERYTHING,) * 4)
    a, b, c, x = systems()
    for _ in range(3):
        x = dense_solve(a, b, c, x)
    program = compiled(march, *arguments, donate_argnums=3)
    assert not collectives(program)
    assert not copies(program, (4, 2, 20))
    np.testing.assert_allclose(jax.jit(march)(*arguments), x, rtol=1e-12)


def test_a_donated_right_side_becomes_the_solution_on_every_device(mesh):
    arguments = place(mesh, systems(), (EVERYTHING,) * 4)
    where = [shard.data.unsafe_buffer_pointer() for shard in arguments[3].addressable_shards]
    x = jax.jit(lambda *v: solve(*v, overwrite_d=True), donate_argnums=3)(*arguments)
    assert [shard.data.unsafe_buffer_pointer() for shard in x.addressable_shards] == where
    np.testing.assert_allclose(x, dense_solve(*systems()), rtol=1e-12)


def test_a_call_outside_of_jit(mesh):
    arguments = place(mesh, systems(), (EVERYTHING,) * 4)
    x = solve(*arguments)
    np.testing.assert_allclose(x, dense_solve(*systems()), rtol=1e-12)
    assert padded(x.sharding.spec) == padded(EVERYTHING)


def test_arrays_on_one_of_several_devices():
    function = jax.jit(solve)
    for device in jax.devices()[:2]:
        x = function(*jax.device_put(systems(), device))
        np.testing.assert_allclose(x, dense_solve(*systems()), rtol=1e-12)
        assert x.devices() == {device}


def test_programs_that_call_something_else_differ():
    """JAX leaves pointers out of the key under which it keeps a compiled program on disk."""
    mesh = jax.make_mesh((DEVICES,), ("p",))
    arguments = place(mesh, systems(), (P("p"),) * 4)

    def program(**options):
        text = jax.jit(lambda *x: solve(*x, **options)).lower(*arguments).as_text()
        return re.sub(r'backend_config = "\d+"', "", text)

    assert program() == program()
    assert len({program(), program(pivoting=False), program(pivoting=True), program(overwrite_d=True)}) == 4


# ------------------------------------------------------------------------------------------------- shard_map


APART = {name: case for name, case in CASES.items() if case.batched is None}


@pytest.mark.parametrize("case", APART.values(), ids=APART)
def test_inside_shard_map(mesh, case):
    arguments = case.arguments(mesh)
    function = jax.shard_map(solve, mesh=mesh, in_specs=case.specs, out_specs=case.found)
    host = [np.asarray(x) for x in arguments]
    np.testing.assert_allclose(jax.jit(function)(*arguments), dense_solve(*host), rtol=1e-12)
    assert not collectives(compiled(function, *arguments))
    gradient = jax.grad(loss_of(function), ALL)
    for x, y in zip(jax.jit(gradient)(*arguments), jax.grad(loss_of(dense_solve), ALL)(*host), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)
    assert collectives(compiled(gradient, *arguments)) <= {"all-reduce"}
    tangent = jax.jit(lambda *x: jax.jvp(function, x, x)[1])
    np.testing.assert_allclose(tangent(*arguments), jax.jvp(dense_solve, host, host)[1], rtol=1e-9, atol=1e-12)


@pytest.mark.only(library="jax")
def test_every_backend_inside_shard_map(backend, automatic):
    def local(*x):
        return tridiag.solve(*x, backend=backend.name, pivoting=backend.usual)

    inside, arguments = jax.shard_map(local, mesh=automatic, in_specs=EVERYTHING, out_specs=EVERYTHING), systems()
    np.testing.assert_allclose(jax.jit(inside)(*arguments), dense_solve(*arguments), rtol=1e-12)
    wanted = jax.grad(loss_of(dense_solve), ALL)(*arguments)
    for x, y in zip(jax.jit(jax.grad(loss_of(inside), ALL))(*arguments), wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("check", [True, False])
def test_transformations_inside_shard_map(automatic, check):
    """vmap, scan and grad within; the matrix is the same everywhere, its right sides are not."""
    a, b, c, _ = (x[0, 0] for x in systems())
    d = systems()[3]

    def march(function):
        return lambda *x: jax.lax.scan(lambda y, _: (function(*x[:3], y), None), x[3], length=2)[0]

    def functions(function):
        return (
            jax.vmap(function, (None, None, None, 0)),
            march(function),
            jax.grad(loss_of(function), 3),
            jax.checkpoint(march(function)),
        )

    specs = (NOTHING, NOTHING, NOTHING, P("p"))
    for function, wanted in zip(functions(solve), functions(dense_solve), strict=True):
        inside = jax.shard_map(function, mesh=automatic, in_specs=specs, out_specs=P("p"), check_vma=check)
        np.testing.assert_allclose(jax.jit(inside)(a, b, c, d), wanted(a, b, c, d), rtol=1e-9, atol=1e-12)
        found = jax.jit(jax.grad(loss_of(inside), ALL))(a, b, c, d)
        for x, y in zip(found, jax.grad(loss_of(wanted), ALL)(a, b, c, d), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


def test_a_sum_over_devices_inside_shard_map(automatic):
    """The gradient of a loss that is reduced inside, where every device has its own part."""
    arguments = systems()

    def total(*x):
        return jax.lax.psum(loss_of(solve)(*x), ("p", "q"))

    inside = jax.shard_map(total, mesh=automatic, in_specs=EVERYTHING, out_specs=P())
    wanted = jax.grad(loss_of(dense_solve), ALL)(*arguments)
    for x, y in zip(jax.jit(jax.grad(inside, ALL))(*arguments), wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


def test_shard_map_that_leaves_an_axis_to_the_compiler(automatic):
    arguments = place(automatic, systems(), (EVERYTHING,) * 4)
    inside = jax.shard_map(solve, mesh=automatic, in_specs=P("p"), out_specs=P("p"), axis_names={"p"})
    np.testing.assert_allclose(jax.jit(inside)(*arguments), dense_solve(*systems()), rtol=1e-12)


# ------------------------------------------------------------------------------------------------- recurrences


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).uniform(-0.5, 0.5, shape)


RECURRENCES = {  # a verb, its options, and the arguments with how they are sharded
    "first order": ("linear_recurrence", {}, ((values(*SHAPE), EVERYTHING), (values(*SHAPE), EVERYTHING))),
    "from a state": (
        "linear_recurrence",
        {"reverse": True},
        ((values(20), NOTHING), (values(*SHAPE), EVERYTHING), (values(8, 4), EVERYTHING)),
    ),
    "along the first axis": (
        "linear_recurrence",
        {"axis": 0},
        ((values(20, 8, 4), P(None, "p", "q")), (values(20, 8, 4), P(None, "p", "q"))),
    ),
    "logarithms": ("log_linear_recurrence", {}, ((values(4, 20), P("q")), (values(*SHAPE), EVERYTHING))),
    "matrices": (
        "matrix_recurrence",
        {},
        ((values(8, 4, 20, 3, 3), EVERYTHING), (values(8, 4, 20, 3), EVERYTHING), (values(4, 3), P("q"))),
    ),
    "one matrix": (
        "matrix_recurrence",
        {"reverse": True},
        ((values(3, 3), NOTHING), (values(8, 4, 20, 3), EVERYTHING)),
    ),
}


AT_ONCE = ("first order", "logarithms", "matrices")


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[] if case in AT_ONCE else [pytest.mark.slow]) for case in RECURRENCES]
)
def test_every_device_computes_its_sequences(mesh, case):
    verb, options, given = RECURRENCES[case]
    host, specs = zip(*given, strict=True)
    arguments = place(mesh, host, specs)

    def function(backend):
        return lambda *x: getattr(tridiag, verb)(*x, backend=backend, **options)

    compute, wanted = function("numba_scan"), function("jax_scan")
    y = jax.jit(compute)(*arguments)
    np.testing.assert_allclose(y, jax.jit(wanted)(*host), rtol=1e-9, atol=1e-12)
    program = compiled(compute, *arguments)
    assert not collectives(program)
    shape = y.sharding.shard_shape(y.shape)
    assert np.prod(shape) == y.size // DEVICES
    assert [f"= f64[{','.join(map(str, shape))}]" in call for call in custom_calls(program)] == [True]
    every = tuple(range(len(host)))
    gradient = jax.grad(loss_of(compute), every)
    for found, right in zip(
        jax.jit(gradient)(*arguments), jax.jit(jax.grad(loss_of(wanted), every))(*host), strict=True
    ):
        np.testing.assert_allclose(found, right, rtol=1e-9, atol=1e-12)
    assert collectives(compiled(gradient, *arguments)) <= {"all-reduce"}  # a sum over sequences that share an entry


@pytest.mark.parametrize(("case", "numbers"), [("first order", 3), ("matrices", 12)])
def test_no_array_is_gathered_where_the_axis_of_a_recurrence_is_sharded(mesh, case, numbers):
    """But some numbers of each sequence and a flag, and what is doubtful: `split_recurrences.py`."""
    verb, _, given = RECURRENCES[case]
    host = [x for x, _ in given[:2]]
    arguments = place(mesh, host, (P("p", None, "q"), P("p", None, "q")))
    compute = functools.partial(getattr(tridiag, verb), backend="numba_scan")
    wanted = getattr(tridiag, verb)(*host, backend="numpy_scan")
    np.testing.assert_allclose(jax.jit(compute)(*arguments), wanted, rtol=1e-9, atol=1e-12)
    program = compiled(compute, *arguments)
    program = program[program.index("ENTRY") :]
    assert collectives(program) == {"all-gather", "all-reduce"}
    assert f"f64[2,{numbers},{SHAPE[0] // 2 * SHAPE[1]}]" in program


def test_block_tridiagonal_systems_stay_where_they_are(mesh):
    A, B, C, d = values(8, 4, 5, 2, 2), values(5, 2, 2) + 4 * np.eye(2), values(2, 2), values(8, 4, 5, 2)
    arguments = place(mesh, (A, B, C, d), (EVERYTHING, NOTHING, NOTHING, EVERYTHING))
    x = jax.jit(tridiag.solve_block)(*arguments)
    np.testing.assert_allclose(x, tridiag.solve_block(A, B, C, d), rtol=1e-12)
    assert not collectives(compiled(tridiag.solve_block, *arguments))


def test_recurrences_inside_shard_map(automatic):
    for case in ("first order", "matrices"):
        verb, _, given = RECURRENCES[case]
        host = [x for x, _ in given[:2]]
        compute = functools.partial(getattr(tridiag, verb), backend="numba_scan")
        inside = jax.shard_map(compute, mesh=automatic, in_specs=EVERYTHING, out_specs=EVERYTHING)
        wanted = getattr(tridiag, verb)(*host, backend="numpy_scan")
        np.testing.assert_allclose(jax.jit(inside)(*host), wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["jax_scan", "numba_scan", pytest.param("jax_associative", marks=pytest.mark.slow)])
def test_kalman_filters_inside_shard_map(automatic, name):
    """Each device has its series, all of them the model; its gradient is summed over them."""
    y, F = values(8, 6, 1), 0.9 * np.eye(2) + 0.1
    rest = {"H": np.ones((1, 2)), "Q": np.eye(2), "R": np.eye(1), "m0": np.zeros(2), "P0": np.eye(2)}

    def likelihood(y, F, backend=name):
        return tridiag.kalman.log_likelihood(y, F=F, backend=backend, **rest)

    specs = {"mesh": automatic, "in_specs": (P(("p", "q")), P()), "out_specs": P(("p", "q"))}
    inside = jax.jit(jax.shard_map(likelihood, **specs))
    np.testing.assert_allclose(inside(y, F), likelihood(y, F, "numpy_scan"), rtol=1e-12)
    found = jax.jit(jax.grad(lambda F: inside(y, F).sum()))(F)
    wanted = jax.grad(lambda F: likelihood(jnp.asarray(y), F, "jax_scan").sum())(jnp.asarray(F))
    np.testing.assert_allclose(found, wanted, rtol=1e-10)
    if name != "numba_scan":
        smoothed = jax.shard_map(
            lambda y: tridiag.kalman.smoother(y, F=F, backend=name, **rest).mean, **specs | {"in_specs": P(("p", "q"))}
        )
        np.testing.assert_allclose(jax.jit(smoothed)(y), tridiag.kalman.smoother(y, F=F, **rest).mean, rtol=1e-10)
