"""The accuracy figures of `benchmarks/accuracy.py`, on a slice of its systems; all of them with `-m slow`."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from helpers import Subject, installed

PATH = Path(__file__).parents[1] / "benchmarks" / "accuracy.py"
SLICE = ((3, 20), (60, 60))  # rows, systems of each case


@pytest.fixture(scope="module")
def accuracy() -> Iterator[ModuleType]:
    if not installed("scipy"):
        pytest.skip("needs scipy, which is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PATH.parent)
        yield importlib.import_module("accuracy")


@pytest.mark.each
@pytest.mark.only(pivoting="auto")
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_backends_keep_their_promises(accuracy: ModuleType, backend: Subject, dtype: str) -> None:
    """Both promises, every kind of system and right side: backward and forward errors under their bars."""
    rows = list(accuracy.measure(SLICE, [(backend.name, backend.library)], (dtype,)))
    assert {row.case for row in rows} == set(accuracy.CASES)
    assert {row.promise for row in rows} == {"auto", "True"}
    missed = [
        f"{row.promise}, {row.case}: {row.backward:.3g} eps, bar {row.bar:.3g}; forward {row.forward:.2f} of gtsv's"
        for row in rows
        if not row.passed
    ]
    assert not missed, "\n".join(missed)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_backends_keep_their_promises_on_every_system() -> None:
    run = subprocess.run([sys.executable, PATH], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("name", ["numba_tomas", "jax_pcr"])
def test_a_backend_that_has_no_figures_is_told(
    accuracy: ModuleType, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        accuracy.main(["--quick", "--backend", name])
    assert f"{name}: not a backend that promises" in capsys.readouterr().err
