"""What the tests share: the backends under test, systems to solve, the dense oracle, the one assertion on solutions."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import tridiag
from tridiag.backends import BACKENDS, Backend
from tridiag.libraries.arrays import library_of

EPS = {"float32": 2.0**-23, "float64": 2.0**-52, "float16": 2.0**-10, "bfloat16": 2.0**-7}
TINY = {"float32": 2.0**-126, "float64": 2.0**-1022}
REAL = {"complex64": "float32", "complex128": "float64", "float16": "float32", "bfloat16": "float32"}
DTYPES = ("float32", "float64", "complex64", "complex128")


def installed(library: str) -> bool:
    return importlib.util.find_spec(library) is not None


# ---------------------------------------------------------------------------------------------------- CuPy


def has_gpu() -> bool:
    """Whether the driver of NVIDIA is here, and finds a device."""
    try:
        driver = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int()
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


GPU_OFFLINE = Path(__file__).parent / "gpu_offline"
STANDIN = not (installed("cupy") and has_gpu())  # whether what is imported as CuPy is the stand-in for it
sys.path[:0] = [str(GPU_OFFLINE / "standin"), str(GPU_OFFLINE)] if STANDIN else [str(GPU_OFFLINE)]

# ---------------------------------------------------------------------------------------------------- backends


def switch_of(entry: Backend) -> Any:
    """The module that holds whether the kernels of a backend are interpreted, if they can be."""
    module = entry.module()
    return getattr(module, "access", module)  # of Pallas


@dataclass(frozen=True)
class Subject:
    """A backend together with the arrays that it is given."""

    entry: Backend
    library: str

    def __str__(self) -> str:
        return f"{self.entry.name}-{self.library}"

    @property
    def name(self) -> str:
        return self.entry.name

    @property
    def promises(self) -> tuple[bool | str, ...]:
        return self.entry.pivoting

    @property
    def usual(self) -> bool | str:
        """The strongest promise that it keeps: "auto", or False where it has no pivoting."""
        return "auto" if "auto" in self.promises else False

    @property
    def compiled(self) -> bool:
        return self.name.startswith("numba")

    @property
    def device(self) -> str:
        """Where its arrays are."""
        return "cpu" if "cpu" in self.entry.devices else "cuda"

    @property
    def pretended(self) -> bool:
        """Whether its device is the stand-in's, and the arrays of other libraries are on the CPU (`pretence`)."""
        return self.device == "cuda" and STANDIN

    @property
    def on_host(self) -> bool:
        """Whether its arrays are in host memory, and may be waited for."""
        return self.device == "cpu" or (self.pretended and self.library != "cupy")

    @property
    def interpreted(self) -> bool:
        """Whether its kernels run in an interpreter of their language."""
        return self.pretended and hasattr(switch_of(self.entry), "INTERPRET")

    def cannot_run_here(self) -> str | None:
        if not installed(self.library):
            return f"needs {self.library}, which is not installed"
        if self.pretended and self.compiled:
            return "needs a GPU; without one tests/gpu_offline/test_numba_cuda.py is what can be tested"
        if self.pretended and self.name.startswith("cupy"):
            return importlib.import_module("cpu_build").why_not() or self.entry.missing()
        return self.entry.missing() or (None if self.pretended else self.entry.mismatched())

    def can(
        self,
        verb: str = "solve",
        periodic: bool = False,
        pivoting: Any = None,
        library: Any = None,
        order: int = 1,
        compiled: bool = False,
        parallel: bool | None = None,
        dtype: str | None = None,
    ) -> bool:
        """What the table says."""
        return (
            verb in self.entry.verbs
            and (dtype is None or dtype in self.entry.dtypes)
            and (dtype in (None, "float32", "float64") or verb not in self.entry.real)
            and (self.entry.order is None or order <= self.entry.order)
            and (self.compiled or not compiled)
            and (parallel is None or self.entry.parallel == parallel)
            and (verb, self.library) not in self.entry.lacks
            and (self.entry.periodic or not periodic)
            and (pivoting is None or pivoting in self.promises)
            and (library is None or self.library == library or self.library in tuple(library))
        )

    def array(self, x: Any, dtype: str | None = None) -> Any:
        """A NumPy array in the library of this backend; None and Python scalars as they are."""
        x = to_library(self.library, x, dtype)
        return x if self.pretended or not is_array(x) else on_device(self.library, x, self.device)

    numpy = staticmethod(lambda x: to_numpy(x))

    def solve(self, a: Any, b: Any, c: Any, d: Any, *, where: Any = None, **options: Any) -> np.ndarray:
        """`tridiag.solve` by this backend under its usual promise, from NumPy arrays to NumPy arrays.

        Singular systems raise on a GPU too, where that has to be asked for.
        """
        check = True if self.device == "cuda" else None
        given, options = [self.array(x) for x in (a, b, c, d)], {"pivoting": self.usual, "check": check} | options
        return to_numpy(tridiag.solve(*given, where=self.array(where), backend=self.name, **options))

    def factor(self, a: Any, b: Any, c: Any, *, where: Any = None, **options: Any) -> tridiag.Factorization:
        options = {"pivoting": self.usual} | options
        return tridiag.factor(*map(self.array, (a, b, c)), where=self.array(where), backend=self.name, **options)

    def slogdet(self, a: Any, b: Any, c: Any, *, where: Any = None, **options: Any) -> tuple[np.ndarray, np.ndarray]:
        given = map(self.array, (a, b, c))
        sign, log = tridiag.slogdet(*given, where=self.array(where), backend=self.name, **options)
        return to_numpy(sign), to_numpy(log)


