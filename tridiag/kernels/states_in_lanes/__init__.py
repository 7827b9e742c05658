"""Kalman filters of many states and many series: one series in each lane, and matrices of any size in memory."""
