"""That kernels which come with the package need no compiler, and never run where a processor lacks what they need."""

import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import kernel_code
import numpy as np
import pytest
from processes import run_program

import tridiag
from tridiag.kernels import ahead, origins
from tridiag.kernels.runtime import object_cache, shipped, sources

pytestmark = pytest.mark.skipif(not shipped.kinds(), reason="no kernels come along on such a machine")

KINDS = [kind.name for kind in shipped.kinds()]
TOOL = Path(__file__).parents[1] / "tools" / "wheels.py"
PRODUCT = """
import pathlib, sys
import numpy as np
from tridiag.kernels.runtime import object_cache, shipped

shipped.FOLDER = pathlib.Path(sys.argv[1])
import tridiag

y = tridiag.matmul(-1.0, 4.0, -1.0, np.ones(50))
assert (y[1:-1] == 2).all() and y[0] == y[-1] == 3
print(object_cache.compiled(), "numba" in sys.modules)
"""
TAKEN = "products_float64", "call", "recall"  # by that call


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """In the place of that of the package; every kind has one in it, and the kind of this machine is found anew."""
    for name in KINDS:
        (tmp_path / "objects" / name).mkdir(parents=True)
    (tmp_path / "objects" / shipped.DIGEST).write_text(sources.digest())
    for setting in sources.SETTINGS:
        monkeypatch.delenv(f"NUMBA_{setting}", raising=False)
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "objects")
    monkeypatch.setattr(shipped, "GUARDED", False)
    shipped.kind.cache_clear()
    yield tmp_path / "objects"
    shipped.kind.cache_clear()


def bring_along(name: str, folder: Path) -> Path:
    """A kernel of this process, which is kept on the disk."""
    module = object_cache.modules[name]
    file = object_cache.file_name(name, module)
    content = next(path.read_bytes() for place in object_cache.folders() if (path := place / file).exists())
    return ahead.bring_along(name, module, object_cache.unpack(content, file), folder)


@pytest.mark.parametrize("damaged", [False, True])
def test_what_comes_along_is_not_compiled(folder: Path, tmp_path: Path, damaged: bool) -> None:
    """Unless its file is not what was written."""
    tridiag.matmul(-1.0, 4.0, -1.0, np.ones(50))
    kind = shipped.kind()
    assert kind is not None
    files = {name: bring_along(name, folder / kind) for name in TAKEN}
    if damaged:
        content = files["products_float64"].read_bytes()
        files["products_float64"].write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    told = run_program(PRODUCT, str(folder), XDG_CACHE_HOME=str(tmp_path / "empty"))
    assert told == f"{int(damaged)} {damaged}"


