"""The exceptions of the package that NumPy and Python do not have already."""

from __future__ import annotations

from typing import Any

import numpy as np


class SingularSystemError(np.linalg.LinAlgError):
    """Elimination with partial pivoting met an exactly zero pivot in some of the systems.

    ``indices`` holds the batch indices of those systems, one row each as in `numpy.argwhere` over the broadcast
    shape without the system axis; ``x`` is the solution, NaN in those systems and right in all others; ``column`` is
    that of the first one's zero pivot.

    Examples
    --------
    >>> import numpy as np, tridiag
    >>> try:
    ...     tridiag.solve(0.0, np.array([[1.0, 2.0], [1.0, 0.0]]), 0.0, np.ones((2, 2)))
    ... except tridiag.SingularSystemError as error:
    ...     print(error.indices, error.x[0], error.column)
    [[1]] [1.  0.5] 1
    """

    def __init__(self, message: str, indices: np.ndarray[Any, Any], x: Any, column: int | None = None) -> None:
        super().__init__(message)
        self.indices = indices
        self.x = x
        self.column = column

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.indices, self.x, self.column)


class BackendError(ValueError):
    """The backend asked for cannot run this problem; the message says why, and which can."""
