"""Kernels that JAX calls in a process that has to compile them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import jax, numpy as np, tridiag
a, x = np.full((20, 100), 0.5, np.float32), np.ones((20, 100), np.float32)
y = jax.jit(tridiag.linear_recurrence)(jax.numpy.asarray(a), jax.numpy.asarray(x))
blocks = np.full((20, 10, 2, 2), 0.25) + np.eye(2)
z = jax.jit(tridiag.matrix_recurrence)(jax.numpy.asarray(blocks), jax.numpy.ones((20, 10, 2)))
assert np.isfinite(jax.jit(tridiag.solve_block)(blocks, 4 * blocks, blocks, z)).all()
print(tridiag.explain("linear_recurrence", jax.numpy.asarray(a), y).backend, np.array_equal(y[:, 3], [1.875] * 20))
"""


@pytest.mark.slow
def test_a_kernel_that_was_just_compiled_serves_jax(tmp_path: Path) -> None:
    """No function inside it may have the name under which XLA's handler calls it."""
    for module in ("jax", "numba"):
        pytest.importorskip(module)
    places = {"NUMBA_CACHE_DIR": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    run = subprocess.run([sys.executable, "-c", PROGRAM], env=os.environ | places, capture_output=True, text=True)
    assert run.stdout.split() == ["numba_scan", "True"], run.stdout + run.stderr
