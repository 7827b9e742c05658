"""Kernels of the CPU build, each with all others of its source and dtype: that takes less than one after another."""

from __future__ import annotations

import functools
from typing import Any

import cpu_build

from tridiag.cuda.instances import INSTANCES
from tridiag.cuda.record import Kernel
from tridiag.cuda.struct import TYPES

one_by_one = cpu_build.build


def dtype_of(kernel: Kernel) -> str:
    """In which it computes: the first argument of its template."""
    arguments = kernel.name.partition("<")[2]
    return next(dtype for dtype, name in TYPES.items() if arguments.startswith(name))


@functools.cache
def groups() -> dict[str, tuple[str, ...]]:
    """The names of all that are built with a kernel, by its name."""
    kept: dict[tuple[str, str], list[str]] = {}
    for kernel in INSTANCES:
        kept.setdefault((kernel.source, dtype_of(kernel)), []).append(kernel.name)
    return {name: tuple(names) for names in kept.values() for name in names}


def build(source: str, expressions: tuple[str, ...], *options: Any, **named: Any) -> cpu_build.Library:
    """As `cpu_build.build`."""
    return one_by_one(source, groups().get(expressions[0], expressions), *options, **named)
