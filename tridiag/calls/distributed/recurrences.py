"""Recurrences whose steps lie on several devices: each learns the value before its first step, from one gather.

Of linear ones a device tells the product of its coefficients, as mantissa and exponent, and its last value from a start
of zero; of logarithms the sum of its coefficients and that value from a start of -inf. Sequences of which these are not
finite are handed on from device to device instead, one value at a time: what the definition gives.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from tridiag.algorithms import logsumexp, scaled
from tridiag.algorithms.recurrence import row_of
from tridiag.backends import Backend, Problem
from tridiag.calls.distributed import exchange
from tridiag.calls.distributed.placements import Cut
from tridiag.derivatives.torch_recurrences import coefficient_cotangent, first_cotangent
from tridiag.libraries.arrays import dtype_name
from tridiag.libraries.torch import Operations as ops
from tridiag.problems.forms import Recurrence
from tridiag.selection.choose import alongside


class Course(NamedTuple):
    """What is asked of sequences, beside their entries; the form is that of the steps on this device."""

    verb: str
    cut: Cut
    form: Recurrence
    backend: Backend

    def run(self, coefficients: Any, x: Any, init: Any = None) -> Any:
        """The steps of this device from the value before them."""
        verb, before = self.verb, () if init is None else (init,)
        if before and not coefficients:
            verb, coefficients = "log_linear_recurrence", (x.new_zeros((1,) * x.ndim),)
        return getattr(self.backend.module(), verb)(coefficients, x, before, self.form)

    @property
    def order(self) -> list[int]:
        """The devices with steps, the first steps first."""
        places = list(range(self.cut.parts))
        return places[::-1] if self.form.backward else places

    @property
    def first(self) -> bool:
        """Whether the first steps are here."""
        return self.order[0] == self.cut.own

    @property
    def last(self) -> bool:
        return self.order[-1] == self.cut.own

    def transposed(self) -> Course:
        return self._replace(form=self.form._replace(transpose=not self.form.transpose))

    def row(self, x: Any, step: int) -> Any:
        """A step of an array, of length 1 along the axis."""
        axis = self.form.axis
        return x if x.shape[axis] == 1 else x.narrow(axis, row_of(self.form, step % self.form.n), 1)

    def of_row(self, x: Any) -> Any:
        """x, of the shape of one row."""
        return x.expand((*self.form.shape[: self.form.axis], 1, *self.form.shape[self.form.axis + 1 :]))


class Sequence(torch.autograd.Function):
    """y[t] = a[t] y[t-1] + x[t]; its rule is that of `tridiag.derivatives.torch_recurrences`."""

    @staticmethod
    def forward(ctx: Any, a: Any, x: Any, init: Any, course: Course) -> Any:
        y, start = linear(a, x, init, course)
        ctx.course, ctx.start, ctx.x_shape = course, start, x.shape
        ctx.save_for_backward(a, y, init)
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        a, y, init = ctx.saved_tensors
        course: Course = ctx.course
        turned = course.transposed()
        if torch.is_grad_enabled():
            w = Sequence.apply(a, g.conj(), None, turned).conj()
            if course.form.transpose:
                w, before = differentiable_start(w, init, course)
            else:
                y, before = differentiable_start(y, init, course)
        else:
            w, start = linear(a, g.conj(), None, turned)
            w, before = w.conj(), ctx.start
            if course.form.transpose:
                before = None if start is None else start.conj()
        of_a = cotangent_of_coefficients(a, w, y, before, course) if ctx.needs_input_grad[0] else None
        of_init = cotangent_of_init(a, w, init, course) if ctx.needs_input_grad[2] else None
        return of_a, w.sum_to_size(ctx.x_shape) if ctx.needs_input_grad[1] else None, of_init, None


def cotangent_of_coefficients(a: Any, w: Any, y: Any, before: Any, course: Course) -> Any:
    """``before`` is the value before the first step here: of w in a transposed recurrence, else of y."""
    if course.form.n == 0:
        return (y * w).sum_to_size(a.shape)
    known = () if before is None else (before.conj() if course.form.transpose else before,)
    return coefficient_cotangent(a, w, y.conj(), 1, known, course.form)


def cotangent_of_init(a: Any, w: Any, init: Any, course: Course) -> Any:
    """Zero but where the first steps are."""
    if course.form.n == 0:
        return w.sum_to_size(init.shape)
    here = torch.tensor(course.first, device=w.device)
    return torch.where(here, first_cotangent((a,), w, 0, course.form), 0).sum_to_size(init.shape)


def differentiable_start(y: Any, init: Any, course: Course) -> tuple[Any, Any]:
    """y, and the value before its first step here, where both are differentiated once more; None: there is none.

    What is exchanged is part of the graph of every device, so that its gradients are.
    """
    form = course.form._replace(transpose=False)
    start = exchange.Neighbours.apply(y, form.axis, course.cut, False)[1 if form.backward else 0]
    if form.n == 0:
        return y + start, start
    if not course._replace(form=form).first:
        return y, start
    return y + start, None if init is None else course.of_row(init)  # + 0


# ------------------------------------------------------------------------------------------------ linear ones


def linear(a: Any, x: Any, init: Any, course: Course) -> tuple[Any, Any]:
    """y, and the value before its first step: None where there is none."""
    a, x = a.detach().resolve_conj(), x.detach().resolve_conj()
    init = None if init is None else init.detach().resolve_conj()
    form, cut = course.form, course.cut
    like = course.of_row(x.new_zeros((1,) * x.ndim))
    y, told = None, [like, like.real, like]
    if math.prod(form.shape) and not course.last:
        y = course.run((a,), x, init if course.first else None)
        told[2] = carried(a, y, course)
        if not course.first:
            mantissa, exponent = scaled.product(ops, a, form.n, form.axis)
            told[:2] = mantissa, exponent.clamp(-8192, 8192)
    found = exchange.gather(torch.stack([course.of_row(v.to(x.dtype)) for v in told]), cut)
    starts = [like]
    for k in course.order[:-1]:
        mantissa, exponent, out = found[k]
        starts.append(out + scaled.times_power(ops, mantissa * starts[-1], exponent.real))
    start = starts[course.order.index(cut.own)] if cut.own < cut.parts else None
    odd = ~torch.isfinite(torch.stack(starts)).all(0)
    if not math.prod(form.shape):
        y = x.new_empty(form.shape)
    elif y is None or not course.first:
        y = started(a, x, init if course.first else start, course)
    if odd.any():
        y, start = handed_on((a,), x, init, course, odd, y, start)
    return y, (init if init is None else course.of_row(init)) if course.first else start


def started(a: Any, x: Any, start: Any, course: Course) -> Any:
    """The steps of this device; the transposed recurrence adds what comes in to its first step."""
    if start is None or not course.form.transpose:
        return course.run((a,), x, start)
    x = x.expand(course.form.shape).clone(memory_format=torch.contiguous_format)
    course.row(x, 0).add_(start)
    return course.run((a,), x)


def carried(a: Any, y: Any, course: Course) -> Any:
    """What the next device is to know of the last step here."""
    out = course.row(y, -1)
    return course.row(a, -1) * out if course.form.transpose else out


def handed_on(coefficients: Any, x: Any, init: Any, course: Course, odd: Any, y: Any, start: Any) -> tuple[Any, Any]:
    """y and its starts, with some sequences computed one device after another."""
    form, cut, count = course.form, course.cut, int(odd.sum())
    sequences = math.prod(form.batch)  # a device may have none of their rows
    those = odd.movedim(form.axis, -1).reshape(-1).nonzero()[:, 0]

    def picked(v: Any) -> Any:
        lines = v.expand((*form.shape[: form.axis], v.shape[form.axis], *form.shape[form.axis + 1 :]))
        return lines.movedim(form.axis, -1).reshape(sequences, v.shape[form.axis])[those]

    own = course._replace(form=form._replace(shape=(count, form.n), axis=1))
    rows, right, before = tuple(map(picked, coefficients)), picked(x), None if init is None else picked(init)
    value = nothing = right.new_zeros((count, 1))
    found = mine = None
    for k in course.order:
        out = nothing
        if k == cut.own:
            mine = before if course.first else value
            linear_one = own.verb == "linear_recurrence"
            found = started(rows[0], right, mine, own) if linear_one else own.run(rows, right, mine)
            out = nothing if course.last else carried(rows[0] if rows else None, found, own)
        value = exchange.total(out, cut)
    if found is None:
        return y, start
    y = y.movedim(form.axis, -1).reshape(sequences, form.n).clone()
    y[those] = found
    y = y.reshape(*form.batch, form.n).movedim(-1, form.axis).contiguous()
    if start is not None and mine is not None:
        start = start.movedim(form.axis, -1).reshape(-1).clone()
        start[those] = mine[:, 0]
        start = start.reshape(*form.batch, 1).movedim(-1, form.axis)
    return y, start


# ------------------------------------------------------------------------------------------------ of logarithms


class LogSequence(torch.autograd.Function):
    """y[t] = log(exp(log_a[t] + y[t-1]) + exp(x[t])); without coefficients those are 0."""

    @staticmethod
    def forward(ctx: Any, log_a: Any, x: Any, init: Any, course: Course) -> Any:
        y, start = logarithms(log_a, x, init, course)
        ctx.course, ctx.start = course, start
        ctx.save_for_backward(log_a, x, init, y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        log_a, x, init, y = ctx.saved_tensors
        course, form = ctx.course, ctx.course.form
        y, start = differentiable_start(y, init, course) if torch.is_grad_enabled() else (y, ctx.start)
        coefficients, known = () if log_a is None else (log_a,), () if start is None else (start,)
        if form.n:
            p, q, of_past = logsumexp.shares(ops, coefficients, x, y, known, form)
        else:
            p = q = of_past = y + 0 * y
        problem = Problem("linear_recurrence", "torch", y.device.type, dtype_name(y.dtype), form.shape, form.axis, None)
        along = course._replace(verb="linear_recurrence", backend=alongside(course.backend, problem))
        w = Sequence.apply(p, g, None, along.transposed())
        of_a = (of_past * w).sum_to_size(log_a.shape) if ctx.needs_input_grad[0] else None
        of_x = (q * w).sum_to_size(x.shape) if ctx.needs_input_grad[1] else None
        return of_a, of_x, cotangent_of_init(of_past, w, init, course) if ctx.needs_input_grad[2] else None, None


def logarithms(log_a: Any, x: Any, init: Any, course: Course) -> tuple[Any, Any]:
    """y, and the value before its first step: None where there is none."""
    log_a, x, init = (v if v is None else v.detach() for v in (log_a, x, init))
    form, cut, coefficients = course.form, course.cut, () if log_a is None else (log_a,)
    like = course.of_row(x.new_full((1,) * x.ndim, -math.inf)).double()
    y, told = None, [like] if log_a is None else [like, torch.zeros_like(like)]
    if math.prod(form.shape) and not course.last:
        y = course.run(coefficients, x, init if course.first else None)
        told[0] = course.row(y, -1).double()
        if log_a is not None and not course.first:
            times = form.n if log_a.shape[form.axis] == 1 else 1
            told[1] = log_a.double().sum(form.axis, keepdim=True) * times
    found = exchange.gather(torch.stack([course.of_row(v) for v in told]), cut)
    starts, odd = [like], torch.zeros_like(like, dtype=torch.bool)
    for k in course.order[:-1]:
        out, *sums = found[k]
        before = starts[-1] + sums[0] if sums else starts[-1]
        starts.append(torch.logaddexp(before, out))
        if sums:
            odd |= (sums[0] == math.inf) | starts[-1].isnan() | (starts[-1] == math.inf)
    start = starts[course.order.index(cut.own)].to(x.dtype) if cut.own < cut.parts else None
    if not math.prod(form.shape):
        y = x.new_empty(form.shape)
    elif y is None or not course.first:
        y = course.run(coefficients, x, init if course.first else start)
    if odd.any():
        y, start = handed_on(coefficients, x, init, course, odd, y, start)
    return y, (init if init is None else course.of_row(init)) if course.first else start


# ------------------------------------------------------------------------------------------------ the last value


class Final(torch.autograd.Function):
    """The last value of all steps, on every device."""

    @staticmethod
    def forward(ctx: Any, y: Any, course: Course) -> Any:
        ctx.course, ctx.shape = course, y.shape
        out = course.row(y, -1) if course.last and course.form.n else course.of_row(y.new_zeros((1,) * y.ndim))
        return exchange.total(out, course.cut).squeeze(course.form.axis)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        course, of_y = ctx.course, g.new_zeros(ctx.shape)
        if course.last:
            course.row(of_y, -1).copy_(g.unsqueeze(course.form.axis))
        return of_y, None
