"""The compiled side of `tridiag.kernels.runtime.call_table`: a call is looked for, and run where it is found.

Objects of CPython and NumPy are read as their C APIs lay them out (PyObject, PyFloatObject, PyTupleObject,
PyArrayObject_fields), with the GIL held.
"""

from __future__ import annotations

from numba import types

from tridiag.kernels.jobs.words.job import POINTERS as JOB_POINTERS
from tridiag.kernels.runtime.call_table import (
    ARGUMENTS,
    ARRAY,
    AS_IT_IS,
    FROM_FLOAT32,
    FROM_INT32,
    FROM_INT64,
    LARGEST_JOB,
    NARROWED,
    NOTHING,
    RESULT,
    SAME,
    SLOTS,
    WHOLE,
    WHOLE_NARROWED,
)
from tridiag.kernels.runtime.call_table import Met as MetWords
from tridiag.kernels.runtime.call_table import Table as TableWords
from tridiag.kernels.runtime.python_call import BROKEN, HEAD, RAISED
from tridiag.kernels.runtime.python_entry import BEFORE, fresh_job, performing
from tridiag.kernels.simd.compiled import compiled
from tridiag.kernels.simd.memory import c_function, call, free, half_word, load, set_word, store, word
from tridiag.kernels.simd.records import address_of, at

table_at, met_at, MET_SIZE = at(TableWords), at(MetWords), MetWords.size()
TYPE = HEAD - 8  # of an object
LENGTH, ITEMS = HEAD, tuple.__basicsize__  # of a tuple
DATA, AXES, LENGTHS, STRIDES, DTYPE, FLAGS = (HEAD + k for k in (0, 8, 16, 24, 40, 48))  # of an array
WRITEABLE = 0x400
NOT_TO_BE_HAD = -1  # the address of no object

_ask = types.ExternalFunction("PyObject_Vectorcall", types.int64(types.int64, types.int64, types.int64, types.int64))
_tuple = types.ExternalFunction("PyTuple_New", types.int64(types.int64))
keep = types.ExternalFunction("Py_IncRef", types.void(types.int64))
drop = types.ExternalFunction("Py_DecRef", types.void(types.int64))
_whole = types.ExternalFunction("PyLong_AsLongLongAndOverflow", types.int64(types.int64, types.int64))
_number = types.ExternalFunction("PyLong_AsLongLong", types.int64(types.int64))


@compiled
def flatten(table, arguments, count):
    """The arguments, items of tuples one by one, to the table; False: there are too many."""
    found, tuples = 0, 0
    for k in range(count):
        argument = word(arguments + 8 * k)
        group = word(argument + TYPE) == table.group
        items = word(argument + LENGTH) if group else 1
        if found + items > ARGUMENTS:
            return False
        for j in range(items):
            table.given[found + j] = word(argument + ITEMS + 8 * j) if group else argument
        if group and items > 0:
            tuples |= (1 << found) | (1 << (ARGUMENTS + found + items - 1))
        found += items
    table.count, table.tuples = found, tuples
    return True


@compiled
def slot_of(table):
    """Where a call with these arguments is kept: it follows from layouts, and from what is neither array nor number."""
    total = 0
    for k in range(table.count):
        argument = table.given[k]
        kind = word(argument + TYPE)
        if kind == table.array:
            lengths, strides = word(argument + LENGTHS), word(argument + STRIDES)
            for axis in range(half_word(argument + AXES)):
                total = (total * 31 + word(lengths + 8 * axis)) & 0xFFFFFFFFFF
                total = (total * 37 + word(strides + 8 * axis)) & 0xFFFFFFFFFF
        elif kind != table.numbers[0] and kind != table.numbers[1] and kind != table.numbers[2]:
            total = (total * 41 + (argument >> 4)) & 0xFFFFFFFFFF
    return (total ^ total >> 8 ^ total >> 17 ^ total >> 29) & (SLOTS - 1)


