"""The table of backends: what each one needs and can do, one line each, in the order in which "auto" prefers them.

Where it has been measured how long they take, the fastest goes first: `tridiag.selection.costs`.

Reading the table imports no backend. A backend is the module of its name in this folder; it holds

    solve(matrix, d, form, out=None, factors=None) -> (x, status)      the solution; see `tridiag.problems.forms.Form`
    factor(matrix, form) -> factors                                    with the verb "factor"
    status_of_jax_arrays(matrix, form) -> status                       where nothing else is kept of JAX arrays that it factors
    slogdet(matrix, form) -> (sign, logabsdet)                         with the verb "slogdet"
    adjoint(matrix, g, x, form) -> (w, of_a, of_b, of_c)               where it has the backward pass in one piece
    solve_block(blocks, d, form) -> x                                  ``blocks`` is (A, B, C); see `tridiag.problems.forms.Blocks`
    linear_recurrence(coefficients, x, init, form, out=None) -> y      see `tridiag.problems.forms.Recurrence`
    matrix_recurrence, of the same arguments                           the form has matrices
    log_linear_recurrence and logcumsumexp, of the same arguments      the coefficients are (log_a,) and ()
    kalman(verb, y, model, form) -> results                            see `tridiag.problems.state_space`, `tridiag.kalman`
    kalman_gradient(y, model, form, in_y) -> (of_y?, of_model)         of each log-likelihood in a constant model, in one piece
    selective_scan(operands, form, out=None) -> (y, last)              see `tridiag.problems.selective`
    selective_scan_adjoint(operands, form, g, of_last) -> Operands     where it has the backward pass in one piece
    smith_waterman(scores, lengths, parameters, derivatives, rules) -> (score, ...)   see `tridiag.calls.pairs.Pairs`

where ``matrix`` is (a, b, c, where), every array lifted to one rank, and ``status`` is None, or for each matrix 0 or 1 +
the row of the zero pivot; ``coefficients`` is (a1, ..., ap), and ``init`` (y[-1], ..., y[-p]) or (). With ``derivatives`` = 1 the score of an alignment
is followed by its gradient with respect to the scores, with 2 also by that to each parameter.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
import os
import sys
import sysconfig
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple

EXTRAS = {  # of this package, with which a module is installed
    "scipy": "scipy",
    "torch": "torch",
    "jax": "jax",
    "absl": "pallas",
    "cupy": "cuda13",
    "numba_cuda": "cuda13",
    "triton": "triton",
}
THREADS = os.name == "posix" or sys.platform == "win32"  # those that compiled kernels start
FREE_THREADED = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
BRIDGE = "jax.experimental.buffer_callback"  # by which other libraries launch kernels inside jit
FILTER, SMOOTHER, LIKELIHOOD = KALMAN = (
    "kalman.filter",
    "kalman.smoother",
    "kalman.log_likelihood",
)  # as in `problems`
STEPS = ("kalman.predict", "kalman.update")  # of a filter
SYSTEMS = ("solve", "factor", "slogdet")  # the verbs on tridiagonal systems
BLOCKS = "solve_block"
MATRICES = "matrix_recurrence"
ROWS = 16  # of the matrices for which it is compiled, as in `problems`
SELECTIVE = "selective_scan"  # as in `problems`


class Problem(NamedTuple):
    """What the choice of a backend depends on; static and hashable."""

    verb: str
    library: str
    device: str
    dtype: str
    shape: tuple[int, ...]
    axis: int
    pivoting: bool | str | None = "auto"  # None: there is nothing to pivot
    periodic: bool = False
    order: int = 1  # how many values before it one of a recurrence depends on
    method: str = "auto"  # of a Kalman filter
    states: int = 0  # of its model, or the values observed in a step if they are more
    shared: bool = False  # whether many systems share a matrix
    diffuse: bool = False  # whether a model has states of which nothing is known before the first step

    @property
    def unknowns(self) -> int:
        """Systems of fewer than three rows count as systems of three, to which cuSPARSE wants them extended."""
        return math.prod(max(3, n) if k == self.axis else n for k, n in enumerate(self.shape))

    @property
    def integer(self) -> bool:
        """Whether it is of integers, as some recurrences are."""
        return self.dtype.lstrip("u").startswith("int")

    @property
    def symbolic(self) -> bool:
        """Whether a size is a symbol, as in `jax.export`."""
        return not all(isinstance(n, int) for n in self.shape)

    def describe(self) -> str:
        if self.verb == "smith_waterman":
            return f"align pairs of shape {self.shape} in {self.dtype} from {self.library} arrays on {self.device}"
        if self.verb == BLOCKS:
            return f"solve block tridiagonal systems of shape {self.shape} in {self.dtype} from {self.library} arrays"
        if self.verb in STEPS:
            return f"run {self.verb} of states of shape {self.shape} in {self.dtype} from {self.library} arrays on {self.device}"
        if self.verb not in SYSTEMS:
            order = f" of order {self.order}" if self.order > 1 else ""
            order += f" with method={self.method!r}" if self.method != "auto" else ""
            return (
                f"run {self.verb}{order} along axis {self.axis} of shape {self.shape} in {self.dtype} "
                f"from {self.library} arrays on {self.device}"
            )
        kind = "periodic " if self.periodic else ""
        return (
            f"{self.verb} {kind}systems of shape {self.shape} in {self.dtype} from {self.library} arrays "
            f"on {self.device} with pivoting={self.pivoting!r}"
        )


@functools.cache
def installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


def no_gpu() -> str | None:
    """The sentence that says why no GPU can be used here. It imports CuPy, so it is for those who ask for one."""
    try:
        importlib.import_module("cupy").cuda.runtime.getDeviceCount()
    except Exception as error:  # whatever the libraries of CUDA, or their loader, may say
        return f"needs an NVIDIA GPU and its driver; CUDA finds none: {error}".partition("\n")[0]
    return None


@functools.cache
def numba_cuda_fails() -> str | None:
    """The sentence that says why Numba's CUDA compiles nothing here; it is imported only where NumPy may be too new."""
    numpy = importlib.import_module("numpy")
    if "row_stack" in vars(numpy):
        return None
    try:
        importlib.import_module("numba.cuda.np.arrayobj")
    except Exception as error:  # of an attribute that NumPy has no more, or of what numba-cuda needs besides
        told = str(error).partition("\n")[0]
        return (
            f"needs a numba-cuda that goes with NumPy {numpy.__version__}; the one here says: {told}. Install a newer "
            f'numba-cuda, or "numpy<2.5"'
        )
    return None


