"""Recurrences whose coefficients have products that overflow, vanish, or hide what is left."""

import numpy as np

HARD = {  # a and x of so many rows
    "cancelling": lambda n: (np.full(n, 16.0), np.where(np.arange(n) == 0, 1.0, -15.0)),
    "vanishing": lambda n: (np.full(n, 1e-150), np.where(np.arange(n) % 7 == 0, 1e300, 0.0)),
    "vanishing in 20 rows": lambda n: (np.full(n, 1e-30), np.where(np.arange(n) % 40 == 39, 1e300, 0.0)),
    "vanishing and back": lambda n: (np.where(np.arange(n) % 30 < 15, 1e-20, 1e20), np.ones(n)),
    "an infinity": lambda n: (np.full(n, 0.5), np.where(np.arange(n) == n // 2, np.inf, 1.0)),
    "growing, with zeros": lambda n: (np.where(np.arange(n) % 20 == 0, 0.0, 1e15), np.ones(n)),
}
