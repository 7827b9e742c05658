"""The verbs inside `torch.compile` and `torch.export`: each is one node of the graph, into which Dynamo does not look.

So they are in a graph that `make_fx` or `torch.jit.trace` records. What compiles the graph does look into it.
Arguments are prepared as always, from shapes that may be symbols, and what is decided from these is guarded; what
backends compute is an operator.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch

from tridiag.calls import execute, outputs, sequences
from tridiag.calls.blocks import prepare_blocks
from tridiag.calls.plan import Call, prepare, wants_check
from tridiag.derivatives import torch_operators  # noqa: F401  registers the operators before a graph is made
from tridiag.libraries.torch_tracers import recorded


def solve(
    arguments: dict[str, Any], where: Any, out: Any, check: bool | None, perturb: bool, options: dict[str, Any]
) -> Any:
    refuse_argument(out, (*arguments.values(), where))
    x = solve_node(where=where, like=out, check=check, perturb=perturb, **arguments, **options)
    d = arguments["d"]
    if out is None and options["overwrite_d"] and takes(d, x, (arguments["a"], arguments["b"], arguments["c"], where)):
        out = d
    return x if out is None else out.copy_(x)


def refuse_argument(out: Any, arguments: Any) -> None:
    """Refuse to write to an argument. Of what shares its memory only the same tensor can be seen here."""
    if any(out is y for y in arguments if y is not None):
        raise ValueError("out is one of the arguments; pass an array of its own memory")


def takes(d: Any, x: Any, others: Any) -> bool:
    """Whether d can hold the solution. Of what shares its memory only the same tensor can be seen here."""
    if not isinstance(d, torch.Tensor) or d.shape != x.shape or d.dtype != x.dtype or any(d is y for y in others):
        return False
    return d.is_contiguous() or not outputs.self_overlaps(d.shape, d.stride(), 1)


@torch.compiler.allow_in_graph
def solve_node(
    a: Any, b: Any, c: Any, d: Any, where: Any, like: Any, check: bool | None, perturb: bool, **options: Any
) -> Any:
    """The solution, which fits ``like``; Dynamo has a meaning of its own for arguments called ``out``."""
    arguments = {"a": a, "b": b, "c": c, "d": d}
    call = prepare("solve", arguments, where=where, **options)
    if like is not None:
        outputs.check_fit(call, arguments, like)
    if perturb:
        return execute.solve_perturbed(traced(call))
    return execute.solve(traced(call), call.plan.backend, wants_check(call.plan, check))


def product(arguments: dict[str, Any], where: Any, out: Any, options: dict[str, Any]) -> Any:
    refuse_argument(out, (*arguments.values(), where))
    y = matmul(where=where, like=out, **arguments, **options)
    return y if out is None else out.copy_(y)


@torch.compiler.allow_in_graph
def matmul(a: Any, b: Any, c: Any, x: Any, where: Any, like: Any, **options: Any) -> Any:
    """The product, which fits ``like``."""
    arguments = {"a": a, "b": b, "c": c, "x": x}
    call = prepare("matmul", arguments, where=where, **options)
    if like is not None:
        outputs.check_fit(call, arguments, like)
    return execute.product(call)


@torch.compiler.allow_in_graph
def slogdet(a: Any, b: Any, c: Any, where: Any, **options: Any) -> Any:
    return execute.determinants(traced(prepare("slogdet", {"a": a, "b": b, "c": c}, where=where, **options)))


@torch.compiler.allow_in_graph
def solve_block(A: Any, B: Any, C: Any, d: Any, backend: str) -> Any:
    return execute.blocks_solved(traced(prepare_blocks(A, B, C, d, backend=backend)))


def recurrence(verb: str, given: dict[str, Any], return_final: bool, out: Any, options: dict[str, Any]) -> Any:
    results = recurrence_node(verb, return_final, out, **given, **options)
    if out is None:
        return results
    y, *values = results if return_final else (results,)
    return (out.copy_(y), *values) if return_final else out.copy_(y)


@torch.compiler.allow_in_graph
def recurrence_node(verb: str, return_final: bool, like: Any, **given: Any) -> Any:
    arguments, call = sequences.PREPARERS[verb](verb, **given)
    if like is not None:
        outputs.check_fit(call, arguments, like)
    y = execute.recurrence(verb, traced(call))
    return (y, execute.last(verb, call, y, given)) if return_final else y


WHY_OUTSIDE = (
    "tridiag's factor, selective_scan, smith_waterman and Kalman filters are no nodes of a graph: they run between two "
    "graphs, compiled by tridiag, with their gradients. Put the call outside of torch.compile, or leave out "
    "fullgraph=True."
)
UNRECORDED = (
    "make_fx and torch.jit.trace record solve, matmul, slogdet, solve_block, recurrences and logcumsumexp of tridiag, "
    "but not its factor, selective_scan, smith_waterman and Kalman filters, which are no operators of PyTorch; put the "
    "call outside of what is traced, or use torch.compile, which calls it between two graphs"
)
REASONED = {"reason": WHY_OUTSIDE} if "reason" in inspect.signature(torch.compiler.disable).parameters else {}


@torch.compiler.disable(**REASONED)
def outside(function: Any, *arguments: Any, **options: Any) -> Any:
    """A call that no graph can hold: it breaks the graph, and is refused where operations are recorded as they run."""
    if recorded():
        raise TypeError(UNRECORDED)
    return function(*arguments, **options)


def traced(call: Call) -> Call:
    return call._replace(plan=call.plan._replace(traced=True))
