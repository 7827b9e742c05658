"""Recurrences whose rows lie on eight devices, or on some of them. Run by `test_sharding.py`, in their own process."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from test_jax_program import compiled, copies, custom_calls

import tridiag
from tridiag.kernels.jobs import systems
from tridiag.xla import custom_call, split_recurrences
from tridiag.xla.exchange import WORTH_TWO

VERBS = ("linear_recurrence", "log_linear_recurrence", "logcumsumexp")


def mesh_of(devices: int, kind: Any = AxisType.Auto) -> Mesh:
    return jax.make_mesh((devices,), ("z",), axis_types=(kind,), devices=jax.devices()[:devices])


def placed(mesh: Mesh, arrays: Any, axis: int = -1) -> list[Any]:
    """Cut along an axis, but those that are constant along it."""
    found = []
    for x in arrays:
        x = jnp.asarray(x)
        spec = P() if x.ndim == 0 or x.shape[axis] == 1 else P(*[None] * (axis % x.ndim), "z")
        found.append(jax.device_put(x, NamedSharding(mesh, spec)))
    return found


def random(rng: Any, shape: tuple[int, ...], dtype: str = "float64") -> Any:
    x = rng.uniform(-1, 1, shape)
    if np.dtype(dtype).kind == "c":
        x = x * np.exp(2j * np.pi * rng.uniform(size=shape))
    return x.astype(dtype)


def operands(rng: Any, verb: str, shape: tuple[int, ...], dtype: str = "float64") -> list[Any]:
    return [random(rng, shape, dtype) for _ in range(1 if verb == "logcumsumexp" else 2)]


def compute(verb: str, init: Any = None, **options: Any) -> Callable[..., Any]:
    """The verb as a function of arrays alone."""
    more = {} if init is None else {"init": init}
    return lambda *v: getattr(tridiag, verb)(*v, backend="numba_scan", **more, **options)


def outside_branches(program: str) -> str:
    """The program without what only doubtful sequences need: the branches of its conditionals."""
    return program[program.index("ENTRY") :]


def gathered(program: str) -> list[tuple[int, ...]]:
    """The shapes of what is gathered."""
    found = re.findall(r"= [a-z]+\d+\[([\d,]*)\]\S* all-gather\(", program)
    return [tuple(int(k) for k in shape.split(",") if k) for shape in found]


def assert_alike(found: Any, wanted: Any, factor: float = 64) -> None:
    eps = np.finfo(found.dtype).eps
    np.testing.assert_allclose(found, wanted, rtol=factor * eps, atol=factor * eps)


@pytest.mark.parametrize(("started", "reverse"), [(False, True), (True, False)])
@pytest.mark.parametrize(
    ("devices", "rows", "dtype"), [(8, 1, "float64"), (2, 2, "float64"), (3, 33, "float32"), (8, 70, "float64")]
)
@pytest.mark.parametrize("verb", VERBS)
def test_one_answer(verb: str, devices: int, rows: int, dtype: str, started: bool, reverse: bool) -> None:
    """That of one device, along any axis; without init no coefficient is read that would multiply it."""
    rng, shape = np.random.default_rng(rows), (9, devices * rows)
    arrays, init = operands(rng, verb, shape, dtype), None
    if started and verb != "logcumsumexp":
        init = random(rng, shape[:1], dtype)
    elif verb != "logcumsumexp":
        arrays[0][:, -1 if reverse else 0] = np.nan
    function = compute(verb, init, reverse=reverse)
    wanted = function(*arrays)
    y = jax.jit(function)(*placed(mesh_of(devices), arrays))
    assert_alike(y, wanted)
    assert y.dtype == dtype and y.sharding.spec == P(None, "z")
    turned = [np.ascontiguousarray(x.T) for x in arrays]
    along_first = compute(verb, init, reverse=reverse, axis=0)
    assert_alike(jax.jit(along_first)(*placed(mesh_of(devices), turned, 0)), wanted.T)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit], ids=str)
def test_eager_calls(kind: Any) -> None:
    rng, mesh = np.random.default_rng(3), mesh_of(8, kind)
    for verb in VERBS:
        arrays = operands(rng, verb, (3, 64))
        y = compute(verb)(*placed(mesh, arrays))
        assert_alike(y, compute(verb)(*arrays))
        assert y.sharding.is_equivalent_to(NamedSharding(mesh, P(None, "z")), 2)
        if verb != "logcumsumexp":
            for reverse, jit in itertools.product((False, True), (jax.jit, lambda function: function)):
                both = jit(compute(verb, return_final=True, reverse=reverse))(*placed(mesh, arrays))
                for found, wanted in zip(both, compute(verb, return_final=True, reverse=reverse)(*arrays), strict=True):
                    assert_alike(found, wanted)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_numbers(dtype: str) -> None:
    rng = np.random.default_rng(4)
    for reverse, init in itertools.product([False, True], [None, random(rng, (5,), dtype)]):
        a, x = random(rng, (5, 240), dtype), random(rng, (5, 240), dtype)
        function = compute("linear_recurrence", init, reverse=reverse)
        assert_alike(jax.jit(function)(*placed(mesh_of(8), (a, x))), function(a, x))


def test_long_sequences_and_constant_coefficients() -> None:
    """Whose rows on a device are cut into chunks, a few are in none; one coefficient of all, or of each sequence."""
    rng = np.random.default_rng(5)
    x, a = random(rng, (2, 8 * 17_003)), random(rng, (2, 8 * 17_003))
    for coefficient in (a, a[:, :1]):
        function = compute("linear_recurrence")
        assert_alike(jax.jit(function)(*placed(mesh_of(8), (coefficient, x))), function(coefficient, x))
        function = compute("log_linear_recurrence", reverse=True)
        assert_alike(jax.jit(function)(*placed(mesh_of(8), (coefficient, x))), function(coefficient, x))
    assert_alike(jax.jit(compute("logcumsumexp"))(*placed(mesh_of(8), (x,))), compute("logcumsumexp")(x))


@pytest.mark.parametrize(("devices", "n", "reverse"), [(4, 10, False), (8, 61, True)])
def test_rows_that_devices_do_not_divide(devices: int, n: int, reverse: bool) -> None:
    """The last devices have fewer, or none, and nothing of what they have in their place is in the result."""
    rng, mesh = np.random.default_rng(n), mesh_of(devices)
    cut = NamedSharding(mesh, P(None, "z"))
    A, v = random(rng, (5, n, 2, 2)), random(rng, (5, n, 2))
    cases = [(verb, operands(rng, verb, (5, n)), started) for verb in VERBS for started in (False, True)]
    cases += [("matrix_recurrence", [A, v], False), ("matrix_recurrence", [A, v], True)]
    for verb, arrays, started in cases:
        init = None
        if verb != "logcumsumexp" and started:
            init = random(rng, (5, 2) if verb == "matrix_recurrence" else (5,))
        elif verb != "logcumsumexp":
            arrays[0][:, -1 if reverse else 0] = np.nan
        function = compute(verb, init, reverse=reverse)

        def here(*v: Any, function: Any = function) -> Any:
            return jnp.asarray(function(*(jax.lax.with_sharding_constraint(x, cut) for x in v)))

        assert_alike(jax.jit(here)(*arrays), function(*arrays))


@pytest.mark.parametrize(("order", "rows"), [(2, 12), (3, 1), (4, 3)])
def test_higher_orders(order: int, rows: int) -> None:
    """As many numbers of each device, a unit of the state each; of fewer rows than these, all rows are gathered."""
    rng, n = np.random.default_rng(order), 8 * rows
    for reverse, started in itertools.product([False, True], [False, True]):
        x, *coefficients = (random(rng, (3, n)) / (order if k else 1) for k in range(order + 1))
        init = tuple(random(rng, (3,)) for _ in range(order)) if started else None
        if not started:
            coefficients[-1][:, n - order :] = np.nan if reverse else coefficients[-1][:, n - order :]
            coefficients[-1][:, :order] = coefficients[-1][:, :order] if reverse else np.nan
        function = compute("linear_recurrence", init, reverse=reverse)

        def flat(x: Any, *coefficients: Any, function: Any = function) -> Any:
            return function(coefficients, x)

        assert_alike(jax.jit(flat)(*placed(mesh_of(8), (x, *coefficients))), flat(x, *coefficients))


@pytest.mark.smoke
@pytest.mark.parametrize("started", [False, True])
def test_matrices(started: bool) -> None:
    rng = np.random.default_rng(7)
    A, x = random(rng, (4, 40, 3, 3)) / 2, random(rng, (4, 40, 3))
    function = compute("matrix_recurrence", random(rng, (4, 3)) if started else None)
    arrays = [jax.device_put(v, NamedSharding(mesh_of(8), P(None, "z"))) for v in (A, x)]
    assert_alike(jax.jit(function)(*arrays), function(A, x))


def test_states_that_fall_by_many_decades() -> None:
    """What the rows of a device make of a unit is 0, and of the state before them is not: order 2, and matrices."""
    n, x = 128, np.zeros((2, 128))
    x[0, 15::32], x[1, 31::32] = 1e300, -1e300
    a = np.full((2, n), 1e-45)

    def second(x: Any, a: Any) -> Any:
        return tridiag.linear_recurrence((a, a), x, backend="numba_scan")

    found, right = jax.jit(second)(*placed(mesh_of(8), (x, a))), second(x, a)
    np.testing.assert_allclose(found, right, rtol=1e-12)
    A, vectors = np.tile(1e-23 * np.array([[1.0, 0.5], [0.2, 1.0]]), (n, 1, 1)), x.T
    arrays = [jax.device_put(v, NamedSharding(mesh_of(8), P("z"))) for v in (A, vectors)]
    function = compute("matrix_recurrence")
    np.testing.assert_allclose(jax.jit(function)(*arrays), function(A, vectors), rtol=1e-12)


# ------------------------------------------------------------------------------------------------ what is exchanged


@pytest.mark.parametrize(("verb", "words"), [*zip(VERBS, (3, 3, 1), strict=True)])
def test_words_that_are_exchanged(verb: str, words: int) -> None:
    """So many of a sequence and device in one collective, whatever its length."""
    arrays = placed(mesh_of(8), operands(np.random.default_rng(8), verb, (5, 160)))
    program = outside_branches(compiled(compute(verb), *arrays))
    assert [np.prod(shape) for shape in gathered(program)] == [8 * 5 * words]
    assert not re.findall(r"(all-to-all|collective-permute|reduce-scatter)\(", program)
    reduced = re.findall(r"= (\S+) all-reduce\(", program)
    assert reduced == ([] if verb == "logcumsumexp" else ["s32[]"])  # a flag


@pytest.mark.usefixtures("benchmarks_on_path")
@pytest.mark.parametrize(("verb", "words"), [*zip(VERBS, (4, 4, 2), strict=True)])
def test_words_of_many_sequences(verb: str, words: int) -> None:
    """Each device scans its share of them: what it is told of these, and states that it returns; right and in place."""
    from collectives import exchange

    count = 8 * WORTH_TWO + 5  # which the devices do not divide
    arrays = operands(np.random.default_rng(8), verb, (count, 40))
    given = placed(mesh_of(8), arrays)
    found = exchange(compiled(compute(verb), *given), 8)
    assert found.collectives == 2
    assert words * 7 / 8 * count <= found.words <= words * 7 / 8 * (count + 8)
    for reverse in (False, True):
        init = None if verb == "logcumsumexp" else random(np.random.default_rng(9), (count,))
        function = compute(verb, init, reverse=reverse)
        assert_alike(jax.jit(function)(*given), function(*arrays))


@pytest.mark.usefixtures("benchmarks_on_path")
@pytest.mark.parametrize("rows", [64, 200, 1024])
@pytest.mark.parametrize("verb", ["linear_recurrence", "log_linear_recurrence"])
def test_products_that_decay(verb: str, rows: int) -> None:
    """One number a sequence goes to the neighbour, until a product of some sequence does not decay."""
    from collectives import exchange

    logarithms, rng = verb.startswith("log"), np.random.default_rng(3)
    a, x = rng.uniform(-0.5, 0.5, (4, 3 * rows)), rng.standard_normal((4, 3 * rows))
    slow, far = a.copy(), x.copy()
    slow[2] = 0.99
    before = max(0, rows - (300 if rows > 300 else 150))
    far[1, before : before + 10] = 1e300  # what comes before the last rows is so large that it counts
    arrays = [[np.log(abs(v)) if logarithms else v, w] for v, w in ((a, x), (slow, x), (a, far))]
    for reverse in (False, True):
        program = compiled(compute(verb, reverse=reverse), *placed(mesh_of(3), arrays[0]))
        assert exchange(program, 3) == (1, 4)
        for given in arrays:
            found = jax.jit(compute(verb, reverse=reverse))(*placed(mesh_of(3), given))
            assert_alike(found, compute(verb, reverse=reverse)(*given))


def test_states_of_many_sequences() -> None:
    """Of several numbers, real and complex, which devices return to each other."""
    rng, shape = np.random.default_rng(9), (2, 4 * WORTH_TWO, 16, 3)  # axes on either side of the rows
    along = NamedSharding(mesh_of(8), P(None, None, "z"))
    x, a, b = (random(rng, shape[:3], "complex128") / 2 for _ in range(3))
    A, v = random(rng, (*shape, 3)) / 2, random(rng, shape)
    for function, arrays in (
        (lambda x, a: tridiag.linear_recurrence(a, x, x[..., 0], reverse=True), (x, a)),
        (lambda x, a, b: tridiag.linear_recurrence((a, b), x, (x[..., 0], x[..., 1])), (x, a, b)),
        (lambda A, v: tridiag.matrix_recurrence(A, v, v[..., 0, :]), (A, v)),
    ):
        given = [jax.device_put(v, along) for v in arrays]
        program = compiled(function, *given)
        assert len(re.findall(r" all-to-all\(", outside_branches(program))) == 2
        assert_alike(jax.jit(function)(*given), function(*arrays))


@pytest.mark.parametrize("verb", VERBS)
def test_no_array_is_copied(verb: str) -> None:
    """Whichever axis is cut: what gathers doubtful sequences has no say in how arrays lie."""
    for axis, shape, local in ((1, (5, 160), (5, 20)), (0, (160, 24), (20, 24)), (1, (3, 160, 4), (3, 20, 4))):
        arrays = placed(mesh_of(8), operands(np.random.default_rng(8), verb, shape), axis)
        program = outside_branches(compiled(compute(verb, axis=axis), *arrays))
        assert not copies(program, local)
        assert not re.findall(rf"\[{','.join(map(str, local))}\]\S* fusion\(", program)


def test_devices_share_the_threads_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of sixteen threads each of eight devices has two, whether they have rows or whole sequences; one alone all."""
    given, mesh, verb = operands(np.random.default_rng(17), "linear_recurrence", (1024, 2048)), mesh_of(8), "scan1"
    for module in (custom_call, systems):
        monkeypatch.setattr(module, "threads", lambda: 16)

    def helpers(function: Any, arrays: Any) -> set[int]:
        """The words behind a job: the helpers, the bytes of its one result, a place of it and of each operand."""
        calls = [call for call in custom_calls(jax.jit(function).lower(*arrays).compile().as_text()) if verb in call]
        counts = [call.partition("custom-call(")[2].partition(")")[0].count("%") for call in calls]
        jobs = [re.findall(r"job = dense<\[([-\d, ]+)\]>", call)[0].split(", ") for call in calls]
        return {int(job[-count - 3]) for job, count in zip(jobs, counts, strict=True)}

    function = compute("linear_recurrence")
    assert helpers(function, placed(mesh, given)) == helpers(function, placed(mesh, given, 0)) == {1}
    assert helpers(jax.shard_map(function, mesh=mesh, in_specs=P("z"), out_specs=P("z")), given) == {1}
    assert helpers(function, [jax.device_put(x, jax.devices()[0]) for x in given]) == {15}