@compiled
def alike(table, met, k, place):
    """Whether an argument is as it was; an array's lengths and strides then are in the words at ``place``."""
    argument, kind, wanted = table.given[k], met.kinds[k], met.wanted[k]
    if kind == SAME:
        return argument == wanted
    if kind != ARRAY:
        return word(argument + TYPE) == wanted
    axes = met.axes[k]
    if word(argument + TYPE) != table.array or word(argument + DTYPE) != wanted or half_word(argument + AXES) != axes:
        return False
    lengths, strides = word(argument + LENGTHS), word(argument + STRIDES)
    for axis in range(axes):
        if word(lengths + 8 * axis) != word(place + 8 * axis):
            return False
        if word(strides + 8 * axis) != word(place + 8 * (axes + axis)):
            return False
    return True


@compiled
def matches(table, met, count):
    """Whether the arguments are those of a call."""
    if met.count != table.count or met.groups != count or met.tuples != table.tuples:
        return False
    place = address_of(met) + MET_SIZE
    for k in range(met.count):
        if not alike(table, met, k, place):
            return False
        place += 16 * met.axes[k]
    return met.out < 0 or may_take_the_result(table, met)


@compiled
def may_take_the_result(table, met):
    """Whether the output is writable, and surely shares no memory with an argument."""
    out = met.out
    if half_word(table.given[out] + FLAGS) & WRITEABLE == 0:
        return False
    first, behind = word(table.given[out] + DATA) + met.low[out], word(table.given[out] + DATA) + met.high[out]
    for k in range(met.count):
        if k != out and met.kinds[k] == ARRAY:
            data = word(table.given[k] + DATA)
            if data + met.low[k] < behind and first < data + met.high[k]:
                return False
    return True


@compiled
def convert_number(read, number, to):
    """A number of Python to that place; False: an integer that has more than 64 bits."""
    if read == NARROWED:
        store(to, types.float32(load(number + HEAD, types.float64(0))))
        return True
    whole = _whole(number, to)  # which tells at that place of more bits
    if half_word(to) != 0:
        return False
    if read == WHOLE:
        store(to, types.float64(whole))
    else:
        store(to, types.float32(whole))
    return True


@compiled
def convert_array(read, data, entries, to):
    """The entries of a contiguous array to that place, as float64."""
    if read == FROM_INT64:
        for k in range(entries):
            store(to + 8 * k, types.float64(load(data + 8 * k, types.int64(0))))
    elif read == FROM_INT32:
        for k in range(entries):
            store(to + 8 * k, types.float64(load(data + 4 * k, types.int32(0))))
    elif read == FROM_FLOAT32:
        for k in range(entries):
            store(to + 8 * k, types.float64(load(data + 4 * k, types.float32(0))))


@compiled
def read_arguments(table, met, job):
    """Conversions of arguments, to the memory behind a job; False: some integer has more than 64 bits."""
    for k in range(met.count):
        read = met.reads[k]
        if read == AS_IT_IS:
            continue
        to = job + met.places[k]
        if read <= WHOLE_NARROWED:
            if not convert_number(read, table.given[k], to):
                return False
        else:
            convert_array(read, word(table.given[k] + DATA), met.entries[k], to)
    return True


@compiled
def point(table, met, job):
    """The pointers of a job to the memory of arguments, or to what they were converted to."""
    for k in range(met.pointers):
        source, to = met.sources[k], job + 8 * (JOB_POINTERS + k)
        if source >= 0:
            address = table.given[source] + HEAD  # of the number, or of a word with an array's
            if met.reads[source] != AS_IT_IS:
                address = job + met.places[source]
            elif met.kinds[source] == ARRAY:
                address = word(address)
            set_word(to, address)
        elif source == NOTHING:
            set_word(to, 0)


@compiled
def made_array(table, met, shape):
    """An array with the entries that its memory happens to hold, of the shape at an address; 0: Python has raised."""
    keep(met.dtype)  # for the array, which takes it
    return call(table.empty, (word(shape), shape + 8, met.dtype, 0))


