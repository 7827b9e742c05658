"""Kalman filters of many states: a matrix lies in rows of whole vectors, and its size is a number of the job."""