def test_explain_tells_what_is_exchanged() -> None:
    rng = np.random.default_rng(12)
    a, x = placed(mesh_of(8), [random(rng, (4, 80)) for _ in range(2)])
    words = {"linear_recurrence": 21, "log_linear_recurrence": 21}
    for verb, count in words.items():
        told = repr(tridiag.explain(verb, a, x))
        assert f"the rows of a sequence lie on 8 devices: one all_gather, {count} words received for each" in told
        assert "doubtful sequences are gathered alone" in told
    assert "one all_gather, 7 words received for each sequence" in repr(tridiag.explain("logcumsumexp", x))
    assert "one all_gather, 42 words" in repr(tridiag.explain("linear_recurrence", (a, a), x))
    A, v = (jax.device_put(random(rng, (4, 80, *more)), x.sharding) for more in ((3, 3), (3,)))
    assert "one all_gather, 84 words" in repr(tridiag.explain("matrix_recurrence", A, v))
    many = placed(mesh_of(8), [random(rng, (8 * WORTH_TWO, 80)) for _ in range(2)])
    assert "two all_to_all, 3.5 words received for each" in repr(tridiag.explain("linear_recurrence", *many))
    assert "and are gathered" in repr(tridiag.explain("linear_recurrence", a, x, backend="jax_scan"))


