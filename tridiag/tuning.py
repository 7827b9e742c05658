"""The verb that measures this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def tune(*, progress: bool = True) -> Path:
    """Measure this machine, so that ``backend="auto"`` takes what is fastest on it; the result is kept on disk.

    .. math:: \\text{auto} = \\operatorname{argmin}_{\\text{backend}} t(\\text{backend}; n, \\text{systems}, \\ldots)

    Parameters
    ----------
    progress : bool
        Show a progress bar, where rich is installed.

    Returns
    -------
    pathlib.Path
        The file, in the user's data folder. It counts for this CPU, number of threads, and these versions of the
        libraries; otherwise it is ignored, with a warning. Remove it to go back to what comes with the package.

    Raises
    ------
    OSError
        The folder cannot be written.

    Notes
    -----
    One to three minutes, during which nothing else should run. A run that was cut off goes on where it ended. Systems
    are diagonally dominant, none is singular. What is compiled already by ``jax.jit`` keeps its backend.

    Examples
    --------
    >>> import tridiag
    >>> tridiag.tune()  # doctest: +SKIP
    PosixPath('/home/user/.local/share/tridiag/costs-0123456789ab.json')
    """
    from tridiag.benchmarking import tuning

    return tuning.run(progress)
