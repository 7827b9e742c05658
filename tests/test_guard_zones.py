"""Kernels compiled with zones behind every field and array of their workspaces, none of which may be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")

FILES = "solve", "singular", "factor", "recurrences", "matrix_recurrence", "logarithms", "blocks", "kalman", "alignment"
OF_NUMBA = "short_systems", "both_ends", "parts"  # whose tests name no backend
BACKENDS = "numba_thomas-numpy or numba_partition-numpy or numba_scan-numpy or numba_wavefront-numpy"
CASES = f"float64 and ({BACKENDS} or {' or '.join(OF_NUMBA)})"


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_kernel_writes_beside_its_arrays(tmp_path: Path) -> None:
    """A process in which one was written is gone: the run fails, and names the test."""
    here = Path(__file__).parent
    environment = os.environ | {"TRIDIAG_GUARD_ZONES": "1", "XDG_CACHE_HOME": str(tmp_path)}
    command = [sys.executable, "-m", "pytest", "-c", str(here.parent / "setup.cfg"), "-q", "-p", "no:cacheprovider"]
    files = [str(here / f"test_{name}.py") for name in FILES + OF_NUMBA]
    run = subprocess.run([*command, "-k", CASES, *files], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-3000:] + run.stderr[-3000:]
