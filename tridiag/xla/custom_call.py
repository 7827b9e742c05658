"""Compiled kernels for JAX arrays on CPU: one XLA custom call, no copy, no Python at run time."""

from __future__ import annotations

import functools
import math
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tridiag.kernels.jobs import copies, logsumexp, matrices, recurrences
from tridiag.kernels.jobs.batches import contiguous
from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.storage import Storage
from tridiag.kernels.jobs.systems import adjoint_of, granted, make_job, make_partition_job, restored, threads
from tridiag.kernels.jobs.words.copies import DOUBTFUL, A, B, C
from tridiag.kernels.jobs.words.job import POINTERS
from tridiag.kernels.jobs.words.logsumexp import RESULT
from tridiag.kernels.jobs.words.systems import A_, B_, C_, D_, DETERMINANT, ENTRIES, WHERE_, X_, Systems
from tridiag.kernels.runtime.object_cache import made_by, obtain
from tridiag.kernels.runtime.sources import source_hash
from tridiag.kernels.table import kernel, name_of
from tridiag.libraries.jax import vary_alike
from tridiag.problems.forms import Blocks, Cut, Form, Recurrence
from tridiag.xla.partitioning import cut_over, devices_at_once, divided, may_be_sharded, tag
from tridiag.xla.programs import for_threads

Shape = tuple[int, ...]

WORTH_CUTTING = 2048  # rows: eliminated at once, the workspace of a vector of longer systems leaves the caches

_alive: dict[str, Any] = {}  # the handlers registered with XLA
_lock = threading.Lock()


def target(family: str, *arguments: Any) -> str:
    """The name of the FFI handler around a kernel (`tridiag.kernels.table.kernel`); registered at its first use."""
    inner = kernel(family, *arguments)
    name = name_of(family, *arguments)
    # a compiled program kept on disk must not meet another layout of the job
    handler = f"tridiag_{name}_{source_hash():x}"
    with _lock:
        if handler not in _alive:
            _alive[handler] = obtain("xla_handler", made_by("runtime.xla_handler.build"), inner)
            capsule = jax.ffi.pycapsule(_alive[handler].address)
            jax.ffi.register_ffi_target(handler, capsule, platform="cpu", api_version=1)
    return handler


@functools.cache
def calling_recurrence(order: int) -> Callable[..., Any]:
    def call(form: Recurrence, *arrays: Any) -> Any:
        dtype, shapes, strides = extents_of(form, arrays)
        job = recurrences.make_job(form, order, shapes, strides, dtype, granted(form), devices_at_once())
        return call_recurrence(job, form, arrays)

    call.__name__ = f"recurrence{order}"
    return call


def call_matrices(form: Recurrence, *arrays: Any) -> Any:
    dtype, shapes, strides = extents_of(form, arrays)
    return call_recurrence(matrices.make_matrix_job(form, shapes, strides, dtype, granted(form)), form, arrays)


def solve_block(matrix: Sequence[Any], d: Any, form: Blocks) -> Any:
    """The custom call of `numba_thomas` for block tridiagonal systems, on every device that has some of them."""
    return shard_over_devices(call_blocks, form, [d, *(x.astype(d.dtype) for x in matrix)], None)


def call_blocks(form: Blocks, *arrays: Any) -> Any:
    dtype, shapes, strides = extents_of(form, arrays)
    return call_recurrence(matrices.make_block_job(form, shapes, strides, dtype, granted(form)), form, arrays)


def extents_of(form: Any, arrays: Sequence[Any]) -> Any:
    """The dtype, and the shapes and strides of the result and of arrays as XLA lays them out."""
    dtype, shapes = np.dtype(arrays[0].dtype), (form.shape, *(x.shape for x in arrays))
    return dtype, shapes, tuple(contiguous(shape, dtype.itemsize) for shape in shapes)


def call_recurrence(job: Job, form: Any, arrays: Sequence[Any]) -> Any:
    """The custom call of a job whose pointers are the result and then arrays."""
    operands = {POINTERS + k: x for k, x in enumerate(arrays, 1)}
    result = {POINTERS: jax.typeof(arrays[0]).update(shape=form.shape)}
    return custom_call(job, operands, result)[0]


