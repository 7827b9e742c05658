"""DTensors over four processes on this machine: equal to one process's answer, and only what must be is exchanged."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import installed

SCRIPT, BESIDE = (Path(__file__).with_name(f"distributed_{name}.py") for name in ("systems", "recurrences"))
CHECKS = re.findall(r"@check\ndef (\w+)", SCRIPT.read_text() + BESIDE.read_text())
LATER = ("gradients_of_gradients", "gradients_of_systems", "hard_systems", "recurrences_along_the_sharded_axis")


def missing() -> str | None:
    if not installed("torch") or not installed("numba"):
        return "needs torch and numba, which are not both installed"
    import torch

    distributed = torch.distributed
    if sys.platform != "linux" or not distributed.is_available() or not distributed.is_gloo_available():
        return "needs torch.distributed with gloo on Linux"
    there = hasattr(importlib.import_module("torch.distributed.tensor"), "DTensor")
    return None if there else f"needs torch.distributed.tensor.DTensor, which PyTorch {torch.__version__} does not have"


def run(*checks: str) -> None:
    """Checks in four processes, in which every warning is an error."""
    if reason := missing():
        pytest.skip(reason)
    alone = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_LOGS": "-all"}
    command = [sys.executable, "-W", "error", "-X", "faulthandler", str(SCRIPT), *checks]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, env={**os.environ, **alone})
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-5000:]
    assert re.findall(r"^(\w+): [\d.]+ s$", done.stdout, re.MULTILINE) == list(checks)


@pytest.mark.slow
def test_four_processes() -> None:
    run(*(name for name in CHECKS if name not in LATER))


@pytest.mark.slow
def test_four_processes_in_depth() -> None:
    run(*LATER)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_products_beyond_the_range(dtype: str) -> None:
    """As mantissa and exponent; on the way to them nothing over- or underflows, nor loses digits."""
    torch, mpmath = pytest.importorskip("torch"), pytest.importorskip("mpmath")
    from tridiag.algorithms.scaled import product
    from tridiag.libraries.torch import Operations

    kind = getattr(torch, dtype)
    for n in (1, 2, 16, 17, 1000):
        usual = torch.rand(6, n, generator=torch.Generator().manual_seed(n), dtype=kind) * 2 - 1
        sizes = torch.tensor([1, 1e30, 1e-30, 1, 1, 0])[:, None].expand(6, n).clone()
        sizes[3, ::2], sizes[3, 1::2] = 1e-30, 1e30
        sizes[4, n // 2] = 0
        x = usual * sizes
        for y in (x, x[:, :1]):  # the second one constant
            mantissa, exponent = product(Operations, y, n, 1)
            for row, m, e in zip(
                y.expand(6, n).tolist(), mantissa[:, 0].tolist(), exponent[:, 0].tolist(), strict=True
            ):
                wanted = mpmath.fprod(map(mpmath.mpmathify, row))
                error = abs(mpmath.mpmathify(m) * mpmath.mpf(2) ** int(e) - wanted)
                assert error <= 3 * (n + 2) * torch.finfo(kind).eps * abs(wanted)


def test_scaling_by_steps() -> None:
    """A product that is in range, though its power of two is not; and where it is not, 0 or infinite."""
    torch = pytest.importorskip("torch")
    from tridiag.algorithms.scaled import times_power
    from tridiag.libraries.torch import Operations

    double = torch.float64
    exponent = torch.tensor([2000, -2000, 1e9, -1e9], dtype=double)
    x = torch.tensor([2.0**-1000, 2.0**1000, 1e-300, 1e300], dtype=double)
    found = times_power(Operations, x, exponent)
    assert found.tolist() == [2.0**1000, 2.0**-1000, float("inf"), 0.0]
