"""`triton_thomas` without a GPU: its own host code with its kernels in Triton's interpreter, and compiled for GPUs."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import assert_same_bits, assert_solves, dominant, positive, uniform, zero_diagonal

from tridiag.backends import BACKENDS
from tridiag.problems.forms import Form, broadcast

HERE = Path(__file__).parent
MISSING = BACKENDS["triton_thomas"].missing()
pytestmark = [pytest.mark.gpu_toolchains, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]
if MISSING is None:
    import torch
    import triton_assembly
    from torch.utils._python_dispatch import TorchDispatchMode

    from tridiag.backends import triton_thomas

REALS = ("float32", "float64")
FAMILIES = [(False, dominant), (True, uniform), ("auto", dominant), ("auto", uniform), ("auto", zero_diagonal)]
PROMISES = (False, True, "auto")


@pytest.fixture(autouse=True)
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of fewer systems, so that there are several, and ragged ones."""
    monkeypatch.setattr(triton_thomas, "INTERPRET", True)
    monkeypatch.setattr(triton_thomas, "LANES", 32)


def form_of(arrays: Any, d: Any, axis: int, **options: Any) -> Form:
    shapes = {name: tuple(x.shape) for name, x in zip("abcw", arrays, strict=True) if x is not None}
    shape = broadcast(shapes | {"d": tuple(d.shape)}, shapes)
    rows = [shape[k] if k == axis else length for k, length in enumerate(broadcast(shapes, shapes))]
    return Form(shape, tuple(rows), axis, **options)


def solve(
    a: Any, b: Any, c: Any, d: Any, *, axis: int = -1, where: Any = None, out: Any = None, **options: Any
) -> tuple[np.ndarray, np.ndarray]:
    """On NumPy arrays or tensors of one rank, whose memory is shared."""
    *matrix, d = (x if x is None or isinstance(x, torch.Tensor) else torch.from_numpy(x) for x in (a, b, c, where, d))
    form = form_of(matrix, d, axis % d.ndim, **options)
    x, status = triton_thomas.solve(tuple(matrix), d, form, out)
    assert (status is None) == (form.pivoting is False)
    return x.numpy(), np.zeros(form.matrix_batch, int) if status is None else status.numpy()