def test_explain_tells_that_scores_are_gathered() -> None:
    rng, mesh = np.random.default_rng(13), jax.make_mesh((2, 4), ("p", "q"), axis_types=(AxisType.Auto,) * 2)
    scores = random(rng, (8, 16, 24))
    for spec, devices in ((P(None, "p"), 2), (P(None, None, "q"), 4), (P(None, "p", "q"), 8)):
        told = tridiag.explain("smith_waterman", jax.device_put(scores, NamedSharding(mesh, spec)), gap=-1.0).exchange
        assert told == f"the scores of a pair lie on {devices} devices, and are gathered"
    batch = jax.device_put(scores, NamedSharding(mesh, P(("p", "q"))))
    assert tridiag.explain("smith_waterman", batch, gap=-1.0).exchange is None


def test_a_mesh_axis_on_the_batch_and_two_on_the_rows() -> None:
    rng = np.random.default_rng(9)
    mesh = jax.make_mesh((2, 2, 2), ("p", "q", "r"), axis_types=(AxisType.Auto,) * 3)
    for spec in (P("p", ("q", "r")), P(None, ("r", "p")), P(("p", "r"), "q")):
        for verb in VERBS:
            arrays = operands(rng, verb, (4, 48))
            given = [jax.device_put(x, NamedSharding(mesh, spec)) for x in arrays]
            y = jax.jit(compute(verb, reverse=True))(*given)
            assert_alike(y, compute(verb, reverse=True)(*arrays))
            assert y.sharding.is_equivalent_to(given[0].sharding, 2)