@functools.cache
def calling_logarithms(weighted: bool, given: bool) -> Callable[..., Any]:
    def call(form: Recurrence, *arrays: Any) -> Any:
        found = iter(arrays)
        operands = [next(found) if there else None for there in (weighted, given, True)]
        dtype, shapes = np.dtype(arrays[-1].dtype), (*(x if x is None else x.shape for x in operands), form.shape)
        strides = tuple(shape and contiguous(shape, dtype.itemsize) for shape in shapes)
        job = logsumexp.make_job(form, shapes, strides, dtype, granted(form, logsumexp.WEIGHTED if weighted else 1))
        result = {POINTERS + RESULT: jax.typeof(arrays[-1]).update(shape=form.shape)}
        places = {POINTERS + k: x for k, x in enumerate(operands)}
        return custom_call(job, places, result)[0]

    call.__name__ = f"logarithms{weighted:d}{given:d}"
    return call


def call(form: Form, a: Any, b: Any, c: Any, d: Any, where: Any = None) -> Any:
    facts = facts_of(form, a, b, c, where, d)
    return call_solve(make_job(*facts, 0, granted(form)), form, a, b, c, d, where)


def call_long(form: Form, a: Any, b: Any, c: Any, d: Any, where: Any = None) -> Any:
    facts = facts_of(form, a, b, c, where, d)
    return call_solve(make_partition_job(*facts, granted(form)), form, a, b, c, d, where)


def call_gathered(form: Form, a: Any, b: Any, c: Any, d: Any, where: Any = None) -> Any:
    """By whichever of the two kernels takes less time and memory for systems of so many rows."""
    return (call_long if long(form) else call)(form, a, b, c, d, where)


def long(form: Form) -> bool:
    """Whether systems are worth to be cut into chunks; no cyclic one is."""
    return form.n >= WORTH_CUTTING and not form.periodic


def call_solve(job: Job, form: Form, a: Any, b: Any, c: Any, d: Any, where: Any) -> Any:
    operands = {POINTERS + A_: a, POINTERS + B_: b, POINTERS + C_: c, POINTERS + D_: d, POINTERS + WHERE_: where}
    result = {POINTERS + X_: jax.typeof(d).update(shape=form.shape)}
    alias = {3: 0} if form.overwrite_d and d.shape == form.shape else None
    return custom_call(job, operands, result, alias)[0]


def call_adjoint(form: Form, a: Any, b: Any, c: Any, g: Any, x: Any, where: Any = None) -> Any:
    facts = facts_of(form._replace(transpose=not form.transpose), a, b, c, where, g)
    operands = {POINTERS + k: array for k, array in enumerate((a, b, c, where, g))} | {Systems.solution.word: x}
    results = dict.fromkeys([POINTERS + X_, *(Systems.gradients.word + k for k in range(3))], jax.typeof(x))
    return custom_call(adjoint_of(make_job(*facts, 0, granted(form))), operands, results)


def call_status(form: Form, a: Any, b: Any, c: Any, where: Any = None) -> Any:
    """Of each matrix 0, or 1 + the row of the zero pivot that partial pivoting meets."""
    return status_of(make_job, (0,), form, a, b, c, where)


def call_status_gathered(form: Form, a: Any, b: Any, c: Any, where: Any = None) -> Any:
    return (call_status_long if long(form) else call_status)(form, a, b, c, where)


def call_status_long(form: Form, a: Any, b: Any, c: Any, where: Any = None) -> Any:
    return status_of(make_partition_job, (), form, a, b, c, where)


def status_of(maker: Callable[..., Job], flags: tuple[int, ...], form: Form, a: Any, b: Any, c: Any, where: Any) -> Any:
    """What rows tell that are dominant; else what a solve tells."""
    solved = functools.partial(status_of_solve, maker, flags, form)
    matrix = [(np.dtype(x.dtype), tuple(x.shape)) for x in (a, b, c)]
    inside = jax.sharding.get_abstract_mesh().manual_axes  # where branches have to vary alike
    if where is not None or inside or not copies.suits(form, matrix):
        return solved(a, b, c, where)
    doubtful = jnp.zeros((), jnp.int32)  # written to where a row does not tell
    places = {POINTERS + k: x for k, x in zip((A, B, C, DOUBTFUL), (a, b, c, doubtful), strict=True)}
    job = copies.make_job(form, Storage.of(matrix), granted(form))
    (doubtful,) = custom_call(job, places, {POINTERS + DOUBTFUL: jax.typeof(doubtful)}, {3: 0})
    regular = jnp.zeros(form.matrix_batch, jnp.int32)
    return lax.cond(doubtful == 0, lambda: regular, lambda: solved(a, b, c, None))


