"""Calls that were met before, found again by compiled code: nothing of Python runs between a verb and its kernel.

A table belongs to a verb and holds complete calls, by the layouts of their arrays. A call is one that was met if each
array has the dtype, shape and strides of then, a number is of the type of then, and every other argument is the same
object. Then the result is made, the kernel runs, and that is all. Whatever differs, may overlap, may be singular, or
has values that the guard of a verb does not let through, is no call of the table's: a function of Python gets it.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag.kernels.jobs.systems import threads_granted
from tridiag.kernels.jobs.words.record import Record, Word, Words
from tridiag.kernels.runtime.numpy_functions import empty_array
from tridiag.kernels.runtime.object_cache import made_by, obtain
from tridiag.kernels.runtime.python_call import (
    BEFORE_JOB,
    HELPERS,
    JOB,
    KERNEL,
    LONG,
    METH_FASTCALL,
    SIZE,
    Method,
    lasting,
    make_function,
)
from tridiag.kernels.runtime.verbs import Function, enter, verb_of

SLOTS = 256  # of a table, a power of two; a call has one place, in which the latest of those that share it is kept
ARGUMENTS = 24  # of a call, items of tuples counted one by one; a call with more is kept in no table
POINTERS = 24  # of a kernel
LARGEST_JOB = 4096  # bytes of a job that a table has memory for
SAME, ARRAY, NUMBER = range(3)  # kinds of arguments
# how an argument is read: where it is, or converted to memory behind the job. First numbers of Python: a float as
# float32, an integer as float64 and as float32; then arrays, as float64
AS_IT_IS, NARROWED, WHOLE, WHOLE_NARROWED, FROM_INT64, FROM_INT32, FROM_FLOAT32 = range(7)
NUMBERS = {(float, "float32"): NARROWED, (int, "float64"): WHOLE, (int, "float32"): WHOLE_NARROWED}
ARRAYS = {np.dtype(np.int64): FROM_INT64, np.dtype(np.int32): FROM_INT32, np.dtype(np.float32): FROM_FLOAT32}
CONVERTED = 1024  # entries of an array; more are converted by NumPy
# what a pointer of a kernel may point at beside an argument: nothing, and the result; if that is a tuple of arrays, the
# first of them, and below RESULT the others
NOTHING, RESULT = -1, -2


class Table(Record):
    """Where calls are kept; compiled code writes the slot of a call that it has not found."""

    array, group = Word(), Word()  # the addresses of two types
    numbers = Words(3)  # those of the types of numbers
    empty = Word()  # the address of NumPy's function that makes arrays
    granted = Word()  # that of the function of Python that tells how many threads a call may have now
    otherwise = Word()  # the address of the function of Python that gets calls which are not found
    own, taken = Word(), Word()  # memory for the job of a call, and whether one has it
    missed, latest = Word(), Word()  # slots: where a call was looked for in vain, and where the latest was found
    changes = Word()  # how often a call was kept, or all were forgotten
    count, tuples = Word(), Word()  # of the call at hand, as those of `Met`
    given = Words(ARGUMENTS)  # those, items of tuples one by one
    slots = Words(SLOTS)  # addresses of tuples that begin with the words of a call, or 0


class Met(Record):
    """A call; behind it, for each array the lengths and the strides of its axes, the shapes of results, and the job."""

    count, groups = Word(), Word()  # of arguments, items of tuples one by one; how many are left if tuples count as one
    tuples = Word()  # a bit for each argument with which a tuple begins, and, ARGUMENTS bits on, for those that end one
    kinds = Words(ARGUMENTS)
    wanted = Words(ARGUMENTS)  # its address; of an array that of its dtype, of a number that of its type
    axes = Words(ARGUMENTS)
    low, high = Words(ARGUMENTS), Words(ARGUMENTS)  # bytes from the first entry of an array to its memory's ends
    reads = Words(ARGUMENTS)
    entries = Words(ARGUMENTS)  # of what is converted
    places = Words(ARGUMENTS)  # how far from the job that is then
    out = Word()  # the argument that takes the result, or -1: it is made
    several = Word()  # 0: the result is one array; else a tuple of so many
    beside = Word()  # the address of an object that is the last of such a tuple, or 0
    dtype, shapes = Word(), Word()  # of what is made; how far from here the number of axes and the lengths of each are
    guard, facts = Word(), Word()  # a C function f(job, facts), not zero where values are out of the ordinary; or 0
    checked = Word()  # whether systems that may be singular are looked at
    threads = Word()  # how many have to be granted; 0: as many as are
    pointers = Word()
    sources = Words(POINTERS)  # of each pointer of the kernel: an argument, NOTHING, or RESULT and below
    kernel, helpers, long = Word(), Word(), Word()  # as in the templates of `python_call`
    job, bytes_of_job = Word(), Word()  # how far from here its words are
    room = Word()  # bytes of a job and what is converted


class Layout(NamedTuple):
    """An array as an argument."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Same(NamedTuple):
    """An argument that has to be this very object."""

    value: Any


