"""That compilers for GPUs are those which the tests were written with; what they compile is tested elsewhere."""

import importlib.metadata
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2]
PINS = dict(line.split("==") for line in (HERE / "gpu-toolchains.txt").read_text().splitlines() if "==" in line)


@pytest.mark.smoke
def test_plugins_of_jax_are_of_its_version() -> None:
    pins = dict(line.split("==") for line in (HERE / "constraints.txt").read_text().splitlines() if "==" in line)
    assert {pin for name, pin in PINS.items() if name.startswith("jax-")} == {pins["jax"]}
    assert not set(PINS) & set(pins)


@pytest.mark.gpu_toolchains
@pytest.mark.parametrize("wheel", PINS)
def test_the_wheel_is_the_one_that_is_pinned(wheel: str) -> None:
    try:
        found = importlib.metadata.version(wheel)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"needs {wheel}, which is not installed")
    assert found == PINS[wheel]
