"""That the table of backends is the one place where they are listed, and that what it says is so."""

import ast
import re
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import SUBJECTS, Subject, assert_solves, dominant

import tridiag
from tridiag.backends import BACKENDS, EXTRAS, KALMAN, SYSTEMS, Backend, numba_cuda_fails
from tridiag.problems import state_space
from tridiag.verbs import VERBS

TABLE = Path(sys.modules["tridiag.backends"].__file__)  # the attribute is the verb `backends`
ENTRIES = list(BACKENDS.values())
HELPERS = {"numba_jax"}  # `numba_thomas` for JAX arrays: an array library is no backend
SYSTEM = dominant((4, 20))


# ------------------------------------------------------------------------------------------------------ the table


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_line_is_true(entry: Backend) -> None:
    assert BACKENDS[entry.name] is entry
    library, _, algorithm = entry.name.partition("_")
    assert library and algorithm
    assert TABLE.with_name(f"{entry.name}.py").is_file()
    assert entry.verbs and set(entry.verbs) <= set(VERBS)
    assert bool(entry.pivoting) == bool(set(entry.verbs) & set(SYSTEMS))  # a promise about its verbs on systems
    assert all(library in entry.arrays and verb in entry.verbs for verb, library in entry.lacks)
    if entry.missing() is None:
        assert all(callable(getattr(entry.module(), verb.partition(".")[0])) for verb in entry.verbs)


def first_on_a_gpu(verb: str, library: str) -> str:
    """The name in the table, whatever is installed."""
    able = (
        entry.name
        for entry in ENTRIES
        if verb in entry.verbs
        and library in entry.arrays
        and "cuda" in entry.devices
        and (verb, library) not in entry.lacks
    )
    return next(able, "none")


def test_the_page_on_gpus_names_what_runs_every_verb() -> None:
    page = (Path(__file__).parents[1] / "docs" / "gpu.rst").read_text(encoding="utf-8")
    rows = re.findall(r"\* - ``(\S+)``\n +- (\S+)\n +- (\S+)\n +- (\S+)\n +-", page)
    found = {verb: [name.strip("`") for name in names] for verb, *names in rows if verb in VERBS}
    wanted = {verb for entry in ENTRIES for verb in entry.verbs}
    assert found == {verb: [first_on_a_gpu(verb, library) for library in ("cupy", "torch", "jax")] for verb in wanted}


def test_every_file_has_its_line() -> None:
    assert {path.stem for path in TABLE.parent.glob("*.py")} - {"__init__"} - HELPERS == set(BACKENDS)


def test_reading_the_table_imports_no_backend() -> None:
    tree = ast.parse(TABLE.read_text())
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not any(name and name.startswith("tridiag") for name in imported)
    assert KALMAN == state_space.KALMAN  # which it therefore names itself


def test_what_is_not_installed_is_said_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = Backend("no_where", "none", ("numpy",), ("no_such_module",))
    assert entry.missing() == "needs no_such_module, which is not installed"
    monkeypatch.setitem(BACKENDS, entry.name, entry)
    with pytest.raises(tridiag.BackendError, match="no_where needs no_such_module, which is not installed"):
        tridiag.solve(*SYSTEM, backend="no_where")
    status = tridiag.backends()["no_where"]
    assert not status.usable and status.why_not == entry.missing()


def test_packages_that_do_not_go_together_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """numba-cuda that asks NumPy for what it has no more is imported to see whether it does, and only there."""
    entry = BACKENDS["numba_cuda_thomas"]
    monkeypatch.setattr(type(entry), "missing", lambda self: None)
    monkeypatch.setitem(sys.modules, "numba.cuda.np.arrayobj", None)
    for row_stack, told in ((np.vstack, None), (None, f"needs a numba-cuda that goes with NumPy {np.__version__}")):
        numba_cuda_fails.cache_clear()
        with monkeypatch.context() as patch:
            if row_stack is None:
                patch.delattr(np, "row_stack", raising=False)
            else:
                patch.setattr(np, "row_stack", row_stack, raising=False)
            reason = entry.mismatched()
        assert reason is told is None or (reason.startswith(told) and "numpy<2.5" in reason)
    assert entry.unusable() == reason and BACKENDS["cupy_thomas"].mismatched() is None
    numba_cuda_fails.cache_clear()