@pytest.mark.parametrize(
    ("verb", "order"), [("linear_recurrence", 1), ("linear_recurrence", 3), ("log_linear_recurrence", 1)]
)
def test_neighbours_along_axes_in_another_order_than_the_mesh(verb: str, order: int) -> None:
    """States that neighbours tell, and coefficients of a gradient, follow the order in which axes are named."""
    rng = np.random.default_rng(4)
    mesh = jax.make_mesh((2, 4), ("p", "q"), axis_types=(AxisType.Auto,) * 2)
    *a, x = (random(rng, (4, 640)) / order for _ in range(order + 1))

    def loss(a: Any, x: Any) -> Any:
        y = compute(verb)(a[0] if order == 1 else tuple(a), x)
        return jnp.sum(y * jnp.cos(jnp.arange(y.size)).reshape(y.shape)), y

    both = jax.jit(jax.value_and_grad(loss, (0, 1), has_aux=True))
    spread = NamedSharding(mesh, P(None, ("q", "p")))
    found = both(*jax.tree.map(lambda v: jax.device_put(v, spread), (a, x)))
    for u, v in zip(jax.tree.leaves(found), jax.tree.leaves(both(a, x)), strict=True):
        np.testing.assert_allclose(u, v, rtol=1e-11, atol=1e-12)


