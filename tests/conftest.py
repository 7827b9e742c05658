"""Every (backend, array library) pair of the table is one test id; a skip says why it cannot run here and nothing else.

A test that takes ``backend`` runs once for every pair. One that takes ``pivoting`` too runs once for every promise that
the backend keeps. ``@pytest.mark.only(periodic=True, verb="factor", pivoting="auto")`` leaves the pairs for which the
table says so; ``library=("numpy", "torch")`` those of the libraries, ``promises=(True, "auto")`` those promises.
"""

import pytest
from helpers import SUBJECTS, installed

if installed("jax"):
    import jax

    jax.config.update("jax_enable_x64", True)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "only(**facts): the backends that can do this, as the table says")
    config.addinivalue_line("markers", "seldom_in_jax(**values): with JAX arrays, cases of these values are slow")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cases that JAX would compile once more, and that others tell apart, run with ``-m slow`` there."""
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        subject = params.get("backend", params.get("subject"))
        for mark in item.iter_markers("seldom_in_jax"):
            if getattr(subject, "library", "") == "jax" and all(params[k] in v for k, v in mark.kwargs.items()):
                item.add_marker(pytest.mark.slow)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = metafunc.fixturenames
    if "backend" not in names:
        return
    facts = {key: value for mark in metafunc.definition.iter_markers("only") for key, value in mark.kwargs.items()}
    wanted = facts.pop("promises", (False, True, "auto"))
    with_promise = "pivoting" in names
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
