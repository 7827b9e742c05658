"""`jax_pallas` without a GPU: interpreted, on a model of a block, and lowered."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from helpers import assert_same_bits, assert_solves, dominant, installed, oracle, uniform, zero_diagonal

import tridiag
from tridiag.backends import BACKENDS, Problem
from tridiag.calls.plan import cached_plan
from tridiag.problems.forms import Form
from tridiag.selection.choose import choose, eligible

if reason := BACKENDS["jax_pallas"].missing():
    pytest.skip(reason, allow_module_level=True)

import jax
import jax.numpy as jnp
import warpgroup

from tridiag.kernels.pallas import access, thomas
from tridiag.kernels.pallas import job as pallas_job

NAME = "jax_pallas"
backend = importlib.import_module(f"tridiag.backends.{NAME}")
REALS = ("float32", "float64")
ROWS = (1, 2, 3, 17, 33, 100)
LAYOUTS = {  # the shape of systems of n rows, and their axis; none fills its blocks
    "rows": (lambda n: (130, n), 1),
    "few rows": (lambda n: (5, n), 1),
    "one": (lambda n: (n,), 0),
    "columns": (lambda n: (n, 131), 0),
    "few columns": (lambda n: (n, 3), 0),
    "between": (lambda n: (3, n, 130), 1),
    "narrow": (lambda n: (70, n, 3), 1),
    "two": (lambda n: (3, 5, n, 7), 2),
}
BLOCKS = [(LAYOUTS["rows"][0](11), 1), (LAYOUTS["columns"][0](11), 0), (LAYOUTS["narrow"][0](11), 1)]


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The CPU passes for a device of the backend."""
    monkeypatch.setitem(BACKENDS, NAME, dataclasses.replace(BACKENDS[NAME], devices=("cuda", "cpu")))
    cached_plan.cache_clear()
    jax.clear_caches()
    yield
    cached_plan.cache_clear()
    jax.clear_caches()


@pytest.fixture
def interpreted(pretended: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "INTERPRET", True)


def solve(*given: Any, **options: Any) -> Any:
    given = tuple(jnp.asarray(x) if isinstance(x, np.ndarray) else x for x in given)
    return tridiag.solve(*given, backend=NAME, **options)


def system(layout: str, n: int, dtype: str = "float64", family: Any = dominant) -> tuple[list[np.ndarray], int]:
    shape, axis = LAYOUTS[layout]
    return family(shape(n), dtype, axis), axis


def mask(shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(1).uniform(size=shape) < 0.8


# ---------------------------------------------------------------------------------------------- interpreted

CASES = [
    *((n, layout, REALS[k % 2]) for k, (n, layout) in enumerate(itertools.product(ROWS, ("rows", "columns")))),
    *((n, layout, REALS[(n + k) % 2]) for k, (n, layout) in enumerate(itertools.product((3, 17), LAYOUTS))),
]


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("n", "layout", "dtype"), sorted(set(CASES)))
def test_solves(n: int, layout: str, dtype: str) -> None:
    given, axis = system(layout, n, dtype)
    for x in given[:3:2]:
        end = [slice(None)] * x.ndim
        end[axis] = 0 if x is given[0] else -1
        x[tuple(end)] = np.nan  # pads are never read
    x = solve(*given, axis=axis)
    assert x.dtype == dtype
    given[0], given[2] = (np.nan_to_num(v) for v in (given[0], given[2]))
    assert_solves(x, *given, axis=axis)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("shape", "axis"), BLOCKS, ids=str)
@pytest.mark.parametrize(("transpose", "masked"), [(True, False), (False, True), (True, True)])
def test_masks_and_transposes(shape: Any, axis: int, transpose: bool, masked: bool) -> None:
    given = dominant(shape, "float64" if masked else "float32", axis)
    where = mask(shape) if masked else None
    x = solve(*given, axis=axis, where=where, transpose=transpose)
    assert_solves(x, *given, axis=axis, where=where, transpose=transpose)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("layout", "dtype"), [("rows", "float32"), ("columns", "float64")])
