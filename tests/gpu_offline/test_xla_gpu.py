"""Whole jitted functions, compiled by XLA for an H200 that is not there: that they compile, and what kernels need."""

import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tridiag.backends import installed

HERE = Path(__file__).parent
MODULES = ("jax", "absl", "jax_cuda13_plugin", "jax_plugins.xla_cuda13")
WHEELS = ("jax-cuda13-plugin", "jax-cuda13-pjrt")
# Of a thread: two blocks of 128 threads fit a multiprocessor, as with any number above 168; with fewer rows a block's
# shared memory lets in no third. The kernel needs up to 238, where quotients are looked at for underflow.
MOST_REGISTERS = 65536 // (2 * 128) - 1


def why_not() -> str | None:
    """The sentence that says what is missing here."""
    if absent := [name for name in MODULES if not installed(name)]:
        return f"needs {' and '.join(absent)}, not installed"
    wanted = importlib.metadata.version("jax")
    for wheel in WHEELS:
        if (version := importlib.metadata.version(wheel)) != wanted:
            return f"needs {wheel} {wanted}, as JAX is; {version} is installed"
    return None if ptxas() else "needs ptxas, which is not installed"


def ptxas() -> bool:
    """Whether XLA will find it."""
    wheels = importlib.util.find_spec("nvidia.cu13") if installed("nvidia.cu13") else None
    folders = list((wheels and wheels.submodule_search_locations) or [])
    return bool(shutil.which("ptxas")) or any((Path(folder) / "bin" / "ptxas").exists() for folder in folders)


pytestmark = [pytest.mark.gpu_toolchains, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """By the name of a case; without the stand-in for CuPy, so that "auto" is what JAX alone can do."""
    path = os.pathsep.join(
        folder for folder in sys.path if folder and HERE not in (Path(folder), *Path(folder).parents)
    )
    command = [sys.executable, str(HERE / "xla_gpu_assembly.py"), str(tmp_path_factory.mktemp("kernels"))]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


def test_kernels_of_jax_pallas(compiled: dict[str, dict[str, Any]]) -> None:
    """For sm_90a: no spill, no stack, no warning, and no float64 in those for float32."""
    cases = {name: told for name, told in compiled.items() if name.startswith("jax_pallas")}
    assert len(cases) == 23
    for name, told in cases.items():
        assert told["calls"] == ["mosaic_gpu_v2"], name
        assert len(told["kernels"]) == ("gradient" not in name), name  # that takes two which are there
        for kernel in told["kernels"]:
            assert kernel["bytes"] == [0, 0, 0] and kernel["complaints"] == [], name
            assert bool(kernel["in double precision"]) == ("float64" in name), name
            assert kernel["registers"] <= MOST_REGISTERS, name
            assert kernel["kept in memory"] == ("long" in name), name


def test_whole_functions(compiled: dict[str, dict[str, Any]]) -> None:
    """What JAX's own operations make of a solve and its gradient; only `jax_lax` calls a library."""
    others = {name: told for name, told in compiled.items() if not name.startswith(("jax_pallas", "handler"))}
    assert set(others) == {"auto", "auto gradient", "jax_pcr", "jax_lax", "jax_fori"}
    assert all(told["kernels"] == [] for told in others.values())
    assert {name for name, told in others.items() if told["calls"]} == {"jax_lax"}
    assert any("cusparse" in call for call in others["jax_lax"]["calls"])


def test_the_handler_that_launches_kernels(compiled: dict[str, dict[str, Any]]) -> None:
    """XLA for GPUs has its interface, and calls it in a program."""
    (name,) = compiled["handler"]["calls"]
    assert name.startswith("tridiag_cuda_")
