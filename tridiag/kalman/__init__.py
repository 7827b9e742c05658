"""Kalman filters: linear Gaussian state-space models, many series at once.

x[t+1] = F[t] x[t] + c[t] + N(0, Q[t]),  y[t] = H[t] x[t] + d[t] + N(0, R[t]),  x[0] = N(m0, P0) before y[0] is seen.

    filter            the states, from what was observed up to each step; `Filtered`
    smoother          the states, from all that was observed; `Smoothed`
    log_likelihood    that of the observations, or of each step
    lag_one_smoother  the states, and their covariances with those before; `LagOneSmoothed`
    disturbance_smoother   the noise of states and of observations; `DisturbanceSmoothed`
    forecast          the observations to come; `Forecast`
    predict, update   one step of a filter, for streams; `Predicted`, `Updated`
    simulate          states and series drawn from a model; `Simulated`
    simulation_smoother   states drawn given all that was observed
    models            levels and trends, seasons, cycles, ARMA, regression, put together by +

`help(tridiag.kalman.filter)` tells what F, H, Q, R, m0 and P0 are. Results are named tuples: ``filter(...).mean``.
"""

from tridiag.kalman import models
from tridiag.kalman.disturbances import DisturbanceSmoothed, disturbance_smoother
from tridiag.kalman.execute import Filtered, Smoothed
from tridiag.kalman.filters import filter, log_likelihood, smoother
from tridiag.kalman.forecasts import Forecast, forecast
from tridiag.kalman.pairs import LagOneSmoothed, lag_one_smoother
from tridiag.kalman.samples import Simulated, simulate, simulation_smoother
from tridiag.kalman.streams import Predicted, Updated, predict, update

__all__ = [
    "DisturbanceSmoothed",
    "Filtered",
    "Forecast",
    "LagOneSmoothed",
    "Predicted",
    "Simulated",
    "Smoothed",
    "Updated",
    "disturbance_smoother",
    "filter",
    "forecast",
    "lag_one_smoother",
    "log_likelihood",
    "models",
    "predict",
    "simulate",
    "simulation_smoother",
    "smoother",
    "update",
]


def __dir__() -> list[str]:
    """What is called: `help` shows no methods of named tuples before it."""
    return [name for name in __all__ if name.islower()]
