"""One of two processes with four devices each, whose arrays are spread over all eight. Run by `test_sharding.py`.

python two_hosts.py ADDRESS PROCESS
"""

import sys
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import tridiag


def main(address: str, process: int) -> None:
    jax.config.update("jax_enable_x64", True)
    jax.distributed.initialize(address, 2, process)
    rng, shape = np.random.default_rng(0), (5, 64)
    a, c, d = (rng.uniform(-1, 1, shape) for _ in range(3))
    b = rng.uniform(3, 4, shape)
    sharding = NamedSharding(jax.make_mesh((8,), ("z",), axis_types=(AxisType.Auto,)), P(None, "z"))

    def spread(x: Any) -> Any:
        return jax.make_array_from_callback(shape, sharding, lambda index: x[index])

    wanted = tridiag.solve(a, b, c, d)
    for function in (jax.jit(tridiag.solve), tridiag.solve):
        x = function(*map(spread, (a, b, c, d)))
        for shard in x.addressable_shards:
            np.testing.assert_allclose(shard.data, wanted[shard.index], rtol=1e-13)
    wanted = tridiag.linear_recurrence(a, d)
    for function in (jax.jit(tridiag.linear_recurrence), tridiag.linear_recurrence):
        for shard in function(spread(a), spread(d)).addressable_shards:
            np.testing.assert_allclose(shard.data, wanted[shard.index], rtol=1e-11, atol=1e-13)
    b[1], a[1, 3], c[1, 3] = 0, 0, 0
    try:
        tridiag.solve(*map(spread, (a, b, c, d)))
    except tridiag.SingularSystemError as error:
        np.testing.assert_array_equal(error.indices, [[1]])
        print("right")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
