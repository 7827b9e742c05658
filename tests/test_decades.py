"""Systems whose entries and unknowns are hundreds of decades apart: "auto" keeps its promise there too."""

from typing import Any

import numpy as np
import pytest
from helpers import Subject, assert_same_bits

pytestmark = pytest.mark.only(pivoting="auto")
ROWS = 14

# a, b, c, d of each system; the rest of ROWS is that of the identity
SYSTEMS: dict[str, dict[str, tuple[list[Any], ...]]] = {
    "float32": {
        "an unknown below the smallest number": ([0, 1.666127849e22], [4.0000001e24, 1], [9e23, 0], [-7, 0]),
        "zeros above a small one": ([0, 1, -1.0486907], [-2, 1e-13, -0.0060734176], [1.0486907, 0, 8], [0, 0, 1e-29]),
    },
    "float64": {
        "one small unknown": ([0, 1, -0.48, 1], [7, 0, -3, 0], [0.1, 1, 1, 0], [3e72, 0, 0, 1e-55]),
        "zeros and unknowns below the smallest number": (
            [0, -6e243, 6e243, 1e243, 0],
            [6.4798e243, -7e244, 1e243, 0, 1.3e245],
            [8e244, 1, 9e244, 1, 0],
            [0, 0, 0, 0, 1e244],
        ),
        "each 17 decades below the next": (
            [0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1],
            [0, 0, 0.1, 1, 1, 1, 1, 1, 1, 1, 1],
            [1, 0, 1e-17, 1e-17, 1e-18, 1e-16, 1e-16, 1e-19, 1e-18, 1e-18, 0],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        ),
        "right sides of all sizes": (
            [0, 1, 1, 1, 3, 0, 1, 6, 1, 9, 4, -9, -1, 1],
            [0.65, 0, 0, 0.4, 0.108, 0, 6.76, 0, 0, 3.09, 0, 1, -6, 1],
            [0, 1, 0, 0, 1, 1, 0, 1, 0, -1, 2, 2, 0, 0],
            [1e-55, 1, 0, 1e86, 0, 1e194, 0, 0, 0, 0, -5.22e270, 0, 0, 1e301],
        ),
        "zeros that hang together beside large ones": (
            [0, 1, 1.4, 0.8, 2.07, 1, 1],
            [0, 0, -1.03, 8, 0, 0, 0],
            [0.79, 0, 1, 0.039, 15.9, 1.46, 0],
            [0, 0, 0, 1e137, 1, 0, 0],
        ),
    },
    "complex64": {
        "a zero pivot and an unknown below": (
            [0, 1e29, -4e29j, 1e31],
            [0, 0, 0, 0],
            [1e29, 0, 1e29, 0],
            [-4j, 0, 1e22, 1e-24],
        ),
        "another one": ([0, 1e33, 1e33, 0], [1e32, 0, 0, 1e30], [0, 3e32, 0, 0], [0, 1e22, 0, 1e-20]),
        "two": ([0, 1e32], [0, -3.3e16j], [-3e31 - 3e32j, 0], [-8 - 1j, 0]),
        "one that is wrong by a sixth": (
            [0, 0, 1.04e32, -2e32],
            [1e32, 1.56e32, 1e32 + 1e32j, 0],
            [1, 1, 1e37, 0],
            [0, 1e8, -12 + 12j, -12j],
        ),
    },
    "complex128": {
        "an unknown below the smallest number": (
            [0, 2.3e221 + 1.9e221j, 1e220],
            [1e221, 0, 1],
            [0, 1e220, 0],
            [0, 1, 0],
        ),
    },
}  # fmt: skip
SUBNORMAL: dict[str, tuple[list[Any], ...]] = {
    "complex64": ([0, 1e-40], [-2.34e-34 - 1.97e-34j, 1e-33], [0, 0], [1, 0]),
    "complex128": ([0], [-1e-323 - 5e-324j], [0], [1e-24]),
}


def filled(system: tuple[list[Any], ...], dtype: str) -> list[np.ndarray[Any, Any]]:
    rest = ROWS - len(system[0])
    return [np.array(v + [x] * rest, dtype) for v, x in zip(system, (0, 1, 0, 0), strict=True)]


def error(x: np.ndarray[Any, Any], matrix: list[np.ndarray[Any, Any]]) -> float:
    """The backward error in eps, where products of an entry and the smallest numbers count as no error."""
    wide = np.longdouble if x.dtype.kind == "f" else np.clongdouble
    a, b, c, d = (v.astype(wide) for v in matrix)
    y, info = np.pad(x.astype(wide), 1), np.finfo(x.dtype)
    terms = d, -b * y[1:-1], -a * y[:-2], -c * y[2:]
    floor = 4 * np.longdouble(info.tiny) / info.eps * np.maximum(1, abs(a) + abs(b) + abs(c))
    return float((abs(sum(terms)) / np.maximum(sum(map(abs, terms)), floor)).max() / info.eps)


@pytest.mark.parametrize("dtype", sorted(SYSTEMS))
def test_unknowns_hundreds_of_decades_apart(backend: Subject, dtype: str) -> None:
    matrices = [filled(system, dtype) for system in SYSTEMS[dtype].values()]
    together = backend.solve(*(np.stack(bands) for bands in zip(*matrices, strict=True)))
    for name, x, matrix in zip(SYSTEMS[dtype], together, matrices, strict=True):
        assert error(x, matrix) <= 8, name
    if dtype == "float64":
        for name, matrix in zip(SYSTEMS[dtype], matrices, strict=True):
            assert error(backend.solve(*matrix), matrix) <= 8, name


@pytest.mark.only(library=("numpy", "torch", "cupy"))
@pytest.mark.parametrize("dtype", sorted(SUBNORMAL))
def test_complex_numbers_below_the_smallest_normal_one(backend: Subject, dtype: str) -> None:
    """Quotients of them have all their digits. (XLA takes them for zero.)"""
    matrix = filled(SUBNORMAL[dtype], dtype)
    for v in matrix:  # on the way to a GPU and back none is lost
        assert_same_bits(backend.numpy(backend.array(v)), v)
    assert error(backend.solve(*matrix), matrix) <= 8


# a tridiagonal matrix that is its own transpose, and a right side
OFF = [
    188.956147347704, -109.40075821438485, 0.4471104235008163, -0.0009152908052471316, 11.794331673258803,
    -841.7215346650285, -63.23195392184016, 0.05732414038533214, 0,
]  # fmt: skip
DIAGONAL = [0, 2.0, 0, -1, 0, 0, 1, 2, 0]
RIGHT = [
    -1.0337887888483662e-277, -1.0942102740336463e-279, 5.985371681262537e-278, 6.25950376768713e-284,
    -2.419777292295043e-279, 5.172673550662711e-277, 1.9802171766388884e-277, 3.8094264669045814e-278,
    -2.352174875991656e-281,
]  # fmt: skip


def test_small_unknowns_of_a_long_system(backend: Subject) -> None:
    """Some rows are corrected alone, between others that stay: also those that are smaller than tiny/eps."""
    n = 4096
    a, b, c, d = (np.full(n, x) for x in (1.0, 4.0, 1.0, 1.0))
    b[:9], c[:9], d[:9], a[1:10] = DIAGONAL, OFF, RIGHT, OFF
    assert error(backend.solve(a, b, c, d), [a, b, c, d]) <= 8
