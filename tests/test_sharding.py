"""Arrays on several devices, in a process that has them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import installed

FLAG = "--xla_force_host_platform_device_count=4"


def missing() -> str | None:
    if not installed("jax") or not installed("numba"):
        return "needs jax and numba, which are not both installed"
    import jax

    return None if hasattr(jax, "shard_map") else f"needs jax.shard_map, which jax {jax.__version__} does not have"


@pytest.mark.slow
@pytest.mark.parametrize("which", ["not slow", "slow"])
def test_four_devices(request: pytest.FixtureRequest, which: str) -> None:
    if reason := missing():
        pytest.skip(reason)
    environment = {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {FLAG}"}
    tests = Path(__file__).with_name("four_devices.py")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", str(request.config.inipath), "-q", "-x", "-m", which, str(tests)],
        capture_output=True, text=True, timeout=580, env={**os.environ, **environment},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-10_000:] + run.stderr[-2000:]
