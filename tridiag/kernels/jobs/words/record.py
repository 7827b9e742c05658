"""Memory with names: the words of a record, one after another; pure, for Python and for compiled code alike."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import numpy as np

# A debug build: words behind the fields of workspaces, and lines behind their arrays, that nobody may write.
GUARDED = os.environ.get("TRIDIAG_GUARD_ZONES", "") not in ("", "0")


class Field:
    """One word of a record, or several in a row."""

    align = 1  # word of which it lies at a multiple

    def __init__(self, count: int) -> None:
        self.count, self.word = count, 0

    def __set_name__(self, owner: type[Record], name: str) -> None:
        self.word = -(-owner.words // self.align) * self.align
        owner.words = self.word + self.count
        owner.fields = {**owner.fields, name: self}
        if owner.guarded and GUARDED:
            owner.zones, owner.words = (*owner.zones, owner.words), owner.words + 1

    @property
    def offset(self) -> int:
        """In bytes from the beginning of the record."""
        return 8 * self.word


class Word(Field):
    """One int64."""

    def __init__(self) -> None:
        super().__init__(1)


class Words(Field):
    """So many int64, in a row."""


class Lines(Field):
    """So many cache lines, in a row, for rows of lanes."""

    align = 8

    def __init__(self, count: int) -> None:
        super().__init__(8 * count)


class Record:
    """Base of the layouts. A field lies behind the one that is written before it, and behind those of the base.

    Compiled code reads and writes ``record.field``, or ``record.field[k]`` where there are several: see
    `tridiag.kernels.simd.records`.
    """

    guarded: ClassVar[bool] = False  # whether debug builds have a zone behind every field
    zones: ClassVar[tuple[int, ...]] = ()  # those, as numbers of words
    words: ClassVar[int] = 0
    fields: ClassVar[dict[str, Field]] = {}

    @classmethod
    def size(cls) -> int:
        """In bytes."""
        return 8 * cls.words

    @classmethod
    def filled(cls, more: int = 0, **values: Any) -> np.ndarray[Any, Any]:
        """The words of such a record, and so many ``more`` behind it; those that are not given are 0."""
        made = np.zeros(cls.words + more, np.int64)
        for name, value in values.items():
            field = cls.fields[name]
            made[field.word : field.word + field.count] = value
        return made

    @classmethod
    def view(cls, words: Any) -> View:
        """The words of such a record by their names."""
        return View(cls, words)


class Guarded(Record):
    """Base of scratch memory, all of whose fields debug builds watch."""

    guarded = True


def extended(base: Any, name: str, **fields: Field) -> Any:
    """A record of a name, with such fields behind those of another."""
    return type(name, (base,), fields)


class View:
    """What a record holds, for Python."""

    def __init__(self, record: type[Record], words: Any) -> None:
        self._record, self._words = record, words

    def __getattr__(self, name: str) -> Any:
        field = self._record.fields[name]
        return self._words[field.word] if field.count == 1 else self._words[field.word : field.word + field.count]
