"""Kalman filters: linear Gaussian state-space models, many series at once.

x[t+1] = F[t] x[t] + c[t] + N(0, Q[t]),  y[t] = H[t] x[t] + d[t] + N(0, R[t]),  x[0] = N(m0, P0) before y[0] is seen.

    filter            the states, from what was observed up to each step; `Filtered`
    smoother          the states, from all that was observed; `Smoothed`
    log_likelihood    that of the observations
"""

from tridiag.kalman.filters import Filtered, Smoothed, filter, log_likelihood, smoother

__all__ = ["Filtered", "Smoothed", "filter", "log_likelihood", "smoother"]
