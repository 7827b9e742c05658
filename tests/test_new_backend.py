"""That the backend of docs/howto/new_backend.rst, added to a copy of the package, is one like the others."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import tridiag

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/howto/new_backend.rst").read_text()
FILE, TABLE, USE = "tridiag/backends/scipy_banded.py", "tridiag/backends/__init__.py", "as any other"
LAST_LINE = '    Backend("jax_lax",'  # of those before which the new one goes
TESTS = ("test_solve.py", "test_singular.py", "test_isolation.py", "test_overflow.py", "test_table.py")
NAME = "scipy_banded"
CHOSEN = f"{NAME} or test_every_file_has_its_line or test_backends_lists_the_table"
PROGRAM = """
import numpy as np, tridiag
{use}
assert tridiag.__file__.startswith({folder!r}), tridiag.__file__
np.testing.assert_allclose(x, [[5 / 7, 6 / 7, 5 / 7]] * 2, rtol=1e-15)
told = tridiag.explain("solve", 1.0, 4.0, 1.0, np.ones(9)).others["scipy_banded"]
assert told == "cannot keep the promise pivoting='auto'; it runs with pivoting=False or True"
assert tridiag.explain("solve", 1.0, 4.0, 1.0, np.ones(9), pivoting=True).others["scipy_banded"] is None
"""


def code(caption: str) -> str:
    """The block of the page that has this caption."""
    (found,) = re.findall(rf":caption: {re.escape(caption)}\n\n((?:   .*\n|\n)+)", PAGE)
    return textwrap.dedent(found).strip() + "\n"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package with the new file and the new line, the tests beside it, and links to all else."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(Path(tridiag.__file__).parent, folder / "tridiag", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    (tested,) = re.findall("^TESTED := (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for other in (file for pattern in tested.split() for file in ROOT.glob(pattern)):  # which tests may read
        if not (folder / other.name).exists():
            (folder / other.name).symlink_to(other)
    (folder / FILE).write_text(code(FILE))
    table = (folder / TABLE).read_text()
    assert table.count(LAST_LINE) == 1
    (folder / TABLE).write_text(table.replace(LAST_LINE, f"    {code(TABLE).strip()}\n{LAST_LINE}"))
    return folder


def run(copy: Path, *arguments: str) -> str:
    """What Python prints that finds the copy first."""
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    found = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def test_it_has_less_than_30_lines() -> None:
    assert code(FILE).count("\n") + code(TABLE).count("\n") < 30


def test_it_solves(copy: Path) -> None:
    pytest.importorskip("scipy")
    run(copy, "-W", "error", "-c", PROGRAM.format(use=code(USE), folder=str(copy)))


def test_it_passes_the_tests_of_a_backend(copy: Path) -> None:
    pytest.importorskip("scipy")
    assert passed(copy, CHOSEN, *(f"tests/{name}" for name in TESTS)) > 80


@pytest.mark.slow
def test_it_passes_the_command_of_the_page(copy: Path) -> None:
    """All tests that have the backend in their names, in any file."""
    pytest.importorskip("scipy")
    assert f'make test PYTEST_ARGS="-k {NAME}"' in PAGE
    assert passed(copy, NAME) > 130


def passed(copy: Path, chosen: str, *files: str) -> int:
    """How many tests have passed, where none has failed."""
    told = run(copy, "-m", "pytest", "-c", "setup.cfg", "-q", "-p", "no:cacheprovider", "-k", chosen, *files)
    count = re.search(r"(\d+) passed", told)
    assert count, told
    return int(count[1])
