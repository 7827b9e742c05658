"""Functions of arrays that XLA spreads over devices: which axes may be spread, and what each device calls."""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tridiag.kernels.runtime.sources import source_hash
from tridiag.problems.forms import Cut

# older JAX cannot be told that the system axis is to be whole: there, sharded arguments are gathered
DIVIDES = "need_replication_factors" in inspect.signature(custom_partitioning.def_partition).parameters

_spread: contextvars.ContextVar[int] = contextvars.ContextVar("spread", default=1)  # devices of what is traced


@contextlib.contextmanager
def spread_over(devices: int) -> Iterator[None]:
    """What is traced within is called by so many devices."""
    before = _spread.set(devices)
    try:
        yield
    finally:
        _spread.reset(before)


def devices_at_once() -> int:
    """How many devices of this process call what is traced, all at the same time: they share its threads."""
    mesh = jax.sharding.get_abstract_mesh()
    inside = math.prod(mesh.shape.values()) if mesh.manual_axes else 1
    return min(max(_spread.get(), inside), jax.local_device_count("cpu"))


def may_be_sharded() -> bool:
    """Whether XLA may find arrays on several devices, of which we are told."""
    return jax.device_count("cpu") > 1 and DIVIDES and not jax.sharding.get_abstract_mesh().manual_axes


def cut_over(mesh: Any, axes: Any) -> Cut | None:
    """How rows are spread that lie along some axes of a mesh; None where they are on one device."""
    cut = Cut.along(axes, mesh.shape)
    return cut if cut.parts > 1 else None


def divided(
    function: Callable[..., Any],
    plan: Callable[[Any, Any, Any], tuple[Callable[..., Any], Sequence[Any], Sequence[Any]]],
    given: Sequence[Sequence[str]],
    found: Sequence[Sequence[str]],
    whole: tuple[str, ...],
) -> Callable[..., Any]:
    """The function, and of sharded arrays what ``plan(mesh, arguments, results)`` says.

    That is a function of what each device has, and over which axes of the mesh the axes of operands and of results are
    spread. ``given``, ``found``: names of these axes, the same where they are spread alike; ``whole``: those that are
    never spread. One more operand, the last, is not read. It tells what is called, as `tag` does: nothing else in the
    program says so, and a compiled program kept on disk would be taken for another.
    """

    def partition(mesh: Any, arguments: Any, result: Any) -> Any:
        leaves, tree = jax.tree.flatten(result)
        if mesh.empty:
            mesh, arguments, leaves = on_every_device(arguments, leaves)
        run, *specs = plan(mesh, arguments, leaves)
        before, behind = ([NamedSharding(mesh, PartitionSpec(*spec)) for spec in some] for some in specs)
        unread = NamedSharding(mesh, PartitionSpec())

        def on_each(*operands: Any) -> Any:
            with spread_over(math.prod(mesh.shape.values())):
                return run(*operands[:-1])

        return mesh, on_each, tree.unflatten(behind), (*before, unread)

    call = custom_partitioning(lambda *operands: function(*operands[:-1]))
    rule = f"{', '.join(map(' '.join, given))}, -> {', '.join(map(' '.join, found))}"
    call.def_partition(partition, sharding_rule=rule, need_replication_factors=whole)
    return call


def on_every_device(arguments: Sequence[Any], results: Sequence[Any]) -> tuple[Mesh, list[Any], list[Any]]:
    """A mesh of the devices of a program none of whose arrays has one, and its arrays, whole on each of them.

    Such are programs of arrays of one device inside `jax.set_mesh`: they run on all devices of that mesh.
    """
    devices = sorted(results[0].sharding.device_set, key=lambda device: device.id)
    mesh = Mesh(np.array(devices), ("devices",))
    whole = NamedSharding(mesh, PartitionSpec())
    found = ([jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole) for x in some] for some in (arguments, results))
    return mesh, *found


def tag(*what: Any) -> np.uint32:
    """A number of what is called, and of the kernels."""
    return np.uint32(zlib.crc32(repr((*what, source_hash())).encode()))
