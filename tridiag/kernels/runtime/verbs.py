"""Verbs that CPython enters in compiled code: a call that their table has met before needs no frame of Python.

From CPython 3.12 on a verb stays the function that it is, and only what runs where it is called is another
(PyFunction_SetVectorcall); before, an object stands for it that is called by the same protocol (PEP 590), has all
attributes of the function, and is one to `inspect`, `help`, `pickle` and compilers. Until a table keeps its first call,
and for every call that it has not met, the function itself runs.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
import operator
import sys
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, TypeVar

from tridiag.kernels.jobs.words.record import Record, Word, Words
from tridiag.kernels.runtime.python_call import HEAD, lasting

PARAMETERS = 16  # of a verb
VERBS = 16  # of the package
NOWHERE = -1  # the place of a parameter that the table does not get: calls of the table have its default

Function = TypeVar("Function", bound=Callable[..., Any])


class Signature(Record):
    """How calls of a verb are calls of its table; compiled code writes the last words."""

    verb, function = Word(), Word()  # the addresses of what is called, and of the function of Python
    otherwise = Word()  # that of the C function by which CPython enters the latter
    table = Word()  # that of the words of the table
    parameters, positional = Word(), Word()  # how many, and how many of them may be given without names
    leading = Word()  # the parameter that is a plain array in every call of the table
    names, defaults = Words(PARAMETERS), Words(PARAMETERS)  # addresses; 0 where there is no default
    places = Words(PARAMETERS)  # where the table gets them, or NOWHERE
    count = Word()  # of the arguments of the table
    given, placed = Words(PARAMETERS), Words(PARAMETERS)  # of the call at hand: in both orders
    # the latest call that was found, if all that is no option at its default was an array, a number or an option by
    # itself: the address of it, or 0; the `changes` of the table then; how many arguments it had by position and by
    # name; the address of the names, which are kept alive; where the table gets each argument; and how far from the
    # call the lengths and strides of that one are
    kept, changes, by_position, by_name, keywords = Word(), Word(), Word(), Word(), Word()
    of_table, lengths = Words(PARAMETERS), Words(PARAMETERS)


class Verbs(Record):
    """Those that are entered in compiled code."""

    count = Word()
    signatures = Words(VERBS)  # addresses


ENTERED = Verbs.filled()


def verb_of(function: Function) -> Function:
    """What stands for a function from now on."""
    verb: Any = function if sys.version_info >= (3, 12) else standing_for(function)
    return verb


def enter(verb: Any, function: Any, table: Any, address: int, leading: str, order: Sequence[Any]) -> None:
    """From now on calls of a verb go to compiled code, the C function at an address.

    ``table``: the words of its table, which gets the parameters whose names are in ``order``, and what else stands
    there. ``leading``: the parameter that is an array of NumPy in every call that it has met.
    """
    known = int(ENTERED[Verbs.count.word])
    if known == VERBS:  # modules have been loaded again and again
        return
    words = signature_words(verb, function, table, leading, order)
    Verbs.view(ENTERED).signatures[known] = words.ctypes.data
    ENTERED[Verbs.count.word] = known + 1
    ctypes.CFUNCTYPE(ctypes.c_int64, *(ctypes.c_int64,) * 4)(address)(0, ENTERED.ctypes.data, 0, 0)
    lasting((words, verb, function, table))
    if verb is function:
        set_vectorcall(function, address)
    else:
        ctypes.c_void_p.from_address(id(verb) + VECTORCALL_AT).value = address


def signature_words(verb: Any, function: Any, table: Any, leading: str, order: Sequence[Any]) -> Any:
    parameters = inspect.signature(function).parameters
    names, given = [sys.intern(name) for name in parameters], parameters.values()
    words = Signature.filled(
        verb=id(verb), function=id(function), otherwise=vectorcall_of(function), table=table.ctypes.data,
        parameters=len(names), positional=sum(x.kind is x.POSITIONAL_OR_KEYWORD for x in given),
        leading=names.index(leading), count=len(order),
    )  # fmt: skip
    view = Signature.view(words)
    for k, (name, x) in enumerate(zip(names, given, strict=True)):
        view.names[k], view.defaults[k] = id(name), 0 if x.default is x.empty else id(x.default)
        view.places[k] = order.index(name) if name in order else NOWHERE
    view.placed[: len(order)] = list(map(id, order))  # of what are no names it stays so
    lasting((names, parameters, order))
    return words


def vectorcall_of(function: Any) -> int:
    find: Any = ctypes.pythonapi.PyVectorcall_Function
    find.restype, find.argtypes = ctypes.c_void_p, (ctypes.py_object,)
    return int(find(function))


def set_vectorcall(function: Any, address: int) -> None:
    change: Any = ctypes.pythonapi.PyFunction_SetVectorcall
    change.restype, change.argtypes = None, (ctypes.py_object, ctypes.c_void_p)
    change(function, address)


# ------------------------------------------------------------------------------ what stands for a function, before 3.12


def standing_for(function: Any) -> Any:
    """An object that CPython calls as it does a method, `operator.call` of the function, until it is entered."""
    made = kind()()
    for place, held in ((METHOD_AT, operator.call), (SELF_AT, function)):
        ctypes.c_void_p.from_address(id(made) + place).value = id(lasting(held))
    ctypes.c_void_p.from_address(id(made) + VECTORCALL_AT).value = vectorcall_of(MethodType(operator.call, function))
    return functools.update_wrapper(made, function)


class Members(ctypes.Structure):
    """PyMemberDef of CPython."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("type", ctypes.c_int),
        ("offset", ctypes.c_ssize_t),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class Attribute(ctypes.Structure):
    """PyGetSetDef of CPython."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("get", ctypes.c_void_p),
        ("set", ctypes.c_void_p),
        ("doc", ctypes.c_char_p),
        ("closure", ctypes.c_void_p),
    )


class Slot(ctypes.Structure):
    """PyType_Slot of CPython."""

    _fields_ = (("slot", ctypes.c_int), ("value", ctypes.c_void_p))


class Specification(ctypes.Structure):
    """PyType_Spec of CPython."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("size", ctypes.c_int),
        ("item", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("slots", ctypes.POINTER(Slot)),
    )


