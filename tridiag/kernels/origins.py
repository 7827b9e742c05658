"""Where the kernels of this machine come from: which came along, which were compiled here, which are not made yet.

Nothing is linked or compiled. A file counts where a call would take it: that of other sources, of another processor or
version, or one that is damaged does not.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tridiag.kernels.ahead import VERBS
from tridiag.kernels.runtime import call_table, object_cache, python_call, shipped
from tridiag.kernels.runtime.object_cache import made_by
from tridiag.kernels.table import KERNELS

ALONG, HERE, NOT_YET = "came along", "compiled here", "not yet made"
PLACES = (ALONG, HERE, NOT_YET)
DTYPE = "(?:float|complex)[0-9]+"
OTHERS = "others"  # in place of a verb: Python's and XLA's calls of kernels, and kernels of none of the verbs alone
AROUND = dict(  # kernels around others, and what builds them
    [
        python_call.ENTRY,
        call_table.ENTRY,
        ("xla_handler", made_by("runtime.xla_handler.build")),
        ("cuda_handler", made_by("runtime.cuda_handler.build")),
    ]
)


class Origin(NamedTuple):
    where: str  # ALONG, HERE or NOT_YET
    of: str  # the kind of processors, or the folder
    verb: str


class Found(NamedTuple):
    kernels: dict[str, Origin]  # by name
    unused: int  # files in the folders of this user that no call takes


def origins(wanted: list[str]) -> Found:
    """Of all kernels that there are, and of those that are ``wanted``."""
    here, unused = kept()
    places = {name: (NOT_YET, "") for name in wanted} | here | came_along()
    return Found({name: Origin(*place, verb_of(name)) for name, place in sorted(places.items())}, unused)


def came_along() -> dict[str, tuple[str, str]]:
    """Those in the folder of this kind of processors, for this version of Python."""
    if (kind := shipped.kind()) is None:
        return {}
    found = {}
    for path in (shipped.FOLDER / kind).glob("*.kernel"):
        name = path.name.partition(".")[0]
        if (
            (module := module_of(name))
            and shipped.file_name(name, module) == path.name
            and whole(path.read_bytes(), path)
        ):
            found[name] = ALONG, kind
    return found


def kept() -> tuple[dict[str, tuple[str, str]], int]:
    """Those in the folders of this user, of the first one that has it; and how many other files there are."""
    found: dict[str, tuple[str, str]] = {}
    unused = 0
    for path in kept_files():
        name = path.stem.rpartition("-")[0]
        module = module_of(name)
        if name not in found and module and object_cache.file_name(name, module) == path.name and is_read(path):
            found[name] = HERE, str(path.parent)
        else:
            unused += 1
    return found, unused


def kept_files() -> Iterator[Path]:
    for folder in object_cache.folders():
        yield from folder.glob("*.kernel")


def is_read(path: Path) -> bool:
    try:
        return whole(object_cache.private_files.read(path), path)
    except OSError:
        return False


def whole(content: bytes, path: Path) -> bool:
    try:
        object_cache.unpack(content, path.name)
    except ValueError:
        return False
    return True


def module_of(name: str) -> str:
    """The module that builds a kernel; "" where there is none."""
    if name in AROUND:
        return AROUND[name].module
    family = family_of(name)
    return made_by(KERNELS[family].builder).module if family else ""


@functools.cache
def patterns() -> dict[str, re.Pattern[str]]:
    """Of the names of the kernels of a family; the ones with most fixed letters first, which tell the most."""
    pairs = sorted(KERNELS.items(), key=lambda pair: -len(re.sub(r"\{\d\}", "", pair[1].name)))
    return {name: re.compile(family.name.format(DTYPE, r"\w+", r"\d+", r"\w+")) for name, family in pairs}


def family_of(name: str) -> str | None:
    return next((family for family, pattern in patterns().items() if pattern.fullmatch(name)), None)


def verb_of(name: str) -> str:
    """The first one that takes such kernels."""
    family = family_of(name)
    taking = (verb for verb, taken in VERBS.items() if any(family == one for one, *_ in taken.forward + taken.backward))
    return next(taking, OTHERS)
