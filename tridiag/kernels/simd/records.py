"""Records in compiled code: an address that knows its layout, whose words are attributes.

What is written is one load or store, as of an address and an offset. Addresses do not add: a record is no number, and
an offset can be taken in no wrong unit.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_getattr, infer_global, signature
from numba.extending import (
    intrinsic,
    lower_builtin,
    lower_getattr_generic,
    lower_setattr_generic,
    models,
    register_model,
)

from tridiag.kernels.jobs.words.record import Field, Record
from tridiag.kernels.simd.values import Value
from tridiag.kernels.simd.vector import I64, Code


class OfRecord(types.Type):
    """Base of types that a record makes: those of two records are two types, also where the records have one name."""

    def __init__(self, record: type[Record]) -> None:
        self.record = record
        super().__init__(name=f"{type(self).__name__} {record.__module__}.{record.__name__}")

    @property
    def key(self) -> Any:
        return self.record


class RecordAt(OfRecord):
    """The address of a record."""

    def value(self, code: Code, llvm: Any) -> Any:
        """Such an argument of a function in the language of `tridiag.kernels.simd.vector`."""
        return At(code, llvm, self.record)


class AddressesOf(OfRecord):
    """The addresses of the fields of a record, for what is done to them as a whole: atomics, copies."""


class WordsAt(types.Type):
    """The address of several words."""

    def __init__(self) -> None:
        super().__init__(name="words")


WORDS_AT = WordsAt()
for kind in (RecordAt, AddressesOf, WordsAt):
    register_model(kind)(type(f"{kind.__name__}Model", (models.PrimitiveModel,), {
        "__init__": lambda self, manager, fe_type: models.PrimitiveModel.__init__(self, manager, fe_type, I64)
    }))  # fmt: skip


@functools.cache
def at(record: Any) -> Any:
    """A function for compiled code: an address as that of such a record."""
    made = RecordAt(record)

    @intrinsic
    def record_at(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return args[0]

        return made(address), generate

    return record_at


@intrinsic
def address_of(typing: Any, record: Any) -> Any:
    """The address of a record, or of words, as a number."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return args[0]

    return types.int64(record), generate


def behind(builder: Any, address: Any, offset: Any) -> Any:
    """As Numba adds integers."""
    return builder.add(address, offset, flags=["nsw"])


def pointer(builder: Any, address: Any, field: Field) -> Any:
    return builder.inttoptr(behind(builder, address, ir.Constant(I64, field.offset)), I64.as_pointer())


@infer_getattr
class FieldsOfRecord(AttributeTemplate):
    key = RecordAt

    def generic_resolve(self, typ: Any, attr: str) -> Any:
        if attr == "addresses":
            return AddressesOf(typ.record)
        field = typ.record.fields.get(attr)
        return None if field is None else types.int64 if field.count == 1 else WORDS_AT


@infer_getattr
class AddressesOfFields(AttributeTemplate):
    key = AddressesOf

    def generic_resolve(self, typ: Any, attr: str) -> Any:
        return types.int64 if attr in typ.record.fields else None


@lower_getattr_generic(RecordAt)
def read(context: Any, builder: Any, typ: Any, value: Any, attr: str) -> Any:
    if attr == "addresses":
        return value
    field = typ.record.fields[attr]
    if field.count == 1:
        return builder.load(pointer(builder, value, field))
    return behind(builder, value, ir.Constant(I64, field.offset))


@lower_getattr_generic(AddressesOf)
def address(context: Any, builder: Any, typ: Any, value: Any, attr: str) -> Any:
    return behind(builder, value, ir.Constant(I64, typ.record.fields[attr].offset))


@lower_setattr_generic(RecordAt)
def write(context: Any, builder: Any, sig: Any, args: Any, attr: str) -> None:
    target, value = args
    field = sig.args[0].record.fields[attr]
    builder.store(context.cast(builder, value, sig.args[1], types.int64), pointer(builder, target, field))


@infer_global(operator.getitem)
class WordOf(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        if (args and args[0] is WORDS_AT) or isinstance(args[0], WordsAt):
            return signature(types.int64, WORDS_AT, types.int64)
        return None


@infer_global(operator.setitem)
class SetWordOf(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        if isinstance(args[0], WordsAt):
            return signature(types.none, WORDS_AT, types.int64, types.int64)
        return None


def element(builder: Any, address: Any, k: Any) -> Any:
    offset = builder.mul(k, ir.Constant(I64, 8), flags=["nsw"])
    return builder.inttoptr(behind(builder, address, offset), I64.as_pointer())


@lower_builtin(operator.getitem, WordsAt, types.int64)
def read_word(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    return builder.load(element(builder, *args))


@lower_builtin(operator.setitem, WordsAt, types.int64, types.int64)
def write_word(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    address, k, value = args
    builder.store(value, element(builder, address, k))
    return context.get_dummy_value()


class At(Value):
    """A record in the language of `tridiag.kernels.simd.vector`."""

    __slots__ = ("record",)

    def __init__(self, code: Code, llvm: Any, record: type[Record]) -> None:
        super().__init__(code, llvm)
        self.record = record

    @property
    def addresses(self) -> Addresses:
        return Addresses(self)

    def __getattr__(self, name: str) -> Any:
        field = self.field(name)
        place = Value(self.code, self.llvm) + field.offset
        return self.code.word(place) if field.count == 1 else WordsOf(place)

    def field(self, name: str) -> Field:
        fields = object.__getattribute__(self, "record").fields
        if name not in fields:
            raise AttributeError(f"{self.record.__name__} has no field {name}; it has {', '.join(fields)}")
        return fields[name]


class Addresses:
    """Those of the fields of a record."""

    def __init__(self, record: At) -> None:
        self._record = record

    def __getattr__(self, name: str) -> Value:
        record = self._record
        return Value(record.code, record.llvm) + record.field(name).offset


class WordsOf:
    """Several words in that language."""

    def __init__(self, address: Value) -> None:
        self.address = address

    def __getitem__(self, k: Any) -> Value:
        return self.address.code.word(self.address + (8 * k if isinstance(k, int) else k * 8))
