"""Measure the costs that come with the package, as many threads as there are here: `tridiag/data/costs-N.json`.

    python benchmarks/shipped_costs.py
    OMP_NUM_THREADS=1 taskset --cpu-list 0 python benchmarks/shipped_costs.py

The same as `tridiag.tune()` does for a user, from the beginning, in one to three minutes; nothing else should run.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tridiag.benchmarking import tuning
from tridiag.kernels.jobs.systems import threads
from tridiag.selection import measurements


def main() -> None:
    path = measurements.SHIPPED / f"costs-{threads()}.json"
    with tempfile.TemporaryDirectory() as folder:
        measurements.write(path, tuning.measured(Path(folder) / "partial.json", progress=True))
    print(path)


if __name__ == "__main__":
    main()
