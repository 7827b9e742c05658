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


@pytest.mark.parametrize(
    ("name", "source", "old", "new"),
    [
        (
            "cupy_pcr",
            "chunks.cu",
            "within(first + j, 0, n - 1)",
            "within(first + j, 0, n)",
        ),  # the row after the last of a system
        ("cupy_pcr", "chunks.cu", "int(rest) + 1 :", "int(rest) + 2 :"),  # and its mask
        ("cupy_scan", "scans.cu", "thread, r < there,", "thread, r <= there,"),  # the row after the last of a sequence
        (
            "cupy_thomas",
            "blocks.cu",
            "side < job.sides ? n : 0",
            "side < job.sides ? n + 1 : 0",
        ),  # the block row after it
        ("cupy_scan", "filter.cu", "if (t + 1 == job.n) break;", "if (t == job.n) break;"),  # the step after the last
        ("cupy_scan", "gradient.cu", "if (t + 1 == part.end) break;", "if (t == part.end) break;"),  # ... of a part
        ("cupy_wavefront", "alignment.cu", "&& r < there;", "&& r <= there;"),  # the row after the last of a pair
    ],
)
def test_what_is_beyond_the_end_is_not_touched(name: str, source: str, old: str, new: str) -> None:
    done = sanitized.run("--plant", source, old, new, "--dtype", "float64", name)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr, done.stderr[-4000:]
    assert ("WRITE of size" if source == "filter.cu" else "READ of size") in done.stderr, done.stderr[-4000:]