@pytest.mark.parametrize("machine", shipped.KINDS)
def test_the_best_kind_that_a_processor_is_of(folder: Path, monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    """A processor that lacks one instruction of a kind gets the next; of none of them, nothing."""
    monkeypatch.setattr(platform, "machine", lambda: machine)
    for kind in shipped.kinds():
        (folder / kind.name).mkdir(exist_ok=True)
    every = {feature: True for kind in shipped.kinds() for feature in kind.features}
    best, *others, last = shipped.kinds()

    def taken(**lacks: bool) -> str | None:
        monkeypatch.setattr(shipped, "features", lambda: {**every, **lacks})
        shipped.kind.cache_clear()
        return shipped.kind()

    assert taken() == best.name
    for feature in best.features:
        found = next((kind.name for kind in shipped.kinds() if feature not in kind.features), None)
        assert taken(**{feature: False}) == found
    assert taken(**dict.fromkeys(last.features, False)) is None
    (folder / best.name).rmdir()
    assert taken() == (others or [last])[0].name


def test_features_of_an_arm_processor_are_asked_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bit that Linux defines; a Cortex-A72, which has few of them, and a Neoverse V1."""
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    best, baseline = shipped.KINDS["aarch64"]
    for words, fits in (((0x8FF, 0), False), ((0x1FFFFFFF, 0x1F201), True)):
        monkeypatch.setattr(shipped, "ask_system", dict(zip(shipped.HWCAP, words, strict=True)).get)
        found = shipped.features()
        assert all(found[name] for name in baseline.features)
        assert all(found[name] for name in best.features) == fits
    assert {name for kind in (best, baseline) for name in kind.features} == set(found)


@pytest.mark.parametrize("setting", sources.SETTINGS)
def test_who_wants_other_code_compiles_it(folder: Path, monkeypatch: pytest.MonkeyPatch, setting: str) -> None:
    assert shipped.kind() is not None
    monkeypatch.setenv(f"NUMBA_{setting}", "0")
    shipped.kind.cache_clear()
    assert shipped.kind() is None


def test_what_was_made_of_other_sources_is_not_taken(folder: Path) -> None:
    (folder / shipped.DIGEST).write_text("0" * 64)
    assert shipped.kind() is None
    shipped.kind.cache_clear()
    (folder / shipped.DIGEST).unlink()
    assert shipped.kind() is None


def test_a_file_is_of_one_version_of_python_if_it_speaks_with_python(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = "tridiag.kernels.products.kernel", *shipped.OF_PYTHON
    here = [shipped.file_name("kernel", module) for module in modules]
    monkeypatch.setattr(sys.implementation, "cache_tag", "cpython-999")
    there = [shipped.file_name("kernel", module) for module in modules]
    assert [a == b for a, b in zip(here, there, strict=True)] == [True, False, False]


def test_every_kernel_is_told_by_its_name() -> None:
    """Which module builds it, and so under which name its file lies."""
    kernels = kernel_code.kernels(whole=True)
    assert {name: origins.module_of(name) for name in kernels} == {n: build.module for n, build in kernels.items()}
    assert origins.module_of("thomas_of_nobody") == ""


def test_where_kernels_come_from(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A wheel for several versions of Python has files that this one does not take; so have folders of users."""
    tridiag.matmul(-1.0, 4.0, -1.0, np.ones(50))
    kind = shipped.kind()
    assert kind is not None
    kept = {name: object_cache.file_name(name, object_cache.modules[name]) for name in TAKEN}
    contents = {name: next(p.read_bytes() for p in origins.kept_files() if p.name == kept[name]) for name in TAKEN}
    monkeypatch.setattr(object_cache, "folders", lambda: [tmp_path / "kept"])
    (tmp_path / "kept").mkdir()
    product, call, recall = TAKEN
    told = origins.origins([*TAKEN, "determinants_float64"])
    assert {entry.where for entry in told.kernels.values()} == {origins.NOT_YET} and told.unused == 0
    for name, content in contents.items():
        ahead.bring_along(name, object_cache.modules[name], object_cache.unpack(content, kept[name]), folder / kind)
    files = {path.name for path in (folder / kind).iterdir()}
    for name in (call, recall):
        (folder / kind / f"{name}.cpython-999.kernel").write_bytes(b"")
    assert {name for name, entry in origins.origins([]).kernels.items() if entry.where == origins.ALONG} == {*TAKEN}
    assert len(files) == 3 < len(list((folder / kind).iterdir()))
    (folder / kind / f"{product}.kernel").write_bytes(b"damaged")
    (tmp_path / "kept" / kept[product]).write_bytes(contents[product])
    (tmp_path / "kept" / f"{product}-0123456789abcdef0123.kernel").write_bytes(contents[product])
    told = origins.origins([])
    assert told.kernels[product] == (origins.HERE, str(tmp_path / "kept"), "matmul") and told.unused == 1
    assert told.kernels[call].where == origins.ALONG and told.kernels[call].of == kind


@pytest.mark.slow
def test_the_tool_writes_kernels_for_a_lesser_processor(tmp_path: Path) -> None:
    """They run here, and are right."""
    command = [sys.executable, str(TOOL), str(tmp_path), "--only", "small", "--kind", KINDS[-1]]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    program = PRODUCT.replace("matmul(-1.0, 4.0, -1.0, np.ones(50))", "solve(0.0, 0.5, 0.0, np.ones(50))").replace(
        "assert (y[1:-1] == 2).all() and y[0] == y[-1] == 3", "assert (y == 2).all()"
    )
    assert run_program(program, str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "empty")) == "0 False"
