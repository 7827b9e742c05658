"""Mistakes planted in the package's own CUDA sources, to see that the checks find them."""

from __future__ import annotations

from collections.abc import Callable

from tridiag.calls import fast_path
from tridiag.cuda import instances, launcher, recurrences, solvers

BARRIER = "__syncthreads();"
original = launcher.text


def plant(changes: dict[str, Callable[[str], str]]) -> None:
    """From now on each source that is named, with what it includes, is what a change makes of it."""

    unknown = changes.keys() - {kernel.source for kernel in instances.INSTANCES}
    assert not unknown, f"{sorted(unknown)} have no kernel that is compiled: name the source that includes them"

    def text(source: str) -> str:
        return changes.get(source, str)(original(source))

    launcher.text = text  # type: ignore[assignment]
    launcher.function.cache_clear()
    launcher.resident.cache_clear()
    launcher.bound.cache_clear()


def plant_one(source: str, mistakes: dict[str, tuple[str, str]], name: str) -> bool:
    """Plant the mistake of that name; whether there is one."""
    if name in mistakes:
        plant({source: replacing(*mistakes[name])})
    return name in mistakes


def uproot() -> None:
    """The sources are again what they are."""
    launcher.text = original
    launcher.function.cache_clear()
    launcher.resident.cache_clear()
    launcher.bound.cache_clear()


def decide_anew() -> None:
    """From now on programs are made with the constants of now."""
    solvers.solution.cache_clear()
    recurrences.program.cache_clear()
    fast_path.forget()


def replacing(old: str, new: str) -> Callable[[str], str]:
    """A change of what occurs once."""

    def change(text: str) -> str:
        if text.count(old) != 1:  # no AssertionError, which tests take for a mistake that shows
            raise LookupError(f"{old!r} occurs {text.count(old)} times")
        return text.replace(old, new)

    return change


def barrier(number: int, instead: str) -> Callable[[str], str]:
    """A change of one barrier."""

    def change(text: str) -> str:
        parts = text.split(BARRIER)
        return BARRIER.join(parts[: number + 1]) + instead + BARRIER.join(parts[number + 1 :])

    return change


def barriers(source: str) -> int:
    return original(source).count(BARRIER)