def status_of_solve(
    maker: Callable[..., Job], flags: tuple[int, ...], form: Form, a: Any, b: Any, c: Any, where: Any
) -> Any:
    """What a solve tells, of any right side: of a diagonal, which lies as that of a solve does, or of zeros."""
    form = form._replace(shape=form.matrix_shape, pivoting="auto")
    status = jnp.zeros(form.matrices, jnp.int32)  # written to where a pivot is zero
    status, zeros, b = vary_alike((status, jnp.zeros((1,) * len(form.shape), b.dtype), b))
    right = next((x for x in (b, a, c) if x.shape == form.shape), zeros)
    job = maker(*facts_of(form, a, b, c, where, right), *flags, granted(form))
    operands = {POINTERS + k: x for k, x in enumerate((a, b, c, where, right))} | {Systems.status.word: status}
    results = {POINTERS + X_: jax.typeof(b).update(shape=form.shape), Systems.status.word: jax.typeof(status)}
    alias = {len([x for x in operands.values() if x is not None]) - 1: 1}
    return restored(job, custom_call(job, operands, results, alias)[1], form)


def call_determinants(form: Form, a: Any, b: Any, c: Any, where: Any = None) -> tuple[Any, Any]:
    """Signs and logarithms of the determinants of matrices."""
    form, shapes, strides, (dtype, _) = facts_of(form._replace(shape=form.matrix_shape), a, b, c, where, b)
    sides: tuple[None, None] = None, None
    facts = form, (*shapes[:D_], *sides), (*strides[:D_], *sides), (dtype, dtype)
    job = make_job(*facts, DETERMINANT, granted(form))
    operands = {POINTERS + k: x for k, x in enumerate((a, b, c, where))}
    sign = jax.typeof(b).update(shape=(form.matrices,))
    logarithm = sign.update(dtype=dtype.type(0).real.dtype)
    found = custom_call(job, operands, {POINTERS + X_: sign, Systems.logarithm.word: logarithm})
    return restored(job, found[0], form), restored(job, found[1], form)


def call_entries(form: Form, a: Any, b: Any, c: Any, where: Any = None) -> tuple[list[Any], Any]:
    """Entries of A^-T where A has its bands, and which matrices lose digits (`tridiag.backends.numba_thomas`)."""
    form = Form(form.matrix_shape, form.matrix_shape, form.axis)
    form, shapes, strides, (dtype, _) = facts_of(form, a, b, c, where, b)
    facts = form, (*shapes[:D_], None, shapes[X_]), (*strides[:D_], None, strides[X_]), (dtype, dtype)
    job = make_job(*facts, ENTRIES, granted(form))
    operands = {POINTERS + k: x for k, x in enumerate((a, b, c, where))}
    result, first = jax.typeof(b).update(shape=form.shape), Systems.gradients.word
    results = {first + k: result for k in range(3)}
    status = result.update(shape=(form.matrices,), dtype=np.dtype(np.int32))
    *found, lossy = custom_call(job, operands, results | {Systems.status.word: status})
    return found, restored(job, lossy, form)


def facts_of(form: Form, a: Any, b: Any, c: Any, where: Any, d: Any) -> tuple[Form, Any, Any, Any]:
    """What the job of such arrays is made of: XLA lays them out contiguous."""
    dtypes = np.dtype(b.dtype), np.dtype(d.dtype)
    shapes: list[Any] = [x if x is None else tuple(x.shape) for x in (a, b, c, where, d)] + [form.shape]
    sizes = [dtypes[0].itemsize] * 3 + [1] + [dtypes[1].itemsize] * 2
    strides = [s and contiguous(s, size) for s, size in zip(shapes, sizes, strict=True)]
    return form._replace(overwrite_d=False), tuple(shapes), tuple(strides), dtypes


def custom_call(job: Job, operands: Any, results: Any, aliases: Any = None) -> tuple[Any, ...]:
    """One custom call; operands and the types of results go by the places of their addresses in the job."""
    given = {place: x for place, x in operands.items() if x is not None}
    places, kinds = np.array([*given, *results]), tuple(results.values())
    old = 0 in (aliases or {}).values() or sys.platform != "linux"
    fresh = 0 if old else math.prod(kinds[0].shape) * np.dtype(kinds[0].dtype).itemsize
    function = jax.ffi.ffi_call(target(*job.kernel), kinds, input_output_aliases=aliases)
    return tuple(function(*given.values(), job=np.concatenate((job.words, [helpers_of(job), fresh], places))))


