"""The table of kernels: what each is called, what builds it, and how it becomes a function of arrays.

Numba is not imported before a kernel has to be compiled.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from tridiag.kernels.jobs.job import Job
from tridiag.kernels.runtime.object_cache import Builder, Kernel, made_by, obtain
from tridiag.kernels.runtime.python_call import function


class Family(NamedTuple):
    """Kernels that differ in a dtype, and in what else their builder takes."""

    name: str  # of a kernel, with the arguments of its builder in their places
    builder: str  # folder.module.function of `tridiag.kernels`
    calls: str | None = None  # the family of the kernel of the same arguments that it calls; the builder takes its name


KERNELS = {
    "thomas": Family("thomas_{1}_{0}", "thomas.kernel.build"),
    "row_blocks": Family("thomas_long_{1}_{0}", "thomas.row_blocks.build", "thomas"),
    "thomas_adjoint": Family("thomas_adjoint_{1}_{0}", "thomas.adjoint.build", "thomas"),
    "row_blocks_adjoint": Family("thomas_adjoint_long_{1}_{0}", "thomas.adjoint.build", "row_blocks"),
    "copies": Family("copies_{0}", "thomas.copies.build"),
    "determinants": Family("determinants_{0}", "thomas.determinants.build"),
    "inverse_entries": Family("inverse_entries_{0}", "thomas.inverse_entries.build"),
    "cyclic": Family("thomas_cyclic_{0}", "cyclic.kernel.build"),
    "cyclic_adjoint": Family("thomas_adjoint_cyclic_{0}", "thomas.adjoint.build", "cyclic"),
    "partition": Family("partition_{0}", "partition.kernel.build"),
    "parts": Family("parts_{1}_{0}", "parts.kernel.build"),
    "totals": Family("totals_{1}_{0}", "totals.kernel.build"),
    "blocks": Family("block{1}_{0}", "blocks.kernel.build"),
    "few_blocks": Family("few_block{1}_{0}", "blocks.one_system.build"),
    "products": Family("products_{0}", "products.kernel.build"),
    "recurrence": Family("scan{1}_{0}", "recurrence.kernel.build"),
    "constant": Family("scan{1}_constant_{0}", "recurrence.in_vectors.build"),
    "matrices": Family("matrices{1}_{0}", "recurrence.matrices.build"),
    "selective": Family("selective_{0}", "selective.kernel.build"),
    "selective_adjoint": Family("selective_adjoint_{0}", "selective.adjoint.build"),
    "logsumexp": Family("logarithms_{0}", "logsumexp.kernel.build"),
    "filter": Family("filter{1}_{2}_{3}_{0}", "kalman.kernel.build"),
    "filter_gradient": Family("filter_gradient{1}_{2}_{3}_{0}", "kalman.kernel.build_gradient"),
    "moments": Family("moments{1}_{2}_{3}_{0}", "kalman.kernel.build_moments"),
    "smoother": Family("smoother{1}_{2}_{3}_{0}", "kalman.kernel.build_smoother"),
    "stretch": Family("stretch{1}_{2}_{3}_{0}", "kalman.kernel.build_stretch"),
    "filter_many": Family("filter_many_{0}", "many_states.kernel.build"),
    "filter_many_shared": Family("filter_many_shared_{0}", "many_states.kernel.build_shared"),
    "gradient_many": Family("gradient_many_{0}", "many_states.kernel.build_gradient"),
    "gradient_many_shared": Family("gradient_many_shared_{0}", "many_states.kernel.build_shared_gradient"),
    "smoother_many": Family("smoother_many_{0}", "many_states.kernel.build_smoother"),
    "smoother_unknown": Family("smoother_unknown_{0}", "many_states.regression.build"),
    "filter_unknown": Family("filter_unknown_{0}", "many_states.unknown.build"),
    "filter_in_lanes": Family("filter_in_lanes_{0}", "states_in_lanes.kernel.build", "filter_many"),
    "smoother_in_lanes": Family("smoother_in_lanes_{0}", "states_in_lanes.smoother.build", "smoother_many"),
    "gradient_in_lanes": Family("gradient_in_lanes_{0}", "states_in_lanes.gradient.build", "gradient_many"),
    "filter_guard": Family("filter_guard_{0}", "kalman.guard.build"),
    "predict": Family("predict{1}_{0}", "kalman.streams.build_predict"),
    "update": Family("update{1}_{2}_{0}", "kalman.streams.build_update"),
    "predict_many": Family("predict_many_{0}", "many_states.streams.build_predict"),
    "predict_in_lanes": Family("predict_in_lanes_{0}", "states_in_lanes.streams.build_predict", "predict_many"),
    "known_guard": Family("known_guard_{0}", "kalman.guard.build_known"),
    "alignment": Family("wavefront_{1}_{0}", "alignment.kernel.build"),
}


class Call(NamedTuple):
    """A job, and its kernel as a function of the arrays whose addresses the job has places for, in their order."""

    job: Job
    run: Callable[..., int]


def name_of(family: str, *arguments: Any) -> str:
    """What a kernel is called: in files, and as a symbol that other kernels and XLA's handlers call."""
    return KERNELS[family].name.format(*arguments)


@functools.cache
def kernel(family: str, *arguments: Any) -> Kernel:
    """A compiled kernel; the one that it calls is there before it."""
    if called := KERNELS[family].calls:
        kernel(called, *arguments)
    return obtain(name_of(family, *arguments), builder_of(family, *arguments))


def builder_of(family: str, *arguments: Any) -> Builder:
    """What builds a kernel."""
    _, builder, called = KERNELS[family]
    return made_by(builder, *arguments, *([name_of(called, *arguments)] if called else []))


@functools.lru_cache(8192)
def call_of(make_job: Callable[..., Job], *facts: Any) -> Call:
    """The call of a job, which is made of facts about the arrays; kept, as kernels are."""
    job = make_job(*facts)
    return Call(job, function(kernel(*job.kernel).address, job.words, job.helpers, job.unknowns))
