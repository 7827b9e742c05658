"""That concurrent calls give what single calls give, on every backend, and that threads change no bit."""

import functools
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Subject, assert_same_bits, dominant, uniform

import tridiag
from tridiag import kalman
from tridiag.kernels.jobs import systems
from tridiag.kernels.jobs.quota import quota
from tridiag.kernels.jobs.words.systems import Systems
from tridiag.problems.forms import Form

LARGE = (3000, 50)  # above `layout.WORTH_A_THREAD`, so that a call starts threads of its own


def shape_for(backend: Subject) -> tuple[int, int]:
    """Large where our own kernels run; jaxlib's (0.10.2) large LAPACK calls deadlock by themselves when concurrent."""
    return LARGE if "numba" in backend.entry.needs else (100, 20)


def test_concurrent_calls_give_the_same_bits(backend: Subject) -> None:
    if backend.interpreted:
        pytest.skip("an interpreter runs one call at a time")
    system = (uniform if backend.usual == "auto" else dominant)(shape_for(backend))
    wanted = backend.solve(*system)
    with ThreadPoolExecutor(8) as pool:
        for future in [pool.submit(backend.solve, *system) for _ in range(16)]:
            assert_same_bits(future.result(), wanted)


@pytest.mark.only(library="jax")
def test_concurrent_calls_inside_jit(backend: Subject) -> None:
    if backend.interpreted:
        pytest.skip("an interpreter runs one call at a time")
    import jax

    a, b, c, d = (backend.array(x) for x in dominant(shape_for(backend)))
    solve = jax.jit(lambda d: tridiag.solve(a, b, c, d, backend=backend.name, pivoting=backend.usual))
    wanted = [np.asarray(solve(k * d)) for k in range(4)]
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda k: np.asarray(solve(k % 4 * d)), range(64)))
    for k, x in enumerate(found):
        assert_same_bits(x, wanted[k % 4])


@pytest.mark.only(library="jax")
def test_many_calls_inside_one_program(backend: Subject) -> None:
    """XLA runs independent calls side by side in its own pool."""
    import jax
    import jax.numpy as jnp

    a, b, c, d = (backend.array(x) for x in dominant(shape_for(backend)))

    def solve(d: jax.Array) -> jax.Array:
        return tridiag.solve(a, b, c, d, backend=backend.name, pivoting=backend.usual)

    count = 4 if "numba" in backend.entry.needs else 2  # a loop of XLA's own compiles slowly, and shares nothing
    together = jax.jit(lambda d: jnp.stack([solve((k + 1) * d) for k in range(count)]))(d)
    alone = jax.jit(solve)
    for k in range(count):
        np.testing.assert_allclose(together[k], alone((k + 1) * d), rtol=1e-12)


