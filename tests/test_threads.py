"""That concurrent calls give what single calls give, on every backend, and that threads change no bit."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from helpers import Subject, assert_same_bits, dominant, uniform

import tridiag
from tridiag.kernels.jobs import systems

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
    for text, wanted in (("1", 1), ("1,2", 1), ("100000", granted), ("0", granted), ("many", granted), ("", granted)):
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        assert systems.threads() == wanted, text


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
