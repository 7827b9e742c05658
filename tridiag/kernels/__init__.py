"""Compiled inner loops: what each folder holds, and from which sources a kernel is made.

A kernel is a C function ``void run(job, helpers)``, built by ``build`` in the module ``kernel`` of its folder. Folders
that stand further down are used by those above, never the other way round::

    thomas cyclic partition blocks            systems: many short or interleaved, periodic, few long, of blocks
    recurrence logsumexp kalman alignment     the other verbs
    numba_cuda triton pallas                  systems on GPUs, each in a language of its own (CUDA C: `tridiag.cuda`)
    access                                    between the caller's memory, whatever its strides, and rows of lanes
    runtime                                   thread teams, the object cache, calls from CPython and XLA, memory kept
    simd                                      the language for inner loops, with no solver in it; raw memory
    jobs                                      the words by which a caller tells a kernel what to do; plain integers

A row of lanes is one vector: the entries of one row of as many systems as it has lanes.
"""

from __future__ import annotations

import functools
import hashlib
import pathlib
import re
from collections.abc import Iterable

ROOT = pathlib.Path(__file__).parent.parent
IMPORT = re.compile(
    r"^[ \t]*from (tridiag[\w.]*) import (\([^)]*\)|[^\n]*)|^[ \t]*import (tridiag[\w.]*)", re.MULTILINE
)
NAME = re.compile(r"(\w+)(?: as \w+)?\s*(?:,|$|\))")


@functools.cache
def source_hash() -> int:
    """A number that changes with any source of any kernel."""
    steps = [ROOT / f"{name}.py" for name in ("elimination", "filtering", "logsum", "square_roots")]
    return hash_of([*steps, *sorted((ROOT / "kernels").rglob("*.py"))])


@functools.cache
def source_hash_of(module: str) -> int:
    """A number that changes with any source of which a module is made: its own, and what it imports of the package."""
    found: dict[str, pathlib.Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found and (path := file_of(name)):
            found[name] = path
            waiting += imported(path.read_text())
    return hash_of(found[name] for name in sorted(found))


def hash_of(paths: Iterable[pathlib.Path]) -> int:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\n" + path.read_bytes())
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
