"""The seconds until a new process has its first results, as JSON.

    python benchmarks/first_solve.py [solve|linear_recurrence|logcumsumexp]

Elapsed and of the processor: of the imports of NumPy and the package, and of the call; whether Numba was imported, and
how many kernels were compiled. With ``XDG_CACHE_HOME`` naming an empty folder nothing is there but what came along.
"""

import sys
from time import perf_counter, process_time

start = perf_counter(), process_time()

import numpy as np  # noqa: E402

numpy_is_there = perf_counter(), process_time()

import tridiag  # noqa: E402

ready = perf_counter(), process_time()
verb = sys.argv[1] if __name__ == "__main__" and len(sys.argv) > 1 else "solve"
a, b, c, d = np.full(100, -1.0), np.full(100, 4.0), np.full(100, -1.0), np.linspace(1, 2, 200_000).reshape(2000, 100)
given = {"solve": (a, b, c, d), "linear_recurrence": (np.full(100, 0.5), d), "logcumsumexp": (d,)}[verb]
before = perf_counter(), process_time()
x = getattr(tridiag, verb)(*given)
after = perf_counter(), process_time()


def error() -> float:
    """Of the result, in eps."""
    if verb == "solve":
        from tridiag.benchmarking.errors import backward_errors

        return float(backward_errors(a, b, c, d, x, -1).max())
    if verb == "linear_recurrence":
        right = d.astype(np.longdouble)
        for i in range(1, right.shape[1]):
            right[:, i] += right[:, i - 1] / 2
    else:
        right = np.log(np.cumsum(np.exp(d.astype(np.longdouble)), 1))
    return float((abs(x - right) / abs(right)).max() / np.finfo(float).eps)


if __name__ == "__main__":
    import json

    from tridiag.kernels.runtime import object_cache, shipped

    def spent(begin: tuple[float, float], end: tuple[float, float]) -> list[float]:
        return [later - earlier for later, earlier in zip(end, begin, strict=True)]

    record = {
        verb: spent(before, after),
        "imports": spent(start, ready),
        "import numpy": spent(start, numpy_is_there),
        "numba": "numba" in sys.modules,
        "compiled": object_cache.compiled(),
        "came along for": shipped.kind(),
        "error": error(),
    }
    print(json.dumps(record))
