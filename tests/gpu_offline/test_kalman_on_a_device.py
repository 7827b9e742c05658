"""Kalman filters and draws of CuPy arrays that are on another device than the current one."""

from collections.abc import Callable
from typing import Any

import cpu_build
import numpy as np
import pytest
from helpers import STANDIN

if not STANDIN:
    pytest.skip("CuPy and a device are here: the stand-in is not in place", allow_module_level=True)
if reason := cpu_build.why_not():
    pytest.skip(reason, allow_module_level=True)

import cupy
from test_kalman import model, series

from tridiag import kalman

VERBS: dict[str, Callable[..., Any]] = {
    "filter": kalman.filter,
    "smoother": kalman.smoother,
    "log_likelihood": kalman.log_likelihood,
    "simulate": lambda y, **given: kalman.simulate(cupy.random.default_rng(0), 4, size=(2,), **given),
    "simulation_smoother": lambda y, **given: kalman.simulation_smoother(y, cupy.random.default_rng(0), **given),
}


@pytest.mark.parametrize("name", VERBS)
def test_results_are_on_the_device_of_the_arrays(name: str) -> None:
    values = {"y": series(3, 5, 2, missing=0.2), **model(2, 2)}
    results = []
    for device in (0, 1):
        with cupy.cuda.Device(device):
            given = {key: cupy.asarray(x) for key, x in values.items()}
        found = VERBS[name](**given)
        results.append(found if isinstance(found, tuple) else (found,))
        assert {x.device.id for x in results[-1]} == {device} and cupy.cuda.get_device_id() == 0
    for x, z in zip(*results, strict=True):
        np.testing.assert_array_equal(x.get(), z.get())


def test_other_generators_are_refused_by_name() -> None:
    given = {name: cupy.asarray(x) for name, x in model(2, 1).items()}
    with pytest.raises(TypeError, match=r"CuPy arrays want a cupy\.random\.Generator, as of default_rng\(\)"):
        kalman.simulate(np.random.default_rng(0), 4, **given)
