"""Tell which backend a call would use, and why each other one would not be used; nothing is solved."""

from __future__ import annotations

import argparse

from tridiag.backends import BACKENDS
from tridiag.benchmarking.libraries import DIFFERENTIABLE
from tridiag.benchmarking.problems import Problem
from tridiag.commands.arguments import add_problem, problem_of
from tridiag.commands.terminal import show, tell
from tridiag.problems.state_space import LIKELIHOOD
from tridiag.report import OTHERS, Explanation
from tridiag.selection.choose import alongside

SYSTEMS = "one solve more, of the transposed matrix, by {backend}"
SEQUENCES = "one linear recurrence more, in the other direction, by {backend}"
PRODUCTS = "one product more, of the transposed matrix, by operations of {library}"
OPERATIONS = "what {library} makes of its operations"
FILTERS = "what {library} makes of the steps of {library}_scan"
GRADIENTS = {
    **dict.fromkeys(("solve", "factor", "solve_block"), SYSTEMS),
    **dict.fromkeys(("linear_recurrence", "matrix_recurrence", "log_linear_recurrence", "logcumsumexp"), SEQUENCES),
    "matmul": PRODUCTS,
    "scan": "one scan more, in the other direction, which jax makes of the function of a step",
    **dict.fromkeys(("kalman.predict", "kalman.update"), OPERATIONS),
    "slogdet": "entries of the inverse, from one elimination more, by what {library} itself differentiates",
    "selective_scan": "one pass in the other direction, in chunks whose states are computed again",
    **dict.fromkeys(("kalman.filter", "kalman.smoother"), FILTERS),
    "smith_waterman": "found with the score, by {backend}",
}
LIKELIHOODS = {  # of the library
    "jax": "one pass backwards, compiled on a CPU where the model does not change with time; backwards only",
    "torch": "one pass backwards, in Python; backwards only",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_problem(parser)
    parser.add_argument("--backend", default="auto", help='as in the call (default "auto")')


def run(options: argparse.Namespace) -> int:
    problem = problem_of(options, options.library)
    if options.gradient:
        check_differentiable(problem)
    found = problem.explain(options.backend)
    if found.rows:
        show(found.head, OTHERS, found.rows, text=2)
    else:
        tell(found.head)
    if options.gradient:
        tell(f"Its gradient: {gradient_of(problem, found)}.")
    return 0


def check_differentiable(problem: Problem) -> None:
    if problem.library not in DIFFERENTIABLE:
        raise ValueError(f"{problem.library} arrays have no gradients; take --library {' or '.join(DIFFERENTIABLE)}")


def gradient_of(problem: Problem, found: Explanation) -> str:
    """What a gradient of the call costs, in words, and which backend computes it."""
    verb = found.problem.verb  # that which does the work
    known = LIKELIHOODS[problem.library] if verb == LIKELIHOOD else GRADIENTS[verb]
    backend = found.backend
    if known == SEQUENCES:  # of logarithms too: the derivatives of both are linear recurrences
        verb = verb if verb == "matrix_recurrence" else "linear_recurrence"
        backend = alongside(BACKENDS[backend], found.problem._replace(verb=verb)).name
    return known.format(library=problem.library, backend=backend)