def test_what_is_not_installed_names_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["tridiag.backends"], "installed", lambda module: False)
    extras = (Path(__file__).parents[1] / "setup.cfg").read_text().partition("[options.extras_require]")[2]
    for entry in ENTRIES:
        told = entry.missing()
        wanted = list(dict.fromkeys(EXTRAS[module] for module in entry.needs if module != "numba"))  # the package's own
        assert all(f"\n{extra} =" in extras for extra in wanted)
        assert not wanted or f'pip install "batched-tridiag[{",".join(wanted)}]"' in told


# -------------------------------------------------------------------------------------------------------- backends


def test_backends_lists_the_table() -> None:
    found = tridiag.backends()
    assert [entry.name for entry in found] == list(BACKENDS)
    for k, entry in enumerate(found):
        line = BACKENDS[entry.name]
        assert found[entry.name] is entry and found[k] is entry
        assert (entry.arrays, entry.pivoting, entry.verbs) == (line.arrays, line.pivoting, line.verbs)
        assert entry.usable == (entry.why_not is None) == (line.unusable() is None)
    lines = repr(found).splitlines()
    assert len(lines) == 2 + len(BACKENDS)
    assert all(line.startswith(name) for line, name in zip(lines[2:], BACKENDS, strict=True))


def test_a_backend_that_is_not_listed_is_no_key() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        tridiag.backends()["nonsense"]


# --------------------------------------------------------------------------------------------------------- explain

FRESH = dominant((4, 23))  # a shape of its own: jit asks for the module only where it compiles
CALLS = {
    "solve": ("solve", FRESH, {}),
    "pivoted": ("solve", FRESH, {"pivoting": True}),
    "periodic": ("solve", FRESH, {"periodic": True, "pivoting": False}),
    "along an axis": ("solve", FRESH, {"axis": 0, "where": np.ones((4, 23), bool), "transpose": True}),
    "factor": ("factor", FRESH[:3], {}),
    "slogdet": ("slogdet", FRESH[:3], {}),
    "linear_recurrence": ("linear_recurrence", FRESH[:2], {"reverse": True}),
    "smith_waterman": ("smith_waterman", FRESH[:1], {"gap": -1.0}),
}


LIBRARIES = sorted({(case, s.library) for s in SUBJECTS for case, (verb, *_) in CALLS.items() if s.can(verb)})


