"""Measure how long every backend takes on this machine, and keep it for `tridiag.selection.measurements`.

Backends race at points that lie a factor of 4 apart in rows and in systems where compiled ones compete, and on both
sides of a line of lanes; 16 apart elsewhere. A backend that took far longer for a smaller problem than the fastest
takes at a point is looked at only at points that lie 16 apart, and only where that is soon done. Verbs on small
matrices, Kalman filters and alignments have fewer points. Where one backend alone can run a kind of problem nothing is
measured. Each one is measured with arrays of the first library that it takes, and what a call from another library
adds once; those verbs with arrays of each library.
What has been measured is kept after every kind of problem: a run that was cut off goes on where it ended.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tridiag.backends import BACKENDS, Backend, Problem, installed
from tridiag.benchmarking.operands import STATES
from tridiag.kernels.jobs.systems import lanes_of
from tridiag.kernels.runtime import private_files
from tridiag.problems.state_space import KALMAN
from tridiag.selection import costs, measurements
from tridiag.selection.places import PLACES, Place

LARGEST, LARGEST_COMPILED = 4**11, 4**6  # unknowns; the latter where each shape is compiled
LARGEST_OF_OTHERS = 4**9  # of verbs on small matrices, and cells of alignments
FINE, COARSE, ROUGH = 4, 16, 64  # factors from point to point
FEW = 2  # rows: a compiler takes away the loop over one
OBSERVED = 2  # values in a step of a series: what is written in NumPy is far quicker for one, compiled loops are not
OFF = 0.8  # of their powers: these are peculiar, to caches and to the lanes of vectors
SAMPLE, SAMPLES, ENOUGH = 1e-3, 5, 40e-3  # seconds of a sample; how many, and their sum after which one is enough
TOO_LONG = 0.05  # seconds that what is slower than that may take
BEHIND = 4.0  # times as long for a smaller problem as the fastest takes: far slower
GLANCE = 0.01  # seconds that it may take then
FIRST = ("numpy", "cupy")  # of the libraries on a device, which the compiled backends take
MATRICES = ("slogdet", "factor")
RECURRENCES = ("linear_recurrence", "log_linear_recurrence", "logcumsumexp")


class Kind(NamedTuple):
    """What has curves of its own."""

    place: Place
    verb: str
    together: bool = True  # the rows of a system lie side by side in memory
    shared: bool = False  # the matrix
    pivoting: bool = False  # asked for; else "auto", and systems that need none
    dtype: str = "float32"
    base: int = COARSE

    @property
    def name(self) -> str:
        return costs.kind_of(self.verb, self.place.library, self.place.device, *self[2:6])

    def problem(self, rows: int = 1, systems: int = 1) -> Problem:
        shape, axis = self.layout(rows, systems)
        promise = (self.pivoting or "auto") if self.verb == "solve" else None
        asked = Problem(self.verb, *self.place, self.dtype, shape, axis, promise, shared=self.shared)
        # filters that work in parallel are for those who ask: XLA compiles one for half a minute
        return asked._replace(method="sequential", states=STATES) if self.verb in KALMAN else asked

    def layout(self, rows: int, systems: int) -> tuple[tuple[int, ...], int]:
        """The shape, and the axis along which the rows lie."""
        if self.verb in costs.OWN:
            last = {costs.ALIGNMENT: rows, **dict.fromkeys(KALMAN, OBSERVED)}
            return (systems, rows, last.get(self.verb) or costs.SIDES[self.verb]), 1
        return ((systems, rows), 1) if self.together else ((rows, systems), 0)

    def unknowns(self, rows: int, systems: int) -> int:
        return systems * rows * (rows if self.verb == costs.ALIGNMENT else 1)

    @property
    def largest(self) -> int:
        """The most unknowns that are looked at."""
        if self.verb in costs.OWN:
            return min(LARGEST, LARGEST_OF_OTHERS)
        return LARGEST_COMPILED if self.place.library == "jax" else LARGEST

    def contestants(self) -> list[Backend]:
        """Those that take no arrays of a library that comes before this one on the device, or all of a verb of OWN."""
        if self.verb in costs.OWN:
            return self.able()
        before = [place.library for place in PLACES if place.device == self.place.device]
        before = before[: before.index(self.place.library)]
        return [entry for entry in self.able() if not any(library in entry.arrays for library in before)]

    def able(self) -> list[Backend]:
        asked = self.problem()
        return [entry for entry in BACKENDS.values() if entry.why_not(asked) is None and entry.unusable() is None]


def todo() -> list[Kind]:
    """What is measured here: compiled backends compete for systems, which therefore are looked at more closely."""
    found: list[Kind] = []
    for place in PLACES:
        if place.missing():
            continue
        if place.library not in FIRST:
            found += [Kind(place, verb) for verb in ("solve", *MATRICES, *RECURRENCES)]
            found += [Kind(place, verb, dtype="float64", base=ROUGH) for verb in costs.OWN]
            continue
        found += [Kind(place, verb, dtype="float64") for verb in costs.OWN]
        for together in (True, False):
            for dtype in ("float64", "float32"):
                found += [Kind(place, "solve", together, shared, False, dtype, FINE) for shared in (False, True)]
            found.append(Kind(place, "solve", together, False, True, "float64"))
            found += [Kind(place, verb, together, dtype="float64") for verb in (*MATRICES, *RECURRENCES)]
    return [kind for kind in found if kind.contestants() and len(kind.able()) > 1]


def run(progress: bool) -> Path:
    """What `tridiag.tune` does."""
    path = measurements.path_of_machine()
    partial = path.with_suffix(".partial")
    measurements.write(path, measured(partial, progress))
    partial.unlink(missing_ok=True)
    forget()
    return path


def forget() -> None:
    """Choices that have been made are made anew."""
    from tridiag.calls import blocks, fast_path, plan, sequences

    known = measurements.known, plan.cached_plan, sequences.cached_recurrence_plan, blocks.cached_block_plan
    for function in known:
        function.cache_clear()
    fast_path.forget()


def measured(partial: Path, progress: bool) -> dict[str, Any]:
    """The record of all kinds of problems; ``partial`` keeps what there is of it."""
    record = begun(partial)
    measurements.write(partial, record)  # which fails now rather than later
    kinds = [kind for kind in todo() if [*kind.place, kind.name] not in record["done"]]
    try:
        for kind in bar(kinds, progress):
            for name, points in curves(kind, costs.Costs(record, "")).items():
                record["curves"].setdefault(name, {})[kind.name] = points
            record["done"].append([*kind.place, kind.name])
            measurements.write(partial, record)
        record["calls"] = calls()
    finally:
        numbers.cache_clear()
    return record


def begun(partial: Path) -> dict[str, Any]:
    """What a run that was cut off has measured, under the same conditions."""
    now = measurements.conditions()
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
        record: dict[str, Any] = json.loads(private_files.read(partial))
        if record["conditions"] == now and costs.Costs(record, "") and record["done"]:
            return record
    return {"format": costs.FORMAT, "conditions": now, "done": [], "curves": {}, "calls": {}}


def bar(kinds: list[Kind], progress: bool) -> Iterator[Kind]:
    """Those that have many points, or whose backends JAX has to compile, count as more."""
    if not (progress and installed("rich")):
        yield from kinds
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    with Progress(*columns) as bars:
        task = bars.add_task("", total=sum(map(weight, kinds)))
        for kind in kinds:
            bars.update(task, description=f"{kind.place.library}: {kind.name}")
            yield kind
            bars.advance(task, weight(kind))


def weight(kind: Kind) -> int:
    """About how long a kind takes."""
    return 8 if kind.base == FINE or kind.place.library == "jax" else 1


def powers(base: int) -> list[int]:
    """The sizes from 1 to LARGEST."""
    return [round(OFF * base**i) for i in range(int(math.log(LARGEST, base)) + 1)]


def sizes(kind: Kind) -> tuple[list[int], list[int]]:
    """Rows, and systems, that are looked at."""
    if kind.base == ROUGH:
        return [1, FEW, FEW * ROUGH], [1, ROUGH, ROUGH**2]
    rows = powers(kind.base)
    lanes = lanes_of(np.dtype(kind.dtype))
    return rows, sorted({*rows, lanes - 1, lanes}) if kind.base == FINE else rows


def curves(kind: Kind, others: costs.Costs) -> dict[str, list[tuple[int, int, float]]]:
    """The points of every backend, smallest problems first; ``others``: what is known of those measured elsewhere."""
    entries = kind.contestants()
    rivals = [entry for entry in kind.able() if entry not in entries]
    glances = set() if kind.place.library == "jax" else {*powers(COARSE)}
    found: dict[str, list[tuple[int, int, float]]] = {entry.name: [] for entry in entries}
    for rows, systems in sorted(itertools.product(*sizes(kind)), key=math.prod):
        if kind.unknowns(rows, systems) > kind.largest:
            continue
        expected = (others.seconds(entry, kind.problem(rows, systems)) for entry in rivals)
        best = min((seconds for seconds in expected if seconds is not None), default=math.inf)
        call = calls_of(kind, rows, systems)
        for name in list(found):
            if worth_a_look(found[name], rows, systems, best, {rows, systems} <= glances):
                seconds = attempted(name, kind, call(name))
                if seconds == math.inf:
                    del found[name]
                    continue
                found[name].append((rows, systems, float(f"{seconds:.4g}")))
                best = min(best, seconds)
    return found


def attempted(name: str, kind: Kind, call: Callable[[], Any]) -> float:
    """The time of a backend; infinite, with a warning, where it fails: the others are measured all the same."""
    try:
        return timed(call)
    except Exception as error:
        message = f"{name} is left out for {kind.name}: {type(error).__name__}: {error}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
        return math.inf


def worth_a_look(points: list[tuple[int, int, float]], rows: int, systems: int, best: float, glance: bool) -> bool:
    """Whether a backend is measured at a place: by its times for smaller problems not far slower, and soon done.

    ``glance``: or far slower, and very soon done.
    """
    if not points:
        return True
    expected = costs.Curve(points).seconds(rows, systems)
    if max(seconds for n, m, seconds in points if n <= rows and m <= systems) > BEHIND * best:
        return glance and expected <= GLANCE
    return expected <= max(TOO_LONG, BEHIND * best)


def calls() -> dict[str, dict[str, float]]:
    """How much longer than from the first library that it takes a backend is called from the others."""
    found: dict[str, dict[str, float]] = {}
    here = [place for place in PLACES if not place.missing()]
    for place, verb in itertools.product(here, ("solve", *RECURRENCES)):
        kind = Kind(place, verb)
        for entry in kind.able():
            first = next(p for p in here if p.device == place.device and p.library in entry.arrays)
            if first != place and place.library not in found.setdefault(entry.name, {}):
                pair = [calls_of(kind._replace(place=p), 1, 1)(entry.name) for p in (first, place)]
                rounds = [[attempted(entry.name, kind, call) for call in pair] for _ in range(SAMPLES)]
                one, other = map(min, zip(*rounds, strict=True))
                if other < math.inf:
                    found[entry.name][place.library] = float(f"{max(0.0, other - one):.4g}")
    return found


@functools.lru_cache(2)
def numbers(verb: str, dtype: str) -> tuple[Any, ...]:
    """The operands of one system; what is cut out of them is as well conditioned."""
    from tridiag.benchmarking.problems import Problem as Example

    return Example(verb, (LARGEST,), 0, dtype).host


def calls_of(kind: Kind, rows: int, systems: int) -> Callable[[str], Callable[[], Any]]:
    """A call by each backend, of systems of a kind."""
    from tridiag.benchmarking import libraries
    from tridiag.benchmarking.problems import Problem as Example

    asked = kind.problem(rows, systems)
    if kind.verb in costs.OWN:
        whole = Example(kind.verb, asked.shape, asked.axis, kind.dtype)
        arrays = [kind.place.array(x) for x in whole.host]
        return lambda name: libraries.called(kind.place.library, whole.function(name), arrays)
    *before, last = numbers(kind.verb, kind.dtype)
    one = (rows,) if kind.shared else asked.shape
    given = [x[: math.prod(one)].reshape(one) for x in before] + [last[: rows * systems].reshape(asked.shape)]
    arrays = [kind.place.array(x) for x in given]
    example = Example(kind.verb, asked.shape, asked.axis, kind.dtype, pivoting=asked.pivoting or "auto")
    return lambda name: libraries.called(kind.place.library, example.function(name), arrays)


def timed(call: Callable[[], Any]) -> float:
    """The median of a few samples, each of enough calls to time."""
    call()
    start = time.perf_counter()
    call()
    count = max(1, int(SAMPLE / max(time.perf_counter() - start, 1e-9)))
    samples: list[float] = []
    while (len(samples) < SAMPLES and sum(samples) * count < ENOUGH) or not samples:
        start = time.perf_counter()
        for _ in range(count):
            call()
        samples.append((time.perf_counter() - start) / count)
    return statistics.median(samples)
