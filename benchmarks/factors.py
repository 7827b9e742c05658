"""What `tridiag.factor` takes and gives back, from NumPy, PyTorch and JAX, over a `solve` of the same systems.

    python benchmarks/factors.py [--seed K] [--shapes N] [--only PATTERN]... [--json FILE]

A line for each library, dtype and shape; with ``--shapes`` as many are drawn by their logarithms, of 20 to 3e6 values,
systems along the last axis or the first. Matrices have an entry for each row of each system; of the first lines some
are one matrix for all. Nothing is given to write to. In JAX ``solve`` and ``F.solve`` are compiled programs, and F is
an argument of the latter; ``factor`` is called outside of any, and also as a program, which returns a, b and c too.
Lines of steps are programs that solve so many implicit steps of diffusion in turn by ``lax.scan``, in place, from F,
made outside of the loop, or from a, b and c. Figures are ratios of medians over shuffled rounds: ``factor / solve``, at
most 2; ``F.solve / solve``, at most 1, and 0.6 from 100 rows on where the arrays fit into `CACHE`; of one right side
from NumPy the microseconds behind LAPACK's ``gttrs``, at most 3. Answers are judged before the clock.

The record goes to ``benchmarks/results/factors/``, a file a processor. Exits with 1 where a figure is short of its bar.
Needs SciPy and rich; PyTorch and JAX where they are asked.
"""

from __future__ import annotations

import argparse
import fnmatch
import functools
import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from lines import file_name
from rich.console import Console
from rich.progress import track
from rich.table import Table
from short_race import Calls, race

import tridiag
from tridiag.benchmarking.conditions import conditions

RESULTS = Path(__file__).parent / "results" / "factors"
SHAPES = (
    (64,), (400,), (10_000,), (1_000_000,), (8, 16), (100, 64), (100, 100), (30, 500), (2000, 64), (2000, 100),
    (2000, 400), (20_000, 100),
)  # fmt: skip
COLUMNS = (64, 100), (100, 2000), (100, 20_000)
STEPS, STEPPED = 100, ((100, 200), (2000, 100))
CACHE = 2**20  # bytes of a, b, c and d together
FROM_ROWS, SMALLEST, LARGEST = 100, 20, 3e6
BARS = {
    "factor / solve": 2.0, "factor in jit / solve": 2.0, "F.solve / solve": 1.0, "F.solve / solve, in cache": 0.6,
    "us behind gttrs": 3.0,
}  # fmt: skip
SOLVE, FACTOR, FACTORED, GTTRS, PROGRAM = "solve", "factor", "F.solve", "gttrs", "factor in jit"


class Line(NamedTuple):
    library: str
    dtype: str
    shape: tuple[int, ...]
    axis: int
    one_matrix: bool = False
    steps: int = 0

    def __str__(self) -> str:
        place = ", axis 0" if self.axis == 0 else ""
        more = ", one matrix" if self.one_matrix else f", {self.steps} steps" if self.steps else ""
        return f"{self.library} {self.dtype} {self.shape}{place}{more}"


def lines(options: argparse.Namespace) -> Iterator[Line]:
    for library in ("numpy", "torch", "jax"):
        for dtype in ("float64", "float32"):
            if options.shapes:
                yield from drawn(library, dtype, options)
                continue
            yield from (Line(library, dtype, shape, -1) for shape in SHAPES)
            yield from (Line(library, dtype, shape, 0) for shape in COLUMNS)
            yield from (Line(library, dtype, shape, -1, True) for shape in ((2000, 100), (20_000, 100)))
            if library == "jax":
                yield from (Line(library, dtype, shape, -1, steps=STEPS) for shape in STEPPED)


def drawn(library: str, dtype: str, options: argparse.Namespace) -> Iterator[Line]:
    rng = np.random.default_rng([options.seed, *map(ord, library + dtype)])
    for _ in range(options.shapes):
        size = math.exp(rng.uniform(math.log(SMALLEST), math.log(LARGEST)))
        rows = max(2, min(int(math.exp(rng.uniform(math.log(4), math.log(4000)))), int(size)))
        systems = max(1, int(size / rows))
        axis = int(rng.integers(-1, 1))
        yield Line(library, dtype, (rows, systems) if axis == 0 else (systems, rows), axis)


def operands(line: Line) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    shape = line.shape[-1:] if line.one_matrix else line.shape
    bounds = ((-1, 1), shape), ((3, 4), shape), ((-1, 1), shape), ((-1, 1), line.shape)
    if line.steps:
        a, c, d = (rng.uniform(0.1, 1, shape) for _ in range(3))
        return [x.astype(line.dtype) for x in (-a, 1 + a + c, -c, d)]
    return [rng.uniform(*of, extents).astype(line.dtype) for of, extents in bounds]


def contestants(line: Line) -> Calls:
    """The calls, of which those that solve have told the right answer."""
    a, b, c, d = given = operands(line)
    exact = [np.float64(x) for x in given]
    wanted = tridiag.solve(*exact, axis=line.axis, pivoting=True)
    if line.steps:
        calls = stepping(given, line.steps)
        for _ in range(line.steps - 1):
            wanted = tridiag.solve(*exact[:3], wanted, pivoting=True)
    else:
        calls = globals()[f"calls_of_{line.library}"](given, line.axis)
    if line.library == "numpy" and d.ndim == 1:
        calls[GTTRS] = lapack(a, b, c, d)
    for name in calls.keys() - {FACTOR, PROGRAM}:
        error = abs(np.asarray(calls[name]()) - wanted).max() / abs(wanted).max()
        if not error < 16 * max(1, line.steps) * np.finfo(line.dtype).eps:
            raise SystemExit(f"{line}: {name} has a relative error of {error:.1e}")
    return calls


