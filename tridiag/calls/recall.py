"""What calls with plain arrays depend on, of matrices that were eliminated: found by the first, then recalled."""

from __future__ import annotations

from typing import Any

from tridiag.calls import fast_path
from tridiag.calls.fast_path import Eliminated, WindowFactors, factored
from tridiag.calls.fast_path.windows import SOLVED_BEFORE, may_have


class Recall:
    """Of the matrices of one `Factorization`.

    One long matrix that was made without factors is cut into windows by one of its first right sides: what is known of
    it is settled from then on.
    """

    __slots__ = "_known", "_seek", "_waits", "plain", "settled", "windows"

    def __init__(self, seek_windows: bool, windows: WindowFactors | None = None) -> None:
        self.windows = windows
        self.settled: Any = None  # what is known once all that is to be kept is; False where that says little
        self.plain: Any = None  # the same of NumPy arrays, none of them singular; else None
        self._known: Any = None  # what is known until then
        self._seek = seek_windows  # whether windows are still to be looked for
        self._waits = 0  # right sides until they are

    def of_call(self, status: Any, made: Eliminated) -> Any:
        """What a call depends on while nothing is settled, which counts as a right side; False: it has no short way."""
        if self._known is None:
            self._known = self._found(status, made)
            self._waits = SOLVED_BEFORE if self._known and self._seek and may_have(made) else 0
        elif self._waits == 0:
            self.windows, self._seek = windows_of(made), False
            self._known = self._found(status, made)
        if self._waits == 0:
            self.settled = self._known
            self.plain = (self._known or None) if made.kind.library == "numpy" else None
        else:
            self._waits -= 1
        return self._known

    def with_factors(self) -> Recall:
        """That of the matrices once they are factored."""
        return Recall(self._seek, self.windows)

    def anew(self) -> Recall:
        """That of a copy of the matrices, of which nothing is known but whether windows may be found."""
        return Recall(self._seek or self.windows is not None)

    def _found(self, status: Any, made: Eliminated) -> Any:
        own: type = type(status)
        function = factored.known if made.kind.library == "numpy" else fast_path.short_way("known", own)
        return (None if function is None else function(status, made, self.windows)) or False


def windows_of(made: Eliminated) -> WindowFactors | None:
    """The factors of windows of one long matrix; None where couplings do not decay."""
    from tridiag.calls.fast_path import window_factors  # which imports kernels

    bands = made.matrix[:3]
    numpy = made.kind.library == "numpy"
    return window_factors.factored([x if numpy else x.detach().numpy() for x in bands])