def test_what_does_not_fit_into_shared_memory(layout: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pallas_job, "SHARED_BYTES", 0)
    given, axis = system(layout, 21, dtype)
    assert_solves(solve(*given, axis=axis), *given, axis=axis)


SHARED = {  # shapes of a, b, c and d, and the axis
    "a matrix of right sides in rows": ((9,), (9,), (9,), (140, 9), 1),
    "a matrix of right sides in columns": ((9, 1), (9, 1), (9, 1), (9, 140), 0),
    "constants": ((), (), (), (140, 9), 1),
    "constant along the systems": ((140, 1), (140, 1), (140, 1), (140, 9), 1),
    "constant along the systems, columns": ((1, 140), (1, 140), (1, 140), (9, 140), 0),
    "matrices of several sides": ((3, 9, 1), (3, 9, 1), (1, 9, 1), (3, 9, 140), 1),
    "matrices of few sides": ((70, 9, 1), (70, 9, 1), (1, 9, 5), (70, 9, 5), 1),
    "of one of two axes": ((4, 1, 9), (1, 5, 9), (4, 5, 9), (4, 5, 9), 2),
    "a right side of matrices": ((140, 9), (140, 9), (140, 9), (9,), 1),
}


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("case", SHARED)
def test_shared_entries(case: str) -> None:
    *shapes, axis = SHARED[case]
    transpose = len(case) % 2 == 0
    rng = np.random.default_rng(0)
    a, b, c, d = (rng.uniform(-1, 1, shape) for shape in shapes)
    x = solve(a, b + 4, c, d, axis=axis, transpose=transpose)
    assert_solves(x, a, b + 4, c, d, axis=axis, transpose=transpose)