METHOD_AT, SELF_AT, VECTORCALL_AT = (HEAD + 8 * k for k in range(3))  # the first two as in PyMethodObject of CPython
SIZE_OF_POINTER, READ_ONLY = 19, 1  # T_PYSSIZET and READONLY of its header structmember.h
MEMBERS, ATTRIBUTES = 72, 73  # Py_tp_members and Py_tp_getset of typeslots.h
DEFAULT, VECTORCALL = 1 << 18, 1 << 11  # Py_TPFLAGS_DEFAULT and Py_TPFLAGS_HAVE_VECTORCALL


@functools.cache
def kind() -> Any:
    """The type of what stands for a function: an object with the address of the C function that CPython calls."""
    names = b"__vectorcalloffset__", b"__dictoffset__", b"__weaklistoffset__"
    places = [Members(name, SIZE_OF_POINTER, VECTORCALL_AT + 8 * k, READ_ONLY, None) for k, name in enumerate(names)]
    members = lasting((Members * (len(names) + 1))(*places))
    get, change = (ctypes.cast(f, ctypes.c_void_p) for f in (
        ctypes.pythonapi.PyObject_GenericGetDict, ctypes.pythonapi.PyObject_GenericSetDict
    ))  # fmt: skip
    attributes = lasting((Attribute * 2)(Attribute(b"__dict__", get, change, None, None)))
    slots = Slot(MEMBERS, ctypes.addressof(members)), Slot(ATTRIBUTES, ctypes.addressof(attributes))
    wanted = lasting(
        Specification(b"tridiag.Verb", VECTORCALL_AT + 8 * len(names), 0, DEFAULT | VECTORCALL, (Slot * 3)(*slots))
    )
    make: Any = ctypes.pythonapi.PyType_FromSpec
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p,)
    made = make(ctypes.addressof(wanted))
    made.__call__ = lambda self, *arguments, **options: self.__wrapped__(*arguments, **options)
    made.__get__ = lambda self, instance, owner=None: self  # which tells `inspect` and `help` that it is a routine
    made.__getattr__ = lambda self, name: getattr(object.__getattribute__(self, "__wrapped__"), name)
    made.__reduce__ = lambda self: self.__qualname__
    made.__repr__ = lambda self: repr(self.__wrapped__)
    return made
