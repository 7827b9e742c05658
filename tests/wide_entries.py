"""Systems whose entries span most of the range of numbers: rows and columns times powers of 2.

Such a system is as regular as that without the powers, its solution is that one times those of columns, and the
componentwise backward error is the same. Chosen and pivoted by numbers as they are, digits are lost to underflow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

SHARES = {"rows": (1.0, 0.0), "columns": (0.0, 1.0), "both": (0.5, 0.5)}
COUNT = 6


def wide(n: int, dtype: str, scaled: str, family: Any, span: float = 0.8) -> tuple[list[Any], list[Any]]:
    """a, b, c and d, and the same without powers of 2; corners are there, for matrices that are periodic."""
    rng = np.random.default_rng(n)
    plain = [np.array(x) for x in family((COUNT, n), dtype)]
    bits = -np.log2(float(np.finfo(dtype).tiny))
    rows, columns = (
        np.round(rng.uniform(-share * span * bits, share * span * bits, (COUNT, n))) for share in SHARES[scaled]
    )
    beside = np.roll(columns, 1, 1), columns, np.roll(columns, -1, 1)
    entries = [x * 2.0**rows * 2.0**near for x, near in zip(plain[:3], beside, strict=True)]
    return [x.astype(dtype) for x in (*entries, plain[3] * 2.0**rows)], plain


def ends_cut(systems: list[Any]) -> list[Any]:
    """Without the corners."""
    systems[0][:, 0] = systems[2][:, -1] = 0
    return systems


def among_tame(systems: list[Any], tame: list[Any]) -> list[Any]:
    """The systems, and others behind them."""
    return [np.concatenate((x, y)) for x, y in zip(systems, tame, strict=True)]
