"""Systems whose rows lie on eight devices, against what has to be gathered, and against devices with whole systems.

    python benchmarks/split.py [--only NAME]... [--rounds N] [--tiny] [--json FILE]

Eight CPU devices of one process. ``split``: `tridiag` of arrays that are sharded along the system axis, in jit;
of ``factored`` a solve with a matrix that was factored before.
``gather``: the same arrays, gathered first, and the result sharded again. ``batch``: the same total, where every
device has whole systems. Each timed call follows one of the same contestant that is not timed, in shuffled order;
figures are ratios of medians. Answers are judged before the clock. Words are those that a device receives for each
system, from the compiled program; what only doubtful systems exchange does not count, and what all devices exchange
only where couplings do not decay counts in the line of such systems.

``work``: the processor time of each of 4 and of 8 devices that have as many rows, over that of each of two. The record
goes to ``benchmarks/results/split/``, a file a processor. Exits with 1 where a figure is short of its bar or an answer
is wrong. Needs JAX and rich.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

DEVICES = 8
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={DEVICES}"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from collectives import exchange  # noqa: E402
from jax.sharding import AxisType, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402
from lines import file_name  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

import tridiag  # noqa: E402
from tridiag.benchmarking.conditions import conditions  # noqa: E402

RESULTS = Path(__file__).parent / "results" / "split"
TINY = 64  # times fewer rows
ANEW = 1  # which conditional of a program exchanges with all devices, where ends of devices are not enough
Calls = dict[str, Callable[[], Any]]


class Line(NamedTuple):
    """A verb of some shape, and what it has to reach: times faster than gathered, times a batch, words a system."""

    name: str
    verb: str
    shape: tuple[int, int]
    faster: float
    batch: float | None
    words: float
    collectives: int
    slow: bool = False  # couplings do not decay within a device: what all exchange counts


LINES = (
    Line("solve-64", "solve", (64, 80_000), 15, 2.0, 4, 2),
    Line("solve-4096", "solve", (4096, 1024), 15, 2.0, 4, 2),
    Line("slow-4096", "solve", (4096, 1024), 1, None, 12, 4, slow=True),
    Line("solve-1", "solve", (1, 8_000_000), 15, None, 4, 2),
    Line("factored-64", "factored", (64, 80_000), 15, 2.0, 4, 2),
    Line("factored-4096", "factored", (4096, 1024), 15, 2.0, 4, 2),
    Line("gradient-64", "gradient", (64, 80_000), 5, None, 12, 4),
    Line("gradient-4096", "gradient", (4096, 1024), 5, None, 12, 4),
    Line("recurrence-64", "recurrence", (64, 80_000), 50, 1.7, 1, 1),
    Line("recurrence-4096", "recurrence", (4096, 1024), 50, 1.7, 1, 1),
    Line("recurrence-1", "recurrence", (1, 8_000_000), 50, None, 1, 1),
    Line("logcumsumexp-64", "logcumsumexp", (64, 80_000), 1, 1.6, 2 * (DEVICES - 1), 1),
)


def gradient(*v: Any) -> Any:
    return jax.grad(lambda *v: (tridiag.solve(*v) * v[3]).sum(), (0, 1, 2, 3))(*v)


def factored(matrix: Any, d: Any) -> Any:
    return matrix.solve(d)


VERBS: dict[str, Callable[..., Any]] = {
    "solve": tridiag.solve,
    "factored": factored,
    "gradient": gradient,
    "recurrence": tridiag.linear_recurrence,
    "logcumsumexp": tridiag.logcumsumexp,
}


def arguments(line: Line, shape: tuple[int, int]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    if line.verb == "logcumsumexp":
        return [rng.standard_normal(shape)]
    if line.verb == "recurrence":
        return [rng.uniform(-1, 1, shape), rng.standard_normal(shape)]
    a, c, d = (rng.uniform(-1, 1, shape) for _ in range(3))
    if line.slow:
        return [np.full(shape, value) for value in (-1.0, 2.05, -1.0)] + [d]
    return [a, rng.uniform(3, 4, shape), c, d]


def placed(mesh: Any, arrays: Any, spec: Any) -> list[Any]:
    return [jax.device_put(x, NamedSharding(mesh, spec)) for x in arrays]


def operands(line: Line, arrays: list[Any]) -> list[Any]:
    """What the verb takes: of matrices that are factored, what is kept of them."""
    return [tridiag.factor(*arrays[:3]), arrays[3]] if line.verb == "factored" else arrays


def mesh_of(devices: int) -> Any:
    return jax.make_mesh((devices,), ("z",), axis_types=(AxisType.Auto,), devices=jax.devices()[:devices])


def measure(line: Line, rounds: int, tiny: bool) -> dict[str, Any]:
    """The figures of a line."""
    rows = line.shape[1] // (TINY * DEVICES if tiny else DEVICES) * DEVICES
    shape, verb, mesh = (line.shape[0], rows), VERBS[line.verb], mesh_of(DEVICES)
    given = arguments(line, shape)
    split = operands(line, placed(mesh, given, P(None, "z")))
    program = jax.jit(verb).lower(*split).compile()
    everywhere, apart = NamedSharding(mesh, P()), NamedSharding(mesh, P(None, "z"))

    def gather(*v: Any) -> Any:
        result = verb(*jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, everywhere), v))
        return jax.tree.map(lambda x: jax.lax.with_sharding_constraint(x, apart), result)

    gathered = jax.jit(gather).lower(*split).compile()
    calls: Calls = {"split": lambda: program(*split), "gather": lambda: gathered(*split)}
    if line.batch is not None:
        whole = operands(line, placed(mesh, given, P("z")))
        alone = jax.jit(verb).lower(*whole).compile()
        calls["batch"] = lambda: alone(*whole)
    wanted = jax.tree.leaves(jax.jit(verb)(*operands(line, [*map(jnp.asarray, given)])))
    for name, call in calls.items():
        check(name, jax.tree.leaves(call()), wanted)
    taken = [ANEW] if line.slow else []
    seconds, told = race(calls, rounds), exchange(program.as_text(), DEVICES, taken)
    found: dict[str, Any] = {
        "gather / split": seconds["gather"] / seconds["split"],
        "words a system": told.words / line.shape[0],
        "collectives": told.collectives,
    }
    if line.batch is not None:
        found["split / batch"] = seconds["split"] / seconds["batch"]
    return found


def check(name: str, found: Any, wanted: Any) -> None:
    """A wrong answer has no time."""
    for x, y in zip(found, wanted, strict=True):
        error = float(jnp.max(jnp.abs(x - y)) / jnp.max(jnp.abs(y)))
        if not error < 1e-11:
            raise SystemExit(f"{name} is wrong: relative error {error:.1e}")


def race(calls: Calls, rounds: int, clock: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """Medians, in shuffled order; each timed call follows one that is not timed."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    rng = np.random.default_rng(0)
    for _ in range(rounds):
        for name in rng.permutation(list(calls)):
            jax.block_until_ready(calls[name]())
            start = clock()
            jax.block_until_ready(calls[name]())
            seconds[name].append(clock() - start)
    return {name: statistics.median(some) for name, some in seconds.items()}


