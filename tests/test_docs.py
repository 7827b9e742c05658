"""The documentation: dead links are found, every example is run, every example program has its page."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.rst"))
GALLERY = ROOT / "docs/gallery"
API = (ROOT / "docs/api.rst").read_text()


@pytest.fixture
def links(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(ROOT / "docs")
    yield importlib.import_module("links")


@pytest.mark.parametrize(
    ("link", "dead"),
    [
        ("other.html", False),
        ("other.html#there", False),
        ("#here", False),
        ("picture.png", False),
        ("https://example.org/nowhere", False),
        ("nowhere.html", True),
        ("other.html#nowhere", True),
        ("#nowhere", True),
        ("folder", True),
    ],
)
def test_a_dead_link_within_the_pages_is_found(links: ModuleType, tmp_path: Path, link: str, dead: bool) -> None:
    (tmp_path / "other.html").write_text('<p id="there"></p>')
    (tmp_path / "picture.png").touch()
    (tmp_path / "folder").mkdir()
    (tmp_path / "page.html").write_text(f'<p id="here"><a href="{link}">text</a></p>')
    assert links.dead_in_pages(tmp_path) == ([f"page.html: {link}"] if dead else [])


def test_a_file_that_is_named_in_vain_is_found(links: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text("<code>python docs/links.py</code><code><i>benchmarks/nowhere.py</i></code>")
    assert links.dead_in_pages(tmp_path) == ["page.html: benchmarks/nowhere.py"]
    (tmp_path / "README.md").write_text("[here](README.md), [not here](docs/nowhere.md); `tests/nowhere.py`")
    (tmp_path / "CHANGELOG.md").write_text("[elsewhere](https://example.org), [below](#below)")
    assert links.dead_in_texts(tmp_path) == ["README.md: docs/nowhere.md", "README.md: tests/nowhere.py"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_in_the_pages_is_run(page: Path) -> None:
    """`make doctest` runs what has a prompt; only what needs a GPU may stand there without one."""
    if page.name == "new_backend.rst":
        pytest.skip("tests/test_new_backend.py runs it on a copy of the package")
    blocks = re.findall(r"code-block:: python\n((?:\n|   .*\n)+)", page.read_text())
    assert all("import cupy" in block for block in blocks), f"{page.name}: write >>> before code that can be run"
    assert "+SKIP" not in page.read_text()


@pytest.mark.parametrize("name", ["kalman", "conventions", "xarray"])
def test_public_names_of_modules_are_in_the_reference(name: str) -> None:
    if name == "xarray":
        pytest.importorskip("xarray")
    module = importlib.import_module(f"tridiag.{name}")
    missing = [name for name in module.__all__ if f":: {module.__name__}.{name}\n" not in API]
    assert module.__all__ and not missing


def test_every_example_has_its_page_and_what_it_prints_and_draws() -> None:
    pages, gallery = "".join(page.read_text() for page in GALLERY.glob("*.rst")), (GALLERY / "index.rst").read_text()
    for example in (ROOT / "examples").glob("*.py"):
        assert f"literalinclude:: ../../examples/{example.name}\n" in pages, f"no page shows {example.name}"
        if "__main__" in example.read_text():
            assert f":doc:`{example.stem}`" in gallery, f"{example.stem} is not in docs/gallery/index.rst"
            files = [GALLERY / f"{example.stem}.{ending}" for ending in ("rst", "txt", "png")]
            assert all(file.is_file() for file in files), f"run: python docs/gallery.py {example.stem}"
