"""The errors of `tridiag.logcumsumexp` against mpmath, in units in the last place of max(1, abs(result)).

    python benchmarks/logarithm_errors.py [--backend NAME]... [--json FILE] [--tiny]

Terms are normal, constant, rising or falling by 1e-6 and 1e-3 a step, and of sizes up to 1e300. `numba_scan` is run
from NumPy and PyTorch arrays and from jitted JAX, on one sequence, of a million terms in float64, and on many of ten
thousand, side by side and one behind the other; the others on shorter ones. A sequence is judged at a thousand places.
Errors of `numba_scan` may be 2 units, those of the other backends what the table of backends says. The record of a
whole run goes to ``benchmarks/results/logarithm_errors.json``.

Exits with 1 where an error is larger. Needs mpmath and rich; takes some minutes, most of them in mpmath.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
from rich.console import Console
from rich.table import Table

import tridiag
from tridiag.backends import BACKENDS, Backend
from tridiag.benchmarking.conditions import conditions

RESULTS = Path(__file__).parent / "results" / "logarithm_errors.json"
LONG, USUAL, LOOPS = 1_000_000, 10_000, 2_000  # terms; of many sequences; of backends that are loops in Python
BAR = 2.0  # units, of numba_scan
PLACES = 1000  # where a sequence is judged
BITS, NEGLIGIBLE = 120, -80  # of mpmath; a term that is smaller than the largest by exp of that leaves no trace
Array = np.ndarray[Any, Any]

TERMS: dict[str, Callable[[Array, Any], Array]] = {
    "normal": lambda t, rng: rng.normal(size=t.size),
    "constant, 0": lambda t, rng: 0 * t,
    "constant, 0.7": lambda t, rng: 0 * t + 0.7,
    "rising by 1e-6": lambda t, rng: 1e-6 * t,
    "falling by 1e-6": lambda t, rng: -1e-6 * t,
    "rising by 1e-3": lambda t, rng: 1e-3 * t,
    "falling by 1e-3": lambda t, rng: -1e-3 * t,
    "normal x 300": lambda t, rng: 300 * rng.normal(size=t.size),
    "normal x 1e9": lambda t, rng: 1e9 * rng.normal(size=t.size),
    "normal x 1e17": lambda t, rng: 1e17 * rng.normal(size=t.size),
    "normal x 1e30": lambda t, rng: 1e30 * rng.normal(size=t.size),
    "normal x 1e300": lambda t, rng: 1e300 * rng.normal(size=t.size),
}


def places(n: int) -> Array:
    """The first and the last ones, and others at random."""
    few = min(n, PLACES // 4)
    some = np.random.default_rng(0).integers(0, n, PLACES // 2)
    return np.unique(np.concatenate((np.arange(few), np.arange(n - few, n), some)))


def right(x: Array, at: Array) -> list[Any]:
    """log(exp(x[0]) + ... + exp(x[k])) for each k of ``at``, as top + log(total)."""
    found, wanted = [], set(at.tolist())
    with mpmath.workprec(BITS):
        top, total = mpmath.mpf("-inf"), mpmath.mpf(0)
        for k, term in enumerate(x.tolist()):
            v = mpmath.mpf(term)
            if v > top:
                total = 1 + (total * mpmath.exp(top - v) if total and top - v > NEGLIGIBLE else 0)
                top = v
            elif v - top > NEGLIGIBLE:
                total += mpmath.exp(v - top)
            if k in wanted:
                found.append(top + mpmath.log(total))
    return found


def units(found: Array, exact: list[Any]) -> float:
    """The largest error."""
    worst = 0.0
    with mpmath.workprec(BITS):
        for y, wanted in zip(found, exact, strict=True):
            unit = np.spacing(np.maximum(1, abs(found.dtype.type(wanted))))
            worst = max(worst, abs(float((mpmath.mpf(float(y)) - wanted) / mpmath.mpf(float(unit)))))
    return worst


def calls(entry: Backend) -> Iterator[tuple[str, Callable[..., Array]]]:
    """For each library that a backend takes arrays of: its name, and the call from NumPy arrays to NumPy arrays."""
    if "numpy" in entry.arrays:
        yield "NumPy", lambda x, axis: tridiag.logcumsumexp(x, axis=axis, backend=entry.name)
    if "torch" in entry.arrays:
        import torch

        yield (
            "PyTorch",
            lambda x, axis: tridiag.logcumsumexp(torch.from_numpy(x), axis=axis, backend=entry.name).numpy(),
        )
    if "jax" in entry.arrays:
        import jax

        jax.config.update("jax_enable_x64", True)
        jitted = jax.jit(lambda x, axis: tridiag.logcumsumexp(x, axis=axis, backend=entry.name), static_argnums=1)
        yield "JAX, jitted", lambda x, axis: np.asarray(jitted(x, axis))


def shapes(entry: Backend, dtype: str, tiny: bool) -> list[tuple[str, int]]:
    """How sequences lie, and their length."""
    if tiny:
        return [("one sequence", 300)]
    if entry.name == "numba_scan":
        return [("one sequence", LONG if dtype == "float64" else USUAL), ("rows", USUAL), ("columns", USUAL)]
    return [("one sequence", LOOPS if entry.name in ("numpy_scan", "torch_scan") else USUAL)]


def result(call: Callable[..., Array], x: Array, layout: str) -> Array:
    """Of the last of several sequences that are the same."""
    if layout == "rows":
        return call(np.tile(x, (37, 1)), -1)[-1]
    if layout == "columns":
        return call(np.repeat(x[:, None], 37, axis=1), 0)[:, -1]
    return call(x, 0)


def measure(entries: list[Backend], tiny: bool) -> Iterator[dict[str, Any]]:
    """A record for each kind of terms, dtype, length and backend."""
    for name, make in TERMS.items():
        for dtype in ("float64", "float32"):
            if name.endswith("e300") and dtype == "float32":
                continue
            for n in sorted({n for entry in entries for _, n in shapes(entry, dtype, tiny)}):
                x, at = make(np.arange(float(n)), np.random.default_rng(1)).astype(dtype), places(n)
                exact = right(x, at)
                for entry in entries:
                    for layout in (layout for layout, length in shapes(entry, dtype, tiny) if length == n):
                        for library, call in calls(entry):
                            yield {
                                "terms": name,
                                "dtype": dtype,
                                "n": n,
                                "layout": layout,
                                "backend": entry.name,
                                "arrays": library,
                                "units": round(units(result(call, x, layout)[at], exact), 3),
                            }


def show(records: list[dict[str, Any]], limits: dict[str, float]) -> None:
    """The largest error of every backend on every kind of terms."""
    table = Table("backend", "arrays", *TERMS, "bar")
    for backend, arrays in dict.fromkeys((r["backend"], r["arrays"]) for r in records):
        mine = [r for r in records if (r["backend"], r["arrays"]) == (backend, arrays)]
        worst = [max((r["units"] for r in mine if r["terms"] == name), default=0.0) for name in TERMS]
        table.add_row(backend, arrays, *(f"{x:.2f}" for x in worst), f"at most {limits[backend]:g}")
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    known = [entry for entry in BACKENDS.values() if entry.units is not None and entry.missing() is None]
    parser.add_argument("--backend", action="append", choices=[entry.name for entry in known])
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the record goes")
    parser.add_argument("--tiny", action="store_true", help="a rehearsal: short sequences")
    options = parser.parse_args(arguments)
    entries = [entry for entry in known if entry.name in (options.backend or [x.name for x in known])]
    start = time.perf_counter()
    records = list(measure(entries, options.tiny))
    limits = {entry.name: BAR if entry.name == "numba_scan" else float(entry.units or 0) for entry in entries}
    show(records, limits)
    path = options.json or (None if options.backend or options.tiny else RESULTS)
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        record = conditions() | {"seconds": round(time.perf_counter() - start), "errors": records}
        path.write_text(json.dumps(record, indent=1) + "\n")
    return int(any(not record["units"] <= limits[record["backend"]] for record in records))


if __name__ == "__main__":
    sys.exit(main())
