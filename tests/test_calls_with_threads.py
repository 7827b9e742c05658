"""That calls which threads share are found again by compiled code, with as many threads as are granted then."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers import dominant

import tridiag
from tridiag.calls import fast_path
from tridiag.kernels.jobs import systems
from tridiag.kernels.runtime.call_table import CallTable, Met

SHAPE = (400, 500)  # above all WORTH_A_THREAD
A, B, C, D = dominant(SHAPE)
FACTORS = tridiag.factor(A, B, C)
BLOCKS = tuple(np.ones((400, 40, 3, 3)) + 20 * k * np.eye(3) for k in (0, 1, 0))
STATES = np.ones((500, 4))
SCORES = np.random.default_rng(0).normal(size=(200, 20, 20))
CALLS: dict[str, tuple[CallTable, Callable[[], Any]]] = {
    "solve": (fast_path.systems.SOLVES, lambda: tridiag.solve(A, B, C, D)),
    "factor(...).solve": (fast_path.factored.FACTORED_SOLVES, lambda: FACTORS.solve(D)),
    "slogdet": (fast_path.matrices.DETERMINANTS, lambda: tridiag.slogdet(A, B, C)),
    "matmul": (fast_path.matrices.PRODUCTS, lambda: tridiag.matmul(A, B, C, D)),
    "solve_block": (fast_path.blocks.BLOCK_SOLVES, lambda: tridiag.solve_block(*BLOCKS, np.ones((400, 40, 3)))),
    "linear_recurrence": (fast_path.recurrences.OF_NUMBERS, lambda: tridiag.linear_recurrence(A, D)),
    "logcumsumexp": (fast_path.recurrences.OF_SUMS, lambda: tridiag.logcumsumexp(D)),
    "selective_scan": (fast_path.selective.SCANS, lambda: tridiag.selective_scan(STATES[0] / 2, D, STATES, STATES)),
    "smith_waterman": (fast_path.alignments.SCORES, lambda: tridiag.smith_waterman(SCORES, gap=-1.0)),
}


@pytest.fixture(autouse=True)
def granted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The number of threads that are granted, each time that somebody asks; what it returns can be changed."""
    fast_path.forget()
    asked = [1]

    def threads() -> int:
        asked.append(asked[0])
        return asked[0]

    monkeypatch.setattr(systems, "threads", threads)
    yield asked
    fast_path.forget()


def threads_of_kept(table: CallTable) -> list[int]:
    return [int(Met.view(call[0]).threads) for call in table.kept if call is not None]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_kept_with_its_threads(name: str, granted: list[int]) -> None:
    """Once such calls took 5 us more than smaller ones: all of them went through Python."""
    table, call = CALLS[name]
    found = []
    for count in (1, 2, 1):
        granted[0] = count
        found.append([call() for _ in range(4)][-1])
        assert threads_of_kept(table) == [count]
    for other in found[1:]:
        np.testing.assert_array_equal(np.asarray(other), np.asarray(found[0]))


def test_each_call_asks_for_threads_and_no_other(granted: list[int]) -> None:
    for rows, more in (SHAPE[0], 1), (2, 0):
        for _ in range(4):
            tridiag.linear_recurrence(A[:rows], D[:rows])
        before = len(granted)
        tridiag.linear_recurrence(A[:rows], D[:rows])
        assert len(granted) - before == more


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeWarning])
def test_what_asking_raises_is_raised(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler of a signal may run just then, and a warning be an error; the next call is as ever."""
    wanted = [tridiag.linear_recurrence(A, D) for _ in range(4)][-1]

    def threads() -> int:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(systems, "threads", threads)
        with pytest.raises(error):
            tridiag.linear_recurrence(A, D)
    np.testing.assert_array_equal(tridiag.linear_recurrence(A, D), wanted)


def test_a_call_that_is_made_while_threads_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a finalizer, say: both have their own results."""
    out, other = np.empty(SHAPE), np.empty(SHAPE)
    for _ in range(4):
        wanted = tridiag.linear_recurrence(A, D, out=out).copy()
    out[:] = 0

    def threads() -> int:
        monkeypatch.setattr(systems, "threads", lambda: 1)
        tridiag.linear_recurrence(A, C, out=other)
        return 1

    monkeypatch.setattr(systems, "threads", threads)
    assert tridiag.linear_recurrence(A, D, out=out) is out
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(other, tridiag.linear_recurrence(A, C))
