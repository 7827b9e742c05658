"""Arrays on several devices, in a process that has them."""

import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import installed
from processes import started

LONGEST = 1500  # seconds, on two cores that others share
SPLIT = (
    "split_rows.py",
    "split_factors.py",
    "split_determinants.py",
    "split_recurrences.py",
    "split_kalman.py",
    "split_meshes.py",
)
pytestmark = pytest.mark.timeout(LONGEST + 20)


def missing() -> str | None:
    if not installed("jax") or not installed("numba"):
        return "needs jax and numba, which are not both installed"
    import jax

    return None if hasattr(jax, "shard_map") else f"needs jax.shard_map, which jax {jax.__version__} does not have"


def run(request: pytest.FixtureRequest, which: str, devices: int, *names: str) -> None:
    """The tests of some files, in a process that has so many devices."""
    if reason := missing():
        pytest.skip(reason)
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-c", str(request.config.inipath), "-q", "-x", "-m", which,
         *(str(Path(__file__).with_name(name)) for name in names)],
        capture_output=True, text=True, timeout=LONGEST, env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-10_000:] + run.stderr[-2000:]


def test_some_of_every_verb_on_eight_devices(request: pytest.FixtureRequest) -> None:
    run(request, "not slow and smoke", 8, *SPLIT)


@pytest.mark.slow
@pytest.mark.parametrize("which", ["not slow", "slow"])
def test_four_devices(request: pytest.FixtureRequest, which: str) -> None:
    run(request, which, 4, "four_devices.py")


@pytest.mark.slow
def test_rows_on_eight_devices(request: pytest.FixtureRequest) -> None:
    run(request, "not slow", 8, "split_rows.py")


@pytest.mark.slow
def test_determinants_on_eight_devices(request: pytest.FixtureRequest) -> None:
    run(request, "not slow", 8, "split_determinants.py")


@pytest.mark.slow
def test_factors_on_eight_devices(request: pytest.FixtureRequest) -> None:
    run(request, "not slow", 8, "split_factors.py")


@pytest.mark.slow
def test_recurrences_on_eight_devices(request: pytest.FixtureRequest) -> None:
    run(request, "not slow", 8, "split_recurrences.py")


@pytest.mark.slow
@pytest.mark.parametrize("which", ["not slow", "slow"])
def test_filters_on_eight_devices(request: pytest.FixtureRequest, which: str) -> None:
    run(request, which, 8, "split_kalman.py")


@pytest.mark.slow
def test_meshes_on_eight_devices(request: pytest.FixtureRequest) -> None:
    run(request, "not slow", 8, "split_meshes.py")


@pytest.mark.slow
def test_two_processes() -> None:
    """In jit and in eager calls, where no process has a whole array; both hear of a singular system."""
    if reason := missing():
        pytest.skip(reason)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=4"
    script = str(Path(__file__).with_name("two_hosts.py"))
    hosts = [started(script, address, str(k), JAX_PLATFORMS="cpu", XLA_FLAGS=flags) for k in range(2)]
    with contextlib.ExitStack() as stack:
        for host in [stack.enter_context(host) for host in hosts]:
            output, errors = host.communicate(timeout=200)
            assert host.returncode == 0 and "right" in output, output[-3000:] + errors[-3000:]
