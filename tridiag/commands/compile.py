"""Compile kernels for this machine ahead of their first calls; what is compiled already is left as it is."""

from __future__ import annotations

import argparse

from tridiag.backends import BACKENDS
from tridiag.commands.arguments import positive
from tridiag.commands.terminal import progress
from tridiag.kernels import ahead
from tridiag.kernels.runtime import notice, object_cache
from tridiag.kernels.table import name_of
from tridiag.verbs import check_verb

SIZES = [1, 2, 3]  # where none are asked for
STATES = [(1, 1), (2, 1)]
MOST = BACKENDS["numba_scan"].states or 0
KEPT = "what was compiled is kept, and the same command goes on from there"


def states(text: str) -> tuple[int, int]:
    try:
        count, observed = (int(word) for word in text.split(","))
    except ValueError:
        count = observed = 0
    if min(count, observed) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no model; wanted its states and the values observed, as in 2,1")
    if max(count, observed) > MOST:
        raise argparse.ArgumentTypeError(
            f"no kernel has {text} states and observed values; the most are {MOST} of each"
        )
    return count, observed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", nargs="*", metavar="VERB", help=f"{', '.join(ahead.VERBS)} (default: solve)")
    parser.add_argument("--all", action="store_true", help="every verb: some minutes for each dtype")
    kinds = f"{', '.join(ahead.DTYPES)}; may be repeated (default float64)"
    parser.add_argument("--dtype", action="append", choices=ahead.DTYPES, metavar="DTYPE", help=kinds)
    parser.add_argument("--gradient", action="store_true", help="backward passes as well")
    parser.add_argument(
        "--size", action="append", type=positive, metavar="N", help="orders, vectors, blocks (default 1, 2, 3)"
    )
    parser.add_argument(
        "--states", action="append", type=states, metavar="N,M", help="of Kalman models (default 1,1 and 2,1)"
    )


def run(options: argparse.Namespace) -> int:
    if reason := BACKENDS["numba_thomas"].unusable():
        raise ValueError(f"no kernel can be compiled: it {reason}")
    if options.all and options.verb:
        raise ValueError(f"--all stands for every verb; leave out {' '.join(options.verb)}, or --all")
    for verb in options.verb:
        check_verb(verb, ahead.VERBS, "compile")
    verbs = list(ahead.VERBS) if options.all else options.verb or ["solve"]
    dtypes, sizes = options.dtype or ["float64"], options.size or SIZES
    wanted = ahead.kernels_of(verbs, dtypes, sizes, options.states or STATES, options.gradient)
    if not wanted:
        asked = f"the dtype {', '.join(dtypes)} and a size of {', '.join(map(str, sizes))}"
        raise ValueError(f"{', '.join(verbs)}: no kernel has {asked}")
    notice.silence()
    new = 0
    with progress() as progressed:
        for count, named in enumerate(wanted):
            progressed("compiling", name_of(*named), count / len(wanted))
            new += ahead.prepare(named)
    folders = object_cache.folders()
    where = f"in {folders[0]}" if folders else "nowhere: no folder can be written, see NUMBA_CACHE_DIR"
    there = len(wanted) - new
    told = f"{new} kernel{'s' * (new != 1)} compiled, {there} {'was' if there == 1 else 'were'} there"
    print(f"{told}; kept {where}")
    return 0
