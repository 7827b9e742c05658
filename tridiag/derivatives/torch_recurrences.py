"""The derivative rules of recurrences for PyTorch."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from tridiag.algorithms import logsumexp
from tridiag.algorithms import recurrence as recursion
from tridiag.backends import Backend, Problem
from tridiag.calls.plan import Call
from tridiag.derivatives.torch_systems import operators
from tridiag.libraries.arrays import dtype_name
from tridiag.libraries.torch import Operations as ops
from tridiag.libraries.torch import differentiated, transformed
from tridiag.problems.forms import Recurrence
from tridiag.selection.choose import alongside


def recurrence(verb: str, call: Call, backend: Backend, out: Any) -> Any:
    arrays = *call.matrix, call.d, *call.init
    if differentiated(*arrays) or (out is None and (call.traced or transformed())):
        return RECURRENCES[verb].apply(Course(call.form, backend, len(call.matrix), call.traced), *arrays)
    if out is None:
        return getattr(backend.module(), verb)(call.matrix, call.d, call.init, call.form)
    lazy = out.is_conj() or out.is_neg()
    direct = out if out.dtype == call.d.dtype and not lazy else None
    y = getattr(backend.module(), verb)(call.matrix, call.d, call.init, call.form, direct)
    if direct is not None:
        torch.autograd.graph.increment_version(direct)  # as in `solve`
    return y


class Course(NamedTuple):
    form: Recurrence
    backend: Backend
    order: int  # so many of the arrays are coefficients; then come x, and what is before the first step
    traced: bool = False  # as in `Options`

    def parts(self, arrays: Any) -> tuple[Any, Any, Any]:
        return arrays[: self.order], arrays[self.order], arrays[self.order + 1 :]

    def transposed(self) -> Course:
        return self._replace(form=self.form._replace(transpose=not self.form.transpose))

    def run(self, verb: str, arrays: Any) -> Any:
        if self.traced:
            return operators().recurrence_node(verb, self, arrays)
        return getattr(self.backend.module(), verb)(*self.parts(arrays), self.form)


class Sequence(torch.autograd.Function):
    @staticmethod
    def forward(course: Course, *arrays: Any) -> Any:
        return course.run("matrix_recurrence" if course.form.matrices else "linear_recurrence", arrays)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        course, *arrays = inputs
        coefficients, x, init = course.parts(arrays)
        ctx.course, ctx.x_shape = course, x.shape
        ctx.save_for_backward(*coefficients, output, *init)
        ctx.save_for_forward(*coefficients, output, *init)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        course: Course = ctx.course
        coefficients, y, init = course.parts(ctx.saved_tensors)
        of_coefficients, of_x, of_init = course.parts(ctx.needs_input_grad[1:])
        w = Sequence.apply(course.transposed(), *coefficients, g.conj()).conj()
        grads = [
            coefficient_cotangent(a, w, y.conj(), k, init, course.form) if needed else None
            for k, (a, needed) in enumerate(zip(coefficients, of_coefficients, strict=True), 1)
        ]
        before = [
            first_cotangent(coefficients, w, k, course.form).sum_to_size(value.shape) if needed else None
            for k, (value, needed) in enumerate(zip(init, of_init, strict=True))
        ]
        return None, *grads, w.sum_to_size(ctx.x_shape) if of_x else None, *before

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
        course: Course = ctx.course
        coefficients, y, init = course.parts(ctx.saved_tensors)
        changes, right, starts = course.parts(tangents)
        right = torch.zeros_like(y) if right is None else right.expand(y.shape)
        for k, change in enumerate(changes, 1):
            if change is not None:
                right = right + recursion.term(ops, change, y, k, init, course.form)
        if any(start is not None for start in starts):
            starts = tuple(torch.zeros_like(v) if s is None else s for v, s in zip(init, starts, strict=True))
            for k, a in enumerate(coefficients, 1):
                right = right + recursion.term(ops, a, torch.zeros_like(y), k, starts, course.form)
        return Sequence.apply(course, *coefficients, right)

    @staticmethod
    def vmap(info: Any, in_dims: Any, course: Course, *arrays: Any) -> Any:
        return Sequence.apply(*batched(info.batch_size, in_dims, course, arrays)), 0


def batched(size: int, in_dims: Any, course: Course, arrays: Any) -> list[Any]:
    """The arguments with a new first axis."""
    lifted = [x.unsqueeze(0) if dim is None else x.movedim(dim, 0) for x, dim in zip(arrays, in_dims[1:], strict=True)]
    form = course.form._replace(shape=(size, *course.form.shape), axis=course.form.axis + 1)
    return [course._replace(form=form), *lifted]


class LogSequence(torch.autograd.Function):
    """Derivatives are one linear recurrence: `tridiag.algorithms.logsumexp.shares`."""

    @staticmethod
    def forward(course: Course, *arrays: Any) -> Any:
        return course.run("log_linear_recurrence" if course.order else "logcumsumexp", arrays)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        course, *arrays = inputs
        ctx.course = course
        ctx.save_for_backward(*arrays, output)
        ctx.save_for_forward(*arrays, output)

    @staticmethod
    def linear(ctx: Any) -> tuple[Course, Any, Any, Any]:
        """The linear recurrence of the derivatives, and the shares."""
        *arrays, y = ctx.saved_tensors
        form, backend, _, traced = ctx.course
        coefficients, x, init = ctx.course.parts(arrays)
        problem = Problem("linear_recurrence", "torch", y.device.type, dtype_name(y.dtype), form.shape, form.axis, None)
        return Course(form, alongside(backend, problem), 1, traced), *logsumexp.shares(
            ops, coefficients, x, y, init, form
        )

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        course: Course = ctx.course
        coefficients, x, init = course.parts(ctx.saved_tensors[:-1])
        linear, p, q, of_past = LogSequence.linear(ctx)
        w = Sequence.apply(linear.transposed(), p, g.conj()).conj()
        of_coefficients = [(of_past * w).sum_to_size(a.shape) for a in coefficients]
        of_init = [first_cotangent((of_past,), w, 0, course.form).sum_to_size(value.shape) for value in init]
        return None, *of_coefficients, (q.conj() * w).sum_to_size(x.shape), *of_init

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: Any) -> Any:
        linear, p, q, of_past = LogSequence.linear(ctx)
        changes, right, starts = ctx.course.parts(tangents)
        right = torch.zeros_like(p) if right is None else q * right
        for change in changes:
            right = right if change is None else right + of_past * change
        for start in starts:
            if start is not None:
                right = right + recursion.term(ops, of_past, torch.zeros_like(p), 1, (start,), linear.form)
        return Sequence.apply(linear, p, right)

    @staticmethod
    def vmap(info: Any, in_dims: Any, course: Course, *arrays: Any) -> Any:
        return LogSequence.apply(*batched(info.batch_size, in_dims, course, arrays)), 0


RECURRENCES: dict[str, Any] = {
    "linear_recurrence": Sequence,
    "matrix_recurrence": Sequence,
    "log_linear_recurrence": LogSequence,
    "logcumsumexp": LogSequence,
}


def coefficient_cotangent(a: Any, w: Any, y: Any, k: int, init: Any, form: Recurrence) -> Any:
    """w times what the coefficient multiplies, summed where it is shared; the real part for a real one."""
    left, right = (y, w) if form.transpose else (w, y)  # the one on the right is that of k steps before
    before = tuple(v.conj() for v in init)
    if form.matrices:
        left, right, before = left[..., None], right[..., None, :], tuple(v[..., None, :] for v in before)
    grad = recursion.term(ops, left, right, k, before, form._replace(transpose=False, matrices=False))
    grad = grad.real if grad.is_complex() and not a.is_complex() else grad
    return grad.sum_to_size(a.shape)


def first_cotangent(coefficients: Any, w: Any, k: int, form: Recurrence) -> Any:
    """Of the value k + 1 steps before the first: conj(a_{k+1+i}) w in step i, as far as there are both."""
    total = torch.zeros_like(ops.slice(w, slice(0, 1), form.axis))
    for i, a in enumerate(coefficients[k : k + form.n]):
        t = recursion.row_of(form, i)
        row = a if a.shape[form.axis] == 1 else a.narrow(form.axis, t, 1)
        total = total + recursion.products(row.conj(), w.narrow(form.axis, t, 1), form._replace(transpose=True))
    return total
