"""The symbols that an object file needs and does not have: ELF, Mach-O and COFF of 64-bit little-endian processors.

What is common to object files counts as there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator


def undefined(image: bytes) -> set[str]:
    """Of an object file; ValueError where it is of no known format."""
    if image[:4] == b"\x7fELF":
        return set(of_elf(image))
    if image[:4] == b"\xcf\xfa\xed\xfe":
        return set(of_mach_o(image))
    if image[:2] == b"\x64\x86":
        return set(of_coff(image))
    raise ValueError(f"an object file of ELF, Mach-O or COFF for x86-64 was wanted; this one begins with {image[:4]!r}")


def of_elf(image: bytes) -> Iterator[str]:
    first, size, count = *struct.unpack_from("<Q", image, 0x28), *struct.unpack_from("<HH", image, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", image, first + size * k) for k in range(count)]
    for _, kind, _, _, start, length, strings, *_ in sections:
        if kind == 2:  # the symbols
            for place in range(start + 24, start + length, 24):
                name, _, _, section = struct.unpack_from("<IBBH", image, place)
                if section == 0:
                    yield text(image, sections[strings][4] + name)


def of_mach_o(image: bytes) -> Iterator[str]:
    place, (count,) = 32, struct.unpack_from("<I", image, 16)
    for _ in range(count):
        command, size, symbols, number, strings = struct.unpack_from("<IIIII", image, place)
        if command == 2:  # the symbols
            for k in range(number):
                name, kind, _, _, value = struct.unpack_from("<IBBHQ", image, symbols + 16 * k)
                if kind & 0x0F == 1 and value == 0:
                    yield text(image, strings + name).removeprefix("_")
        place += size


def of_coff(image: bytes) -> Iterator[str]:
    symbols, number = struct.unpack_from("<II", image, 8)
    strings, k = symbols + 18 * number, 0
    while k < number:
        short, value, section, _, kind, more = struct.unpack_from("<8sIhHBB", image, symbols + 18 * k)
        if section == 0 and kind == 2 and value == 0:
            zeros, place = struct.unpack("<II", short)
            yield short.rstrip(b"\0").decode() if zeros else text(image, strings + place)
        k += 1 + more


def text(image: bytes, place: int) -> str:
    return image[place : image.index(b"\0", place)].decode()
