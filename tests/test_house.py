"""That folders use those below, and that a kernel is compiled anew for its own sources and no others."""

import ast
import re
from pathlib import Path

import pytest
from at_once import DTYPE, IN_JAX, LONG, ONE_DTYPE, TRACED

import tridiag
from tridiag.kernels.runtime import sources

ROOT = Path(tridiag.__file__).parent
FOLDER = ROOT / "kernels"
SOURCES = {".".join(path.relative_to(ROOT.parent).with_suffix("").parts): path for path in ROOT.rglob("*.py")}
MODULES = {name.removesuffix(".__init__"): path for name, path in SOURCES.items()}
GROUND = ("errors", "_version", "problems", "libraries", "algorithms", "kernels")
MIDDLE = (*GROUND, "cuda", "xla", "backends", "selection", "calls", "derivatives")
# what each part of the package may import of the others; those that are not here, the verbs and what is above them, all
PARTS = {
    "errors": (), "_version": (), "problems": (), "libraries": (),
    "algorithms": ("problems", "libraries"),
    "kernels": ("problems", "algorithms"),
    "cuda": GROUND,
    "xla": GROUND,
    "backends": (*GROUND, "cuda", "xla", "derivatives"),
    "selection": (*GROUND, "backends"),
    "calls": MIDDLE,
    "chunked": ("errors", "problems", "libraries", "algorithms", "calls", "parts"),
    "derivatives": (*MIDDLE, "factorization"),  # whose result JAX has to know as a tree of arrays
}  # fmt: skip
# what each folder of kernels may import of the others
FLOORS = {
    "jobs": (), "simd": ("jobs",),
    "runtime": ("jobs", "simd"),
    "access": ("jobs", "simd", "runtime"),
    "thomas": ("jobs", "simd", "runtime", "access"),
    "cyclic": ("jobs", "simd", "runtime", "access", "thomas"),
    "parts": ("jobs", "simd", "runtime", "access", "thomas"),
    "partition": ("jobs", "simd", "runtime", "access", "thomas"),
    "blocks": ("jobs", "simd", "runtime", "access"),
    "products": ("jobs", "simd", "runtime", "access"),
    "recurrence": ("jobs", "simd", "runtime", "access"),
    "selective": ("jobs", "simd", "runtime", "access"),
    "logsumexp": ("jobs", "simd", "runtime", "access"),
    "totals": ("jobs", "simd", "runtime", "access", "logsumexp"),
    "kalman": ("jobs", "simd", "runtime", "access"),
    "many_states": ("jobs", "simd", "runtime", "access", "kalman"),
    "states_in_lanes": ("jobs", "simd", "runtime", "access", "kalman", "many_states"),
    "alignment": ("jobs", "simd", "runtime", "access"),
    "numba_cuda": (), "triton": (), "pallas": (),
}  # fmt: skip


def test_every_folder_has_its_floor() -> None:
    assert {path.parent.name for path in FOLDER.glob("*/__init__.py")} == set(FLOORS)


@pytest.mark.parametrize("folder", FLOORS)
def test_folders_use_those_below(folder: str) -> None:
    for path in (FOLDER / folder).glob("*.py"):
        for module in sources.imported(path.read_text()):
            parts = module.split(".")
            if parts[1:2] == ["kernels"] and len(parts) > 2:
                assert parts[2] in (folder, *FLOORS[folder]), f"{path.name} imports {module}"


@pytest.mark.parametrize("part", PARTS)
def test_parts_use_those_below(part: str) -> None:
    for name, path in MODULES.items():
        if name.split(".")[1:2] == [part]:
            for module in sources.imported(path.read_text()):
                assert module.split(".")[1:2][0] in (part, *PARTS[part]), f"{path.name} imports {module}"


def test_no_module_reaches_itself() -> None:
    """Wherever in it the imports are."""
    uses = {name: {*sources.imported(path.read_text())} & MODULES.keys() for name, path in MODULES.items()}
    while free := [name for name, others in uses.items() if not others]:
        for name in free:
            del uses[name]
        for others in uses.values():
            others.difference_update(free)
    assert not uses


