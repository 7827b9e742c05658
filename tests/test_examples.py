"""The examples, small: that they run, conserve, agree and recover; their full size is `make demo`."""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
GALLERY = Path(__file__).parents[1] / "docs/gallery"


def words(text: str) -> list[str]:
    """What was printed, but for the digits, which differ in their last places from one CPU to another."""
    return re.sub(r"[\d.,]*\d", "#", text).split()


@pytest.fixture(autouse=True)
def examples_on_path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The examples ask JAX for float64, which is said process-wide; the other tests must not hear it."""
    monkeypatch.syspath_prepend(EXAMPLES)
    jax = importlib.import_module("jax") if importlib.util.find_spec("jax") else None
    before = jax and jax.config.jax_enable_x64
    yield
    if jax:
        jax.config.update("jax_enable_x64", before)


def test_an_ocean_conserves_and_its_backends_agree(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pytest.importorskip("global_land_mask")
    pytest.importorskip("rich")
    pytest.importorskip("scipy")
    pytest.importorskip("matplotlib")
    import ocean_mixing

    assert ocean_mixing.main(["--small", "--steps", "65", "--output", str(tmp_path / "ocean.png")]) == 0
    assert (tmp_path / "ocean.png").stat().st_size > 10_000
    told = capsys.readouterr().out
    assert "held" in told and "agrees" in told


def test_one_day_of_mixing_is_the_dense_solve() -> None:
    pytest.importorskip("global_land_mask")
    pytest.importorskip("rich")
    pytest.importorskip("scipy")
    pytest.importorskip("matplotlib")
    import ocean_grid
    import ocean_mixing

    grid = ocean_grid.make_grid(ocean_grid.SMALL)
    ocean = ocean_mixing.Ocean(grid)
    first = ocean.tracers.copy()
    ocean.run(ocean.increment_step, 1)
    i, j = np.argwhere(grid.ocean.sum(-1) == grid.ocean.sum(-1).max())[0]
    n = grid.ocean[i, j].sum()
    g, h = ocean.g[i, j, : n - 1], grid.thickness[:n]
    matrix = np.diag(h) + np.diag(np.append(g, 0) + np.append(0, g)) - np.diag(g, 1) - np.diag(g, -1)
    wanted = np.linalg.solve(matrix, (h * first[:, i, j, :n]).T).T
    np.testing.assert_allclose(ocean.tracers[:, i, j, :n], wanted, rtol=1e-11)
    assert not ocean.tracers[:, ~grid.ocean].any()


def test_a_few_days_tell_the_mixing_coefficient() -> None:
    pytest.importorskip("jax")
    pytest.importorskip("rich")
    import mixing_inverse

    found, counts, losses = mixing_inverse.recover(iterations=30, steps=20)
    assert losses[-1] < losses[0] / 10
    assert counts.sum() > 40
    assert np.abs(found - mixing_inverse.true_log_k())[counts].mean() < 0.5


def test_the_nile_has_its_published_variances(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    for module in ("jax", "rich", "scipy", "matplotlib", "statsmodels"):
        pytest.importorskip(module)
    import nile

    monkeypatch.chdir(tmp_path)
    assert nile.main(["--output", "nile.png"]) == 0
    assert (tmp_path / "nile.png").stat().st_size > 10_000
    told = capsys.readouterr().out
    assert "15,09" in told
    assert words(told) == words((GALLERY / "nile.txt").read_text()), "run: python docs/gallery.py nile"


def test_globins_at_a_low_temperature_have_the_score_of_biopython(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    for module in ("jax", "matplotlib", "Bio"):
        pytest.importorskip(module)
    import globin_alignment

    monkeypatch.chdir(tmp_path)
    assert globin_alignment.main(["--output", "globin_alignment.png"]) == 0
    assert (tmp_path / "globin_alignment.png").stat().st_size > 10_000
    told = capsys.readouterr().out
    assert "Biopython  288, at T = 0.01  288.01" in told and "agrees with Biopython" in told
    page = (GALLERY / "globin_alignment.txt").read_text()
    assert words(told) == words(page), "run: python docs/gallery.py globin_alignment"


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_a_wave_in_several_processes_is_that_of_one(processes: int, tmp_path: Path) -> None:
    """Solved by parts, and gathered where that says so; `mpich` on this machine alone."""
    mpiexec = Path(sys.executable).with_name("mpiexec")
    for module in ("mpi4py", "matplotlib"):
        pytest.importorskip(module)
    if not mpiexec.exists():
        pytest.skip("needs mpiexec, of the wheel mpich")
    small = ["--length", "401", "--width", "64", "--output", "wave.png"]
    command = [mpiexec, "-n", str(processes), sys.executable, "-W", "error", EXAMPLES / "mpi_channel.py", *small]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "wave.png").stat().st_size > 10_000
    by_parts, whole = re.findall(r"(\d+) (?:solved by parts|gathered)", done.stdout)
    assert int(by_parts) > 40 and int(whole) > 0
    assert words(done.stdout) == words((GALLERY / "mpi_channel.txt").read_text()), (
        "run: python docs/gallery.py mpi_channel"
    )


@pytest.mark.slow
def test_the_gradient_finds_the_mixing_coefficient_again() -> None:
    pytest.importorskip("jax")
    pytest.importorskip("rich")
    import mixing_inverse

    assert mixing_inverse.main([]) == 0


@pytest.mark.slow
def test_a_box_whose_axes_are_cut_over_devices() -> None:
    """In a process that has eight devices."""
    pytest.importorskip("jax")
    run = subprocess.run(
        [sys.executable, str(EXAMPLES / "adi_devices.py"), "--size", "12", "--steps", "3"],
        capture_output=True, text=True, timeout=300, env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    assert "on 8 devices, each with (6, 6, 6)" in run.stdout