@functools.cache
def module_of(name: str) -> ModuleType:
    return importlib.import_module(f"tridiag.backends.{name}")


def how_to_install(extras: str) -> str:
    """The command that brings what an extra of the package needs; in a checkout no release is asked for."""
    return f'pip install "batched-tridiag[{extras}]", or in a checkout pip install ".[{extras}]"'


def not_installed(*modules: str) -> str | None:
    """The sentence that says which of them are not, and what installs them."""
    absent = [module for module in modules if not installed(module)]
    if not absent:
        return None
    extras = ",".join(dict.fromkeys(EXTRAS[module] for module in absent if module in EXTRAS))
    told = f"needs {' and '.join(absent)}, which {'is' if len(absent) == 1 else 'are'} not installed"
    return told + (f": {how_to_install(extras)}" if extras else "")


@dataclass(frozen=True)
class Backend:
    """One line of the table: facts only. What is said of pivoting and periodic systems means its verbs on systems."""

    name: str
    algorithm: str
    arrays: tuple[str, ...]
    needs: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("cpu",)
    dtypes: tuple[str, ...] = ("float32", "float64", "complex64", "complex128")
    pivoting: tuple[bool | str, ...] = (False, True, "auto")
    pivoting_on: tuple[tuple[str, tuple[bool | str, ...]], ...] = ()  # ... on the devices on which that is another
    periodic: bool = True
    verbs: tuple[str, ...] = ("solve",)
    order: int | None = None  # the highest order of the recurrences that it runs; None: any
    rows: int | None = None  # the most of the matrices of recurrences, or of the blocks, that it takes; None: any
    states: int | None = None  # the most that a model may have that it filters; None: any
    diffuse: tuple[str, ...] = ()  # the verbs for which it takes models of which some states are unknown at first
    parallel: bool = False  # in time: of logarithmic depth
    units: float | None = None  # the largest error of logcumsumexp, in units in the last place of max(1, abs(result))
    lacks: tuple[tuple[str, str], ...] = ()  # the verbs it does not have for the arrays of a library
    real: tuple[str, ...] = ()  # the verbs that it has for real numbers only
    largest: int | None = None  # the most unknowns that it can count
    integers: bool = False  # whether it runs recurrences of integers too
    long_to_compile: tuple[str, ...] = ()  # the verbs whose programs compile for longer than most problems take
    by_name: bool = False  # it has a fault, for which its name has to be asked for where there is another

    def module(self) -> ModuleType:
        return module_of(self.name)

    def missing(self) -> str | None:
        """The sentence that says what is not installed."""
        return not_installed(*self.needs)

    def mismatched(self) -> str | None:
        """The sentence that says which of the installed packages do not go together, or with this system."""
        if "numba" in self.needs and not THREADS:
            return f"needs the threads of POSIX or Windows, which {sys.platform} does not have"
        if "numba" in self.needs and FREE_THREADED:
            return (
                "needs a Python with a global interpreter lock, whatever PYTHON_GIL says: compiled calls read the objects "
                "and tables that one thread at a time may change; this one is free-threaded"
            )
        return numba_cuda_fails() if "numba_cuda" in self.needs and not self.missing() else None

    def unusable(self) -> str | None:
        """The sentence that says what this machine lacks to run it."""
        return self.missing() or self.mismatched() or (no_gpu() if "cupy" in self.needs else None)

    def why_not(self, problem: Problem) -> str | None:
        """The sentence that says why this backend cannot run the problem, or None where it can."""
        if reason := self.missing():
            return reason
        if problem.verb not in self.verbs:
            return f"does not have the verb {problem.verb}; it has {', '.join(self.verbs)}"
        if problem.library not in self.arrays:
            remedy = "; move them with cupy.asarray" if "cupy" in self.arrays and problem.library == "numpy" else ""
            return f"takes {' and '.join(self.arrays)} arrays, not {problem.library}{remedy}"
        if (problem.verb, problem.library) in self.lacks:
            return f"does not have the verb {problem.verb} for {problem.library} arrays"
        if problem.device not in self.devices:
            return f"runs on {' and '.join(self.devices)}, not on {problem.device}"
        if reason := self.mismatched():
            return reason
        if problem.library == "jax" and "cupy" in self.needs and not installed(BRIDGE):
            return f"needs {BRIDGE} for JAX arrays: jax 0.6.1 or newer"
        if problem.dtype not in self.dtypes and not (self.integers and problem.integer):
            return f"computes in {', '.join(self.dtypes)}, not in {problem.dtype}"
        if problem.verb in self.real and problem.dtype not in REALS:
            return f"computes {problem.verb} in {', '.join(REALS)}, not in {problem.dtype}"
        if problem.library == "jax" and self.needs != ("jax",) and problem.symbolic:
            return "needs sizes that are known when a program is traced, not symbols"
        if self.largest is not None and problem.unknowns > self.largest:
            return f"counts up to {self.largest} unknowns, not {problem.unknowns}"
        if problem.periodic and not self.periodic:
            return "has no elimination for the corners of a periodic matrix"
        if self.order is not None and problem.order > self.order:
            return f"runs recurrences up to order {self.order}, not of order {problem.order}"
        if self.rows is not None and problem.verb in (MATRICES, BLOCKS) and problem.shape[-1] > self.rows:
            what = "solves blocks" if problem.verb == BLOCKS else "multiplies matrices"
            return f"{what} of up to {self.rows} rows, not {problem.shape[-1]}"
        if self.states is not None and problem.states > self.states:
            return f"filters up to {self.states} states or observed values, not {problem.states}"
        if problem.diffuse and problem.verb not in self.diffuse:
            return f"has no {problem.verb} of states that are unknown at first; a finite P0 makes them known"
        if problem.method == "parallel" and not self.parallel:
            return "works one step after another, not in parallel"
        if problem.method == "sequential" and self.parallel:
            return "works in parallel, not one step after another"
        promises = dict(self.pivoting_on).get(problem.device, self.pivoting)
        if problem.pivoting is not None and problem.pivoting not in promises:
            place = "" if promises == self.pivoting else f" on {problem.device}"
            kept = " or ".join(map(repr, promises))
            return f"cannot keep the promise pivoting={problem.pivoting!r}{place}; it runs with pivoting={kept}"
        return None


