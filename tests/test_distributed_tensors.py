"""DTensors over four processes on this machine: equal to one process's answer, and only what must be is exchanged."""

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
    return None if hasattr(torch.distributed, "tensor") else "needs torch.distributed.tensor, which this PyTorch lacks"


def run(*checks: str) -> None:
    """Checks in four processes, in which every warning is an error."""
    if reason := missing():
        pytest.skip(reason)
    alone = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_LOGS": "-all"}
    command = [sys.executable, "-W", "error", "-X", "faulthandler", str(SCRIPT), *checks]
    done = subprocess.run(command, capture_output=True, text=True, timeout=580, env={**os.environ, **alone})
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-5000:]
    assert re.findall(r"^(\w+): [\d.]+ s$", done.stdout, re.MULTILINE) == list(checks)


def test_four_processes() -> None:
    run(*(name for name in CHECKS if name not in LATER))


@pytest.mark.slow
def test_four_processes_in_depth() -> None:
    run(*LATER)
