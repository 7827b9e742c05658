"""The options that say what a problem is."""

from __future__ import annotations

import argparse
import functools
import math
from collections.abc import Iterable

from tridiag.benchmarking.kinds import ALIKE, KINDS, kind_of
from tridiag.benchmarking.libraries import DEVICES, LIBRARIES
from tridiag.benchmarking.problems import Problem
from tridiag.libraries.arrays import SUPPORTED
from tridiag.verbs import VERBS, check_verb

MOST = 10**15  # numbers of an array, more than any memory holds
PROMISES: dict[str, bool | str] = {"auto": "auto", "true": True, "false": False}


def shape(text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(word) for word in text.strip("() ").split(",") if word.strip())
    except ValueError:
        found = ()
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; wanted lengths of at least 1, as in 1000,100")
    if math.prod(found) > MOST:
        raise argparse.ArgumentTypeError(f"{text!r} has {math.prod(found):.0e} numbers; wanted {MOST:.0e} at most")
    return found


def promise(text: str) -> bool | str:
    if text.lower() not in PROMISES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of auto, True, False")
    return PROMISES[text.lower()]


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of rounds; wanted 1 or more")
    return int(text)


def verb(name: str, known: Iterable[str], whose: str) -> str:
    try:
        check_verb(name, known, whose)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name


def add_problem(parser: argparse.ArgumentParser, timed: bool = False) -> None:
    """The arguments of a problem; where it is timed its verb may be left out, and its library may be all of them."""
    verbs = [*KINDS] if timed else [*KINDS, *ALIKE]
    check = functools.partial(verb, known=verbs, whose="bench" if timed else "explain")
    parser.add_argument("verb", nargs="?" if timed else None, type=check, metavar="VERB", help=", ".join(verbs))
    parser.add_argument(
        "--shape", type=shape, help="of the right side, x, y or the scores (default 1000,100; 1000,100,1 of kalman)"
    )
    parser.add_argument("--axis", type=int, default=-1, help="along which the systems lie (default -1)")
    kinds = f"{', '.join(SUPPORTED)} (default float64)"
    parser.add_argument("--dtype", choices=SUPPORTED, default="float64", metavar="DTYPE", help=kinds)
    parser.add_argument("--library", choices=(*LIBRARIES, *(["all"] if timed else [])), default="numpy")
    parser.add_argument("--pivoting", type=promise, default="auto", help="auto (the default), True or False")
    parser.add_argument("--periodic", action="store_true", help="systems whose last row is coupled with the first")
    parser.add_argument("--gradient", action="store_true", help="the result and its gradient in every array")
    parser.add_argument("--device", choices=DEVICES, help="where it is not given the library chooses")


def problem_of(options: argparse.Namespace, library: str) -> Problem:
    verb = options.verb
    if options.periodic and "periodic" not in VERBS[verb].options:
        able = ", ".join(name for name, known in VERBS.items() if "periodic" in known.options)
        raise ValueError(f"{verb} has no argument periodic; {able} have")
    length = options.shape or kind_of(verb).usual
    given = verb, length, options.axis, options.dtype, library, options.pivoting, options.gradient
    return Problem(*given, options.device, options.periodic)