PLAIN: tuple[Any, ...] = (False,)
LOGARITHMS = ("log_linear_recurrence", "logcumsumexp")
LINEAR = ("linear_recurrence", MATRICES)
SCAN: dict[str, Any] = {"verbs": LINEAR, "pivoting": (), "periodic": False}  # no verb on systems
LOG_SCAN: dict[str, Any] = {**SCAN, "verbs": (*LINEAR, *LOGARITHMS)}
FIRST_ORDER: dict[str, Any] = {**SCAN, "verbs": ("linear_recurrence", "logcumsumexp"), "order": 1}
REALS = ("float32", "float64")
ALIGN: dict[str, Any] = {"verbs": ("smith_waterman",), "dtypes": REALS, "pivoting": (), "periodic": False}
GPU = ("cuda",)
ON_GPU = ("cupy", "torch", "jax")
ANYWHERE = ("cpu", "cuda", "rocm", "tpu")
CUSPARSE: dict[str, Any] = {
    "arrays": ON_GPU,
    "needs": ("cupy",),
    "devices": GPU,
    "pivoting": (False, True),
    "periodic": False,
    "largest": 2**31 - 1,
}

# fmt: off
_LINES = (
    Backend("numba_thomas", "Thomas and pivoted elimination in tiles of systems, threaded", ("numpy", "torch", "jax"), ("numba",), verbs=(*SYSTEMS, BLOCKS)),
    Backend("numba_partition", "chunks of long systems, in the lanes of vectors and split over threads", ("numpy", "torch", "jax"), ("numba",), periodic=False),
    Backend("numba_scan", "recurrences in the lanes of vectors, long ones in blocks, threaded", ("numpy", "torch", "jax"), ("numba",), **LOG_SCAN | {"verbs": (*LINEAR, *LOGARITHMS, SELECTIVE, *KALMAN)}, order=8, units=2, rows=ROWS, states=32, lacks=((FILTER, "jax"), (SMOOTHER, "jax"), (SELECTIVE, "jax")), diffuse=KALMAN, real=(SELECTIVE,)),
    Backend("numba_wavefront", "alignment over rows of cells, a pair in each lane, threaded", ("numpy", "torch", "jax"), ("numba",), **ALIGN),
    Backend("cupy_pcr", "chunks of rows in registers, cyclic reduction among them: CUDA C", ON_GPU, ("cupy",), GPU, verbs=SYSTEMS),
    Backend("cupy_thomas", "Thomas and pivoted elimination, a thread for each system: CUDA C", ON_GPU, ("cupy",), GPU, verbs=(*SYSTEMS, BLOCKS), rows=8),
    Backend("cupy_scan", "recurrences: a thread for each sequence, or tiles of rows chained by look-back: CUDA C", ON_GPU, ("cupy",), GPU, **LOG_SCAN | {"verbs": (*LINEAR, *LOGARITHMS, SELECTIVE, *KALMAN)}, order=4, units=2, rows=ROWS, states=8, diffuse=KALMAN, lacks=((SELECTIVE, "jax"),), real=LOGARITHMS),
    Backend("numba_cuda_scan", "recurrences: a GPU thread for each sequence, or chunks of rows joined by a scan", ON_GPU, ("cupy", "numba_cuda"), GPU, **FIRST_ORDER, units=2, real=LOGARITHMS[1:]),
    Backend("triton_scan", "recurrences: a lane of Triton programs for each sequence, or chunks of rows joined by a scan", ("torch",), ("torch", "triton"), GPU, REALS, **FIRST_ORDER | {"verbs": (*FIRST_ORDER["verbs"], SELECTIVE)}, units=2),
    Backend("torch_thomas", "a loop over rows, all systems at once", ("torch",), ("torch",), ANYWHERE, verbs=(*SYSTEMS, BLOCKS)),
    Backend("jax_scan", "lax.scan over rows, pivoting by selects", ("jax",), ("jax",), ANYWHERE, verbs=(*SYSTEMS, BLOCKS, *LINEAR, *LOGARITHMS, SELECTIVE, *KALMAN), units=2, integers=True, diffuse=KALMAN),
    Backend("numpy_thomas", "a loop over rows, all systems at once: the reference", ("numpy",), verbs=(*SYSTEMS, BLOCKS)),
    Backend("scipy_gtsv", "LAPACK gtsv, one call per matrix", ("numpy",), ("scipy",), periodic=False),
    Backend("jax_lax", "lax.linalg.tridiagonal_solve: LAPACK gtsv on CPU, cuSPARSE on a GPU", ("jax",), ("jax",), ("cpu", *GPU), periodic=False, pivoting_on=((GPU[0], PLAIN),), by_name=True),
    Backend("jax_pcr", "parallel cyclic reduction, logarithmic depth", ("jax",), ("jax",), ANYWHERE, pivoting=PLAIN, periodic=False),
    Backend("jax_pallas", "Thomas, a thread for each system, by Pallas for Hopper and newer", ("jax",), ("jax", "absl"), GPU, REALS, periodic=False),
    Backend("jax_fori", "lax.fori_loop with dynamic slices, in place", ("jax",), ("jax",), ANYWHERE, pivoting=PLAIN, periodic=False, verbs=("solve", *LINEAR), integers=True),
    Backend("jax_associative", "lax.associative_scan, logarithmic depth", ("jax",), ("jax",), ANYWHERE, **LOG_SCAN | {"verbs": (*LINEAR, *LOGARITHMS, *KALMAN)}, order=1, units=2, parallel=True, long_to_compile=KALMAN),
    Backend("torch_scan", "a loop over rows, all sequences at once", ("torch",), ("torch",), ANYWHERE, **LOG_SCAN | {"verbs": (*LINEAR, *LOGARITHMS, SELECTIVE, *KALMAN)}, units=2, integers=True, diffuse=KALMAN),
    Backend("numpy_scan", "a loop over rows, all sequences at once: the reference", ("numpy",), **SCAN | {"verbs": (*LINEAR, *LOGARITHMS, SELECTIVE, *KALMAN)}, units=2, integers=True, diffuse=KALMAN),
    Backend("cupy_wavefront", "alignment over anti-diagonals, a warp or a block for each pair: CUDA C", ON_GPU, ("cupy",), GPU, **ALIGN),
    Backend("jax_wavefront", "alignment by lax.scan over anti-diagonals, in logarithms", ("jax",), ("jax",), ANYWHERE, **ALIGN),
    Backend("triton_thomas", "chunks of rows in the lanes of Triton programs, cyclic reduction among them", ("torch",), ("torch", "triton"), GPU, REALS, periodic=False),
    Backend("numba_cuda_thomas", "Thomas and pivoted elimination, a GPU thread for each system", ON_GPU, ("cupy", "numba_cuda"), GPU, REALS, periodic=False),
    Backend("cusparse_interleaved", "cuSPARSE gtsvInterleavedBatch: Thomas, or LU with partial pivoting", **CUSPARSE),
    Backend("cusparse_strided", "cuSPARSE gtsv2StridedBatch: parallel cyclic reduction", **CUSPARSE | {"pivoting": PLAIN}),
    Backend("cusparse_gtsv2", "cuSPARSE gtsv2, a call for each matrix with all its right sides", **CUSPARSE),
)
# fmt: on
BACKENDS: dict[str, Backend] = {entry.name: entry for entry in _LINES}