def test_shared_entries_are_not_copied_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is any array transposed, and masks alone make bands."""
    seen = []

    def run(job: Any, operands: Any) -> Any:
        seen.append([x.shape for x in operands])
        return jnp.zeros(job.shape[: 2 if job.together else 3]), jnp.ones(job.shape[::2], jnp.int32)

    monkeypatch.setattr(backend, "run", run)
    for axis, shapes in ((1, ((1, 9), (200, 9))), (0, ((9, 1), (9, 200))), (1, ((3, 9, 1), (3, 9, 200)))):
        form = Form(shapes[1], shapes[0], axis, transpose=True, pivoting=False)
        matrix = (*(jax.ShapeDtypeStruct(shapes[0], "float32") for _ in range(3)), None)
        d = jax.ShapeDtypeStruct(shapes[1], "float32")
        text = str(jax.make_jaxpr(lambda matrix, d, form=form: backend.solve(matrix, d, form)[0])(matrix, d))
        assert not any(word in text for word in ("transpose", "pad", "concatenate", "select"))
    assert seen == [[(1, 9)] * 3 + [(200, 9)], [(1, 9, 1)] * 3 + [(1, 9, 200)], [(3, 9, 1)] * 3 + [(3, 9, 200)]]


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("pivoting", "dtype"), [("auto", "float64"), ("auto", "float32"), (True, "float64")])
@pytest.mark.parametrize(("layout", "family"), [("rows", uniform), ("columns", zero_diagonal)])
def test_hard_systems_keep_the_promise(layout: str, family: Any, pivoting: bool | str, dtype: str) -> None:
    given, axis = system(layout, 18, dtype, family)
    assert_solves(solve(*given, axis=axis, pivoting=pivoting), *given, axis=axis, pivoting=pivoting)


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize("layout", ["rows", "columns"])
def test_only_singular_systems_are_nan(layout: str) -> None:
    given, axis = system(layout, 9)
    rows = [np.moveaxis(v, axis, -1) for v in given]
    for v in rows[:3]:
        v[7, 4] = 0  # a row of zeros
    others = np.arange(rows[0].shape[0]) != 7
    for pivoting in (False, "auto"):
        with pytest.raises(tridiag.SingularSystemError) as caught:
            solve(*given, axis=axis, pivoting=pivoting)
        x = np.moveaxis(np.asarray(caught.value.x), axis, -1)
        assert np.isnan(x[7]).all()
        assert_solves(x[others], *(v[others] for v in rows))


@pytest.mark.usefixtures("interpreted")
def test_a_zero_pivot_that_exchanges_would_avoid() -> None:
    """Without pivoting the system is NaN throughout, in masked rows too; with it, it is solved."""
    given, _ = system("rows", 9)
    given[1][3, 0] = 0
    where = np.ones(given[1].shape, bool)
    where[:, 5] = False
    x = np.asarray(solve(*given, where=where, pivoting=False, check=False))
    assert np.isnan(x[3]).all() and np.isfinite(np.delete(x, 3, 0)).all()
    assert_solves(solve(*given, where=where), *given, where=where)


@pytest.mark.usefixtures("interpreted")
def test_nothing_crosses_a_row_that_is_taken_out() -> None:
    a, b, c, d = dominant((130, 9))
    where = np.ones(b.shape, bool)
    where[:, 4] = False
    wanted = np.asarray(solve(a, b, c, d, where=where))
    for bad in (np.nan, np.inf):
        given = [x.copy() for x in (a, b, c, d)]
        for x in given:
            x[:, 4] = bad
        given[3][:, 5], given[0][:, 5], given[2][:, 3] = bad, bad, bad
        x = np.asarray(solve(*given, where=where))
        assert_same_bits(x[:, :5], wanted[:, :5])


@pytest.mark.usefixtures("interpreted")
def test_inside_of_transformations() -> None:
    """jit, vmap over all or over right sides alone, scan; half precision goes through float32."""
    a, b, c, d = map(jnp.asarray, dominant((2, 5, 6)))

    def one(a: Any, b: Any, c: Any, d: Any) -> Any:
        return tridiag.solve(a, b, c, d, backend=NAME)

    assert_solves(jax.jit(jax.vmap(one))(a, b, c, d), a, b, c, d)
    assert_solves(jax.vmap(one, (None, None, None, 0))(a[0], b[0], c[0], d), a[0], b[0], c[0], d)
    last = jax.lax.scan(lambda x, k: (one(a[0], b[0], c[0], x), None), d[0], None, length=2)[0]
    assert_solves(last, a[0], b[0], c[0], oracle(a[0], b[0], c[0], d[0]).astype(float))
    assert one(*(x[0].astype("bfloat16") for x in (a, b, c, d))).dtype == "bfloat16"


@pytest.mark.usefixtures("interpreted")
@pytest.mark.parametrize(("shape", "axis"), [((130, 6), 1), ((6, 131), 0)])
def test_gradients(shape: Any, axis: int) -> None:
    """Those of `jax_scan`; the backward pass is the transposed solve."""
    given = [jnp.asarray(x) for x in dominant(shape, axis=axis)]

    def value(name: str, *given: Any) -> Any:
        return jnp.sum(jnp.sin(tridiag.solve(*given, axis=axis, backend=name)))

    found, wanted = (jax.jit(jax.grad(lambda *v, k=k: value(k, *v), (0, 1, 2, 3)))(*given) for k in (NAME, "jax_scan"))
    for x, y in zip(found, wanted, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-13)


@pytest.mark.usefixtures("interpreted")
def test_the_interpreter_notices_what_is_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    place = thomas.place
    monkeypatch.setattr(thomas, "place", lambda block, job: (place(block, job)[0], place(block, job)[1] + 1))
    with pytest.raises(Exception, match=r"[Oo]ut.of.bounds"):
        given, axis = system("columns", 3)
        jax.block_until_ready(solve(*given, axis=axis))
    reset_interpreter()


def reset_interpreter() -> None:
    """As JAX wants it after an error."""
    from jax._src.pallas.mosaic_gpu.interpret import gpu_callbacks

    gpu_callbacks.reset_gpu_interpret_mode_state()


# ---------------------------------------------------------------------------------- on a model of a block


def modelled(shape: Any, axis: int, dtype: str, without: int | None = None, **facts: Any) -> np.ndarray:
    """x of dominant systems, judged."""
    given = dominant(shape, dtype, axis)
    operands: list[Any] = []
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    lanes = pallas_job.lanes_of(outer, inner)
    full = max(outer, lanes[0]), shape[axis], inner
    job = pallas_job.Job(full, *lanes, **{"dtype": dtype, "turned": False, "certifies": True, "cut": False} | facts)
    for k, x in enumerate(given):
        x = x.reshape(outer, *full[1:])
        x = np.concatenate((x, np.full((full[0] - outer, *full[1:]), k == 1, dtype)))
        operands.append(x[..., 0] if job.together else x)
    x, told = warpgroup.run(job, operands, without)
    assert told[:outer].all()
    assert_solves(x[:outer].reshape(shape), *given, axis=axis, transpose=job.turned)
    return x


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("room", [pallas_job.SHARED_BYTES, 0])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("turned", [False, True])
def test_no_race_and_nothing_outside(layout: str, room: int, dtype: str, turned: bool, monkeypatch: Any) -> None:
    monkeypatch.setattr(pallas_job, "SHARED_BYTES", room)
    shape, axis = LAYOUTS[layout]
    for n in (1, 2, 3, 7, 8, 9, 15, 16, 17, 33):
        modelled(shape(n), axis, dtype, turned=turned)
        modelled(shape(n), axis, dtype, turned=turned, certifies=False, cut=True)


@pytest.mark.parametrize("room", [pallas_job.SHARED_BYTES, 0])
def test_every_barrier_is_needed(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """But the first of a sweep: nobody else has read or written there. Three pieces of 8 rows, and 4 rows."""
    monkeypatch.setattr(pallas_job, "SHARED_BYTES", room)
    down, up = 2 * 4, 4 if room else 2 * 4
    for barrier in range(down + up):
        if barrier == 0 or (barrier == down and not room):
            modelled((130, 28), 1, "float64", without=barrier)
        else:
            with pytest.raises(warpgroup.Race):
                modelled((130, 28), 1, "float64", without=barrier)
    modelled((130, 28), 1, "float64", without=down + up)  # there is no such barrier


def test_blocks_cover_every_system() -> None:
    for outer, inner in itertools.product(
        (1, 2, 3, 63, 64, 65, 127, 128, 129, 300), (1, 2, 3, 7, 33, 64, 100, 129, 999)
    ):
        lanes = pallas_job.lanes_of(outer, inner)
        assert math.prod(lanes) == pallas_job.THREADS
        job = pallas_job.Job((max(outer, lanes[0]), 5, inner), *lanes, "float32", False, True, False)
        count = np.zeros(job.shape[::2], int)
        for block in range(math.prod(job.grid)):
            with warpgroup.modelled([], [block], None):
                first, second = pallas_job.place(block, job)
            assert first >= 0 and first + lanes[0] <= job.shape[0]
            assert second >= 0 and second + lanes[1] <= inner
            count[first : first + lanes[0], second : second + lanes[1]] += 1
        assert count.min() == 1
        if outer * inner > 10_000:
            assert count.mean() < 1.35


def test_the_usual_systems_stay_in_shared_memory() -> None:
    """(100 000, 100), in either layout: five words for each unknown."""
    for dtype, shape in itertools.product(REALS, ((100_000, 100, 1), (1, 100, 100_000))):
        lanes = pallas_job.lanes_of(shape[0], shape[2])
        job = pallas_job.Job(shape, *lanes, dtype, False, True, False)
        assert job.on_chip and len(backend.memories(job)[0]) == 2
        used = sum(math.prod(x.shape) * x.dtype.itemsize for x in backend.memories(job)[1])
        assert used <= pallas_job.SHARED_BYTES
        assert not job._replace(shape=(shape[0], 230, shape[2])).on_chip


# -------------------------------------------------------------------------------------------------- lowered


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("pivoting", [False, "auto"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_lowers_for_cuda(layout: str, pivoting: Any, dtype: str) -> None:
    """Loads, masks and loops of every shape class; what is not certified is left to `jax_scan`."""
    jax.clear_caches()
    shape, axis = LAYOUTS[layout]
    for n, transpose, masked in ((1, False, True), (20, True, False), (500, True, True)):
        form = Form(shape(n), shape(n), axis, transpose=transpose, pivoting=pivoting)
        text = lowered(form, dtype, masked)
        assert text.count("@mosaic_gpu") == 1
        assert ("stablehlo.case" in text) == (pivoting == "auto")


def lowered(form: Form, dtype: str, masked: bool = False, platform: str = "cuda") -> str:
    x = jax.ShapeDtypeStruct(form.shape, dtype)
    where = jax.ShapeDtypeStruct(form.shape, "bool") if masked else None
    function = jax.jit(lambda matrix, d: backend.solve(matrix, d, form)[0])
    return function.trace((x, x, x, where), x).lower(lowering_platforms=(platform,)).as_text()


def test_lowers_for_cuda_in_the_default_precision_of_jax() -> None:
    with jax.enable_x64(False):
        for layout in ("rows", "columns"):
            shape, axis = LAYOUTS[layout]
            assert "f64" not in lowered(Form(shape(20), shape(20), axis), "float32").replace("@mosaic_gpu", "")


def by_name(*given: Any, **options: Any) -> Any:
    return tridiag.solve(*given, backend=NAME, **options)


def squares(function: Any) -> Any:
    return jax.grad(lambda *given: jnp.sum(function(*given) ** 2), (0, 1, 2, 3))


def over_time(a: Any, b: Any, c: Any, d: Any) -> Any:
    return jax.lax.scan(lambda x, _: (by_name(a, b, c, x), None), d, None, length=3)[0]


def on_a_mesh(*given: Any) -> Any:
    mesh = jax.make_mesh((1,), ("p",), axis_types=(jax.sharding.AxisType.Auto,))
    along = jax.sharding.PartitionSpec("p")
    return jax.shard_map(by_name, mesh=mesh, in_specs=along, out_specs=along)(*given)


@pytest.mark.usefixtures("pretended")
@pytest.mark.parametrize(
    ("function", "kernels"),
    [
        (by_name, 1),
        (squares(by_name), 2),
        (squares(jax.checkpoint(by_name)), 3),
        (jax.vmap(by_name), 1),
        (over_time, 1),
        (on_a_mesh, 1),
        (squares(on_a_mesh), 2),
    ],
    ids=["solve", "gradient", "checkpoint", "vmap", "scan", "shard_map", "gradient of shard_map"],
)
def test_whole_functions_lower_for_cuda(function: Any, kernels: int) -> None:
    """Where the kernel runs is where it is called: vmap makes one launch of all."""
    x = jax.ShapeDtypeStruct((4, 200, 20), "float64")
    text = jax.jit(function).trace(x, x, x, x).lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("@mosaic_gpu") == kernels


def test_only_cuda_is_told_of_the_kernel() -> None:
    """Mosaic GPU lowers for nothing else, and the table says so; "auto" leaves it alone on CUDA too."""
    for device in ("tpu", "cpu", "rocm"):
        problem = Problem("solve", "jax", device, "float32", (200, 20), 1)
        assert BACKENDS[NAME].why_not(problem) == f"runs on cuda, not on {device}"
        assert NAME not in [entry.name for entry, _ in eligible(problem)]
    problem = problem._replace(device="cuda")
    assert choose(problem).backend.name != NAME and choose(problem, NAME).backend.name == NAME


def test_what_it_needs_is_said() -> None:
    assert installed("absl") and BACKENDS[NAME].needs == ("jax", "absl")
    assert list(BACKENDS).index(NAME) > list(BACKENDS).index("jax_scan")
    problem = Problem("solve", "jax", "cuda", "complex64", (200, 20), 1)
    assert BACKENDS[NAME].why_not(problem) == "computes in float32, float64, not in complex64"
