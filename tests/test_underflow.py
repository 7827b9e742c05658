"""Quotients that underflow in plain elimination: such systems have no certificate."""

import numpy as np
import pytest
from helpers import Subject


@pytest.mark.only(pivoting="auto")
@pytest.mark.parametrize("where", ["alone", "inside"])
def test_a_quotient_with_one_digit_left(backend: Subject, where: str) -> None:
    """c / b is 1e-45, which float32 has one bit for; a times it is as large as the next diagonal entry."""
    system = [np.array(v, np.float32) for v in ([0, 0.5e24], [1e24, 1e-21], [1e-21, 0], [1, 1])]
    beside = 0 if where == "alone" else 20
    fill = (0, 1, 0, 1)
    a, b, c, d = (np.pad(v, beside, constant_values=x) for v, x in zip(system, fill, strict=True))
    x = backend.solve(a, b, c, d)
    np.testing.assert_allclose(x[beside + 1], 1e21, rtol=1e-6)