def work(rounds: int, tiny: bool) -> dict[str, float]:
    """The processor time of a device with as many rows, where there are 4 and 8, over that where there are 2."""
    calls: Calls = {}
    for devices in (2, 4, 8):
        shape = (64, devices * (10_000 // (TINY if tiny else 1)))
        given = placed(mesh_of(devices), arguments(LINES[0], shape), P(None, "z"))
        calls[str(devices)] = functools.partial(jax.jit(tridiag.solve).lower(*given).compile(), *given)
    seconds = race(calls, rounds, time.process_time)
    each = {devices: seconds[devices] / int(devices) for devices in seconds}
    return {f"work of a device, {devices} over 2": each[devices] / each["2"] for devices in ("4", "8")}


def short(line: Line, found: dict[str, Any]) -> list[str]:
    """The bars that are not reached."""
    bars = [
        (found["gather / split"] >= line.faster, f"{line.faster:g} times faster than gathered"),
        (line.batch is None or found["split / batch"] <= line.batch, f"{line.batch} times a batch"),
        (found["words a system"] <= line.words, f"{line.words} words a system"),
        (found["collectives"] <= line.collectives, f"{line.collectives} collectives"),
    ]
    return [bar for reached, bar in bars if not reached]


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=[line.name for line in LINES])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tiny", action="store_true", help="few rows: whether it runs")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(given)
    jax.config.update("jax_enable_x64", True)
    lines = [line for line in LINES if not options.only or line.name in options.only]
    table = Table("", "gather / split", "split / batch", "words a system", "collectives", "short of", title="split")
    record: dict[str, Any] = {**conditions(), "devices": DEVICES, "lines": {}}
    failed = False
    for line in lines:
        found = measure(line, options.rounds, options.tiny)
        missing = short(line, found)
        failed = failed or bool(missing)
        record["lines"][line.name] = {**found, "shape": line.shape, "short": missing}
        cells = [f"{found[k]:.3g}" if k in found else "" for k in table_columns(table)]
        table.add_row(line.name, *cells, "; ".join(missing) or "-")
    if not options.only:
        record["work"] = work(options.rounds, options.tiny)
        failed = failed or max(record["work"].values()) > 1.1
    console = Console(width=140)
    console.print(table)
    console.print(record.get("work", ""))
    path = options.json or (None if options.only or options.tiny else RESULTS / f"{file_name(record)}.json")
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n")
    return int(failed and not options.tiny)


def table_columns(table: Table) -> list[str]:
    return [str(column.header) for column in table.columns[1:-1]]


if __name__ == "__main__":
    sys.exit(main())
