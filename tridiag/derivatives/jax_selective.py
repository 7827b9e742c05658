"""Selective scans of JAX arrays: what the backend is written in has its derivatives."""

from __future__ import annotations

from typing import Any

from tridiag.backends import BACKENDS, Backend
from tridiag.problems.selective import Operands, SelectiveScan
from tridiag.xla.platforms import Name, on_platform
from tridiag.xla.programs import Program


def run(operands: Operands, form: SelectiveScan, backend: Backend, traced: bool, out: Any) -> tuple[Any, Any]:
    function = scanned if traced else compiled
    return function(form, backend.name, *operands)


def scanned(form: SelectiveScan, name: Name, *operands: Any) -> tuple[Any, Any]:
    found: tuple[Any, Any] = on_platform(name, once, (form,), *operands)
    return found


compiled = Program(scanned, (0, 1))


def once(form: SelectiveScan, name: str, *operands: Any) -> tuple[Any, Any]:
    found: tuple[Any, Any] = BACKENDS[name].module().selective_scan(Operands(*operands), form)
    return found