class Converted(NamedTuple):
    """A contiguous array as an argument, of an own dtype; the kernel reads float64."""

    layout: Layout


class Number(NamedTuple):
    """A number of Python or NumPy, read by the kernel as one of that dtype."""

    kind: type
    dtype: np.dtype[Any]


class Several(NamedTuple):
    """A result that is a tuple of arrays, and of an object behind them, if there is one."""

    dtype: np.dtype[Any]
    shapes: tuple[tuple[int, ...], ...]
    beside: Any = None


class Guard(NamedTuple):
    """What looks at the values of a call: the address of a C function, and the words that it gets beside the job."""

    address: int
    facts: np.ndarray[Any, Any]


Kept = tuple[Any, ...]  # the words of a call, and what they point at
OfThreads = Callable[[int], Kept | None]  # those of a call that has so many threads
Keepable = Kept | OfThreads


def kept_call(
    arguments: Sequence[Any],
    groups: Sequence[int | None],
    run: Any,
    sources: Sequence[int],
    result: Any,
    out: int,
    checked: bool,
    guard: Guard | None = None,
    threads: int = 0,
) -> Kept | None:
    """A call for `CallTable.keep`: arguments as Layout, Converted, Same or Number, tuples' items one by one.

    None: not for tables. ``run``: the kernel as `python_call.function` gives it. ``sources``: of each of its pointers.
    ``result``: Layout or Several of what is made where no argument, ``out``, takes the result. ``groups``: of
    each argument, if tuples count as one, the items of a tuple; None: it is none. ``threads``: as in `Met`.
    """
    if len(arguments) > ARGUMENTS or len(sources) > POINTERS:
        return None
    template, several = run.__self__, isinstance(result, Several)
    shapes, beside = (result.shapes, result.beside) if several else ((result.shape,), None)
    head, words_of_job = template[: JOB // 8], template[JOB // 8 :]
    tail: list[int] = []
    columns, reads = [column(x, tail) for x in arguments], [reading(x) for x in arguments]
    ends = np.cumsum([int(head[SIZE // 8]), *(8 * entries for _, entries in reads)])
    results = 8 * (Met.words + len(tail))
    tail += [word for shape in shapes for word in (len(shape), *shape)]
    job = 8 * (Met.words + len(tail))
    words = Met.filled(
        len(tail) + len(words_of_job), count=len(arguments), groups=len(groups), tuples=tuples_of(groups), out=out,
        several=len(shapes) if several else 0, beside=0 if beside is None else id(beside),
        dtype=id(result.dtype), shapes=results,
        checked=checked, threads=threads, pointers=len(sources), kernel=head[KERNEL // 8], helpers=head[HELPERS // 8],
        long=head[LONG // 8], job=job, bytes_of_job=head[SIZE // 8], room=ends[-1],
    )  # fmt: skip
    view = Met.view(words)
    for k, (found, (read, entries)) in enumerate(zip(columns, reads, strict=True)):
        view.kinds[k], view.wanted[k], view.axes[k], view.low[k], view.high[k] = found
        view.reads[k], view.entries[k], view.places[k] = read, entries, ends[k]
    view.sources[: len(sources)] = sources
    if guard is not None:
        words[Met.guard.word], words[Met.facts.word] = guard.address, guard.facts.ctypes.data
    words[Met.words :] = [*tail, *words_of_job]
    return words, result.dtype, tuple(arguments), template, guard, beside


def tuples_of(groups: Sequence[int | None]) -> int:
    """The word of `Met`: a tuple of one array is not that array."""
    bits, first = 0, 0
    for items in groups:
        bits |= (1 << first) | (1 << (ARGUMENTS + first + items - 1)) if items else 0
        first += 1 if items is None else items
    return bits


def column(argument: Any, tail: list[int]) -> tuple[int, int, int, int, int]:
    """The words about what an argument is, of which there is one for each."""
    if isinstance(argument, Same):
        return SAME, id(argument.value), 0, 0, 0
    if isinstance(argument, Number):
        return NUMBER, id(argument.kind), 0, 0, 0
    dtype, shape, strides = argument.layout if isinstance(argument, Converted) else argument
    tail += [*shape, *strides]
    reach = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
    low, high = sum(min(0, r) for r in reach), sum(max(0, r) for r in reach) + dtype.itemsize
    return ARRAY, id(dtype), len(shape), low, high


def reading(argument: Any) -> tuple[int, int]:
    """How an argument is read, and how many entries of it are converted."""
    if isinstance(argument, Converted):
        return ARRAYS[argument.layout.dtype], math.prod(argument.layout.shape)
    read = NUMBERS.get((argument.kind, argument.dtype.name), AS_IT_IS) if isinstance(argument, Number) else AS_IT_IS
    return read, int(read != AS_IT_IS)


class CallTable:
    """The calls of a verb: ``call(*arguments)`` is the result of one that was met, else that of ``otherwise``."""

    def __init__(self, otherwise: Callable[..., Any]) -> None:
        self.kept: list[Kept | None] = [None] * SLOTS
        numbers: Any = [*map(id, (float, np.float32, np.float64))]
        types = {"array": id(np.ndarray), "group": id(tuple), "numbers": numbers, "granted": id(threads_granted)}
        self.words = Table.filled(otherwise=id(otherwise), **types)
        self.call = self.otherwise = otherwise
        self.entries: list[Callable[[], None]] = []  # what lets verbs be entered in compiled code
        self.threads = threads_granted()  # of its calls

    def keep(self, call: Keepable) -> None:
        """In the slot of the call that was not found a moment ago, which is this one, or finds it never.

        Where other threads are granted than before, it was found: then all are forgotten, and kept anew from now on.
        """
        if self.call is self.otherwise:
            self.words[Table.empty.word] = empty_array()
            self.memory = np.empty(BEFORE_JOB + LARGEST_JOB, np.uint8)
            self.words[Table.own.word] = self.memory.ctypes.data + BEFORE_JOB
            self.call = make_function(ctypes.byref(method()), self.words, None)
            for begin in self.entries:
                begin()
            return
        found = call if isinstance(call, tuple) else self.with_threads(call)
        if found is None:
            return
        table = Table.view(self.words)
        slot = int(table.missed)
        self.words[Table.changes.word] += 1
        self.kept[slot], table.slots[slot] = found, id(found)

    def with_threads(self, call: OfThreads) -> Kept | None:
        granted = threads_granted()
        if granted == self.threads:
            return call(granted)
        self.threads = granted
        self.forget()
        return None

    def entered(self, leading: str, *order: Any) -> Callable[[Function], Function]:
        """A decorator of the verb, which is entered in compiled code from when on the table keeps calls.

        ``order``: of the parameters that the table gets, the names, and what else it gets; ``leading``: the parameter
        that is an array of NumPy in every call of the table.
        """

        def decorate(function: Function) -> Function:
            verb = verb_of(function)
            self.entries.append(lambda: enter(verb, function, self.words, address(), leading, order))
            return verb

        return decorate

    def forget(self) -> None:
        Table.view(self.words).slots[:] = 0
        self.words[Table.changes.word] += 1
        self.kept[:] = [None] * SLOTS


ENTRY = "recall", made_by("runtime.verb_entry.build")  # a kernel, and what builds it


@functools.cache
def method() -> Method:
    return lasting(Method(b"recall", address(), METH_FASTCALL, None))


def address() -> int:
    """Of the C function by which CPython enters tables and verbs."""
    found: int = obtain(*ENTRY).address
    return found
