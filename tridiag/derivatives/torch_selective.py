"""The derivatives of selective scans for PyTorch.

A backward pass keeps the states before each of about sqrt(n) chunks, and computes those of a chunk again; one that is
differentiated itself, and derivatives that are taken forward, keep those of all steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from tridiag.algorithms import recurrence as recursion
from tridiag.algorithms import selective_scan as selective
from tridiag.backends import Backend, Problem
from tridiag.derivatives import torch_recurrences
from tridiag.libraries.arrays import dtype_name
from tridiag.libraries.torch import Operations as ops
from tridiag.libraries.torch import differentiated, transformed
from tridiag.problems.forms import Recurrence
from tridiag.problems.selective import Operands, SelectiveScan
from tridiag.selection.choose import alongside


def run(operands: Operands, form: SelectiveScan, backend: Backend, traced: bool, out: Any) -> tuple[Any, Any]:
    arrays = [x for x in operands if x is not None]
    if differentiated(*arrays) or (out is None and transformed()):
        found: tuple[Any, Any] = Scan.apply(Course(form, backend), *operands)
        return found
    y, last = backend.module().selective_scan(operands, form, out)
    if out is not None:
        torch.autograd.graph.increment_version(out)
    return y, last


class Course(NamedTuple):
    form: SelectiveScan
    backend: Backend

    def of_steps(self, part: slice) -> Course:
        return self._replace(form=self.form.steps(part.stop - part.start))

    def run(self, operands: Operands) -> tuple[Any, Any]:
        """The result and the last states, without derivatives."""
        found: tuple[Any, Any] = self.backend.module().selective_scan(operands, self.form)
        return found

    def composed(self, *operands: Any) -> tuple[Any, Any]:
        """The same by operations that PyTorch differentiates, all states stored."""
        found = self.cut(operands)
        y, last = selective.readout(ops, found, selective.states_of(ops, self.linear, found, self.form), self.form)
        return y.expand(self.form.shape), last.squeeze(self.form.axis)

    def cut(self, operands: Any) -> Operands:
        """The operands, 0 in the place of a coefficient that is not read: it has no derivative either."""
        found = Operands(*operands)
        if found.init is not None or found.a.shape[self.form.axis] == 1:
            return found
        return found._replace(a=recursion.cut(ops, found.a, 1, self.form.recurrence))

    def tangent(self, operands: Any, changes: Any) -> tuple[Any, Any]:
        """The change of both with that of the operands, None where one does not change; all states stored."""
        p, form = self.cut(operands), self.form
        given = zip(operands, changes, strict=True)
        d = Operands(*(torch.zeros_like(x) if x is not None and change is None else change for x, change in given))
        of_terms = d.x * p.B + p.x * d.B
        coefficients, _ = selective.coefficients_and_terms(ops, p)
        of_coefficients = d.a
        if p.step is not None:
            of_coefficients = coefficients * (d.step * p.a + p.step * d.a)
            of_terms = d.step * p.x * p.B + p.step * of_terms
        init, of_init = ((), ()) if p.init is None else ((p.init,), (d.init,))
        states = selective.states_of(ops, self.linear, p, form)
        right = of_terms + recursion.term(ops, of_coefficients, states, 1, init, form.recurrence)
        of_y, last = selective.readout(ops, p, self.linear((coefficients,), right, of_init, form.recurrence), form)
        return of_y + (d.C * states).sum(-1), last.squeeze(form.axis)

    def linear(self, coefficients: Any, x: Any, init: Any, form: Recurrence) -> Any:
        kind = Problem("linear_recurrence", "torch", x.device.type, dtype_name(x.dtype), form.shape, form.axis, None)
        course = torch_recurrences.Course(form, alongside(self.backend, kind), 1)
        return torch_recurrences.Sequence.apply(course, *coefficients, x, *init)


class Scan(torch.autograd.Function):
    @staticmethod
    def forward(course: Course, *operands: Any) -> tuple[Any, Any]:
        return course.run(Operands(*operands))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.course, *operands = inputs
        ctx.save_for_backward(*operands)
        ctx.save_for_forward(*operands)

    @staticmethod
    def backward(ctx: Any, g: Any, of_last: Any) -> Any:
        operands, needed = ctx.saved_tensors, ctx.needs_input_grad[1:]
        if torch.is_grad_enabled() or transformed():
            return None, *whole(ctx.course, operands, needed, (g, of_last))
        adjoint = getattr(ctx.course.backend.module(), "selective_scan_adjoint", None)
        if adjoint is not None:
            found = adjoint(Operands(*operands), ctx.course.form, g, of_last)
            return None, *(x if need else None for x, need in zip(found, needed, strict=True))
        return None, *in_chunks(ctx.course, Operands(*operands), needed, g, of_last)

    @staticmethod
    def jvp(ctx: Any, _: Any, *changes: Any) -> tuple[Any, Any]:
        found: tuple[Any, Any] = ctx.course.tangent(ctx.saved_tensors, changes)
        return found

    @staticmethod
    def vmap(info: Any, in_dims: Any, course: Course, *operands: Any) -> Any:
        form = course.form._replace(shape=(info.batch_size, *course.form.shape), axis=course.form.axis + 1)
        lifted = [
            None if x is None else x.unsqueeze(0) if dim is None else x.movedim(dim, 0)
            for x, dim in zip(operands, in_dims[1:], strict=True)
        ]
        return Scan.apply(course._replace(form=form), *lifted), (0, 0)


def whole(course: Course, operands: Any, needed: Any, cotangents: Any) -> list[Any]:
    """The gradients by operations that have derivatives themselves."""

    def function(*wanted: Any) -> Any:
        left = iter(wanted)
        return course.composed(*(next(left) if need else x for need, x in zip(needed, operands, strict=True)))

    _, pull = torch.func.vjp(function, *(x for need, x in zip(needed, operands, strict=True) if need))
    found = iter(pull(cotangents))
    return [next(found) if need else None for need in needed]


def in_chunks(course: Course, operands: Operands, needed: Any, g: Any, of_last: Any) -> list[Any]:
    """The gradients, a chunk at a time from the last one back."""
    form, axis = course.form, course.form.axis
    parts, before = [*selective.chunks(form)], [operands.init]
    for part in parts[:-1]:
        some = selective.narrowed(ops, operands, part, before[-1], axis)
        before.append(course.of_steps(part).run(some)[1].unsqueeze(axis))
    totals = [torch.zeros_like(x) if need else None for x, need in zip(operands, needed, strict=True)]
    for part, states in zip(parts[::-1], before[::-1], strict=True):
        some = selective.narrowed(ops, operands, part, states, axis)
        wanted = [*needed[:-1], states is not None and (part is not parts[0] or needed[-1])]
        leaves = [x.detach().requires_grad_() if want else x for x, want in zip(some, wanted, strict=True)]
        with torch.enable_grad():
            results = course.of_steps(part).composed(*leaves)
        those = [leaf for leaf, want in zip(leaves, wanted, strict=True) if want]
        cotangents = g.narrow(axis, part.start, part.stop - part.start), of_last
        pairs = [pair for pair in zip(results, cotangents, strict=True) if pair[0].requires_grad]
        found = iter(torch.autograd.grad([y for y, _ in pairs], those, [of_y for _, of_y in pairs]))
        grads = [next(found) if want else None for want in wanted]
        of_init = grads[-1]
        of_last = None if of_init is None else of_init.squeeze(axis)
        for total, grad in zip(totals[:-1], grads[:-1], strict=True):
            if total is not None:
                here = total if total.shape[axis] == 1 else total.narrow(axis, part.start, part.stop - part.start)
                here += grad
    if totals[-1] is not None:
        totals[-1] += grads[-1]
    return totals