# ------------------------------------------------------------------------------------------------ ranges and doubts


def exactly(function: Any, *arrays: Any, atol: float = 1e-300) -> None:
    """The same numbers as on one device, NaN and infinite ones in the same places."""
    with np.errstate(all="ignore"):
        wanted = np.asarray(function(*arrays))
    found = np.asarray(jax.jit(function)(*placed(mesh_of(8), arrays)))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(found[~finite & ~np.isnan(wanted)], wanted[~finite & ~np.isnan(wanted)])
    np.testing.assert_allclose(found[finite], wanted[finite], rtol=1e-11, atol=atol)


def test_products_that_leave_the_range_of_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """a = 10 over many rows from 0, and where only the last rows are not 0; there and back. No sequence is gathered."""
    monkeypatch.setattr(split_recurrences, "gathered", lambda part, y, doubtful: y * jnp.nan)
    n = 2**17
    x, a = np.zeros((4, n)), np.full((4, n), 10.0)
    a[1, ::2] = 0.1
    x[1, 0], x[2, n - 200], x[3, 0] = 1.0, 1e-100, 1e-300
    a[3] = np.tile(np.repeat([10.0, 0.1], 400), n)[:n]
    exactly(compute("linear_recurrence"), a, x)
    exactly(compute("linear_recurrence", reverse=True), a[:, ::-1], x[:, ::-1])