def test_omp_num_threads_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    granted = systems.threads()
    assert granted >= 1
    for text, wanted in (("1", 1), ("1,2", 1), (" 1 ", 1), ("100000", granted), ("", granted)):
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        assert systems.threads() == wanted, text


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("verb", ["log_likelihood", "filter", "smoother"])
def test_filters_have_the_threads_that_are_granted_when_they_are_called(
    verb: str, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of an earlier call with the same shapes may have been more, or fewer."""
    pytest.importorskip("numba")
    from tridiag import kalman
    from tridiag.backends import numba_scan
    from tridiag.kernels import first_steps

    y = np.random.default_rng(5).standard_normal((12_000, 10, 1))
    start = np.eye(2) if known else np.diag([1.0, np.inf])
    model = {"F": 0.9 * np.eye(2), "H": np.ones((1, 2)), "Q": np.eye(2), "R": np.eye(1), "m0": np.zeros(2)}
    found: list[int] = []
    for module in (numba_scan, first_steps):

        def spied(*facts: Any, call_of: Any = module.call_of) -> Any:
            call = call_of(*facts)
            found.append(call.job.helpers)
            return call

        monkeypatch.setattr(module, "call_of", spied)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    monkeypatch.setattr(systems, "quota", lambda: math.inf)
    for threads in (2, 1, 3):
        monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
        for _ in range(3):
            found.clear()
            getattr(kalman, verb)(y, **model, P0=start)
            assert not found or max(found) == threads - 1  # a call that was met before runs no Python


VERBS_OF_JAX: dict[str, Callable[[Any, Any], Any]] = {
    "solve": lambda b, d: tridiag.solve(-1.0, b, -1.0, d),
    "solve, perturbed": lambda b, d: tridiag.solve(-1.0, b, -1.0, d, singular="perturb"),
    "factor": lambda b, d: tridiag.factor(-1.0, b, -1.0).solve(d),
    "slogdet": lambda b, d: tridiag.slogdet(-1.0, b, -1.0),
    "solve_block": lambda b, d: tridiag.solve_block(*[b[..., None, None]] * 3, d[..., None]),
    "linear_recurrence": lambda b, d: tridiag.linear_recurrence(b, d),
    "logcumsumexp": lambda b, d: tridiag.logcumsumexp(d),
    "smith_waterman": lambda b, d: tridiag.smith_waterman(d.reshape(-1, 20, 20), gap=-1.0),
    "kalman": lambda b, d: kalman.log_likelihood(d[..., None], F=F, H=F, Q=F, R=F, m0=F[0], P0=F),
}
F = 0.5 * np.eye(1)


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("name", VERBS_OF_JAX)
def test_jax_arrays_have_the_threads_that_are_granted_when_they_are_given(
    name: str, traced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in a program that the caller traces then; one that was traced before keeps its own."""
    jax = pytest.importorskip("jax")
    pytest.importorskip("numba")
    from tridiag.xla import alignment as alignments
    from tridiag.xla import custom_call
    from tridiag.xla import kalman as filters

    told: list[int] = []

    def helpers_of(job: Any, known: Any = custom_call.helpers_of) -> int:
        told.append(known(job))
        return told[-1]

    for module in (custom_call, alignments, filters):
        monkeypatch.setattr(module, "helpers_of", helpers_of)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(7)), raising=False)
    monkeypatch.setattr(systems, "quota", lambda: math.inf)
    rows = 80 + 20 * traced + 40 * [*VERBS_OF_JAX].index(name)  # no other test has traced such arrays
    given = jax.numpy.full((2000, rows), 4.0), jax.numpy.ones((2000, rows))
    programs = []
    for threads in (5, 1, 7):
        monkeypatch.setenv("OMP_NUM_THREADS", str(threads))
        call = functools.partial(VERBS_OF_JAX[name])
        programs.append(jax.jit(call) if traced else call)
        told.clear()
        programs[-1](*given)
        assert max(told) == threads - 1
        told.clear()
        for program in programs:
            program(*given)
        assert not told


