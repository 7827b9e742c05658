"""Block tridiagonal systems from the caller's arguments to the normal form."""

from __future__ import annotations

import functools
from typing import Any

from tridiag.calls.plan import NO_MASK, UNASKED, Call, Plan, plan_without_mask, planned
from tridiag.libraries.arrays import (
    Entry,
    module_of,
    taking,
)
from tridiag.problems.forms import (
    align_blocks,
)


def prepare_blocks(A: Any, B: Any, C: Any, d: Any, *, backend: Any = UNASKED) -> Call:
    """The same for block tridiagonal systems; d as the caller gives it, lifted."""
    given = [A, B, C, d]
    library, take = taking(("A", "B", "C", "d"), *map(type, given), NO_MASK)
    given, _, entries, settings = take(given, None)
    facts = library, entries[:-1], settings, backend
    plan = planned(cached_block_plan, facts, given)
    return Call(plan, tuple(given[:3]), given[3])


def make_block_plan(library: str, entries: tuple[Entry, ...], settings: Any, backend: Any) -> Plan:
    """As `make_plan`."""
    module, given = module_of(library), dict(zip("ABCd", entries, strict=True))
    for name, entry in given.items():
        module.check_dtype(name, entry)
    form, sides, lifted = align_blocks({name: tuple(entry[1]) for name, entry in given.items()})
    return plan_without_mask("solve_block", library, given, settings, "ABC", form, lifted, backend, sides=sides)


cached_block_plan = functools.lru_cache(1024, typed=True)(make_block_plan)
