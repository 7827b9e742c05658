"""What backends compute, as operators that a graph of `torch.compile` or `torch.export` holds and does not look into.

Of an operator the graph knows the shape of the result (its fake) and the derivative, which is the rule of
`tridiag.derivatives.torch_systems`. Operands are arrays in the normal form and plain options; the form is made anew
from the shapes, which are symbols while a graph is made for more than one shape.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from tridiag.algorithms.matrix_rows import Matrix
from tridiag.backends import BACKENDS, Backend
from tridiag.derivatives.torch_blocks import SolveBlock
from tridiag.derivatives.torch_recurrences import RECURRENCES, Course
from tridiag.derivatives.torch_systems import (
    DIFFERENTIABLE,
    Options,
    Solve,
    determinant_cotangents,
    forward,
    shift_shape,
    whole_shift,
)
from tridiag.problems.forms import Blocks, Form, Recurrence, Shape, broadcast

MATRIX = "Tensor a, Tensor b, Tensor c, Tensor? where"
SYSTEM = "int axis, bool periodic, bool transpose, str pivoting, str backend"
SEQUENCE = "Tensor[] coefficients, Tensor x, Tensor[] init, int axis, bool reverse, bool transpose, str backend"
PROMISES: dict[str, bool | str] = {"auto": "auto", "True": True, "False": False}


def operator(name: str, schema: str) -> Any:
    """What makes a function an operator of PyTorch; none writes to its operands, or returns one."""
    return torch.library.custom_op(f"tridiag::{name}", mutates_args=(), schema=schema)


def shape_of(arrays: Any) -> Shape:
    """The broadcast shape of arrays of one rank."""
    shapes = {str(k): tuple(x.shape) for k, x in enumerate(arrays) if x is not None}
    return broadcast(shapes, shapes)


# ---------------------------------------------------------------------------------------------------------- systems


def facts(options: Options) -> tuple[Any, ...]:
    """The options of an operator on systems."""
    form = options.form
    return form.axis, form.periodic, form.transpose, str(form.pivoting), options.backend.name


def options_of(matrix: Matrix, d: Any, axis: int, periodic: bool, transpose: bool, pivoting: str, name: str) -> Options:
    """From operands and ``facts`` to what they were made from."""
    shape, matrix_shape = shape_of((*matrix, d)), shape_of(matrix)
    matrix_shape = (*matrix_shape[:axis], shape[axis], *matrix_shape[axis + 1 :])
    form = Form(shape, matrix_shape, axis, periodic, transpose, PROMISES[pivoting])
    return Options(form, BACKENDS[name])


def solve_node(matrix: Matrix, d: Any, options: Options) -> Any:
    return solve(*matrix, d, *facts(options), options.check)


@operator("solve", f"({MATRIX}, Tensor d, {SYSTEM}, bool check) -> Tensor")
def solve(a: Any, b: Any, c: Any, where: Any, d: Any, *rest: Any) -> Any:
    matrix = a, b, c, where
    options = options_of(matrix, d, *rest[:-1])._replace(check=rest[-1])
    with torch.no_grad():
        return forward(matrix, d, options).contiguous()


@solve.register_fake
def solve_fake(a: Any, b: Any, c: Any, where: Any, d: Any, *rest: Any) -> Any:
    return d.new_empty(shape_of((a, b, c, where, d)))


def solve_context(ctx: Any, inputs: Any, output: Any) -> None:
    a, b, c, where, d, *rest, _ = inputs
    options = options_of((a, b, c, where), d, *rest)._replace(traced=True)
    Solve.setup_context(ctx, (a, b, c, d, where, options), output)


def solve_backward(ctx: Any, g: Any) -> Any:
    needed = ctx.needs_input_grad
    of_a, of_b, of_c, of_d, *_ = Solve.backward(seen(ctx, (*needed[:3], needed[4])), g)
    return of_a, of_b, of_c, None, of_d, *[None] * 6


def seen(ctx: Any, needed: Any) -> Any:
    """The context of an operator, as that of the function of the same derivative."""
    return SimpleNamespace(**vars(ctx), saved_tensors=ctx.saved_tensors, needs_input_grad=needed)


solve.register_autograd(solve_backward, setup_context=solve_context)


def shift_node(arrays: Any, eps: float, options: Options) -> Any:
    a, b, c, d, where = arrays
    return shift(a, b, c, where, d, *facts(options), eps)


@operator("shift", f"({MATRIX}, Tensor d, {SYSTEM}, float eps) -> Tensor")
def shift(a: Any, b: Any, c: Any, where: Any, d: Any, *rest: Any) -> Any:
    with torch.no_grad():
        return whole_shift(a, b, c, d, where, rest[-1], options_of((a, b, c, where), d, *rest[:-1]))


@shift.register_fake
def shift_fake(a: Any, b: Any, c: Any, where: Any, d: Any, *rest: Any) -> Any:
    options = options_of((a, b, c, where), d, *rest[:-1])
    return torch.empty(shift_shape(options.form), dtype=b.dtype.to_real(), device=b.device)


def adjoint_node(matrix: Matrix, g: Any, x: Any, options: Options) -> Any:
    return adjoint(*matrix, g, x, *facts(options))


@operator("adjoint", f"({MATRIX}, Tensor g, Tensor x, {SYSTEM}) -> (Tensor, Tensor, Tensor, Tensor)")
def adjoint(a: Any, b: Any, c: Any, where: Any, g: Any, x: Any, *rest: Any) -> Any:
    options = options_of((a, b, c, where), g, *rest)
    with torch.no_grad():
        return options.backend.module().adjoint((a, b, c, where), g, x, options.form)


@adjoint.register_fake
def adjoint_fake(a: Any, b: Any, c: Any, where: Any, g: Any, x: Any, *rest: Any) -> Any:
    return tuple(x.new_empty(x.shape) for _ in range(4))


# ----------------------------------------------------------------------------------------------------- determinants

DETERMINANT = "int axis, bool periodic, str backend"


def determinant_node(matrix: Matrix, form: Form, backend: Backend) -> Any:
    return slogdet(*matrix, form.axis, form.periodic, backend.name)


def determinants(where: Any, axis: int, periodic: bool, name: str) -> Any:
    """Sign and logarithm as a function of a, b and c."""

    def function(a: Any, b: Any, c: Any) -> Any:
        matrix = a, b, c, where
        shape = shape_of(matrix)
        return BACKENDS[name].module().slogdet(matrix, Form(shape, shape, axis, periodic, pivoting=True))

    return function


@operator("slogdet", f"({MATRIX}, {DETERMINANT}) -> (Tensor, Tensor)")
def slogdet(a: Any, b: Any, c: Any, where: Any, *rest: Any) -> Any:
    with torch.no_grad():
        sign, logarithm = determinants(where, *rest)(a, b, c)
    return sign.contiguous(), logarithm.contiguous()


@slogdet.register_fake
def slogdet_fake(a: Any, b: Any, c: Any, where: Any, axis: int, *rest: Any) -> Any:
    shape = shape_of((a, b, c, where))
    sign = b.new_empty((*shape[:axis], *shape[axis + 1 :]))
    return sign, torch.empty_like(sign, dtype=sign.dtype.to_real())


def slogdet_context(ctx: Any, inputs: Any, output: Any) -> None:
    *matrix, ctx.axis, ctx.periodic, ctx.name = inputs
    ctx.save_for_backward(*matrix)


def slogdet_backward(ctx: Any, of_sign: Any, of_logarithm: Any) -> Any:
    grads = slogdet_cotangents(*ctx.saved_tensors, of_sign, of_logarithm, ctx.axis, ctx.periodic, ctx.name)
    return *grads, *[None] * 4


slogdet.register_autograd(slogdet_backward, setup_context=slogdet_context)


PULLED = f"{MATRIX}, Tensor of_sign, Tensor of_logarithm, {DETERMINANT}"


@operator("slogdet_cotangents", f"({PULLED}) -> (Tensor, Tensor, Tensor)")
def slogdet_cotangents(
    a: Any, b: Any, c: Any, where: Any, of_sign: Any, of_logarithm: Any, axis: int, periodic: bool, name: str
) -> Any:
    """Of periodic matrices elimination is run again, in operations that torch differentiates."""
    matrix = a, b, c, where
    if not periodic:
        shape = shape_of(matrix)
        with torch.no_grad():
            sign = determinants(where, axis, periodic, name)(a, b, c)[0] if b.is_complex() else of_sign
            form, cotangents = Form(shape, shape, axis), (of_sign, of_logarithm)
            found = determinant_cotangents(matrix, sign, cotangents, form, BACKENDS[name])
        return tuple(x.contiguous() for x in found)
    function = determinants(where, axis, periodic, DIFFERENTIABLE.name)
    _, pullback = torch.func.vjp(function, a.detach(), b.detach(), c.detach())
    return tuple(x.contiguous() for x in pullback((of_sign, of_logarithm)))


@slogdet_cotangents.register_fake
def slogdet_cotangents_fake(a: Any, b: Any, c: Any, *rest: Any) -> Any:
    return tuple(x.new_empty(x.shape) for x in (a, b, c))


# ----------------------------------------------------------------------------------------------------------- blocks


def block_options(matrix: Any, d: Any, transpose: bool, name: str) -> Options:
    batch = shape_of([*(x[..., 0, 0] for x in matrix), d[..., 0, 0]])
    return Options(Blocks((*batch, *d.shape[-2:]), transpose), BACKENDS[name])


def block_node(matrix: Any, d: Any, options: Options) -> Any:
    return solve_block(*matrix, d, options.form.transpose, options.backend.name)


@operator("solve_block", "(Tensor A, Tensor B, Tensor C, Tensor d, bool transpose, str backend) -> Tensor")
def solve_block(A: Any, B: Any, C: Any, d: Any, transpose: bool, name: str) -> Any:
    options = block_options((A, B, C), d, transpose, name)
    with torch.no_grad():
        return options.backend.module().solve_block((A, B, C), d, options.form).contiguous()


@solve_block.register_fake
def solve_block_fake(A: Any, B: Any, C: Any, d: Any, transpose: bool, name: str) -> Any:
    dtype = torch.promote_types(B.dtype, d.dtype)
    return d.new_empty(block_options((A, B, C), d, transpose, name).form.shape, dtype=dtype)


def solve_block_context(ctx: Any, inputs: Any, output: Any) -> None:
    *matrix, d, transpose, name = inputs
    options = block_options(matrix, d, transpose, name)._replace(traced=True)
    SolveBlock.setup_context(ctx, (*matrix, d, options), output)


def solve_block_backward(ctx: Any, g: Any) -> Any:
    return *SolveBlock.backward(ctx, g)[:4], None, None


solve_block.register_autograd(solve_block_backward, setup_context=solve_block_context)


# ------------------------------------------------------------------------------------------------------ recurrences


def recurrence_node(verb: str, course: Course, arrays: Any) -> Any:
    coefficients, x, init = course.parts(arrays)
    form = course.form
    rest = form.axis, form.reverse, form.transpose, course.backend.name
    return SEQUENCES[verb](list(coefficients), x, list(init), *rest)


def recurrence_operator(verb: str) -> Any:
    """The operator of a verb on recurrences."""
    function = RECURRENCES[verb]

    def course_of(coefficients: Any, x: Any, init: Any, axis: int, reverse: bool, transpose: bool, name: str) -> Course:
        matrices = verb == "matrix_recurrence"
        rows = [a[..., 0] for a in coefficients] if matrices else coefficients
        form = Recurrence(shape_of((*rows, x, *init)), axis, reverse, transpose, matrices)
        return Course(form, BACKENDS[name], len(coefficients), traced=True)

    @operator(verb, f"({SEQUENCE}) -> Tensor")
    def run(coefficients: Any, x: Any, init: Any, *rest: Any) -> Any:
        course = course_of(coefficients, x, init, *rest)._replace(traced=False)
        if 0 in course.form.shape:  # which a graph for any number of sequences does not see
            return x.new_empty(course.form.shape)
        with torch.no_grad():
            return course.run(verb, (*coefficients, x, *init)).contiguous()

    @run.register_fake
    def fake(coefficients: Any, x: Any, init: Any, *rest: Any) -> Any:
        return x.new_empty(course_of(coefficients, x, init, *rest).form.shape)

    def context(ctx: Any, inputs: Any, output: Any) -> None:
        coefficients, x, init, *_ = inputs
        function.setup_context(ctx, (course_of(*inputs), *coefficients, x, *init), output)

    def backward(ctx: Any, g: Any) -> Any:
        of_coefficients, of_x, of_init, *_ = ctx.needs_input_grad
        _, *grads = function.backward(seen(ctx, (False, *of_coefficients, of_x, *of_init)), g)
        of_coefficients, of_x, of_init = ctx.course.parts(grads)
        return of_coefficients, of_x, of_init, *[None] * 4

    run.register_autograd(backward, setup_context=context)
    return run


SEQUENCES = {verb: recurrence_operator(verb) for verb in RECURRENCES}
