"""The part "guarded": every verb, of arrays in any memory that nothing may overrun, in any number of threads."""

from __future__ import annotations

import traceback

from guarded import Ran, alignments, draw, filters, formats, parts, scans, scratch, sequences, solves, traced, vectors

SIMPLER = draw.SIMPLER
LIMIT = 240.0  # a case takes milliseconds, but its kernel may have to be compiled first, on a machine that is busy
KINDS = (
    (solves.run,) * 9 + (sequences.run,) * 7 + (vectors.run_blocks, vectors.run_matrices, alignments.run)
    + (filters.run, formats.run, parts.run, scans.run)
)  # fmt: skip


def start() -> None:
    scratch.install()


def make(seed: int, drop: frozenset[str]) -> draw.Draw:
    return draw.Draw(seed, drop)


def run(seed: int, drop: frozenset[str] = frozenset()) -> Ran:
    case = make(seed, drop)
    try:
        case.machine()
        library = "torch" if case.chance("library", 0.1) else "numpy"
        kind = case.stream("kind").choice(KINDS)
        if kind is filters.run:
            library = "numpy"  # no backend filters torch tensors
        if seed % traced.EVERY == traced.EVERY - 1:
            kind, library = traced.run, "jax"
        ran = kind(case, library)
        scratch.check_damage()  # now that its arrays are freed
        return ran._replace(library=library)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        told = str(error) or f"{type(error).__name__} in {place.name}, {place.filename}:{place.lineno}"
        raise AssertionError(f"{told}\n    {describe_case(case)}") from error
    finally:
        case.give_back()


def describe_case(case: draw.Draw) -> str:
    return "; ".join(case.words)


def describe(seed: int, drop: frozenset[str] = frozenset()) -> str:
    return f"guarded case {seed}"
