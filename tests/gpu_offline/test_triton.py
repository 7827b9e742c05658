"""Triton without a GPU: a backend's own host code with its kernels in Triton's interpreter, and compiled for GPUs.

That `triton_scan` runs recurrences, the main suite sees too, in Triton's interpreter.
"""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import test_logarithms
import test_recurrences
from hard_sequences import HARD
from helpers import assert_same_bits, assert_solves, dominant, positive, uniform, zero_diagonal

from tridiag.backends import BACKENDS
from tridiag.problems.forms import Form, Recurrence, broadcast

HERE = Path(__file__).parent
MISSING = BACKENDS["triton_thomas"].missing()
pytestmark = [pytest.mark.gpu_toolchains, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]
if MISSING is None:
    import torch
    import triton
    import triton_assembly
    from torch.utils._python_dispatch import TorchDispatchMode

    from tridiag.backends import triton_scan, triton_thomas
    from tridiag.kernels.triton import loader

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


# ---------------------------------------------------------------------------------- recurrences


@pytest.fixture(params=["lanes", "tiles", "pieces"])
def schedule(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane for each sequence that lies beside others, or chunks of rows for all, in one piece or in several."""
    monkeypatch.setattr(triton_scan, "INTERPRET", True)
    monkeypatch.setattr(triton_scan, "LANES", 32)
    monkeypatch.setattr(triton_scan, "MANY", 1 if request.param == "lanes" else 10**9)
    monkeypatch.setattr(triton_scan, "FEW", 10**9 if request.param == "pieces" else 0)


def recur(verb: str, axis: int, reverse: bool, *arrays: np.ndarray, **options: Any) -> np.ndarray:
    """Into an array whose memory is full of NaN, so that all of it has to be written."""
    *coefficients, x = (torch.from_numpy(np.ascontiguousarray(v)) for v in arrays)
    init = tuple(torch.from_numpy(v).unsqueeze(axis) for v in options.pop("init", ()))
    form = Recurrence(tuple(x.shape), axis, reverse=reverse, **options)
    out = torch.full(x.shape, torch.nan, dtype=x.dtype)
    y = getattr(triton_scan, verb)(tuple(coefficients), x, init, form, out)
    assert y.data_ptr() == out.data_ptr()
    found: np.ndarray = y.numpy()
    return found


@pytest.mark.usefixtures("schedule")
@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("n", [1, 8, 9, 33, 270])
def test_recurrences_of_all_sizes(n: int, dtype: str) -> None:
    """35 sequences are a program and some, and a tile is 256 rows of one at most."""
    for shape, axis in (((3, n), 1), ((n, 35), 0), ((2, n, 3), 1)):
        (a,), x, init = test_recurrences.problem(shape, 1, dtype, axis)
        options, reverse = {"axis": axis, "reverse": axis == 0}, axis == 0
        y = recur("linear_recurrence", axis, reverse, a, x)
        test_recurrences.assert_recurs(y, (a,), x, **options)
        y = recur("linear_recurrence", axis, reverse, a, x, init=init)
        test_recurrences.assert_recurs(y, (a,), x, init, **options)
        y = recur("logcumsumexp", axis, reverse, 40 * x)
        test_logarithms.assert_close(y, test_logarithms.oracle(40 * x, **options))


def is_right(case: str, axis: int) -> bool:
    """Whether all is as one step after another, up to rounding."""
    n = 300
    a, x = HARD[case](n)
    beside = [np.stack((v, np.full(n, 0.5)), 1 - axis) for v in (a, x)]
    y = np.moveaxis(recur("linear_recurrence", axis, False, *beside), axis, 0)[:, 0]
    with np.errstate(all="ignore"):
        right = test_recurrences.step_by_step(a.astype(np.longdouble), x.astype(np.longdouble)).astype(float)
    return np.allclose(y, right, rtol=1e-11, atol=0)


@pytest.mark.usefixtures("schedule")
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("case", HARD)
def test_products_of_coefficients_that_tell_little(case: str, axis: int) -> None:
    assert is_right(case, axis)


@pytest.mark.parametrize("schedule", ["tiles", "pieces"], indirect=True)
@pytest.mark.parametrize(("name", "wrong"), [("TRUSTED", 1e300), ("SMALL_DOUBLE", 1e-307)])
def test_planted_mistakes_are_found(name: str, wrong: float, schedule: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts that cannot be trusted are, or what is small is not scaled up."""
    parts = triton_scan.kernels(True).part_of.fn.__globals__
    monkeypatch.setitem(parts, name, triton.language.constexpr(wrong))
    assert not all(is_right(case, 1) for case in HARD)


@pytest.mark.usefixtures("schedule")
@pytest.mark.parametrize("schedule", ["pieces"], indirect=True)
@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("name", ["rising", "through 0", "jumping", "1e9", "1e17"])
def test_errors_of_sums_do_not_pile_up(name: str, dtype: str) -> None:
    """Of one piece, and of the others, the main suite sees it."""
    n = 300
    x, right = test_logarithms.ladder(name, dtype, n), test_logarithms.exactly(name, dtype, n)
    assert test_logarithms.units(recur("logcumsumexp", 0, False, np.stack((x, x), 1))[:, 1], right) <= 2


# ---------------------------------------------------------------------------------- planted mistakes


class Text(NamedTuple):
    """What a file of kernels is changed from and to."""

    file: str
    old: str
    new: str

    def planted(self, backend: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """From now on the kernels of a backend are those after the change, in the interpreter."""
        package = importlib.import_module("tridiag.kernels.triton")
        (source,) = package.__path__
        shutil.copytree(source, folder / "kernels")
        path = folder / "kernels" / self.file
        text = path.read_text()
        if text.count(self.old) != 1:  # no AssertionError, which is taken for a mistake that shows
            raise LookupError(f"{self.old!r} occurs {text.count(self.old)} times")
        path.write_text(text.replace(self.old, self.new))
        with monkeypatch.context() as patch:
            patch.setattr(package, "__path__", [str(folder / "kernels")])
            kernels = loader.load.__wrapped__(*backend.KERNELS, True)
        monkeypatch.setattr(backend, "kernels", lambda interpreted: kernels)


TEXTS = {  # in the code of each kernel
    "columns": Text("scans.py", "value(state, LOGARITHMIC), there)", "value(state, LOGARITHMIC), there & (row > 0))"),
    "carry": Text("scans.py", "            state = behind\n            write(", "            write("),
    "fold": Text(
        "scans.py", "join(whole, of_chunk(own, p, CHUNKS - 1, AXIS), LOGARITHMIC)", "of_chunk(own, p, 0, AXIS)"
    ),
    "tiles": Text("scans.py", "apply(shifted(own, p, 1, AXIS), state, LOGARITHMIC), state)", "state, state)"),
    "chunks": Text("chunks.py", "x = (y - upper[ROWS - 2] * separator)", "x = y"),
    "rows": Text("rows.py", "divide(d - a * y, pivot)", "divide(d + a * y, pivot)"),
    "pivoted": Text("rows.py", "tl.where(q2 == 0, y, y - q2 * x2)", "y"),
}


def runs_wrong(name: str) -> bool:
    """What a kernel makes of a problem that is spread so that it runs."""
    try:
        if name in ("chunks", "rows", "pivoted"):
            pivoting = name == "pivoted"
            system = (uniform if pivoting else dominant)((3, 40))
            assert_solves(solve(*system, pivoting=pivoting)[0], *system, pivoting=pivoting)
        else:
            (a,), x, _ = test_recurrences.problem((300, 3), 1, "float64", 0)
            test_recurrences.assert_recurs(recur("linear_recurrence", 0, False, a, x), (a,), x, axis=0)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("there_is_one", [True, False])
@pytest.mark.parametrize("name", TEXTS)
def test_a_mistake_in_each_kernel_shows(
    name: str, there_is_one: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_thomas, "LONGEST", 0 if name == "rows" else 256)
    monkeypatch.setattr(triton_scan, "INTERPRET", True)
    monkeypatch.setattr(triton_scan, "LANES", 32)
    monkeypatch.setattr(triton_scan, "MANY", 1 if name == "columns" else 10**9)
    monkeypatch.setattr(triton_scan, "FEW", 10**9 if name in ("carry", "fold") else 0)
    monkeypatch.setattr(triton_scan, "ENOUGH", 3)  # pieces of several tiles
    text = TEXTS[name] if there_is_one else TEXTS[name]._replace(new=TEXTS[name].old)
    text.planted(triton_thomas if name in ("chunks", "rows", "pivoted") else triton_scan, tmp_path, monkeypatch)
    assert runs_wrong(name) == there_is_one


def test_every_kernel_has_a_mistake() -> None:
    asked = [triton_assembly.launches(backend) for backend in (triton_thomas, triton_scan)]
    assert {name.split()[1] for launches in asked for name in launches} == {*TEXTS}


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


capabilities = pytest.mark.parametrize("capability", [75, 80, 90, 100], ids=lambda capability: f"sm_{capability}")


def compiled(backend: str, capability: int, cache: Path) -> dict[str, Any]:
    """What came of the kernels that the host can ask for, compiled for a GPU of that compute capability.

    For the oldest and the newest, and for operands of any steps, only those that share a system among 16 lanes.
    """
    path = os.pathsep.join(map(str, (HERE, *filter(None, sys.path))))
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_CACHE_DIR": str(cache)}
    chunks = [] if capability in (80, 90) else ["1", "16"]
    command = [sys.executable, str(HERE / "triton_assembly.py"), backend, str(capability), *chunks]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@capabilities
def test_kernels_for_a_gpu(capability: int, tmp_path: Path) -> None:
    """No spill, no stack, no float64 in the kernels for float32, a mask for every access, no fused pivot."""
    kernels = compiled("triton_thomas", capability, tmp_path)
    assert len(kernels) == (60 if capability in (80, 90) else 28)
    assert {name: told for name, told in kernels.items() if told["STACK"] or told["LOCAL"]} == {}
    assert {name: told for name, told in kernels.items() if told["REG"] * told["lanes"] > 65536} == {}
    for name, told in kernels.items():
        dtype, kernel, *_ = name.split()
        assert told["accesses"] >= 7 and told["unmasked"] == [], name
        assert told["fused"] == (kernel == "chunks"), name
        assert told["products with zero"] == [], name
        assert told["in double precision"] == (dtype == "fp64"), name


@capabilities
def test_kernels_of_recurrences_for_a_gpu(capability: int, tmp_path: Path) -> None:
    """No spill, no stack, no float64 in the kernels for float32, a mask for every access."""
    kernels = compiled("triton_scan", capability, tmp_path)
    assert {"fp32 columns 1", "fp64 carry 1 logarithmic", "fp64 tiles 16"} <= set(kernels)
    assert {name: told for name, told in kernels.items() if told["STACK"] or told["LOCAL"]} == {}
    for name, told in kernels.items():
        assert told["REG"] * told["lanes"] <= 65536, name
        assert told["accesses"] >= 4 and told["unmasked"] == [], name
        if "logarithmic" not in name:  # where sums begin with nothing
            assert told["products with zero"] == [], name
        assert told["in double precision"] == name.startswith("fp64"), name


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
