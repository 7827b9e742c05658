"""Matrices whose rows lie on two devices, which are pretended to be GPUs: factors and determinants of whole ones."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from helpers import assert_solves, to_library, uniform
from jax.sharding import AxisType, PartitionSpec
from pretence import pretend

import tridiag

NAME = "cupy_pcr"


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    mesh = jax.make_mesh((2,), ("z",), axis_types=(AxisType.Auto,))
    rows = PartitionSpec(None, "z")

    def of_rows(a: Any, b: Any, c: Any, d: Any) -> Any:
        matrix = tridiag.factor(a, b, c, axis_name="z", backend=NAME)
        return matrix.solve(d), matrix.status, *tridiag.slogdet(a, b, c, axis_name="z", backend=NAME)

    by_rows = jax.jit(jax.shard_map(of_rows, mesh=mesh, in_specs=(rows,) * 4, out_specs=(rows, *[PartitionSpec()] * 3)))
    system = uniform((3, 10))
    for x in system[:3]:
        x[1] = 0
    x, status, sign, logarithm = (np.asarray(v) for v in by_rows(*(to_library("jax", v) for v in system)))
    assert_solves(x[::2], *(v[::2] for v in system))
    assert status.tolist() == [0, 1, 0] and np.isnan(x[1]).all()
    wanted = tridiag.slogdet(*system[:3])
    np.testing.assert_array_equal(sign, wanted[0])
    np.testing.assert_allclose(logarithm, wanted[1], rtol=1e-12)


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        pretend(patch, NAME)
        main()
    print("right")
