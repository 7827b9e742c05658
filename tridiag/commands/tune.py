"""Measure this machine, so that "auto" takes the fastest backend on it; takes one to three minutes."""

from __future__ import annotations

import argparse
import time

from tridiag.tuning import tune

KEPT = "what was measured is kept, and the same command goes on from there"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None: what is measured is always the same."""


def run(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    print(
        "one to three minutes of measurements, while nothing else should run; a run that was cut off goes on",
        flush=True,
    )
    path = tune()
    print(f"{path}: measured in {time.perf_counter() - start:.0f} s")
    print("remove the file to go back to what comes with tridiag")
    return 0
