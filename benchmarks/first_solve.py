"""The seconds until a new process has solved its first systems, as JSON: ``python benchmarks/first_solve.py``."""

from time import perf_counter, process_time

start = perf_counter(), process_time()

import numpy as np  # noqa: E402

import tridiag  # noqa: E402

ready = perf_counter(), process_time()
a, b, c, d = np.full(100, -1.0), np.full(100, 4.0), np.full(100, -1.0), np.linspace(1, 2, 200_000).reshape(2000, 100)
before = perf_counter(), process_time()
x = tridiag.solve(a, b, c, d)
after = perf_counter(), process_time()

if __name__ == "__main__":
    import json

    from tridiag.benchmarking.errors import backward_errors

    spent = [end - begin for end, begin in zip(after, before, strict=True)]
    imports = [end - begin for end, begin in zip(ready, start, strict=True)]
    error = float(backward_errors(a, b, c, d, x, -1).max())
    print(json.dumps({"solve": spent, "imports": imports, "error": error}))