SUBJECTS = [Subject(entry, library) for entry in BACKENDS.values() for library in entry.arrays]


def to_library(library: str, x: Any, dtype: str | None = None) -> Any:
    if x is None or isinstance(x, bool | int | float | complex):
        return x
    if library == "numpy":
        return x if dtype is None else np.asarray(x).astype(dtype)
    module = importlib.import_module({"jax": "jax.numpy"}.get(library, library))
    if library == "torch":
        x = np.ascontiguousarray(x) if min(np.asarray(x).strides, default=0) < 0 else np.asarray(x)
        made = module.tensor(x)
        return made if dtype is None else made.to(getattr(module, dtype))
    return module.asarray(x, dtype)


def is_array(x: Any) -> bool:
    return library_of(x) is not None and x is not None


def on_device(library: str, x: Any, device: str) -> Any:
    """An array where a GPU is."""
    if library == "torch":
        return x.to(device)
    if library == "jax":
        jax = importlib.import_module("jax")
        return jax.device_put(x, jax.devices(device)[0])
    return x


def to_numpy(x: Any) -> np.ndarray:
    """A NumPy array of the same values; bfloat16 becomes float32."""
    if library_of(x) == "cupy":
        return x.get()
    if hasattr(x, "detach"):
        x = x.detach().resolve_conj().cpu()
        return (x.float() if dtype_name(x) == "bfloat16" else x).numpy()
    return np.asarray(x, np.float32) if dtype_name(x) == "bfloat16" else np.asarray(x)


def dtype_name(x: Any) -> str:
    """'float32' in every library."""
    return str(x.dtype).removeprefix("torch.")


def assert_same_bits(x: Any, y: Any) -> None:
    """Every bit, that of the sign of zero too."""
    x, y = np.ascontiguousarray(x), np.ascontiguousarray(y)
    assert x.dtype == y.dtype and x.shape == y.shape
    different = (x.view(np.uint8) != y.view(np.uint8)).reshape(*x.shape, x.itemsize).any(-1)
    where = np.argwhere(different)[:5].tolist()
    assert not different.any(), (
        f"{different.sum()} of {x.size} differ, at {where}: {x[different][:5]}, {y[different][:5]}"
    )


# ---------------------------------------------------------------------------------------------------- systems


def in_threads(work: Callable[[int], Any], count: int) -> list[Any]:
    """What it returns for 0 <= k < count, each in a thread of its own, at the same time; an error in one is raised."""
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def let_tables_find_nothing(monkeypatch: Any, *tables: Any) -> None:
    """Every call goes the way of those that the tables of verbs have not met."""
    for table in tables:
        table.forget()
        monkeypatch.setattr(table, "call", lambda *arguments: None)


