"""Memory with names: the words of a record, one after another; pure, for Python and for compiled code alike."""

from __future__ import annotations

from typing import ClassVar


class Field:
    """One word of a record, or several in a row."""

    def __init__(self, count: int) -> None:
        self.count, self.word = count, 0

    def __set_name__(self, owner: type[Record], name: str) -> None:
        self.word, owner.words = owner.words, owner.words + self.count
        owner.fields = {**owner.fields, name: self}

    @property
    def offset(self) -> int:
        """In bytes from the beginning of the record."""
        return 8 * self.word


class Record:
    """Base of the layouts. A field lies behind the one that is written before it; nobody counts.

    Compiled code reads and writes ``record.field``, or ``record.field[k]`` where there are several: see
    `tridiag.kernels.simd.records`.
    """

    words: ClassVar[int] = 0
    fields: ClassVar[dict[str, Field]] = {}

    @classmethod
    def size(cls) -> int:
        """In bytes."""
        return 8 * cls.words


class Word(Field):
    """One int64."""

    def __init__(self) -> None:
        super().__init__(1)


class Words(Field):
    """So many int64, in a row."""