@compiled
def made(table, met):
    """An array, or a tuple of arrays, for the result of a call, which belongs to the caller; 0: Python has raised."""
    shape = address_of(met) + met.shapes
    if met.several == 0:
        return made_array(table, met, shape)
    beside = met.beside
    result = _tuple(met.several + (beside != 0))
    if result == 0:
        return 0
    if beside != 0:
        keep(beside)  # for the tuple, which takes it
        set_word(result + ITEMS + 8 * met.several, beside)
    for k in range(met.several):
        array = made_array(table, met, shape)
        if array == 0:
            drop(result)
            return 0
        set_word(result + ITEMS + 8 * k, array)
        shape += 8 * (1 + word(shape))
    return result


@compiled
def point_at_result(met, job, result):
    for k in range(met.pointers):
        source = met.sources[k]
        if source <= RESULT:
            array = word(result + ITEMS + 8 * (RESULT - source)) if met.several != 0 else result
            set_word(job + 8 * (JOB_POINTERS + k), word(array + DATA))


@compiled
def ready(table, met, job):
    """Whether a job has its arguments, and the guard of the verb, if there is one, lets their values through."""
    if not read_arguments(table, met, job):
        return False
    point(table, met, job)
    return met.guard == 0 or call(met.guard, (job, met.facts)) == 0


@compiled
def granted(table):
    """How many threads a call may have now; 0: Python has raised."""
    number = _ask(table.granted, 0, 0, 0)
    if number == 0:
        return 0
    threads = _number(number)
    drop(number)
    return threads


@compiled
def run(table, met, job):
    """The result of a call, which belongs to the caller; 0 where Python has raised; else NOT_TO_BE_HAD."""
    out, checked = met.out, met.checked
    if not ready(table, met, job):
        return NOT_TO_BE_HAD
    result = table.given[out] if out >= 0 else 0  # from here on Python runs, and another call may be at hand
    if met.threads != 0:
        threads = granted(table)
        if threads != met.threads:
            return 0 if threads == 0 else NOT_TO_BE_HAD
    if out >= 0:
        keep(result)
    else:
        result = made(table, met)
    if result == 0:
        return 0
    point_at_result(met, job, result)
    found = call(performing(0), (met.kernel, job, met.helpers, met.long))
    if found > BROKEN or (found == BROKEN and checked):
        drop(result)
        return 0 if found == RAISED else NOT_TO_BE_HAD
    return result


@compiled
def borrowed_job(table, room):
    """Memory for a job of so many bytes, the table's own if no other call has it; 0 where there is none."""
    if room > LARGEST_JOB or table.taken:
        return fresh_job(room)
    table.taken = 1
    return table.own


@compiled
def give_back(table, job):
    if job == table.own:
        table.taken = 0
    else:
        free(job + BEFORE)


@compiled
def met_of(kept):
    """A call that is kept."""
    return met_at(word(word(kept + ITEMS) + DATA))


@compiled
def found(table, count):
    """The address of a call that was met, often the latest one, or 0."""
    latest = table.slots[table.latest]
    if latest != 0 and matches(table, met_of(latest), count):
        return latest
    slot = slot_of(table)
    table.missed = slot
    kept = table.slots[slot]
    if kept == 0 or kept == latest or not matches(table, met_of(kept), count):
        return 0
    table.latest = slot
    return kept


@compiled
def run_kept(table, kept):
    """The result of a call that was found, as `run`."""
    met = met_of(kept)
    job = borrowed_job(table, met.room)
    if job == 0:
        return NOT_TO_BE_HAD
    source = address_of(met) + met.job
    for byte in range(0, met.bytes_of_job, 8):
        set_word(job + byte, word(source + byte))
    keep(kept)  # a handler or a finalizer that runs meanwhile may make the table forget it
    result = run(table, met, job)
    drop(kept)
    give_back(table, job)
    return result


@compiled
def kept_with(table, arguments, count):
    """The address of a call that was met with these arguments, which then are in the table, or 0."""
    return found(table, count) if flatten(table, arguments, count) else 0


@compiled
def recall(words, arguments, count, zero):
    """What the call of a table with some arguments returns."""
    table = table_at(word(words + HEAD))
    kept = kept_with(table, arguments, count)
    result = run_kept(table, kept) if kept != 0 else NOT_TO_BE_HAD
    return _ask(table.otherwise, arguments, count, 0) if result == NOT_TO_BE_HAD else result


recalling = c_function(recall, "tridiag_recall", 3, types.int64)
