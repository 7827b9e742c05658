"""Thomas and pivoted elimination in compiled tiles of systems, O(8n) flops, with threads of its own.

The kernels are in `tridiag.kernels`. Arrays of any strides are read where they lie. A real matrix with complex right
sides is the real matrix with twice as many right sides. Stability: certificate, partial pivoting, refinement, as
`tridiag.algorithms.elimination`. Block tridiagonal systems are in `tridiag.kernels.blocks`, about 9 m^3 flops a
block row; stability as `tridiag.algorithms.block_elimination`. Products of `matmul` are in
`tridiag.kernels.products.kernel`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tridiag.algorithms.matrix_rows import Matrix
from tridiag.kernels.jobs import matrices, products
from tridiag.kernels.jobs.batches import contiguous, is_packed, packed
from tridiag.kernels.jobs.caches import room_for_results
from tridiag.kernels.jobs.job import Job
from tridiag.kernels.jobs.storage import Storage
from tridiag.kernels.jobs.systems import (
    FEWEST_MATRICES,
    SCRATCH,
    WORTH_A_THREAD,
    granted,
    lanes_of,
    leaves_hard,
    leaving_hard,
    make_job,
    restored,
    threads,
    worth_threads,
)
from tridiag.kernels.jobs.words import systems as J
from tridiag.kernels.on_demand import word_of
from tridiag.kernels.runtime.python_call import check
from tridiag.kernels.table import Call, call_of
from tridiag.libraries.arrays import library_of
from tridiag.problems.forms import Blocks, Form, Recurrence, Shape

REGULAR = np.zeros((), np.int32)  # the status where no elimination met a zero pivot
QUICKLY_ELIMINATED = 4  # rows
STATUS_TO_LOGARITHM = (None,) * 4  # operands that a backward pass does without


class Factors(NamedTuple):
    """The eliminated tiles of certified systems; any other is eliminated again, which reads no more words."""

    tiles: np.ndarray[Any, Any]
    kinds: np.ndarray[Any, Any]
    status: np.ndarray[Any, Any]

    @property
    def saved(self) -> bool:
        """Whether most matrices are not to be eliminated again."""
        uncertified = np.count_nonzero(self.kinds == J.UNCERTIFIED)
        return self.tiles.size > 0 and bool(2 * uncertified <= self.kinds.size)


Extents = tuple[tuple[int, ...] | None, ...]  # the shapes, or the strides in bytes, of a, b, c, where, d, x


def call_for(form: Form, shapes: Extents, strides: Extents, dtypes: tuple[Any, Any], flags: int = 0) -> Call:
    """Of arrays of these shapes and strides; the dtypes are those of the matrices and of the right sides.

    A function of a, b, c, where, d, x, and what else has a pointer.
    """
    if not flags:
        return call_of(make_solving_job, form, shapes, strides, dtypes, granted(form))
    return call_of(make_job, form, shapes, strides, dtypes, flags, granted(form))


def make_solving_job(form: Form, shapes: Extents, strides: Extents, dtypes: tuple[Any, Any], workers: int) -> Job:
    """`make_job` of a solve, where the kernel for hard systems may be another one."""
    job, dtype = make_job(form, shapes, strides, dtypes, 0, workers), np.dtype(dtypes[0])
    return leaving_hard(job, word_of("partition", dtype.name), workers) if leaves_hard(job, form, dtype) else job


def extents(operands: Sequence[Any]) -> tuple[Extents, Extents]:
    """The shapes and the strides; lists are made in half the time of generators."""
    shapes = [None if x is None else x.shape for x in operands]
    return tuple(shapes), tuple([None if x is None else x.strides for x in operands])


def bound_solve(form: Form, shapes: Extents, strides: Extents, dtypes: tuple[Any, Any]) -> Callable[..., bool]:
    """The solve of such arrays as a function of a, b, c, where, d, x; it tells whether some system may be singular."""
    return checked(form, lambda: call_for(form, shapes, strides, dtypes).run)


def checked(
    form: Form | Recurrence | Blocks, call: Callable[[], Callable[..., int]], threaded: bool | None = None
) -> Callable[..., bool]:
    """A kernel, which ``call`` finds, with its result checked; for systems worth threads, that of those granted now."""
    return Threaded(call) if (worth_threads(form) if threaded is None else threaded) else Checked(call())


class Checked:
    """A kernel, ``run``, with its result checked."""

    __slots__ = ("run",)
    threaded = False

    def __init__(self, run: Callable[..., int]) -> None:
        self.run = run

    def __call__(self, *arrays: Any) -> bool:
        return check(self.run(*arrays))


class Threaded:
    """A kernel with the threads that are granted when it is called, which ``find`` finds, with its result checked."""

    __slots__ = ("find",)
    threaded = True

    def __init__(self, find: Callable[[], Callable[..., int]]) -> None:
        self.find = find

    @property
    def run(self) -> Callable[..., int]:
        return self.find()

    def __call__(self, *arrays: Any) -> bool:
        return check(self.find()(*arrays))


def solve(matrix: Matrix, d: Any, form: Form, out: Any = None, factors: Any = None) -> tuple[Any, Any]:
    library = library_of(d)
    if library == "jax":
        return solve_jax_arrays(matrix, d, form, factors), None
    if library == "torch":
        result = d.new_empty(form.shape) if out is None else out
        _, status = solve(tuple(map(view, matrix)), view(d), form, view(result), factors)
        return result, status
    x = np.empty(form.shape, d.dtype) if out is None else out
    operands, factors = (*matrix, d, x), factors if saves_elimination(form) else None
    flags, more = (0, ()) if factors is None else (J.FACTORED, (None, factors.tiles, factors.kinds))
    call = call_for(form, *extents(operands), (matrix[1].dtype, d.dtype), flags)
    if check(call.run(*operands, *more)):
        return x, None  # what is not finite is looked at: a transpose may meet a zero pivot where its factors have none
    return x, REGULAR if factors is None else factors.status


def adjoint_from_factors(matrix: Matrix, g: Any, x: Any, form: Form, factors: Any) -> Any:
    """What `adjoint` computes of JAX arrays, from factors; None where there are none of such matrices."""
    from tridiag.xla import factored_systems

    kept = factors.tiles is not None and saves_elimination(form)
    return factored_systems.adjoint(matrix, g, x, form, factors) if kept else None


def solve_jax_arrays(matrix: Matrix, d: Any, form: Form, factors: Any) -> Any:
    """The solution, from factors where there are some of such matrices and they save something."""
    from tridiag.xla import factored_systems, systems

    kept = factors is not None and factors.tiles is not None and saves_elimination(form)
    x = factored_systems.solve(matrix, d, form, factors) if kept else None
    return systems.solve(matrix, d, form, factors) if x is None else x


def view(x: Any) -> Any:
    """The memory of a torch tensor as a NumPy array, through DLPack, without a copy."""
    if x is None or isinstance(x, np.ndarray):
        return x
    from tridiag.libraries import torch

    return np.from_dlpack(torch.settled(x))


def bound_factored_solve(form: Form, shapes: Extents, strides: Extents, dtypes: tuple[Any, Any]) -> Callable[..., bool]:
    """As `bound_solve`, with factors: a function of a, b, c, where, d, x, None, and their tiles and kinds."""
    return checked(form, lambda: call_for(form, shapes, strides, dtypes, J.FACTORED).run)


def too_few_for_factors(form: Form, dtype: np.dtype[Any]) -> bool:
    """Whether systems, which do not lie side by side, fill no quarter of a vector, or long ones not one of each thread.

    Long: what a thread keeps of a vector of them, beside what else it has, leaves its caches. Those of `few_matrices`
    are solved from factors by one thread; where they are worth several, all solve them anew.
    """
    lanes, count = lanes_of(dtype), math.prod(form.batch)
    long = form.n * dtype.itemsize * lanes > SCRATCH * 3 // 4
    if few_matrices(form, dtype):
        return form.n * count >= WORTH_A_THREAD and granted(form) > 1
    end_to_end = math.prod(form.shape[form.axis + 1 :]) == 1
    return end_to_end and count < (lanes * granted(form) if long else lanes // 4 + 1)


def few_matrices(form: Form, dtype: np.dtype[Any]) -> bool:
    """Whether there is a right side each of several matrices, so few that some are solved at a time, by numbers."""
    count = math.prod(form.batch)
    return form.shape == form.matrix_shape and 1 < count < FEWEST_MATRICES and dtype.kind == "f"


def keeps_factors(form: Form) -> bool:
    """Whether there are any: matrices that exchange rows throughout are eliminated again, and so are cyclic ones."""
    return form.pivoting is not True and not form.periodic


def saves_elimination(form: Form) -> bool:
    """Whether right sides take less time from factors.

    Of systems with one right side each these are as many words as the matrices: no less is read. Of systems side by
    side they are read group by group, not row by row, and a few rows are eliminated in the time that reading takes.
    """
    alone, end_to_end = form.shape == form.matrix_shape, math.prod(form.shape[form.axis + 1 :]) == 1
    return keeps_factors(form) and (not alone or (end_to_end and form.n > QUICKLY_ELIMINATED))


def find_zero_pivots(matrix: Matrix, form: Form, bind: Callable[..., Any] | None = None) -> Any:
    """For each matrix 0, or 1 + the row of the first zero pivot of elimination with partial pivoting.

    ``bind``: `bound_zero_pivots` of another kernel.
    """
    if library_of(matrix[1]) == "torch":
        import torch

        return torch.as_tensor(find_zero_pivots(tuple(map(view, matrix)), form, bind))
    return (bind or bound_zero_pivots)(form, *extents((*matrix, None, None)), matrix[1].dtype)(*matrix)


def bound_zero_pivots(
    form: Form, shapes: Extents, strides: Extents, dtype: np.dtype[Any], call_for: Callable[..., Call] = call_for
) -> Callable[..., np.ndarray[Any, Any]]:
    """The same of such matrices as a function of a, b, c, where: what a solve tells of any d.

    It is a diagonal, which lies as that of a solve does, or zeros. ``call_for``: that of another kernel.
    """
    form = form._replace(pivoting=form.pivoting or "auto", shape=form.matrix_shape)
    zeros = np.broadcast_to(np.zeros((), dtype), form.shape)
    place = next((k for k in (1, 0, 2) if shapes[k] == form.shape), None)
    right = zeros.strides if place is None else strides[place]
    given = (*shapes[:4], form.shape, form.shape), (*strides[:4], right, contiguous(form.shape, dtype.itemsize))

    def zero_pivots(*matrix: Any) -> np.ndarray[Any, Any]:
        call, status = call_for(form, *given, (dtype, dtype)), np.zeros(form.matrices, np.int32)
        d = zeros if place is None else matrix[place]
        check(call.run(*matrix, d, np.empty(form.shape, dtype), status))
        return np.array(restored(call.job, status, form))

    return zero_pivots


def factor(matrix: Matrix, form: Form) -> Factors:
    matrix = tuple(map(view, matrix))
    return bound_factor(form, *extents((*matrix, None, None)), matrix[1].dtype)(*matrix)


def factor_of_jax_arrays(matrix: Matrix, form: Form) -> Any:
    """What joins systems whose rows lie on several devices; others are eliminated anew, which reads no more words."""
    from tridiag.xla import systems

    return systems.factor(matrix, form)


def worth_keeping(matrix: Matrix, form: Form) -> bool:
    """Whether JAX arrays that hold the factors of matrices are made for right sides that come later.

    Of one right side each these take less time than the matrices themselves as long as caches hold the factors, unless
    systems are so few and so long that all threads together solve them anew in less.
    """
    from tridiag.xla import factored_systems

    dtype, own = np.dtype(matrix[1].dtype), form._replace(shape=form.matrix_shape)
    fit = 3 * math.prod(form.matrix_shape) * dtype.itemsize <= 2 * room_for_results()
    if not fit or dtype.kind not in "fc" or form.pivoting != "auto" or not factored_systems.on_one_device(form):
        return False
    return saves_elimination(own) and not (granted(own) > 1 and too_few_for_factors(own, dtype))


def kept_factors(matrix: Matrix, form: Form) -> Any:
    """Such factors, and the status."""
    from tridiag.xla import factored_systems

    return factored_systems.factor(matrix, form)


def bound_factor(form: Form, shapes: Extents, strides: Extents, dtype: np.dtype[Any]) -> Factoring:
    """The factors of such matrices as a function of a, b, c, where."""
    facts = form, shapes, strides, (dtype, dtype), J.FACTORING
    run, job, count = checked(form, lambda: call_for(*facts).run), call_for(*facts).job, form.matrices
    words = J.Systems.view(job.words)
    lanes = int(words.lanes)
    few = max(2, count) if form.n else count  # those of one matrix from the bottom up are as a second one's
    whole = (few, form.n, 3) if words.shared else (-(-count // lanes), form.n, 3, lanes)
    return Factoring(run, job, form, whole if keeps_factors(form) else (0,), dtype)


class Factoring(NamedTuple):
    """The factors of matrices of such facts, as a function of a, b, c, where."""

    run: Callable[..., Any]
    job: Any
    form: Form
    shape: tuple[int, ...]  # of the tiles
    dtype: np.dtype[Any]

    def __call__(self, *matrix: Any) -> Factors:
        count = self.form.matrices
        status, kinds = np.zeros(count, np.int32), np.full(count, J.UNCERTIFIED, np.uint8)
        storage = Storage.of([(self.dtype, self.shape)])  # from a cache line on, so that a row of lanes is one
        (tiles,) = storage.views(np.empty(storage.size, np.uint8))
        self.run(*matrix, None, None, status, tiles, kinds)
        return Factors(tiles, kinds, restored(self.job, status, self.form))


def slogdet(matrix: Matrix, form: Form) -> tuple[Any, Any]:
    library = library_of(matrix[1])
    if library == "jax":
        from tridiag.xla import systems

        return systems.slogdet(matrix, form)
    if library == "torch":
        import torch

        sign, logarithm = (torch.as_tensor(x) for x in slogdet(tuple(map(view, matrix)), form))
        return sign, logarithm
    return bound_slogdet(form, *extents((*matrix, None, None)), matrix[1].dtype)(*matrix)


def bound_slogdet(form: Form, shapes: Extents, strides: Extents, dtype: np.dtype[Any]) -> Determinants:
    """The determinants of such matrices as a function of a, b, c, where."""
    facts = form, shapes, strides, (dtype, dtype), J.DETERMINANT
    run, job = checked(form, lambda: call_for(*facts).run), call_for(*facts).job
    return Determinants(run, job, form, dtype)


def inverse_entries(matrix: Matrix, form: Form) -> tuple[Any, Any]:
    """The entries of A^-T where A has its bands, of matrices that are not periodic: an array of those of a, b and c.

    They are the gradients of log |det A|, and 0 where no coupling is. Of each matrix is told, by a number that is not
    0, whether they may lack digits, which were lost to underflow, as those of a singular one do.
    """
    if library_of(matrix[1]) == "torch":
        import torch

        results, lossy = inverse_entries(tuple(map(view, matrix)), form)
        return torch.from_numpy(results), torch.from_numpy(lossy)
    *bands, where = matrix
    shape, dtype = form.matrix_shape, bands[1].dtype
    results, lossy = np.empty((3, *shape), dtype), np.empty(form.matrices, np.int32)
    call = call_for(
        Form(shape, shape, form.axis), *extents((*bands, where, None, results[0])), (dtype, dtype), J.ENTRIES
    )
    check(call.run(*bands, where, None, None, lossy, None, None, None, None, *results))
    return results, restored(call.job, lossy, form)


class Determinants(NamedTuple):
    """The determinants of matrices of such facts, as a function of a, b, c, where."""

    function: Callable[..., bool]
    job: Any
    form: Form
    dtype: np.dtype[Any]

    def __call__(self, *matrix: Any) -> tuple[Any, Any]:
        shape = self.form.matrix_batch if self.in_order else (self.form.matrices,)
        sign, logarithm = np.empty(shape, self.dtype), np.empty(shape, self.dtype.type(0).real.dtype)
        self.function(*matrix, None, sign, None, None, None, logarithm)
        if self.in_order:
            return sign, logarithm
        return restored(self.job, sign, self.form), restored(self.job, logarithm, self.form)

    @property
    def in_order(self) -> bool:
        """Whether the kernel has the matrices in the order of the caller."""
        return len(self.job.order) < 2

    @property
    def run(self) -> Any:
        """The kernel, where its results are those of the call as they are; else None."""
        alike = self.in_order and self.dtype.kind == "f"
        return getattr(self.function, "run", None) if alike else None

    @property
    def threaded(self) -> bool:
        """As `Threaded`."""
        return isinstance(self.function, Threaded)


def product(matrix: Matrix, x: Any, form: Form) -> Any:
    """A x or A^T x; the terms of a row are added in the order of `tridiag.algorithms.products`.

    None where NumPy is no slower.
    """
    operands = operands_of_product(matrix, x, form)
    y = operands[0]
    call = bound_product(form, *extents(operands), y.dtype)
    if call is None:
        return None
    call(*operands)
    if library_of(x) != "torch":
        return y
    import torch

    return torch.from_numpy(y)


def operands_of_product(matrix: Matrix, x: Any, form: Form) -> tuple[Any, ...]:
    """Memory for the product, x, the bands in its dtype, and the mask."""
    *bands, where, x = map(view, (*matrix, x))
    return np.empty(form.shape, x.dtype), x, *(band.astype(x.dtype, copy=False) for band in bands), where


def has_product(matrix: Matrix, x: Any, form: Form) -> bool:
    """Whether a kernel multiplies them."""
    operands = operands_of_product(matrix, x, form)
    return products.suits(form, *extents(operands), operands[0].dtype)


def bound_product(form: Form, shapes: Extents, strides: Extents, dtype: np.dtype[Any]) -> Callable[..., bool] | None:
    """The product as a function of the result, x, a, b, c, where of such shapes and strides; None: not by a kernel."""
    if not products.suits(form, shapes, strides, dtype):
        return None
    facts, threaded = (products.make_job, form, shapes, strides, dtype), products.worth_threads(form, dtype)
    return checked(form, lambda: call_of(*facts, threads() if threaded else 1).run, threaded)


def solve_block(matrix: tuple[Any, Any, Any], d: Any, form: Blocks) -> Any:
    """As `tridiag.algorithms.block_elimination`, one system in each lane, or few of them one by one."""
    if library_of(d) == "jax":
        from tridiag.xla import custom_call

        return custom_call.solve_block(matrix, d, form)
    dtype = np.result_type(*(view(x).dtype for x in (*matrix, d)))
    given = [packed(view(x).astype(dtype, copy=False), 2) for x in (d, *matrix)]
    x = np.empty(form.shape, dtype)
    check(call_of(matrices.make_block_job, form, *extents((x, *given)), dtype, granted(form)).run(x, *given))
    if library_of(d) != "torch":
        return x
    import torch

    return torch.from_numpy(x)


def bound_blocks(
    form: Blocks, shapes: tuple[Shape, ...], strides: tuple[Shape, ...], dtype: np.dtype[Any]
) -> Callable[..., bool] | None:
    """The solve of block systems as a function of x, d, A, B, C; None where they are to be brought side by side."""
    if not all(map(is_packed, shapes, strides, [2] * len(shapes), [dtype.itemsize] * len(shapes))):
        return None
    facts = matrices.make_block_job, form, shapes, strides, dtype
    return checked(form, lambda: call_of(*facts, granted(form)).run)


def adjoint(matrix: Matrix, g: Any, x: Any, form: Form) -> tuple[Any, ...]:
    """The backward pass: w, and the gradients of a, b and c, all of the shape of x."""
    library = library_of(g)
    if library == "jax":
        from tridiag.xla import systems

        return systems.adjoint(matrix, g, x, form)
    results = [x.new_empty(form.shape) if library == "torch" else np.empty(form.shape, x.dtype) for _ in range(4)]
    w, *gradients = map(view, results)
    operands, dtype = (*map(view, matrix), view(g), w), w.dtype
    turned = form._replace(transpose=not form.transpose, overwrite_d=False)
    call = call_for(turned, *extents(operands), (dtype, dtype), J.ADJOINT)
    check(call.run(*operands, *STATUS_TO_LOGARITHM, np.ascontiguousarray(view(x)), *gradients))
    return tuple(results)


def bound_adjoint(form: Form, shapes: Extents, strides: Extents, dtype: np.dtype[Any]) -> Callable[..., bool]:
    """The backward pass of such arrays: a function of a, b, c, where, g, w, contiguous x, and the gradients."""
    turned = form._replace(transpose=not form.transpose, overwrite_d=False)
    run = checked(form, lambda: call_for(turned, shapes, strides, (dtype, dtype), J.ADJOINT).run)
    return lambda a, b, c, where, g, w, *rest: run(a, b, c, where, g, w, *STATUS_TO_LOGARITHM, *rest)
