"""Every CUDA C kernel on the CPU build: sizes around every boundary, dtypes, layouts, four orders of the threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import cpu_build
import numpy as np
import planted
import pytest
from helpers import DTYPES, EPS, REAL, STANDIN, assert_same_bits, assert_solves, dense, dominant, long_error, uniform

import tridiag

if not STANDIN:
    pytest.skip("runs the CPU build; on a GPU the main suite runs the kernels", allow_module_level=True)
if reason := cpu_build.why_not():
    pytest.skip(reason, allow_module_level=True)

import cupy
from cupy import machine
from test_zeros import hanging, turned

from tridiag.cuda import solvers, spread_systems
from tridiag.cuda.blocks import BLOCKS
from tridiag.cuda.kalman import SERIES
from tridiag.cuda.launcher import OPTIONS
from tridiag.cuda.pairs import PAIRS
from tridiag.cuda.sequences import SEQUENCES
from tridiag.cuda.struct import SYSTEMS
from tridiag.problems.forms import Form

ROWS = (1, 2, 3, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1000)
BATCHES = (1, 31, 32, 33, 257)
SEEDS = (0, 1, 2, 3)
LAYOUTS = ("rows", "columns")
DENSE = 33 * 129  # unknowns; more are judged by their residuals alone
# the kernels of each case, what it solves, and under which promise
CASES: dict[str, tuple[str, Any, Any]] = {
    "chunks": ("cupy_pcr", dominant, False),
    "chunks-short": ("cupy_pcr", dominant, False),
    "chunks-certified": ("cupy_pcr", dominant, "auto"),
    "pieces": ("cupy_pcr", dominant, False),
    "pieces-certified": ("cupy_pcr", dominant, "auto"),
    "thomas": ("cupy_thomas", dominant, False),
    "thomas-certified": ("cupy_thomas", dominant, "auto"),
    "pivoted": ("cupy_thomas", uniform, True),
    "refined": ("cupy_pcr", uniform, "auto"),
}


@pytest.fixture(autouse=True)
def order() -> Iterator[None]:
    yield
    machine.seed = 0


@pytest.fixture
def spread(monkeypatch: pytest.MonkeyPatch, case: str) -> Iterator[None]:
    """Have the sweeps choose what the case is about, whatever the sizes."""
    planted.decide_anew()
    if case.startswith("pieces"):
        monkeypatch.setattr(spread_systems, "MOST_CHUNKS", 3)
    if case == "chunks-short":
        monkeypatch.setattr(spread_systems, "FEW_CHUNKS", dict.fromkeys((True, False), 10**6))
    yield
    planted.decide_anew()


def solved(case: str, dtype: str, n: int, batch: int, layout: str, seeds: Sequence[int]) -> None:
    """Solve systems of one size, judge the solution, and see that no order of the threads changes a bit of it."""
    backend, systems, promise = CASES[case]
    shape, axis = ((batch, n), 1) if layout == "rows" else ((n, batch), 0)
    given = systems(shape, dtype, axis, seed=n * batch)
    on_device, found = [cupy.asarray(x) for x in given], []
    for machine.seed in seeds:
        found.append(tridiag.solve(*on_device, axis=axis, backend=backend, pivoting=promise).get())
    x, *others = found
    if n * batch <= DENSE:
        assert_solves(x, *given, axis=axis, pivoting=promise)
    else:
        assert long_error(*(np.moveaxis(v, axis, -1) for v in (x, *given)), pivoting=promise) <= 8
    for other in others:
        assert_same_bits(other, x)


@pytest.mark.usefixtures("spread")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_all_sizes(case: str, dtype: str, layout: str) -> None:
    for n in ROWS:
        for batch in BATCHES:
            solved(case, dtype, n, batch, layout, SEEDS)


@pytest.mark.smoke
@pytest.mark.usefixtures("spread")
@pytest.mark.parametrize("case", CASES)
def test_one_size(case: str) -> None:
    solved(case, "float64", 65, 33, "columns" if "certified" in case else "rows", (1,))


@pytest.mark.smoke
@pytest.mark.parametrize("pivoting", [False, "auto"])
def test_many_long_systems_whose_rows_lie_apart_have_a_thread_each(
    pivoting: bool | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fewer are cut into pieces; either way rows are taken out, and what is singular is NaN and nothing else."""
    monkeypatch.setattr(spread_systems, "MOST_CHUNKS", 3)
    monkeypatch.setattr(spread_systems, "ENOUGH", 5)
    planted.decide_anew()
    n = 101
    for batch, kernel in ((5, "thomas<double, 0, false"), (4, "reduce<double")):
        a, b, c, d = dominant((n, batch), "float64", 0, seed=1)
        mask = np.random.default_rng(0).random((n, batch)) < 0.9
        a[40, 2] = b[40, 2] = c[40, 2] = 0
        mask[40, 2] = True
        given = [cupy.asarray(x) for x in (a, b, c, d)]
        x = tridiag.solve(*given, axis=0, pivoting=pivoting, where=cupy.asarray(mask), backend="cupy_pcr").get()
        assert any(name.startswith(kernel) for name, *_ in machine.launches)
        right = tridiag.solve(a, b, c, d, axis=0, where=mask, backend="numpy_thomas", check=False)
        assert np.isnan(x[mask[:, 2], 2]).all()
        np.testing.assert_allclose(np.delete(x, 2, 1), np.delete(right, 2, 1), rtol=1e-12, atol=1e-14)
        assert not np.delete(x, 2, 1)[~np.delete(mask, 2, 1)].any()
    planted.decide_anew()


