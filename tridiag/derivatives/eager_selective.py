"""Selective scans of arrays of libraries that have no derivatives."""

from __future__ import annotations

from typing import Any

from tridiag.backends import Backend
from tridiag.problems.selective import Operands, SelectiveScan


def run(operands: Operands, form: SelectiveScan, backend: Backend, traced: bool, out: Any) -> tuple[Any, Any]:
    found: tuple[Any, Any] = backend.module().selective_scan(operands, form, out)
    return found
