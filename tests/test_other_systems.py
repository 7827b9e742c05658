"""What is left where the compiled kernels cannot run, as on Windows, whose threads are not those of POSIX."""

from processes import run_program

PROGRAM = """
import importlib
table = importlib.import_module("tridiag.backends")
table.POSIX = False
import numpy as np
import tridiag
from tridiag.kernels.runtime import object_cache

x = np.linspace(1, 2, 36).reshape(6, 6)
y = tridiag.solve(-1.0, 4.0, -1.0, x)
np.testing.assert_allclose(tridiag.matmul(-1.0, 4.0, -1.0, y), x)
cyclic = tridiag.solve(-1.0, 4.0, -1.0, x, periodic=True)
np.testing.assert_allclose(tridiag.matmul(-1.0, 4.0, -1.0, cyclic, periodic=True), x)
np.testing.assert_allclose(tridiag.factor(-1.0 + 0 * x, 4.0, -1.0).solve(x), y)
tridiag.slogdet(-1.0 + 0 * x, 4.0, -1.0)
tridiag.linear_recurrence(0.5, x), tridiag.logcumsumexp(x), tridiag.matrix_recurrence(np.eye(2), x.reshape(6, 3, 2))
tridiag.solve_block(np.eye(2), 4 * np.eye(2), np.eye(2), x.reshape(6, 3, 2))
model = dict(F=[[0.5]], H=[[1.0]], Q=[[1.0]], R=[[1.0]], m0=[0.0], P0=[[1.0]])
tridiag.kalman.log_likelihood(x[..., None], **model)
try:
    tridiag.solve(-1.0, 4.0, -1.0, x, backend="numba_thomas")
except tridiag.BackendError as error:
    print(error)
print([entry.why_not for entry in tridiag.backends() if entry.name == "numba_scan"], list(object_cache.modules))
"""


def test_verbs_take_what_runs_and_say_why() -> None:
    """No kernel is looked for: it would have symbols that nothing resolves."""
    told = run_program(PROGRAM)
    assert told.count("needs the threads of POSIX, which") == 2
    assert told.endswith("[]")
