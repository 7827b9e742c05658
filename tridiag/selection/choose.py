"""Which backend runs a problem, and why each other one does not.

Of those that can run the problem the one that is expected to be the fastest (`tridiag.selection.costs`, on a GPU that
has not been measured `tridiag.selection.gpu_model`); where that is not known the first line of the table
`tridiag.backends.BACKENDS`. A backend that cannot keep a promise of the call (pivoting, dtype, device) is not eligible.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple, Protocol

from tridiag.backends import ANYWHERE, BACKENDS, GPU, Backend, Problem
from tridiag.errors import BackendError

MARGIN, WORTH = 0.9, 5e-6  # of the time, and seconds
OTHER_NAMES = {"pytorch": "torch", "lapack": "scipy", "gtsv": "scipy_gtsv", "thomas": "numba_thomas"}
FIRST, ONLY = "the first backend that can run this", "the only backend that can run this"


class Choice(NamedTuple):
    backend: Backend
    why: str


def named(backend: str, problem: Problem | None = None) -> list[Backend]:
    """The backends of a full name ('numba_thomas') or of a library ('numba'); the problem is one to run by them."""
    if backend in BACKENDS:
        return [BACKENDS[backend]]
    found = [entry for name, entry in BACKENDS.items() if backend and name.startswith(f"{backend}_")]
    if not found:
        raise BackendError(f"there is no backend {backend!r}{nearest(backend)} {usable(problem)}")
    return found


def nearest(backend: str) -> str:
    """The end of a sentence: the name that may have been meant, as a question."""
    libraries = {name.rpartition("_")[0]: name for name in BACKENDS}
    spellings = {**{name: name for name in BACKENDS}, **{name: name for name in libraries}, **OTHER_NAMES}
    found = difflib.get_close_matches(backend.lower().replace("-", "_"), spellings, 1)
    return f"; did you mean {spellings[found[0]]!r}?" if found else "."


def usable(problem: Problem | None) -> str:
    """The names that can be given: those that can run a problem, or anything here, and the libraries."""
    if problem is None:
        able = [entry.name for entry in BACKENDS.values() if entry.unusable() is None]
    else:
        able = [entry.name for entry, _ in eligible(problem)]
    libraries = dict.fromkeys(name.partition("_")[0] for name in able)
    listed = ", ".join(map(repr, ["auto", *able])) + f", or a library: {', '.join(map(repr, libraries))}"
    return f"{'Usable here' if problem is None else 'This call takes'}: {listed}; print(tridiag.backends()) shows all"


class Candidate(NamedTuple):
    """A backend that can run a problem, and how long it is expected to take; None: not known."""

    backend: Backend
    seconds: float | None


class Expected(Protocol):
    """What is known of times: measurements, or a model."""

    origin: str

    def seconds(self, entry: Backend, problem: Problem) -> float | None: ...


def expected(first: Backend, problem: Problem) -> Expected:
    """What "auto" goes by, ``first`` being the first of the table that can run the problem.

    What reads files is imported where the first choice has to be made, the model where one is for a GPU.
    """
    from tridiag.selection import measurements

    known = measurements.known()
    if problem.device not in GPU or known.seconds(first, problem) is not None:
        return known
    from tridiag.selection.gpu_model import MODEL

    return MODEL


def eligible(problem: Problem, entries: Iterable[Backend] | None = None) -> list[Candidate]:
    """The fastest first, where the time of the first of the table is known; those whose is not come last.

    The first of the table stays first unless another one saves enough for another kernel to be compiled.
    """
    entries = BACKENDS.values() if entries is None else entries
    able = [entry for entry in entries if entry.why_not(problem) is None]
    if len(able) < 2:
        return [Candidate(entry, None) for entry in able]
    known = expected(able[0], problem)
    found = [Candidate(entry, known.seconds(entry, problem)) for entry in able]
    if found[0].seconds is None:
        return found
    first = found[0]

    def rank(one: Candidate) -> tuple[bool, float]:
        seconds = math.inf if one.seconds is None else one.seconds
        return one.backend.by_name, min(MARGIN * seconds, seconds - WORTH) if one is first else seconds

    return sorted(found, key=rank)


def why_first(able: list[Candidate], problem: Problem) -> str:
    """Why "auto" takes the first of those that can."""
    seconds = able[0].seconds
    if seconds is None:
        return FIRST if len(able) > 1 else ONLY
    faster = any(one.seconds is not None and one.seconds < seconds and not one.backend.by_name for one in able)
    first = min((one.backend for one in able), key=[*BACKENDS.values()].index)
    return f"{'nearly ' if faster else ''}the fastest, as {expected(first, problem).origin}"


def alongside(backend: Backend, problem: Problem) -> Backend:
    """The backend for what another verb needs: the same, if it can."""
    return backend if backend.why_not(problem) is None else choose(problem).backend


@dataclass(frozen=True)
class PerPlatform:
    """The choice where it is not known yet on which platform: the name for each; elsewhere it is as a `Backend`."""

    name: tuple[tuple[str, str], ...]
    here: Backend

    def module(self) -> ModuleType:
        return self.here.module()


def choose_per_platform(problem: Problem, here: Backend) -> Backend | PerPlatform:
    """What "auto" takes on each platform for which JAX may compile a trace; first on that of the problem."""
    platforms = sorted(ANYWHERE, key=lambda platform: platform != problem.device)
    names = tuple((platform, choose(problem._replace(device=platform)).backend.name) for platform in platforms)
    return here if {name for _, name in names} == {here.name} else PerPlatform(names, here)


def in_trace(problem: Problem, backend: str, platforms: Iterable[str]) -> Backend | PerPlatform:
    """The choice inside a trace, which may be compiled for any platform of JAX here, ``platforms``.

    What is named has to be able to run on one of them.
    """
    if backend == "auto":
        return choose_per_platform(problem, choose(problem).backend)
    for platform in platforms:
        found = problem._replace(device=platform)
        if any(entry.why_not(found) is None for entry in named(backend)):
            return choose(found, backend).backend
    return choose(problem, backend).backend  # which raises


def choose(problem: Problem, backend: str = "auto") -> Choice:
    """The backend for a problem; a named one either runs or raises with the reason and the names that would."""
    if not isinstance(backend, str):
        raise TypeError(f"backend is {backend!r}; wanted a name. {usable(problem)}")
    if backend == "auto":
        if able := eligible(problem):
            return Choice(able[0].backend, why_first(able, problem))
        having = [entry for entry in BACKENDS.values() if problem.verb in entry.verbs]
        reasons = "; ".join(f"{entry.name}: {entry.why_not(problem)}" for entry in having)
        raise BackendError(f"no backend can {problem.describe()}. {reasons}")
    candidates = named(backend, problem)
    for entry, _ in eligible(problem, candidates):
        return Choice(entry, "asked for by name")
    reasons = "; ".join(f"{entry.name} {entry.unusable() or entry.why_not(problem)}" for entry in candidates)
    names = ", ".join(entry.name for entry, _ in eligible(problem)) or "none"
    raise BackendError(f"backend {backend!r} cannot {problem.describe()}: {reasons}. Backends that can: {names}")
