"""No kernel reads or writes beyond its arrays, or does what C++ leaves undefined: AddressSanitizer and UBSan say so."""

from __future__ import annotations

import cpu_build
import pytest
import sanitized
from helpers import STANDIN

from tridiag.backends import BACKENDS

pytestmark = [
    pytest.mark.skipif(not STANDIN, reason="CuPy and a device are here; benchmarks/gpu_lab.sh sanitize is for them"),
    pytest.mark.skipif(cpu_build.why_not() is not None, reason=str(cpu_build.why_not())),
]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        (name, dtype)
        for name in ("cupy_pcr", "cupy_thomas", "cupy_scan", "cupy_wavefront")
        for dtype in BACKENDS[name].dtypes
    ],
)
def test_kernels_are_clean(name: str, dtype: str) -> None:
    done = sanitized.run("--dtype", dtype, name)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert "0 wrong" in done.stdout


# a step or a row beyond the end, and the cases that take it
BEYOND = {
    "the row of a system": ("cupy_pcr", "Case", "chunks.cu", "within(first + j, 0, n - 1)", "within(first + j, 0, n)"),
    "the row of a piece": (
        "cupy_pcr",
        "Case",
        "partition.cu",
        "begin[within(i, Index(0), job.n - 1) * band.row]",
        "begin[within(i, Index(0), job.n) * band.row]",
    ),
    "its mask": ("cupy_pcr", "Case", "chunks.cu", "int(rest) + 1 :", "int(rest) + 2 :"),
    "the row of a chunk": (
        "cupy_pcr",
        "Case",
        "pivoted_chunks.cu",
        "system.solution(first + i) =",
        "system.solution(first + i + 1) =",
    ),
    "the row of a thread": (
        "cupy_thomas",
        "Case",
        "thomas.cu",
        "if (s < here && flags[s] && i < job.n) *place",
        "if (s < here && flags[s] && i <= job.n) *place",
    ),
    "the row of a hard system": (
        "cupy_thomas",
        "Case",
        "pivoted.cu",
        "system.solution(i) = kept.at(i, ITERATE);",
        "system.solution(i + 1) = kept.at(i, ITERATE);",
    ),
    "the row of a plain loop": (
        "cupy_scan",
        "Sequence",
        "recurrences.cu",
        "if (whole || first + j < job.n) y[j",
        "if (whole || first + j <= job.n) y[j",
    ),
    "the row of a sequence": ("cupy_scan", "Sequence", "scans.cu", "thread, r < there,", "thread, r <= there,"),
    "the block row": ("cupy_thomas", "BlockSystems", "blocks.cu", "< job.sides ? n : 0", "< job.sides ? n + 1 : 0"),
    "the step": ("cupy_scan", "Filters", "filter.cu", "if (t + 1 == job.n) break;", "if (t == job.n) break;"),
    "the step behind the last": (
        "cupy_scan",
        "Filters",
        "smoother.cu",
        "for (Index t = job.n - 1; t >= 0; t--) {\n    T mean[M];\n    Triangle<T, M> root;",
        "for (Index t = job.n; t >= 0; t--) {\n    T mean[M];\n    Triangle<T, M> root;",
    ),
    "the step of a part": (
        "cupy_scan",
        "Gradients",
        "gradient.cu",
        "if (t + 1 == part.end) break;",
        "if (t == part.end) break;",
    ),
    "the row of a pair": ("cupy_wavefront", "Pairs", "alignment.cu", "&& r < there;", "&& r <= there;"),
}
WRITTEN = (  # before it is read
    "the step",
    "the row of a chunk",
    "the row of a thread",
    "the row of a hard system",
    "the row of a plain loop",
)


@pytest.mark.parametrize("name", BEYOND)
def test_what_is_beyond_the_end_is_not_touched(name: str) -> None:
    backend, kind, *change = BEYOND[name]
    done = sanitized.run("--plant", *change, "--dtype", "float64", "--kind", kind, backend)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr, done.stderr[-4000:]
    assert f"{'WRITE' if name in WRITTEN else 'READ'} of size" in done.stderr, done.stderr[-4000:]
