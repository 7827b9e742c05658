"""That a helper begins on another processor than its caller, and may then use all those that the caller may."""

import os
import sys
from typing import Any

import pytest
from processes import run_program

pytest.importorskip("numba")
if sys.platform != "linux":
    pytest.skip("other systems place threads by themselves", allow_module_level=True)

PROCESSORS = os.sched_getaffinity(0)
# What a new thread sees of itself before and behind `begun`, and whether there is one: as the system lets it, with one
# processor, and where one of the functions that are asked fails.
PROGRAM = """
import ctypes, llvmlite.binding as llvm, numba, numpy as np, os, time
from numba import types
from tridiag.kernels.runtime import placement, system
from tridiag.kernels.simd.memory import call, set_word, word

failing = np.zeros(1, np.int64)
at, kept = failing.ctypes.data, []
for k, name in enumerate(["pthread_create", *system.LINUX], 1):
    real = int(ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value)
    given = "abcd"[:len(system.FUNCTIONS[name][0].args)]
    passed = "(" + "".join(x + ", " for x in given) + ")"
    fails = f"word({at}) == {k}" + (f" or word({at}) == -1 and b != 0" if name == "pthread_create" else "")
    body = eval(f"lambda {', '.join(given)}: -1 if {fails} else types.int32(call({real}, {passed}))")
    kept.append(numba.cfunc(types.int32(*[types.int64] * len(given)))(body))
    llvm.add_symbol(name, kept[-1].address)
    failing[0] = 0

@numba.cfunc("void(int64)")
def task(memory):
    seen = placement.start_at(memory).argument
    system.sched_getaffinity(types.int32(0), types.uint64(128), seen)
    set_word(seen + 128, system.sched_getcpu())
    placement.begun(memory)
    system.sched_getaffinity(types.int32(0), types.uint64(128), seen + 136)
    set_word(seen + 264, 1)
    system.pthread_detach(system.pthread_self())

@numba.njit
def create(task, seen):
    return placement.create(task, seen)

def bits(words):
    return {k for k in range(64 * len(words)) if int(words[k // 64]) >> k % 64 & 1}

def created():
    seen = np.zeros(34, np.int64)
    made = create(task.address, seen.ctypes.data)
    while made and not seen[33]:
        time.sleep(0.001)
    return made, int(seen[16]), bits(seen[:16]), bits(seen[17:33])

answers = {"freely": created()}
for k, name in enumerate(["pthread_create", *system.LINUX, "sched_setaffinity in pthread_create"], 1):
    failing[0] = k if k < 8 else -1
    answers[name] = created()
failing[0], only = 0, min(os.sched_getaffinity(0))
os.sched_setaffinity(0, {only})
answers["one processor"] = created()
print(answers)
"""


@pytest.fixture(scope="module")
def created() -> Any:
    """Whether a thread was made, where it began, and which processors it might use then and later."""
    return eval(run_program(PROGRAM))


@pytest.mark.skipif(len(PROCESSORS) < 2, reason="needs two processors")
def test_a_helper_begins_on_another_processor(created: Any) -> None:
    """On its caller's both would wait for each other, for milliseconds."""
    made, processor, first, later = created["freely"]
    assert made and processor in first
    assert len(first) == len(PROCESSORS) - 1 and later == PROCESSORS > first


def test_where_there_is_one_processor_it_begins_there(created: Any) -> None:
    only = min(PROCESSORS)
    assert created["one processor"] == (True, only, {only}, {only})


@pytest.mark.parametrize(
    "name",
    ["sched_getcpu", "pthread_attr_init", "pthread_attr_setaffinity_np", "sched_setaffinity in pthread_create"],
)
def test_a_system_that_lets_no_thread_be_placed(created: Any, name: str) -> None:
    """Sandboxes may refuse such calls; the helper begins where the system likes."""
    made, _, first, later = created[name]
    assert made and first == later == PROCESSORS


def test_a_system_that_tells_no_processors(created: Any) -> None:
    """As one that has more than the C library counts; what the thread sees is then nothing either."""
    assert created["sched_getaffinity"][0] and not created["sched_getaffinity"][3]


def test_no_thread_at_all(created: Any) -> None:
    assert not created["pthread_create"][0]
