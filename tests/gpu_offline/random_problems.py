"""Random problems for every CUDA C kernel of the package, on the CPU build or on a GPU, against what is promised.

    python tests/gpu_offline/random_problems.py --problems 10000 [--seed 0] [--only VERB] [--json FILE]

A problem is one system, matrix, sequence, pair or series. Calls take some tens to thousands of them; everything about a
call is drawn from its seed, and that of the next one is one more. What is wrong is printed with the seed of its call,
and ``--seed SEED --problems 1`` makes that call again. On a GPU ``--larger 16``
makes batches larger. ``--json`` writes conditions, counts by verb and kind, and the largest errors over what is
allowed. Exits with 1 where something is wrong.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import helpers  # noqa: F401  which finds CuPy, or the stand-in for it
import numpy as np
from drawn import Outcome, Refused, Where, blocks, determinants, pairs, schedules, sequences, series, systems

from tridiag.benchmarking.conditions import conditions

VERBS = {  # and their shares of calls
    "solve": (systems.solve, 10),
    "factor": (systems.factor, 4),
    "slogdet": (determinants.slogdet, 3),
    "solve_block": (blocks.solve_block, 4),
    "linear_recurrence": (sequences.linear_recurrence, 6),
    "matrix_recurrence": (sequences.matrix_recurrence, 4),
    "log_linear_recurrence": (sequences.log_linear_recurrence, 3),
    "logcumsumexp": (sequences.logcumsumexp, 3),
    "smith_waterman": (pairs.smith_waterman, 1),
    "kalman.filter": (series.filter, 2),
    "kalman.smoother": (series.smoother, 2),
    "kalman.log_likelihood": (series.log_likelihood, 2),
    "kalman.gradient": (series.gradient, 2),
}


CPU_BUILD = Where()


class Found:
    """What came of all calls."""

    def __init__(self) -> None:
        self.calls = self.wrong = 0
        self.counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
        self.worst: dict[str, dict[str, float]] = collections.defaultdict(dict)

    @property
    def problems(self) -> int:
        return sum(of.total() for of in self.counts.values())

    def add(self, verb: str, outcome: Outcome) -> None:
        self.calls += 1
        for kind in map(str, dict.fromkeys(outcome.kinds)):
            some = outcome.error[outcome.kinds == kind]
            self.counts[verb][kind] += len(some)
            self.worst[verb][kind] = max(self.worst[verb].get(kind, 0.0), float(some.max()))

    def summary(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "problems": self.problems,
            "wrong": self.wrong,
            "by verb": {
                verb: {
                    "problems": of.total(),
                    "worst": round(max(self.worst[verb].values()), 3),
                    "kinds": {kind: [of[kind], round(self.worst[verb][kind], 3)] for kind in sorted(of)},
                }
                for verb, of in sorted(self.counts.items())
            },
        }


def calls(seed: int, only: str | None) -> Iterator[tuple[int, str]]:
    """Seeds and their verbs, one after another."""
    names, shares = list(VERBS), np.array([share for _, share in VERBS.values()], float)
    while True:
        verb = str(np.random.default_rng((seed, 0)).choice(names, p=shares / shares.sum()))
        if only in (None, verb):
            yield seed, verb
        seed += 1


def ask(seed: int, verb: str, where: Where) -> Outcome:
    with schedules.drawn(np.random.default_rng((seed, 1))):
        return VERBS[verb][0](np.random.default_rng((seed, 2)), where)


def run(problems: int, seed: int, only: str | None = None, where: Where = CPU_BUILD, most: float = np.inf) -> Found:
    """Calls until there are so many problems, or seconds are over; what is wrong is printed at once."""
    found, end = Found(), time.monotonic() + most
    for now, verb in calls(seed, only):
        if found.problems >= problems or time.monotonic() > end:
            return found
        try:
            outcome = ask(now, verb, where)
        except Exception as error:
            found.wrong += 1
            told = str(error) if isinstance(error, Refused) else traceback.format_exc(limit=-3)
            print(f"--seed {now}: {verb}: {told}", flush=True)
            continue
        found.add(verb, outcome)
        wrong = np.flatnonzero(~(outcome.error <= 1))
        found.wrong += len(wrong)
        for k in wrong[:3]:
            place = f"problem {k} of {len(outcome.kinds)}, {outcome.kinds[k]}"
            print(f"--seed {now}: {place}: an error of {outcome.error[k]:.3g}")
        if len(wrong):
            print(f"    {len(wrong)} wrong of {outcome.told}", flush=True)
    raise AssertionError("seeds do not end")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--problems", type=int, default=10_000, help="how many, at least")
    parser.add_argument("--seed", type=int, default=0, help="of the first call")
    parser.add_argument("--only", choices=VERBS, help="the calls of one verb alone")
    parser.add_argument("--larger", type=int, default=1, help="times as many problems in a call, as a GPU has room for")
    parser.add_argument("--seconds", type=float, default=np.inf, help="after which no call is begun")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write what was found")
    options = parser.parse_args(arguments)
    begin, facts = time.monotonic(), conditions()
    found = run(options.problems, options.seed, options.only, Where(options.larger), options.seconds)
    summary = found.summary()
    if options.json:
        facts |= {"seed": options.seed, "larger": options.larger, "seconds": round(time.monotonic() - begin)}
        options.json.write_text(json.dumps(facts | summary, indent=1) + "\n")
    for verb, of in summary["by verb"].items():
        print(f"{verb:22} {of['problems']:8} problems, the largest error {of['worst']} of what is allowed")
    print(f"{found.problems} problems in {found.calls} calls, {found.wrong} wrong")
    return int(found.wrong > 0)


if __name__ == "__main__":
    with np.errstate(all="ignore"):
        sys.exit(main())
