"""Every (backend, array library) pair of the table is one test id; a skip says why it cannot run here and nothing else.

A test that takes ``backend`` runs once for every pair. One that takes ``pivoting`` too runs once for every promise that
the backend keeps. ``@pytest.mark.only(periodic=True, verb="factor", pivoting="auto")`` leaves the pairs for which the
table says so; ``library=("numpy", "torch")`` those of the libraries, ``promises=(True, "auto")`` those promises.

Without a GPU, CuPy is the stand-in of `gpu_offline/standin`. What runs on it, and all of `gpu_offline/`, is marked
``gpu_offline`` and waits for ``make test-gpu-offline``, but for a slice marked ``smoke``.
"""

import gc
import importlib
import os
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from at_once import TIME, are_named, first_of_every_test, later
from helpers import DTYPES as ALL_DTYPES
from helpers import GPU_OFFLINE, STANDIN, SUBJECTS, Subject, installed

from tridiag.calls import fast_path
from tridiag.kernels.jobs import recurrences, systems
from tridiag.selection import measurements

BEGUN = time.monotonic()

if installed("jax"):
    import jax

    jax.config.update("jax_enable_x64", True)
    if not STANDIN:
        jax.config.update("jax_default_device", jax.devices("cpu")[0])  # what is not put elsewhere


@pytest.fixture(autouse=True, scope="module")
def forget_compiled_code() -> Iterator[None]:
    """What JAX compiles maps memory, and a long run that kept it all would reach the 65 530 maps that Linux allows."""
    yield
    if installed("jax"):
        jax.clear_caches()


@pytest.fixture(autouse=True, scope="session")
def shipped_costs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What "auto" takes does not depend on what its user has measured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measurements, "path_of_machine", lambda: tmp_path_factory.getbasetemp() / "none.json")
        measurements.known.cache_clear()
        yield


@pytest.fixture
def forgetful() -> Iterator[None]:
    """No call is known before a test, or behind it."""
    fast_path.forget()
    yield
    fast_path.forget()


@pytest.fixture
def benchmarks_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules of ``benchmarks`` can be imported, with what they need."""
    for name in ("scipy", "jax", "rich"):
        if not installed(name):
            pytest.skip(f"needs {name}, which is not installed")
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")  # as the benchmark sets it


@pytest.fixture(autouse=True)
def device_of_the_backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Arrays of JAX and PyTorch for a backend for GPUs are made on one, or it runs on those that are here."""
    params = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    subject = params.get("backend", params.get("subject"))
    elsewhere = isinstance(subject, Subject) and subject.device == "cuda" and subject.library != "cupy"
    if not elsewhere or subject.cannot_run_here():
        yield
    elif subject.pretended:
        importlib.import_module("pretence").pretend(monkeypatch, subject.name)
        yield
    elif subject.library == "torch":
        with importlib.import_module("torch").device("cuda"):
            yield
    else:
        with jax.default_device(jax.devices("cuda")[0]):
            yield


@pytest.fixture
def fused(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The CPU build of CUDA C rounds products and sums once, as compilers for GPUs do."""
    cpu_build, raw, launcher = map(importlib.import_module, ("cpu_build", "cupy.raw", "tridiag.cuda.launcher"))
    if reason := cpu_build.why_not_fused():
        pytest.skip(reason)
    monkeypatch.setattr(cpu_build, "OPTIONS", (*cpu_build.OPTIONS, *cpu_build.FUSED))
    caches = cpu_build.build, raw.built, launcher.function, launcher.resident, launcher.bound
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Modules and cases stay to the end: the collector of garbage, which needs seconds for them, leaves them alone."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)  # programs of JAX and PyTorch are made of many objects, few of them garbage


def pytest_configure(config: pytest.Config) -> None:
    if installed("jax") and config.option.markexpr.startswith("not slow"):
        # half of the time that XLA takes; with `-m slow`, and for GPUs, programs are those that a user gets
        jax.config.update("jax_disable_most_optimizations", True)
    config.addinivalue_line("markers", "only(**facts): the backends that can do this, as the table says")
    config.addinivalue_line("markers", "each: what one JAX backend does not tell of another; with all of them")


SMOKE = "test_any_axis", ("first", "last")  # the cases of the main suite that run on the stand-in at once


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes minutes to compile, and tells little that is new, runs with ``-m slow``: see `at_once`.

    What needs no GPU but pretends one waits too.
    """
    items[:] = [item for item in items if computes(item)]
    for item in items:
        if pretends(item) and not item.get_closest_marker("smoke"):
            item.add_marker(pytest.mark.gpu_offline)
    if not are_named(config):
        for item in later(items):
            item.add_marker(pytest.mark.slow)
    if os.environ.get(TIME):
        items[:] = first_of_every_test(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if os.environ.get(TIME) and time.monotonic() - BEGUN > float(os.environ[TIME]):
        pytest.skip(f"the time is up: {TIME} gives {os.environ[TIME]} seconds")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    late = [report for report in terminalreporter.stats.get("skipped", ()) if "the time is up" in str(report.longrepr)]
    if late:
        terminalreporter.write_line(f"{len(late)} of them for want of time: {TIME} gave {os.environ[TIME]} seconds")


def computes(item: pytest.Item) -> bool:
    """Whether the table says that the backend of a test has its dtype."""
    params = item.callspec.params if hasattr(item, "callspec") else {}
    subject, dtype = params.get("backend", params.get("subject")), params.get("dtype")
    return not isinstance(subject, Subject) or dtype not in ALL_DTYPES or dtype in subject.entry.dtypes


def pretends(item: pytest.Item) -> bool:
    """Whether a test is about GPUs, and runs without one."""
    if GPU_OFFLINE in item.path.parents:
        return True
    params = item.callspec.params if hasattr(item, "callspec") else {}
    subject = params.get("backend", params.get("subject"))
    if not isinstance(subject, Subject):
        return STANDIN and params.get("library") == "cupy"
    if not subject.pretended:
        return False
    if item.originalname == SMOKE[0] and params["layout"] in SMOKE[1]:
        item.add_marker(pytest.mark.smoke)
    return True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = metafunc.fixturenames
    if "backend" not in names:
        return
    marks = list(metafunc.definition.iter_markers("only"))[::-1]  # what a test says goes beyond what its module says
    facts = {key: value for mark in marks for key, value in mark.kwargs.items()}
    with_promise = "pivoting" in names
    if "promises" in facts and not with_promise:
        raise ValueError(f"{metafunc.definition.name} names promises and takes no pivoting; wanted only(pivoting=...)")
    wanted = facts.pop("promises", (False, True, "auto"))
    cases = []
    for subject in SUBJECTS:
        reason = subject.cannot_run_here()
        marks = [pytest.mark.skip(reason=reason)] if reason else []
        if subject.can(**facts):
            for promise in [p for p in subject.promises if p in wanted] if with_promise else [None]:
                values = (subject, promise) if with_promise else (subject,)
                told = f"{subject}-{promise}" if with_promise else str(subject)
                cases.append(pytest.param(*values, marks=marks, id=told))
    metafunc.parametrize(("backend", "pivoting") if with_promise else ("backend",), cases)


@pytest.fixture
def usual_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of more than 8 MiB go past the caches, as where 32 MiB are the largest cache."""
    for module in (recurrences, systems):
        monkeypatch.setattr(module, "room_for_results", lambda: 8 * 2**20)
