"""`backends`: the table of backends as it is on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tridiag.backends import BACKENDS


@dataclass(frozen=True)
class BackendStatus:
    """One backend: whether it can be used on this machine, or the sentence that says why not."""

    name: str
    algorithm: str
    arrays: tuple[str, ...]
    devices: tuple[str, ...]
    pivoting: tuple[bool | str, ...]
    periodic: bool
    verbs: tuple[str, ...]
    why_not: str | None
    pivoting_on: tuple[tuple[str, tuple[bool | str, ...]], ...] = ()  # the devices on which it is another

    @property
    def usable(self) -> bool:
        return self.why_not is None


def pivots(backend: BackendStatus) -> str:
    """Whether it does where that is needed, and the devices on which it does not."""
    without = [device for device, promises in backend.pivoting_on if "auto" not in promises]
    told = ("yes" if "auto" in backend.pivoting else "no") if backend.pivoting else ""
    return told + (f", not on {' or '.join(without)}" if without else "")


class BackendList(tuple[BackendStatus, ...]):
    """The backends in the order in which "auto" prefers them; prints as a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        rows = [
            (
                b.name,
                ", ".join(b.arrays),
                ", ".join(b.devices),
                pivots(b),
                ", ".join(b.verbs),
                b.why_not or "usable",
            )
            for b in self
        ]
        return table(("backend", "arrays", "devices", "pivots", "verbs", "here"), rows)

    def __getitem__(self, key: Any) -> Any:
        """By position, or by name."""
        if isinstance(key, str):
            return {entry.name: entry for entry in self}[key]
        return super().__getitem__(key)


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Plain text columns."""
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [head, *rows]
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def backends() -> BackendList:
    """List every backend: usable here, or the sentence that says why not.

    Returns
    -------
    BackendList
        A tuple of entries with ``name``, ``usable``, ``why_not`` and the facts of the table; it prints as a table, and
        entries are found by position or by name.

    Examples
    --------
    >>> import tridiag
    >>> found = tridiag.backends()
    >>> found["numpy_thomas"].usable
    True
    >>> [entry.name for entry in found][:2]
    ['numba_thomas', 'numba_partition']
    """
    return BackendList(
        BackendStatus(
            b.name, b.algorithm, b.arrays, b.devices, b.pivoting, b.periodic, b.verbs, b.unusable(), b.pivoting_on
        )
        for b in BACKENDS.values()
    )
