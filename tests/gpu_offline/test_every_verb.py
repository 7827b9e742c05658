"""Every public function takes CuPy arrays, on whichever device they are, or says that it does not; none is left out.

The results are those of NumPy arrays, up to rounding, and lie where the arguments do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import cpu_build
import numpy as np
import pytest
from helpers import STANDIN, dominant

if not STANDIN:
    pytest.skip("CuPy and a device are here: the stand-in is not in place", allow_module_level=True)
if reason := cpu_build.why_not():
    pytest.skip(reason, allow_module_level=True)

import cupy
from test_kalman import model, series

import tridiag
from tridiag import conventions, kalman, parts
from tridiag.kalman import models

Run = Callable[[Callable[[Any], Any]], Any]  # from what makes arrays of NumPy ones
RNG = np.random.default_rng(0)
A, B, C, D = dominant((3, 7))
DENSE, VECTORS = RNG.uniform(-0.25, 0.25, (3, 7, 2, 2)), RNG.normal(size=(3, 7, 2))
BANDS = np.stack([np.roll(C[0], 1), B[0], np.roll(A[0], -1)])
Y, MODEL, ONE, TWO = series(3, 6, 2, missing=0.2), model(2, 2), np.array(0.5), np.array([0.5, 0.25])
UNKNOWN = np.diag([np.inf, 1.0])
STEPS, STATES = RNG.normal(size=(2, 6)), RNG.normal(size=(2, 6, 4))


def system(array: Any, *given: np.ndarray) -> list[Any]:
    return [array(x) for x in given]


def of_kalman(name: str, *more: Any, **options: Any) -> Run:
    values = MODEL | {"P0": UNKNOWN} if options.get("diffuse") else MODEL
    return lambda array: getattr(kalman, name)(
        array(Y), *more, **{key: array(x) for key, x in values.items()}, **options
    )


def predicted(array: Any) -> Any:
    F, Q, mean, cov = (array(MODEL[name]) for name in ("F", "Q", "m0", "P0"))
    return kalman.predict(mean, cov, F=F, Q=Q)


def updated(array: Any) -> Any:
    H, R, mean, cov = (array(MODEL[name]) for name in ("H", "R", "m0", "P0"))
    return kalman.update(mean, cov, array(Y[0, 0]), H=H, R=R)


def factored(array: Any) -> Any:
    matrix = tridiag.factor(*system(array, A, B, C))
    return matrix.solve(array(D)), matrix @ array(D), *matrix.slogdet(), matrix.status, matrix.rcond


def arranged(name: str, *given: Any) -> Run:
    """A system that another library would take so."""
    return lambda array: tridiag.solve(
        **getattr(conventions, name)(*(array(x) if isinstance(x, np.ndarray) else x for x in given))
    )


VERBS: dict[ModuleType, dict[str, Run]] = {
    tridiag: {
        "solve": lambda array: tridiag.solve(*system(array, A, B, C, D)),
        "factor": factored,
        "matmul": lambda array: tridiag.matmul(*system(array, A, B, C, D)),
        "slogdet": lambda array: tridiag.slogdet(*system(array, A, B, C)),
        "solve_block": lambda array: tridiag.solve_block(
            *system(array, DENSE, DENSE + 4 * np.eye(2), DENSE[::-1], VECTORS)
        ),
        "linear_recurrence": lambda array: tridiag.linear_recurrence(
            tuple(system(array, A / 8, C / 8)), array(D), return_final=True
        ),
        "log_linear_recurrence": lambda array: tridiag.log_linear_recurrence(*system(array, A, D)),
        "logcumsumexp": lambda array: tridiag.logcumsumexp(array(D)),
        "matrix_recurrence": lambda array: tridiag.matrix_recurrence(*system(array, DENSE, VECTORS)),
        "selective_scan": lambda array: tridiag.selective_scan(
            *system(array, -abs(STATES[0, 0]), STEPS, STATES, STATES[::-1]), step=array(abs(STEPS))
        ),
        "smith_waterman": lambda array: tridiag.smith_waterman(array(DENSE[:, :, 0]), gap=-1.0, gap_open=-2.0),
        "explain": lambda array: tridiag.explain("solve", *system(array, A, B, C, D)).backend and (),
    },
    kalman: {
        **{name: of_kalman(name) for name in ("smoother", "lag_one_smoother", "disturbance_smoother")},
        "filter": lambda array: (of_kalman("filter")(array), of_kalman("filter", diffuse=[0])(array)),
        "log_likelihood": lambda array: tuple(
            of_kalman("log_likelihood", **options)(array) for options in ({}, {"each_step": True}, {"burn": 1})
        ),
        "forecast": of_kalman("forecast", 3),
        "predict": predicted,
        "update": updated,
    },
    models: {
        "arma": lambda array: models.arma(array(TWO), array(TWO), array(ONE), noise=1.0),
        "autoregression": lambda array: models.autoregression([0.5, 0.25], array(ONE)),
        "cycle": lambda array: models.cycle(array(ONE), array(ONE)),
        "local_level": lambda array: models.local_level(array(ONE)) + models.seasonal(4, array(ONE)),
        "local_linear_trend": lambda array: models.local_linear_trend(array(ONE), 0.1),
        "regression": lambda array: models.regression(array(VECTORS[0]), array(ONE)),
        "seasonal": lambda array: models.seasonal(4, array(ONE)),
        "trigonometric_seasonal": lambda array: models.trigonometric_seasonal(4, array(ONE)),
    },
    conventions: {
        "from_cusparse_interleaved": arranged("from_cusparse_interleaved", *(x.T.copy() for x in (A, B, C, D)), 7),
        "from_cusparse_strided": arranged("from_cusparse_strided", A, B, C, D, 7),
        "from_jax": arranged("from_jax", A, B, C, D[..., None]),
        "from_lapack": arranged("from_lapack", A[0, 1:], B[0], C[0, :-1], D[0]),
        "from_scipy_banded": arranged("from_scipy_banded", BANDS, D[0]),
        "from_scipy_hermitian": arranged("from_scipy_hermitian", BANDS[:2], D[0]),
        "from_tensorflow": arranged("from_tensorflow", BANDS, D[0]),
    },
    parts: {},
}
HOST = "the arrays are of cupy on cuda; wanted NumPy arrays"
REFUSED: dict[tuple[ModuleType, str], tuple[Callable[[], Any], str]] = {
    (tridiag, "scan"): (
        lambda: tridiag.scan(lambda c, x: (c, x), cupy.zeros(3), cupy.zeros((4, 3))),
        "a cupy array, and scan runs in JAX: convert it",
    ),
    (parts, "reduce"): (lambda: parts.reduce(*system(cupy.asarray, A, B, C, D)), HOST),
    (parts, "finish"): (lambda: parts.finish(*system(cupy.asarray, A, B, C, D, D[:, :2])), HOST),
    (parts, "join"): (
        lambda: parts.join(cupy.zeros((2, 2, 4))),
        "ends is a ndarray; wanted an array of NumPy or PyTorch",
    ),
}
ELSEWHERE = {  # what has no arrays, and draws, which `test_kalman_on_a_device` makes
    tridiag: {"backends", "conventions", "kalman", "parts", "tune", "__version__"},
    kalman: {"models", "simulate", "simulation_smoother"},
}
CASES = [(module, name) for module, verbs in VERBS.items() for name in verbs]


def public(module: ModuleType) -> set[str]:
    """Its functions; and of the package what else it names."""
    names = getattr(module, "__all__", None) or [
        n for n, x in vars(module).items() if getattr(x, "__module__", "") == module.__name__
    ]
    return {name for name in names if (not name[0].isupper() and name[:1] != "_") or name == "__version__"}


@pytest.mark.parametrize("module", VERBS, ids=lambda module: module.__name__)
def test_none_is_left_out(module: ModuleType) -> None:
    refused = {name for place, name in REFUSED if place is module}
    assert public(module) == {*VERBS[module]} | refused | ELSEWHERE.get(module, set())


def arrays_of(found: Any) -> Iterator[Any]:
    """In the results of a function, or in a structure."""
    for x in found.values() if hasattr(found, "values") else found if isinstance(found, tuple) else (found,):
        yield from arrays_of(x) if isinstance(x, tuple) else (x,) if hasattr(x, "dtype") else ()


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize(("module", "name"), CASES, ids=lambda x: getattr(x, "__name__", x))
def test_it_takes_arrays_of_a_device(module: ModuleType, name: str, device: int) -> None:
    def array(x: np.ndarray) -> Any:
        with cupy.cuda.Device(device):
            return cupy.asarray(x)

    run = VERBS[module][name]
    found, right = list(arrays_of(run(array))), list(arrays_of(run(np.asarray)))
    assert len(found) == len(right) and cupy.cuda.get_device_id() == 0
    for x, z in zip(found, right, strict=True):
        assert isinstance(x, cupy.ndarray) and x.device.id == device
        np.testing.assert_allclose(x.get(), z, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("module", "name"), REFUSED, ids=lambda x: getattr(x, "__name__", x))
def test_what_takes_none_says_so(module: ModuleType, name: str) -> None:
    call, told = REFUSED[module, name]
    with pytest.raises(TypeError, match=told):
        call()