def test_imports_are_found_wherever_they_are() -> None:
    source = """
import numpy
import tridiag.errors
from tridiag.algorithms import elimination as el, matrix_rows
from tridiag.kernels.table import call_of
from tridiag.kernels.jobs import (  # why
    systems as J,
    kalman,
)

def later():
    from tridiag.kernels.simd.memory import word
"""
    assert set(sources.imported(source)) == {
        "tridiag.errors", "tridiag.algorithms.elimination", "tridiag.algorithms.matrix_rows", "tridiag.kernels.table",
        "tridiag.kernels.jobs.systems", "tridiag.kernels.jobs.kalman", "tridiag.kernels.simd.memory",
    }  # fmt: skip


def test_no_import_is_written_in_another_way() -> None:
    """What the search of imports by lines would not find."""
    for path in MODULES.values():
        source, wanted = path.read_text(), set()
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, path
                for name in node.names if (node.module or "").startswith("tridiag") else ():
                    inner = f"{node.module}.{name.name}"
                    wanted.add(inner if sources.file_of(inner) else node.module)
            elif isinstance(node, ast.Import):
                wanted |= {name.name for name in node.names if name.name.startswith("tridiag")}
        assert set(sources.imported(source)) == wanted, path


def test_modules_that_are_named_are_there() -> None:
    """In strings, docstrings and comments, also of what only another machine imports."""
    for path in MODULES.values():
        for name in re.findall(r"(?:`|\"(?=tridiag\.kernels))(tridiag(?:\.\w+)+)", path.read_text()):
            parts = name.split(".")
            found = [k for k in range(2, len(parts) + 1) if sources.file_of(".".join(parts[:k]))]
            public = not sources.file_of(f"tridiag.{parts[1]}") and hasattr(tridiag, parts[1])
            assert public or (found and len(parts) <= max(found) + 2), (path, name)


def test_no_two_libraries_of_compiled_functions_have_one_name() -> None:
    """Each would find the functions of the one that was imported last: an error that comes and goes with the order."""
    texts = [path.read_text() for path in ROOT.rglob("*.py")]
    names = [name for text in texts for name in re.findall(r'= Library\(f?"([^"]+)"|, Library\(f?"([^"]+)"', text)]
    found = ["".join(name) for name in names]
    assert len(found) > 10 and len(set(found)) == len(found)


def test_what_waits_for_slow_is_there() -> None:
    """A test that is renamed does not leave its old name in the tables of what runs at once."""
    here = Path(__file__).parent
    known = {path.name: path for path in here.rglob("test_*.py")}
    for table in (DTYPE, ONE_DTYPE, IN_JAX, LONG, TRACED):
        assert set(table) <= set(known)
    for table in (LONG, {name: tests for name, (_, tests) in IN_JAX.items()}):
        for name, tests in table.items():
            found = set(re.findall(r"^def (test_\w+)", known[name].read_text(), re.MULTILINE))
            assert {test.partition("[")[0] for test in tests} <= found, name


def test_a_kernel_is_compiled_anew_for_its_own_sources_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "tridiag"
    for path in FOLDER.parent.rglob("*.py"):
        target = copy / path.relative_to(FOLDER.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    monkeypatch.setattr(sources, "ROOT", copy)
    names = [f"tridiag.kernels.{name}" for name in ("thomas.kernel", "alignment.kernel", "recurrence.kernel")]

    def hashes() -> list[int]:
        sources.source_hash_of.cache_clear()
        return [sources.source_hash_of(name) for name in names]

    def changed(path: str) -> list[bool]:
        before = hashes()
        with (copy / path).open("a") as file:
            file.write("# another line\n")
        return [x != y for x, y in zip(before, hashes(), strict=True)]

    assert hashes() == hashes()
    assert changed("kernels/alignment/shared_exponents.py") == [False, True, False]
    assert changed("kernels/thomas/steps.py") == [True, False, False]
    assert changed("kernels/simd/vector.py") == [True, True, True]
    assert changed("algorithms/elimination.py") == [True, False, False]
    assert changed("kernels/triton/rows.py") == [False, False, False]
    assert changed("systems.py") == [False, False, False]
    sources.source_hash_of.cache_clear()