def helpers_of(job: Job) -> int:
    """Those of a job on one of several devices, which share the threads of this process."""
    return min(job.helpers, max(1, threads() // devices_at_once()) - 1)


# ------------------------------------------------------------------------------------------------- several devices


def shard_over_devices(
    function: Callable[..., Any],
    form: Any,
    operands: list[Any],
    where: Any,
    results: int = 1,
    split: Any = None,
    of_rows: bool = True,
    numbers: int = 0,
) -> Any:
    """``function(form, *operands)``; where arrays may be sharded, every device calls it with the systems that it has.

    Where it has rows of systems, it calls ``split(form, cut, *operands)`` with them, if that is given; else they are
    gathered.

    Operands are a, b, c and right sides, or what a recurrence has; results have the full shape, without the axis of
    rows where they are not ``of_rows``, and with one more at the end for ``numbers``, if there are some. Inside
    `shard_map` the systems are apart already; where that leaves some axes of the mesh to the compiler, it gathers along
    them.
    """
    operands = operands if where is None else [*operands, where]
    if not may_be_sharded():
        return function(form, *operands)
    shapes = tuple(x.shape for x in operands)
    call = partitioned(function, split, form, shapes, where is not None, results, of_rows, numbers)
    return call(*operands, tag(function.__name__, form))


@for_threads
def partitioned(
    function: Callable[..., Any],
    split: Any,
    form: Any,
    shapes: Sequence[Shape],
    masked: bool,
    results: int,
    of_rows: bool,
    numbers: int,
) -> Any:
    """`divided`, where only axes are gathered that are none of the batch, and that the function cannot split."""
    rank, most = len(form.shape), max(map(len, shapes))  # matrices, and what has numbers, have one axis more
    whole = (*form.whole, *range(rank, most))
    names = [f"row{k}" if k in whole else f"batch{k}" for k in range(most)]
    kept = [k for k in range(rank) if of_rows or k != form.axis]  # axes of results
    lengths = (*form.shape, *form.shape[-1:] * (most - rank))

    def where_full(shape: Shape, values: Any, otherwise: Any) -> list[Any]:
        return [v if m == n else u for v, u, m, n in zip(values, otherwise, shape, lengths, strict=False)]

    def rows_over(mesh: Any, arguments: Any) -> Any:
        """The axes of the mesh over which most operands have their rows spread."""
        specs = [tuple(x.sharding.spec) + (None,) * most for x in arguments[: len(shapes)]]
        found = [spec[form.axis] for spec, shape in zip(specs, shapes, strict=True) if shape[form.axis] == form.n]
        return max(found, key=lambda axes: Cut.along(axes, mesh.shape).parts)

    def plan(mesh: Any, arguments: Any, results: Any) -> Any:
        offered = [*results[0].sharding.spec, *[None] * rank][: len(kept)]
        if not of_rows:
            rows = rows_over(mesh, arguments)
            taken = {*Cut.along(rows, mesh.shape).names}
            offered = [None if taken & {*Cut.along(axes, mesh.shape).names} else axes for axes in offered]
            offered.insert(form.axis, rows)
        batch = [*offered, *[None] * (most - len(offered))]
        cut = cut_over(mesh, batch[form.axis]) if split else None
        batch = [None if k in whole and not (cut and k == form.axis) else axis for k, axis in enumerate(batch)]
        *specs, spec = [where_full(shape, batch, [None] * most) for shape in (*shapes, form.shape)]
        run = functools.partial(split, form, cut) if cut else part
        return run, specs, [[spec[k] for k in kept]] * len(results)

    def part(*operands: Any) -> Any:
        return function(form.narrowed([x.shape for x in operands], masked), *operands)

    own = [[f"operand{k}_{name}" for name in names] for k in range(len(shapes))]
    mapped = [where_full(shape, names, other) for shape, other in zip(shapes, own, strict=True)]
    found = [*(names[k] for k in kept), *["numbers"] * bool(numbers)]
    used = {name for some in (*mapped, found) for name in some}
    replicated = tuple(names[k] for k in whole if not (split and k == form.axis) and names[k] in used)
    return divided(functools.partial(function, form), plan, mapped, [found] * results, replicated)
