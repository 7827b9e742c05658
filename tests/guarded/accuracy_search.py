"""A part of the campaign: systems evolved towards errors above what is promised.

A case draws a call and some thousands of systems, keeps those that come out worst, and breeds the next systems from
them, some generations long. A system above its bar is made as small and simple as it can be, and printed as a program.

    python tests/guarded/accuracy_search.py [--seconds 60] [--seed 0] [--backend NAME]
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1])]

from helpers import installed

from guarded import Ran
from guarded import accuracy_bars as bars
from guarded.accuracy_breeding import Array, Breeder, Systems
from guarded.accuracy_cases import Call, draw
from guarded.accuracy_shrinking import shrunk, written

SIMPLER = ("masked", "transpose", "periodic", "layout", "pivoting")
LIMIT = 600.0
WEIGHT = 1.0
GENERATIONS = 12
WORST, PARENTS = 600, 300  # systems that are looked at closely, and those that breed
CONFIRMED = 3  # systems above the bar that are tried alone, in each generation
INVERTED = 300_000  # entries of the inverses of those


def start() -> None:
    if installed("jax"):
        import jax

        jax.config.update("jax_enable_x64", True)


def run(seed: int, drop: frozenset[str] = frozenset()) -> Ran:
    rng = np.random.default_rng(seed)
    call = draw(rng, drop)
    return searched(call, rng)


def describe(seed: int, drop: frozenset[str] = frozenset()) -> str:
    return str(draw(np.random.default_rng(seed), drop))


def searched(call: Call, rng: np.random.Generator) -> Ran:
    """Evolve systems; `AssertionError`, with the simplest one, where one is above its bar."""
    breeder = Breeder(rng, call.n, call.dtype, call.masked, call.pivoting is False)
    systems, worst = breeder.fresh(call.m), 0.0
    for generation in range(GENERATIONS):
        systems = call.given(systems)
        which, excess, _ = looked_at(call, systems)
        for k in np.flatnonzero(excess > 1)[:CONFIRMED]:
            found = systems.take(which[k : k + 1])
            if confirmed(call, found):
                raise AssertionError(report(call, found, generation))
            excess[k] = 0  # of several that follow each other another one was to blame
        worst = max(worst, float(np.where(excess <= 1, excess, 0).max(initial=0)) * bars.BAR)
        order = np.argsort(-excess, kind="stable")[:PARENTS]
        parents = systems.take(which[order])
        fresh = call.m // 3
        systems = Systems.join([breeder.bred(parents, call.m - fresh), breeder.fresh(fresh)])
        systems = systems.take(rng.permutation(call.m))
    return Ran(f"solve, pivoting={call.pivoting}", call.backend, GENERATIONS * call.m, worst)


def looked_at(call: Call, systems: Systems) -> tuple[Array, Array, Array]:
    """The systems of the largest errors, by how much they are above their bars, and the errors."""
    matrix = bars.acting(systems, call.periodic, call.transpose)
    x = call.solve(systems)
    error = bars.errors(matrix, x, call.dtype, call.pivoting, call.fills)
    most = max(20, min(WORST, INVERTED // call.n ** (3 if call.periodic else 2)))
    which = suspects(error, most // (3 if call.dtype == "complex128" else 1))
    some = bars.Matrix(*(band[which] for band in matrix))
    flushes = call.backend.startswith("jax")  # as XLA does
    verdict = bars.judged(some, x[which], error[which], call.dtype, call.pivoting, flushes)
    return which, verdict.excess, error[which]


def suspects(error: Array, most: int) -> Array:
    """The largest errors: some that are no number, some above the bar, and some below, whatever there are more of."""
    order = np.argsort(-error, kind="stable")
    lost, above = int(np.isinf(error).sum()), int((error > bars.BAR).sum())
    parts = order[:lost][:: max(1, lost * 5 // most)], order[lost:above][: most // 2], order[above:][: most // 2]
    return np.concatenate(parts)


def confirmed(call: Call, one: Systems) -> bool:
    """Whether one system is above its bar among others that are no trouble."""
    return bool((looked_at(call, call.given(surrounded(call, one)))[1] > 1).any())


def surrounded(call: Call, some: Systems) -> Systems:
    """As many systems as the call has: these, and others of diagonal 4 and solution 1/4 ... ; theirs are first."""
    n, kind = some.b.shape[1], some.b.dtype
    m, k = call.m, len(some.b)
    one = np.ones((m, n), kind)
    quiet = Systems(one.copy(), 4 * one, one.copy(), one.copy(), np.ones((m, n), bool))
    places = np.arange(k) * call.group  # `AT_ONCE` of `shrunk` is few enough
    for x, y in zip(quiet, some, strict=True):
        x[places] = y
    return quiet


def report(call: Call, found: Systems, generation: int) -> str:
    """The system made as simple as it stays above its bar, as a program that shows it."""

    def above(some: Systems) -> Array:
        which, excess, _ = looked_at(of_size(call, some), call.given(surrounded(call, some)))
        at = np.zeros(call.m)
        at[which] = excess
        return at[np.arange(len(some.b)) * call.group]

    small = shrunk(found, above, masked=call.masked, least=3 if call.periodic else 1)
    alone = replace(of_size(call, small), m=1, layout="factor" if call.layout == "factor" else "rows")
    _, excess, error = looked_at(alone, small)
    told = f"{error[0]:.3g} eps, {excess[0]:.3g} times the bar, alone"
    if excess[0] <= 1:
        if above(small)[0] <= 1:  # those beside it had a part in it while it was made smaller
            small, alone = found, replace(alone, n=call.n)
        told = f"{above(small)[0]:.3g} times the bar, among others only"
    return f"{call}, generation {generation}: {told}\n{written(alone, small)}"


def of_size(call: Call, some: Systems) -> Call:
    """The same call of systems of another number of rows."""
    return replace(call, n=some.b.shape[1])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backend")
    parser.add_argument("--dtype")
    parser.add_argument("--most", type=int, default=10, help="problems, beyond which it ends")
    options = parser.parse_args(arguments)
    start()
    begin, seed, systems, problems, worst = time.process_time(), options.seed, 0, 0, dict[str, Any]()
    while time.process_time() - begin < options.seconds and problems < options.most:
        call = draw(np.random.default_rng(seed))
        if options.backend in (None, call.backend) and options.dtype in (None, call.dtype):
            try:
                ran = run(seed)
                systems += ran.systems
                key = f"{ran.library} {ran.kind}"
                worst[key] = max(worst.get(key, 0), ran.worst)
            except AssertionError as error:
                problems += 1
                systems += call.m
                print(f"[{time.process_time() - begin:.1f} s, {systems} systems] seed {seed}: {error}\n", flush=True)
        seed += 1
    seconds = time.process_time() - begin
    rate = f"{systems} systems in {seconds:.0f} s of CPU, {systems / seconds:.0f} a second"
    print(f"{rate}; {problems} problems; seeds {options.seed} to {seed - 1}")
    for key, value in sorted(worst.items()):
        print(f"  {key}: {value:.2f} eps of 8")
    return int(problems > 0)


if __name__ == "__main__":
    sys.exit(main())