@pytest.mark.parametrize("text", ["0", "many", "-1", "2.5"])
def test_what_is_no_number_of_threads_is_told_once(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    granted = systems.threads()
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    systems.threads_asked.cache_clear()
    with pytest.warns(
        RuntimeWarning, match=f"OMP_NUM_THREADS is '{text}', no number of threads; tridiag takes all"
    ) as told:
        assert systems.threads() == granted
    assert told[0].filename == __file__  # of the line that called the package
    assert systems.threads() == granted  # without another one, which would be an error here


@pytest.mark.parametrize(
    ("group", "files", "cores"),
    [
        ("0::/", {"cpu.max": "150000 100000"}, 2),
        ("0::/a/b", {"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000", "cpu.max": "max 100000"}, 3),
        ("0::/elsewhere", {"cpu.max": "10000 100000"}, 1),
        (
            "4:cpu,cpuacct:/a",
            {"cpu,cpuacct/a/cpu.cfs_quota_us": "400000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"},
            4,
        ),
        ("4:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, math.inf),
        ("5:memory:/", {"cpu.max": "100000 100000"}, math.inf),
        ("0::/", {"cpu.max": "no number"}, math.inf),
        ("0::/", {}, math.inf),
    ],
)
def test_a_quota_of_a_container_counts(tmp_path: Path, group: str, files: dict[str, str], cores: float) -> None:
    """Of the group, those around it, and both versions; what cannot be read limits nothing."""
    assert quota(tmp_path) == math.inf
    quota.cache_clear()
    for path, text in {"../../../proc/self/cgroup": f"{group}\n", **files}.items():
        file = tmp_path / "sys/fs/cgroup" / path
        for folder in (tmp_path / "sys/fs/cgroup", file.parent):
            folder.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    assert quota(tmp_path) == cores


def test_threads_are_no_more_than_a_quota_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(systems, "quota", lambda: 1)
    assert systems.threads() == 1


@pytest.mark.only(library="numpy", verb="factor")
@pytest.mark.parametrize("shape", [LARGE, (40, 5000)])
def test_the_number_of_threads_changes_no_bit(
    backend: Subject, pivoting: bool | str, shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = shape if shape_for(backend) == LARGE else (100, 20)
    system = (dominant if pivoting is False else uniform)(shape)
    monkeypatch.setattr(systems, "threads", lambda: 1)
    wanted = backend.solve(*system, pivoting=pivoting)
    for count in (2, 7):
        monkeypatch.setattr(systems, "threads", lambda count=count: count)
        assert_same_bits(backend.solve(*system, pivoting=pivoting), wanted)


@pytest.mark.only(library="numpy", verb="factor")
def test_chunks_of_right_sides_change_no_bit(backend: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """One matrix, many right sides: the threads share the one tile."""
    a, b, c, _ = dominant((50,))
    d = dominant(LARGE)[3]
    found = []
    for count in (1, 2, 7):
        monkeypatch.setattr(systems, "threads", lambda count=count: count)
        found.append(backend.solve(a, b, c, d))
    assert_same_bits(found[1], found[0])
    assert_same_bits(found[2], found[0])


@pytest.fixture(scope="module")
def asks() -> Any:
    """How many helpers each of some jobs asks for, one behind the other, the first after a pause."""
    numba = pytest.importorskip("numba")
    from tridiag.kernels.runtime import system
    from tridiag.kernels.runtime.threads import finish, start

    @numba.cfunc("void(int64)")
    def task(argument: int) -> None:
        system.usleep(numba.uint32(50))

    @numba.njit  # type: ignore[untyped-decorator]
    def compiled(task: int, counts: Any, small: Any, pause: Any) -> None:
        for k in range(len(counts)):
            if k > 0 and pause > 0:
                system.usleep(numba.uint32(pause))
            team = start(task, 0, 1, small)
            system.usleep(numba.uint32(200))  # while the helper begins
            counts[k] = team.asked
            finish(team)

    def asks(small: int, jobs: int = 3, pause: int = 0) -> list[int]:
        """``pause``: microseconds between them."""
        counts = np.full(jobs, -1)
        time.sleep(0.05)
        compiled(task.address, counts, small, pause)
        return [int(count) for count in counts]

    asks(0)
    return asks


def test_a_small_job_makes_no_thread_after_a_pause(asks: Any) -> None:
    """Making it would take as long as the job."""
    assert any(
        [asks(1)[0] for _ in range(5)] == [0] * 5 for _ in range(4)
    )  # a helper that got no turn may look out yet
    assert [asks(0)[0] for _ in range(5)] == [1] * 5


@pytest.mark.parametrize("pause", [0, 100])
def test_small_jobs_one_after_another_share_a_helper(asks: Any, pause: int) -> None:
    """Soon, however often a helper was made in vain before, and where other work is done between them."""
    assert any(sum(asks(1, 100, pause)[70:]) >= 25 for _ in range(100))  # others may have the processors for a while


def test_small_jobs_that_are_few_soon_make_no_helper(asks: Any) -> None:
    """Two, and a pause: for the second one it is made a few times, none of which another call profits from."""
    asks(1, 100)
    assert sum(asks(1, 2)[1] for _ in range(20)) <= 8


def test_one_job_after_another_has_one_helper() -> None:
    """A helper waits for work before its caller hears that it has finished, so that the next call makes no other."""
    numba = pytest.importorskip("numba")
    from tridiag.kernels.runtime.threads import AT_WORK, finish, start
    from tridiag.kernels.simd.memory import fetch_add, word

    @numba.cfunc("void(int64)")
    def nothing(argument: int) -> None:
        pass

    @numba.njit  # type: ignore[untyped-decorator]
    def behind(task: int, count: int) -> int:
        at_work = 0
        for _ in range(count):
            team = start(task, 0, 1, 0)
            place, memory = team.places[0], word(team.places[0])
            for _ in range(20_000):
                if fetch_add(place, 0) != memory:  # the helper has begun
                    break
            finish(team)
            at_work += word(place) == AT_WORK
        return at_work

    behind(nothing.address, 10)
    end = time.monotonic() + 1.5  # some ten in a hundred thousand, if it heard first
    while time.monotonic() < end:
        assert behind(nothing.address, 1000) == 0


def test_jobs_are_small_where_a_thread_takes_longer_to_start_than_it_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systems, "threads", lambda: 2)
    for rows, small in ((systems.WORTH_STARTING // 100 - 1, 1), (systems.WORTH_STARTING // 100, 0)):
        form = Form((rows, 100), (rows, 100), 1, False, False, False)
        shapes, strides = ((rows, 100),) * 3 + (None,) + ((rows, 100),) * 2, ((800, 8),) * 6
        dtype = np.dtype(np.float64)
        job = systems.make_job(form, shapes, strides, (dtype, dtype), 0, 2)
        assert job.helpers == 1 and Systems.view(job.words).small == small
