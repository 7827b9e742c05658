"""`solve`, and `factor` with its solutions and its status."""

from __future__ import annotations

from typing import Any, NamedTuple

import cupy
import numpy as np
from guarded.accuracy_bars import acting
from guarded.accuracy_breeding import Systems
from guarded.systems import read_by

import tridiag
from drawn import DTYPES, Array, Outcome, Refused, Where, chosen, in_kinds, same_bits, sizes
from drawn.kinds_of_systems import KINDS, Matrices, spoil
from drawn.levels import levels, times
from drawn.memory import Memory
from drawn.promises import judge


class Call(NamedTuple):
    """All but the numbers."""

    verb: str
    backend: str
    dtype: str
    right: str  # the dtype of the right sides
    groups: int  # of systems that share a matrix
    sides: int
    n: int
    axis: int
    pivoting: Any
    periodic: bool
    transpose: bool
    masked: bool
    into: str  # where the solutions go

    @classmethod
    def draw(cls, rng: np.random.Generator, where: Where, verb: str) -> Call:
        m, n = sizes(rng, where)
        dtype, backend = str(rng.choice(DTYPES)), str(rng.choice(["cupy_pcr", "cupy_pcr", "cupy_thomas"]))
        sides = int(rng.integers(1, min(m, 70) + 1)) if rng.random() < 0.2 else 1
        mixed = dtype.startswith("float") and rng.random() < 0.1
        into = str(rng.choice(["", "", "out", *(["overwrite_d"] if verb == "solve" else [])]))
        return cls(
            verb, backend, dtype, {"float32": "complex64", "float64": "complex128"}[dtype] if mixed else dtype,
            max(1, m // sides), sides, n, int(rng.integers(3)), ("auto", "auto", "auto", True, False)[rng.integers(5)],
            bool(n >= 3 and rng.random() < 0.15), bool(rng.random() < 0.2), bool(rng.random() < 0.2), into,
        )  # fmt: skip

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.groups, self.sides, self.n

    @property
    def promise(self) -> Any:
        """Elimination with corners exchanges rows, whatever it is told."""
        return True if self.periodic and self.pivoting is False else self.pivoting

    @property
    def options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("axis", "backend", "pivoting", "periodic")}

    def systems(self, rng: np.random.Generator) -> tuple[Array, Systems]:
        """The kind of each, and matrices of which each has its own, or shares it with its neighbours."""
        kinds = chosen(rng, KINDS, self.groups)
        bands = [np.empty((self.groups, self.n), self.dtype) for _ in range(4)]
        matrices = Matrices(rng, self.n, self.dtype)
        in_kinds(kinds, matrices.make, *bands)
        a, b, c, d = (np.repeat(x, self.sides, 0) for x in bands)
        if self.right != self.dtype or self.sides > 1:
            size = abs(d).max(1, keepdims=True)
            d = (Matrices(rng, self.n, self.right).noise(len(d)) * size).astype(self.right)
        keep = np.ones((self.groups, self.n), bool)
        if self.masked:
            keep = rng.random(keep.shape) < rng.choice([0.5, 0.9])
        kinds, systems = np.repeat(kinds, self.sides), Systems(a, b, c, d, np.repeat(keep, self.sides, 0))
        some = kinds == "wide"
        if some.any():  # solutions that are numbers, whichever rows and columns are left, and act as such
            these = systems.take(np.flatnonzero(some))
            rows, _ = levels(acting(these, self.periodic, self.transpose))
            d[some] = times(Matrices(rng, self.n, self.right).noise(len(rows)).astype(self.right), -rows)
        return kinds, systems

    def readable(self, keep: Array) -> list[Array]:
        """Which entries of a, b, c and d are read."""
        found = [np.array(np.broadcast_to(read_by(name, keep, keep.shape, 1), keep.shape)) for name in "abcd"]
        if not self.periodic:
            found[0][:, 0] = found[2][:, -1] = False
        return found

    def run(self, rng: np.random.Generator, systems: Any, check: bool) -> tuple[Array, Array | None]:
        """The solutions, and which systems are said to be singular, if that is asked for."""
        memory, out = Memory(rng), None
        whole = [x.reshape(self.shape) for x in systems]
        *matrix, d, keep = [x if k == 3 else x[:, :1] for k, x in enumerate(whole)]
        turned = [np.moveaxis(x, -1, self.axis) for x in (*matrix, d, keep)]
        *matrix, d = [memory.given(x) for x in turned[:3]] + [
            (memory.written if self.into == "overwrite_d" else memory.given)(turned[3])
        ]
        options = self.options | ({"where": memory.given(turned[4])} if self.masked else {})
        if self.into == "out":
            out = memory.written(np.full(turned[3].shape, 7, self.right))
        x, singular = self.result(matrix, d, out, options, check)
        if self.into and x is not (d if out is None else out):
            raise Refused("the result is not the array that was given for it")
        memory.check()
        if str(x.dtype) != self.right or x.shape != turned[3].shape:
            raise Refused(f"the result is {x.dtype}{x.shape}")
        return np.moveaxis(x.get(), self.axis, -1).reshape(-1, self.n), singular

    def result(self, matrix: Any, d: Any, out: Any, options: dict[str, Any], check: bool) -> tuple[Any, Array | None]:
        more = {"transpose": self.transpose} | ({} if out is None else {"out": out})
        if self.verb == "factor":
            factors = tridiag.factor(*matrix, **options)
            status = cupy.broadcast_to(factors.status, (self.groups, 1)[: factors.status.ndim]).get()
            return factors.solve(d, **more), np.repeat(status.reshape(-1) != 0, self.sides)
        try:
            changed = {"overwrite_d": True} if self.into == "overwrite_d" else {}
            x = tridiag.solve(*matrix, d, check=check, **options, **more, **changed)
        except tridiag.SingularSystemError as error:
            found = np.zeros((self.groups, self.sides), bool)
            found[tuple(np.asarray(error.indices).T)] = True
            return error.x, found.reshape(-1)
        return x, np.zeros(self.groups * self.sides, bool) if check else None


def solve(rng: np.random.Generator, where: Where, verb: str = "solve") -> Outcome:
    call = Call.draw(rng, where, verb)
    kinds, clean = call.systems(rng)
    readable, check, seed = call.readable(clean.keep), bool(rng.random() < 0.2), int(rng.integers(2**60))
    given, must = spoil(
        rng, kinds, clean[:4], readable if call.sides == 1 else [r & (k == 3) for k, r in enumerate(readable)]
    )
    hidden = rng.random() < 0.5  # what is not read holds no numbers
    for x, read in zip(given, readable, strict=True):
        x[~read & hidden] = np.nan
    x, singular = call.run(np.random.default_rng(seed), [*given, clean.keep], check)
    error = judge(call, kinds, clean, x, singular, must)
    bad = (kinds == "not a number") | (kinds == "infinite")
    if bad.any() and not bad.all():
        tame = [np.where(bad[:, None], v, g) for v, g in zip(clean, given, strict=False)]
        y, _ = call.run(np.random.default_rng(seed), [*tame, clean.keep], check)
        error[(same_bits(x, y) < 1) & ~bad] = np.inf
    return Outcome(f"{call}, check={check}", kinds, error)


def factor(rng: np.random.Generator, where: Where) -> Outcome:
    return solve(rng, where, "factor")
