"""All backends that can run a problem, compared."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tridiag.backends import BACKENDS, Backend
from tridiag.benchmarking.comparison import Comparison
from tridiag.benchmarking.libraries import device_of
from tridiag.benchmarking.problems import Problem
from tridiag.selection.choose import choose, named

LONG = "compiles for half a minute, longer than it runs; it is compared where it is named"


def contest(problems: Sequence[Problem], backends: Sequence[str] = (), baseline: str | None = None) -> Comparison:
    """The comparison of some backends, or of all that take such arrays, on one problem in one library or more."""
    several = len(problems) > 1
    able, makers, refused, chosen = [], {}, {}, {}
    for problem in problems:
        try:
            asked = problem.explain().problem
            chosen[problem.library] = choose(asked).backend.name
        except ValueError as error:  # of its backends, or of its device; the other libraries are compared
            refused[problem.library] = str(error)
            continue
        able.append(problem)
        for entry in candidates(problem, backends):
            name = f"{problem.library}: {entry.name}" if several else entry.name
            reason = entry.why_not(asked) or entry.unusable()
            wanted = backends or name == baseline or entry.name == chosen[problem.library]
            if problem.verb in entry.long_to_compile and not wanted:
                reason = reason or f"{LONG}: --backend {entry.name}"
            if reason:
                refused[name] = reason
            else:
                makers[name] = functools.partial(problem.contestant, entry.name)
    if not able:
        raise ValueError("; ".join(refused.values()))
    if not makers:
        raise ValueError("; ".join(f"{name} {reason}" for name, reason in refused.items()))
    first = able[0]
    usual = f"{first.library}: {chosen[first.library]}" if several else chosen[first.library]
    baseline = baseline or (usual if usual in makers else next(iter(makers), usual))
    if baseline not in makers:
        raise ValueError(f"the baseline {baseline!r} is none of those compared: {', '.join(makers) or 'none'}")
    facts: dict[str, Any] = {"verb": first.verb, "shape": first.shape, "gradient": first.gradient} | first.options
    device = device_of(first.given[0])
    return Comparison(
        first.describe(),
        makers,
        first.words,
        first.dtype,
        baseline,
        refused,
        None if device == "cpu" else (first.library, first.device),
        facts | {"library": [*chosen], "device": device, "auto": chosen},
    )


def candidates(problem: Problem, backends: Sequence[str]) -> list[Backend]:
    """Those named, or all that have the verb for arrays of the library."""
    if backends:
        return list(dict.fromkeys(entry for name in backends for entry in named(name)))
    return [entry for entry in BACKENDS.values() if problem.verb in entry.verbs and problem.library in entry.arrays]
