"""The bits of results over a matrix of cases, to compare those of two checkouts.

    python tests/result_bits.py dump FILE [--cases N]
    python tests/result_bits.py compare FILE FILE

The package is that of this checkout. Cases are drawn from seeds: dtype, layout in memory, rows, systems, kind of
matrix, options. A change of kernels that is to keep every bit, and yet writes other code, is held by this and by
``benchmarks/guard.py``; one that is to keep the code by ``tests/kernel_code.py``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

ROWS = 1, 2, 3, 5, 8, 13, 16, 17, 33, 64, 65, 100, 129, 700, 4099
SYSTEMS = 1, 3, 4, 8, 17, 64, 65, 200
MOST = 200_000  # entries of a case
LONG = 60_000, 250_000  # rows of few systems, which are partitioned or solved in blocks of rows
DTYPES = "float32", "float64", "complex64", "complex128"


class Drawn:
    """What cases of one seed are made of."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.dtype = self.pick(DTYPES)
        long = self.random.random() < 0.06
        self.rows = int(self.pick(LONG if long else ROWS))
        self.systems = int(self.pick(SYSTEMS[:5] if long else SYSTEMS))
        while self.rows * self.systems > (10 if long else 1) * MOST:
            self.systems = max(1, self.systems // 2)
        self.layout = self.pick(("rows", "interleaved", "strided"))

    def pick(self, choices: Any) -> Any:
        return choices[self.random.integers(len(choices))]

    def placed(self, x: np.ndarray) -> np.ndarray:
        """The same numbers, rows last, in another place of memory."""
        if self.layout == "interleaved":
            return np.ascontiguousarray(np.moveaxis(x, -1, 0)).transpose(*range(1, x.ndim), 0)
        if self.layout == "strided":
            return np.repeat(x, 2, axis=-1)[..., ::2]
        return x

    def numbers(self, *shape: int) -> np.ndarray:
        kind, x = np.dtype(self.dtype), self.random.normal(size=shape)
        if kind.kind == "c":
            x = x + 1j * self.random.normal(size=shape)
        return x.astype(kind)

    def output(self, x: np.ndarray) -> np.ndarray | None:
        """Memory for a result: kernels for interleaved systems want it interleaved as well."""
        return self.placed(np.empty(x.shape, x.dtype)) if self.layout == "interleaved" or self.pick((0, 1)) else None

    def matrix(self, systems: int) -> tuple[np.ndarray, ...]:
        """Dominant matrices, some systems that are none, zeros, numbers near the ends of the range."""
        a, b, c = (self.numbers(systems, self.rows) for _ in range(3))
        kind = self.pick(("dominant", "dominant", "mixed", "any", "zeros"))
        if kind != "any":
            b = b + np.asarray(4 if kind == "dominant" else 3, b.dtype)
        if kind == "mixed" and systems > 1:
            b[:: int(self.random.integers(1, 4))] *= np.asarray(0.1, b.dtype)
        if kind == "zeros":
            for x in (a, b, c):
                x[self.random.random(x.shape) < 0.02] = 0
        if self.random.random() < 0.1:
            a, b, c = (x * np.asarray(1e-30, x.dtype) for x in (a, b, c))
        return tuple(map(self.placed, (a, b, c)))

    def mask(self) -> Any:
        if self.random.random() < 0.8:
            return None
        return self.placed(self.random.random((self.systems, self.rows)) < self.pick((0.5, 0.98)))


def outcome(call: Any, *args: Any, **options: Any) -> list[np.ndarray]:
    """Results, or the name of the error."""
    try:
        found = call(*args, **options)
    except Exception as error:
        return [np.frombuffer(type(error).__name__.encode(), np.uint8)]
    return [np.asarray(x) for x in (found if isinstance(found, tuple) else (found,))]


def solved(tridiag: Any, drawn: Drawn) -> list[np.ndarray]:
    options: dict[str, Any] = {"pivoting": drawn.pick(("auto", "auto", True, False)), "where": drawn.mask()}
    options |= {"periodic": bool(drawn.pick((0, 0, 1))), "transpose": bool(drawn.pick((0, 0, 1))), "check": False}
    backend = "numba_partition" if drawn.rows in LONG and drawn.layout != "interleaved" else "numba_thomas"
    options["backend"] = drawn.pick((backend, "auto"))
    matrix = drawn.matrix(drawn.systems)
    d = drawn.placed(drawn.numbers(drawn.systems, drawn.rows))
    return outcome(tridiag.solve, *matrix, d, out=drawn.output(d), **options)


def many_sides(tridiag: Any, drawn: Drawn) -> list[np.ndarray]:
    matrix = [x[:, None] for x in drawn.matrix(drawn.pick((1, drawn.systems)))]
    sides = int(drawn.pick((2, 5, 16, 70)))
    while drawn.rows * drawn.systems * sides > 5 * MOST and sides > 2:
        sides = max(2, sides // 2)
    d, options = drawn.placed(drawn.numbers(drawn.systems, sides, drawn.rows)), {}
    if drawn.pick((0, 1)):
        options = {"pivoting": drawn.pick(("auto", False)), "periodic": bool(drawn.pick((0, 0, 0, 1)))}
        return outcome(tridiag.solve, *matrix, d, out=drawn.output(d), check=False, **options)

    def factored(*matrix: Any) -> Any:
        factors = tridiag.factor(*matrix, pivoting=drawn.pick(("auto", False)), check=False)
        return factors.solve(d, transpose=bool(drawn.pick((0, 1)))), *factors.slogdet()

    return outcome(factored, *matrix)


def recurrences(tridiag: Any, drawn: Drawn) -> list[np.ndarray]:
    a, x = (drawn.placed(drawn.numbers(drawn.systems, drawn.rows)) for _ in range(2))
    half, kind = np.asarray(0.4, a.dtype), drawn.pick(("linear", "second", "logcumsumexp", "log_linear"))
    if kind == "linear":
        return outcome(tridiag.linear_recurrence, a * half, x, out=drawn.output(x))
    if kind == "second":
        return outcome(tridiag.linear_recurrence, (a * half, x * half), x, out=drawn.output(x))
    if kind == "logcumsumexp":
        return outcome(tridiag.logcumsumexp, x.real)
    return outcome(tridiag.log_linear_recurrence, a.real, x.real)


VERBS = {"solve": (6, solved), "many_sides": (3, many_sides), "recurrences": (1, recurrences)}


def digest(results: list[np.ndarray]) -> str:
    found = hashlib.sha256()
    for x in results:
        x = np.where(np.isnan(x), np.asarray(np.nan, x.dtype), x) if x.dtype.kind in "fc" else x
        found.update(f"{x.shape} {x.dtype}".encode() + np.ascontiguousarray(x).tobytes())
    return found.hexdigest()[:24]


def cases(count: int) -> dict[str, str]:
    """By verb and seed: the digest of the results."""
    import tridiag

    names = [name for name, (weight, _) in VERBS.items() for _ in range(weight)]
    found = {}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for seed in range(count):
            name = names[seed % len(names)]
            found[f"{name} {seed}"] = digest(VERBS[name][1](tridiag, Drawn(seed)))
            if seed % 500 == 499:
                print(f"{seed + 1} of {count}", flush=True)
    return found


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("dump", "compare"))
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--cases", type=int, default=4000)
    options = parser.parse_args(given)
    if options.what == "dump":
        options.files[0].write_text(json.dumps(cases(options.cases), indent=0))
        return 0
    before, after = (json.loads(path.read_text()) for path in options.files)
    same = before.keys() & after.keys()
    differ = sorted(name for name in same if before[name] != after[name])
    print(f"{len(same) - len(differ)} of {len(same)} cases have equal bits", *differ[:20], sep="\n")
    return 1 if differ else 0


if __name__ == "__main__":
    os.environ.setdefault("NUMBA_NUM_THREADS", "2")
    sys.exit(main())
