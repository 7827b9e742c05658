"""The import time of tridiag as a ratio to NumPy's: medians over fresh, alternating interpreters.

    python benchmarks/import_time.py [runs]

Exits with 1 where the ratio is above the bar.
"""

import statistics
import subprocess
import sys

BAR = 1.3
PROGRAM = "from time import perf_counter as now; start = now(); import {}; print(now() - start)"


def import_seconds(module: str) -> float:
    run = subprocess.run([sys.executable, "-c", PROGRAM.format(module)], capture_output=True, text=True, check=True)
    return float(run.stdout)


def ratio(runs: int = 15) -> float:
    pairs = [(import_seconds("tridiag"), import_seconds("numpy")) for _ in range(runs + 1)]
    ours, numpys = zip(*pairs[1:], strict=True)  # the first pair fills the disk cache
    return statistics.median(ours) / statistics.median(numpys)


if __name__ == "__main__":
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    measured = ratio(runs)
    print(f"import tridiag / import numpy: {measured:.2f} (median of {runs} alternating runs; bar {BAR})")
    sys.exit(measured > BAR)
