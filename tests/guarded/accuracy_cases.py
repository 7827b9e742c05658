"""The calls that a search for large errors makes: a backend, a dtype, a layout, the options; drawn from a seed."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from helpers import installed

import tridiag
from guarded.accuracy_breeding import Array, Systems
from tridiag.backends import BACKENDS

BACKENDS_TRIED = {  # the array library, and how often next to the others: what compiles for every shape, seldom
    "numba_thomas": ("numpy", 12),
    "numba_partition": ("numpy", 5),
    "numpy_thomas": ("numpy", 3),
    "scipy_gtsv": ("numpy", 1),
    "torch_thomas": ("torch", 2),
    "jax_scan": ("jax", 1),
}
DTYPES = ("float32", "float64", "complex64", "complex128")
ROWS = (1, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9, 12, 15, 16, 17, 20, 31, 32, 33, 64, 65, 100)
ENTRIES = 60_000  # of the systems of one call
LAYOUTS = ("rows", "columns", "middle", "shared", "factor", "long rows", "long columns")


@dataclass(frozen=True)
class Call:
    """One kind of call of `solve` or `factor`."""

    backend: str
    dtype: str
    n: int
    m: int  # systems of a call
    layout: str
    pivoting: Any = "auto"
    periodic: bool = False
    transpose: bool = False
    masked: bool = False

    def __str__(self) -> str:
        options = [f"pivoting={self.pivoting!r}", *(x for x in ("periodic", "transpose", "masked") if getattr(self, x))]
        return f"{self.backend} {self.dtype}, {self.m} systems of {self.n} rows, {self.layout}, {', '.join(options)}"

    @property
    def chained(self) -> bool:
        """Whether systems follow each other in a few long ones, uncoupled."""
        return self.layout.startswith("long")

    @property
    def fills(self) -> bool:
        """Whether elimination fills: long systems are cut into chunks, whose ends are found first."""
        return self.chained and self.backend == "numba_partition"

    @property
    def group(self) -> int:
        """Systems of one matrix."""
        return 16 if self.layout == "shared" else 1

    def given(self, systems: Systems) -> Systems:
        """The systems as this call has them: matrices may be shared, ends of chained ones are uncoupled.

        XLA takes subnormal numbers for 0: also what elimination takes from an entry that is hardly larger.
        """
        if self.backend.startswith("jax"):
            info = np.finfo(self.dtype)
            normal = [np.where(abs(x) < info.tiny / info.eps, 0, x) for x in systems[:4]]
            systems = Systems(*normal, systems.keep)
        if self.group > 1:
            first = np.arange(len(systems.b)) // self.group * self.group
            a, b, c, _, keep = systems.take(first)
            return Systems(a, b, c, systems.d, keep)
        if self.chained:
            a, c = systems.a.copy(), systems.c.copy()
            a[:, 0] = c[:, -1] = 0
            return systems._replace(a=a, c=c)
        return systems

    def solve(self, systems: Systems) -> Array:
        """The solutions, (m, n), of systems that `given` has prepared."""
        m, n = systems.b.shape
        arrays = [self.laid(x) for x in (systems[:4] if not self.masked else systems)]
        axis = {"columns": 0, "long columns": 0, "middle": 1}.get(self.layout, -1)
        options = {"axis": axis, "backend": self.backend, "pivoting": self.pivoting, "periodic": self.periodic}
        library = BACKENDS_TRIED[self.backend][0]
        *matrix, d = [self.to(library, x) for x in arrays[:4]]
        if self.masked:
            options["where"] = self.to(library, arrays[4])
        with np.errstate(all="ignore"):
            if self.layout == "factor":
                x = self.factored(matrix, d, options)
            else:
                x = tridiag.solve(*matrix, d, transpose=self.transpose, check=False, **options)
        x = np.asarray(x)
        if self.layout == "columns":
            return x.T
        if self.layout == "middle":
            return np.moveaxis(x, 1, -1).reshape(m, n)
        if self.layout == "long columns":
            return np.ascontiguousarray(x.T).reshape(m, n)
        return x.reshape(m, n)

    def factored(self, matrix: list[Any], d: Any, options: dict[str, Any]) -> Any:
        try:
            return tridiag.factor(*matrix, **options).solve(d, transpose=self.transpose)
        except tridiag.SingularSystemError as error:
            return error.x

    def laid(self, x: Array) -> Array:
        """(m, n) as the layout has it."""
        m, n = x.shape
        if self.layout == "columns":
            return np.ascontiguousarray(x.T)
        if self.layout == "middle":
            return np.ascontiguousarray(np.moveaxis(x.reshape(4, m // 4, n), 2, 1))
        if self.layout == "shared":
            return x.reshape(m // self.group, self.group, n)
        if self.chained:
            long = x.reshape(4, m // 4 * n)
            return long if self.layout == "long rows" else np.ascontiguousarray(long.T)
        return x

    @staticmethod
    def to(library: str, x: Array) -> Any:
        module = importlib.import_module({"jax": "jax.numpy"}.get(library, library))
        return x if library == "numpy" else module.asarray(x)


def draw(rng: np.random.Generator, drop: frozenset[str] = frozenset()) -> Call:
    """A call; a word in ``drop`` leaves an option out."""
    tried = [name for name, (library, _) in BACKENDS_TRIED.items() if installed(library)]
    there = [name for name in tried if not BACKENDS[name].unusable()]
    weights = np.array([BACKENDS_TRIED[name][1] for name in there], float)
    backend = str(rng.choice(there, p=weights / weights.sum()))
    entry, dtype = BACKENDS[backend], str(rng.choice(DTYPES))
    compiled, n = backend != "jax_scan", int(rng.choice(ROWS))
    layout = str(rng.choice(LAYOUTS, p=np.array([4, 4, 2, 2, 2, 2, 1]) / 17))
    flags = {name: bool(rng.random() < 0.15) and name not in drop for name in ("periodic", "transpose", "masked")}
    pivoting = ["auto", "auto", "auto", "auto", True, False][rng.integers(6)]
    if not compiled:  # each is compiled anew
        n, layout = (4, 8)[int(rng.integers(2))], ("rows", "columns")[int(rng.integers(2))]
        flags = dict.fromkeys(flags, False)
    if pivoting not in entry.pivoting or "pivoting" in drop:
        pivoting = "auto"
    if backend == "scipy_gtsv" and pivoting is False:  # LAPACK exchanges rows in any case: its error is normwise
        pivoting = True
    if "factor" not in entry.verbs and layout == "factor":
        layout = "rows"
    in_python, long = not backend.startswith("numba"), layout.startswith("long")
    if "layout" in drop or (long and in_python) or (layout == "shared" and flags["masked"]):
        layout = "rows"
    dominant = pivoting is False
    flags["periodic"] &= entry.periodic and 3 <= n <= 33 and not dominant and not layout.startswith("long")
    entries = ENTRIES // (20 if backend == "scipy_gtsv" else 1)
    m = max(64, entries // n // 64 * 64)
    return Call(backend, dtype, n, m, layout, pivoting, **flags)