def test_overflow_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is NaN or infinite from some row on is known without gathering anything."""
    monkeypatch.setattr(split_recurrences, "gathered", lambda part, y, doubtful: jnp.zeros_like(y))
    x, a = np.ones((4, 72)), np.full((4, 72), 0.5)
    x[0, 20], x[1, 20], a[2, 30], a[3] = np.nan, np.inf, np.nan, 1e30
    exactly(compute("linear_recurrence"), a, x)
    exactly(compute("log_linear_recurrence"), a, x)


@pytest.mark.parametrize("verb", ["linear_recurrence", "log_linear_recurrence"])
def test_what_is_not_finite(verb: str) -> None:
    """Infinite and NaN coefficients and terms, zeros before them, and overflows on the way."""
    rng = np.random.default_rng(10)
    a, x = operands(rng, verb, (12, 64))
    for k, value in enumerate((np.inf, -np.inf, np.nan, 1e308, -1e308)):
        a[k, 20], x[k + 5, 20] = value, value
    x[:2, :20] = 0
    x[10], a[10] = 0, np.where(np.arange(64) < 30, 1e300, 1e-300)
    x[10, 20] = 1e-5
    for init in (None, np.linspace(-2, 2, 12), np.zeros(12)):
        for reverse in (False, True):
            exactly(compute(verb, init, reverse=reverse), a, x, atol=1e-14)
    exactly(compute("logcumsumexp"), x, atol=1e-14)


def test_cancellation() -> None:
    """Sequences that grow but where integers cancel: what is carried over a cut is what a loop carries."""
    a, x = np.full((2, 160), 2.0), np.full((2, 160), -1.0)
    a[1], x[1] = -3.0, 4.0
    exactly(compute("linear_recurrence", np.ones(2)), a, x)


# ------------------------------------------------------------------------------------------------ derivatives


@pytest.mark.parametrize(
    ("verb", "reverse"), [*((verb, False) for verb in (*VERBS, "matrix_recurrence")), ("linear_recurrence", True)]
)
def test_gradients(verb: str, reverse: bool) -> None:
    """Those of one device, and in one direction; no array is gathered for them."""
    rng = np.random.default_rng(11)
    matrices = verb == "matrix_recurrence"
    arrays = [random(rng, (3, 80, 2, 2)), random(rng, (3, 80, 2))] if matrices else operands(rng, verb, (3, 80))
    mesh = mesh_of(8)
    given = [jax.device_put(x, NamedSharding(mesh, P(None, "z"))) for x in arrays]
    function, every = compute(verb, reverse=reverse), tuple(range(len(arrays)))

    def loss(*v: Any) -> Any:
        return jnp.sin(function(*v)).sum()

    gradient = jax.grad(loss, every)
    for found, wanted in zip(jax.jit(gradient)(*given), gradient(*map(jnp.asarray, arrays)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-12)
    tangent = jax.jit(lambda *v: jax.jvp(function, v, v)[1])
    np.testing.assert_allclose(tangent(*given), tangent(*map(jnp.asarray, arrays)), rtol=1e-11, atol=1e-12)
    most = max((int(np.prod(s)) for s in gathered(outside_branches(compiled(gradient, *given)))), default=0)
    assert most <= 8 * 3 * (6 if matrices else 3)


@pytest.mark.parametrize("rows", [1, 2, 6])
def test_gradients_of_higher_orders(rows: int) -> None:
    """Whose coefficients move by rows that may lie on several devices."""
    rng = np.random.default_rng(13)
    x, *coefficients = (random(rng, (3, 4 * rows)) / 2 for _ in range(4))
    function = compute("linear_recurrence")

    def loss(x: Any, *coefficients: Any) -> Any:
        return jnp.sin(function(coefficients, x)).sum()

    gradient = jax.grad(loss, (0, 1, 2, 3))
    found = jax.jit(gradient)(*placed(mesh_of(4), (x, *coefficients)))
    for y, z in zip(found, gradient(*map(jnp.asarray, (x, *coefficients))), strict=True):
        np.testing.assert_allclose(y, z, rtol=1e-11, atol=1e-12)


# ------------------------------------------------------------------------------------------------ inside shard_map


ROWS = P(None, "z")


def inside(function: Callable[..., Any], mesh: Mesh, specs: Any, out: Any = ROWS, **options: Any) -> Any:
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=out, **options))


def case_of(rng: Any, verb: str, n: int) -> tuple[list[Any], list[Any]]:
    """Arrays with rows, and the values before the first."""
    if verb == "matrix_recurrence":
        return [random(rng, (3, n, 2, 2)), random(rng, (3, n, 2))], [random(rng, (3, 2))]
    if verb == "third order":
        return [random(rng, (3, n)) / 2 for _ in range(4)], [random(rng, (3,)) for _ in range(3)]
    return operands(rng, verb, (3, n)), [] if verb == "logcumsumexp" else [random(rng, (3,))]


def called(verb: str, rows: list[Any], init: list[Any], **options: Any) -> Any:
    if verb == "third order":
        return tridiag.linear_recurrence((*rows[:3],), rows[3], (*init,) or None, **options)
    return getattr(tridiag, verb)(*rows, *init, **options)


@pytest.mark.parametrize("verb", ["linear_recurrence", "third order"])
def test_last_values_on_a_mesh_of_one_device(verb: str) -> None:
    """JAX is told that they are the same on all devices."""
    arrays, init = case_of(np.random.default_rng(0), verb, 5)
    count = len(arrays)

    def last(*v: Any, **options: Any) -> Any:
        return called(verb, list(v[:count]), list(v[count:]), return_final=True, **options)[1]

    wanted = last(*arrays, *init)
    out = jax.tree.map(lambda _: P(), wanted)
    cut = inside(lambda *v: last(*v, axis_name="z"), mesh_of(1), (ROWS,) * count + (P(),) * len(init), out)
    for x, y in zip(jax.tree.leaves(cut(*arrays, *init)), jax.tree.leaves(wanted), strict=True):
        assert_alike(x, y)


@pytest.mark.parametrize(
    ("devices", "rows", "name", "reverse"),
    [(8, 5, "numba_scan", False), (3, 2, "jax_scan", True), (4, 1, "numba_scan", True)],
)
@pytest.mark.parametrize("verb", [*VERBS, "matrix_recurrence", "third order"])
def test_by_the_name_of_the_axis(verb: str, devices: int, rows: int, name: str, reverse: bool) -> None:
    """Values, the last ones on every device, tangents, and gradients, of what is before the first row too."""
    rng = np.random.default_rng(rows)
    arrays, init = case_of(rng, verb, devices * rows)
    count, final = len(arrays), verb != "logcumsumexp"
    options = {"reverse": reverse, "backend": name} | ({"return_final": True} if final else {})

    def function(*v: Any, **more: Any) -> Any:
        return called(verb, list(v[:count]), list(v[count:]), **options, **more)

    def local(*v: Any) -> Any:
        return function(*v, axis_name="z")

    given = [jnp.asarray(x) for x in (*arrays, *init)]
    out = (ROWS, jax.tree.map(lambda _: P(), function(*given)[1])) if final else ROWS
    cut = inside(local, mesh_of(devices), (ROWS,) * count + (P(),) * len(init), out)

    def everything(function: Any) -> Any:
        def loss(*v: Any) -> Any:
            return sum(jnp.sin(x).sum() for x in jax.tree.leaves(function(*v)))

        return function(*given), jax.jvp(function, given, given)[1], jax.grad(loss, (*range(len(given)),))(*given)

    for y, z in zip(*map(jax.tree.leaves, (everything(cut), everything(function))), strict=True):
        np.testing.assert_allclose(y, z, rtol=1e-11, atol=1e-12)


def test_a_gradient_inside() -> None:
    """Of a sum over the devices, with respect to the rows of one."""
    rng = np.random.default_rng(14)
    for verb in ("linear_recurrence", "log_linear_recurrence", "matrix_recurrence", "third order"):
        rows, _ = case_of(rng, verb, 24)

        def loss(*v: Any, verb: str = verb, **more: Any) -> Any:
            return jnp.sin(called(verb, [*v], [], **more)).sum()

        def local(*v: Any, loss: Any = loss) -> Any:
            return jax.grad(lambda *v: jax.lax.psum(loss(*v, axis_name="z"), "z"), (*range(len(v)),))(*v)

        found = inside(local, mesh_of(4), ROWS, ROWS)(*rows)
        for y, z in zip(found, jax.grad(loss, (*range(len(rows)),))(*map(jnp.asarray, rows)), strict=True):
            np.testing.assert_allclose(y, z, rtol=1e-11, atol=1e-12)


def test_what_only_shard_map_has() -> None:
    """vmap in it, two axes of the mesh, no types of what varies, and a constant on each device which differs."""
    rng = np.random.default_rng(15)
    a, x = (random(rng, (3, 24)) for _ in range(2))
    wanted = tridiag.linear_recurrence(a, x)
    rowwise = inside(jax.vmap(lambda a, x: tridiag.linear_recurrence(a, x, axis_name="z")), mesh_of(4), ROWS)
    assert_alike(rowwise(a, x), wanted)
    mesh = jax.make_mesh((2, 4), ("y", "z"), axis_types=(AxisType.Auto,) * 2)
    spec = P(None, ("y", "z"))
    both = inside(lambda a, x: tridiag.linear_recurrence(a, x, axis_name=("y", "z")), mesh, spec, spec)
    assert_alike(both(a, x), wanted)
    unchecked = inside(lambda a, x: tridiag.linear_recurrence(a, x, axis_name="z"), mesh_of(4), ROWS, check_vma=False)
    assert_alike(unchecked(a, x), wanted)
    each = np.repeat(random(rng, (3, 4)), 6, 1)  # one coefficient of a device

    def loss(x: Any, *coefficients: Any, **more: Any) -> Any:
        return jnp.sin(tridiag.linear_recurrence(coefficients, x, **more)).sum()

    def local(x: Any, *coefficients: Any) -> Any:
        constants = [c[:, :1] for c in coefficients]
        return jax.grad(lambda x: jax.lax.psum(loss(x, *constants, axis_name="z"), "z"))(x)

    for orders in (1, 2):
        found = inside(local, mesh_of(4), ROWS)(x, *(each,) * orders)
        np.testing.assert_allclose(found, jax.grad(loss)(jnp.asarray(x), *(each,) * orders), rtol=1e-11, atol=1e-12)


def test_words_exchanged_inside() -> None:
    """As many as of arrays that are sharded: three of a sequence and device."""
    a, x = operands(np.random.default_rng(8), "linear_recurrence", (5, 160))
    function = inside(lambda a, x: tridiag.linear_recurrence(a, x, axis_name="z"), mesh_of(8), ROWS)
    program = outside_branches(function.lower(a, x).compile().as_text())
    assert [np.prod(shape) for shape in gathered(program)] == [8 * 5 * 3]
    assert not re.findall(r"(all-to-all|collective-permute|reduce-scatter)\(", program)


def test_axis_names_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"z is no axis of jax.shard_map here; call tridiag.logcumsumexp inside of it"):
        tridiag.logcumsumexp(np.ones(3), axis_name="z")
    with pytest.raises(TypeError, match="out does not go with axis_name"):
        inside(lambda x: tridiag.linear_recurrence(0.5, x, axis_name="z", out=np.ones((2, 2))), mesh_of(4), ROWS)(
            jnp.ones((2, 8))
        )