def noise(rng: np.random.Generator, shape: Any, dtype: str, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    x = rng.uniform(low, high, shape)
    if dtype.startswith("complex"):
        x = x + 1j * rng.uniform(low, high, shape)
    return x.astype(dtype)


def covariance(rng: np.random.Generator, *shape: int, rank: int | None = None) -> np.ndarray:
    """Random covariances; of less than full rank where ``rank`` is given."""
    x = rng.normal(size=(*shape, shape[-1] if rank is None else rank))
    return x @ x.swapaxes(-1, -2)


def dominant(shape: Any, dtype: str = "float64", axis: int = -1, seed: int = 0) -> list[np.ndarray]:
    """a, b, c, d with |b| > |a| + |c| in rows and in columns: plain elimination is accurate. The pads hold numbers."""
    rng = np.random.default_rng(seed)
    a, c, d = (noise(rng, shape, dtype) for _ in range(3))
    reach = [abs(a) + abs(c), abs(np.roll(a, -1, axis)) + abs(np.roll(c, 1, axis))]
    b = (np.maximum(*reach) + rng.uniform(0.1, 1, shape)) * rng.choice([-1, 1], shape)
    return [a, b.astype(dtype), c, d]


def uniform(shape: Any, dtype: str = "float64", axis: int = -1, seed: int = 0) -> list[np.ndarray]:
    """Entries uniform in (-1, 1): needs pivoting."""
    rng = np.random.default_rng(seed)
    return [noise(rng, shape, dtype) for _ in range(4)]


def zero_diagonal(shape: Any, dtype: str = "float64", axis: int = -1, seed: int = 0) -> list[np.ndarray]:
    """b = 0: regular for an even number of rows, singular for an odd one."""
    a, b, c, d = uniform(shape, dtype, axis, seed)
    return [a + np.sign(a.real), 0 * b, c + np.sign(c.real), d]


def positive(shape: Any, dtype: str = "float64", axis: int = -1, seed: int = 0) -> list[np.ndarray]:
    """Symmetric (Hermitian), positive definite, from diffusion."""
    rng = np.random.default_rng(seed)
    c, d = (noise(rng, shape, dtype) for _ in range(2))
    a = np.roll(c, 1, axis).conj()
    return [a, (abs(a) + abs(c) + rng.uniform(0.01, 0.1, shape)).astype(dtype), c, d]


GENERATORS = {"dominant": dominant, "positive": positive, "uniform": uniform, "zero_diagonal": zero_diagonal}


# ---------------------------------------------------------------------------------------------------- the oracle


def aligned(arguments: list[Any], axis: int) -> tuple[list[np.ndarray], int]:
    """The arguments broadcast against each other with the system axis last: the rule of the interface, said again."""
    arrays = [np.asarray(x) for x in arguments]
    rank = max(x.ndim for x in arrays)
    axis = axis % rank
    arrays = [x.reshape((1,) * axis + x.shape + (1,) * (rank - 1 - axis)) if x.ndim == 1 else x for x in arrays]
    return [np.moveaxis(x, axis, -1) for x in np.broadcast_arrays(*arrays)], axis


def dense(
    a: Any, b: Any, c: Any, *, axis: int = -1, periodic: bool = False, where: Any = None, transpose: bool = False
) -> np.ndarray:
    """The matrices (..., n, n) in extended precision; rows that are taken out are rows of the identity."""
    (a, b, c, keep), _ = aligned([a, b, c, True if where is None else where], axis)
    n = b.shape[-1]
    wide = np.clongdouble if any(np.iscomplexobj(x) for x in (a, b, c)) else np.longdouble
    matrix = np.zeros((*b.shape, n), wide)
    for i in range(n):
        for j, entry in ((i - 1, a), (i, b), (i + 1, c)):
            if 0 <= j < n or periodic:
                coupled = keep[..., i] & keep[..., j % n]
                matrix[..., i, j % n] = np.where(coupled, entry[..., i], i == j)
    return np.swapaxes(matrix, -1, -2) if transpose else matrix


def gauss(matrix: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Gaussian elimination with partial pivoting over the batch, in its own precision; NaN where singular."""
    n = d.shape[-1]
    work = np.concatenate((np.broadcast_to(matrix, (*d.shape, n)), d[..., None]), axis=-1)
    for k in range(n):
        p = k + np.abs(work[..., k:, k]).argmax(-1)[..., None, None]
        row = np.take_along_axis(work, p, -2)
        np.put_along_axis(work, p, work[..., k : k + 1, :], -2)
        with np.errstate(divide="ignore", invalid="ignore"):
            work[..., k : k + 1, :] = row / row[..., k : k + 1]
            work[..., k + 1 :, :] -= work[..., k + 1 :, k : k + 1] * work[..., k : k + 1, :]
    x = work[..., n]
    for k in range(n - 1, -1, -1):
        x[..., :k] -= work[..., :k, k] * x[..., k : k + 1]
    return x


def oracle(
    a: Any,
    b: Any,
    c: Any,
    d: Any,
    *,
    axis: int = -1,
    periodic: bool = False,
    where: Any = None,
    transpose: bool = False,
) -> np.ndarray:
    """The solution in extended precision, of the broadcast shape."""
    keep = True if where is None else where
    (a, b, c, d, keep), axis = aligned([a, b, c, d, keep], axis)
    matrix = dense(a, b, c, periodic=periodic, where=keep, transpose=transpose)
    d = np.where(keep, d, 0)
    return np.moveaxis(gauss(matrix, d.astype(np.result_type(matrix, d))), -1, axis)


def backward_errors(x: Any, a: Any, b: Any, c: Any, d: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """The componentwise backward error of every system (Oettli and Prager), and the normwise one, in long double.

    As in LAPACK's xGERFS, denominators that rounding to subnormal numbers can reach are kept away from zero.
    """
    x = np.asarray(x)
    dtype = np.dtype(REAL.get(x.dtype.name, x.dtype.name)).name
    axis, keep = options.pop("axis", -1), options.pop("where", None)
    (a, b, c, d, keep, x), _ = aligned([a, b, c, d, True if keep is None else keep, x], axis)
    a, b, c, d = (rounded(v, dtype) for v in (a, b, c, d))
    matrix = dense(a, b, c, where=keep, **options)
    d = np.where(keep, d, 0).astype(np.result_type(matrix, d))
    x = x.astype(np.result_type(matrix, x))
    floor = 4 * TINY[dtype] / EPS[dtype]
    residual = abs(d - np.einsum("...ij,...j->...i", matrix, x))
    scale = np.einsum("...ij,...j->...i", abs(matrix), abs(x)) + abs(d)
    sizes = [np.maximum(v.max(-1), floor) for v in (abs(matrix).sum(-1).max(-1, keepdims=True) * abs(x), abs(d))]
    return (residual / np.maximum(scale, floor)).max(-1), residual.max(-1) / sum(sizes)


def long_error(x: Any, a: Any, b: Any, c: Any, d: Any, pivoting: bool | str = "auto") -> float:
    """The largest componentwise backward error in eps (True: or normwise), residuals in long double; last axis."""
    real = REAL.get(x.dtype.name, x.dtype.name)
    wide = np.clongdouble if x.dtype.kind == "c" else np.longdouble
    a, b, c, d, x = (v.astype(wide) for v in np.broadcast_arrays(a, b, c, d, x))
    below, above = np.zeros_like(x), np.zeros_like(x)
    below[..., 1:], above[..., :-1] = a[..., 1:] * x[..., :-1], c[..., :-1] * x[..., 1:]
    scale = abs(below) + abs(b * x) + abs(above) + abs(d)
    residual, floor = abs(d - below - b * x - above), 4 * TINY[real] / EPS[real]
    found = (residual / np.maximum(scale, floor)).max()
    if pivoting is True:
        sizes = (abs(a) + abs(b) + abs(c)).max(-1) * abs(x).max(-1) + abs(d).max(-1)
        found = min(found, (residual.max(-1) / sizes).max())
    return float(found / EPS[real])


def rounded(x: np.ndarray, real: str) -> np.ndarray:
    """The argument as the solver gets it: in the precision of the result, real if it is real."""
    return x.astype(np.result_type(real, "complex64") if np.iscomplexobj(x) else real)


def assert_solves(
    x: Any, a: Any, b: Any, c: Any, d: Any, *, pivoting: bool | str = "auto", dtype: str | None = None, **options: Any
) -> None:
    """x solves the systems as well as the promise says: the one place where that is decided.

    "auto", and False where plain elimination is stable (dominant matrices): a componentwise backward error of at most 8
    eps. True: the same, or a normwise one where that holds, which is LAPACK's bound. Rows taken out are exactly 0.
    ``dtype``: "bfloat16" for values that were rounded to it; their rounding is allowed on top.
    """
    x = np.asarray(x)
    (x_rows, keep, *_), _ = aligned(
        [x, True if (keep := options.get("where")) is None else keep, a, b, c, d], options.get("axis", -1)
    )
    assert x.size == x_rows.size, f"x has shape {x.shape}; the arguments broadcast to {x_rows.shape}, system axis last"
    if x.size == 0:
        return
    assert np.isfinite(x).all(), f"not finite at {np.argwhere(~np.isfinite(x))[:5].tolist()}"
    assert not x_rows[~np.broadcast_to(keep, x_rows.shape)].any(), "a row that is taken out is not 0"
    name = dtype or x.dtype.name
    real = REAL.get(name, name)
    bound = 8 * EPS[real] + (EPS[name] if name in ("float16", "bfloat16") else 0)
    componentwise, normwise = backward_errors(x, a, b, c, d, **options)
    error = np.minimum(componentwise, normwise) if pivoting is True else componentwise
    worst = np.unravel_index(np.argmax(error), error.shape)
    assert error.max() <= bound, (
        f"backward error {float(error.max() / EPS[real]):.3g} eps in system {tuple(map(int, worst))}, "
        f"{(error > bound).sum()} of {error.size} systems above {bound / EPS[real]:.3g} eps"
    )