@pytest.mark.usefixtures("fused", "spread")
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_products_that_are_fused(case: str, dtype: str, layout: str) -> None:
    """What rounding makes exactly zero on a CPU is not so there: of a certificate it must make no difference."""
    for n, batch in ((3, 33), (33, 31), (129, 3), (1000, 1)):
        solved(case, dtype, n, batch, layout, SEEDS[:1])


@pytest.mark.usefixtures("fused", "spread")
@pytest.mark.parametrize("dtype", [pytest.param(x, marks=pytest.mark.smoke) if x == "float64" else x for x in DTYPES])
@pytest.mark.parametrize("case", ["chunks-certified", "pieces-certified", "thomas-certified"])
def test_zeros_that_hang_together_where_products_are_fused(case: str, dtype: str) -> None:
    """An unknown that a correction takes to zero leaves its rounding in those that follow from it."""
    for layout in LAYOUTS:
        for system in (hanging(400, dtype), turned(hanging(400, dtype, seed=1))):
            for given in (system, together(system)):
                axis = int(layout == "rows")
                laid = given if axis else [np.ascontiguousarray(v.T) for v in given]
                x = tridiag.solve(*map(cupy.asarray, laid), axis=axis, backend=CASES[case][0]).get()
                assert_solves(x, *laid, axis=axis)


def together(system: list[np.ndarray]) -> list[np.ndarray]:
    """All systems as one, whose entries are no integers."""
    rng = np.random.default_rng(0)
    return [(v * rng.uniform(1, 2, v.shape)).astype(v.dtype).reshape(10, -1) for v in system]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_cyclic_systems_and_determinants(dtype: str, seed: int) -> None:
    for n in (3, 4, 31, 32, 33, 64, 65, 127):
        for batch in (1, 31, 33):
            a, b, c, d = uniform((batch, n), dtype, seed=n * batch)
            machine.seed = seed
            on_device = [cupy.asarray(x) for x in (a, b, c, d)]
            x = tridiag.solve(*on_device, periodic=True, backend="cupy_thomas").get()
            assert_solves(x, a, b, c, d, periodic=True)
            for periodic in (True, False):
                sign, logarithm = tridiag.slogdet(*on_device[:3], periodic=periodic, backend="cupy_pcr")
                wide = complex if np.iscomplexobj(b) else float
                true_sign, true_logarithm = np.linalg.slogdet(dense(a, b, c, periodic=periodic).astype(wide))
                bound = 1e4 * n * EPS[REAL.get(dtype, dtype)]  # times a condition number of some hundreds
                np.testing.assert_allclose(sign.get(), true_sign, atol=bound)
                np.testing.assert_allclose(logarithm.get(), true_logarithm, atol=bound)


def test_determinants_need_scratch_memory_for_periodic_matrices_alone() -> None:
    """Else few threads would be at work, and every row be written."""
    for periodic in (False, True):
        shape = (40, 50)
        operands = (shape, shape, shape, None, None), ((400, 8),) * 3 + (None, None)
        program = solvers.determinants(Form(shape, shape, 1, periodic=periodic), *operands, np.dtype(float), True)
        assert (program.scratch > 0) == periodic
        (launch,) = program.steps
        assert periodic or launch.grid * launch.block >= 40


@pytest.mark.parametrize("layout", LAYOUTS)
def test_long_systems_are_cut_and_solved_in_place(layout: str) -> None:
    """Uncertified pieces must not have overwritten the right sides that pivoting reads."""
    shape, axis = ((3, 9001), 1) if layout == "rows" else ((9001, 3), 0)
    given = dominant(shape, axis=axis)
    row = (slice(None), 4500) if layout == "rows" else (4500,)
    given[1][row] = 0  # no certificate
    on_device = [cupy.asarray(x) for x in given]
    x = tridiag.solve(*on_device, axis=axis, overwrite_d=True)
    assert x is on_device[3]
    assert long_error(*(np.moveaxis(v, axis, -1) for v in (x.get(), *given))) <= 8


@pytest.mark.parametrize(
    ("source", "job"),
    [
        ("systems.cu", SYSTEMS.job),
        ("sequences.cu", SEQUENCES.job),
        ("alignment.cu", PAIRS.job),
        ("blocks.cu", BLOCKS.job),
        ("series.cu", SERIES.job),
    ],
)
def test_the_words_of_a_job_are_those_of_the_struct(source: str, job: np.dtype, tmp_path: Any) -> None:
    """Python writes the struct that the kernels read: its fields, in their order."""
    fields = [f"offsetof(Job, {name})" for name in job.names]
    (tmp_path / "layout.cu").write_text(
        f'#include "{source}"\n'
        "#include <cstddef>\nstruct Told { long long* words; };\n"
        "__global__ void layout(Told told) {\n  const long long all[] = {sizeof(Job), "
        + ", ".join(f"static_cast<long long>({field})" for field in fields)
        + "};\n  for (int k = 0; k < int(sizeof all / 8); k++) told.words[k] = all[k];\n}\n"
    )
    words = np.zeros(1 + len(fields), np.int64)
    library = cpu_build.build("layout.cu", ("layout",), (f"-I{cpu_build.SOURCES}", *OPTIONS[1:]), folder=tmp_path)
    library.launch("layout", 1, 1, np.array([words.ctypes.data], np.int64))
    assert words.tolist() == [job.itemsize, *(job.fields[name][1] for name in job.names)]
