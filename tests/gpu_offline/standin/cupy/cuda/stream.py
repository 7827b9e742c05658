"""Streams: everything is done at once, so that they only have their names."""

from __future__ import annotations

import itertools

from cupy import machine

_current: list[Stream] = []
_numbers = itertools.count(2)


class Stream:
    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False) -> None:
        self.ptr = 0 if null else next(_numbers)

    def __enter__(self) -> Stream:
        _current.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _current.pop()

    def synchronize(self) -> None:
        machine.synchronise()


class ExternalStream(Stream):
    def __init__(self, ptr: int, device_id: int = -1) -> None:
        self.ptr = ptr


Stream.null = Stream(null=True)


def get_current_stream() -> Stream:
    return _current[-1] if _current else Stream.null