@pytest.mark.parametrize(("case", "library"), LIBRARIES)
def test_explain_tells_what_runs(case: str, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    verb, arguments, options = CALLS[case]
    here = [s for s in SUBJECTS if s.library == library and s.can(verb)]
    if all(s.cannot_run_here() for s in here):
        pytest.skip(here[0].cannot_run_here())
    given = [here[0].array(x) for x in arguments]
    options = {key: here[0].array(value) if key == "where" else value for key, value in options.items()}
    told = tridiag.explain(verb, *given, **options)
    assert set(told.others) == set(BACKENDS) - {told.backend} and told.why
    assert all(why is None or len(why.split()) > 3 for why in told.others.values())
    text = repr(told)
    assert f"-> {told.backend}: {told.why}" in text
    having = {name: why for name, why in told.others.items() if verb in BACKENDS[name].verbs}
    assert all(name in text and (why or "could") in text for name, why in having.items())
    assert f"{len(told.others) - len(having)} more " in text and f"do not have the verb {verb}" in text
    assert tridiag.explain(getattr(tridiag, verb), *given, **options).backend == told.backend
    assert modules_that_run(verb, given, options, monkeypatch) == {told.backend}


def modules_that_run(verb: str, given: list[Any], options: Any, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The backends whose module is asked for."""
    ran, module = set(), Backend.module
    monkeypatch.setattr(Backend, "module", lambda self: ran.add(self.name) or module(self))
    getattr(tridiag, verb)(*given, **options)
    return ran


@pytest.mark.each
@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.can()], ids=str)
def test_explain_and_the_call_agree_on_who_can(subject: Subject) -> None:
    if reason := subject.cannot_run_here():
        pytest.skip(reason)
    given = [subject.array(x) for x in SYSTEM]
    told = tridiag.explain("solve", *given, backend=subject.name, pivoting=subject.usual)
    assert told.backend == subject.name and told.why == "asked for by name"
    for name, why in told.others.items():
        if why is not None:
            with pytest.raises(tridiag.BackendError) as caught:
                tridiag.solve(*given, backend=name, pivoting=subject.usual)
            assert why in str(caught.value)


def test_a_library_names_its_first_backend_that_can() -> None:
    pytest.importorskip("jax")
    import jax.numpy as jnp

    given = [jnp.asarray(x) for x in SYSTEM]
    for options in ({"pivoting": "auto"}, {"pivoting": False}, {"periodic": True}):
        names = [name for name in BACKENDS if name.startswith("jax_")]
        problem = tridiag.explain("solve", *given, **options).problem
        able = [name for name in names if BACKENDS[name].why_not(problem) is None]
        assert tridiag.explain("solve", *given, backend="jax", **options).backend == able[0]


def test_explain_solves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backend, "module", lambda self: pytest.fail(f"{self.name} was imported"))
    assert tridiag.explain("solve", *SYSTEM).problem.shape == (4, 20)


# ------------------------------------------------------------------------------------------------- one file, one line


def test_a_new_backend_is_one_file_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    file = types.ModuleType("tridiag.backends.numpy_dense")

    def solve(matrix: Any, d: Any, form: Any, out: Any = None, factors: Any = None) -> Any:
        from tridiag.algorithms.matrix_rows import bands
        from tridiag.libraries.numpy import Operations

        a, b, c = (
            np.broadcast_to(np.moveaxis(v, form.axis, -1), (*form.batch, form.n))
            for v in bands(Operations, matrix, form)
        )
        dense = np.zeros((*form.batch, form.n, form.n))
        i = np.arange(form.n)
        dense[..., i, i], dense[..., i[1:], i[:-1]], dense[..., i[:-1], i[1:]] = b, a[..., 1:], c[..., :-1]
        x = np.linalg.solve(dense, np.broadcast_to(np.moveaxis(d, form.axis, -1), b.shape)[..., None])[..., 0]
        return np.moveaxis(x, -1, form.axis), None

    file.solve = solve
    line = Backend("numpy_dense", "a dense solve", ("numpy",), dtypes=("float64",), periodic=False)
    monkeypatch.setitem(sys.modules, file.__name__, file)
    monkeypatch.setitem(BACKENDS, line.name, line)

    x = tridiag.solve(*SYSTEM, backend="numpy_dense")
    assert_solves(x, *SYSTEM, pivoting=True)
    assert tridiag.backends()["numpy_dense"].usable
    assert tridiag.explain("solve", *SYSTEM).others["numpy_dense"] is None
    with pytest.raises(tridiag.BackendError, match="computes in float64, not in float32"):
        tridiag.solve(*(x.astype(np.float32) for x in SYSTEM), backend="numpy_dense")
    with pytest.raises(tridiag.BackendError, match="'numpy_dense'"):
        tridiag.solve(*SYSTEM, backend="nonsense")


def test_the_table_says_where_a_backend_does_not_pivot() -> None:
    """That of a processor may pivot on a CPU alone."""
    lines = {line.split()[0]: line for line in repr(tridiag.backends()).splitlines()}
    assert "  yes, not on cuda  " in lines["jax_lax"]
    assert "  yes  " in lines["jax_scan"] and "  no  " in lines["jax_pcr"]
