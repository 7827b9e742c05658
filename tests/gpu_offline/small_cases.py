"""Small problems for every backend for CuPy arrays: to be run under compute-sanitizer, or on a CPU AddressSanitizer.

    python tests/gpu_offline/small_cases.py [--list] [--dtype DTYPE] [--kind KIND] [BACKEND]...

Sizes lie around the boundaries of chunks, warps and blocks, in both layouts; matrices are masked, shared, transposed,
periodic, of couplings that hardly decay, or need pivots, in the last rows of some systems or everywhere. Answers
are judged by their residual; those of recurrences, of every verb and order, of determinants, block tridiagonal systems
and Kalman filters are compared with a plain loop in double precision. Exits with 1 where one is wrong.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import cupy
import loop_gradients
import numpy as np

import tridiag
from tridiag.backends import BACKENDS, BLOCKS, KALMAN, LOGARITHMS, REALS
from tridiag.cuda.spread_systems import MANY
from tridiag.kernels.jobs.words.alignment import Rules
from tridiag.problems.state_space import Model

SHAPES = ((1, 1), (3, 2), (5, 33), (33, 65), (2, 129), (257, 7), (1, 1000))  # (systems, n)
LONGER = {
    "cupy_pcr": ((2, 8000),)
}  # of more rows than a block holds, in pieces; a thread for a system only takes longer
KINDS = ("plain", "masked", "shared", "transposed", "periodic", "laplacian", "mixed", "hard")
HARD = ("mixed", "hard")  # some systems, or all of them, need pivots
TOLERANCE = {"float32": 1e-5, "float64": 1e-14, "complex64": 1e-5, "complex128": 1e-14}


class Case(NamedTuple):
    backend: str
    shape: tuple[int, int]
    axis: int
    dtype: str
    pivoting: Any
    kind: str

    def arrays(self) -> tuple[list[Any], dict[str, Any]]:
        """a, b, c, d on the host, and the options that say what they mean."""
        rng = np.random.default_rng(self.shape)
        matrix = (1, self.shape[1]) if self.kind == "shared" else self.shape
        a, c, b = (self.noise(rng, matrix) for _ in range(3))
        reach = np.maximum(abs(a) + abs(c), abs(np.roll(a, -1, 1)) + abs(np.roll(c, 1, 1)))
        system, row = np.indices(matrix)
        some = (system % 2 == 1) & (row >= 0.9 * self.shape[1])
        b = np.where({"hard": True, "mixed": some}.get(self.kind, False), b / 8, abs(b) + reach)
        if self.kind == "laplacian":
            a, b, c = (np.full(matrix, value) for value in (-1, 2.001, -1))
        arrays = [x.astype(self.dtype) for x in (a, b, c, self.noise(rng, self.shape))]
        where = rng.random(self.shape) < 0.8
        options = {"transpose": self.kind == "transposed", "periodic": self.kind == "periodic", "axis": self.axis}
        if self.axis == 0:
            arrays, where = [np.ascontiguousarray(x.T) for x in arrays], np.ascontiguousarray(where.T)
        return arrays, options | {"where": where if self.kind == "masked" else None}

    def noise(self, rng: np.random.Generator, shape: tuple[int, int]) -> Any:
        parts = rng.uniform(-1, 1, (2, *shape))
        return parts[0] + 1j * parts[1] if self.dtype.startswith("complex") else parts[0]

    def error(self) -> float:
        """The largest residual, of the largest term that it is a sum of."""
        (*matrix, d), options = self.arrays()
        x = self.solution(matrix, d, options)
        where = True if options["where"] is None else options["where"]
        product = tridiag.matmul(*matrix, x, **options)
        size = tridiag.matmul(*map(abs, matrix), abs(x), **options)
        residual = np.where(where, product - d, x)
        return float(np.max(abs(residual)) / np.max(size + abs(d)))

    def solution(self, matrix: list[Any], d: Any, options: dict[str, Any]) -> Any:
        """On the device and back."""
        where = options["where"]
        given = options | {"where": None if where is None else cupy.asarray(where)}
        arrays = [cupy.asarray(x) for x in (*matrix, d)]
        return tridiag.solve(*arrays, pivoting=self.pivoting, backend=self.backend, **given).get()


FEW_ROWS = ((1, 1), (3, 2), (5, 33), (33, 65), (257, 7))  # (sequences, n)
LENGTHS = (*FEW_ROWS, (2, 2000), (1, 9000))
FIRST_ORDER = (*LENGTHS, (MANY + 5, 3), (MANY, 2))  # so many that each has a thread where they lie side by side
ORDERS: dict[str, dict[int, Any]] = {
    "linear_recurrence": {1: FIRST_ORDER, 2: LENGTHS, 3: LENGTHS, 4: LENGTHS},
    "matrix_recurrence": {2: LENGTHS, 3: FEW_ROWS, 5: LENGTHS, 16: FEW_ROWS},
    "log_linear_recurrence": {1: FIRST_ORDER},
    "logcumsumexp": {0: FIRST_ORDER},
}


class Sequence(NamedTuple):
    """A recurrence; its order, or the rows of its matrices."""

    backend: str
    verb: str
    order: int
    shape: tuple[int, int]
    axis: int
    dtype: str
    reverse: bool

    def arrays(self) -> list[Any]:
        """Coefficients, x, and perhaps what is before the first step; those of higher orders are tuples."""
        rng, (batch, n) = np.random.default_rng(self.shape), self.shape
        m = (self.order,) if self.verb == "matrix_recurrence" else ()
        shape = (n, batch) if self.axis == 0 and not m else (batch, n)
        count = 1 if m else self.order
        a = tuple(self.noise(rng, (*shape, *m, *m)) / max(1, self.order) for _ in range(count))
        init = tuple(self.noise(rng, (batch, *m)) for _ in range(count))
        x = self.noise(rng, (*shape, *m))
        parts = [a if self.order > 1 and not m else a[:1], (x,), init if self.reverse else ()]
        return [part if len(part) > 1 else part[0] for part in parts if part]

    def noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
        parts = rng.uniform(-1, 1, (2, *shape))
        return (parts[0] + 1j * parts[1] if self.dtype.startswith("complex") else parts[0]).astype(self.dtype)

    def error(self) -> float:
        """The largest difference from a plain loop on the host, of its largest number."""
        given = self.arrays()
        options: dict[str, Any] = {"reverse": self.reverse}
        if self.verb != "matrix_recurrence":
            options["axis"] = self.axis
        verb, wide = getattr(tridiag, self.verb), "complex128" if self.dtype.startswith("complex") else "float64"
        right = verb(*(mapped(lambda v: v.astype(wide), x) for x in given), backend="numpy_scan", **options)
        y = verb(*(mapped(cupy.asarray, x) for x in given), backend=self.backend, **options).get()
        return float(np.max(abs(y - right)) / np.max(abs(right)))


def mapped(function: Callable[[Any], Any], x: Any) -> Any:
    """Of an array, or of those of a tuple."""
    return tuple(map(function, x)) if isinstance(x, tuple) else function(x)


def sequences(name: str, dtypes: list[str]) -> Iterator[Sequence]:
    for verb, dtype in itertools.product(BACKENDS[name].verbs, dtypes):
        if dtype.startswith("complex") and verb in LOGARITHMS:
            continue
        for order, shapes in ORDERS.get(verb, {}).items():
            if verb == "linear_recurrence" and order > (BACKENDS[name].order or order):
                continue
            for (k, shape), axis in itertools.product(enumerate(shapes), (0, -1)):
                yield Sequence(name, verb, order, shape, axis, dtype, reverse=(k + axis) % 2 == 0)


class Determinants(NamedTuple):
    """Matrices, some of whose rows are taken out; one of them is singular."""

    backend: str
    shape: tuple[int, int]
    axis: int
    dtype: str
    periodic: bool

    def error(self) -> float:
        """The largest difference of logarithms from a loop in double precision; inf where a status is wrong."""
        case = Case(self.backend, self.shape, self.axis, self.dtype, True, "masked")
        (a, b, c, _), options = case.arrays()
        where = options["where"]
        first = (0,) if self.axis == -1 else (slice(None), 0)
        a[first] = b[first] = c[first] = 0
        where[first] = True
        given = {"where": where, "axis": self.axis, "periodic": self.periodic}
        wide = "complex128" if self.dtype.startswith("complex") else "float64"
        _, right = tridiag.slogdet(*(x.astype(wide) for x in (a, b, c)), **given, backend="numpy_thomas")
        given["where"] = cupy.asarray(where)
        arrays = [cupy.asarray(x) for x in (a, b, c)]
        _, logarithm = tridiag.slogdet(*arrays, **given, backend=self.backend)
        status = tridiag.factor(*arrays, **given, backend=self.backend).status.get()
        if not ((status != 0) == (np.arange(len(status)) == 0)).all():
            return np.inf
        return distance(logarithm.get(), right)


def determinants(name: str, dtypes: list[str]) -> Iterator[Determinants]:
    for shape, axis, dtype, periodic in itertools.product(SHAPES, (-1, 0), dtypes, (False, True)):
        if shape[1] >= 3 or not periodic:
            yield Determinants(name, shape, axis, dtype, periodic)


class BlockSystems(NamedTuple):
    """Block tridiagonal systems of so many rows in a block; the blocks above are those of all systems."""

    backend: str
    shape: tuple[int, int]
    rows: int
    sides: int
    dtype: str

    def error(self) -> float:
        """The largest difference from a loop over block rows in double precision, of the largest number."""
        rng, wide = np.random.default_rng(self.shape), "complex128" if self.dtype.startswith("complex") else "float64"
        m, sides = self.rows, (self.sides,) if self.sides > 1 else ()
        shapes = (*[(*self.shape, m, m)] * 2, (1, self.shape[1], m, m), (*sides, *self.shape, m))
        A, B, C, d = (rng.uniform(-1, 1, shape).astype(self.dtype) for shape in shapes)
        given = A, (B + 4 * m * np.eye(m)).astype(self.dtype), C, d
        right = tridiag.solve_block(*(x.astype(wide) for x in given), backend="numpy_thomas")
        x = tridiag.solve_block(*map(cupy.asarray, given), backend=self.backend).get()
        return float(np.max(abs(x - right)) / np.max(abs(right)))


BLOCKED = ((5, 2), (1, 1), (33, 3))  # (systems, block rows)


def block_systems(name: str, dtypes: list[str]) -> Iterator[BlockSystems]:
    for rows, sides, dtype in itertools.product(range(1, 9), (1, 40), dtypes):
        for shape in BLOCKED[: 3 if rows in (1, 2, 5, 8) else 1]:
            yield BlockSystems(name, shape, rows, sides, dtype)


ALIGNED = ((1, 1, 1), (3, 2, 40), (2, 64, 1), (5, 65, 33), (2, 300, 3))  # (pairs, rows, columns)


class Pairs(NamedTuple):
    """Alignments, with lengths and without; those of three parameters have affine gaps."""

    backend: str
    shape: tuple[int, int, int]
    parameters: int
    derivatives: int
    dtype: str
    rules: Rules

    def error(self) -> float:
        """The largest difference from the kernels of the CPU in double precision, of the score and its derivatives."""
        rng, (count, rows, columns) = np.random.default_rng(self.shape), self.shape
        lengths = np.stack([rng.integers(0, k + 1, count) for k in (rows, columns)], axis=1).astype(np.int32)
        lengths[0] = rows, columns
        scores = rng.uniform(-1, 1, self.shape).astype(self.dtype)
        given = [np.full(count, x, self.dtype) for x in (-0.5, -1.0, 1.0)[:: 1 if self.parameters == 3 else 2]]
        wide = scores.astype(float), lengths, tuple(x.astype(float) for x in given)
        right = BACKENDS["numba_wavefront"].module().smith_waterman(*wide, self.derivatives, self.rules)
        arrays = cupy.asarray(scores), cupy.asarray(lengths), tuple(map(cupy.asarray, given))
        found = BACKENDS[self.backend].module().smith_waterman(*arrays, self.derivatives, self.rules)
        return max(distance(x.get(), y) for x, y in zip(found, right, strict=True))


FILTERED = (  # (series, steps, states, values observed in a step)
    (1, 1, 1, 1),
    (70, 3, 2, 2),
    *((5, 4, states, 3) for states in range(3, 9)),
)


class Filters(NamedTuple):
    """Series with gaps, of correlated values; some begin with a large variance, and lose digits by it."""

    backend: str
    verb: str
    shape: tuple[int, int, int, int]
    dtype: str

    def arrays(self, changing: bool) -> tuple[Any, dict[str, Any]]:
        """Observations and a model, of which F may change with time."""
        count, n, k, p = self.shape
        rng = np.random.default_rng(self.shape)
        y, F, H = rng.normal(size=(count, n, p)), 0.5 * rng.normal(size=(n, k, k)), rng.normal(size=(p, k))
        F = F if changing else F[0]
        y[rng.random(y.shape) < 0.2] = np.nan
        Q, R, P0 = np.eye(k), 0.5 + 0.5 * np.eye(p), np.eye(k) * (1 + 1e10 * (np.arange(count) % 3 == 1))[:, None, None]
        arrays = {"F": F, "H": H, "Q": Q, "R": R, "m0": rng.normal(size=(count, k)), "P0": P0}
        return y.astype(self.dtype), {name: x.astype(self.dtype) for name, x in arrays.items()}

    def error(self) -> float:
        """The largest difference from a loop over steps in double precision, of the largest number of each result."""
        y, arrays = self.arrays(True)
        function = getattr(tridiag.kalman, self.verb.partition(".")[2])
        right = function(y.astype(float), **{name: x.astype(float) for name, x in arrays.items()}, backend="numpy_scan")
        given = {name: cupy.asarray(x) for name, x in arrays.items()}
        found = function(cupy.asarray(y), **given, backend=self.backend)
        pairs = zip(found, right, strict=True) if isinstance(right, tuple) else [(found, right)]
        return max(distance(x.get(), z) for x, z in pairs)


class Gradients(Filters):
    """Of log-likelihoods of the same series, whose F is constant in time."""

    def error(self) -> float:
        """As that of filters."""
        y, model, form = loop_gradients.lifted(*self.arrays(False))
        right = loop_gradients.derivatives(y, model, form)
        module, given = BACKENDS[self.backend].module(), Model(*map(cupy.asarray, model))
        found = module.kalman_gradient(cupy.asarray(y), given, form, True)
        return max(distance(x.get(), z) for x, z in zip(found, right, strict=True))


def filters(name: str, dtypes: list[str]) -> Iterator[Filters]:
    for shape, dtype in itertools.product(FILTERED, REALS):
        if dtype in dtypes:
            yield from (Filters(name, verb, shape, dtype) for verb in KALMAN)
            yield Gradients(name, "gradient", shape, dtype)


def distance(x: np.ndarray, y: np.ndarray) -> float:
    """The largest difference of what is finite, over the largest number; inf where something else is."""
    finite = np.isfinite(y)
    if not (x[~finite] == y[~finite]).all():
        return np.inf
    return float(np.max(abs(x[finite] - y[finite]), initial=0) / np.max(abs(y[finite]), initial=1))


def alignments(name: str, dtypes: list[str]) -> Iterator[Pairs]:
    rules = (Rules(), Rules("later_match", "one"))
    for dtype, shape, derivatives in itertools.product(BACKENDS[name].dtypes, ALIGNED, range(3)):
        for parameters, some in ((2, rules[0]), (3, rules[derivatives % 2])):
            if dtype in dtypes:
                yield Pairs(name, shape, parameters, derivatives, dtype, some)


def cases(backends: list[str], dtypes: list[str]) -> Iterator[Any]:
    for name in backends:
        entry = BACKENDS[name]
        yield from sequences(name, dtypes)
        if "slogdet" in entry.verbs:
            yield from determinants(name, dtypes)
        if BLOCKS in entry.verbs:
            yield from block_systems(name, dtypes)
        if "smith_waterman" in entry.verbs:
            yield from alignments(name, dtypes)
        if KALMAN[0] in entry.verbs:
            yield from filters(name, dtypes)
        if "solve" not in entry.verbs:
            continue
        kinds = [kind for kind in KINDS if entry.periodic or kind != "periodic"]
        shapes = itertools.product((*SHAPES, *LONGER.get(name, ())), (-1, 0))
        for k, ((shape, axis), dtype, pivoting) in enumerate(itertools.product(shapes, entry.dtypes, entry.pivoting)):
            for kind in ("plain", kinds[(k + k // 24) % len(kinds)]):
                impossible = (kind in ("mixed", "hard") and pivoting is False) or (kind == "periodic" and shape[1] < 3)
                if dtype in dtypes and not impossible:
                    yield Case(name, shape, axis, dtype, pivoting, kind)


def usable() -> list[str]:
    """On the stand-in for CuPy only what is compiled by CuPy runs."""
    names = [name for name, entry in BACKENDS.items() if "cupy" in entry.arrays and not entry.missing()]
    return [name for name in names if name.startswith("cupy") or "standin" not in cupy.__version__]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("backends", nargs="*", metavar="BACKEND", help="which, instead of all that can run")
    parser.add_argument("--list", action="store_true", help="print the names of the backends that can run, and stop")
    parser.add_argument("--kind", help="the cases of one class alone, by its name")
    parser.add_argument("--dtype", action="append", choices=TOLERANCE, help="which, instead of all; may be repeated")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(usable()))
        return 0
    count = wrong = 0
    for case in cases(options.backends or usable(), options.dtype or list(TOLERANCE)):
        if type(case).__name__ != (options.kind or type(case).__name__):
            continue
        error = case.error()
        count += 1
        if not error <= TOLERANCE[case.dtype]:
            wrong += 1
            print(f"{case}: an error of {error:.2g}")
    print(f"{count} cases, {wrong} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
