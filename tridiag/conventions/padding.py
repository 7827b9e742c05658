"""Bands moved, padded and cut, in the library of the caller's arrays."""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any

from tridiag.calls.torch_compile import compiling
from tridiag.libraries.arrays import library_of, module_of

Array = Any
Shape = tuple[int, ...]


def rows_of(x: Array) -> int:
    return int(x.shape[-1])


def check_rows(name: str, x: Array, rows: int, held: str) -> None:
    """That an array holds so many diagonals."""
    if x.ndim < 2 or x.shape[-2] != rows:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; wanted (..., {rows}, n): {held}")


def check_length(name: str, x: Array, other: str, diagonal: Array, lengths: tuple[int, ...]) -> None:
    """That a diagonal beside the main one has one of these lengths."""
    if rows_of(x) not in lengths:
        raise ValueError(
            f"{name} has length {rows_of(x)} and {other} {rows_of(diagonal)}; wanted {name} of length "
            f"{' or '.join(map(str, lengths))}"
        )


def library(x: Array) -> ModuleType:
    """What is known of the library of an array."""
    if compiling(x):  # of PyTorch, whose compiler follows no cache
        from tridiag.libraries import torch

        return torch
    return module_of(library_of(x) or "numpy")


def joined(first: Array, second: Array) -> Array:
    """Two arrays one after the other, along the last axis."""
    module = library(first)
    with module.place([first]):
        return module.Operations.concatenate((first, second), -1)


def later(x: Array) -> Array:
    """Entry i - 1 at i, and the last one, which is not in the matrix, at 0."""
    return joined(x[..., -1:], x[..., :-1])


def earlier(x: Array) -> Array:
    """Entry i + 1 at i, and the first one, which is not in the matrix, at the end."""
    return joined(x[..., 1:], x[..., :1])


def padding(x: Array, diagonal: Array) -> Array:
    """The zeros that a diagonal lacks."""
    module = library(x)
    with module.place([x]):
        return module.Operations.full((*x.shape[:-1], rows_of(diagonal) - rows_of(x)), 0, x)


def padded_before(x: Array, diagonal: Array) -> Array:
    return x if rows_of(x) == rows_of(diagonal) else joined(padding(x, diagonal), x)


def padded_behind(x: Array, diagonal: Array) -> Array:
    return x if rows_of(x) == rows_of(diagonal) else joined(x, padding(x, diagonal))


def compact(diagonals: Array) -> list[Array]:
    check_rows("diagonals", diagonals, 3, "the super-diagonal, the diagonal and the sub-diagonal")
    return [diagonals[..., k, :] for k in range(3)]


def of_dense(matrix: Array) -> list[Array]:
    """The diagonals of dense matrices, those beside the main one without padding."""
    if matrix.ndim < 2 or matrix.shape[-1] != matrix.shape[-2]:
        raise ValueError(f"diagonals has shape {tuple(matrix.shape)}; wanted square matrices (..., n, n)")
    return [matrix.diagonal(offset, -2, -1) for offset in (1, 0, -1)]


def cut(name: str, buffer: Array, shape: Shape) -> Array:
    """The entries of a buffer in a shape of which one length is to be found."""
    size, known = math.prod(buffer.shape), max(shape)
    if size % known:
        raise ValueError(f"{name} has {size} entries; wanted whole systems or rows, a multiple of {known} entries")
    return buffer.reshape(shape)
