"""From which sources a kernel is made."""

from __future__ import annotations

import functools
import hashlib
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[2]
IMPORT = re.compile(
    r"^[ \t]*from (tridiag[\w.]*) import (\([^)]*\)|[^\n]*)|^[ \t]*import (tridiag[\w.]*)", re.MULTILINE
)
SETTINGS = (  # of Numba, that change the code too
    "CPU_NAME", "CPU_FEATURES", "ENABLE_AVX", "OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "BOUNDSCHECK", "DEBUGINFO",
)  # fmt: skip
NAME = re.compile(r"(\w+)(?: as \w+)?\s*(?:,|$|\))")


@functools.cache
def source_hash() -> int:
    """A number that changes with any source of any kernel."""
    paths = (path.relative_to(ROOT.parent).with_suffix("") for path in (ROOT / "kernels").rglob("*.py"))
    return source_hash_of(*(".".join(path.parts) for path in paths if path.name != "__init__"))


@functools.cache
def digest() -> str:
    """One that changes with any source of the package."""
    found = hashlib.sha256()
    for path in sorted(ROOT.rglob("*.py")):
        found.update(path.relative_to(ROOT).as_posix().encode() + b"\n" + path.read_bytes())
    return found.hexdigest()


@functools.cache
def source_hash_of(*modules: str) -> int:
    """A number that changes with any source of which modules are made: theirs, and what they import of the package."""
    found: dict[str, pathlib.Path] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in found and (path := file_of(name)):
            found[name] = path
            waiting += imported(path.read_text())
    digest = hashlib.sha256()
    for name in sorted(found):
        digest.update(name.encode() + b"\n" + found[name].read_bytes())
    return int.from_bytes(digest.digest()[:7], "little")


def file_of(module: str) -> pathlib.Path | None:
    """That of a module or a package of this one; None for others."""
    package, _, rest = module.partition(".")
    place = ROOT.joinpath(*rest.split(".")) if rest else ROOT
    candidates = [place.with_suffix(".py")] * bool(rest) + [place / "__init__.py"]
    return next((path for path in candidates if package == ROOT.name and path.is_file()), None)


def imported(source: str) -> list[str]:
    """The modules of the package that a source imports, anywhere in it."""
    found = []
    for parent, names, alone in IMPORT.findall(source):
        if alone:
            found.append(alone)
        for name in NAME.findall(re.sub(r"#[^\n]*", "", names)):
            inner = f"{parent}.{name}"
            found.append(inner if file_of(inner) else parent)
    return found
