"""What a user meets before the first solve: the import, the version, the types, the docstrings, the README."""

import importlib.metadata
import inspect
import re
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

import tridiag
from tridiag.cuda import instances, launcher

HEAVY = ["numba", "llvmlite", "jax", "jaxlib", "torch", "scipy", "cupy", "triton", "rich", "matplotlib"]
HEAVY += ["dask", "xarray"]
ROOT = Path(__file__).parents[1]
API = (ROOT / "docs/api.rst").read_text()
README = (ROOT / "README.md").read_text()


def test_import_loads_numpy_and_nothing_heavier():
    program = f"import sys, tridiag; print([name for name in {HEAVY} if name in sys.modules], 'numpy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[] True"


@pytest.mark.slow
def test_import_costs_little_more_than_numpy():
    run = subprocess.run([sys.executable, ROOT / "benchmarks/import_time.py"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_version_is_the_installed_one():
    try:
        installed = importlib.metadata.version("batched-tridiag")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("a plain checkout: batched-tridiag is not installed")
    assert tridiag.__version__ == installed


def test_types_ship_with_the_package():
    assert resources.files("tridiag").joinpath("py.typed").is_file()


def test_cuda_sources_ship_with_the_package():
    sources = {kernel.source for kernel in instances.INSTANCES}
    assert sources and all("__global__" in launcher.text(source) for source in sources)  # with what they include


@pytest.mark.parametrize("name", tridiag.__all__)
def test_public_names_exist_and_are_documented(name):
    public = getattr(tridiag, name)
    if name == "__version__":
        return
    assert inspect.getdoc(public), f"{name} has no docstring"
    told = f"tridiag.{name}" if inspect.ismodule(public) else name
    assert f":: {told}\n" in API, f"{name} is not in docs/api.rst"
    assert not inspect.isfunction(public) or ">>>" in public.__doc__, f"the docstring of {name} has no example"


def test_readme_examples_run():
    pytest.importorskip("jax")
    blocks = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    assert blocks
    exec("\n".join(blocks), {})
