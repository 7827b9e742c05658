"""`small_cases`, and its options, with kernels for AddressSanitizer and UBSan; their runtimes have to be preloaded.

``--plant SOURCE OLD NEW``, first, changes what occurs once in a source of the package: a mistake to be found.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from pathlib import Path

import built_together
import cpu_build
import planted

HERE = Path(__file__).parent
SANITIZERS = "address,undefined"
RUNTIMES = ("libasan.so", "libubsan.so", "libstdc++.so")  # the last is there before its exceptions are watched


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, on the stand-in for CuPy."""
    environment = os.environ | {
        "LD_PRELOAD": ":".join(map(path_of, RUNTIMES)),
        "ASAN_OPTIONS": "detect_leaks=0",  # Python has its own
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE / "standin"), *sys.path]),
    }
    return subprocess.run(
        [sys.executable, str(HERE / "sanitized.py"), *arguments], env=environment, capture_output=True, text=True
    )


def path_of(library: str) -> str:
    command = [str(cpu_build.COMPILER), f"-print-file-name={library}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--plant"]:
        source, old, new = arguments[1:4]
        planted.plant({source: planted.replacing(old, new)})
        arguments = arguments[4:]
        cpu_build.build = functools.partial(cpu_build.build, sanitizers=SANITIZERS)
    else:
        cpu_build.build = functools.partial(built_together.build, sanitizers=SANITIZERS)

    import small_cases

    return small_cases.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
