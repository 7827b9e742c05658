"""The campaign: random cases against oracles, in memory that may not be overrun, for seconds or for hours.

    python tests/guarded/campaign.py --seconds 600 [--parts guarded,...] [--output FILE]    what `make campaign` runs
    python tests/guarded/campaign.py --part guarded --seed 123 [--drop threads,out,...]     one case again

The parent process starts a worker for each core; each runs cases one after another and is started again after a crash
or a hang, which is a problem of the seed that was under way, or when it has too much memory. The summary is written
every minute, and where Ctrl-C ends the campaign; with ``--resume`` the next one adds to it. A campaign has parts. A
part is a module, named in `guarded.campaign.PARTS`, that has

    start() -> None                          once in every worker, before the first case; whatever it changes lasts
    run(seed, drop=frozenset()) -> Ran       one case, drawn from the seed alone; `AssertionError`, or any other
                                             exception, is a problem, and its message says what was wrong with what
    SIMPLER: tuple[str, ...]                 what may be dropped from a case to make it simpler, the most telling first:
                                             the parent tries them one after another and keeps those without which
                                             the case still fails; a name that a case does not know changes nothing
    describe(seed, drop) -> str              the case in words, for the report; it runs nothing
    LIMIT: float                             seconds that a case may take; beyond, it hangs

and, where it may, ``WEIGHT: float``, its share of the time next to other parts (1.0 where it does not say). A case of a
part may be of any size; one of some milliseconds wastes nothing. Warnings are errors in workers.

`Ran` says what a case counts as. `guarded.scratch` has what kernels call instead of `malloc`, and can let it fail;
`guarded.memory` has arrays that end, or begin, where memory does.
"""

from __future__ import annotations

from typing import NamedTuple


class Ran(NamedTuple):
    """A case that held: under which words it is counted, how many systems or sequences it was, a size to report."""

    kind: str  # the verb, say: "solve"
    library: str = "numpy"
    systems: int = 1
    worst: float = 0.0  # whatever a part measures, an error in eps say: the summary has the largest of each kind