def calls_of_numpy(given: list[Any], axis: int) -> Calls:
    *matrix, d = given
    factors = tridiag.factor(*matrix, axis=axis)
    return {
        SOLVE: lambda: tridiag.solve(*given, axis=axis),
        FACTOR: lambda: tridiag.factor(*matrix, axis=axis),
        FACTORED: lambda: factors.solve(d),
    }


def calls_of_torch(given: list[Any], axis: int) -> Calls:
    import torch

    return calls_of_numpy([torch.from_numpy(x) for x in given], axis)


def calls_of_jax(given: list[Any], axis: int) -> Calls:
    import jax

    jax.config.update("jax_enable_x64", True)
    *matrix, d = (jax.numpy.asarray(x) for x in given)
    solve = jax.jit(lambda *all_four: tridiag.solve(*all_four, axis=axis))
    factor = jax.jit(lambda *three: tridiag.factor(*three, axis=axis))
    factors, again = tridiag.factor(*matrix, axis=axis), jax.jit(lambda F, d: F.solve(d))
    calls: dict[str, Callable[[], Any]] = {
        SOLVE: lambda: solve(*matrix, d),
        FACTOR: lambda: tridiag.factor(*matrix, axis=axis).status,  # all results of a program are there at once
        PROGRAM: lambda: factor(*matrix).status,
        FACTORED: lambda: again(factors, d),
    }
    return waited_for(calls)


def stepping(given: list[Any], steps: int) -> Calls:
    """Programs that solve in turn: each right side is the solution before."""
    import jax

    jax.config.update("jax_enable_x64", True)
    *matrix, d = (jax.numpy.asarray(x) for x in given)
    factors = tridiag.factor(*matrix)

    def run(solve: Callable[..., Any], d: Any) -> Any:
        return jax.lax.scan(lambda x, _: (solve(x, overwrite_d=True), None), d, length=steps)[0]

    anew = jax.jit(lambda a, b, c, d: run(functools.partial(tridiag.solve, a, b, c), d))
    again = jax.jit(lambda F, d: run(F.solve, d))
    return waited_for({SOLVE: lambda: anew(*matrix, d), FACTORED: lambda: again(factors, d)})


def waited_for(calls: Calls) -> Calls:
    """The same calls of JAX until their results are there."""
    import jax

    return {name: lambda call=call: jax.block_until_ready(call()) for name, call in calls.items()}


def lapack(a: Any, b: Any, c: Any, d: Any) -> Callable[[], Any]:
    from scipy.linalg import get_lapack_funcs

    gttrf, gttrs = get_lapack_funcs(("gttrf", "gttrs"), (b, d))
    *factors, _ = gttrf(a[1:], b, c[:-1])
    return lambda: gttrs(*factors, d)[0]


def figures(line: Line, seconds: dict[str, float]) -> dict[str, float]:
    size = math.prod(line.shape) * np.dtype(line.dtype).itemsize
    in_cache = line.shape[line.axis] >= FROM_ROWS and 4 * size <= CACHE
    name = "F.solve / solve, in cache" if in_cache else "F.solve / solve"
    found = {f"{one} / solve": seconds[one] / seconds[SOLVE] for one in (FACTOR, PROGRAM) if one in seconds}
    found[name] = seconds[FACTORED] / seconds[SOLVE]
    if GTTRS in seconds:
        found["us behind gttrs"] = 1e6 * (seconds[FACTORED] - seconds[GTTRS])
    return {name: float(f"{value:.3g}") for name, value in found.items()}


def measure(line: Line) -> dict[str, Any]:
    calls = contestants(line)
    seconds = race(calls, calls.keys())
    microseconds = {name: float(f"{1e6 * some:.4g}") for name, some in seconds.items()}
    return {"line": str(line), "microseconds": microseconds, "figures": figures(line, seconds)}


def show(records: list[dict[str, Any]]) -> bool:
    """The table, and whether every bar is met."""
    table, met = Table("", "solve, us", *BARS), True
    for record in records:
        cells = []
        for name, bar in BARS.items():
            value = record["figures"].get(name)
            short = value is not None and value > bar
            met &= not short
            cells.append("" if value is None else f"[red]{value:.3g}" if short else f"{value:.3g}")
        table.add_row(record["line"], f"{record['microseconds'][SOLVE]:.4g}", *cells)
    Console(width=None if sys.stdout.isatty() else 140).print(table)
    print("at most", "  ".join(f"{name} {bar}" for name, bar in BARS.items()))
    return met


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shapes", type=int, default=0, help="draw so many a library and dtype")
    parser.add_argument("--only", action="append", metavar="PATTERN", help="lines, as 'numpy float64*'")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    wanted = [x for x in lines(options) if any(fnmatch.fnmatchcase(str(x), one) for one in options.only or ["*"])]
    here = conditions()
    records = [measure(line) for line in track(wanted, console=Console(stderr=True), disable=not sys.stderr.isatty())]
    met = show(records)
    record = options.json or (None if options.only or options.shapes else RESULTS / f"{file_name(here)}.json")
    if record:
        record.parent.mkdir(exist_ok=True)
        record.write_text(json.dumps({**here, "seed": options.seed, "lines": records}, indent=1) + "\n")
    return not met


if __name__ == "__main__":
    sys.exit(main())
