"""What a call crosses between a public function and its inner loop: files and functions, Python's and compiled ones.

    python tests/journeys.py [NAME ...]

The package is that of this checkout. Python functions are those that run in a call of a new shape, after another one;
compiled ones are those that the kernel of that call is made of, with what it does for systems that need pivoting. A
file that only declares types or constants is not counted: one need not open it to follow the call.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))


def solve(n: int) -> Any:
    import tridiag

    ones = np.ones((40, n))
    return tridiag.solve(ones, 4 * ones, ones, ones)


def solve_in_jax(n: int) -> Any:
    import jax
    import jax.numpy as jnp

    import tridiag

    jax.config.update("jax_enable_x64", True)
    ones = jnp.ones((40, n))
    return jax.jit(jax.grad(lambda b: tridiag.solve(ones, b, ones, ones).sum()))(4 * ones)


def recurrence(n: int) -> Any:
    import tridiag

    return tridiag.linear_recurrence(np.full(1000 * n, 0.5), np.ones(1000 * n))


JOURNEYS: dict[str, Callable[[int], Any]] = {"solve": solve, "solve_in_jax": solve_in_jax, "recurrence": recurrence}
Place = tuple[str, str]  # a file and a function of it


def place_of(code: Any) -> Place | None:
    path = Path(code.co_filename)
    if ROOT / "tridiag" not in path.parents or code.co_name.startswith("<"):  # of a module, a comprehension
        return None
    return str(path.relative_to(ROOT)), code.co_qualname


def run_by(call: Callable[[], Any]) -> set[Place]:
    """The functions of the package that run in a call."""
    found = set()

    def look(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            found.add(place_of(frame.f_code))

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return {place for place in found if place}


def compiled_by(call: Callable[[], Any]) -> set[Place]:
    """The functions that are compiled in a call, and those that write inner loops."""
    from numba.core import event

    from tridiag.kernels.simd import functions

    found: set[Place | None] = set()
    write = functions.write

    def watched(body: Any, *args: Any) -> Any:
        found.add(place_of(getattr(body, "func", body).__code__))
        return write(body, *args)

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            found.add(place_of(event.data["dispatcher"].py_func.__code__))

        def on_end(self, event: Any) -> None:
            pass

    functions.write = watched
    with event.install_listener("numba:compile", Listener()):
        call()
    functions.write = write
    return {place for place in found if place}


def main(names: list[str]) -> None:
    for name in names or JOURNEYS:
        call = JOURNEYS[name]
        compiled = compiled_by(lambda call=call: call(17))
        run = run_by(lambda call=call: call(19))
        places = compiled | run
        files = {path for path, _ in places}
        parts = f"{len(run)} of Python, {len(compiled - run)} compiled"
        print(f"{name}: {len(files)} files, {len(places)} functions ({parts})")
        if os.environ.get("VERBOSE"):
            for path in sorted(files):
                print(f"    {path}: {', '.join(sorted(name for where, name in places if where == path))}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as cache:
        os.environ |= {"NUMBA_CACHE_DIR": cache, "XDG_CACHE_HOME": cache}  # all is compiled anew, in this process
        main(sys.argv[1:])
