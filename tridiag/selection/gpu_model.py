"""How long a backend is expected to take on a GPU where `tridiag.tune` has not measured it: a model.

A call takes the host some time, and the device the longer of two times: that of moving words, and that of going from
row to row, where one thread or one round of launches does so. Words are counted in copies of those that have to be
moved, as kernels were timed on one NVIDIA H200 (``benchmarks/results/gpu``). Of loops over rows in JAX and PyTorch one
was timed there, a solve by `lax.scan`: a step of the others is taken to last as long, and PyTorch's launches for each
row are counted. Other GPUs move words at another speed, which is the same for all backends: it is their order that the
model is for.
"""

from __future__ import annotations

from typing import NamedTuple

from tridiag.backends import BLOCKS, Backend, Problem
from tridiag.problems.state_space import FILTER, LIKELIHOOD, SMOOTHER
from tridiag.selection.costs import ALIGNMENT, DTYPES, sizes

COPIED = 4.1e12  # bytes a second that a copy on the device reads and writes
CALL = 5e-5  # seconds of the host
SCANNED, LAUNCHED = 2e-5, 7e-5  # a row, by a step of lax.scan there and back, and by PyTorch: a dozen launches of 6 us


class Line(NamedTuple):
    """Copies of the words of a problem that take as long, by its layout; and the seconds from one row to the next."""

    rows: float
    columns: float
    step: float = 0.0


WORDS = {  # moved for each unknown, or for each entry of the measured size of matrix, at least
    "solve": 5.0,
    "factor": 3.0,
    "slogdet": 3.0,
    BLOCKS: 33.0,
    "linear_recurrence": 3.0,
    "logcumsumexp": 2.0,
    FILTER: 41.0,
    SMOOTHER: 21.0,
    LIKELIHOOD: 1.0,
    ALIGNMENT: 1.0,
}
ELIMINATED = {"cupy_pcr": Line(6.2, 5.1, 2.6e-7), "cupy_thomas": Line(6.2, 5.1, 2.6e-7)}
LOOPS = {"torch_thomas": Line(8.0, 8.0, LAUNCHED), "jax_scan": Line(15.0, 4.0, SCANNED)}
SCANS = {"torch_scan": Line(4.0, 4.0, LAUNCHED), "jax_scan": Line(4.0, 4.0, SCANNED)}
LINES: dict[str, dict[str, Line]] = {
    "solve": {
        "cupy_pcr": Line(1.2, 1.6),
        "cupy_thomas": Line(3.3, 2.2, 5e-7),
        "numba_cuda_thomas": Line(22.6, 3.2, 5e-7),
        "triton_thomas": Line(2.4, 5.9),
        **LOOPS,
    },
    "factor": ELIMINATED | LOOPS,
    "slogdet": ELIMINATED | LOOPS,
    BLOCKS: {"cupy_thomas": Line(12.3, 12.3, 3e-6), **LOOPS},
    "linear_recurrence": {
        "cupy_scan": Line(1.6, 1.7),
        "numba_cuda_scan": Line(6.7, 4.1),
        "triton_scan": Line(5.2, 3.9),
        **SCANS,
    },
    "logcumsumexp": {"cupy_scan": Line(2.6, 2.6), **SCANS},
    FILTER: {"cupy_scan": Line(1.8, 1.8, 2e-6), **SCANS},
    SMOOTHER: {"cupy_scan": Line(5.5, 5.5, 4e-6), **SCANS},
    LIKELIHOOD: {"cupy_scan": Line(13.0, 13.0, 1e-6), **SCANS},
    ALIGNMENT: {"cupy_wavefront": Line(11.0, 11.0, 1e-7), "jax_wavefront": Line(20.0, 20.0, 2 * SCANNED)},
}


class Model:
    """In the place of `tridiag.selection.costs.Costs`."""

    origin = "expected by the model of an NVIDIA H200 (docs/gpu.rst)"
    device = "cuda"

    def seconds(self, entry: Backend, problem: Problem) -> float | None:
        """The time that a backend is expected to take, None where the model has no line or a size is not known."""
        line = LINES.get(problem.verb, {}).get(entry.name)
        if line is None or problem.integer or problem.device != self.device:
            return None
        count, systems, inner = sizes(problem)
        if not count * systems:
            return None
        real, parts = DTYPES[problem.dtype]
        size = parts * (8 if real == "float64" else 4)
        copies = line.columns if inner > 1 else line.rows
        moved = copies * WORDS[problem.verb] * size * count * systems / COPIED
        return CALL + max(moved, count * line.step)


MODEL = Model()
