"""Tell which backend a call would use, and why each other one would not be used; nothing is solved."""

from __future__ import annotations

import argparse

from tridiag.commands.arguments import add_problem, problem_of
from tridiag.commands.terminal import show
from tridiag.report import OTHERS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_problem(parser)
    parser.add_argument("--backend", default="auto", help='as in the call (default "auto")')


def run(options: argparse.Namespace) -> int:
    found = problem_of(options, options.library).explain(options.backend)
    show(found.head, OTHERS, found.rows, text=2)
    return 0