# ---------------------------------------------------------------------------------- interpreted


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize(("pivoting", "family"), FAMILIES)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 16, 17, 31, 32, 33, 64, 65, 100])
def test_it_solves(pivoting: bool | str, family: Any, dtype: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every promise and option; 35 systems are a program and some. Longer ones, in part of one, have a layout each."""
    if family is zero_diagonal and n % 2:
        return
    layouts = [((35, n), 1), ((n, 35), 0)]
    if n > 33:
        monkeypatch.setattr(triton_thomas, "LANES", 128)
        layouts = layouts[dtype == "float32" :][:1]
    transpose = n % 3 == 0
    for shape, axis in layouts:
        system = family(shape, dtype, axis)
        where = None if family is zero_diagonal else np.random.default_rng(1).uniform(size=shape) < 0.8
        for mask in (None, where) if axis == n % 2 else (None,):
            x, status = solve(*system, axis=axis, pivoting=pivoting, where=mask, transpose=transpose)
            assert not status.any() and x.dtype == dtype
            assert_solves(x, *system, axis=axis, pivoting=pivoting, where=mask, transpose=transpose)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize(("pivoting", "family"), FAMILIES)
@pytest.mark.parametrize("n", [1, 2, 10])
def test_long_systems(pivoting: bool | str, family: Any, dtype: str, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane for each system; those of many rows would take long."""
    monkeypatch.setattr(triton_thomas, "LONGEST", 0)
    if family is zero_diagonal and n % 2:
        return
    for transpose in (False, True):
        for shape, axis in (((35, n), 1), ((n, 35), 0)):
            where = None if family is zero_diagonal or transpose else np.random.default_rng(1).uniform(size=shape) < 0.8
            system = family(shape, dtype, axis)
            x, status = solve(*system, axis=axis, pivoting=pivoting, where=where, transpose=transpose)
            assert not status.any()
            assert_solves(x, *system, axis=axis, pivoting=pivoting, where=where, transpose=transpose)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("n", [129, 250, 257])
def test_the_longest_systems_of_a_tile(n: int, dtype: str) -> None:
    for shape, axis in (((3, n), 1), ((n, 3), 0)):
        system = dominant(shape, dtype, axis)
        x, _ = solve(*system, axis=axis)
        assert_solves(x, *system, axis=axis)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("family", [dominant, positive])
def test_systems_with_a_certificate_are_not_solved_again(
    family: Any, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do those go on the list whose couplings hardly decay."""
    counts, exchange = [], triton_thomas.Job.exchange

    def count(job: Any, rows: int, listed: Any) -> None:
        counts.append(int(listed[1]))
        exchange(job, rows, listed)

    monkeypatch.setattr(triton_thomas.Job, "exchange", count)
    for longest in (256, 0):
        monkeypatch.setattr(triton_thomas, "LONGEST", longest)
        solve(*family((35, 100), dtype))
        solve(*(np.full((3, 100), value, dtype) for value in (-1, 2, -1, 1)))
        solve(*uniform((35, 20), dtype))
    assert counts[0] == counts[1] == counts[3] == counts[4] == 0 and counts[2] > 30 and counts[5] > 30


@pytest.mark.parametrize(
    ("pivoting", "dtype", "longest"),
    [*((pivoting, dtype, 256) for pivoting in (True, "auto") for dtype in REALS), ("auto", "float64", 0)],
)
def test_hard_matrices_keep_the_promise(
    pivoting: bool | str, dtype: str, longest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kind of matrix and of right side of `benchmarks/accuracy.py`, under its bars."""
    pytest.importorskip("scipy")
    monkeypatch.syspath_prepend(HERE.parents[1] / "benchmarks")
    accuracy = importlib.import_module("accuracy")
    monkeypatch.setattr(triton_thomas, "LANES", 128)
    monkeypatch.setattr(triton_thomas, "LONGEST", longest)
    solved = []
    for n, count in ((3, 20), (40, 60)):
        systems = accuracy.make(n, count, dtype)
        solved.append((systems, np.stack([solve(*systems.matrix, d, pivoting=pivoting)[0] for d in systems.d])))
    rows = list(accuracy.judge(solved, ("triton_thomas", "torch", dtype), pivoting))
    assert {row.case for row in rows} == set(accuracy.CASES)
    assert [row for row in rows if not row.passed] == []


@pytest.mark.parametrize("pivoting", PROMISES)
def test_nothing_is_read_from_pads_masked_rows_and_cut_couplings(pivoting: bool | str) -> None:
    a, b, c, d = dominant((35, 9), seed=3)
    where = np.random.default_rng(2).uniform(size=b.shape) < 0.7
    dead = [~where | ~np.roll(where, 1, 1), ~where, ~where | ~np.roll(where, -1, 1), ~where]
    dead[0][:, 0] = dead[2][:, -1] = True
    results = [
        solve(
            *(np.where(cut, bad, x) for cut, x in zip(dead, (a, b, c, d), strict=True)), pivoting=pivoting, where=where
        )
        for bad in (0.0, np.nan, np.inf)
    ]
    assert_same_bits(results[0][0], results[1][0])
    assert_same_bits(results[0][0], results[2][0])


@pytest.mark.parametrize("pivoting", PROMISES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_systems_lie_inside_other_memory(pivoting: bool | str, axis: int) -> None:
    """Views of any strides: what is around them is neither read nor written."""
    system = dominant((3, 5, 7), axis=axis)
    *given, out = (inside(x, np.nan) for x in (*system, system[3]))
    where = inside(np.random.default_rng(0).uniform(size=(3, 5, 7)) < 0.8, True)
    around = [(memory, memory.clone()) for memory, _ in (*given, out, where)]
    views = [view for _, view in given]
    x, _ = solve(*views, axis=axis, where=where[1], out=out[1], pivoting=pivoting)
    assert x.ctypes.data == out[1].data_ptr()
    assert_solves(x, *system, axis=axis, where=where[1].numpy(), pivoting=pivoting)
    out[1].fill_(torch.nan)
    around[4][1].copy_(inside(system[3] * np.nan, np.nan)[0])
    for after, before in around:
        assert_same_bits(after.numpy(), before.numpy())


def inside(x: np.ndarray, filling: Any) -> tuple[Any, Any]:
    """The memory, and the array in it: in another order of axes, and every other entry."""
    shape = [2 * length + 3 for length in x.shape[::-1]]
    memory = torch.full(shape, filling, dtype=torch.from_numpy(x).dtype)
    view = memory.permute(2, 1, 0)[1:-2:2, 2:-1:2, 1:-2:2]
    view.copy_(torch.from_numpy(x))
    return memory, view


@pytest.mark.parametrize("pivoting", PROMISES)
def test_shared_entries_and_many_axes(pivoting: bool | str) -> None:
    """Entries that are constant along an axis have the stride 0; the host walks through axes that are too many."""
    a, b, c, d = dominant((2, 3, 2, 4, 3), axis=3)
    where = np.random.default_rng(0).uniform(size=(2, 1, 2, 4, 1)) < 0.7
    shared = [a[:1, :, :, :, :1], b[:, :1, :, :1, :1] * 4, c[:, :, :1, :, :1], np.ascontiguousarray(d.T).T]
    x, status = solve(*shared, axis=3, where=where, pivoting=pivoting)
    assert status.shape == (2, 3, 2, 1) and not status.any()
    assert_solves(x, *shared, where=where, axis=3, pivoting=pivoting)
    *matrix, d = (torch.from_numpy(v) for v in shared)
    parts = (*matrix, torch.from_numpy(where), d)
    form = form_of((*matrix, parts[3]), d, 3)
    strides = tuple(v.stride() for v in (*parts, torch.empty(form.shape)))
    place = triton_thomas.place_of(form, tuple(v.shape for v in (*parts, torch.empty(form.shape))), strides)
    assert len(place.inner) == triton_thomas.RANK and place.outer


@pytest.mark.parametrize("pivoting", [True, "auto"])
def test_singular_systems_are_nan_and_told_with_their_row(pivoting: bool | str) -> None:
    a, b, c, d = zero_diagonal((40, 7))
    b[2:] = dominant((38, 7))[1] * 9
    x, status = solve(a, b, c, d, pivoting=pivoting)
    assert status.tolist() == [7, 7] + [0] * 38
    assert np.isnan(x[:2]).all()
    assert_solves(x[2:], a[2:], b[2:], c[2:], d[2:])


def test_a_matrix_that_rounded_products_make_singular() -> None:
    """Products are not fused with sums: as on a CPU."""
    third = np.array([[1.0, 3.0]])
    a, b, c, d = np.array([[0.0, 1.0]]), third, np.array([[3.0, 0.0]]), np.array([[1.0, 2.0]])
    for pivoting in (True, "auto"):
        x, status = solve(a, b, c, d, pivoting=pivoting)
        assert status.tolist() == [2] and np.isnan(x).all()


@pytest.mark.parametrize("longest", [256, 0])
def test_a_zero_pivot_without_exchanges_shows(longest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton_thomas, "LONGEST", longest)
    a, b, c, d = dominant((2, 5))
    b[1, 0] = 0
    x, _ = solve(a, b, c, d, pivoting=False)
    assert np.isnan(x[1]).any()
    assert_solves(x[:1], a[:1], b[:1], c[:1], d[:1])


@pytest.mark.parametrize("pivoting", PROMISES)
def test_nan_is_not_singular_and_spoils_no_neighbour(pivoting: bool | str) -> None:
    a, b, c, d = dominant((4, 6))
    b[1, 2], d[2, 3] = np.nan, np.inf
    x, status = solve(a, b, c, d, pivoting=pivoting)
    assert not status.any() and not np.isfinite(x[1:3]).all(1).any()
    assert_solves(x[::3], a[::3], b[::3], c[::3], d[::3])


def test_the_sign_of_zero_does_not_tell_of_neighbours() -> None:
    """A system with a residual has its tile corrected, but not the systems beside it."""
    a, b, c, d = dominant((4, 10))
    d[2] = -0.0
    calm, _ = solve(a, b, c, d, pivoting=False)
    d[1] = np.nan
    beside, _ = solve(a, b, c, d, pivoting=False)
    assert np.signbit(calm[2]).any()
    assert_same_bits(beside[2], calm[2])


@pytest.mark.parametrize("pivoting", [True, "auto"])
def test_few_systems_are_pivoted_at_a_time_where_memory_is_short(
    pivoting: bool | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_thomas, "LEAST_SCRATCH", 1)
    system = uniform((80, 6))
    x, status = solve(*system, pivoting=pivoting)
    assert not status.any()
    assert_solves(x, *system, pivoting=pivoting)


@pytest.mark.parametrize("pivoting", PROMISES)
def test_the_solution_may_take_the_place_of_d(pivoting: bool | str) -> None:
    system = (uniform if pivoting else dominant)((5, 6))
    *matrix, d = (torch.from_numpy(x.copy()) for x in system)
    x, _ = solve(*matrix, d, pivoting=pivoting, out=d, overwrite_d=True)
    assert x.ctypes.data == d.data_ptr()
    assert_solves(x, *system, pivoting=pivoting)


def test_tensors_that_are_negated_where_they_are_read() -> None:
    system = dominant((5, 6))
    *matrix, d = (torch.complex(torch.zeros(x.shape).double(), -torch.from_numpy(x)).conj().imag for x in system)
    assert d.is_neg()
    x, _ = solve(*matrix, d)
    assert_solves(x, *system)


@pytest.mark.parametrize("pivoting", PROMISES)
def test_complex_right_sides_of_real_matrices(pivoting: bool | str) -> None:
    a, b, c, d = dominant((5, 6), "complex128")
    real = [np.ascontiguousarray(x.real) for x in (a, b * 3, c)]
    out = torch.empty(d.shape, dtype=torch.complex128)
    for target in (None, out):
        x, status = solve(*real, torch.from_numpy(d).conj(), pivoting=pivoting, out=target)
        assert status.shape == (5,) and (target is None or x.ctypes.data == out.data_ptr())
        assert_solves(x, *real, d.conj(), pivoting=pivoting)


# ---------------------------------------------------------------------------------- launched


def test_nothing_waits_for_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """No operation of the host reads a value, or brings one to it."""
    recorder, found = triton_assembly.Recorder(), set()

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            found.add(str(operation.overloadpacket))
            return operation(*args, **kwargs or {})

    monkeypatch.setattr(triton_thomas, "kernels", lambda interpreted: recorder)
    system = [torch.from_numpy(x) for x in dominant((40, 6))]
    for pivoting in PROMISES:
        matrix = (*system[:3], None)
        with Watch():
            triton_thomas.solve(matrix, system[3], form_of(matrix, system[3], 1, pivoting=pivoting))
    assert "aten.empty" in found and len(recorder.launches) == 3
    harmless = "empty", "zeros", "as_strided", "view", "permute", "slice", "detach", "alias"
    assert found <= {f"aten.{name}" for name in harmless}


# ---------------------------------------------------------------------------------- compiled


@pytest.fixture(scope="module", params=[75, 80, 90, 100], ids=lambda capability: f"sm_{capability}")
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came of the kernels that the host can ask for, compiled for a GPU of that compute capability.

    For the oldest and the newest, and for operands of any steps, only those that share a system among 16 lanes.
    """
    path = os.pathsep.join(map(str, (HERE, *filter(None, sys.path))))
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("cache"))}
    chunks = [] if request.param in (80, 90) else ["1", "16"]
    command = [sys.executable, str(HERE / "triton_assembly.py"), str(request.param), *chunks]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    assert len(found) == (28 if chunks else 60)
    return found


def test_kernels_for_a_gpu(kernels: dict[str, dict[str, Any]]) -> None:
    """No spill, no stack, no float64 in the kernels for float32, a mask for every access, no fused pivot."""
    assert {name: told for name, told in kernels.items() if told["STACK"] or told["LOCAL"]} == {}
    assert {name: told for name, told in kernels.items() if told["REG"] * told["lanes"] > 65536} == {}
    for name, told in kernels.items():
        dtype, kernel, *_ = name.split()
        assert told["accesses"] >= 7 and told["unmasked"] == [], name
        assert told["fused"] == (kernel == "chunks"), name
        assert told["products with zero"] == [], name
        assert told["in double precision"] == (dtype == "fp64"), name


def test_all_kernels_are_asked_for() -> None:
    layouts = "", " together", " unit", " together unit"
    kernels = {f"chunks {2**k}{layout}" for k in range(1, 6) for layout in layouts}
    kernels |= {"rows 1", "pivoted 1", "pivoted 1 listed"}
    wanted = {f"{dtype} {kernel}{mask}" for dtype in ("fp32", "fp64") for kernel in kernels for mask in ("", " masked")}
    assert {" ".join(sorted(name.split())) for name in triton_assembly.launches()} == {
        " ".join(sorted(name.split())) for name in wanted
    }


def test_an_access_without_a_mask_is_seen() -> None:
    """A test of a test before: what it is to find, it finds."""
    for kind, masked in (("load", "%x, %mask"), ("load", "%x, %mask, %other"), ("store", "%x, %value, %mask")):
        assert triton_assembly.is_masked(kind, masked)
        assert not triton_assembly.is_masked(kind, masked.rpartition(", %mask")[0])
