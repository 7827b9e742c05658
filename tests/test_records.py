"""Memory with names: what compiled code reads and writes is where the record says, and zones behind it are watched."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tridiag.kernels.jobs.words import alignment, job, kalman, logsumexp, recurrences, systems
from tridiag.kernels.jobs.words.record import Record, Word, Words

pytest.importorskip("numba")

RECORDS = (systems.Systems, logsumexp.Logsumexp, recurrences.Recurrences, kalman.Filter, alignment.Alignment)


class Sample(Record):
    first, many, last = Word(), Words(3), Word()


@pytest.mark.parametrize("record", [Sample, *RECORDS], ids=lambda record: record.__name__)
def test_every_word_has_one_field(record: type[Record]) -> None:
    taken = [field.word + k for field in record.fields.values() for k in range(field.count)]
    assert sorted(taken) == list(range(record.words))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_addresses_of_arrays_come_behind_what_all_jobs_have(record: type[Record]) -> None:
    """Calls from Python and from XLA put them there without a look at the record."""
    names = list(record.fields)
    assert names[: len(job.Job.fields)] == list(job.Job.fields)
    assert record.fields[names[len(job.Job.fields)]].word == job.POINTERS


def test_a_record_is_filled_and_read_by_names() -> None:
    words = Sample.filled(2, many=(5, 6, 7), last=8)
    assert words.tolist() == [0, 5, 6, 7, 8, 0, 0]
    seen = Sample.view(words)
    assert seen.last == 8 and seen.many.tolist() == [5, 6, 7]
    with pytest.raises(KeyError):
        Sample.filled(middle=1)


def test_compiled_code_reads_and_writes_the_same_words() -> None:
    import numba

    from tridiag.kernels.simd.records import address_of, at

    sample_at = at(Sample)

    @numba.njit
    def run(address: int, k: int) -> tuple[int, int]:
        sample = sample_at(address)
        sample.last = sample.first + 1
        sample.many[k] = sample.last * 2
        return sample.many[k], sample.addresses.last - address_of(sample)

    words = Sample.filled(first=20)
    assert run(words.ctypes.data, 2) == (42, Sample.last.offset)
    assert words.tolist() == [20, 0, 0, 42, 21]


def test_records_of_one_name_are_two_types() -> None:
    """The rooms of recurrences of order 1 and 2 have one name: which was compiled first must not matter."""
    import numba

    from tridiag.kernels.simd.records import address_of, at

    def with_words(count: int) -> type[Record]:
        class Room(Record):
            many, last = Words(count), Word()

        return Room

    for room in (with_words(5), with_words(3)):
        room_at = at(room)

        @numba.njit
        def run(address: int, room_at: Any = room_at) -> tuple[int, int]:
            found = room_at(address)
            return found.last, found.addresses.last - address_of(found)

        assert run(room.filled(last=7).ctypes.data) == (7, room.last.offset)


def test_a_record_does_not_add_and_has_no_other_fields() -> None:
    """An offset in the wrong unit, or a name that is not there, is no program."""
    import numba

    from tridiag.kernels.simd.records import at

    sample_at = at(Sample)
    for body in (lambda address: sample_at(address) + 8, lambda address: sample_at(address).middle):
        with pytest.raises(numba.TypingError):
            numba.njit(body)(0)


WATCHED = """
import sys
import numba
from tridiag.kernels.jobs.words.record import Word
from tridiag.kernels.runtime.workspace import Workspace, workspace
from tridiag.kernels.simd.memory import set_word
from tridiag.kernels.simd.records import address_of

class Two(Workspace):
    first, second, field = Word(), Word(), Word()

arrays, allocate, free = workspace(Two, "first", "second")
behind_field = Two.field.offset + 8

@numba.njit
def run(array, at):
    found = allocate(arrays(first=64, second=128))
    set_word((found.first, found.second, address_of(found) + behind_field)[array] + at, 1)
    free(found)

run(int(sys.argv[1]), int(sys.argv[2]))
print("not noticed")
"""
BREACHES = {"first array": (0, 64), "second array": (1, 128), "before the first": (0, -8), "field": (2, 0)}


def watched(guarded: bool, array: int, at: int) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"TRIDIAG_GUARD_ZONES": "1" if guarded else "0"}
    command = [sys.executable, "-c", WATCHED, str(array), str(at)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("breach", BREACHES)
def test_a_zone_that_was_written_ends_the_process(breach: str) -> None:
    run = watched(True, *BREACHES[breach])
    assert run.returncode < 0 and "not noticed" not in run.stdout, run.stderr


def test_arrays_that_are_filled_to_their_ends_are_fine() -> None:
    for guarded in (False, True):
        assert "not noticed" in watched(guarded, 1, 120).stdout


def test_sizes_are_those_of_integers() -> None:
    assert Sample.size() == Sample.words * ctypes.sizeof(ctypes.c_int64) == Sample.filled().nbytes
    assert Sample.filled().dtype == np.int64
